"""The case table: one row an op and shape, and every law runs on every row.

Domains stay away from kinks, where finite differences mean nothing; kinks have declared values.
"""

from . import (
    constants,
    conv,
    diagonals,
    einsum,
    elementwise,
    linalg,
    nn,
    reduce,
    rows,
    shape,
    solve,
)

PARTS = (elementwise, shape, reduce, diagonals, einsum, linalg, solve, conv, constants, rows, nn)
CASES = [case for part in PARTS for case in part.CASES]
