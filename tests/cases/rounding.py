"""Steps and remainders: one row an op and shape, away from the jumps."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal, uniform

from .elementwise import unary

CASES = [
    *[unary(op) for op in (ops.sign, ops.floor, ops.ceil, ops.trunc, ops.round)],
    unary(ops.round, static={"decimals": 1}, name="one decimal"),
    Case(ops.floor_divide, [normal(5, 3), uniform(3, low=0.4)], commutes=(0,)),
    Case(ops.remainder, [uniform(5, 3, low=-9.0), uniform(5, 3, low=0.4)], commutes=(0, 1)),
    Case(ops.remainder, [uniform(3, low=2.0, high=9.0), uniform(5, 1, low=-1.0, high=-0.4)],
         name="shared left", commutes=(1,)),
    Case(ops.fmod, [uniform(5, 3, low=-9.0), uniform(5, 3, low=0.4)], commutes=(0, 1)),
    Case(lambda x: x % 2.0, [normal(5, 3)], name="remainder: constant", commutes=(0,)),
]  # fmt: skip
