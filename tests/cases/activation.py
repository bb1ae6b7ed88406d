"""Activations: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.ops.activation import _bell
from tinygrad_sparse.testing import Case, normal

from .elementwise import unary

CASES = [
    *[
        unary(op)
        for op in (
            ops.relu, ops.leaky_relu, ops.elu, ops.sigmoid, ops.softplus, ops.log_sigmoid,
            ops.silu, ops.erf, ops.gelu,
        )
    ],
    unary(ops.leaky_relu, static={"negative_slope": 0.3}, name="slope"),
    unary(ops.elu, static={"alpha": 1.7}, name="alpha"),
    unary(ops.gelu, static={"approximate": "tanh"}, name="tanh"),
    unary(ops.erf, normal(4, 2, 3), name="three axes"),
    unary(_bell),
    Case(ops.erf, [normal()], name="0-d"),
    Case(ops.erf, [normal(5, 0)], name="zero size"),
]  # fmt: skip
