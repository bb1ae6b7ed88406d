"""`python -m benchmarks`: every table; peers that are not installed are left out."""

from benchmarks import (
    break_even,
    coalesce,
    grid,
    leaf_update,
    op_overhead,
    separate_parameters,
    soft_tree,
    table_step,
)

for benchmark in (
    op_overhead,
    separate_parameters,
    table_step,
    coalesce,
    grid,
    leaf_update,
    soft_tree,
    break_even,
):
    benchmark.main()
