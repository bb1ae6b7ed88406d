"""Loops over rows, compiled by numba at their first use and kept on disk. Floor 1.

Only `backend.numba` imports this module, when it meets the first array that is large enough to be
worth it. A kernel is compiled for C-contiguous arrays of given types, by `kernel`, and is handed
a range of rows, so that `threads.split` can share the work out. Numbers are added in one fixed
order; nothing here lets a compiler reorder floating-point sums.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from .elements import prefetch

AHEAD = 8  # rows: how far ahead memory is asked for
CHUNK = 64  # members of a long run that are added up before they join the total

ids = types.Array(types.int64, 1, "C")
places = types.Array(types.int32, 1, "C")
part = (types.int64, types.int64)  # start and stop


def jit(f: Callable[..., Any]) -> Any:
    """`f` to be compiled: callable without the interpreter lock, NumPy's division, kept on disk.

    Where no folder can be written to, it is compiled anew in each process.
    """
    try:
        return numba.njit(f, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:  # numba found no place for its cache
        return numba.njit(f, nogil=True, error_model="numpy")


def rows_of(dtype: Any) -> types.Array:
    """The type of a table: a 2-d C-contiguous array."""
    return types.Array(numba.from_dtype(np.dtype(dtype)), 2, "C")


@cache
def kernel(name: str, dtype: np.dtype) -> Callable[..., Any]:
    """The kernel of this module for tables of a dtype. Called directly: it checks no argument."""
    table = rows_of(dtype)
    signatures = {
        "take": (table, ids, table, *part),
        "bag": (table, ids, ids, types.Array(table.dtype, 1, "C"), table, *part),
        "group": (ids, places, ids, places),
        "sum_runs": (table, places, places, table, *part),
    }
    return globals()[name].compile(signatures[name])


@jit
def take(table: Any, rows: Any, out: Any, start: int, stop: int) -> None:
    """out[i] = table[rows[i]]."""
    for i in range(start, stop):
        if i + AHEAD < stop:
            prefetch(table, rows[i + AHEAD])
        row = rows[i]
        for c in range(table.shape[1]):
            out[i, c] = table[row, c]


@jit
def bag(table: Any, rows: Any, starts: Any, weights: Any, out: Any, start: int, stop: int) -> None:
    """out[b] = the sum over i in bag b of weights[i] · table[rows[i]]; no weights: all 1."""
    for b in range(start, stop):
        for c in range(table.shape[1]):
            out[b, c] = 0
        for i in range(starts[b], starts[b + 1]):
            if i + AHEAD < len(rows):
                prefetch(table, rows[i + AHEAD])
            row = rows[i]
            if len(weights):
                w = weights[i]
                for c in range(table.shape[1]):
                    out[b, c] += w * table[row, c]
            else:
                for c in range(table.shape[1]):
                    out[b, c] += table[row, c]


# -- repeated ids --------------------------------------------------------------------------------


@jit
def group(rows: Any, order: Any, unique: Any, starts: Any) -> int:
    """Sort ids by radix, equal ones in the order of appearance; returns how many are different.

    `order` gets the places sorted by id, `unique` the ids ascending, `starts` where in `order` the
    run of each begins and, last, where the last one ends. -1: the ids are too large for this.
    """
    n = len(rows)
    seen, ascending = np.int64(0), True
    for i in range(n):
        seen |= rows[i]
        ascending &= i == 0 or rows[i - 1] <= rows[i]
    bits, place_bits = 0, 1
    while seen >> bits:
        bits += 1
    while n >> place_bits:
        place_bits += 1
    if bits + place_bits > 64:
        return -1
    by_place = np.uint64(place_bits)
    packed, other = np.empty(n, np.uint64), np.empty(n, np.uint64)  # an id and its place in one
    for i in range(n):
        packed[i] = (np.uint64(rows[i]) << by_place) | np.uint64(i)
    if not ascending:
        passes = -(-bits // (8 if n < 4096 else 11))
        width = -(-bits // passes)
        counts = np.empty(1 << width, np.int64)
        low = np.uint64(len(counts) - 1)
        for k in range(passes):
            shift = np.uint64(place_bits + k * width)
            counts[:] = 0
            for i in range(n):
                counts[(packed[i] >> shift) & low] += 1
            before = 0
            for digit in range(len(counts)):
                counts[digit], before = before, before + counts[digit]
            for i in range(n):
                at = (packed[i] >> shift) & low
                other[counts[at]] = packed[i]
                counts[at] += 1
            packed, other = other, packed
    m, last = 0, np.int64(-1)
    for i in range(n):
        row = np.int64(packed[i] >> by_place)
        order[i] = packed[i] & np.uint64((1 << place_bits) - 1)
        if row != last:
            unique[m], starts[m], last = row, i, row
            m += 1
    starts[m] = n
    return m


@numba.njit(error_model="numpy")
def add_run(values: Any, order: Any, first: int, stop: int, out: Any, j: int, part: Any) -> None:
    """out[j] = the sum of values[order[first:stop]], in this order.

    A long run is added up in chunks, so the error grows with the size of a chunk and the number
    of chunks, not with their product. `part` has room for one chunk's sum.
    """
    for begin in range(first, stop, CHUNK):
        total, t = (out, j) if begin == first else (part, 0)
        row = order[begin]
        for c in range(values.shape[1]):
            total[t, c] = values[row, c]
        for i in range(begin + 1, min(stop, begin + CHUNK)):
            if i + AHEAD < stop:
                prefetch(values, order[i + AHEAD])
            row = order[i]
            for c in range(values.shape[1]):
                total[t, c] += values[row, c]
        if begin > first:
            for c in range(values.shape[1]):
                out[j, c] += part[0, c]


@jit
def sum_runs(values: Any, order: Any, starts: Any, out: Any, start: int, stop: int) -> None:
    """out[j] = the sum of run j, for the runs that `group` found."""
    part = np.empty((1, values.shape[1]), values.dtype)
    for j in range(start, stop):
        if j + AHEAD < stop:
            prefetch(values, order[starts[j + AHEAD]])
        add_run(values, order, starts[j], starts[j + 1], out, j, part)
