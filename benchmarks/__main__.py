"""`python -m benchmarks`: every table."""

from benchmarks import op_overhead, separate_parameters, table_step

for benchmark in (op_overhead, separate_parameters, table_step):
    benchmark.main()
