"""The CUDA texts of `cuda`, launched by CuPy where arrays fit: part of the CuPy adapter. Floor 1.

Each function answers None where there is no kernel for what it is given (float16, arrays that are
not in one piece, formulas that cannot be printed, settings that are arrays): `cupy` then computes
by CuPy's own functions. TINYGRAD_SPARSE_KERNELS=0 means so always.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import cupy
import numpy as np

from . import cuda
from .adapter import Array, Formula

xp: Any = cupy
wanted = os.environ.get("TINYGRAD_SPARSE_KERNELS", "1") != "0"
memory = cuda.Memory(lambda shape, dtype: xp.empty(shape, dtype), lambda x: x.data.ptr)
FLOATS = frozenset(map(np.dtype, ("f4", "f8")))
PLAIN = frozenset({float, int, bool})


@cache
def compiled(kernel: cuda.Kernel) -> Any:
    """A kernel, compiled once."""
    return xp.RawModule(code=kernel.text, options=cuda.OPTIONS).get_function(kernel.entry)


def launch(one: cuda.Launch) -> None:
    """Launch it on the current stream."""
    compiled(one.kernel)(one.grid, one.block, one.args)


def _fits(*arrays: Array) -> bool:
    """Whether all are floats of one kind, in one piece, and no row is too long for a grid."""
    dtype = arrays[0].dtype
    return (
        wanted
        and dtype in FLOATS
        and all(a.dtype == dtype and a.flags.c_contiguous for a in arrays)
        and all(math.prod(a.shape[1:]) <= cuda.LONGEST for a in arrays)
    )


def _whole(x: Array) -> Array:
    return x if x.flags.c_contiguous else x.copy()


def _flat(x: Array) -> Array:
    return x.reshape((len(x), math.prod(x.shape[1:])))


def take_rows(table: Array, rows: Array) -> Array | None:
    """``table[rows]``, a wide load at a time."""
    if not _fits(table) or not len(table):
        return None
    out = xp.empty((*rows.shape, *table.shape[1:]), table.dtype)
    flat = out.reshape((rows.size, math.prod(table.shape[1:])))
    cuda.run(cuda.take_rows(memory, _flat(table), _whole(rows).reshape(-1), flat), launch)
    return out


def embedding_bag(table: Array, rows: Array, starts: Array, weights: Array | None) -> Array | None:
    """The sums of bags, without an array of rows."""
    if not _fits(table, *([] if weights is None else [weights])):
        return None
    out = xp.empty((len(starts) - 1, *table.shape[1:]), table.dtype)
    plan = cuda.embedding_bag(
        memory, _flat(table), _whole(rows), _whole(starts), weights, _flat(out)
    )
    cuda.run(plan, launch)
    return out


def add_rows(table: Array, rows: Array, values: Array) -> bool:
    """Add `values` to rows of `table`, in a fixed order: whether it was done."""
    write = plan_update(_sum, rows, values, table, [], {})
    if write is None:
        return False
    write()
    return True


def _sum(p: Any, g: Any) -> tuple[Any, ...]:
    return (p + g,)


def coalesce(rows: Array, values: Array, size: int) -> tuple[Array, Array, Array] | None:
    """Sorted unique rows of `size`, the sums of their values, and how many there are, one int32.

    What comes after so many is not written.
    """
    if not _fits(_whole(values)) or not values.size or len(rows) > cuda.MOST:
        return None
    values = _whole(values)
    runs, sums = cuda.run(cuda.coalesce(memory, _whole(rows), _flat(values), size), launch)
    return runs.unique, sums.reshape(values.shape), runs.count


def update_copies(
    formula: Formula, values: Array, row: list[Array], hyper: dict[str, Any]
) -> list[Array] | None:
    """Copies of a table's rows and of its slots', after the formula: `row` stays as it is."""
    if not _fits(_whole(values), *row) or not values.size or values.shape != row[0].shape:
        return None
    copies = [a if a.base is None else a.copy() for a in row]  # what is no view was taken for us
    write = _planned(formula, None, _whole(values), copies[0], copies[1:], hyper)
    if write is None:
        return None
    write()
    return copies


def plan_update(
    formula: Formula,
    rows: Any,
    values: Array,
    table: Array,
    slots: list[Array],
    hyper: dict[str, Any],
    places: Array | None = None,
    cap: Callable[[Array], Array] | None = None,
) -> Callable[[], None] | None:
    """Kernels that sum repeats and apply the formula; everything but their launch is done here.

    With a `cap` the sums are made here too, to be shortened: into zeros, for nobody knows how many
    there are, and what is longer than its `max_norm` is told.
    """
    ids = None if rows is ... else _whole(rows)
    values = _whole(values)
    if not _fits(table, values, *slots) or not values.size or len(values) > cuda.MOST:
        return None
    if values.shape != ((len(table) if ids is None else len(ids)), *table.shape[1:]):
        return None
    if cap is None:
        return _planned(formula, ids, values, table, slots, hyper, places)
    if ids is None:
        return _planned(formula, None, _whole(cap(values)), table, slots, hyper)
    sums = xp.zeros((len(values), math.prod(values.shape[1:])), values.dtype)
    plan = cuda.coalesce(memory, ids, _flat(values), len(table), sums)
    runs, _ = cuda.run(plan, launch)
    values = _whole(cap(sums.reshape(values.shape)))
    return _planned(formula, ids, values, table, slots, hyper, places, runs)


def _planned(
    formula: Formula, ids: Array | None, values: Array, table: Array, slots: list[Array],
    hyper: dict[str, Any], places: Array | None = None, runs: cuda.Runs | None = None,
) -> Callable[[], None] | None:  # fmt: skip
    """The launches of an update, compiled; None for a formula that cannot be printed."""
    if not all(type(x) in PLAIN or _is_column(x, values) for x in hyper.values()):
        return None
    settings = {k: x if type(x) in PLAIN else _whole(x) for k, x in hyper.items()}
    where = None if places is None else _whole(places)
    try:
        plan = cuda.update(
            memory, formula, ids, values, table, slots, settings, where, ids is not None, None, runs
        )
        launches = list(plan)
    except cuda.FormulaError:
        return None
    for one in launches:
        compiled(one.kernel)

    def write() -> None:
        for one in launches:
            launch(one)

    return write


def _is_column(x: Any, values: Array) -> bool:
    """Whether a setting is an array with one number for each row."""
    return type(x) is xp.ndarray and x.shape == (len(values), *(1,) * (values.ndim - 1))
