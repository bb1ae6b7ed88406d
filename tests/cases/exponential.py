"""Exponentials and logarithms: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal, uniform

from .elementwise import POSITIVE, unary

CASES = [
    *[unary(op) for op in (ops.exp, ops.exp2, ops.expm1)],
    *[unary(op, uniform(5, 3, **POSITIVE)) for op in (ops.log, ops.log2, ops.log10, ops.log1p)],
    Case(ops.exp, [normal()], name="0-d"),
    Case(ops.log1p, [uniform(0, 3)], name="zero size"),
]
