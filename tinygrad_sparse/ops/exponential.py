"""Exponentials and logarithms, in each base. Floor 4: declarations only."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import math

from tinygrad_sparse.backend import Array
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import elementwise

_LN2, _LN10 = math.log(2.0), math.log(10.0)


@primitive(ufunc="exp", rows=elementwise, vjp=(lambda g, out, x: g * out,), methods=("exp",))
def exp(x: Array) -> Array:
    """e**x."""


@primitive(ufunc="exp2", rows=elementwise, vjp=(lambda g, out, x: g * out * _LN2,))
def exp2(x: Array) -> Array:
    """2**x."""


@primitive(ufunc="expm1", rows=elementwise, vjp=(lambda g, out, x: g * (out + 1.0),))
def expm1(x: Array) -> Array:
    """e**x - 1, exact to the last digits for small x too."""


@primitive(ufunc="log", rows=elementwise, vjp=(lambda g, out, x: g / x,), methods=("log",))
def log(x: Array) -> Array:
    """The natural logarithm."""


@primitive(ufunc="log2", rows=elementwise, vjp=(lambda g, out, x: g / x / _LN2,))
def log2(x: Array) -> Array:
    """The logarithm to base 2."""


@primitive(ufunc="log10", rows=elementwise, vjp=(lambda g, out, x: g / x / _LN10,))
def log10(x: Array) -> Array:
    """The logarithm to base 10."""


@primitive(ufunc="log1p", rows=elementwise, vjp=(lambda g, out, x: g / (x + 1.0),))
def log1p(x: Array) -> Array:
    """log(1 + x), exact to the last digits for small x too."""
