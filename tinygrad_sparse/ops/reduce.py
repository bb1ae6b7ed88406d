"""Reductions. Floor 4: declarations only, NumPy's names and semantics.

float16 sums and products are kept in float32. A tie of max or min splits the cotangent
evenly, so what arrives is always what was sent. A product's cotangent is the product of the others,
never the whole divided by its part.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import Kink

from .axes import (
    canonical_axes,
    canonical_axis,
    kept,
    kept_shape,
    narrow,
    reduced,
    reducing,
    refuse_empty,
    wide,
)
from .elementwise import where
from .reduction import reduction
from .scan import _others
from .shape import broadcast_to, reshape, transpose


def _count(x: Any, axis: tuple[int, ...]) -> int:
    return math.prod([x.shape[a] for a in axis])


def _sum_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return broadcast_to(kept_shape(g, x.shape, axis), x.shape)


@primitive(
    rows=reduction(_sum_vjp),
    vjp=(_sum_vjp,),
    canonical=reducing("sum"),
    methods=("sum",),
)
def sum(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The sum over `axis`: an int, a tuple, or None for all."""
    return narrow(x.sum(axis=axis, keepdims=keepdims, dtype=wide(x)), x)


def _mean_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    # a fraction rather than a count, which may be too large for float16
    shape = x.shape
    n = math.prod([shape[a] for a in axis]) or 1
    return broadcast_to(kept_shape(g, shape, axis) * (1.0 / n), shape)


@primitive(
    rows=reduction(_mean_vjp), vjp=(_mean_vjp,), canonical=reducing("mean"), methods=("mean",)
)
def mean(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The arithmetic mean over `axis`; of no elements NaN, with NumPy's warning."""
    return x.mean(axis=axis, keepdims=keepdims)


def _prod_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    if len(axis) == 1:
        return kept(g, x, axis) * _others(x, axis[0])
    stay = tuple([a for a in range(len(x.shape)) if a not in axis])
    moved = transpose(x, stay + axis)
    rows = reshape(moved, (*moved.shape[: len(stay)], _count(x, axis)))
    product = reshape(_others(rows, len(stay)), moved.shape)
    return kept(g, x, axis) * transpose(product, tuple(np.argsort(stay + axis).tolist()))


@primitive(
    rows=reduction(_prod_vjp),
    vjp=(_prod_vjp,),
    canonical=reducing("prod"),
    methods=("prod",),
    kinks=(
        Kink(((2.0, 0.0, 3.0),), ((0.0, 6.0, 0.0),)),
        Kink(((0.0, 2.0, 0.0),), ((0.0, 0.0, 0.0),)),
    ),
)
def prod(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The product over `axis`; right where elements are 0, at every order."""
    return narrow(x.prod(axis=axis, keepdims=keepdims, dtype=wide(x)), x)


def _freedom(x: Any, axis: tuple[int, ...], ddof: float) -> float:
    """1 / (n - ddof), NaN where nothing is left to vary."""
    left = _count(x, axis) - ddof
    return 1.0 / left if left > 0 else math.nan


def _deviations(x: Any, axis: tuple[int, ...], scale: Any, freedom: float) -> Any:
    """scale · (x - mean): what var and std send; all NaN without degrees of freedom."""
    if math.isnan(freedom):
        return broadcast_to(scale * freedom, x.shape)
    return scale * freedom * (x - mean(x, axis, True))


def _moment(f: Any, xp: Any, x: Array, axis: Any, keepdims: bool, ddof: float) -> Array:
    if math.isnan(_freedom(x, axis, ddof)):
        dtype = x.dtype if x.dtype.kind == "f" else np.float64
        return xp.full(reduced(x.shape, axis, keepdims), math.nan, dtype)
    return narrow(f(x, axis=axis, keepdims=keepdims, ddof=ddof, dtype=wide(x)), x)


def _var_vjp(
    g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool, ddof: float = 0
) -> Any:
    return _deviations(x, axis, 2.0 * kept(g, x, axis), _freedom(x, axis, ddof))


@primitive(
    rows=reduction(_var_vjp),
    vjp=(_var_vjp,),
    canonical=reducing("var"),
    methods=("var",),
    kinks=(Kink(((3.0,),), ((np.nan,),), {"ddof": 1}),),
)
def var(xp: Any, x: Array, *, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Array:
    """The variance over `axis`, Σ (x - mean)² / (n - ddof); NaN if that divisor is not positive."""
    return _moment(xp.var, xp, x, axis, keepdims, ddof)


def _std_vjp(
    g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool, ddof: float = 0
) -> Any:
    freedom = _freedom(x, axis, ddof)
    if math.isnan(freedom):
        return _deviations(x, axis, kept(g, x, axis), freedom)
    spread = kept(out, x, axis)
    # constant data by its elements: their mean is rounded, so their deviations may not be 0
    still = (spread == 0) | (max(x, axis, True) == min(x, axis, True))
    return _deviations(x, axis, kept(g, x, axis) / where(still, np.inf, spread), freedom)


@primitive(
    rows=reduction(_std_vjp),
    vjp=(_std_vjp,),
    canonical=reducing("std"),
    methods=("std",),
    kinks=(
        Kink(((0.1, 0.1, 0.1),), ((0.0, 0.0, 0.0),)),
        Kink(((3.0,),), ((np.nan,),), {"ddof": 1}),
    ),
)
def std(xp: Any, x: Array, *, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Array:
    """The standard deviation over `axis`, the root of `var`; its slope at constant data is 0."""
    return _moment(xp.std, xp, x, axis, keepdims, ddof)


def _extremum_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    top = kept(out, x, axis)
    here = x == top
    lost = top != top
    if lost.any():  # NaN was chosen over numbers
        here = here | ((x != x) & lost)
    # counted in float64: a float16 count overflows at 65,504 ties, and then nothing would arrive
    count = np.maximum(here.sum(axis=axis, keepdims=True), 1)
    return where(here, kept(g, x, axis) * (1.0 / count).astype(x.dtype), 0.0)


@primitive(
    rows=reduction(_extremum_vjp),
    vjp=(_extremum_vjp,),
    canonical=reducing("max", empty=False),
    methods=("max",),
    kinks=(Kink(((2.0, 2.0, 1.0),), ((0.5, 0.5, 0.0),)),),
)
def max(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The largest element over `axis`; ties share the cotangent evenly."""
    return x.max(axis=axis, keepdims=keepdims)


@primitive(
    rows=reduction(_extremum_vjp),
    vjp=(_extremum_vjp,),
    canonical=reducing("min", empty=False),
    methods=("min",),
    kinks=(Kink(((1.0, 1.0, 2.0),), ((0.5, 0.5, 0.0),)),),
)
def min(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The smallest element over `axis`; ties share the cotangent evenly."""
    return x.min(axis=axis, keepdims=keepdims)


def _place(op: str) -> Any:
    def canonical(x: Array, *, axis: Any = None, keepdims: bool = False) -> Any:
        axis = None if axis is None else canonical_axis(op, axis, x.ndim)
        refuse_empty(op, tuple(x.shape), canonical_axes(op, axis, x.ndim))
        return (x,), {"axis": axis, "keepdims": bool(keepdims)}

    return canonical


@primitive(vjp=(None,), canonical=_place("argmax"), methods=("argmax",))
def argmax(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Where the largest element is along `axis`, the first of ties; in the flattened x if None.

    Integers: no gradient flows through them. ``take`` and ``x[ids]`` look up with them.
    """
    return x.argmax(axis=axis, keepdims=keepdims)


@primitive(vjp=(None,), canonical=_place("argmin"), methods=("argmin",))
def argmin(xp: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Where the smallest element is along `axis`, the first of ties; see `argmax`."""
    return x.argmin(axis=axis, keepdims=keepdims)
