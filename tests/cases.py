"""The case table: one row an op and shape, and every law runs on every row.

Domains stay away from kinks, where finite differences mean nothing; tests of kinks have values.
"""

from tinygrad_sparse import nn, ops
from tinygrad_sparse.testing import Case, integers, normal, uniform

POSITIVE = {"low": 0.5, "high": 2.0}


def unary(op, draw=None, **options):
    return Case(op, [draw or normal(5, 3)], commutes=(0,), **options)


CASES = [
    # elementwise, two operands
    Case(ops.add, [normal(5, 3), normal(5, 3)], commutes=(0, 1)),
    Case(ops.add, [normal(5, 3), normal(3)], name="shared row", commutes=(0,)),
    Case(ops.add, [normal(5, 1), normal(1, 3)], name="both broadcast", commutes=(0,)),
    Case(ops.add, [normal(), normal(5)], name="0-d", commutes=(1,)),
    Case(ops.add, [normal(2, 1, 3), normal(1, 4, 3)], name="across leads", commutes=()),
    Case(ops.add, [normal(5, 0), normal(5, 1)], name="zero size", commutes=(0, 1)),
    Case(ops.subtract, [normal(5, 3), normal(5, 3)], commutes=(0, 1)),
    Case(ops.subtract, [normal(3), normal(5, 3)], name="shared left", commutes=(1,)),
    Case(ops.multiply, [normal(5, 3), normal(5, 3)], commutes=(0, 1)),
    Case(ops.multiply, [normal(5, 3), normal(5, 1)], name="by column", commutes=(0, 1)),
    Case(ops.multiply, [normal(5, 3), normal(1, 3)], name="by row", commutes=(0,)),
    Case(ops.multiply, [normal(4, 5, 3), normal(5, 3)], name="three axes", commutes=(0,)),
    Case(ops.divide, [normal(5, 3), uniform(5, 3, **POSITIVE)], commutes=(0, 1)),
    Case(ops.divide, [normal(5, 3), uniform(3, **POSITIVE)], name="shared", commutes=(0,)),
    Case(ops.power, [uniform(5, 3, **POSITIVE), normal(5, 3)], commutes=(0, 1)),
    Case(lambda x: x**3, [normal(5, 3)], name="power: constant exponent", commutes=(0,)),
    Case(lambda x: 2.0**x, [normal(5, 3)], name="power: constant base", commutes=(0,)),
    Case(lambda x: x * x, [normal(5, 3)], name="multiply: one tensor twice", commutes=(0,)),
    Case(ops.maximum, [normal(5, 3), normal(5, 3)], commutes=(0, 1)),
    Case(ops.minimum, [normal(5, 3), normal(3)], commutes=(0,)),
    Case(ops.where, [integers(5, 3, high=2), normal(5, 3), normal(5, 3)], commutes=(0, 1, 2)),
    Case(ops.where, [integers(5, 1, high=2), normal(3), normal()], name="broadcast", commutes=(0,)),
    # elementwise, one operand
    unary(ops.negative),
    unary(ops.absolute),
    unary(ops.exp),
    unary(ops.log, uniform(5, 3, **POSITIVE)),
    unary(ops.sqrt, uniform(5, 3, **POSITIVE)),
    unary(ops.tanh),
    unary(ops.tanh, normal(4, 2, 3), name="three axes"),
    unary(ops.sigmoid),
    unary(ops.softplus),
    unary(ops.relu),
    # reductions
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
    unary(ops.softmax),
    Case(ops.softmax, [normal(5, 3)], name="axis 0", rows="dense", static={"axis": 0}),
    unary(ops.log_softmax),
    # matrix products
    Case(ops.matmul, [normal(5, 3), normal(3, 4)], commutes=(0,)),
    Case(ops.matmul, [normal(5, 5), normal(5, 5)], name="square", commutes=(0,)),
    Case(ops.matmul, [normal(5, 3), normal(3)], name="matrix @ vector", commutes=(0,)),
    Case(ops.matmul, [normal(3), normal(3, 4)], name="vector @ matrix", rows="dense"),
    Case(ops.matmul, [normal(3), normal(3)], name="vector @ vector"),
    Case(ops.matmul, [normal(5, 2, 3), normal(5, 3, 2)], name="batched", commutes=(0, 1)),
    Case(ops.matmul, [normal(5, 2, 3), normal(3, 2)], name="batch @ shared", commutes=(0,)),
    Case(ops.matmul, [normal(5, 2, 3), normal(1, 3, 2)], name="batch of 1", commutes=(0,)),
    Case(ops.matmul, [normal(5, 2, 3), normal(3)], name="batch @ vector", commutes=(0,)),
    Case(ops.matmul, [normal(3), normal(5, 3, 2)], name="vector @ batch", rows="dense"),
    Case(ops.matmul, [normal(0, 3), normal(3, 2)], name="empty batch"),
    # shapes
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
    # lookups
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
    # losses
    Case(nn.cross_entropy, [normal(5, 3), integers(5, high=3)]),
    Case(nn.cross_entropy, [normal(5, 3), integers(5, high=3)], name="each", commutes=(0, 1),
         static={"reduction": "none"}),
    Case(nn.bce_with_logits, [normal(5, 3), uniform(5, 3)]),
]  # fmt: skip
