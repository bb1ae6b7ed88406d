"""Trigonometric and hyperbolic functions: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal, uniform

from .elementwise import unary

INSIDE = {"low": -0.9, "high": 0.9}

CASES = [
    *[unary(op) for op in (ops.sin, ops.cos, ops.arctan, ops.sinh, ops.cosh, ops.tanh)],
    *[unary(op, uniform(5, 3, **INSIDE)) for op in (ops.tan, ops.arcsin, ops.arccos, ops.arctanh)],
    unary(ops.arcsinh),
    unary(ops.arccosh, uniform(5, 3, low=1.5, high=3.0)),
    unary(ops.tanh, normal(4, 2, 3), name="three axes"),
    *[
        case
        for op in (ops.arctan2, ops.hypot)
        for case in (
            Case(op, [normal(5, 3), normal(5, 3)], commutes=(0, 1)),
            Case(op, [normal(5, 3), normal(3)], name="shared", commutes=(0,)),
            Case(op, [normal(5, 1), normal(1, 3)], name="both broadcast", commutes=(0,)),
        )
    ],
]
