"""Ops that move elements: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal

CASES = [
    Case(ops.reshape, [normal(6, 4)], static={"shape": (6, 2, 2)}),
    Case(ops.reshape, [normal(6, 4)], name="leading axes", static={"shape": (2, 3, 4)}),
    Case(ops.reshape, [normal(6, 4)], name="flat", rows="sparse", static={"shape": -1}),
    Case(ops.reshape, [normal(6, 4)], name="merged rows", static={"shape": (3, 8)}),
    Case(ops.transpose, [normal(5, 3)], rows="dense"),
    Case(ops.transpose, [normal(5, 2, 3)], name="within rows", static={"axes": (0, 2, 1)}),
    Case(ops.swapaxes, [normal(5, 2, 3)], static={"axis1": -1, "axis2": 1}),
    Case(ops.expand_dims, [normal(5, 3)], static={"axis": (0, -1)}),
    Case(ops.squeeze, [normal(5, 1, 3)]),
    Case(ops.broadcast_to, [normal(5, 1)], commutes=(), static={"shape": (5, 3)}),
    Case(ops.broadcast_to, [normal(3)], name="new axis", static={"shape": (5, 3)}),
    Case(lambda x, y: ops.concatenate([x, y]), [normal(5, 3), normal(2, 3)], name="concatenate"),
    Case(lambda x, y: ops.concatenate([x, y, x], axis=-1), [normal(5, 3), normal(5, 2)],
         name="concatenate: columns", commutes=(0, 1)),
    Case(lambda x, y: ops.concatenate([x, y]), [normal(2, 5), normal(0, 5)],
         name="concatenate: empty"),
    Case(lambda x, y: ops.stack([x, y], axis=1), [normal(5, 3), normal(5, 3)], name="stack: axis 1",
         commutes=(0, 1)),
    Case(lambda x, y: ops.stack([x, y]), [normal(5, 3), normal(5, 3)], name="stack"),
]  # fmt: skip
