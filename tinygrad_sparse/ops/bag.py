"""Lookups that are summed, averaged or maximised a bag at a time. Floor 4: declarations only."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_sparse.backend import (
    Array,
    adapter_of,
    as_array,
    as_array_beside,
    as_host_array,
    as_ours,
    describe,
    refuse_ids_elsewhere,
    refuse_mixed,
    row_ids,
    xp_of,
)
from tinygrad_sparse.errors import ArgumentError, DtypeError, RowIndexError, ShapeError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import members, reindexed
from tinygrad_sparse.slices import IndexedSlices, rows_of
from tinygrad_sparse.tensor import ready, unwrap

from .elementwise import where
from .reduce import sum as sum_
from .rows import _take, scatter_rows, take
from .segment import _per_row, segment_max
from .shape import reshape

MODES = ("sum", "mean", "max")


def embedding(table: Any, ids: Any, padding_idx: int | None = None) -> Any:
    """Rows of the table at `ids`, and zeros at `padding_idx`, which gets no gradient.

    Shapes: table (V, \\*row), ids of any rank -> (\\*ids, \\*row). The padding id is in no
    gradient's ids, so an optimizer never visits its row. Raises RowIndexError as `take` does.

    >>> embedding(np.array([[1.0], [2.0], [3.0]]), [2, 0], padding_idx=0).ravel()
    array([3., 0.])
    """
    if padding_idx is None:
        return take(table, ids)
    table = _table("embedding", table)
    V = table.shape[0]
    ids = unwrap(ids)
    refuse_ids_elsewhere("embedding", ids, table)  # before they are looked at
    ids = row_ids("embedding", ids, V, f", table {tuple(table.shape)}")
    kept = ids != int(row_ids("padding_idx", padding_idx, V))
    if kept.all():
        return take(table, ids)
    flat = ids.reshape(-1)
    here = xp_of(ids).flatnonzero(kept)
    rows = scatter_rows(take(table, flat[here]), here, flat.size)
    return reshape(rows, (*ids.shape, *table.shape[1:]))


def _bag_of(starts: Array, n: int) -> Array:
    """The bag that each of n ids is in."""
    return adapter_of(starts).bag_of(starts, n)


def _shared(g: Any, starts: Array, bags: Any = slice(None)) -> Any:
    """The cotangent of each id in a bag, from that of the bag's mean."""
    xp = xp_of(starts)
    counts = xp.maximum(starts[1:] - starts[:-1], 1)[bags]
    return g * _per_row((1.0 / counts).astype(g.dtype), g)


def _bag_vjp(g: Any, out: Any, table: Any, ids: Array, starts: Array, *, mean: bool) -> Any:
    g = _shared(g, starts) if mean else g
    return rows_of(ids, _take(g, _bag_of(starts, len(ids))), tuple(table.shape))


def _bag_rows(
    g: IndexedSlices, out: Any, table: Any, ids: Array, starts: Array, *, mean: bool
) -> IndexedSlices | None:
    """Only the ids in touched bags."""
    if g.lead != 1:
        return None
    g, here, at = members(g, _bag_of(starts, len(ids)))
    values = _shared(g.values, starts, g.indices) if mean else g.values
    return rows_of(ids[here], _take(values, at), tuple(table.shape))


@primitive(rows=reindexed(_bag_rows, None, None), vjp=(_bag_vjp, None, None))
def _embedding_bag(xp: Any, table: Array, ids: Array, starts: Array, *, mean: bool) -> Array:
    """The sum or mean of the rows in each bag, which is never an array of rows."""
    return adapter_of(table).embedding_bag(table, ids, starts, mean=mean)


def _weighted_vjp(g: Any, out: Any, table: Any, weights: Any, ids: Array, starts: Array) -> Any:
    each = _take(g, _bag_of(starts, len(ids)))
    return rows_of(ids, each * _per_row(weights, each), tuple(table.shape))


def _weights_vjp(g: Any, out: Any, table: Any, weights: Any, ids: Array, starts: Array) -> Any:
    each = _take(g, _bag_of(starts, len(ids))) * _take(ready(table, ids), ids)
    return sum_(reshape(each, (len(ids), -1)), axis=1) if len(ids) else weights * 0.0


def _weighted_rows(
    g: IndexedSlices, out: Any, table: Any, weights: Any, ids: Array, starts: Array
) -> IndexedSlices | None:
    """Only the ids in touched bags."""
    if g.lead != 1:
        return None
    g, here, at = members(g, _bag_of(starts, len(ids)))
    each = _take(g.values, at)
    values = each * _per_row(_take(weights, here), each)
    return rows_of(ids[here], values, tuple(table.shape))


def _weights_rows(
    g: IndexedSlices, out: Any, table: Any, weights: Any, ids: Array, starts: Array
) -> IndexedSlices | None:
    """Only the weights in touched bags."""
    if g.lead != 1:
        return None
    g, here, at = members(g, _bag_of(starts, len(ids)))
    each = _take(g.values, at) * _take(ready(table, ids[here]), ids[here])
    values = sum_(reshape(each, (len(here), -1)), axis=1) if len(here) else _take(weights, here)
    return rows_of(here, values, tuple(weights.shape))


@primitive(
    rows=reindexed(_weighted_rows, _weights_rows, None, None),
    vjp=(_weighted_vjp, _weights_vjp, None, None),
)
def _weighted_embedding_bag(
    xp: Any, table: Array, weights: Array, ids: Array, starts: Array
) -> Array:
    return adapter_of(table).embedding_bag(table, ids, starts, weights)


def embedding_bag(
    table: Any,
    ids: Any,
    offsets: Any = None,
    *,
    mode: str = "sum",
    weights: Any = None,
    padding_idx: int | None = None,
) -> Any:
    """For each bag of ids the sum, mean or maximum of their rows: table (V, d) -> (b, d).

    `ids` is (b, m), m to a bag; or a list of b lists of any lengths; or (n,) with `offsets` (b,),
    where each bag begins, ascending from 0. `weights`, one number an id in the shape of `ids`,
    multiply the rows of a sum and get a gradient. Ids equal to `padding_idx` are not there: they
    count in no mean, and their row gets no gradient. An empty bag is 0. Raises RowIndexError,
    ShapeError.

    >>> table = np.array([[1.0], [2.0], [4.0]])
    >>> embedding_bag(table, [[0, 2], [1], []], mode="mean").ravel()
    array([2.5, 2. , 0. ])
    >>> embedding_bag(table, [0, 2, 1], offsets=[0, 2]).ravel()
    array([5., 2.])
    """
    op = "embedding_bag"
    if mode not in MODES:
        raise ArgumentError(explain(op, f"a mode of {MODES}", repr(mode)))
    if weights is not None and mode != "sum":
        raise ArgumentError(explain(op, "weights with mode='sum' only", repr(mode)))
    table = _table(op, table)
    given, starts = _bags(op, ids, offsets, table)
    flat = row_ids(op, given, table.shape[0], f", table {tuple(table.shape)}").reshape(-1)
    if weights is not None:
        weights = _weights(op, weights, ids, flat.size, table)
    if padding_idx is not None:
        kept = flat != int(row_ids("padding_idx", padding_idx, table.shape[0]))
        if not kept.all():
            xp = xp_of(flat)
            starts = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(kept)])[starts]
            here = xp.flatnonzero(kept)
            flat, weights = flat[here], None if weights is None else take(weights, here)
    beside = adapter_of(table).beside
    flat, starts = beside(table, flat), beside(table, starts)
    if weights is not None:
        return _weighted_embedding_bag(ready(table, flat), weights, flat, starts)
    if mode != "max":
        return _embedding_bag(ready(table, flat), flat, starts, mean=mode == "mean")
    # What a maximum of nothing is has no gradient and no use as an input: 0, as in a sum.
    filled = _per_row(starts[1:] > starts[:-1], table)
    bags = _bag_of(starts, len(flat))
    return where(filled, segment_max(take(table, flat), bags, len(starts) - 1), 0.0)


def _table(op: str, table: Any) -> Any:
    table = as_array(op, table)
    if not table.shape:
        raise ShapeError(explain(op, "a table (V, d)", describe(table)))
    return table


def _bags(op: str, ids: Any, offsets: Any, table: Any) -> tuple[Any, Array]:
    """All ids, bag by bag, and where each bag begins among them and, last, the last one ends."""
    for x in (unwrap(ids), unwrap(offsets)):
        refuse_ids_elsewhere(op, x, table)  # before they are looked at
    if offsets is None and isinstance(ids, (list, tuple)) and not _is_flat(ids):
        parts = [as_host_array(op, bag) for bag in ids]
        odd = [p for p in parts if not _are_ids(p)]
        if odd:
            got = f"a bag that is {describe(odd[0])}"
            raise RowIndexError(explain(op, "bags of integer ids", got))
        starts = np.cumsum([0, *map(len, parts)])
        full = [p.astype(np.int64) for p in parts if p.size]  # uint64 beside int64 makes floats
        joined = np.concatenate(full) if full else np.zeros(0, np.int64)
        even = len({*map(len, parts)}) == 1  # as an array (b, m): errors name the place in it
        return joined.reshape(len(parts), -1) if even else joined, starts
    flat: Any = as_ours(op, unwrap(ids))
    xp = xp_of(flat)
    if offsets is None:
        if flat.ndim != 2:
            hint = "with ids (n,), say where each bag begins: offsets=[0, ...]"
            raise ShapeError(explain(op, "ids (b, m), or a list of lists", describe(flat), hint))
        count, each = flat.shape
        return flat, xp.arange(count + 1) * each
    given: Any = as_ours(op, unwrap(offsets))
    starts = row_ids(op, given, flat.size + 1)
    ascending = starts.ndim == 1 and (not starts.size or (starts[0] == 0 and given.min() >= 0))
    if flat.ndim != 1 or not ascending or (starts[1:] < starts[:-1]).any():
        wanted = "ids (n,) and ascending offsets (b,) that begin with 0"
        raise ShapeError(explain(op, wanted, f"ids {flat.shape} and offsets {starts}"))
    if flat.size and not starts.size:
        raise ShapeError(explain(op, "a bag for each id", f"{flat.size} ids and no offsets"))
    refuse_mixed(op, (flat, starts))
    return flat, xp.concatenate([starts, xp.full(1, flat.size)])


def _are_ids(bag: Array) -> bool:
    if not bag.size:
        return bag.ndim == 1
    return bag.ndim == 1 and bag.dtype.kind in "iu" and int(bag.max()) < 2**63


def _is_flat(ids: Sequence[Any]) -> bool:
    return bool(ids) and not hasattr(ids[0], "__len__")


def _weights(op: str, weights: Any, ids: Any, n: int, table: Any) -> Any:
    """One weight an id, in one row, where the table is."""
    if isinstance(weights, (list, tuple)) and not _is_flat(weights):
        parts = [as_host_array(op, bag) for bag in weights]
        for part in parts:
            if part.ndim != 1 or (part.size and part.dtype.kind not in "fiub"):
                got = f"a bag of them that is {describe(part)}"
                raise DtypeError(explain(op, "a real weight for each id", got))
        if isinstance(ids, (list, tuple)) and [*map(len, parts)] != [len(bag) for bag in ids]:
            raise ShapeError(explain(op, "a weight for each id", "bags of other lengths"))
        weights = xp_of(table).asarray(np.concatenate([np.zeros(0), *parts]))
    weights = as_array_beside(op, weights, table)
    if weights.size != n:
        raise ShapeError(explain(op, f"a weight for each of {n} ids", describe(weights)))
    return weights if len(weights.shape) == 1 else reshape(weights, (n,))
