"""Exponentials, logarithms and powers: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal, uniform

from .elementwise import POSITIVE, unary

CASES = [
    *[unary(op) for op in (ops.exp, ops.exp2, ops.expm1)],
    *[unary(op, uniform(5, 3, **POSITIVE)) for op in (ops.log, ops.log2, ops.log10, ops.log1p)],
    Case(ops.exp, [normal()], name="0-d"),
    Case(ops.log1p, [uniform(0, 3)], name="zero size"),
    Case(ops.power, [uniform(5, 3, **POSITIVE), normal(5, 3)], commutes=(0, 1)),
    Case(ops.power, [uniform(5, 3, **POSITIVE), normal(3)], name="shared", commutes=(0,)),
    Case(lambda x: x**3, [normal(5, 3)], name="power: constant exponent", commutes=(0,)),
    Case(lambda x: x**0.5, [uniform(5, 3, **POSITIVE)], name="power: a root", commutes=(0,)),
    Case(lambda x: x**0, [normal(5, 3)], name="power: exponent 0", commutes=(0,)),
    Case(lambda x: 2.0**x, [normal(5, 3)], name="power: constant base", commutes=(0,)),
]  # fmt: skip
