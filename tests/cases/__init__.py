"""The case table: one row an op and shape, and every law runs on every row.

Domains stay away from kinks, where finite differences mean nothing; kinks have declared values.
"""

from . import (
    activation,
    elementwise,
    exponential,
    linalg,
    nn,
    norms,
    reduce,
    rounding,
    rows,
    scan,
    shape,
    softmax,
    trigonometric,
)

PARTS = (
    elementwise,
    exponential,
    rounding,
    trigonometric,
    activation,
    shape,
    reduce,
    scan,
    norms,
    softmax,
    linalg,
    rows,
    nn,
)
CASES = [case for part in PARTS for case in part.CASES]
