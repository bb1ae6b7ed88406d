"""Ops that put arrays together, take them apart and repeat them. Floor 4: declarations only."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, as_array, as_host_array, xp_of
from tinygrad_sparse.errors import ArgumentError, ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import ids_of, moved, places_of, reindexed
from tinygrad_sparse.shapes import whole_numbers
from tinygrad_sparse.slices import Gradient, IndexedSlices, rows_of

from .axes import canonical_axis
from .rows import take
from .shape import broadcast_to, reshape
from .slicing import ALL, basic, cut


def _concatenate_canonical(
    *arrays: Array, axis: int = 0
) -> tuple[tuple[Array, ...], dict[str, Any]]:
    if not arrays or any(a.ndim == 0 for a in arrays):
        got = "a 0-d array" if arrays else "none"
        raise ShapeError(explain("concatenate", "arrays with at least one axis", got))
    canonical = canonical_axis("concatenate", axis, arrays[0].ndim)
    return arrays, {"axis": canonical}


def _span(arrays: Sequence[Any], k: int, axis: int) -> slice:
    """Where array k is along the axis of the result."""
    start = sum(a.shape[axis] for a in arrays[:k])
    return slice(start, start + arrays[k].shape[axis])


def _concatenate_vjp(k: int) -> Any:
    def vjp(g: Any, out: Any, *arrays: Any, axis: int) -> Any:
        return g[(ALL,) * axis + (_span(arrays, k, axis),)]

    return vjp


def _concatenate_rows(k: int) -> Any:
    def rows(g: IndexedSlices, out: Any, *arrays: Any, axis: int) -> IndexedSlices:
        span, values = _span(arrays, k, axis), g.values
        if axis >= g.lead:
            values = values[(ALL,) * (1 + axis - g.lead) + (span,)]
        return moved(g, tuple(arrays[k].shape), {axis: lambda place: place - span.start}, values)

    return rows


@primitive(
    rows=reindexed(_concatenate_rows, variadic=True),
    vjp=_concatenate_vjp,
    canonical=_concatenate_canonical,
    variadic=True,
)
def _concatenate(xp: Any, *arrays: Array, axis: int = 0) -> Array:
    return xp.concatenate(arrays, axis=axis)


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    """The arrays of a sequence joined along an axis that exists; each flattened first if None."""
    if axis is None:
        arrays, axis = [reshape(as_array("concatenate", a), -1) for a in arrays], 0
    return _concatenate(arrays, axis)


def _stack_canonical(*arrays: Array, axis: int = 0) -> tuple[tuple[Array, ...], dict[str, Any]]:
    if not arrays or any(a.shape != arrays[0].shape for a in arrays):
        got = ", ".join(str(a.shape) for a in arrays) or "none"
        raise ShapeError(explain("stack", "arrays of one shape", got))
    canonical = canonical_axis("stack", axis, arrays[0].ndim + 1)
    return arrays, {"axis": canonical}


def _stack_vjp(k: int) -> Any:
    return lambda g, out, *arrays, axis: g[(ALL,) * axis + (k,)]


def _stack_rows(k: int) -> Any:
    def rows(g: IndexedSlices, out: Any, *arrays: Any, axis: int) -> Gradient:
        shape = tuple(arrays[k].shape)
        if axis >= g.lead:
            values = g.values[(ALL,) * (1 + axis - g.lead) + (k,)]
            return rows_of(g.indices, values, shape, g.lead)
        places = places_of(g.indices, g.shape[: g.lead])
        here = xp_of(g.indices).flatnonzero(places.pop(axis) == k)
        values = adapter_of(g.values).take_rows(g.values, here)
        if places:
            ids = ids_of([place[here] for place in places], shape[: g.lead - 1])
            return rows_of(ids, values, shape, g.lead - 1)
        if len(here) or not shape:  # a row of the stack is the whole array
            return adapter_of(values).xp.sum(values, axis=0)
        return rows_of(here, values.reshape((0, *shape[1:])), shape)

    return rows


@primitive(
    rows=reindexed(_stack_rows, variadic=True),
    vjp=_stack_vjp,
    canonical=_stack_canonical,
    variadic=True,
)
def stack(xp: Any, *arrays: Array, axis: int = 0) -> Array:
    """The arrays of a sequence joined along a new axis."""
    return xp.stack(arrays, axis=axis)


def _pieces(op: str, x: Any, parts: Any, axis: int, equal: bool) -> list[Any]:
    x = as_array(op, x)
    axis = canonical_axis(op, axis, len(x.shape))
    n = x.shape[axis]
    if isinstance(parts, (int, np.integer)):
        count = int(parts)
        if count < 1 or (equal and n % count):
            wanted = f"a number of parts that divides {n}" if equal else "one part or more"
            hint = "ops.array_split allows parts of different sizes" if equal else None
            raise ShapeError(explain(op, wanted, f"{count}", hint))
        sizes = [n // count + (k < n % count) for k in range(count)]
        bounds = [sum(sizes[:k]) for k in range(count + 1)]
    else:
        wanted = "a number of parts, or a list of places to cut at"
        bounds = [0, *whole_numbers(op, wanted, parts), n]
    return [
        basic(x, [ALL] * axis + [slice(*ends)] + [ALL] * (len(x.shape) - axis - 1))
        for ends in pairwise(bounds)
    ]


def split(x: Any, parts: Any, axis: int = 0) -> list[Any]:
    """x cut along an axis: into `parts` equal pieces, or at the places that `parts` lists.

    A piece that nothing uses sends zeros back. Raises ShapeError if n pieces cannot be equal.

    >>> [piece.tolist() for piece in split(np.arange(6.0), 3)]
    [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    >>> [piece.tolist() for piece in split(np.arange(6.0), [1, 4])]
    [[0.0], [1.0, 2.0, 3.0], [4.0, 5.0]]
    """
    return _pieces("split", x, parts, axis, equal=True)


def array_split(x: Any, parts: Any, axis: int = 0) -> list[Any]:
    """`split` that may give pieces of two sizes, the larger ones first."""
    return _pieces("array_split", x, parts, axis, equal=False)


def tile(x: Any, reps: int | Sequence[int]) -> Any:
    """x repeated as a block, ``reps[a]`` times along axis a: [a, b] becomes [a, b, a, b].

    More numbers than x has axes give it new ones in front; fewer are for its last axes.
    """
    x = as_array("tile", x)
    counts = whole_numbers("tile", "whole numbers of times, 0 or more", reps, least=0)
    ndim = max(len(counts), len(x.shape))
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - len(x.shape)) + tuple(x.shape)
    apart = tuple(n for pair in zip((1,) * ndim, shape, strict=True) for n in pair)
    blocks = tuple(n for pair in zip(counts, shape, strict=True) for n in pair)
    whole = tuple(c * n for c, n in zip(counts, shape, strict=True))
    return reshape(broadcast_to(reshape(x, apart), blocks), whole)


@composite(methods=("repeat",))
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element along `axis` repeated in place: [a, b] becomes [a, a, b, b].

    `repeats` is one number for all, or one for each element. With axis=None x is flattened first.

    >>> repeat(np.array([5.0, 7.0]), [1, 3])
    array([5., 7., 7., 7.])
    """
    x = as_array("repeat", x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = canonical_axis("repeat", axis, len(x.shape))
    shape = tuple(x.shape)
    n = shape[axis]
    times = as_host_array("repeat", repeats)
    if times.dtype.kind not in "iu" or times.shape not in ((), (1,), (n,)) or (times < 0).any():
        wanted = f"one whole number, or {n}, of times 0 or more"
        raise ShapeError(explain("repeat", wanted, repr(repeats)))
    if times.size != n:
        k = int(times.reshape(()))
        apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
        blocks = (*shape[: axis + 1], k, *shape[axis + 1 :])
        whole = (*shape[:axis], n * k, *shape[axis + 1 :])
        return reshape(broadcast_to(reshape(x, apart), blocks), whole)
    return take(x, np.repeat(np.arange(n), times), axis)


_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def _pad_rows(g: IndexedSlices, out: Any, x: Any, *, index: Any, **_: Any) -> IndexedSlices:
    moves = {a: lambda place, by=part.start: place - by for a, part in enumerate(index)}
    return moved(g, tuple(x.shape), moves, cut(g.values, (ALL, *index[g.lead :])))


@primitive(
    rows=reindexed(_pad_rows),
    vjp=(lambda g, out, x, *, index, **_: cut(g, index),),
)
def _pad(xp: Any, x: Array, *, index: Any, width: Any, constant_values: Any) -> Array:
    return xp.pad(x, width, constant_values=constant_values)


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    """x with borders: `pad_width` places before and after along each axis, as in NumPy.

    `pad_width` is a number, a (before, after) pair for all axes, or a pair for each. With mode
    "constant" the border is `constant_values`; "edge", "reflect", "symmetric" and "wrap" look
    elements of x up, which get the gradients of their copies too.

    >>> pad(np.array([1.0, 2.0]), (1, 2))
    array([0., 1., 2., 0., 0.])
    >>> pad(np.array([1.0, 2.0, 3.0]), 1, "reflect")
    array([2., 1., 2., 3., 2.])
    """
    x = as_array("pad", x)
    shape = tuple(x.shape)
    try:
        pairs = np.broadcast_to(np.asarray(pad_width), (len(shape), 2)).tolist()
        width = [(operator.index(before), operator.index(after)) for before, after in pairs]
    except (ValueError, TypeError):
        width = [(-1, -1)]
    if any(n < 0 for pair in width for n in pair):
        wanted = "whole numbers of places, 0 or more, before and after each axis"
        raise ShapeError(explain("pad", wanted, repr(pad_width)))
    if mode not in _MODES:
        raise ArgumentError(explain("pad", f"a mode in {_MODES}", repr(mode)))
    if mode == "constant":
        constant_values = as_host_array("pad", constant_values).tolist()
        index = tuple(slice(b, b + n) for n, (b, _) in zip(shape, width, strict=True))
        return _pad(x, index=index, width=width, constant_values=constant_values)
    for axis, (n, pair) in enumerate(zip(shape, width, strict=True)):
        if pair != (0, 0):
            x = take(x, np.pad(np.arange(n), pair, mode), axis)  # type: ignore[call-overload]  # checked
    return x
