"""The logistic loss: one row a shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal, uniform

CASES = [
    Case(ops.logistic_loss, [normal(5, 3), uniform(5, 3, low=0.1, high=0.9), normal(5, 3)]),
    Case(ops.logistic_loss, [normal(5, 4, 3), uniform(3, low=0.1, high=0.9), normal(5, 4, 1)],
         name="broadcast targets and weights"),
    Case(ops.logistic_loss, [normal(), uniform(low=0.1, high=0.9), normal()], name="0-d"),
    Case(ops.logistic_loss, [normal(0, 3), uniform(3, low=0.1, high=0.9), normal(3)],
         name="zero size"),
]  # fmt: skip
