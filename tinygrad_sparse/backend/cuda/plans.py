"""Which kernels run, with which grids and arguments: plain data, whoever launches them. Floor 1.

A plan is a generator of launches that returns arrays; `run(plan, launch)` carries it out. It knows
arrays by shape, dtype and address alone, so the same plan runs on a GPU and in the tests, where the
texts are built for the CPU. Sizes follow from shapes: a plan never asks the device for anything,
its launches are always the same ones, and a CUDA graph can hold them. How many rows a coalescing
found stays on the device, in an array of one int32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tinygrad_sparse.errors import ArgumentError, explain

from . import texts
from .formula import Generated, generate
from .texts import Kernel

Array = Any
R = TypeVar("R")

NULL = np.uint64(0)  # where an array may be left out
INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
THREADS, WARP = 256, 32
AHEAD = 4  # rows that a thread has under way: source/rows.cu
SMALL = 4096  # ids that one block sorts
SORTED, NUMBERED = 4096, 2048  # ids of a block where many sort, and number runs
DIGITS, BITS = 256, 8
MOST = 2**31 - 2 * SORTED  # ids: blocks of them are counted in int32, to the end of the last one
LONGEST = 65535 * WARP  # numbers of a row: CUDA has a grid's second axis so long


class Launch(NamedTuple):
    """One launch; `args` are arrays, NumPy scalars of the kernel's own types, or NULL."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Any, ...]


Plan = Generator[Launch, None, R]


class Memory(NamedTuple):
    """What a plan asks of an array library; for CuPy ``Memory(cp.empty, lambda x: x.data.ptr)``."""

    empty: Callable[..., Array]  # empty(shape, dtype)
    address: Callable[[Array], int]


def run(plan: Plan[R], launch: Callable[[Launch], Any]) -> R:
    """Carry a plan out, one launch after the other, and return what it made."""
    try:
        while True:
            launch(next(plan))
    except StopIteration as end:
        return end.value


# -- lookups ---------------------------------------------------------------------------------------


def take_rows(
    memory: Memory, table: Array, ids: Array, out: Array, bad: Array | None = None
) -> Plan[None]:
    """``out[i] = table[ids[i]]``: table (V, d), ids (n,), out (n, d).

    `bad`, one int32 that holds n, gets the first place of an id outside of the table.
    """
    n, d = out.shape
    _check("take_rows", _float(table), table, out)
    _check("take_rows", _id_dtype(ids), ids)
    _check_shapes("take_rows", (table, (len(table), d)), (ids, (n,)))
    if not out.size:
        return
    vec = _vec(memory, d, table, out)
    kernel = Kernel("take_rows", texts.rows_text(_float(table), ids.dtype, vec))
    grid, block = _over_rows(n, d, vec, AHEAD)
    sizes = np.int64(n), np.int64(len(table)), np.int32(d)
    yield Launch(kernel, grid, block, (out, table, ids, *sizes, NULL if bad is None else bad))


def check_ids(memory: Memory, ids: Array, V: int, bad: Array) -> Plan[Array]:
    """int64 ids as the kernels want them: not negative, int32 if V allows it; `bad` as above."""
    n = len(ids)
    _check("check_ids", INT64, ids)
    out = memory.empty((n,), key_dtype(V))
    if n:
        kernel = Kernel("check_ids", texts.rows_text(np.dtype(np.float32), out.dtype, 1))
        grid = (_parts(n, THREADS), 1, 1)
        args = out, ids, np.int64(n), np.int64(V), bad
        yield Launch(kernel, grid, (THREADS, 1, 1), args)
    return out


def embedding_bag(
    memory: Memory, table: Array, ids: Array, starts: Array, weights: Array | None, out: Array
) -> Plan[None]:
    """``out[b]``: the weighted sum of the rows of a bag. table (V, d), starts (B + 1,) of int64."""
    bags, d = out.shape
    _check("embedding_bag", _float(table), table, out, *([] if weights is None else [weights]))
    _check("embedding_bag", _id_dtype(ids), ids)
    _check("embedding_bag", INT64, starts)
    shapes = (table, (len(table), d)), (starts, (bags + 1,)), (weights, (len(ids),))
    _check_shapes("embedding_bag", *shapes)
    if not out.size:
        return
    vec = _vec(memory, d, table, out)
    kernel = Kernel("embedding_bag", texts.rows_text(_float(table), ids.dtype, vec))
    given = NULL if weights is None else weights
    args = out, table, ids, starts, given, np.int64(bags), np.int32(d)
    yield Launch(kernel, *_over_rows(bags, d, vec), args)


# -- repeats ---------------------------------------------------------------------------------------


class Runs(NamedTuple):
    """Sorted ids and where they were given; runs of equal ones, `count` of them on the device."""

    keys: Array  # (n,) int32, or int64 where V needs it
    order: Array  # (n,) int32
    unique: Array  # (n,) int64, of which `count` are written, as of `members`
    run: Array  # (n,) int32: the run of each sorted id
    members: Array  # (n,) int32: where the first member of each run was given
    count: Array  # (1,) int32


def sort(memory: Memory, ids: Array, V: int) -> Plan[tuple[Array, Array]]:
    """Ids in [0, V) in ascending order, and where each was given; equal ids as they came."""
    _check("sort", _id_dtype(ids), ids)
    if len(ids) <= SMALL:
        runs = yield from _small(memory, ids, V, number=False)
        return runs.keys, runs.order
    return (yield from _large(memory, ids, V))


def group(memory: Memory, ids: Array, V: int) -> Plan[Runs]:
    """`sort`, and the runs of equal ids numbered."""
    n = len(ids)
    _check("group", _id_dtype(ids), ids)
    if n <= SMALL:
        return (yield from _small(memory, ids, V, number=True))
    keys, order = yield from _large(memory, ids, V)
    unique, run, members, count = _room_for_runs(memory, n)
    blocks = _parts(n, NUMBERED)
    heads = memory.empty((blocks,), np.int32)
    text = texts.sort_text(keys.dtype, keys.dtype)
    many, block, sizes = (blocks, 1, 1), (THREADS, 1, 1), (np.int32(n), np.int32(NUMBERED))
    yield Launch(Kernel("runs_count", text), many, block, (keys, heads, *sizes))
    args: tuple[Any, ...] = heads, count, np.int32(blocks)
    yield Launch(Kernel("runs_scan", text), (1, 1, 1), (1024, 1, 1), args)
    args = keys, order, heads, unique, run, members, *sizes
    yield Launch(Kernel("runs_number", text), many, block, args)
    return Runs(keys, order, unique, run, members, count)


def _small(memory: Memory, ids: Array, V: int, number: bool) -> Plan[Runs]:
    """One launch of one block."""
    n, dtype = len(ids), _keys(ids, V)
    keys, more_keys = (memory.empty((n,), dtype) for _ in range(2))
    order, more_order = (memory.empty((n,), np.int32) for _ in range(2))
    runs = _room_for_runs(memory, n) if number else (NULL,) * 4
    kernel = Kernel("sort_small", texts.sort_text(dtype, ids.dtype))
    sizes = np.int32(n), np.int32(_passes(V))
    args = ids, keys, order, more_keys, more_order, *runs, *sizes
    yield Launch(kernel, (1, 1, 1), (1024, 1, 1), args)
    return Runs(keys, order, *runs)


def _large(memory: Memory, ids: Array, V: int) -> Plan[tuple[Array, Array]]:
    """Three launches for each eight bits of V."""
    n, dtype = len(ids), _keys(ids, V)
    if n > MOST:
        raise ArgumentError(explain("sort", f"at most {MOST} ids", f"{n}"))
    keys: Array = ids
    if ids.dtype != dtype:
        keys = yield from check_ids(memory, ids, V, memory.empty((1,), np.int32))
    order: Array = NULL
    blocks = _parts(n, SORTED)
    counts, totals = memory.empty((DIGITS * blocks,), np.int32), memory.empty((DIGITS,), np.int32)
    rooms = [(memory.empty((n,), dtype), memory.empty((n,), np.int32)) for _ in range(2)]
    text = texts.sort_text(dtype, dtype)
    grid, block = (blocks, 1, 1), (THREADS, 1, 1)
    for number in range(_passes(V)):
        new_keys, new_order = rooms[number % 2]
        sizes = np.int32(n), np.int32(SORTED), np.int32(BITS * number)
        yield Launch(Kernel("sort_count", text), grid, block, (keys, counts, *sizes))
        args: tuple[Any, ...] = counts, totals, np.int32(blocks)
        yield Launch(Kernel("sort_scan", text), (DIGITS, 1, 1), block, args)
        args = keys, order, new_keys, new_order, counts, totals, *sizes
        yield Launch(Kernel("sort_move", text), grid, block, args)
        keys, order = new_keys, new_order
    return keys, order


def coalesce(
    memory: Memory, ids: Array, values: Array, V: int, sums: Array | None = None
) -> Plan[tuple[Runs, Array]]:
    """`group`, and the sum of each run's values: (n, d), of which `count` are written."""
    _check("coalesce", _float(values), values)
    sums = memory.empty(values.shape, values.dtype) if sums is None else sums
    _check("coalesce", values.dtype, sums)
    _check_shapes("coalesce", (values, (len(ids), values.shape[-1])), (sums, values.shape))
    runs = yield from group(memory, ids, V)
    formula, _ = generate(_store, {}, values.dtype)
    yield from _update_sorted(memory, formula, runs.run, runs.order, values, (sums,), NULL, [])
    return runs, sums


def _store(p: Any, g: Any) -> tuple[Any, ...]:
    return (g,)


# -- updates ---------------------------------------------------------------------------------------


def update(
    memory: Memory,
    formula: Callable[..., tuple[Any, ...]],
    ids: Array | None,
    values: Array,
    table: Array,
    slots: list[Array],
    hyper: Mapping[str, Any],
    places: Array | None = None,
    repeats: bool = True,
    numbers: Array | None = None,
    runs: Runs | None = None,
) -> Plan[None]:
    """An optimizer's formula on rows of `table` and of its `slots`, in place.

    `ids` may repeat, the sum of a row's values is its gradient; ``repeats=False`` says that they do
    not, and no ids are all rows. `runs`: of these ids, and `values` are their sums, as `coalesce`
    gives both. `places` (int64), one for each id, is where the slots have the rows, if elsewhere. A
    number in `hyper` may be an array with one for each row: without repeats only. `numbers`,
    float64 on the device, is where the kernels read the formula's numbers, for a captured graph:
    fill it with what `numbers_of` answers. Raises FormulaError.
    """
    _check("update", _float(table), table, values, *slots)
    if ids is not None:
        _check("update", _id_dtype(ids), ids)
    if places is not None:
        _check("update", INT64, places)
    made, given = _generated(formula, hyper, table, slots, numbers is not None)
    columns = [hyper[name] for name, _ in made.columns]
    _check_update(ids, values, table, slots, places, columns, repeats)
    if not values.size:
        return
    settings = [*(given if numbers is None else [numbers]), *columns]
    d, V = math.prod(table.shape[1:]), len(table)
    arrays = tuple(_flat(a) for a in (table, *slots))
    values = values.reshape(-1, d)
    where = NULL if places is None else places
    if ids is None or not repeats:
        rows = NULL if ids is None else ids
        yield from _update_unique(memory, made, rows, values, arrays, where, settings)
    elif made.whole_rows or runs is not None:
        sums = values
        if runs is None:
            runs, sums = yield from coalesce(memory, ids, values, V)
        yield from _update_unique(memory, made, runs.unique, sums, arrays, where, settings, runs)
    else:
        keys, order = yield from sort(memory, ids, V)
        yield from _update_sorted(memory, made, keys, order, values, arrays, where, settings)


def numbers_of(
    formula: Callable[..., tuple[Any, ...]],
    hyper: Mapping[str, Any],
    table: Array,
    slots: list[Array],
) -> np.ndarray:
    """What a captured update reads from its `numbers`, for the settings of a step.

    They are of the text that these settings need: of the captured one, while no branch turns.
    """
    return np.array(_generated(formula, hyper, table, slots, True)[1], np.float64)


def _generated(
    formula: Callable[..., tuple[Any, ...]], hyper: Mapping[str, Any], table: Array,
    slots: list[Array], stored: bool,
) -> tuple[Generated, list[Any]]:  # fmt: skip
    row = tuple(table.shape[1:])
    per_row = [math.prod(slot.shape[1:]) == 1 != math.prod(row) for slot in slots]
    return generate(formula, hyper, _float(table), row, per_row, stored)


def _check_update(
    ids: Array | None, values: Array, table: Array, slots: list[Array], places: Array | None,
    columns: list[Array], repeats: bool,
) -> None:  # fmt: skip
    """What belongs to a row is there for each."""
    row, n = tuple(table.shape[1:]), len(table if ids is None else ids)
    shapes = [(values, (n, *row)), (places, (n,))]
    for slot in slots:
        alone = math.prod(slot.shape[1:]) == 1
        rows = len(table if places is None else slot)
        shapes.append((slot, (rows, *(slot.shape[1:] if alone else row))))
    _check_shapes("update", *shapes, *((x, (n, *(1,) * (x.ndim - 1))) for x in columns))
    if columns and ids is not None and repeats:
        raise ArgumentError(
            explain("update", "plain numbers where ids may repeat", "a setting with one a row")
        )


def _update_unique(
    memory: Memory, made: Generated, rows: Array, values: Array, arrays: tuple[Array, ...],
    places: Array, settings: list[Any], runs: Runs | None = None,
) -> Plan[None]:  # fmt: skip
    """Rows that are each there once; those of `runs` are counted on the device."""
    n, d = values.shape
    vec = 1 if made.whole_rows else _vec(memory, d, values, *arrays)
    dtype = INT64 if rows is NULL else rows.dtype
    kernel = Kernel("update_rows", texts.update_text(made, values.dtype, dtype, vec))
    members, count = (NULL, NULL) if runs is None else (runs.members, runs.count)
    args = *arrays, rows, places, members, values, count, np.int64(n), np.int32(d), *settings
    shape = _over_rows(n, WARP if made.whole_rows else d, vec)
    yield Launch(kernel, *shape, args)


def _update_sorted(
    memory: Memory, made: Generated, keys: Array, order: Array, values: Array,
    arrays: tuple[Array, ...], places: Array, settings: list[Any],
) -> Plan[None]:  # fmt: skip
    """The sum of each run of equal keys is the gradient of that row."""
    n, d = values.shape
    if not values.size:
        return
    tile = tile_of(n)
    tiles = _parts(n, tile)
    vec = _vec(memory, d, values, *arrays)
    pieces = memory.empty((2 * tiles, d), values.dtype)
    text = texts.update_text(made, values.dtype, keys.dtype, vec)
    grid, block = _over_rows(tiles, d, vec)
    sizes = np.int32(n), np.int32(d), np.int32(tile)
    args = *arrays, keys, order, places, values, pieces, *sizes, *settings
    yield Launch(Kernel("update_runs", text), grid, block, args)
    if tiles > 1:
        args = *arrays, keys, order, places, pieces, *sizes, *settings
        yield Launch(Kernel("update_ends", text), grid, block, args)


# -- sizes -----------------------------------------------------------------------------------------


def key_dtype(V: int) -> np.dtype:
    """What sorted ids are kept in: half the bytes where they fit."""
    return INT32 if V <= 2**31 else INT64


def _keys(ids: Array, V: int) -> np.dtype:
    return INT32 if ids.dtype == INT32 else key_dtype(V)


def tile_of(n: int) -> int:
    """How many sorted ids a thread goes through: few where there are few, to have threads."""
    return min(32, max(4, 2 ** ((n // 8192).bit_length() - 1) if n >= 8192 else 4))


def _passes(V: int) -> int:
    return max(1, _parts(max(0, V - 1).bit_length(), BITS))


def _parts(n: int, size: int) -> int:
    return -(-n // size)


def _over_rows(
    rows: int, d: int, vec: int, ahead: int = 1
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Grid and block: lanes along a row, at most a warp of them, and rows."""
    columns = _parts(d, vec)
    lanes = min(WARP, 1 << (columns - 1).bit_length())
    if d > LONGEST:
        raise ArgumentError(explain("a kernel", f"rows of at most {LONGEST} numbers", f"{d}"))
    grid = _parts(rows, THREADS // lanes * ahead), _parts(columns, lanes), 1
    return grid, (lanes, THREADS // lanes, 1)


def _vec(memory: Memory, d: int, *arrays: Array) -> int:
    """How many numbers move together: 16 bytes, where rows and addresses are multiples of that."""
    vec = texts.pack_of(arrays[0].dtype)
    aligned = all(memory.address(a) % 16 == 0 for a in arrays)
    return vec if d % vec == 0 and aligned else 1


def _flat(x: Array) -> Array:
    return x.reshape(len(x), math.prod(x.shape[1:]))


def _float(x: Array) -> np.dtype:
    dtype = np.dtype(x.dtype)
    if dtype not in texts.FLOATS:
        raise ArgumentError(explain("a kernel", "float32 or float64", f"{dtype}"))
    return dtype


def _id_dtype(ids: Array) -> np.dtype:
    return INT32 if ids.dtype == INT32 else INT64


def _check(op: str, dtype: np.dtype, *arrays: Array) -> None:
    """A kernel sees addresses alone: what is behind them is made sure of here."""
    for x in arrays:
        if x.dtype != dtype or not x.flags.c_contiguous:
            got = f"{x.dtype} {x.shape}" + ("" if x.flags.c_contiguous else ", not in one piece")
            raise ArgumentError(explain(op, f"arrays of {dtype} in one piece", got))


def _check_shapes(op: str, *shapes: tuple[Array | None, tuple[int, ...]]) -> None:
    """Nor how many there are; what is None was left out."""
    for x, shape in shapes:
        if x is not None and tuple(x.shape) != shape:
            raise ArgumentError(explain(op, f"an array of shape {shape}", f"{tuple(x.shape)}"))


def _room_for_runs(memory: Memory, n: int) -> tuple[Array, Array, Array, Array]:
    return (
        memory.empty((n,), np.int64), memory.empty((n,), np.int32), memory.empty((n,), np.int32),
        memory.empty((1,), np.int32),
    )  # fmt: skip
