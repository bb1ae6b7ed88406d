"""Lookups and their transpose: one row an op and shape."""

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, integers, normal

CASES = [
    Case(ops.take, [normal(5, 3), integers(7, high=5)]),
    Case(ops.take, [normal(5, 3), integers(2, 4, high=5)], name="ids of rank 2"),
    Case(ops.take, [normal(5, 3), integers(high=5)], name="one id"),
    Case(ops.take, [normal(5, 2, 3), integers(0, high=5)], name="no ids"),
    Case(ops.take, [normal(5), integers(2, 2, high=5)], name="elements"),
    Case(ops.take, [normal(5, 4), integers(3, high=4)], name="columns", commutes=(0,),
         static={"axis": -1}),
    Case(ops.take, [normal(4, 5, 2), integers(2, 2, high=5)], name="middle, rank 2", commutes=(0,),
         static={"axis": 1}),
    Case(ops.take, [normal(5, 3), integers(4, high=15)], name="flat", static={"axis": None}),
    Case(lambda x, ids: ops.take(ops.transpose(x), ids), [normal(5, 3), integers(4, high=3)],
         name="take: of a transposed table"),
    Case(lambda x, i, j: x[i][j], [normal(5, 3), integers(6, high=5), integers(4, high=6)],
         name="take: of take"),
    Case(lambda x, i, j: x[i][:, j], [normal(5, 4), integers(6, high=5), integers(3, high=4)],
         name="take: columns of rows", commutes=(1,)),
    Case(ops.take_along_axis, [normal(5, 4), integers(5, 2, high=4)], commutes=(0, 1)),
    Case(ops.take_along_axis, [normal(5, 4), integers(1, 2, high=4)], name="shared", commutes=(0,)),
    Case(ops.take_along_axis, [normal(5, 3), integers(6, 3, high=5)], name="axis 0",
         static={"axis": 0}),
    Case(ops.take_along_axis, [normal(4, 3, 2), integers(4, 5, 1, high=3)], name="whole rows",
         commutes=(0, 1), static={"axis": 1}),
    Case(ops.take_along_axis, [normal(4, 3, 2), integers(4, 1, 2, high=3)], name="middle",
         commutes=(0, 1), static={"axis": 1}),
    Case(ops.take_along_axis, [normal(5, 3), integers(4, high=15)], name="flat",
         static={"axis": None}),
    Case(ops.scatter_rows, [normal(4, 3), integers(4, high=6)], static={"size": 6}),
    Case(ops.scatter_rows, [normal(4, 2, 3), lambda rng: np.array([1, 0, 1, 1])],
         name="repeated ids", static={"size": 5}),
    Case(ops.scatter_rows, [normal(0, 3), integers(0, high=6)], name="nothing", static={"size": 6}),
    Case(lambda x, ids: x * ops.one_hot(ids, 3, x.dtype), [normal(5, 3), integers(5, high=3)],
         name="one_hot: times a matrix", commutes=(0, 1)),
]  # fmt: skip
