"""The NumPy adapter: the readable reference that every other adapter must agree with. Floor 1.

What its functions are for, and what their arguments mean, is in `adapter`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_sparse.errors import DeviceError, ShapeError, explain

from .ids import out_of_range, refuse_other_dtypes
from .log1p_of import log1p_of
from .precision import wide_dtype

BLOCK = 2**18  # bytes of gradient that an optimizer's formula is run on at a time
FEW, SMALL, ROUNDS = 256, 2**14, 4  # rows, elements, members: see `sum_duplicates`
xp = np
ndarray = np.ndarray
device = "cpu"
records = waits = False  # what it computes is not on a tape, and there when it returns


def asarray(x: Any) -> np.ndarray:
    """NumPy's own scalars, which 0-d results come as, become 0-d arrays."""
    return np.asarray(x)


def copy(x: np.ndarray) -> np.ndarray:
    return np.array(x, order="C")


def read_only(x: Any) -> np.ndarray:
    view = np.asarray(x).view()
    view.setflags(write=False)
    return view


def to_host(x: np.ndarray) -> np.ndarray:
    return x


def namespace(x: np.ndarray) -> Any:
    return np


def beside(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    if isinstance(ids, np.ndarray):
        return ids
    got = f"ids {ids.dtype} {ids.shape} on another device"
    hint = "ids.get() brings CuPy's to the host; x.to('cuda') brings the table to them"
    raise DeviceError(explain("ids", f"ids on the CPU for an array {x.shape} there", got, hint))


def own_ids(op: str, ids: np.ndarray, size: int, context: str) -> np.ndarray:
    refuse_other_dtypes(op, ids, context)
    if ids.dtype.kind not in "iu":
        return ids.astype(np.int64)
    if ids.size and (ids.dtype != np.int64 or int(ids.view(np.uint64).max()) >= size):
        low, high = int(ids.min()), int(ids.max())
        if low < -size or high >= size:
            flat = ids.ravel()
            at = int(((flat >= size) | (flat < -size)).argmax())
            id, dtype, shape = int(flat[at]), ids.dtype, ids.shape
            raise out_of_range(op, dtype, shape, size, context, id, at, low < 0)
        ids = ids.astype(np.int64)
        return np.where(ids < 0, ids + size, ids) if low < 0 else ids
    return ids.astype(np.int64)


def count_rows(rows: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(rows, minlength=size)


def broadcast_to(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """One number, as it is below a sum, needs no search for what fits: a tenth of NumPy's time."""
    if x.size != 1 or x.ndim > len(shape) or min(shape, default=0) < 0:
        return np.broadcast_to(x, shape)
    view = np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    view.setflags(write=False)
    return view


def twice_product(g: np.ndarray, x: np.ndarray) -> np.ndarray:
    """One pass where g is one small number everywhere, as it is below a sum or a mean."""
    if g.size and not any(g.strides) and abs(one := g.item(0)) <= 1.0:
        return (2.0 * one) * x
    product = g * x
    product += product
    return product


def max_from(x: np.ndarray, axis: tuple[int, ...], start: float) -> np.ndarray:
    return np.max(x, axis=axis, keepdims=True, initial=start)


def factors_to(max_norm: float, x: np.ndarray) -> np.ndarray | None:
    """min(1, max_norm / ‖row‖) for the rows of (n, d), n > 0; None if a square is not in range."""
    limits = np.finfo(x.dtype)
    low, high = math.sqrt(limits.tiny), math.sqrt(limits.max)
    if not 2 * low < max_norm < high / 2:
        return None
    limit = x.dtype.type(max_norm) ** 2
    with np.errstate(over="ignore"):
        squares = np.vecdot(x, x)
    if not squares.max() < np.inf:
        return None
    # The root of a square is the number that was squared, to the bit: short rows get just 1.
    return (max_norm / np.sqrt(np.maximum(squares, limit))).astype(x.dtype, copy=False)


def shortened(
    x: np.ndarray, max_norm: float, error: Callable[[float], Exception]
) -> np.ndarray | None:
    factors = factors_to(max_norm, x)
    if factors is None:
        return None
    return x if (factors == 1).all() else x * factors[:, None]


def take_rows(table: np.ndarray, rows: np.ndarray, lead: int = 1) -> np.ndarray:
    if not table.flags.c_contiguous:  # `take` and `reshape` would copy all of it
        return table[np.unravel_index(rows, table.shape[:lead])]
    if lead > 1:
        table = table.reshape((math.prod(table.shape[:lead]), *table.shape[lead:]))
    return table.take(rows, axis=0)


def put_rows(table: np.ndarray, rows: Any, values: np.ndarray) -> None:
    """A row is copied as one item, which is far cheaper than as many numbers."""
    nbytes = table[:1].nbytes
    if rows is ... or not nbytes or not len(rows) or not table.flags.c_contiguous:
        table[rows] = values
        return
    row = np.dtype((np.void, nbytes))
    values = np.ascontiguousarray(values, table.dtype)
    table.view(np.uint8).reshape(-1).view(row).put(
        rows, values.view(np.uint8).reshape(-1).view(row)
    )


def sum_duplicates(
    rows: np.ndarray, values: np.ndarray, size: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A stable sort, then sums in the order of appearance: the same input gives the same bits.

    float16 is summed in float32: finite parts may not overflow on the way.
    """
    order, rows = _sort(rows)
    first = np.empty(len(rows), dtype=bool)
    first[:1] = True
    np.not_equal(rows[1:], rows[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    if len(starts) == len(rows):
        return rows, np.take(values, order, axis=0)
    wide = np.float32 if values.dtype == np.float16 else values.dtype
    if values.size <= SMALL:
        sums = np.add.reduceat(np.take(values, order, axis=0), starts, axis=0, dtype=wide)
    else:
        sums = _sum_runs(values, order, starts, wide)
    return rows[starts], sums.astype(values.dtype, copy=False)


def _sort(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The places of `rows` in ascending order of id, equal ids as they came; and the ids so.

    Where both fit, an id and its place make one number, and plain numbers sort several times as
    fast: no two are equal, so no order among equals is there to keep.
    """
    bits = len(rows).bit_length()
    if len(rows) <= FEW or int(rows.max()).bit_length() + bits > 63:
        order = np.argsort(rows, kind="stable")
        return order, rows[order]
    both = (rows << bits) | np.arange(len(rows))
    both.sort()
    return both & ((1 << bits) - 1), both >> bits


def _sum_runs(values: np.ndarray, order: np.ndarray, starts: np.ndarray, wide: Any) -> np.ndarray:
    """Sums of the runs of ``values[order]`` that begin at `starts`.

    `reduceat` pays for each element of each run; most runs are short. So the first few members of
    all runs are added one member at a time, and `reduceat` gets what is left of the long ones.
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
    rows, values = _each_once(rows, values)
    table[rows] += values
    return table


def scatter_rows(rows: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
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
    places: Any = None,
) -> list[np.ndarray]:
    wide = np.promote_types(table.dtype, np.float32)
    arrays, indices = [table, *slots], [rows, *[rows if places is None else places] * len(slots)]

    def run(part: Any, g: np.ndarray) -> tuple[np.ndarray, ...]:
        p, *state = (_rows_in(a, index, part) for a, index in zip(arrays, indices, strict=True))
        numbers = hyper
        if part is not ...:
            numbers = {k: v[part] if np.ndim(v) else v for k, v in hyper.items()}
        return formula(p.astype(wide, copy=False), g.astype(wide, copy=False), *state, **numbers)

    n = len(g) if g.ndim else 1
    size = max(1, BLOCK // max(1, g.nbytes // max(1, n)))
    lead = table.ndim - g.ndim + 1  # axes that address a row
    row_shapes = [a.shape[lead:] for a in arrays]
    if n <= size:
        return checked(formula, run(..., g), g.shape[:1], row_shapes)
    # Block by block the formula's temporaries stay in the cache, and are few.
    new = [np.empty((n, *a.shape[lead:]), a.dtype) for a in arrays]
    for start in range(0, n, size):
        part = slice(start, start + size)
        blocks = checked(formula, run(part, g[part]), g[part].shape[:1], row_shapes)
        for whole, block in zip(new, blocks, strict=True):
            whole[part] = block
    return new


def checked(
    formula: Callable[..., Any],
    new: tuple[np.ndarray, ...],
    rows: tuple[int, ...],
    row_shapes: list[tuple[int, ...]],
) -> list[np.ndarray]:
    """What a formula answered, if it is a new row of the table and of each slot for each row."""
    got, wanted = (
        [tuple(getattr(a, "shape", ())) for a in new],
        [rows + shape for shape in row_shapes],
    )
    if got != wanted:
        text = f"{len(wanted)} arrays of shapes {wanted}"
        raise ShapeError(explain(f"formula {formula.__name__}", text, f"{got}"))
    # A formula may answer what it was given: a view would change when the table is written.
    return [a if a.base is None else a.copy() for a in new]


def plan_update(
    formula: Callable[..., tuple[np.ndarray, ...]],
    rows: Any,
    values: np.ndarray,
    table: np.ndarray,
    slots: list[np.ndarray],
    hyper: dict[str, Any],
    places: Any = None,
    cap: Any = None,
) -> Callable[[], None]:
    at = rows
    if rows is not ...:
        given = rows
        rows, values = sum_duplicates(given, values)
        at = rows
        if places is not None:
            at = np.empty(len(rows), np.int64)
            at[np.searchsorted(rows, given)] = places
    if cap is not None:
        values = cap(values)
    new = update_rows(formula, rows, values, table, slots, hyper, at)

    def write() -> None:
        put_rows(table, rows, new[0])
        for slot, block in zip(slots, new[1:], strict=True):
            put_rows(slot, at, block)

    return write


def late_rows(
    rows: np.ndarray, index: np.ndarray | None, stamps: np.ndarray, now: int, all_rows: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    places = rows if index is None else index[rows] - 1
    if index is not None:
        known = places >= 0
        rows, places = rows[known], places[known]
    last = stamps[places]
    late = last < now
    if not all_rows:
        late &= last > 0
    rows, places, last = rows[late], places[late], last[late]
    # All write their mark, one mark stays.
    marks = -np.arange(1, len(rows) + 1, dtype=np.int32)
    stamps[places] = marks
    once = stamps[places] == marks
    rows, places, last = rows[once], places[once], last[once]
    stamps[places] = last
    return rows, places.astype(np.int64, copy=False), last


def settle_rows(
    formula: Callable[..., tuple[Any, ...]],
    sure: Callable[..., Any],
    rows: np.ndarray,
    places: np.ndarray,
    factors: np.ndarray,
    columns: np.ndarray,
    table: np.ndarray,
    slots: list[np.ndarray],
) -> np.ndarray:
    wide = np.promote_types(table.dtype, np.float32)
    arrays, indices = [table, *slots], [rows, *[places] * len(slots)]
    size = max(1, BLOCK // max(1, math.prod(table.shape[1:]) * wide.itemsize))
    left = []
    with np.errstate(all="ignore"):
        columned = factors.astype(wide).reshape((*factors.shape, *(1,) * (table.ndim - 1)))
        for start in range(0, len(rows), size):
            part = np.arange(start, min(start + size, len(rows)))
            row = [take_rows(a, at[part]) for a, at in zip(arrays, indices, strict=True)]
            row[0] = row[0].astype(wide, copy=False)
            numbers = columned.take(columns[part], axis=1)
            good: Any = sure(row, numbers)
            if not np.all(good):
                good = np.broadcast_to(good, row[0].shape).all(axis=tuple(range(1, table.ndim)))
                left.append(part[~good])
                part, row = part[good], [x[good] for x in row]
                numbers = numbers[:, good]
            new = formula(tuple(row), tuple(numbers))
            for array, at, values in zip(arrays, indices, new, strict=True):
                put_rows(array, at[part], values)
    return np.concatenate(left) if left else np.empty(0, np.int64)


def bag_of(starts: np.ndarray, n: int) -> np.ndarray:
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def embedding_bag(
    table: np.ndarray,
    rows: np.ndarray,
    starts: np.ndarray,
    weights: np.ndarray | None = None,
    mean: bool = False,
) -> np.ndarray:
    taken = take_rows(table, rows)
    numbers = taken.dtype if weights is None else np.result_type(taken, weights)
    dtype = np.result_type(numbers, np.float16) if mean else numbers
    wide = wide_dtype(dtype)
    if weights is not None:
        taken = taken.astype(wide, copy=False) * weights.reshape((-1, *(1,) * (taken.ndim - 1)))
    counts = np.diff(starts)
    full = np.flatnonzero(counts)
    out = np.zeros((len(counts), *table.shape[1:]), dtype)
    if len(full):
        total = np.add.reduceat(taken, starts[full], axis=0, dtype=wide)
        if mean:
            total /= counts[full].astype(wide).reshape((-1, *(1,) * (taken.ndim - 1)))
        out[full] = total
    return out


def row_products(x: np.ndarray, y: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return take_rows(x, rows) @ take_rows(y, columns).swapaxes(-1, -2)


def weighted_rows(w: np.ndarray, y: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """A product of matrices; once more where a weight of 0 met what is not finite."""
    taken = take_rows(y, ids)
    with np.errstate(invalid="ignore"):
        out = w @ taken
    if np.isfinite(out).all():
        return out
    lost = ~np.isfinite(taken).all(axis=2)
    again = np.flatnonzero((lost[:, None] & (w == 0)).any(axis=(1, 2)))
    if len(again):
        weights, rows = w[again][..., None], taken[again][:, None]
        with np.errstate(invalid="ignore"):
            parts = np.where(weights == 0, 0, weights * rows)
            wide = np.promote_types(parts.dtype, np.float32)
            out[again] = parts.sum(axis=2, dtype=wide)
    return out


def logistic_loss(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    loss = log1p_of(np, np.exp(-np.abs(x)))
    loss += np.maximum(x, 0.0)
    return w * (loss - y * x)


def logistic_slope(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    part = np.maximum(small, x >= 0)  # 1 or e**x, over what is 1 + e**-|x|
    small += 1.0
    part /= small
    return w * (part - y)


def _rows_in(array: np.ndarray, index: Any, part: Any) -> np.ndarray:
    """The rows at a part of an index, of which ``...`` is all."""
    if part is not ...:
        if index is ...:
            index = part
        else:
            index = tuple(r[part] for r in index) if isinstance(index, tuple) else index[part]
    return take_rows(array, index) if isinstance(index, np.ndarray) else array[index]
