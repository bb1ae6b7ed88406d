"""`python -m benchmarks`: every table."""

from benchmarks import coalesce, grid, op_overhead, separate_parameters, table_step

for benchmark in (op_overhead, separate_parameters, table_step, coalesce, grid):
    benchmark.main()
