"""The CuPy adapter: the NumPy adapter's functions by CuPy's, on a GPU. Floor 1.

Imported when the first array of CuPy's comes. Nothing here waits for the device but `to_host`,
`sum_duplicates`, whose answer is as long as there are different rows, those about rows at rest, and
the reading of the flags below: a step of `plan_update` waits for nothing. What bites in CuPy is
said where it is avoided.
Optimizers' formulas, and those of elements that are taken over from NumPy's adapter, are written
with NumPy's ufuncs, which hand CuPy's arrays over to CuPy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from . import launching
from .adapter import Array, Formula
from .ids import out_of_range, refuse_other_dtypes
from .numpy import checked
from .numpy import logistic_loss as logistic_loss
from .numpy import logistic_slope as logistic_slope
from .precision import wide_dtype

xp: Any = cupy
ndarray = xp.ndarray
is_available = xp.is_available
device = "cuda"
records, waits = False, True
debug = os.environ.get("TINYGRAD_SPARSE_DEBUG", "0") != "0"  # ids are checked at once: a wait
UNREAD = 256  # lookups by ids on the device that are checked together, at the latest
# What atomic additions exist for, but for float16, whose sums are kept in float32.
_ADDABLE = frozenset(map(np.dtype, ("i4", "u4", "i8", "u8", "f4", "f8")))


def asarray(x: Any) -> Array:
    return xp.asarray(x)


def copy(x: Array) -> Array:
    return xp.array(x, order="C")


def read_only(x: Array) -> Array:
    """CuPy has no arrays that cannot be written to: a view says that it is not its owner's."""
    return x.view()


def to_host(x: Array) -> np.ndarray:
    check_ids()
    return x.get()


def namespace(x: Array) -> Any:
    return xp


def beside(x: Array, ids: Any) -> Array:
    return xp.asarray(ids)


# -- ids -----------------------------------------------------------------------------------------

# Ids that were made on the device are looked at there. (Is one out of range?, which, where): each
# an array that nobody waited for, and what the error is to say.
_unread: list[tuple[Array, Array, Array, Callable[[Any, Any], Exception]]] = []


def own_ids(op: str, ids: Array, size: int, context: str) -> Array:
    """CuPy wraps ids that are out of range, so they are replaced by 0 here, and a flag is left.

    `check_ids` reads the flags, and raises: before values go to the host, which waits anyway.
    """
    refuse_other_dtypes(op, ids, context)
    if not ids.size:
        return ids.astype(np.int64)
    wide = ids.astype(np.int64)  # a narrow dtype is not compared with a number that it has not
    bad = wide >= size
    if ids.dtype.kind == "i":
        bad |= wide < -size
    elif ids.dtype.itemsize == 8:  # of uint64, those that int64 has not are negative now
        bad |= wide < 0
    at = bad.reshape(-1).argmax()
    dtype, shape = ids.dtype, ids.shape

    def error(id: int, at: int) -> Exception:
        return out_of_range(op, dtype, shape, size, context, id, at, id < 0)

    _leave(bad.any(), ids.reshape(-1).take(at), at, error)
    if not size:  # and so no row 0
        check_ids()
    wide = xp.where(wide < 0, wide + size, wide)
    return xp.where(bad, 0, wide)


def _leave(bad: Array, id: Array, at: Array, error: Callable[[Any, Any], Exception]) -> None:
    """Have a flag read later: see `_unread`."""
    _unread.append((bad, id, at, error))
    if debug or len(_unread) >= UNREAD:
        check_ids()


def check_ids() -> None:
    """Raise RowIndexError if ids were out of range since the last time: waits for the device.

    And ArgumentError if rows were to be shortened that have no length.
    """
    if not _unread:
        return
    waiting = list(_unread)
    _unread.clear()
    flags = xp.stack([flag for flag, *_ in waiting]).get()
    if flags.any():
        _, id, at, error = waiting[int(flags.argmax())]
        raise error(id.item(), at.item())


def count_rows(rows: Array, size: int) -> Array:
    """`bincount` would ask for the largest id, and wait."""
    counts = xp.zeros(size, np.int64)
    xp.add.at(counts, rows, 1)
    return counts


# -- rows ----------------------------------------------------------------------------------------


def broadcast_to(x: Array, shape: tuple[int, ...]) -> Array:
    return xp.broadcast_to(x, shape)


def twice_product(g: Array, x: Array) -> Array:
    product = g * x
    product += product
    return product


def max_from(x: Array, axis: tuple[int, ...], start: float) -> Array:
    """CuPy's `max` takes no number to start from, and refuses to choose from nothing."""
    if not x.size:
        shape = [1 if a in axis else n for a, n in enumerate(x.shape)]
        return xp.full(shape, start, x.dtype)
    top = xp.max(x, axis=axis, keepdims=True)
    return top if start == -math.inf else xp.maximum(top, start)


def shortened(x: Array, max_norm: float, error: Callable[[float], Exception]) -> Array:
    """Squares of what is at most 1 cannot overflow. A row without a length becomes 0."""
    wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    largest = xp.max(xp.abs(wide), axis=1, keepdims=True)
    unit = wide / xp.where(largest > 0, largest, 1)
    lengths = largest * xp.sqrt(xp.sum(unit * unit, axis=1, keepdims=True))
    lengths = xp.where(xp.isinf(largest), largest, lengths)
    finite = xp.isfinite(lengths)
    most = lengths.reshape(-1).max()  # NaN, if there is one
    _leave(~finite.all(), most, most, lambda norm, _: error(norm))
    scales = max_norm / xp.maximum(lengths, max_norm)
    return xp.where(finite, wide * scales, 0).astype(x.dtype, copy=False)


def take_rows(table: Array, rows: Array, lead: int = 1) -> Array:
    if lead > 1 and not table.flags.c_contiguous:  # `reshape` would copy all of it
        places = []
        for n in table.shape[lead - 1 : 0 : -1]:
            places.append(rows % n)
            rows = rows // n
        return table[(rows, *reversed(places))]
    if lead > 1:
        table = table.reshape((math.prod(table.shape[:lead]), *table.shape[lead:]))
    taken = launching.take_rows(table, rows)
    return xp.take(table, rows, axis=0) if taken is None else taken


def put_rows(table: Array, rows: Any, values: Array) -> None:
    """Which of two values for one row stays is undefined in CuPy: they are equal, if there are."""
    table[rows] = values


def sum_duplicates(rows: Array, values: Array, size: int | None = None) -> tuple[Array, Array]:
    """Waits once, for the number of different rows; what `plan_update` does waits for nothing."""
    wide = values.astype(wide_dtype(values.dtype), copy=False)
    found = None if size is None else launching.coalesce(rows, wide, size)
    if found is not None:
        n = found[2].item()
        return found[0][:n], found[1][:n].astype(values.dtype, copy=False)
    order, rows, first, run = _runs(rows)
    starts = xp.flatnonzero(first)
    if len(starts) == len(rows):
        return rows, xp.take(values, order, axis=0)
    return rows[starts], scatter_rows(run, xp.take(values, order, axis=0), len(starts))


def _runs(rows: Array) -> tuple[Array, Array, Array, Array]:
    """(places in ascending order of row, the rows so, where each begins, the number of its run)."""
    order = xp.argsort(rows)  # stable, always
    rows = xp.take(rows, order)
    first = xp.ones(len(rows), bool)
    first[1:] = rows[1:] != rows[:-1]
    return order, rows, first, xp.cumsum(first, dtype=np.int64) - 1


def scatter_rows(rows: Array, values: Array, size: int) -> Array:
    """By atomic additions: not `add.reduceat`, which takes differences of one long running sum."""
    wide = values.dtype
    if wide not in _ADDABLE:
        wide = np.dtype(np.float32 if wide.kind == "f" else np.int64)
    table = xp.zeros((size, *values.shape[1:]), wide)
    values, dtype = values.astype(wide, copy=False), values.dtype
    if not launching.add_rows(table, rows, values):
        xp.add.at(table, rows, values)
    return table.astype(dtype, copy=False)


def scatter_add_rows(table: Array, rows: Array, values: Array) -> Array:
    if launching.add_rows(table, rows, values):
        return table
    if table.dtype in _ADDABLE:
        xp.add.at(table, rows, values)
    else:
        table += scatter_rows(rows, values, len(table))
    return table


def max_rows(rows: Array, values: Array, size: int) -> Array:
    """Atomic maxima let NaN pass unseen: it is counted apart."""
    if values.dtype.kind != "f":
        wide = values.astype(np.int64)
        table = xp.full((size, *values.shape[1:]), np.iinfo(values.dtype).min, np.int64)
        xp.maximum.at(table, rows, wide)
        return table.astype(values.dtype)
    wide = values.astype(np.promote_types(values.dtype, np.float32), copy=False)
    lost = xp.isnan(wide)
    table = xp.full((size, *values.shape[1:]), -math.inf, wide.dtype)
    xp.maximum.at(table, rows, xp.where(lost, -math.inf, wide))
    none = scatter_rows(rows, lost.astype(np.int32), size) == 0
    return xp.where(none, table, math.nan).astype(values.dtype, copy=False)


# -- updates -------------------------------------------------------------------------------------


def update_rows(
    formula: Formula,
    rows: Any,
    g: Array,
    table: Array,
    slots: list[Array],
    hyper: dict[str, Any],
    places: Any = None,
) -> list[Array]:
    wide = np.promote_types(table.dtype, np.float32)
    places = rows if places is None else places
    p, *state = _rows_at(table, rows), *(_rows_at(slot, places) for slot in slots)
    p, g = p.astype(wide, copy=False), g.astype(wide, copy=False)
    if (written := launching.update_copies(formula, g, [p, *state], hyper)) is not None:
        return written
    new = formula(p, g, *state, **hyper)
    lead = table.ndim - g.ndim + 1  # axes that address a row
    return checked(formula, new, g.shape[:1], [a.shape[lead:] for a in (table, *slots)])


def _rows_at(table: Array, index: Any) -> Array:
    return xp.take(table, index, axis=0) if type(index) is ndarray else table[index]


def plan_update(
    formula: Formula,
    rows: Any,
    values: Array,
    table: Array,
    slots: list[Array],
    hyper: dict[str, Any],
    places: Any = None,
    cap: Any = None,
) -> Callable[[], None]:
    """Each place of a repeated row gets the row's sum, and all of them write the same numbers.

    So nobody has to know how many different rows there are, which would be to wait for the device.
    """
    args = formula, rows, values, table, slots, hyper, places, cap
    if (write := launching.plan_update(*args)) is not None:
        return write
    at = rows
    if rows is not ...:
        order, rows, _, run = _runs(rows)
        sums = scatter_rows(run, xp.take(values, order, axis=0), len(rows))
        values = xp.take(sums, run, axis=0)
        at = rows if places is None else xp.take(places, order)
    if cap is not None:
        values = cap(values)
    new = update_rows(formula, rows, values, table, slots, hyper, at)

    def put() -> None:
        put_rows(table, rows, new[0])
        for slot, block in zip(slots, new[1:], strict=True):
            put_rows(slot, at, block)

    return put


# -- rows at rest --------------------------------------------------------------------------------


def late_rows(
    rows: Array, index: Array | None, stamps: Array, now: int, all_rows: bool
) -> tuple[Array, Array, Array]:
    """Waits twice, for how many there are."""
    assert index is None  # see Slots: where arrays wait, rows have no places of their own
    last = xp.take(stamps, rows)
    late = last < now
    if not all_rows:
        late &= last > 0
    here = xp.flatnonzero(late)
    rows, last = xp.take(rows, here), xp.take(last, here)
    marks = -xp.arange(1, len(rows) + 1, dtype=np.int32)  # all write their mark, one mark stays
    stamps[rows] = marks
    once = xp.flatnonzero(xp.take(stamps, rows) == marks)
    rows, last = xp.take(rows, once), xp.take(last, once)
    stamps[rows] = last
    return rows, rows, last


def settle_rows(
    formula: Callable[..., tuple[Any, ...]],
    sure: Callable[..., Any],
    rows: Array,
    places: Array,
    factors: np.ndarray,
    columns: np.ndarray,
    table: Array,
    slots: list[Array],
) -> np.ndarray:
    """Waits once, for which rows stay as they are, if there may be such."""
    wide = np.promote_types(table.dtype, np.float32)
    with np.errstate(all="ignore"):
        lines = factors.astype(wide).reshape((*factors.shape, *(1,) * (table.ndim - 1)))
    numbers = xp.take(asarray(lines), asarray(columns), axis=1)
    row = [xp.take(table, rows, axis=0), *(xp.take(slot, places, axis=0) for slot in slots)]
    row[0] = row[0].astype(wide, copy=False)
    good, new = sure(row, numbers), list(formula(tuple(row), tuple(numbers)))
    left = np.empty(0, np.int64)
    if type(good) is ndarray:
        good = xp.broadcast_to(good, row[0].shape).all(axis=tuple(range(1, table.ndim)))
        left = np.flatnonzero(~to_host(good))
        good = good.reshape((-1, *(1,) * (table.ndim - 1)))
        new = [xp.where(good, x, old) for x, old in zip(new, row, strict=True)]
    for array, at, values in zip((table, *slots), [rows, *[places] * len(slots)], new, strict=True):
        put_rows(array, at, values)
    return left


# -- lookups that are summed, and products ---------------------------------------------------------


def bag_of(starts: Array, n: int) -> Array:
    """`repeat` by an array would wait for its sum."""
    return xp.searchsorted(starts[1:], xp.arange(n), side="right")


def embedding_bag(
    table: Array, rows: Array, starts: Array, weights: Array | None = None, mean: bool = False
) -> Array:
    numbers = table.dtype if weights is None else np.result_type(table.dtype, weights.dtype)
    dtype = np.result_type(numbers, np.float16) if mean else numbers
    wide = wide_dtype(dtype)
    each = (-1, *(1,) * (table.ndim - 1))
    total = launching.embedding_bag(table, rows, starts, weights)
    if total is None:
        taken = take_rows(table, rows).astype(wide, copy=False)
        if weights is not None:
            taken = taken * weights.reshape(each)
        total = scatter_rows(bag_of(starts, len(rows)), taken, len(starts) - 1)
    if mean:
        total /= xp.maximum(starts[1:] - starts[:-1], 1).astype(wide).reshape(each)
    return total.astype(dtype, copy=False)


def row_products(x: Array, y: Array, rows: Array, columns: Array) -> Array:
    return take_rows(x, rows) @ take_rows(y, columns).swapaxes(-1, -2)


def weighted_rows(w: Array, y: Array, ids: Array) -> Array:
    return w @ take_rows(y, ids)
