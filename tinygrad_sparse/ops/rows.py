"""Lookups and their transpose: where row-sparse gradients are born. Floor 4: declarations only."""

from __future__ import annotations

import math
from types import EllipsisType
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, row_ids
from tinygrad_sparse.errors import RowIndexError, ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import reindexed
from tinygrad_sparse.slices import IndexedSlices, rows_of
from tinygrad_sparse.tensor import ready, unwrap

from .shape import reshape


def _take_vjp(g: Any, out: Any, x: Any, ids: Array) -> IndexedSlices:
    row = tuple(x.shape[1:])
    return rows_of(ids.reshape(-1), g.reshape((ids.size, *row)), tuple(x.shape))


def _take_rows(g: IndexedSlices, out: Any, x: Any, ids: Array) -> IndexedSlices:
    """A lookup of a lookup: ids of ids, and never the table between them."""
    if g.lead > ids.ndim:
        # g's rows are parts of rows of x: address x as finely
        inner = math.prod(g.shape[ids.ndim : g.lead])
        mine = ids.reshape(-1)[g.indices // inner] * inner + g.indices % inner
        return rows_of(mine, g.values, tuple(x.shape), 1 + g.lead - ids.ndim)
    each = math.prod(ids.shape[g.lead :])
    mine = ids.reshape((math.prod(g.shape[: g.lead]), each))[g.indices].reshape(-1)
    return rows_of(mine, g.values.reshape((len(mine), *x.shape[1:])), tuple(x.shape))


@primitive(rows=reindexed(_take_rows, None), vjp=(_take_vjp, None))
def _take(xp: Any, x: Array, ids: Array) -> Array:
    return adapter_of(x).take_rows(x, ids)


def take(x: Any, ids: Any) -> Any:
    """Rows of x at `ids`: x (V, \\*row), ids of any rank and integer dtype -> (\\*ids, \\*row).

    The gradient of x is IndexedSlices of exactly the rows looked up. Raises RowIndexError for ids
    outside [-V, V) and for ids that are not integers, before anything is recorded.

    >>> import numpy as np
    >>> take(np.array([[1.0], [2.0], [3.0]]), [2, 0]).ravel()
    array([3., 1.])
    """
    if not hasattr(x, "shape"):
        x = np.asarray(x)
    if len(x.shape) == 0:
        raise ShapeError(explain("take", "a table with rows", "a 0-d array"))
    context = f", table {tuple(x.shape)}"
    ids = row_ids("take", unwrap(ids), x.shape[0], context)
    return _take(ready(x, ids), ids)


def _scatter_rows_rows(
    g: IndexedSlices, out: Any, values: Any, ids: Array, *, size: int
) -> IndexedSlices | None:
    """Only the values placed at touched rows: found by binary search among the touched."""
    if g.lead != 1:
        return None
    g = g.coalesce()
    if not len(g.indices):
        return rows_of(g.indices, g.values, tuple(values.shape))
    at = np.minimum(np.searchsorted(g.indices, ids), len(g.indices) - 1)
    here = np.flatnonzero(g.indices[at] == ids)
    return rows_of(here, adapter_of(g.values).take_rows(g.values, at[here]), tuple(values.shape))


@primitive(
    rows=reindexed(_scatter_rows_rows, None),
    vjp=(lambda g, out, values, ids, *, size: _take(g, ids), None),
)
def _scatter_rows(xp: Any, values: Array, ids: Array, *, size: int) -> Array:
    return adapter_of(values).scatter_rows(ids, values, size)


def scatter_rows(values: Any, ids: Any, size: int) -> Any:
    """A table of `size` rows, zero but for the sum of `values` at `ids`: the transpose of `take`.

    Shapes: values (n, \\*row), ids (n,) -> (size, \\*row). Repeated ids add up.

    >>> import numpy as np
    >>> scatter_rows(np.array([[1.0], [2.0], [4.0]]), [1, 1, 0], 3).ravel()
    array([4., 3., 0.])
    """
    if not hasattr(values, "shape"):
        values = np.asarray(values)
    rows = row_ids("scatter_rows", unwrap(ids), size)
    if rows.ndim != 1 or values.shape[:1] != rows.shape:
        raise ShapeError(
            explain(
                "scatter_rows",
                "values (n, *row) and ids (n,)",
                f"values {tuple(values.shape)} and ids {rows.shape}",
            )
        )
    return _scatter_rows(values, rows, size=size)


def _slice_vjp(g: Any, out: Any, x: Any, *, index: tuple[slice, ...]) -> Any:
    """Rows that were cut out whole stay rows; within a row, the rest is zeros."""
    first, *inner = index
    if any(part != slice(None) for part in inner):
        g = _unslice(g, shape=(g.shape[0], *x.shape[1:]), index=(slice(None), *inner))
    if first == slice(None):
        return g
    return rows_of(np.arange(x.shape[0])[first], g, tuple(x.shape))


def _slice_rows(
    g: IndexedSlices, out: Any, x: Any, *, index: tuple[slice, ...]
) -> IndexedSlices | None:
    lead = g.lead
    places = np.unravel_index(g.indices, g.shape[:lead])
    kept = [np.arange(n)[part] for n, part in zip(x.shape[:lead], index[:lead], strict=True)]
    mine = tuple(k[p] for k, p in zip(kept, places, strict=True))
    ids = np.ravel_multi_index(mine, tuple(x.shape[:lead])) if len(g.indices) else g.indices
    values = g.values
    if any(part != slice(None) for part in index[lead:]):
        full = (len(ids), *x.shape[lead:])
        values = _unslice(values, shape=full, index=(slice(None), *index[lead:]))
    return rows_of(ids, values, tuple(x.shape), lead)


@primitive(rows=reindexed(_slice_rows), vjp=(_slice_vjp,))
def _slice(xp: Any, x: Array, *, index: tuple[slice, ...]) -> Array:
    return x[index]


def _unslice_rows(
    g: IndexedSlices, out: Any, x: Any, *, shape: Any, index: tuple[slice, ...]
) -> IndexedSlices | None:
    if any(part != slice(None) for part in index[: g.lead]):
        return None
    values = _slice(g.values, index=(slice(None), *index[g.lead :]))
    return rows_of(g.indices, values, tuple(x.shape), g.lead)


@primitive(
    rows=reindexed(_unslice_rows),
    vjp=(lambda g, out, x, *, shape, index: _slice(g, index=index),),
)
def _unslice(xp: Any, x: Array, *, shape: Any, index: tuple[slice, ...]) -> Array:
    """Zeros of `shape` with x at `index`: the transpose of a slice."""
    out = xp.zeros(shape, x.dtype)
    out[index] = x
    return out


@composite(methods=("__getitem__",))
def getitem(x: Any, index: Any) -> Any:
    """``x[index]``: integers, slices, None and ... as in NumPy; or integer ids for the first axis.

    Ids work as in `take`, for any rank: ``W[ids]`` has a row-sparse gradient, and so has a slice of
    rows. Raises RowIndexError for boolean and float ids.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    basic = (int, np.integer, slice, EllipsisType, type(None))
    if all(isinstance(p, basic) and not isinstance(p, (bool, np.bool_)) for p in parts):
        return _basic(x, parts)
    first, rest = parts[0], parts[1:]
    if not all(isinstance(p, basic) for p in rest):
        raise RowIndexError(
            explain(
                "getitem",
                "ids for the first axis, integers and slices for the others",
                f"index {index!r}",
                "flatten the leading axes first: x.reshape(-1, d)[i * n + j]",
            )
        )
    taken = take(x, first)
    if not rest:
        return taken
    front = len(taken.shape) - len(x.shape) + 1
    return _basic(taken, [slice(None)] * front + rest)


def _basic(x: Any, parts: list[Any]) -> Any:
    """Slices first, then the axes that integers drop and None adds, by one reshape."""
    shape = tuple(x.shape)
    used = sum(p is not None and p is not ... for p in parts)
    if used > len(shape) or parts.count(...) > 1:
        raise RowIndexError(
            explain("getitem", f"at most {len(shape)} indices", f"{used} for {shape}")
        )
    at = parts.index(...) if ... in parts else len(parts)
    parts = parts[:at] + [slice(None)] * (len(shape) - used) + parts[at + 1 :]
    cut: list[slice] = []
    result: list[int] = []
    for part in parts:
        if part is None:
            result.append(1)
            continue
        n = shape[len(cut)]
        if isinstance(part, slice):
            start, stop, step = part.indices(n)
            count = len(range(start, stop, step))
            whole = count == n and step == 1
            cut.append(slice(None) if whole else part)
            result.append(count)
        else:
            i = int(part)
            if not -n <= i < n:
                raise RowIndexError(
                    explain("getitem", f"an index in [{-n}, {n})", f"{i} for shape {shape}")
                )
            cut.append(slice(i % n, i % n + 1))
    y = _slice(ready(x, cut[0]), index=tuple(cut)) if any(c != slice(None) for c in cut) else x
    return y if tuple(y.shape) == tuple(result) else reshape(y, tuple(result))
