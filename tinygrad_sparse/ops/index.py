"""Indexing, and what stands for assignment to an item. Floor 4: declarations only.

A basic index (slices, integers, None, ...) is a view. Any other becomes flat ids of the first
axes, up to the last that an array indexes, and then is a lookup like any lookup. So the gradient
is rows wherever an index picks some: that of ``Q[s, a]`` has ``lead=2``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_sparse.backend import (
    Array,
    adapter_of,
    are_row_ids,
    as_array,
    as_array_beside,
    as_ours,
    describe,
    refuse_ids_elsewhere,
    refuse_mixed,
    row_ids,
    xp_of,
)
from tinygrad_sparse.errors import DtypeError, RowIndexError, ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import members, reindexed
from tinygrad_sparse.shapes import Shape, broadcasts
from tinygrad_sparse.slices import IndexedSlices, blocks, finer, rows_of
from tinygrad_sparse.tensor import Tensor

from .rows import _looked_up, take
from .shape import broadcast_to, reshape
from .slicing import ALL, basic


@composite(methods=("__getitem__",))
def getitem(x: Any, index: Any) -> Any:
    """``x[index]``, for every index that NumPy takes; Tensors of ids or of truth values too.

    An array of ids works as in `take`, and several as in NumPy: they broadcast together, and their
    axes stand where theirs stood if they are neighbours, else in front. A mask stands for the ids
    of its true places. The gradient is IndexedSlices of what was picked: at ``lead=2`` for
    ``Q[s, a]``. A slice of the first axis gives rows; within a row it gives zeros for the rest,
    unless more than 7/8 of it are left out. Raises RowIndexError for ids out of range, floats, and
    masks of another shape.

    >>> import tinygrad_sparse as ts
    >>> Q = ts.parameter(np.zeros((1000, 4)))
    >>> with ts.Tape() as tape:
    ...     loss = Q[[7, 999], [0, 3]].sum()
    >>> tape.backward(loss)[Q]
    IndexedSlices(2 rows of (1000, 4) float64, lead=2)
    """
    kind = type(index)
    if kind is Tensor:
        index = index._data
    elif kind is list:
        index = _as_ids("getitem", index)
    if (type(index) is np.ndarray or getattr(index, "ndim", False)) and index.dtype.kind != "b":
        return take(x, index)
    x, parts = _parts("getitem", as_array("getitem", x), index)
    arrays = [k for k, part in enumerate(parts) if _is_array(part)]
    if not arrays:
        return basic(x, [part for part in parts if part is not ...])
    end = arrays[-1] + 1
    while end < len(parts) and type(parts[end]) is int:
        end += 1
    ids, lead = _ids("getitem", parts, end, tuple(x.shape))
    ids = adapter_of(x).beside(x, ids)
    taken = take(x, ids) if lead == 1 else _looked_up(x, ids, lead)
    rest = [part for part in parts[end:] if part is not ...]
    return taken if all(part == ALL for part in rest) else basic(taken, [ALL] * ids.ndim + rest)


def _as_ids(op: str, part: Any) -> Array:
    try:
        return as_ours(op, part._data if type(part) is Tensor else part)
    except DtypeError:  # NumPy's word for it is "inhomogeneous"
        raise RowIndexError(explain(op, "an array of ids", f"the ragged {part!r}")) from None


def _is_array(part: Any) -> bool:
    return type(part) not in _SIMPLE and part is not ...


def _is_mask(part: Any) -> bool:
    return _is_array(part) and part.dtype.kind == "b"


_SIMPLE = frozenset({int, slice, type(None)})


def _parts(op: str, x: Any, index: Any) -> tuple[Any, list[Any]]:
    """An index as one part an axis, an int in range, a slice or an id array; and None for new axes.

    A mask becomes the arrays of its true places. A mask without axes masks an axis of length 1,
    which x gets: that is why x is returned too. An ellipsis that stands for no axis is kept, for
    NumPy holds arrays on both sides of it to be no neighbours.
    """
    shape = tuple(x.shape)
    given: list[Any] = []
    used = dots = 0
    for part in index if isinstance(index, tuple) else (index,):
        if part is ...:
            dots += 1
        elif part is not None:
            if type(part) is not np.ndarray and type(part) not in _SIMPLE:
                part = _as_ids(op, part)
                refuse_ids_elsewhere(op, part, x)
            used += part.ndim if _is_mask(part) else 1
        given.append(part)
    if used > len(shape) or dots > 1:
        wanted = f"at most {len(shape)} indices and one ellipsis for shape {shape}"
        raise RowIndexError(explain(op, wanted, f"{used} indices and {dots} ellipses"))
    parts: list[Any] = []
    full: list[int] = []  # the shape of x, with an axis for each mask that has none
    axis = 0
    for part in given if dots else [*given, ...]:
        size = 1
        if part is None:
            parts.append(None)
            continue
        if part is ...:
            size = len(shape) - used
            parts += [ALL] * size or [...]
        elif type(part) is slice:
            parts.append(part)
        elif _is_mask(part):
            size = part.ndim
            if part.shape != shape[axis : axis + size]:
                wanted = f"a mask of shape {shape[axis : axis + size]}"
                raise RowIndexError(explain(op, wanted, f"{part.shape} for an array {shape}"))
            parts += part.nonzero() if size else [xp_of(part).arange(int(part))]
            full += [] if size else [1]
        elif type(part) is int and 0 <= part < shape[axis]:
            parts.append(part)
        elif are_row_ids(part, shape[axis]) and part.ndim:
            parts.append(part)
        else:
            ids = row_ids(op, part, shape[axis], f", axis {axis} of {shape}")
            parts.append(int(ids) if type(ids) is np.ndarray and not ids.ndim else ids)
        full += shape[axis : axis + size]
        axis += size
    return x if len(full) == len(shape) else reshape(x, tuple(full)), parts


def _ids(op: str, parts: list[Any], end: int, shape: Shape) -> tuple[Array, int]:
    """What ``parts[:end]`` pick, as flat ids of the first axes, and how many axes these are.

    The ids have the shape that the picked part of the result has.
    """
    picks = [k for k, part in enumerate(parts) if type(part) is int or _is_array(part)]
    arrays = [part for part in parts if _is_array(part)]
    refuse_mixed(op, arrays)
    xp = xp_of(arrays[0]) if arrays else np
    apart = len(picks) > 0 and picks[-1] - picks[0] + 1 != len(picks)
    together = _together(op, [part.shape for part in arrays])
    others: list[int] = []  # sizes of the axes that slices and None give
    front = 0  # how many of them stand before the axes of the arrays
    places: list[tuple[int | None, Array]] = []  # along each axis; which of `others` it varies by
    for k, part in enumerate(parts[:end]):
        if picks and k == picks[0] and not apart:
            front = len(others)
        if part is None:
            others.append(1)
        elif type(part) is slice:
            places.append((len(others), xp.arange(*part.indices(shape[len(places)]))))
            others.append(len(places[-1][1]))
        elif part is not ...:
            places.append((None, part))
    flat: Any = None
    for n, (along, place) in zip(shape, places, strict=False):
        if along is None:
            behind = len(others) - front
        else:
            behind = len(others) - 1 - along + (len(together) if along < front else 0)
        if behind and type(place) is not int:
            place = place.reshape(place.shape + (1,) * behind)
        flat = place if flat is None else flat * n + place
    result = (*others[:front], *together, *others[front:])
    flat = xp.asarray(flat)
    if len(places) > 1 and flat.shape == result:
        return flat, len(places)
    return xp.broadcast_to(flat, result).copy(), len(places)


def _together(op: str, shapes: list[Shape]) -> Shape:
    """The shape of index arrays that broadcast together."""
    if len(set(shapes)) < 2:
        return shapes[0] if shapes else ()
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        wanted, got = "index arrays that broadcast together", ", ".join(map(str, shapes))
        raise RowIndexError(explain(op, wanted, f"shapes {got}")) from None


# -- assignment to items, as a function ----------------------------------------------------------


def _alike(g: IndexedSlices, ids: Array, lead: int) -> tuple[IndexedSlices, Array]:
    """g and ids with rows of one size."""
    g = finer(g, max(g.lead, lead))
    return g, blocks(ids, math.prod(g.shape[lead : g.lead]))


def _placed_rows(
    g: IndexedSlices, out: Any, x: Any, values: Any, ids: Array, *, lead: int
) -> IndexedSlices:
    g, ids = _alike(g, ids, lead)
    g, here, at = members(g, ids)
    taken = adapter_of(g.values).take_rows(g.values, at)
    return rows_of(here, taken, tuple(values.shape), 1 + g.lead - lead)


def _placed_vjp(g: Any, out: Any, x: Any, values: Any, ids: Array, *, lead: int) -> Any:
    return _looked_up(g, ids, lead)


def _kept_rows(
    g: IndexedSlices, out: Any, x: Any, values: Any, ids: Array, *, lead: int
) -> IndexedSlices:
    g, ids = _alike(g, ids, lead)
    xp = xp_of(g.indices)
    here = xp.flatnonzero(~xp.isin(g.indices, ids))
    values = adapter_of(g.values).take_rows(g.values, here)
    return rows_of(g.indices[here], values, g.shape, g.lead)


@primitive(
    rows=reindexed(lambda g, out, *args, lead: g, _placed_rows, None),
    vjp=(lambda g, out, x, values, ids, *, lead: g, _placed_vjp, None),
)
def _index_add(xp: Any, x: Array, values: Array, ids: Array, *, lead: int) -> Array:
    out = adapter_of(x).copy(x)
    flat = out.reshape((math.prod(x.shape[:lead]), *x.shape[lead:]))
    adapter_of(x).scatter_add_rows(flat, ids, values)
    return out


def _cleared(g: Any, out: Any, x: Any, values: Any, ids: Array, *, lead: int) -> Any:
    return _index_set(g, xp_of(g).zeros((), g.dtype), ids, lead=lead)


@primitive(
    rows=reindexed(_kept_rows, _placed_rows, None),
    vjp=(
        _cleared,
        _placed_vjp,
        None,
    ),
)
def _index_set(xp: Any, x: Array, values: Array, ids: Array, *, lead: int) -> Array:
    out = adapter_of(x).copy(x)
    out.reshape((math.prod(x.shape[:lead]), *x.shape[lead:]))[ids] = values
    return out


def _placed(op: str, f: Any, x: Any, index: Any, values: Any, once: bool) -> Any:
    """Call f with x, the index as flat ids, and a row of values for each of them."""
    x = as_array(op, x)
    values = as_array_beside(op, values, x)
    if not np.can_cast(values.dtype, x.dtype, "same_kind"):
        got = f"{describe(values)} for {describe(x)}"
        raise DtypeError(explain(op, "values that fit the array's dtype", got))
    before = tuple(x.shape)
    x, parts = _parts(op, x, index)
    if not x.shape:
        x, parts = reshape(x, (1,)), [*parts, 0]
    shape = tuple(x.shape)
    picked = [
        k
        for k, part in enumerate(parts)
        if type(part) is int or _is_array(part) or (type(part) is slice and part != ALL)
    ]
    end = 1 + (picked[-1] if picked else parts.index(ALL))
    ids, lead = _ids(op, parts, end, shape)
    row = shape[lead:]
    inner = iter(row)
    rest = [1 if part is None else next(inner) for part in parts[end:] if part is not ...]
    _check_values(op, tuple(values.shape), (*ids.shape, *rest))
    own = tuple(values.shape)[: max(0, len(values.shape) - len(rest))]
    if once:
        unique = xp_of(ids).unique(ids)
        if len(unique) < ids.size and math.prod(own) != 1:
            _refuse_repeats(op, ids, shape[:lead])
        if math.prod(own) == 1:
            ids, values = unique, reshape(values, tuple(values.shape)[len(own) :])
    values = reshape(broadcast_to(values, (*ids.shape, *rest)), (ids.size, *row))
    ids = adapter_of(x).beside(x, ids.reshape(-1))
    return reshape(f(x, values, ids, lead=lead), before)


def _check_values(op: str, values: Shape, places: Shape) -> None:
    if not broadcasts(values, places):
        raise ShapeError(explain(op, f"values that broadcast to {places}", f"{values}"))


def _refuse_repeats(op: str, ids: Array, shape: Shape) -> None:
    unique, times = xp_of(ids).unique(ids, return_counts=True)
    place = tuple(map(int, np.unravel_index(int(unique[times > 1][0]), shape)))
    raise RowIndexError(
        explain(
            op,
            "each place once, or one value for all",
            f"different values for place {place if len(place) > 1 else place[0]}",
            "ops.index_add sums them",
        )
    )


def index_add(x: Any, index: Any, values: Any) -> Any:
    """x with `values` added at ``x[index]``: what ``x[index] += values`` is for, as a new array.

    `index` is any that `getitem` takes, `values` broadcast to ``x[index]``, and places that occur
    more than once get the sum. x keeps its gradient, and that of `values` is its gradient there.

    >>> index_add(np.zeros(3), [0, 2, 2], [1.0, 2.0, 3.0])
    array([1., 0., 5.])
    """
    return _placed("index_add", _index_add, x, index, values, once=False)


def index_set(x: Any, index: Any, values: Any) -> Any:
    """x with `values` at ``x[index]``: what ``x[index] = values`` is for, as a new array.

    `index` is any that `getitem` takes, `values` broadcast to ``x[index]``. Elements that are
    overwritten lose their gradient, the others keep it. Raises RowIndexError for a place that
    occurs more than once, because then the last value would win by chance; one value for all such
    places, a number or a row, is no contradiction and may repeat.

    >>> index_set(np.arange(4.0), slice(1, 3), -1.0)
    array([ 0., -1., -1.,  3.])
    """
    return _placed("index_set", _index_set, x, index, values, once=True)
