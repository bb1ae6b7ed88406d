"""Lookups that are summed, averaged or maximised a bag at a time. Floor 4: made of other ops."""

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
    refuse_mixed,
    row_ids,
    xp_of,
)
from tinygrad_sparse.errors import ArgumentError, RowIndexError, ShapeError, explain
from tinygrad_sparse.tensor import unwrap

from .elementwise import where
from .rows import scatter_rows, take
from .segment import _per_row, segment_max, segment_mean, segment_sum
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
    table = as_array("embedding", table)
    V = table.shape[0]
    ids = row_ids("embedding", unwrap(ids), V, f", table {tuple(table.shape)}")
    kept = ids != int(row_ids("padding_idx", padding_idx, V))
    if kept.all():
        return take(table, ids)
    flat = ids.reshape(-1)
    here = xp_of(ids).flatnonzero(kept)
    rows = scatter_rows(take(table, flat[here]), here, flat.size)
    return reshape(rows, (*ids.shape, *table.shape[1:]))


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
    table = as_array(op, table)
    flat, bags, count = _bags(op, ids, offsets)
    flat = row_ids(op, flat, table.shape[0], f", table {tuple(table.shape)}")
    if weights is not None:
        weights = as_array_beside(op, _weights(op, weights, ids, flat.size), table)
    if padding_idx is not None:
        padding = int(row_ids("padding_idx", padding_idx, table.shape[0]))
        kept = xp_of(flat).flatnonzero(flat != padding)
        if len(kept) < len(flat):
            flat, bags = flat[kept], bags[kept]
            weights = None if weights is None else take(weights, kept)
    rows = take(table, flat)
    if weights is not None:
        rows = rows * reshape(weights, (flat.size,) + (1,) * (len(table.shape) - 1))
    if mode == "sum":
        return segment_sum(rows, bags, count)
    if mode == "mean":
        return segment_mean(rows, bags, count)
    # What a maximum of nothing is has no gradient and no use as an input: 0, as in a sum.
    bags = adapter_of(table).beside(table, bags)
    filled = _per_row(adapter_of(bags).count_rows(bags, count) > 0, table)
    return where(filled, segment_max(rows, bags, count), 0.0)


def _bags(op: str, ids: Any, offsets: Any) -> tuple[Any, Array, int]:
    """All ids in one row, the bag that each is in, and the number of bags."""
    if offsets is None and isinstance(ids, (list, tuple)) and not _is_flat(ids):
        parts = [as_host_array(op, bag) for bag in ids]
        odd = [p for p in parts if not _are_ids(p)]
        if odd:
            got = f"a bag that is {describe(odd[0])}"
            raise RowIndexError(explain(op, "bags of integer ids", got))
        lengths = np.array([len(p) for p in parts], dtype=np.int64)
        full = [p.astype(np.int64) for p in parts if p.size]  # uint64 beside int64 makes floats
        joined = np.concatenate(full) if full else np.zeros(0, np.int64)
        return joined, np.repeat(np.arange(len(ids)), lengths), len(ids)
    flat: Any = as_ours(op, unwrap(ids))
    xp = xp_of(flat)
    if offsets is None:
        if flat.ndim != 2:
            hint = "with ids (n,), say where each bag begins: offsets=[0, ...]"
            raise ShapeError(explain(op, "ids (b, m), or a list of lists", describe(flat), hint))
        count, each = flat.shape
        return flat.reshape(-1), xp.repeat(xp.arange(count), each), count
    given: Any = as_ours(op, unwrap(offsets))
    starts = row_ids(op, given, flat.size + 1)
    ascending = starts.ndim == 1 and (not starts.size or (starts[0] == 0 and given.min() >= 0))
    if flat.ndim != 1 or not ascending or (starts[1:] < starts[:-1]).any():
        wanted = "ids (n,) and ascending offsets (b,) that begin with 0"
        raise ShapeError(explain(op, wanted, f"ids {flat.shape} and offsets {starts}"))
    if flat.size and not starts.size:
        raise ShapeError(explain(op, "a bag for each id", f"{flat.size} ids and no offsets"))
    refuse_mixed(op, (flat, starts))
    begun = xp.cumsum(adapter_of(starts).count_rows(starts, flat.size + 1))  # bags, up to each id
    return flat, begun[:-1] - 1, len(starts)


def _are_ids(bag: Array) -> bool:
    if not bag.size:
        return bag.ndim == 1
    return bag.ndim == 1 and bag.dtype.kind in "iu" and int(bag.max()) < 2**63


def _is_flat(ids: Sequence[Any]) -> bool:
    return bool(ids) and not hasattr(ids[0], "__len__")


def _weights(op: str, weights: Any, ids: Any, n: int) -> Any:
    """One weight an id, in one row."""
    if isinstance(weights, (list, tuple)) and not _is_flat(weights):
        lengths = [len(bag) for bag in ids] if isinstance(ids, (list, tuple)) else None
        if lengths is not None and [len(bag) for bag in weights] != lengths:
            raise ShapeError(explain(op, "a weight for each id", "bags of other lengths"))
        parts = [np.asarray(bag, dtype=float) for bag in weights]
        weights = np.concatenate(parts) if parts else np.zeros(0)
    weights = as_array(op, weights)
    if weights.size != n:
        raise ShapeError(explain(op, f"a weight for each of {n} ids", describe(weights)))
    return weights if len(weights.shape) == 1 else reshape(weights, (n,))
