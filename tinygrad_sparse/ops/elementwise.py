"""Arithmetic, roots, and choices between values. Floor 4: declarations only.

Names and semantics are NumPy's. A kink has one documented value: ties of maximum and minimum split
evenly, clip includes its bounds, abs at 0 and a root at 0 with no upstream give 0. A rule never
divides by its input where the input may be 0 harmlessly, and selects with `where`, never by
multiplying with a mask.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, as_array, as_array_beside
from tinygrad_sparse.errors import DtypeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import Kink, elementwise

from .selection import selectable, selected


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
    same=lambda x: square(x),
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


@primitive(ufunc="positive", rows=elementwise, vjp=(lambda g, out, x: g,), methods=("__pos__",))
def positive(x: Array) -> Array:
    """+x."""


@primitive(
    kernel="twice_product",
    rows=elementwise,
    vjp=(lambda h, out, g, x: _twice_product(h, x), lambda h, out, g, x: _twice_product(h, g)),
)
def _twice_product(g: Array, x: Array) -> Array:
    """2·g·x: the cotangent of a square."""


@primitive(ufunc="square", rows=elementwise, vjp=(lambda g, out, x: _twice_product(g, x),))
def square(x: Array) -> Array:
    """x²."""


@primitive(ufunc="reciprocal", rows=elementwise, vjp=(lambda g, out, x: -(g * out) * out,))
def reciprocal(x: Array) -> Array:
    """1 / x."""


@primitive(
    ufunc="absolute",
    rows=elementwise,
    vjp=(lambda g, out, x: where(x != 0, g * copysign(1.0, x), 0.0),),
    methods=("__abs__", "abs"),
    kinks=(Kink((0.0,), (0.0,)),),
)
def absolute(x: Array) -> Array:
    """abs(x); the slope at 0 is 0."""


@primitive(rows=elementwise, vjp=(None,))
def _zeros_like(xp: Any, x: Array) -> Array:
    return xp.zeros_like(x)


@primitive(
    ufunc="copysign",
    rows=elementwise,
    vjp=(
        lambda g, out, x, y: where(x != 0, g * (copysign(1.0, x) * copysign(1.0, y)), 0.0),
        lambda g, out, x, y: _zeros_like(g),
    ),
    kinks=(Kink((0.0, -1.0), (0.0, 0.0)), Kink((2.0, 0.0), (1.0, 0.0))),
)
def copysign(x: Array, y: Array) -> Array:
    """abs(x) with the sign of y, that of a zero too; operands broadcast. No slope by y."""


def _root_vjp(g: Any, slope: Any) -> Any:
    """g / slope; but no upstream, no slope: a root of 0 under a max must not send 0 · inf down."""
    return g / where((slope == 0) & (g == 0), 1.0, slope)


@primitive(
    ufunc="sqrt",
    rows=elementwise,
    vjp=(lambda g, out, x: _root_vjp(g, out + out),),
    methods=("sqrt",),
    kinks=(Kink((0.0,), (np.inf,)),),
)
def sqrt(x: Array) -> Array:
    """√x; at 0 the cotangent is 0 if the upstream is 0, otherwise infinite."""


@primitive(
    ufunc="cbrt",
    rows=elementwise,
    vjp=(lambda g, out, x: _root_vjp(g, 3.0 * out * out),),
    kinks=(Kink((0.0,), (np.inf,)),),
)
def cbrt(x: Array) -> Array:
    """The real cube root; at 0 the cotangent is 0 if the upstream is 0, otherwise infinite."""


def _won(g: Any, loses: Any, ties: Any) -> Any:
    """g where an operand was chosen, half of it where both were; NaN was chosen over numbers."""
    share = where(loses, 0.0, g)
    return where(ties, 0.5 * share, share)


@primitive(
    ufunc="maximum",
    rows=elementwise,
    vjp=(
        lambda g, out, x, y: _won(g, x < y, x == y),
        lambda g, out, x, y: _won(g, y < x, x == y),
    ),
    kinks=(Kink((1.0, 1.0), (0.5, 0.5)),),
)
def maximum(x: Array, y: Array) -> Array:
    """The larger of x and y, elementwise; a tie gives half of the cotangent to each."""


@primitive(
    ufunc="minimum",
    rows=elementwise,
    vjp=(
        lambda g, out, x, y: _won(g, x > y, x == y),
        lambda g, out, x, y: _won(g, y > x, x == y),
    ),
    kinks=(Kink((1.0, 1.0), (0.5, 0.5)),),
)
def minimum(x: Array, y: Array) -> Array:
    """The smaller of x and y, elementwise; a tie gives half of the cotangent to each."""


@primitive(
    rows=elementwise,
    vjp=(
        lambda g, out, x, low, high: where(x == out, g, 0.0),
        lambda g, out, x, low, high: where((x < low) & (low <= high), g, 0.0),
        lambda g, out, x, low, high: where((x > high) | ((low > high) & (x < high)), g, 0.0),
    ),
)
def _clip(xp: Any, x: Array, low: Array, high: Array) -> Array:
    return xp.clip(x, low, high)


def _bound(x: Any, bound: Any, end: float) -> Any:
    """A bound in the dtype of x, so that it does not widen x and inclusive means inclusive."""
    if bound is None:
        if x.dtype.kind == "f":
            return end
        limits = np.iinfo(x.dtype)
        return limits.min if end < 0 else limits.max
    if type(bound) not in (float, int, bool):
        bound = as_array_beside("clip", bound, x)
    if x.dtype.kind == "f" and getattr(bound, "dtype", x.dtype) != x.dtype:
        return cast(bound, dtype=x.dtype)
    return bound


@composite(
    methods=("clip",),
    kinks=(
        Kink(((-1.0, 0.0, 1.0), -1.0, 1.0), ((1.0, 1.0, 1.0), 0.0, 0.0)),
        Kink(((-2.0, 0.0, 3.0), -1.0, 1.0), ((0.0, 1.0, 0.0), 1.0, 1.0)),
    ),
)
def clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """x with what lies below `a_min` or above `a_max` replaced by that bound; None is no bound.

    Bounds are numbers, arrays or Tensors that broadcast against x, taken in the dtype of x. The
    cotangent goes to x inside and at the bounds, and to the bound that replaced it outside; where
    ``a_min > a_max`` the result is `a_max`. `min` and `max` are other names of the bounds.

    >>> clip(np.array([-2.0, 0.5, 3.0]), -1.0, 1.0)
    array([-1. ,  0.5,  1. ])
    """
    x = as_array("clip", x)
    low, high = a_min if min is None else min, a_max if max is None else max
    return _clip(x, _bound(x, low, -np.inf), _bound(x, high, np.inf))


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
    if type(y) is float and selectable(condition, x, y):
        return selected(xp, condition, x)
    if type(x) is float and selectable(condition, y, x):
        return selected(xp, ~condition, y)
    return xp.where(condition, x, y)


def _cast_canonical(x: Array, *, dtype: Any) -> tuple[tuple[Array], dict[str, Any]]:
    kind = np.dtype(dtype)
    if kind.kind not in "fiub" or kind.itemsize > 8:
        raise DtypeError(explain("cast", "a dtype of real numbers, at most 64 bits", repr(dtype)))
    return (x,), {"dtype": np.dtype(kind.char)}  # native


@primitive(
    rows=elementwise,
    vjp=(lambda g, out, x, *, dtype: g,),
    canonical=_cast_canonical,
    methods=("astype",),
)
def cast(xp: Any, x: Array, *, dtype: Any) -> Array:
    """x with another dtype; the cotangent is cast back. To an integer dtype, the path ends.

    Raises DtypeError for what is no dtype of real numbers.
    """
    return xp.asarray(x).astype(dtype)


abs, sub, mul, div, neg = absolute, subtract, multiply, divide, negative
