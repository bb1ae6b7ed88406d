"""Elementwise ops, simplest first. Floor 4: declarations only, NumPy's names and semantics.

A kink has one documented value: ties of maximum and minimum split evenly; abs, relu and sqrt with
no upstream give 0. A rule never divides by its input where the input may be 0 harmlessly, and
selects with `where`, never by multiplying with a mask.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import Kink, elementwise


@primitive(
    ufunc="add",
    rows=elementwise,
    vjp=(lambda g, out, x, y: g, lambda g, out, x, y: g),
    methods=("__add__",),
    reflected="__radd__",
)
def add(x: Array, y: Array) -> Array:
    """x + y; operands broadcast."""


@primitive(
    ufunc="subtract",
    rows=elementwise,
    vjp=(lambda g, out, x, y: g, lambda g, out, x, y: -g),
    methods=("__sub__",),
    reflected="__rsub__",
)
def subtract(x: Array, y: Array) -> Array:
    """x - y; operands broadcast."""


@primitive(
    ufunc="multiply",
    rows=elementwise,
    vjp=(lambda g, out, x, y: g * y, lambda g, out, x, y: g * x),
    methods=("__mul__",),
    reflected="__rmul__",
)
def multiply(x: Array, y: Array) -> Array:
    """x · y elementwise; operands broadcast."""


@primitive(
    ufunc="divide",
    rows=elementwise,
    vjp=(lambda g, out, x, y: g / y, lambda g, out, x, y: -(g / y) * out),
    methods=("__truediv__",),
    reflected="__rtruediv__",
)
def divide(x: Array, y: Array) -> Array:
    """x / y; operands broadcast."""


@primitive(ufunc="negative", rows=elementwise, vjp=(lambda g, out, x: -g,), methods=("__neg__",))
def negative(x: Array) -> Array:
    """-x."""


def _power_vjp_x(g: Any, out: Any, x: Any, y: Any) -> Any:
    # x**0 is 1 everywhere, 0**0 included: no 0 · x**-1 may be formed there
    exponent = where(y == 0, 1.0, y) if hasattr(y, "shape") else y or 1.0
    slope = y * x ** (exponent - 1)
    return where(y == 0, 0.0, g * slope)


def _power_vjp_y(g: Any, out: Any, x: Any, y: Any) -> Any:
    # 0**y is 0 for every y > 0, so its slope there is 0, not 0 · log 0
    if not hasattr(x, "shape"):
        return g * out * float(log(x or 1.0))  # a NumPy scalar would widen float32
    return g * out * log(where(x == 0, 1.0, x))


@primitive(
    ufunc="power",
    rows=elementwise,
    vjp=(_power_vjp_x, _power_vjp_y),
    methods=("__pow__",),
    reflected="__rpow__",
    kinks=(
        Kink((0.0, 0.0), (0.0, 0.0)),
        Kink((0.0, 1.0), (1.0, 0.0)),
        Kink((-2.0, 2.0), (-4.0, None)),
    ),
)
def power(x: Array, y: Array) -> Array:
    """x ** y; operands broadcast. The slope by y at x = 0 is 0; no log unless y has a gradient."""


@primitive(
    ufunc="absolute",
    rows=elementwise,
    vjp=(lambda g, out, x: where(x > 0, g, where(x < 0, -g, 0.0)),),
    methods=("__abs__", "abs"),
    kinks=(Kink((0.0,), (0.0,)),),
)
def absolute(x: Array) -> Array:
    """abs(x); the slope at 0 is 0."""


@primitive(ufunc="exp", rows=elementwise, vjp=(lambda g, out, x: g * out,), methods=("exp",))
def exp(x: Array) -> Array:
    """e**x."""


@primitive(ufunc="log", rows=elementwise, vjp=(lambda g, out, x: g / x,), methods=("log",))
def log(x: Array) -> Array:
    """The natural logarithm."""


def _sqrt_vjp(g: Any, out: Any, x: Any) -> Any:
    # no upstream, no slope: sqrt(0) under a max or a where must not send 0 · inf = NaN down
    return g / (2.0 * where((out == 0) & (g == 0), 1.0, out))


@primitive(
    ufunc="sqrt",
    rows=elementwise,
    vjp=(_sqrt_vjp,),
    methods=("sqrt",),
    kinks=(Kink((0.0,), (np.inf,)),),
)
def sqrt(x: Array) -> Array:
    """√x; at 0 the cotangent is 0 if the upstream is 0, otherwise infinite."""


@primitive(
    ufunc="tanh", rows=elementwise, vjp=(lambda g, out, x: g * (1 - out * out),), methods=("tanh",)
)
def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""


@primitive(rows=elementwise, vjp=(lambda g, out, x: g * out * (1 - out),), methods=("sigmoid",))
def sigmoid(xp: Any, x: Array) -> Array:
    """1 / (1 + e**-x), without overflow at either end."""
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1.0, small) / (1.0 + small)


@primitive(rows=elementwise, vjp=(lambda g, out, x: g * sigmoid(x),), methods=("softplus",))
def softplus(xp: Any, x: Array) -> Array:
    """log(1 + e**x), without overflow; -softplus(-x) is the logarithm of the sigmoid."""
    return xp.maximum(x, 0.0) + xp.log1p(xp.exp(-xp.abs(x)))


@primitive(
    rows=elementwise,
    vjp=(lambda g, out, x: where(x > 0, g, 0.0),),
    methods=("relu",),
    kinks=(Kink((0.0,), (0.0,)),),
)
def relu(xp: Any, x: Array) -> Array:
    """max(x, 0); the slope at 0 is 0."""
    return xp.maximum(x, 0.0)


def _half(g: Any, wins: Any, ties: Any) -> Any:
    return where(wins, g, where(ties, 0.5 * g, 0.0))


@primitive(
    ufunc="maximum",
    rows=elementwise,
    vjp=(
        lambda g, out, x, y: _half(g, x > y, x == y),
        lambda g, out, x, y: _half(g, y > x, x == y),
    ),
    kinks=(Kink((1.0, 1.0), (0.5, 0.5)),),
)
def maximum(x: Array, y: Array) -> Array:
    """The larger of x and y, elementwise; a tie gives half of the cotangent to each."""


@primitive(
    ufunc="minimum",
    rows=elementwise,
    vjp=(
        lambda g, out, x, y: _half(g, x < y, x == y),
        lambda g, out, x, y: _half(g, y < x, x == y),
    ),
    kinks=(Kink((1.0, 1.0), (0.5, 0.5)),),
)
def minimum(x: Array, y: Array) -> Array:
    """The smaller of x and y, elementwise; a tie gives half of the cotangent to each."""


@primitive(
    rows=elementwise,
    vjp=(
        None,
        lambda g, out, condition, x, y: where(condition, g, 0.0),
        lambda g, out, condition, x, y: where(condition, 0.0, g),
    ),
)
def where(xp: Any, condition: Array, x: Array, y: Array) -> Array:
    """x where `condition` holds, y elsewhere; the three broadcast. No gradient to `condition`."""
    return xp.where(condition, x, y)


@primitive(rows=elementwise, vjp=(lambda g, out, x, *, dtype: g,), methods=("astype",))
def cast(xp: Any, x: Array, *, dtype: Any) -> Array:
    """x with another dtype; the cotangent is cast back. To an integer dtype, the path ends."""
    return xp.asarray(x).astype(dtype)


abs, sub, mul, div, neg, pow = absolute, subtract, multiply, divide, negative, power
