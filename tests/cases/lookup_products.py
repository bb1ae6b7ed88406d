"""Products of looked-up rows: one row a shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.ops.logistic import _logistic_slope
from tinygrad_sparse.testing import Case, integers, normal, uniform

CASES = [
    Case(ops.row_products,
         [normal(6, 3), normal(4, 3), integers(5, 2, high=6), integers(5, 4, high=4)],
         commutes=(2, 3)),
    Case(ops.row_products,
         [normal(6, 3), normal(4, 3), integers(5, 2, high=6), integers(5, 2, high=4)],
         name="as many rows as columns", commutes=(2, 3)),
    Case(ops.row_products,
         [normal(6, 3), normal(4, 3), integers(0, 2, high=6), integers(0, 1, high=4)],
         name="no groups"),
    Case(ops.weighted_rows, [normal(5, 2, 4), normal(6, 3), integers(5, 4, high=6)],
         commutes=(0, 2)),
    Case(ops.weighted_rows, [normal(5, 2, 0), normal(6, 3), integers(5, 0, high=6)],
         name="no ids", commutes=(0, 2)),
    Case(_logistic_slope, [normal(5, 3), uniform(3), normal(5, 3)]),
]  # fmt: skip
