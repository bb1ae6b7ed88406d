"""Lookups: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, integers, normal

CASES = [
    Case(ops.take, [normal(5, 3), integers(7, high=5)]),
    Case(ops.take, [normal(5, 3), integers(2, 4, high=5)], name="ids of rank 2"),
    Case(ops.take, [normal(5, 3), integers(high=5)], name="one id"),
    Case(ops.take, [normal(5, 2, 3), integers(0, high=5)], name="no ids"),
    Case(lambda x, i, j: x[i][j], [normal(5, 3), integers(6, high=5), integers(4, high=6)],
         name="take: of take"),
    Case(ops.scatter_rows, [normal(4, 3), integers(4, high=6)], static={"size": 6}),
    Case(lambda x: x[1:4], [normal(5, 3)], name="getitem: slice"),
    Case(lambda x: x[::-2, 1], [normal(5, 3)], name="getitem: steps and a column"),
    Case(lambda x: x[:, None, -1:], [normal(5, 3)], name="getitem: columns", commutes=(0,)),
    Case(lambda x: x[..., 0], [normal(5, 2, 3)], name="getitem: ellipsis", commutes=(0,)),
    Case(lambda x: x[3], [normal(5, 3)], name="getitem: integer"),
    Case(lambda x, ids: x[ids, 1:], [normal(5, 3), integers(4, high=5)],
         name="getitem: ids, slice"),
    Case(lambda x: x[3:1:2], [normal(5, 3)], name="getitem: empty"),
]  # fmt: skip
