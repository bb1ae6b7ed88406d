"""The softmax family: log Σ e**x, its derivative, and that one's logarithm. Floor 4.

Shifted by the largest element, so nothing overflows. What a mask excludes counts as -inf and gets
exactly 0. The log-sum-exp of all -inf is -inf, and its derivative 0: so is the softmax there.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, as_array, as_array_beside
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import Kink, elementwise, fixed_axes, rowwise
from tinygrad_sparse.shapes import broadcasts

from .activation import sigmoid
from .axes import Axes, canonical_axes, kept, reducing, wide
from .elementwise import where as _where
from .exponential import exp
from .reduce import sum
from .reduction import reduction

_ALONG = rowwise("r", when=fixed_axes)


def _logaddexp_slope(out: Any, x: Any, y: Any) -> Any:
    # of the difference, not e**(x - out): out has lost the digits of log 2 when x and y are large
    return sigmoid(x - _where(out == -np.inf, -out, y))


@primitive(
    ufunc="logaddexp",
    rows=elementwise,
    vjp=(
        lambda g, out, x, y: g * _logaddexp_slope(out, x, y),
        lambda g, out, x, y: g * _logaddexp_slope(out, y, x),
    ),
    kinks=(Kink((-np.inf, -np.inf), (0.0, 0.0)), Kink((-np.inf, 1.0), (0.0, 1.0))),
)
def logaddexp(x: Array, y: Array) -> Array:
    """log(e**x + e**y) without overflow; operands broadcast. The slopes at (-inf, -inf) are 0."""


def _over(op: str) -> Any:
    def canonical(x: Array, *, axis: Axes) -> Any:
        return (x,), {"axis": canonical_axes(op, axis, x.ndim)}

    return canonical


def _masked(op: str, x: Any, mask: Any) -> Any:
    """x with -inf where the mask is false."""
    if mask is None:
        return x
    x = as_array(op, x)
    mask = as_array_beside(op, mask, x)
    if not broadcasts(mask.shape, x.shape):
        wanted = f"a mask that broadcasts to {tuple(x.shape)}"
        raise ShapeError(explain(op, wanted, f"where {tuple(mask.shape)}"))
    return _where(mask, x, -np.inf)


def _shifted(xp: Any, x: Array, axis: tuple[int, ...]) -> tuple[Array, Array]:
    """(x - shift, shift): the largest element is 0, and e to the power of it does not overflow."""
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    top = adapter_of(x).max_from(x, axis, -np.inf)
    shift = xp.where(xp.isfinite(top), top, 0.0)
    return x - shift, shift


def _total(xp: Any, small: Array, axis: tuple[int, ...]) -> Array:
    return xp.sum(small, axis=axis, keepdims=True, dtype=wide(small))


def _softmax_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...]) -> Any:
    weighted = g * out
    return weighted - out * sum(weighted, axis, True)


@primitive(rows=_ALONG, vjp=(_softmax_vjp,), canonical=_over("softmax"))
def _softmax(xp: Any, x: Array, *, axis: Any) -> Array:
    small = xp.exp(_shifted(xp, x, axis)[0])
    total = _total(xp, small, axis)
    return (small / xp.where(total == 0, 1.0, total)).astype(small.dtype, copy=False)


@composite(
    methods=("softmax",),
    kinks=(
        Kink(((-np.inf, -np.inf),), ((0.0, 0.0),)),
        Kink(((0.0, 100.0),), ((0.0, 0.0),), {"where": [True, False]}),
    ),
)
def softmax(x: Any, axis: Axes = -1, where: Any = None) -> Any:
    """e**x / Σ e**x over `axis`, without overflow; 0 where the mask `where` is false.

    >>> softmax(np.array([0.0, 0.0, 1e9]), where=[True, True, False])
    array([0.5, 0.5, 0. ])
    """
    return _softmax(_masked("softmax", x, where), axis=axis)


@primitive(
    rows=_ALONG,
    vjp=(lambda g, out, x, *, axis: g - exp(out) * sum(g, axis, True),),
    canonical=_over("log_softmax"),
)
def _log_softmax(xp: Any, x: Array, *, axis: Any) -> Array:
    small, _ = _shifted(xp, x, axis)
    total = _total(xp, xp.exp(small), axis)
    return small - xp.log(xp.where(total == 0, 1.0, total)).astype(small.dtype)


@composite(methods=("log_softmax",))
def log_softmax(x: Any, axis: Axes = -1, where: Any = None) -> Any:
    """x - log Σ e**x over `axis`, without overflow; -inf where the mask `where` is false."""
    return _log_softmax(_masked("log_softmax", x, where), axis=axis)


def _logsumexp_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    # not e**(x - out): out has lost the digits of log n when x is large
    return kept(g, x, axis) * _softmax(x, axis=axis)


@primitive(rows=reduction(_logsumexp_vjp), vjp=(_logsumexp_vjp,), canonical=reducing("logsumexp"))
def _logsumexp(xp: Any, x: Array, *, axis: Any, keepdims: bool) -> Array:
    small, shift = _shifted(xp, x, axis)
    total = _total(xp, xp.exp(small), axis)
    some = total != 0  # NaN stays NaN
    logarithm = xp.where(some, xp.log(xp.where(some, total, 1.0)), -np.inf)
    out = logarithm.astype(small.dtype) + shift
    return out if keepdims else xp.squeeze(out, axis=axis)


@composite(
    methods=("logsumexp",),
    kinks=(
        Kink(((-np.inf, -np.inf),), ((0.0, 0.0),)),
        Kink(((0.0, 100.0),), ((1.0, 0.0),), {"where": [True, False]}),
    ),
)
def logsumexp(x: Any, axis: Axes = None, keepdims: bool = False, where: Any = None) -> Any:
    """log Σ e**x over `axis`, without overflow; only of elements where the mask `where` is true.

    All -inf, or nothing, gives -inf. Raises ShapeError if `where` does not broadcast to x.

    >>> float(logsumexp(np.array([1000.0, 1000.0])))
    1000.6931471805599
    """
    return _logsumexp(_masked("logsumexp", x, where), axis=axis, keepdims=keepdims)
