"""The NumPy adapter: the readable reference that every other adapter must agree with.

Floor 1. Rows are addressed by int64 arrays that were checked at the lookup; nothing here checks
them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

xp = np
ndarray = np.ndarray
device = "cpu"


def asarray(x: Any) -> np.ndarray:
    """`x` as an ndarray; NumPy's own scalars, which 0-d results come as, become 0-d arrays."""
    return np.asarray(x)


def copy(x: np.ndarray) -> np.ndarray:
    """A contiguous copy that only the caller holds."""
    return np.array(x, order="C")


def read_only(x: Any) -> np.ndarray:
    """A view of `x` that cannot be written to."""
    view = np.asarray(x).view()
    view.flags.writeable = False
    return view


def to_host(x: np.ndarray) -> np.ndarray:
    """`x` where NumPy can read it."""
    return x


def rng(seed: int) -> np.random.Generator:
    """A random generator on this device."""
    return np.random.default_rng(seed)


def take_rows(table: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``table[rows]``; `rows` of any rank."""
    return np.take(table, rows, axis=0)


def sum_duplicates(rows: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted unique rows and, for each, the sum of its values: the only place that sums repeats.

    A stable sort and a segment sum in the order of appearance, so the same input gives the same
    bits every time. float16 is summed in float32: finite parts may not overflow on the way.
    """
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    first = np.empty(len(rows), dtype=bool)
    first[:1] = True
    np.not_equal(rows[1:], rows[:-1], out=first[1:])
    values = np.take(values, order, axis=0)
    if first.all():
        return rows, values
    starts = np.flatnonzero(first)
    wide = np.float32 if values.dtype == np.float16 else values.dtype
    sums = np.add.reduceat(values, starts, axis=0, dtype=wide)
    return rows[starts], sums.astype(values.dtype, copy=False)


def scatter_add_rows(table: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Add `values` to the given rows of `table` in place; repeated rows add up."""
    rows, values = sum_duplicates(rows, values)
    table[rows] += values
    return table


def scatter_rows(rows: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """A new array of `size` rows, zero but for the sum of `values` at `rows`."""
    return scatter_add_rows(np.zeros((size, *values.shape[1:]), values.dtype), rows, values)


def update_rows(
    formula: Callable[..., tuple[np.ndarray, ...]],
    rows: Any,
    g: np.ndarray,
    table: np.ndarray,
    slots: list[np.ndarray],
    hyper: dict[str, Any],
) -> list[np.ndarray]:
    """The new rows of `table` and of its `slots` under an optimizer's formula; writes nothing.

    float16 rows are computed in float32, as their slots are kept: there ε is not 0.
    """
    wide = np.promote_types(table.dtype, np.float32)
    p, g = table[rows].astype(wide, copy=False), g.astype(wide, copy=False)
    return list(formula(p, g, *(slot[rows] for slot in slots), **hyper))
