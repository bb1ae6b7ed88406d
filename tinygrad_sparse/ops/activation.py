"""Activations, and the special functions behind them. Floor 4: declarations only.

Each saturates without overflow: exp is only ever taken of what is not positive. Those made of other
ops cost what the ops cost, and keep what their backward needs instead of computing it again.
"""

from __future__ import annotations

import math
from typing import Any

from tinygrad_sparse.backend import Array
from tinygrad_sparse.backend.log1p_of import log1p_of
from tinygrad_sparse.errors import ArgumentError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import Kink, elementwise

from .elementwise import clip, minimum, multiply, where
from .error_function import erf_of
from .exponential import exp
from .trigonometric import tanh


@primitive(
    rows=elementwise,
    vjp=(lambda g, out, x: where(x <= 0, 0.0, g),),  # not x > 0: NaN must arrive below
    methods=("relu",),
    kinks=(Kink((0.0,), (0.0,)),),
)
def relu(xp: Any, x: Array) -> Array:
    """max(x, 0); the slope at 0 is 0."""
    return xp.maximum(x, 0.0)


@primitive(
    rows=elementwise,
    vjp=(lambda g, out, x, *, negative_slope=0.01: where(x > 0, g, negative_slope * g),),
    kinks=(Kink((0.0,), (0.01,)),),
)
def leaky_relu(xp: Any, x: Array, *, negative_slope: float = 0.01) -> Array:
    """x where positive, ``negative_slope`` · x elsewhere; the slope at 0 is `negative_slope`."""
    return xp.maximum(x, 0.0) + negative_slope * xp.minimum(x, 0.0)


@primitive(
    rows=elementwise,
    vjp=(lambda g, out, x, *, alpha=1.0: where(x > 0, g, g * (alpha * exp(minimum(x, 0.0)))),),
    kinks=(Kink((0.0,), (1.0,)), Kink((0.0,), (2.0,), {"alpha": 2.0})),
)
def elu(xp: Any, x: Array, *, alpha: float = 1.0) -> Array:
    """x where positive, α (e**x - 1) elsewhere; the slope at 0 is α.  Clevert et al., 2015."""
    return xp.maximum(x, 0.0) + alpha * xp.expm1(xp.minimum(x, 0.0))


@primitive(rows=elementwise, vjp=(lambda g, out, x: g * out * (1 - out),), methods=("sigmoid",))
def sigmoid(xp: Any, x: Array) -> Array:
    """1 / (1 + e**-x), without overflow at either end."""
    small = xp.exp(-xp.abs(x))
    out = xp.maximum(small, x >= 0)
    small += 1.0
    out /= small
    return out


@primitive(rows=elementwise, vjp=(lambda g, out, x: g * sigmoid(x),), methods=("softplus",))
def softplus(xp: Any, x: Array) -> Array:
    """log(1 + e**x), without overflow."""
    return xp.maximum(x, 0.0) + log1p_of(xp, xp.exp(-xp.abs(x)))


@primitive(rows=elementwise, vjp=(lambda g, out, x: g * sigmoid(-x),), methods=("log_sigmoid",))
def log_sigmoid(xp: Any, x: Array) -> Array:
    """log(1 / (1 + e**-x)) = -softplus(-x), without overflow and with all digits."""
    return xp.minimum(x, 0.0) - log1p_of(xp, xp.exp(-xp.abs(x)))


def silu(x: Any) -> Any:
    """x · sigmoid(x), also called swish.  Elfwing et al., 2017; Ramachandran et al., 2017."""
    return multiply(x, sigmoid(x))


# e**-x² is 0 in every float dtype long before |x| = 32, and 32² fits into each
@primitive(rows=elementwise, vjp=(lambda g, out, x: g * out * (-2.0 * clip(x, -32.0, 32.0)),))
def _bell(xp: Any, x: Array) -> Array:
    """2/√π · e**-x²: the derivative of erf."""
    return 2.0 / math.sqrt(math.pi) * xp.exp(-xp.square(xp.clip(x, -32.0, 32.0)))


@primitive(rows=elementwise, vjp=(lambda g, out, x: g * _bell(x),))
def erf(xp: Any, x: Array) -> Array:
    """The error function, 2/√π ∫₀ˣ e**-t² dt, to the last digits of the dtype.

    >>> import numpy as np
    >>> erf(np.array([0.0, 0.5, 9.0]))
    array([0.        , 0.52049988, 1.        ])
    """
    return erf_of(xp, x)


def gelu(x: Any, approximate: str = "none") -> Any:
    """x · Φ(x), with Φ the normal distribution's: x/2 · (1 + erf(x/√2)).

    ``approximate="tanh"`` is x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), within 5e-4 of it.
    Hendrycks and Gimpel, 2016. Raises ArgumentError for any other `approximate`.
    """
    if approximate == "none":
        return multiply(0.5, x) * (1.0 + erf(multiply(math.sqrt(0.5), x)))
    if approximate == "tanh":
        t = clip(x, -16.0, 16.0)  # the tanh is ±1 out there, and t³ would overflow
        return multiply(0.5, x) * (1.0 + tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t * t * t)))
    raise ArgumentError(explain("gelu", "approximate='none' or 'tanh'", repr(approximate)))
