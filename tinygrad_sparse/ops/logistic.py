"""The loss of logistic regression in one pass. Floor 4: declarations only.

Of small ops it would be ``w * (softplus(x) - y * x)``. Declared as one, no array but the loss is
kept for the backward, and the cotangent of x is w (σ(x) - y) without a detour: in word2vec, whose
every score goes through here, that is half of the time spent on elements.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from tinygrad_sparse.backend import Array
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import elementwise

from .activation import sigmoid, softplus


@primitive(
    kernel="logistic_slope",
    rows=elementwise,
    vjp=(
        lambda g, out, x, y, w: g * (w * (sigmoid(x) * sigmoid(-x))),
        lambda g, out, x, y, w: -g * w,
        lambda g, out, x, y, w: g * (sigmoid(x) - y),
    ),
)
def _logistic_slope(x: Array, y: Array, w: Array) -> Array:
    """w · (σ(x) - y), the slope of `logistic_loss` along x."""


@primitive(
    kernel="logistic_loss",
    rows=elementwise,
    vjp=(
        lambda g, out, x, y, w: g * _logistic_slope(x, y, w),
        lambda g, out, x, y, w: -g * (w * x),
        lambda g, out, x, y, w: g * (softplus(x) - y * x),
    ),
)
def logistic_loss(x: Array, y: Array, w: Array) -> Array:
    """w · (log(1 + e**x) - y·x): cross-entropy of σ(x) with y in [0, 1], times a weight.

    Without overflow at either end. For a y of 0 or 1 it is w · softplus(x) or w · softplus(-x).

    >>> import numpy as np
    >>> logistic_loss(np.array([0.0, 1000.0, -1000.0]), np.array([1.0, 1.0, 1.0]), 2.0)
    array([1.38629436e+00, 0.00000000e+00, 2.00000000e+03])
    """
