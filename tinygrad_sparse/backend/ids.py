"""What makes an array one of row ids, and how it is said that one is none. Floor 1.

Ids never pass through a float: float32 cannot tell row 16,777,216 from 16,777,217.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.errors import RowIndexError, explain

_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


def are_row_ids(ids: Any, size: int) -> bool:
    """True if `ids` is an int64 NumPy array in [0, size) already; False means: ask `row_ids`.

    One comparison, of unsigned numbers, sees ids that are too large and negative ones.
    """
    if type(ids) is not np.ndarray or ids.dtype is not _INT64 or not ids.size:
        return False
    unsigned = ids.view(_UINT64)
    return unsigned.item(unsigned.argmax()) < size


_HINTS = {
    "f": "ids.astype(int)",
    "b": "np.flatnonzero(mask) gives the rows of a mask",
    **dict.fromkeys("US", "nn.hash_ids(keys, V) makes ids of text"),
}


def refuse_other_dtypes(op: str, ids: Any, context: str) -> None:
    """RowIndexError for what are no integers; NumPy makes [] float64, and no id is lost in it."""
    if ids.dtype.kind in "iu" or not (ids.size or ids.dtype != np.float64):
        return
    kind = ids.dtype.kind
    raise RowIndexError(
        explain(op, "integer ids", f"{ids.dtype} {ids.shape}{context}", _HINTS.get(kind))
    )


def out_of_range(
    op: str,
    dtype: Any,
    shape: tuple[int, ...],
    size: int,
    context: str,
    id: int,
    at: int,
    negative: bool,
) -> RowIndexError:
    """The error for the first of ids outside [-size, size), some being `negative`."""
    wanted = f"ids in [{-size if negative else 0}, {size})"
    return RowIndexError(explain(op, wanted, at_place(id, at, dtype, shape, context)))


def at_place(id: int, at: int, dtype: Any, shape: tuple[int, ...], context: str) -> str:
    """An id and where it stands, `at` when counted in one row, in ids of a dtype and shape.

    >>> at_place(12, 3, np.dtype(np.int64), (2, 2), ", table (10, 8)")
    '12 at position (1, 1) (ids int64 (2, 2), table (10, 8))'
    """
    place = tuple(map(int, np.unravel_index(at, shape))) if len(shape) > 1 else at
    return f"{id} at position {place} (ids {dtype} {shape}{context})"
