"""Reductions and the softmax family: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal

CASES = [
    *[
        Case(op, [normal(5, 4)], name=f"axis {axis}, keepdims {keep}", rows=rows,
             commutes=(0,) if rows == "sparse" else (), static={"axis": axis, "keepdims": keep})
        for op in (ops.sum, ops.mean, ops.max, ops.min, ops.logsumexp)
        for axis, keep, rows in [
            (0, False, "dense"), (-1, False, "sparse"), (1, True, "sparse"),
            ((0, -1), True, "dense"),
        ]
    ],
    *[Case(op, [normal(5, 4)], name="all") for op in (ops.sum, ops.mean, ops.max, ops.logsumexp)],
    Case(ops.sum, [normal(5, 2, 3)], name="middle", commutes=(0,), static={"axis": 1}),
    Case(ops.sum, [normal(5, 3)], name="no axes", commutes=(0,), static={"axis": ()}),
    Case(ops.softmax, [normal(5, 3)], commutes=(0,)),
    Case(ops.softmax, [normal(5, 3)], name="axis 0", rows="dense", static={"axis": 0}),
    Case(ops.log_softmax, [normal(5, 3)], commutes=(0,)),
]  # fmt: skip
