"""Vector norms. Floor 4: declarations only, NumPy's names and semantics.

Nothing overflows or vanishes on the way: a vector of 1e200 has a norm, and so has one of 1e-200.
The slope at the zero vector is 0, and so is that of an element that is 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, as_array
from tinygrad_sparse.errors import ArgumentError, ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import Kink

from .axes import Axes, canonical_axes, kept, narrow, reducing, wide
from .elementwise import absolute, where
from .reduce import max, min, sum
from .reduction import reduction
from .rounding import sign


def _norm_of(xp: Any, x: Array, axis: tuple[int, ...], ord: float) -> Array:
    """The formula, with the reduced axes kept; NumPy's own steps, so that the bits are NumPy's."""
    if ord != 2:
        return xp.sum(xp.abs(x) ** ord, axis=axis, keepdims=True) ** (1.0 / ord)
    if len(axis) == x.ndim:
        flat = x.reshape(-1)
        return xp.sqrt(flat.dot(flat)).reshape((1,) * x.ndim)
    return xp.sqrt(xp.sum(x * x, axis=axis, keepdims=True))


def _norm_vjp(
    g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool, ord: float
) -> Any:
    length = kept(out, x, axis)
    part = x / where(length == 0, np.inf, length)  # at most 1, so no power of it overflows
    if ord != 2:
        size = where(part == 0, 1.0, absolute(part))
        part = where(part == 0, 0.0, sign(part) * size ** (ord - 1.0))
    return kept(g, x, axis) * part


@primitive(rows=reduction(_norm_vjp), vjp=(_norm_vjp,), canonical=reducing("vector_norm"))
def _vector_norm(xp: Any, x: Array, *, axis: Any, keepdims: bool, ord: float) -> Array:
    y = x.astype(wide(x) or (x.dtype if x.dtype.kind == "f" else np.float64), copy=False)
    limits = np.finfo(y.dtype)
    with np.errstate(over="ignore"):
        out = _norm_of(xp, y, axis, ord)
    # below this, powers of elements that count may have vanished
    safe = (out > (limits.tiny / limits.eps**2) ** (1.0 / ord)) & (out < np.inf)
    if not safe.all():
        top = adapter_of(y).max_from(xp.abs(y), axis, 0.0)
        power = xp.ldexp(xp.ones_like(top), xp.frexp(top)[1] - 1)  # of two: dividing is exact
        unit = xp.where((top > 0) & (top < np.inf), power, 1.0)
        out = xp.where(safe, out, unit * _norm_of(xp, y / unit, axis, ord))
    return narrow(out if keepdims else xp.squeeze(out, axis=axis), x)


def vector_norm(x: Any, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Any:
    """(Σ abs(x)**ord)**(1/ord) over `axis`, of all elements if None; the largest for infinity.

    `ord` is any number above 0, or ±infinity for the largest and the smallest: ties share the
    cotangent. Raises ArgumentError for another `ord`.

    >>> float(vector_norm(np.array([3e200, 4e200])) / 1e200)
    5.0
    """
    x = as_array("vector_norm", x)
    axes = canonical_axes("vector_norm", axis, len(x.shape))
    if ord == 1:
        return sum(absolute(x), axes, keepdims)
    if ord == math.inf:
        return max(absolute(x), axes, keepdims)
    if ord == -math.inf:
        return min(absolute(x), axes, keepdims)
    if isinstance(ord, str) or not ord > 0:
        raise ArgumentError(explain("vector_norm", "ord > 0 or ±infinity", repr(ord)))
    return _vector_norm(x, axis=axes, keepdims=keepdims, ord=float(ord))


@composite(
    kinks=(
        Kink(((0.0, 0.0),), ((0.0, 0.0),)),
        Kink(((0.0, 0.0),), ((0.0, 0.0),), {"ord": 1}),
        Kink(((0.0, 0.0),), ((0.0, 0.0),), {"ord": 3}),
        Kink(((0.0, 2.0),), ((0.0, 1.0),), {"ord": 1.5}),
        Kink(((2.0, -2.0),), ((0.5, -0.5),), {"ord": np.inf}),
    )
)
def norm(x: Any, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Any:
    """The norm of vectors along `axis`, as `numpy.linalg.norm`: the 2-norm unless `ord` says else.

    Over several axes, which is what `axis` None means for a matrix, `ord` must be None or "fro":
    the root of the sum of squares. Raises ShapeError where NumPy would compute a matrix norm
    instead; `vector_norm` takes any `ord` over any axes.

    >>> norm(np.array([[3.0, 4.0], [6.0, 8.0]]), axis=1)
    array([ 5., 10.])
    """
    x = as_array("norm", x)
    axes = canonical_axes("norm", axis, len(x.shape))
    if len(axes) == 1 and ord is not None and not isinstance(ord, str):
        return vector_norm(x, axes, keepdims, ord)
    if ord is None or (ord in ("fro", "f") and len(axes) == 2):
        return vector_norm(x, axes, keepdims)
    raise ShapeError(
        explain(
            "norm", "one axis for an ord other than None", f"ord {ord!r} over axes {axes}",
            "vector_norm(x, axis, ord=ord) takes all elements together as one vector",
        )
    )  # fmt: skip
