"""Norms: one row an op, order and shape."""

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal

from .reduce import along_axes

CASES = [
    *[
        case
        for ord in (1, 2, np.inf, -np.inf, 3, 1.5)
        for case in (
            Case(ops.vector_norm, [normal(5, 4)], name=f"ord {ord}, axis 1", commutes=(0,),
                 static={"axis": 1, "ord": ord}),
            Case(ops.vector_norm, [normal(5, 4)], name=f"ord {ord}, all", static={"ord": ord}),
        )
    ],
    *along_axes(ops.norm, normal(5, 4)),
    Case(ops.norm, [normal(5, 4)], name="all"),
    Case(ops.norm, [normal(5, 4)], name="fro", static={"ord": "fro"}),
    Case(ops.norm, [normal(4)], name="ord 3", static={"ord": 3}),
    Case(ops.norm, [normal(5, 2, 3)], name="two inner", commutes=(0,), static={"axis": (1, 2)}),
]  # fmt: skip
