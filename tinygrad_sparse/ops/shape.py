"""Ops that move elements without changing them. Floor 4: declarations only."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import elementwise, reindexed
from tinygrad_sparse.slices import IndexedSlices, rows_of

from .axes import Axes, canonical_axes


def _reshape_canonical(x: Array, *, shape: Any) -> tuple[tuple[Array], dict[str, Any]]:
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    numbers = tuple(operator.index(n) for n in shape)
    if numbers.count(-1) == 1:
        rest = math.prod(n for n in numbers if n != -1)
        if rest and x.size % rest == 0:
            numbers = tuple(x.size // rest if n == -1 else n for n in numbers)
    if any(n < 0 for n in numbers) or math.prod(numbers) != x.size:
        raise ShapeError(
            explain("reshape", f"a shape of {x.size} elements for {x.shape}", f"{shape}")
        )
    return (x,), {"shape": numbers}


def _reshape_rows(g: IndexedSlices, out: Any, x: Any, *, shape: Any) -> IndexedSlices | None:
    """Each row of the output is one row of x, or a block of them, at the first axis that fits."""
    rows = math.prod(g.shape[: g.lead])
    for lead in range(1, len(x.shape) + 1):
        finer = math.prod(x.shape[:lead])
        if rows and finer % rows == 0:
            block = finer // rows
            ids = (g.indices[:, None] * block + np.arange(block)).reshape(-1)
            values = g.values.reshape((len(g.indices) * block, *x.shape[lead:]))
            return rows_of(ids, values, tuple(x.shape), lead)
    return None


@primitive(
    rows=reindexed(_reshape_rows),
    vjp=(lambda g, out, x, *, shape: g.reshape(x.shape),),
    canonical=_reshape_canonical,
)
def reshape(xp: Any, x: Array, *, shape: Any) -> Array:
    """x with another shape of as many elements; one entry may be -1."""
    return xp.reshape(x, shape)


@composite(methods=("reshape",))
def _reshape_method(self: Any, *shape: Any) -> Any:
    """`ops.reshape`; the sizes may also be given one by one."""
    return reshape(self, shape[0] if len(shape) == 1 else shape)


def _transpose_canonical(x: Array, *, axes: Any = None) -> tuple[tuple[Array], dict[str, Any]]:
    if axes is None:
        return (x,), {"axes": tuple(range(x.ndim))[::-1]}
    canonical = canonical_axes("transpose", axes, x.ndim)
    if len(canonical) != x.ndim:
        raise ShapeError(explain("transpose", f"{x.ndim} axes for {x.shape}", repr(axes)))
    return (x,), {"axes": canonical}


def _transpose_rows(g: IndexedSlices, out: Any, x: Any, *, axes: Any) -> IndexedSlices | None:
    """Leading axes that stay in front, in any order: the ids move, the rows turn within."""
    lead = g.lead
    if sorted(axes[:lead]) != list(range(lead)):
        return None
    places = np.unravel_index(g.indices, g.shape[:lead])
    ids = np.ravel_multi_index(
        tuple(places[axes.index(a)] for a in range(lead)), tuple(x.shape[:lead])
    )
    inner = [a - lead for a in axes[lead:]]
    back = (0, *[1 + inner.index(a) for a in range(len(inner))])
    return rows_of(ids, transpose(g.values, back), tuple(x.shape), lead)


@primitive(
    rows=reindexed(_transpose_rows),
    vjp=(lambda g, out, x, *, axes: transpose(g, tuple(np.argsort(axes).tolist())),),
    canonical=_transpose_canonical,
)
def transpose(xp: Any, x: Array, *, axes: Any = None) -> Array:
    """x with its axes permuted; reversed if `axes` is None."""
    return xp.transpose(x, axes)


@composite(methods=("transpose",))
def _transpose_method(self: Any, *axes: Any) -> Any:
    """`ops.transpose`; the axes may also be given one by one."""
    return transpose(self, axes[0] if len(axes) == 1 else axes or None)


@composite(methods=("swapaxes",))
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """x with two axes exchanged."""
    ndim = len(x.shape)
    first, second = canonical_axes("swapaxes", axis1, ndim) + canonical_axes(
        "swapaxes", axis2, ndim
    )
    order = list(range(ndim))
    order[first], order[second] = second, first
    return transpose(x, tuple(order))


def expand_dims(x: Any, axis: Axes) -> Any:
    """x with new axes of length 1 at the given places of the result."""
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = len(x.shape) + len(given)
    new = canonical_axes("expand_dims", axis, ndim)
    old = iter(x.shape)
    return reshape(x, tuple(1 if a in new else next(old) for a in range(ndim)))


@composite(methods=("squeeze",))
def squeeze(x: Any, axis: Axes = None) -> Any:
    """x without the given axes of length 1; without all of them if None."""
    if axis is None:
        gone: tuple[int, ...] = tuple(a for a, n in enumerate(x.shape) if n == 1)
    else:
        gone = canonical_axes("squeeze", axis, len(x.shape))
        if any(x.shape[a] != 1 for a in gone):
            raise ShapeError(explain("squeeze", "axes of length 1", f"axis {axis} of {x.shape}"))
    return reshape(x, tuple(n for a, n in enumerate(x.shape) if a not in gone))


@primitive(rows=elementwise, vjp=(lambda g, out, x, *, shape: g,))
def broadcast_to(xp: Any, x: Array, *, shape: Any) -> Array:
    """x repeated along new axes and axes of length 1, to `shape`."""
    return xp.broadcast_to(x, shape)


def _concatenate_canonical(
    *arrays: Array, axis: int = 0
) -> tuple[tuple[Array, ...], dict[str, Any]]:
    if not arrays or any(a.ndim == 0 for a in map(adapter_of(arrays[0]).asarray, arrays)):
        got = "a 0-d array" if arrays else "none"
        raise ShapeError(explain("concatenate", "arrays with at least one axis", got))
    axes = canonical_axes("concatenate", axis, arrays[0].ndim)
    if axis is None or len(axes) != 1:
        raise ShapeError(explain("concatenate", "one axis", repr(axis)))
    return arrays, {"axis": axes[0]}


def _offset(arrays: Sequence[Any], k: int, axis: int) -> int:
    return sum(a.shape[axis] for a in arrays[:k])


def _concatenate_vjp(k: int) -> Any:
    def vjp(g: Any, out: Any, *arrays: Any, axis: int) -> Any:
        start = _offset(arrays, k, axis)
        return g[(slice(None),) * axis + (slice(start, start + arrays[k].shape[axis]),)]

    return vjp


def _concatenate_rows(k: int) -> Any:
    def rows(g: IndexedSlices, out: Any, *arrays: Any, axis: int) -> IndexedSlices:
        shape, lead = tuple(arrays[k].shape), g.lead
        start = _offset(arrays, k, axis)
        stop = start + shape[axis]
        if axis >= lead:
            inner = (slice(None),) * (axis - lead + 1) + (slice(start, stop),)
            return rows_of(g.indices, g.values[inner], shape, lead)
        places: list[Array] = list(np.unravel_index(g.indices, g.shape[:lead]))
        here = np.flatnonzero((places[axis] >= start) & (places[axis] < stop))
        places[axis] = places[axis] - start
        mine = tuple(p[here] for p in places)
        ids = np.ravel_multi_index(mine, shape[:lead]) if len(here) else here
        return rows_of(ids, adapter_of(g.values).take_rows(g.values, here), shape, lead)

    return rows


@primitive(
    rows=reindexed(_concatenate_rows, variadic=True),
    vjp=_concatenate_vjp,
    canonical=_concatenate_canonical,
    variadic=True,
)
def concatenate(xp: Any, *arrays: Array, axis: int = 0) -> Array:
    """The arrays of a sequence joined along an axis that exists."""
    return xp.concatenate(arrays, axis=axis)


def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    """The arrays of a sequence joined along a new axis."""
    return concatenate([expand_dims(a, axis) for a in arrays], axis)
