"""Ops that are constant between jumps, and what is left by division. Floor 4: declarations only.

Where the derivative is zero the cotangent is zero: sent, not missing, for a loss depends on a
parameter that only feeds such an op. At a jump the value is that of the piece on either side.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Any

from tinygrad_sparse.backend import Array
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import Kink, elementwise

from .elementwise import _zeros_like

_FLAT = Kink((2.0,), (0.0,))


def _flat(g: Any, out: Any, *args: Any, **static: Any) -> Any:
    return _zeros_like(g)


@primitive(ufunc="sign", rows=elementwise, vjp=(_flat,), kinks=(Kink((0.0,), (0.0,)),))
def sign(x: Array) -> Array:
    """-1, 0 or 1; no slope anywhere."""


@primitive(ufunc="floor", rows=elementwise, vjp=(_flat,), kinks=(_FLAT,))
def floor(x: Array) -> Array:
    """The largest integer that is not above x; no slope anywhere."""


@primitive(ufunc="ceil", rows=elementwise, vjp=(_flat,), kinks=(_FLAT,))
def ceil(x: Array) -> Array:
    """The smallest integer that is not below x; no slope anywhere."""


@primitive(ufunc="trunc", rows=elementwise, vjp=(_flat,), kinks=(_FLAT,))
def trunc(x: Array) -> Array:
    """x without its fraction; no slope anywhere."""


@primitive(
    ufunc="round",
    rows=elementwise,
    vjp=(_flat,),
    methods=("round",),
    kinks=(Kink((0.5,), (0.0,)),),
)
def round(x: Array, *, decimals: int = 0) -> Array:
    """x to the given number of decimals, halves to the even one; no slope anywhere."""


@primitive(
    ufunc="floor_divide",
    rows=elementwise,
    vjp=(_flat, _flat),
    methods=("__floordiv__",),
    reflected="__rfloordiv__",
    kinks=(Kink((4.0, 2.0), (0.0, 0.0)),),
)
def floor_divide(x: Array, y: Array) -> Array:
    """The floor of x / y; operands broadcast. No slope anywhere."""


@primitive(
    ufunc="remainder",
    rows=elementwise,
    vjp=(lambda g, out, x, y: g, lambda g, out, x, y: -(g * floor_divide(x, y))),
    methods=("__mod__",),
    reflected="__rmod__",
    kinks=(Kink((4.0, 2.0), (1.0, -2.0)),),
)
def remainder(x: Array, y: Array) -> Array:
    """x - floor(x / y)·y, with the sign of y, as Python's ``%``; operands broadcast."""


@primitive(
    ufunc="fmod",
    rows=elementwise,
    # the quotient from the result: x / y may round up to the next integer
    vjp=(lambda g, out, x, y: g, lambda g, out, x, y: -(g * round((x - out) / y))),
    kinks=(Kink((-4.0, 2.0), (1.0, 2.0)),),
)
def fmod(x: Array, y: Array) -> Array:
    """x - trunc(x / y)·y, with the sign of x, as C's fmod; operands broadcast."""
