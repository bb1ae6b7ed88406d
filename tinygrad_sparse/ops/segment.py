"""Reductions of rows that share an id: the transposes of lookups. Floor 4: declarations only.

Ids come in any order. Both ways rows stay rows: a cotangent of some segments reaches only the rows
in them, and a lookup of the result is rows of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, as_array, row_ids
from tinygrad_sparse.backend.precision import widened
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import Kink, RowRule, members, reindexed
from tinygrad_sparse.shapes import whole_number
from tinygrad_sparse.slices import IndexedSlices, rows_of
from tinygrad_sparse.tensor import unwrap

from .axes import narrow
from .elementwise import where
from .rows import _scatter_rows, _take
from .shape import reshape


def _by_segment(vjp: Callable[..., Any]) -> RowRule:
    """The rule of a reduction by id: its VJP, on the touched segments and the rows in them."""

    def rows(g: IndexedSlices, out: Any, x: Any, ids: Array, *, size: int) -> IndexedSlices | None:
        if g.lead != 1:
            return None
        g, here, at = members(g, ids)
        some = _take(out, g.indices), _take(x, here)
        return rows_of(here, vjp(g.values, *some, at, size=len(g.indices)), tuple(x.shape))

    return reindexed(rows, None)


def _per_row(numbers: Array, like: Any) -> Array:
    """A number for each row of `like`, shaped to broadcast along it."""
    return numbers.reshape(len(numbers), *(1,) * (len(like.shape) - 1))


def _counts(ids: Array, size: int) -> Array:
    return np.maximum(adapter_of(ids).count_rows(ids, size), 1)


def _segments(op: str, x: Any, ids: Any, num_segments: Any) -> tuple[Any, Array, int]:
    """x with a row for each id, the ids in one row, and the number of segments, checked."""
    x = as_array(op, x)
    num_segments = whole_number(op, "a whole number of segments, 0 or more", num_segments, least=0)
    rows = row_ids(op, unwrap(ids), num_segments, f", {num_segments} segments", x)
    if rows.ndim == 0 or tuple(x.shape[: rows.ndim]) != rows.shape:
        got = f"x {tuple(x.shape)} and ids {rows.shape}"
        raise ShapeError(explain(op, "x (*n, *row) and ids (*n)", got))
    x = x if rows.ndim == 1 else reshape(x, (rows.size, *x.shape[rows.ndim :]))
    return x, rows.reshape(-1), num_segments


def segment_sum(x: Any, ids: Any, num_segments: int) -> Any:
    """For each id the sum of its rows: x (\\*n, \\*row), ids (\\*n) -> (num_segments, \\*row).

    A segment without rows is 0. `scatter_rows` by the name that reductions have elsewhere. Raises
    RowIndexError for ids outside [-num_segments, num_segments).

    >>> segment_sum(np.array([1.0, 2.0, 4.0]), [2, 0, 2], 3)
    array([2., 0., 5.])
    """
    x, rows, size = _segments("segment_sum", x, ids, num_segments)
    return _scatter_rows(x, rows, size=size)


def _mean_vjp(g: Any, out: Any, x: Any, ids: Array, *, size: int) -> Any:
    share = (1.0 / _counts(ids, size)).astype(x.dtype)
    return _take(g * _per_row(share, g), ids)


@primitive(rows=_by_segment(_mean_vjp), vjp=(_mean_vjp, None))
def _segment_mean(xp: Any, x: Array, ids: Array, *, size: int) -> Array:
    wide = widened(x) if x.dtype.kind == "f" else x.astype(np.float64)
    total = adapter_of(x).scatter_rows(ids, wide, size)
    return narrow(total / _per_row(_counts(ids, size), total).astype(wide.dtype), x)


def segment_mean(x: Any, ids: Any, num_segments: int) -> Any:
    """For each id the mean of its rows, as `segment_sum`. A segment without rows is 0.

    >>> segment_mean(np.array([1.0, 2.0, 4.0]), [2, 0, 2], 3)
    array([2. , 0. , 2.5])
    """
    x, rows, size = _segments("segment_mean", x, ids, num_segments)
    return _segment_mean(x, rows, size=size)


def _max_vjp(g: Any, out: Any, x: Any, ids: Array, *, size: int) -> Any:
    here = x == _take(out, ids)
    # counted in float64: a float16 count overflows at 65,504 ties, and then nothing would arrive
    ties = adapter_of(here).scatter_rows(ids, here.astype(np.float64), size)
    share = (1.0 / np.maximum(ties, 1)).astype(x.dtype)
    return where(here, _take(g * share, ids), 0.0)


@primitive(rows=_by_segment(_max_vjp), vjp=(_max_vjp, None))
def _segment_max(xp: Any, x: Array, ids: Array, *, size: int) -> Array:
    return adapter_of(x).max_rows(ids, x, size)


@composite(
    kinks=(
        Kink(
            ((2.0, 1.0, 2.0, 5.0),),
            ((0.5, 0.0, 0.5, 1.0),),
            {"ids": (0, 0, 0, 1), "num_segments": 2},
        ),
    )
)
def segment_max(x: Any, ids: Any, num_segments: int) -> Any:
    """For each id the largest of its rows, element by element, as `segment_sum`.

    Ties share the cotangent evenly. A segment without rows is -inf, the maximum of nothing (for
    integers, their lowest number), and sends no gradient.

    >>> segment_max(np.array([1.0, 2.0, 4.0]), [2, 0, 2], 3)
    array([  2., -inf,   4.])
    """
    x, rows, size = _segments("segment_max", x, ids, num_segments)
    return _segment_max(x, rows, size=size)
