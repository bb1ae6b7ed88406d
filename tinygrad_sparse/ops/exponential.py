"""Exponentials, logarithms and powers. Floor 4: declarations only."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import Kink, elementwise

from .elementwise import _zeros_like, where

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


def _power_vjp_x(g: Any, out: Any, x: Any, y: Any) -> Any:
    if not hasattr(y, "shape"):
        if y == 0:
            return _zeros_like(g)
        if y >= 1:
            return g * (y * x ** (y - 1))
    # x**0 is 1 everywhere, 0**0 included; and x**0.5 at 0 under a max or a where, where nothing
    # arrives, must send nothing, not 0 · inf
    idle = (y == 0) | ((y < 1) & (x == 0) & (g == 0))
    return where(idle, 0.0, g * (y * where(idle, 1.0, x) ** (y - 1)))


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
        Kink((0.0, 0.5), (np.inf, 0.0)),
        Kink((-2.0, 2.0), (-4.0, None)),
    ),
)
def power(x: Array, y: Array) -> Array:
    """x ** y; operands broadcast. The slope by y at x = 0 is 0; no log unless y has a gradient."""


pow = power
