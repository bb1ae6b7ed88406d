"""Trigonometric and hyperbolic functions and their inverses. Floor 4: declarations only.

Squares that would overflow before the result does are not formed: 1 + x² is hypot(x, 1) squared,
1 - x² is (1 - x)(1 + x), which also keeps the digits near ±1.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import Kink, elementwise

from .elementwise import _root_vjp, sqrt, where


@primitive(ufunc="sin", rows=elementwise, vjp=(lambda g, out, x: g * cos(x),))
def sin(x: Array) -> Array:
    """The sine of x radians."""


@primitive(ufunc="cos", rows=elementwise, vjp=(lambda g, out, x: -(g * sin(x)),))
def cos(x: Array) -> Array:
    """The cosine of x radians."""


@primitive(ufunc="tan", rows=elementwise, vjp=(lambda g, out, x: g * (1.0 + out * out),))
def tan(x: Array) -> Array:
    """The tangent of x radians."""


@primitive(
    ufunc="arcsin",
    rows=elementwise,
    vjp=(lambda g, out, x: _root_vjp(g, sqrt((1.0 - x) * (1.0 + x))),),
    kinks=(Kink((1.0,), (np.inf,)), Kink((-1.0,), (np.inf,))),
)
def arcsin(x: Array) -> Array:
    """The angle in [-π/2, π/2] whose sine is x; the slope at ±1 is infinite."""


@primitive(
    ufunc="arccos",
    rows=elementwise,
    vjp=(lambda g, out, x: -_root_vjp(g, sqrt((1.0 - x) * (1.0 + x))),),
    kinks=(Kink((1.0,), (-np.inf,)), Kink((-1.0,), (-np.inf,))),
)
def arccos(x: Array) -> Array:
    """The angle in [0, π] whose cosine is x; the slope at ±1 is infinite."""


def _arctan_vjp(g: Any, out: Any, x: Any) -> Any:
    length = hypot(x, 1.0)
    return g / length / length


@primitive(ufunc="arctan", rows=elementwise, vjp=(_arctan_vjp,))
def arctan(x: Array) -> Array:
    """The angle in (-π/2, π/2) whose tangent is x."""


def _divisor(length: Any) -> Any:
    """A hypotenuse to divide by: where both legs are 0 their quotients are to be 0."""
    return where(length == 0, np.inf, length)


def _arctan2_vjp_y(g: Any, out: Any, y: Any, x: Any) -> Any:
    length = _divisor(hypot(y, x))
    return g * (x / length) / length


def _arctan2_vjp_x(g: Any, out: Any, y: Any, x: Any) -> Any:
    length = _divisor(hypot(y, x))
    return -(g * (y / length) / length)


@primitive(
    ufunc="arctan2",
    rows=elementwise,
    vjp=(_arctan2_vjp_y, _arctan2_vjp_x),
    kinks=(Kink((0.0, 0.0), (0.0, 0.0)),),
)
def arctan2(y: Array, x: Array) -> Array:
    """The angle in (-π, π] of the point (x, y); operands broadcast. The slopes at (0, 0) are 0."""


@primitive(
    ufunc="hypot",
    rows=elementwise,
    vjp=(
        lambda g, out, x, y: g * (x / _divisor(out)),
        lambda g, out, x, y: g * (y / _divisor(out)),
    ),
    kinks=(Kink((0.0, 0.0), (0.0, 0.0)),),
)
def hypot(x: Array, y: Array) -> Array:
    """√(x² + y²) without overflow on the way; operands broadcast. The slopes at (0, 0) are 0."""


@primitive(ufunc="sinh", rows=elementwise, vjp=(lambda g, out, x: g * cosh(x),))
def sinh(x: Array) -> Array:
    """The hyperbolic sine."""


@primitive(ufunc="cosh", rows=elementwise, vjp=(lambda g, out, x: g * sinh(x),))
def cosh(x: Array) -> Array:
    """The hyperbolic cosine."""


@primitive(
    ufunc="tanh", rows=elementwise, vjp=(lambda g, out, x: g * (1 - out * out),), methods=("tanh",)
)
def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""


@primitive(ufunc="arcsinh", rows=elementwise, vjp=(lambda g, out, x: g / hypot(x, 1.0),))
def arcsinh(x: Array) -> Array:
    """The inverse of sinh."""


@primitive(
    ufunc="arccosh",
    rows=elementwise,
    vjp=(lambda g, out, x: _root_vjp(g, sqrt(x - 1.0) * sqrt(x + 1.0)),),
    kinks=(Kink((1.0,), (np.inf,)),),
)
def arccosh(x: Array) -> Array:
    """The inverse of cosh, for x >= 1; the slope at 1 is infinite."""


@primitive(ufunc="arctanh", rows=elementwise, vjp=(lambda g, out, x: g / ((1.0 - x) * (1.0 + x)),))
def arctanh(x: Array) -> Array:
    """The inverse of tanh, for x in (-1, 1)."""
