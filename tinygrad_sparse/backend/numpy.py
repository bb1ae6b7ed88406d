"""The NumPy adapter: the readable reference that every other adapter must agree with.

Floor 1. Rows are addressed by int64 arrays that were checked at the lookup; nothing here checks
them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

BLOCK = 2**18  # bytes of gradient that an optimizer's formula is run on at a time
FEW, ROUNDS = 256, 4  # see `sum_duplicates`
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


def take_rows(table: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``table[rows]``; `rows` of any rank."""
    return np.take(table, rows, axis=0)


def put_rows(table: np.ndarray, rows: Any, values: np.ndarray) -> None:
    """``table[rows] = values`` for rows that are each there once, or ``...`` for all of them.

    A row is copied as one item, which is far cheaper than as many numbers.
    """
    nbytes = table[:1].nbytes
    if rows is ... or not nbytes or not len(rows) or not table.flags.c_contiguous:
        table[rows] = values
        return
    row = np.dtype((np.void, nbytes))
    values = np.ascontiguousarray(values, table.dtype)
    table.view(np.uint8).reshape(-1).view(row).put(
        rows, values.view(np.uint8).reshape(-1).view(row)
    )


def sum_duplicates(rows: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted unique rows and, for each, the sum of its values: the only place that sums repeats.

    A stable sort, then sums in the order of appearance, so the same input gives the same bits every
    time. float16 is summed in float32: finite parts may not overflow on the way.
    """
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    first = np.empty(len(rows), dtype=bool)
    first[:1] = True
    np.not_equal(rows[1:], rows[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    if len(starts) == len(rows):
        return rows, np.take(values, order, axis=0)
    wide = np.float32 if values.dtype == np.float16 else values.dtype
    if len(starts) <= FEW:
        sums = np.add.reduceat(np.take(values, order, axis=0), starts, axis=0, dtype=wide)
    else:
        sums = _sum_runs(values, order, starts, wide)
    return rows[starts], sums.astype(values.dtype, copy=False)


def _sum_runs(values: np.ndarray, order: np.ndarray, starts: np.ndarray, wide: Any) -> np.ndarray:
    """Sums of the runs of ``values[order]`` that begin at `starts`.

    `reduceat` pays for each run; most runs are short. So the first few members of all runs are
    added one member at a time, and `reduceat` gets what is left of the long ones.
    """
    counts = np.diff(starts, append=len(order))
    sums = np.take(values, order[starts], axis=0).astype(wide, copy=False)
    runs = np.flatnonzero(counts > 1)
    for done in range(1, ROUNDS):
        sums[runs] += np.take(values, order[starts[runs] + done], axis=0)
        runs = runs[counts[runs] > done + 1]
    if len(runs):
        left = counts[runs] - ROUNDS
        ends = np.cumsum(left)
        members = np.arange(ends[-1]) + np.repeat(starts[runs] + ROUNDS - (ends - left), left)
        tails = np.take(values, order[members], axis=0)
        sums[runs] += np.add.reduceat(tails, ends - left, axis=0, dtype=wide)
    return sums


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

    `rows` is an index of the first axis, or of several, or ``...`` for every row.
    """
    if isinstance(rows, np.ndarray):
        table, slots = take_rows(table, rows), [take_rows(slot, rows) for slot in slots]
        rows = ...
    n = len(g) if g.ndim else 1
    size = max(1, BLOCK // max(1, g.nbytes // max(1, n)))
    if n <= size:
        return list(formula(table[rows], g, *(slot[rows] for slot in slots), **hyper))
    # Block by block the formula's temporaries stay in the cache, and are few.
    arrays = [table, *slots]
    lead = table.ndim - g.ndim + 1  # axes that address a row
    new = [np.empty((n, *a.shape[lead:]), a.dtype) for a in arrays]
    for start in range(0, n, size):
        part = slice(start, start + size)
        mine = part if rows is ... else _part(rows, part)
        p, *state = (a[mine] for a in arrays)
        for whole, block in zip(new, formula(p, g[part], *state, **hyper), strict=True):
            whole[part] = block
    return new


def _part(rows: Any, part: slice) -> Any:
    return tuple(r[part] for r in rows) if isinstance(rows, tuple) else rows[part]
