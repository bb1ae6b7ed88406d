"""The NumPy adapter: the readable reference that every other adapter must agree with.

Floor 1. Rows are addressed by int64 arrays that were checked at the lookup; nothing here checks
them again.
"""

from __future__ import annotations

import math
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


def to_host(x: np.ndarray) -> np.ndarray:
    """`x` where NumPy can read it."""
    return x


def rng(seed: int) -> np.random.Generator:
    """A random generator on this device."""
    return np.random.default_rng(seed)


def take_rows(table: np.ndarray, rows: np.ndarray, lead: int = 1) -> np.ndarray:
    """``table[rows]``; `rows` of any rank, ids into the first `lead` axes flattened."""
    if not table.flags.c_contiguous:  # `take` and `reshape` would copy all of it
        return table[np.unravel_index(rows, table.shape[:lead])]
    if lead > 1:
        table = table.reshape((math.prod(table.shape[:lead]), *table.shape[lead:]))
    return table.take(rows, axis=0)


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
    rows, values = _each_once(rows, values)
    table[rows] += values
    return table


def scatter_rows(rows: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """A new array of `size` rows, zero but for the sum of `values` at `rows`."""
    table = np.zeros((size, *values.shape[1:]), values.dtype)
    rows, values = _each_once(rows, values)
    table[rows] = values
    return table


def _each_once(rows: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`sum_duplicates`, without the sort where rows ascend: slices and masks give such."""
    if (rows[1:] > rows[:-1]).all():
        return rows, values
    return sum_duplicates(rows, values)


def max_rows(rows: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """A new array of `size` rows: the largest of the values at each, -inf (or the like) if none."""
    lowest = -np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).min
    table = np.full((size, *values.shape[1:]), lowest, values.dtype)
    if len(rows):
        order = np.argsort(rows, kind="stable")
        unique, starts = np.unique(rows[order], return_index=True)
        table[unique] = np.maximum.reduceat(values[order], starts, axis=0)
    return table


def update_rows(
    formula: Callable[..., tuple[np.ndarray, ...]],
    rows: Any,
    g: np.ndarray,
    table: np.ndarray,
    slots: list[np.ndarray],
    hyper: dict[str, Any],
) -> list[np.ndarray]:
    """The new rows of `table` and of its `slots` under an optimizer's formula; writes nothing."""
    return list(formula(table[rows], g, *(slot[rows] for slot in slots), **hyper))
