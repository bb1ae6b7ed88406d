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
MOST = 2**31  # ids that fewer are of
PLAIN = frozenset({float, int, bool})


@cache
def compiled(kernel: cuda.Kernel) -> Any:
    """A kernel, compiled once."""
    return xp.RawModule(code=kernel.text, options=cuda.OPTIONS).get_function(kernel.entry)


def launch(one: cuda.Launch) -> None:
    """Launch it on the current stream."""
    compiled(one.kernel)(one.grid, one.block, one.args)


def _fits(*arrays: Array) -> bool:
    """Whether all are floats of one kind, in one piece."""
    dtype = arrays[0].dtype
    return (
        wanted
        and dtype in FLOATS
        and all(a.dtype == dtype and a.flags.c_contiguous for a in arrays)
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


def plan_update(
    formula: Formula,
    rows: Any,
    values: Array,
    table: Array,
    slots: list[Array],
    hyper: dict[str, Any],
) -> Callable[[], None] | None:
    """Kernels that sum repeats and apply the formula; everything but their launch is done here."""
    ids = None if rows is ... else rows
    if not _fits(table, *slots) or values.dtype != table.dtype or not values.size:
        return None
    if len(values) >= MOST or not PLAIN.issuperset(map(type, hyper.values())):
        return None
    if values.shape != ((len(table) if ids is None else len(ids)), *table.shape[1:]):
        return None
    given = None if ids is None else _whole(ids)
    try:
        plan = cuda.update(memory, formula, given, _whole(values), table, slots, hyper)
        launches = list(plan)
    except cuda.FormulaError:
        return None
    for one in launches:
        compiled(one.kernel)

    def write() -> None:
        for one in launches:
            launch(one)

    return write
