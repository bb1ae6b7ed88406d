"""Running sums and products. Floor 4: declarations only.

The derivative of a scan is a scan the other way, so each is declared with its direction, and they
are closed under differentiation. Nothing is divided: what the other elements make is a product too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, as_array
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import Kink, fixed_axes, rowwise

from .axes import canonical_axis, narrow, wide
from .shape import reshape

_ALONG = rowwise("r", when=fixed_axes)


def _part(axis: int, *part: int | None) -> tuple[slice, ...]:
    """An index that is ``slice(*part)`` along `axis`."""
    return (*(slice(None),) * axis, slice(*part))


def _turned(x: Array, axis: int, reverse: bool) -> Array:
    """A view of x whose `axis` runs in the direction of the scan."""
    return x[_part(axis, None, None, -1)] if reverse else x


def _line(op: str, x: Any, axis: int | None) -> tuple[Any, int]:
    """x and the axis to scan along: x flattened if that is None."""
    x = as_array(op, x)
    return (reshape(x, (-1,)), 0) if axis is None else (x, canonical_axis(op, axis, len(x.shape)))


@primitive(
    rows=_ALONG,
    vjp=(lambda g, out, x, *, axis, reverse: _cumsum(g, axis=axis, reverse=not reverse),),
)
def _cumsum(xp: Any, x: Array, *, axis: int, reverse: bool) -> Array:
    total = xp.cumsum(_turned(x, axis, reverse), axis=axis, dtype=wide(x))
    return narrow(_turned(total, axis, reverse), x)


@composite(methods=("cumsum",))
def cumsum(x: Any, axis: int | None = None) -> Any:
    """The sums of the elements up to each one along `axis`; of the flattened x if None.

    >>> cumsum(np.array([1.0, 2.0, 4.0]))
    array([1., 3., 7.])
    """
    x, axis = _line("cumsum", x, axis)
    return _cumsum(x, axis=axis, reverse=False)


@primitive(
    rows=_ALONG,
    vjp=(
        lambda g, out, x, *, axis, reverse, first: _shift(
            g, axis=axis, reverse=not reverse, first=0.0
        ),
    ),
)
def _shift(xp: Any, x: Array, *, axis: int, reverse: bool, first: float) -> Array:
    """x moved on by one place: `first` comes in where the scan starts, the last falls out."""
    out = xp.full(x.shape, first, x.dtype)
    to, source = _turned(out, axis, reverse), _turned(x, axis, reverse)
    to[_part(axis, 1, None)] = source[_part(axis, None, -1)]
    return out


def _carried_back(g: Any, a: Any, axis: int, reverse: bool) -> Any:
    """cᵢ = gᵢ + aᵢ₊₁ cᵢ₊₁: what each place of a recurrence receives from those after it."""
    later = _shift(a, axis=axis, reverse=not reverse, first=0.0)
    return _recurrence(later, g, axis=axis, reverse=not reverse)


def _recurrence_vjp_a(g: Any, out: Any, a: Any, b: Any, *, axis: int, reverse: bool) -> Any:
    before = _shift(out, axis=axis, reverse=reverse, first=0.0)
    return _carried_back(g, a, axis, reverse) * before


@primitive(
    rows=_ALONG,
    vjp=(
        _recurrence_vjp_a,
        lambda g, out, a, b, *, axis, reverse: _carried_back(g, a, axis, reverse),
    ),
)
def _recurrence(xp: Any, a: Array, b: Array, *, axis: int, reverse: bool) -> Array:
    """yᵢ = bᵢ + aᵢ yᵢ₋₁ along `axis`, from y₋₁ = 0, in log₂ n passes.  Hillis and Steele, 1986.

    After the pass of width s, y holds what the last s terms give and a the product of s factors.
    """
    first = [xp.moveaxis(_turned(x, axis, reverse), axis, 0) for x in (a, b)]
    factor, y = (xp.array(x, dtype=wide(b), order="C") for x in first)  # passes over whole blocks
    spare, limit, width = xp.empty_like(y), np.finfo(y.dtype).max, 1
    with np.errstate(over="ignore"):
        while width < len(y):
            y[width:] += xp.multiply(factor[width:], y[:-width], out=spare[width:])
            xp.multiply(factor[width:], factor[:-width], out=spare[width:])
            # a product that overflows may yet meet a 0: it stays finite, so that 0 wins
            xp.clip(spare[width:], -limit, limit, out=factor[width:])
            width *= 2
    return narrow(_turned(xp.moveaxis(y, 0, axis), axis, reverse), b)


def _cumprod_vjp(g: Any, out: Any, x: Any, *, axis: int, reverse: bool) -> Any:
    before = _shift(out, axis=axis, reverse=reverse, first=1.0)
    return before * _carried_back(g, x, axis, reverse)


@primitive(rows=_ALONG, vjp=(_cumprod_vjp,))
def _cumprod(xp: Any, x: Array, *, axis: int, reverse: bool) -> Array:
    product = xp.cumprod(_turned(x, axis, reverse), axis=axis, dtype=wide(x))
    return narrow(_turned(product, axis, reverse), x)


@composite(methods=("cumprod",), kinks=(Kink(((2.0, 0.0, 3.0, 4.0),), ((1.0, 32.0, 0.0, 0.0),)),))
def cumprod(x: Any, axis: int | None = None) -> Any:
    """The products of the elements up to each one along `axis`; of the flattened x if None.

    >>> cumprod(np.array([2.0, 3.0, 4.0]))
    array([ 2.,  6., 24.])
    """
    x, axis = _line("cumprod", x, axis)
    return _cumprod(x, axis=axis, reverse=False)


def _others(x: Any, axis: int) -> Any:
    """For each element the product of the other ones along `axis`, without dividing by it."""
    before = _shift(_cumprod(x, axis=axis, reverse=False), axis=axis, reverse=False, first=1.0)
    after = _shift(_cumprod(x, axis=axis, reverse=True), axis=axis, reverse=True, first=1.0)
    return before * after
