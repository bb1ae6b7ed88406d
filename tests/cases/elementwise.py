"""Arithmetic, roots and choices: one row an op and shape."""

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.functional import identity
from tinygrad_sparse.ops.elementwise import _twice_product
from tinygrad_sparse.testing import Case, integers, normal, uniform

POSITIVE = {"low": 0.5, "high": 2.0}


def unary(op, draw=None, **options):
    return Case(op, [draw or normal(5, 3)], commutes=(0,), **options)


CASES = [
    # two operands
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
    Case(_twice_product, [normal(5, 3), normal(5, 3)], commutes=(0, 1)),
    Case(ops.divide, [normal(5, 3), uniform(5, 3, **POSITIVE)], commutes=(0, 1)),
    Case(ops.divide, [normal(5, 3), uniform(3, **POSITIVE)], name="shared", commutes=(0,)),
    Case(lambda x: x * x, [normal(5, 3)], name="multiply: one tensor twice", commutes=(0,)),
    Case(ops.maximum, [normal(5, 3), normal(5, 3)], commutes=(0, 1)),
    Case(ops.minimum, [normal(5, 3), normal(3)], commutes=(0,)),
    Case(ops.copysign, [normal(5, 3), normal(5, 3)], commutes=(0, 1)),
    Case(ops.copysign, [normal(3), normal(5, 1)], name="shared left", commutes=(1,)),
    Case(ops.where, [integers(5, 3, high=2), normal(5, 3), normal(5, 3)], commutes=(0, 1, 2)),
    Case(ops.where, [integers(5, 1, high=2), normal(3), normal()], name="broadcast", commutes=(0,)),
    Case(ops.clip, [normal(5, 3), normal(5, 3), normal(5, 3)], commutes=(0, 1, 2)),
    Case(ops.clip, [normal(5, 3), uniform(3, low=-1.0), uniform()], name="shared", commutes=(0,)),
    unary(ops.clip, static={"a_min": -0.5, "a_max": 0.5}, name="numbers"),
    unary(ops.clip, static={"max": 0.1}, name="above only"),
    # one operand
    Case(lambda x: ops.cast(ops.cast(x, np.float64), x.dtype) * 2.0, [normal(5, 3)],
         name="cast: there and back", commutes=(0,)),
    unary(identity),
    unary(ops.negative),
    unary(ops.positive),
    unary(ops.absolute),
    unary(ops.square),
    unary(ops.reciprocal, uniform(5, 3, **POSITIVE)),
    unary(ops.sqrt, uniform(5, 3, **POSITIVE)),
    unary(ops.cbrt, uniform(5, 3, low=-2.0, high=-0.5)),
]  # fmt: skip
