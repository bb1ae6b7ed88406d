"""A cut of an array by one slice an axis, and its transpose. Floor 4: what basic indices and `pad`
are made of; no op of its own.

A cut of the first axis takes rows out, and its gradient is those rows. Within a row, zeros are
cheaper than ids, unless they are most of it: then more axes address what was cut out.
"""

from __future__ import annotations

import math
from typing import Any

from tinygrad_sparse.backend import Array, xp_of
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import moved, reindexed
from tinygrad_sparse.shapes import Shape
from tinygrad_sparse.slices import IndexedSlices, finer, rows_of
from tinygrad_sparse.tensor import ready

from .shape import reshape

Index = tuple[slice, ...]  # a slice for each axis; ALL where all of it stays
ALL = slice(None)
NARROW = 8  # a cut to less than 1/8 of an inner axis is addressed by ids


def counts(shape: Shape, index: Index) -> Shape:
    """The shape that a cut leaves."""
    return tuple(len(range(*part.indices(n))) for n, part in zip(shape, index, strict=True))


def _addressed(shape: Shape, cut: Shape) -> int:
    """How many axes address what a cut leaves; 0 where it is best held as a part of the whole."""
    lead = 0
    for a, (n, left) in enumerate(zip(shape, cut, strict=True)):
        if left < n if a == 0 else left * NARROW < n:
            lead = a + 1
    return lead


def _slice_vjp(g: Any, out: Any, x: Any, *, index: Index, shape: Shape) -> Any:
    whole = tuple(x.shape)
    cut = counts(whole, index)
    lead = _addressed(whole, cut)
    if not lead:
        return unslice(g.reshape(cut), shape=whole, index=index)
    rows = math.prod(cut[:lead])
    every = rows_of(xp_of(g).arange(rows), g.reshape((rows, *cut[lead:])), cut, lead)
    return _slice_rows(every, out, x, index=index, shape=cut)


def _slice_rows(g: IndexedSlices, out: Any, x: Any, *, index: Index, shape: Shape) -> IndexedSlices:
    """Rows go back to where they were cut out; the rest of a row is zeros."""
    whole = tuple(x.shape)
    cut = counts(whole, index)
    g = g.reshape(cut)
    g = finer(g, max(g.lead, _addressed(whole, cut)))
    values, inner = g.values, index[g.lead :]
    moves: dict[int, Any] = {}
    for a, part in enumerate(index[: g.lead]):
        if part != ALL:
            start, _, step = part.indices(whole[a])
            moves[a] = lambda place, start=start, step=step: start + step * place
    if any(part != ALL for part in inner):
        values = unslice(values, shape=(len(g.indices), *whole[g.lead :]), index=(ALL, *inner))
    return moved(g, whole, moves, values)


@primitive(rows=reindexed(_slice_rows), vjp=(_slice_vjp,))
def slice_(xp: Any, x: Array, *, index: Index, shape: Shape) -> Array:
    """A view: x cut by `index`, then axes of length 1 dropped or added to get `shape`."""
    return x[index].reshape(shape)


def _unslice_rows(
    g: IndexedSlices, out: Any, x: Any, *, shape: Shape, index: Index
) -> IndexedSlices:
    """Only what x put into the touched rows."""
    moves: dict[int, Any] = {}
    for a, part in enumerate(index[: g.lead]):
        if part != ALL:
            start, _, step = part.indices(shape[a])
            moves[a] = lambda place, start=start, step=step: xp_of(place).where(
                (place - start) % step == 0, (place - start) // step, -1
            )
    return moved(g, tuple(x.shape), moves, cut(g.values, (ALL, *index[g.lead :])))


@primitive(
    rows=reindexed(_unslice_rows),
    vjp=(lambda g, out, x, *, shape, index: cut(g, index),),
)
def unslice(xp: Any, x: Array, *, shape: Shape, index: Index) -> Array:
    """Zeros of `shape` with x at `index`: the transpose of a cut."""
    out = xp.zeros(shape, x.dtype)
    out[index] = x
    return out


def cut(x: Any, index: Index) -> Any:
    """x cut by `index`."""
    return slice_(x, index=index, shape=counts(tuple(x.shape), index))


def basic(x: Any, parts: list[Any]) -> Any:
    """x by slices and integers, one an axis, and None for new axes; integers are in range."""
    shape = tuple(x.shape)
    index: list[slice] = []
    result: list[int] = []
    for part in parts:
        if part is None:
            result.append(1)
        elif isinstance(part, slice):
            n = shape[len(index)]
            start, stop, step = part.indices(n)
            result.append(len(range(start, stop, step)))
            index.append(ALL if result[-1] == n and step == 1 else part)
        else:
            index.append(slice(part, part + 1))
    if all(part == ALL for part in index):
        return x if tuple(result) == shape else reshape(x, tuple(result))
    return slice_(ready(x, index[0]), index=tuple(index), shape=tuple(result))
