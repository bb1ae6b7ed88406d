"""Arrays made of integers: they have no gradient, what they meet has."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, integers, normal

CASES = [
    Case(lambda x, ids: x * ops.one_hot(ids, 3, x.dtype), [normal(5, 3), integers(5, high=3)],
         name="one_hot: times a matrix", commutes=(0, 1)),
]  # fmt: skip
