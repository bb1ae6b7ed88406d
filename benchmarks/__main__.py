"""`python -m benchmarks`: every table."""

from benchmarks import leaf_update, op_overhead, separate_parameters, soft_tree, table_step

for benchmark in (op_overhead, separate_parameters, table_step, leaf_update, soft_tree):
    benchmark.main()
