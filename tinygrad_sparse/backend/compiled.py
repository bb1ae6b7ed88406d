"""Loops over rows, compiled by numba at their first use and kept on disk. Floor 1.

Only `backend.numba` imports this module, when it meets the first array that is large enough to be
worth it. A kernel is compiled for C-contiguous arrays of given types, by `kernel`, and is handed
a range of rows, so that `threads.split` can share the work out. Numbers are added in one fixed
order; nothing here lets a compiler reorder floating-point sums.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from inspect import getsource
from typing import Any

import numba
import numpy as np
from numba import types

from . import elements, vectors
from .elements import prefetch

AHEAD = 4096  # bytes: how far ahead rows are asked for
CHUNK = 64  # members of a run that are added one after the other
LEVELS = 32  # chunks are added up by halves: enough for 2**31 of them

ids = types.Array(types.int64, 1, "C")
places = types.Array(types.int32, 1, "C")
part = (types.int64, types.int64)  # start and stop

# A part of each kernel's name on disk: numba looks for changes in a kernel's own file alone.
_used = "".join(map(getsource, (sys.modules[__name__], elements, vectors)))
_version = hashlib.sha256(_used.encode()).hexdigest()[:16]


def jit(f: Callable[..., Any]) -> Any:
    """`f` to be compiled: callable without the interpreter lock, NumPy's division, kept on disk.

    Where no folder can be written to, it is compiled anew in each process.
    """
    f.__qualname__ += f"_{_version}"
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
        "bag": (table, ids, ids, types.Array(table.dtype, 1, "C"), types.boolean, table, *part),
        "group": (ids, places, ids, places),
        "late": (ids, places, places, types.int64, types.boolean, ids, ids, places),
        "shorten": (table, types.Array(table.dtype, 1, "C"), *part),
        "sum_runs": (table, places, places, types.boolean, table, *part),
        "take": (table, ids, table, *part),
    }
    return globals()[name].compile(signatures[name])


@numba.njit(error_model="numpy")
def rows_ahead(table: Any) -> int:
    """How many rows ahead of its use a row is asked for."""
    return min(32, max(2, AHEAD // (table.shape[1] * table.itemsize)))


@jit
def take(table: Any, rows: Any, out: Any, start: int, stop: int) -> None:
    """out[i] = table[rows[i]]."""
    ahead = rows_ahead(table)
    for i in range(start, stop):
        copy_row(table, rows, ahead, i, out, i)


@jit
def bag(
    table: Any, rows: Any, starts: Any, weights: Any, mean: bool, out: Any, start: int, stop: int
) -> None:
    """out[b] = the sum over i in bag b of weights[i] · table[rows[i]]; no weights: all 1.

    With `mean` the sum is divided by the number of its rows.
    """
    ahead = rows_ahead(table)
    total = np.empty((1, table.shape[1]), table.dtype)
    for b in range(start, stop):
        for c in range(table.shape[1]):
            out[b, c] = 0
        # A long bag is summed by chunks: of one number after the other the errors would add up.
        for first in range(starts[b], starts[b + 1], CHUNK):
            for c in range(table.shape[1]):
                total[0, c] = 0
            for i in range(first, min(first + CHUNK, starts[b + 1])):
                if i + ahead < len(rows):
                    prefetch(table, rows[i + ahead], 0)
                row = rows[i]
                if len(weights):
                    w = weights[i]
                    for c in range(table.shape[1]):
                        total[0, c] += w * table[row, c]
                else:
                    for c in range(table.shape[1]):
                        total[0, c] += table[row, c]
            for c in range(table.shape[1]):
                out[b, c] += total[0, c]
        count = starts[b + 1] - starts[b]
        if mean and count:
            for c in range(table.shape[1]):
                out[b, c] /= count


@jit
def late(
    rows: Any, index: Any, stamps: Any, now: int, all_rows: bool, out: Any, at: Any, last: Any
) -> int:
    """The rows whose stamp is before `now`, each once: `out`, their places, their stamps.

    Returns how many there are; -1: some row is none of the table's. See the NumPy adapter.
    """
    size = np.uint64(len(index) if len(index) else len(stamps))
    most = np.uint64(0)
    for i in range(len(rows)):
        most = max(most, np.uint64(rows[i]))
    if len(rows) and most >= size:
        return -1
    n = 0
    for i in range(len(rows)):
        place = np.int64(index[rows[i]]) - 1 if len(index) else rows[i]
        if place < 0:
            continue
        stamp = stamps[place]
        if 0 <= stamp < now and (stamp > 0 or all_rows):
            out[n], at[n], last[n] = rows[i], place, stamp
            stamps[place] = -1  # seen
            n += 1
    for i in range(n):
        stamps[at[i]] = last[i]
    return n


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
    starts[0] = 0
    for i in range(n):  # no branch: nobody could foretell it
        row = np.int64(packed[i] >> by_place)
        order[i] = packed[i] & np.uint64((1 << place_bits) - 1)
        m += row != last
        unique[m - 1], starts[m], last = row, i + 1, row
    return m


@numba.njit(error_model="numpy", forceinline=True)
def copy_row(values: Any, order: Any, ahead: int, i: int, out: Any, j: int) -> None:
    """out[j] = values[order[i]]."""
    if i + ahead < len(order):
        prefetch(values, order[i + ahead], 0)
    row = order[i]
    for c in range(values.shape[1]):
        out[j, c] = values[row, c]


@numba.njit(error_model="numpy")
def add_chunk(values: Any, order: Any, ahead: int, first: int, stop: int, out: Any, j: int) -> None:
    """out[j] = the sum of values[order[first:stop]], one after the other."""
    copy_row(values, order, ahead, first, out, j)
    for i in range(first + 1, stop):
        if i + ahead < len(order):
            prefetch(values, order[i + ahead], 0)
        row = order[i]
        for c in range(values.shape[1]):
            out[j, c] += values[row, c]


@numba.njit(error_model="numpy")
def add_run(
    values: Any, order: Any, ahead: int, first: int, stop: int, out: Any, j: int, parts: Any
) -> None:
    """out[j] = the sum of values[order[first:stop]], a long one by halves, as NumPy adds.

    So the error grows with the logarithm of the length. `parts` is a stack of LEVELS rows: sums of
    chunks that wait until one of the same size has come after them.
    """
    if stop - first <= CHUNK:
        add_chunk(values, order, ahead, first, stop, out, j)
        return
    depth, chunks = 0, 0
    for begin in range(first, stop, CHUNK):
        last = begin + CHUNK >= stop
        add_chunk(values, order, ahead, begin, min(stop, begin + CHUNK), parts, depth)
        depth, chunks = depth + 1, chunks + 1
        size = chunks
        while depth > 1 and (size % 2 == 0 or last):
            depth, size = depth - 1, size // 2
            for c in range(values.shape[1]):
                parts[depth - 1, c] += parts[depth, c]
    for c in range(values.shape[1]):
        out[j, c] = parts[0, c]


@numba.njit(error_model="numpy")
def add_short_runs(
    values: Any, order: Any, ahead: int, starts: Any, start: int, stop: int, out: Any
) -> None:
    """out[j] = the sum of run j, one after the other, without a branch at the end of a run."""
    for j in range(start, stop):
        for c in range(values.shape[1]):
            out[j, c] = -0.0  # what changes nothing that is added to it, not even a zero's sign
    j = start
    for i in range(starts[start], starts[stop]):
        if i + ahead < len(order):
            prefetch(values, order[i + ahead], 0)
        j += i == starts[j + 1]
        row = order[i]
        for c in range(values.shape[1]):
            out[j, c] += values[row, c]


@jit
def sum_runs(
    values: Any, order: Any, starts: Any, sweep: bool, out: Any, start: int, stop: int
) -> None:
    """out[j] = the sum of run j, for the runs that `group` found; short ones in a sweep, or not."""
    parts = np.empty((LEVELS, values.shape[1]), values.dtype)
    ahead = rows_ahead(values)
    j = start
    while j < stop:
        first = j
        while sweep and j < stop and starts[j + 1] - starts[j] <= CHUNK:
            j += 1
        if first < j:
            add_short_runs(values, order, ahead, starts, first, j, out)
        elif starts[j + 1] - starts[j] == 1:
            copy_row(values, order, ahead, starts[j], out, j)
            j += 1
        else:
            add_run(values, order, ahead, starts[j], starts[j + 1], out, j, parts)
            j += 1


@jit
def shorten(x: Any, factors: Any, start: int, stop: int) -> None:
    """x[j] *= factors[j], of which many are 1."""
    for j in range(start, stop):
        if factors[j] != 1:
            for c in range(x.shape[1]):
                x[j, c] *= factors[j]
