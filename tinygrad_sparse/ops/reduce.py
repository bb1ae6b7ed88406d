"""Reductions, and the softmax family that is built on one. Floor 4: declarations only.

float16 sums and counts are kept in float32. A tie of max or min splits the cotangent evenly, so
what arrives is always what was sent. The log-sum-exp of all -inf is -inf with a zero gradient.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import Kink, fixed_axes, rowwise

from .axes import canonical_axes
from .elementwise import exp, where
from .shape import broadcast_to, reshape


def _axes(op: str) -> Any:
    def canonical(x: Array, *, axis: Any = None, keepdims: bool = False) -> Any:
        axes = canonical_axes(op, axis, getattr(x, "ndim", 0))
        return (x,), {"axis": axes, "keepdims": bool(keepdims)}

    return canonical


def _one_axis(op: str) -> Any:
    def canonical(x: Array, *, axis: Any = -1) -> Any:
        return (x,), {"axis": canonical_axes(op, axis, x.ndim)}

    return canonical


def _kept(g: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """g with the reduced axes back, of length 1."""
    shape = tuple(1 if a in axis else n for a, n in enumerate(x.shape))
    return g if tuple(g.shape) == shape else reshape(g, shape)


def _wide(x: Any) -> Any:
    return np.float32 if x.dtype == np.float16 else None


ROWS = rowwise("r", when=fixed_axes)


@primitive(
    rows=ROWS,
    vjp=(lambda g, out, x, *, axis, keepdims: broadcast_to(_kept(g, x, axis), x.shape),),
    canonical=_axes("sum"),
    methods=("sum",),
)
def sum(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The sum over `axis`: an int, a tuple, or None for all."""
    x = xp.asarray(x)
    total = xp.sum(x, axis=axis, keepdims=keepdims, dtype=_wide(x))
    return total.astype(x.dtype) if x.dtype.kind == "f" else total


def _mean_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    n = math.prod(x.shape[a] for a in axis)
    # times a share, not over a count: float16 has no 70,000, but it has a 70,000th
    return broadcast_to(_kept(g, x, axis), x.shape) * (1.0 / n if n else 0.0)


@primitive(rows=ROWS, vjp=(_mean_vjp,), canonical=_axes("mean"), methods=("mean",))
def mean(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The arithmetic mean over `axis`."""
    return xp.mean(x, axis=axis, keepdims=keepdims)


def _extremum_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    here = x == _kept(out, x, axis)
    # counted in float64: a float16 count overflows at 65,504 ties, and then nothing would arrive
    count = np.maximum(here.sum(axis=axis, keepdims=True), 1)
    share = (1.0 / count).astype(x.dtype)
    return where(here, _kept(g, x, axis) * share, 0.0)


@primitive(
    rows=ROWS,
    vjp=(_extremum_vjp,),
    canonical=_axes("max"),
    methods=("max",),
    kinks=(Kink(((2.0, 2.0, 1.0),), ((0.5, 0.5, 0.0),)),),
)
def max(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The largest element over `axis`; ties share the cotangent evenly."""
    return xp.max(x, axis=axis, keepdims=keepdims)


@primitive(
    rows=ROWS,
    vjp=(_extremum_vjp,),
    canonical=_axes("min"),
    methods=("min",),
    kinks=(Kink(((1.0, 1.0, 2.0),), ((0.5, 0.5, 0.0),)),),
)
def min(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The smallest element over `axis`; ties share the cotangent evenly."""
    return xp.min(x, axis=axis, keepdims=keepdims)


def _logsumexp_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    total = _kept(out, x, axis)
    return _kept(g, x, axis) * exp(x - where(total == -np.inf, 0.0, total))


@primitive(
    rows=ROWS,
    vjp=(_logsumexp_vjp,),
    canonical=_axes("logsumexp"),
    methods=("logsumexp",),
    kinks=(Kink(((-np.inf, -np.inf),), ((0.0, 0.0),)),),
)
def logsumexp(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """log Σ e**x over `axis`, without overflow; all -inf gives -inf."""
    top = xp.max(x, axis=axis, keepdims=True)
    shift = xp.where(xp.isfinite(top), top, 0.0)
    total = xp.sum(xp.exp(x - shift), axis=axis, keepdims=True, dtype=_wide(x))
    positive = total > 0
    out = (
        xp.where(positive, xp.log(xp.where(positive, total, 1.0)), -np.inf).astype(x.dtype) + shift
    )
    return out if keepdims else xp.squeeze(out, axis=axis)


def _softmax_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...]) -> Any:
    weighted = g * out
    return weighted - out * sum(weighted, axis, True)


@primitive(rows=ROWS, vjp=(_softmax_vjp,), canonical=_one_axis("softmax"), methods=("softmax",))
def softmax(xp: Any, x: Array, *, axis: Any = -1) -> Array:
    """e**x / Σ e**x over `axis`, without overflow."""
    small = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return small / xp.sum(small, axis=axis, keepdims=True, dtype=_wide(x)).astype(x.dtype)


def _log_softmax_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...]) -> Any:
    return g - exp(out) * sum(g, axis, True)


@primitive(
    rows=ROWS, vjp=(_log_softmax_vjp,), canonical=_one_axis("log_softmax"), methods=("log_softmax",)
)
def log_softmax(xp: Any, x: Array, *, axis: Any = -1) -> Array:
    """x - log Σ e**x over `axis`, without overflow."""
    small = x - xp.max(x, axis=axis, keepdims=True)
    total = xp.sum(xp.exp(small), axis=axis, keepdims=True, dtype=_wide(x))
    return small - xp.log(total).astype(x.dtype)
