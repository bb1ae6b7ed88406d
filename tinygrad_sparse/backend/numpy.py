"""The NumPy adapter: the readable reference that every other adapter must agree with.

Floor 1. Rows are addressed by int64 arrays that were checked at the lookup; nothing here checks
them again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_sparse.errors import ShapeError, explain

from .log1p_of import log1p_of
from .precision import wide_dtype

BLOCK = 2**18  # bytes of gradient that an optimizer's formula is run on at a time
FEW, SMALL, ROUNDS = 256, 2**14, 4  # rows, elements, members: see `sum_duplicates`
xp = np
ndarray = np.ndarray
device = "cpu"
records = False  # what it computes is not on a tape


def asarray(x: Any) -> np.ndarray:
    """`x` as an ndarray; NumPy's own scalars, which 0-d results come as, become 0-d arrays."""
    return np.asarray(x)


def copy(x: np.ndarray) -> np.ndarray:
    """A contiguous copy that only the caller holds."""
    return np.array(x, order="C")


def read_only(x: Any) -> np.ndarray:
    """A view of `x` that cannot be written to."""
    view = np.asarray(x).view()
    view.setflags(write=False)
    return view


def to_host(x: np.ndarray) -> np.ndarray:
    """`x` where NumPy can read it."""
    return x


def rng(seed: int) -> np.random.Generator:
    """A random generator on this device."""
    return np.random.default_rng(seed)


def broadcast_to(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A read-only view of `x` repeated to `shape`.

    One number, as it is below a sum, needs no search for what fits: a tenth of NumPy's time.
    """
    if x.size != 1 or x.ndim > len(shape) or min(shape, default=0) < 0:
        return np.broadcast_to(x, shape)
    view = np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    view.setflags(write=False)
    return view


def twice_product(g: np.ndarray, x: np.ndarray) -> np.ndarray:
    """2·g·x, which overflows only if that does.

    One pass where g is one small number everywhere, as it is below a sum or a mean.
    """
    if g.size and not any(g.strides) and abs(one := g.item(0)) <= 1.0:
        return (2.0 * one) * x
    product = g * x
    product += product
    return product


def take_rows(table: np.ndarray, rows: np.ndarray, lead: int = 1) -> np.ndarray:
    """``table[rows]``; `rows` of any rank, ids into the first `lead` axes flattened."""
    if not table.flags.c_contiguous:  # `take` and `reshape` would copy all of it
        return table[np.unravel_index(rows, table.shape[:lead])]
    if lead > 1:
        table = table.reshape((math.prod(table.shape[:lead]), *table.shape[lead:]))
    return table.take(rows, axis=0)


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
    places: Any = None,
) -> list[np.ndarray]:
    """The new rows of `table` and of its `slots` under an optimizer's formula; writes nothing.

    `rows` is an index of the first axis, or of several, or ``...`` for every row; `places` is where
    the slots have these rows, if elsewhere. A number in `hyper` may be an array with one for each
    row. float16 rows are computed in float32, as their slots are kept: there ε is not 0.
    """
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
        return _checked(formula, run(..., g), g.shape[:1], row_shapes)
    # Block by block the formula's temporaries stay in the cache, and are few.
    new = [np.empty((n, *a.shape[lead:]), a.dtype) for a in arrays]
    for start in range(0, n, size):
        part = slice(start, start + size)
        blocks = _checked(formula, run(part, g[part]), g[part].shape[:1], row_shapes)
        for whole, block in zip(new, blocks, strict=True):
            whole[part] = block
    return new


def _checked(
    formula: Callable[..., Any],
    new: tuple[np.ndarray, ...],
    rows: tuple[int, ...],
    row_shapes: list[tuple[int, ...]],
) -> list[np.ndarray]:
    """What a formula answered, if it is a new row of the table and of each slot for each row."""
    got, wanted = [np.shape(a) for a in new], [rows + shape for shape in row_shapes]
    if got != wanted:
        text = f"{len(wanted)} arrays of shapes {wanted}"
        raise ShapeError(explain(f"formula {formula.__name__}", text, f"{got}"))
    return list(new)


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
    """Get an update of some rows of `table` and of its `slots` ready: calling the answer writes it.

    Whatever can fail does so here, so that several tables change together or not at all. `rows` are
    ids of the first axis, repeated ones get the sum of their `values`; or ``...`` for every row.
    `places`, one for each of `rows`, is where the slots have them, if elsewhere. `cap` shortens the
    sums that are longer than its `max_norm`: see optim/clip.py.
    """
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
    """Those of `rows` whose stamp is before `now`, each once; their places and their stamps.

    A row's stamp is at its place, which is ``index[row] - 1``, and nowhere if that is -1; no
    `index`: the row itself. Stamps of 0 count only if `all_rows` do.
    """
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
    """Give rows of `table`, and of its `slots` at `places`, their new numbers, in place.

    ``formula((p, *slots), factors)`` answers them, of the row's column of `factors` (k, n), which
    `columns` tells. Rows with an element of which ``sure`` of the same is False stay as they are:
    answers which of `rows` do. Each row is there once. float16 is computed in float32.
    """
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


def embedding_bag(
    table: np.ndarray,
    rows: np.ndarray,
    starts: np.ndarray,
    weights: np.ndarray | None = None,
    mean: bool = False,
) -> np.ndarray:
    """For each bag the sum of its rows of `table`, each times its weight; an empty one gives 0.

    Shapes: table (V, *row), rows (n,), starts (B + 1,) -> (B, *row): bag b is
    ``rows[starts[b]:starts[b + 1]]``. With `mean` the sum is divided by how many rows it is of.
    float16 is summed in float32.
    """
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
    """x[rows[s, i]] · y[columns[s, j]]: ids (S, m) and (S, n) of tables (V, d) -> (S, m, n)."""
    return take_rows(x, rows) @ take_rows(y, columns).swapaxes(-1, -2)


def weighted_rows(w: np.ndarray, y: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The sum over j of w[s, i, j] · y[ids[s, j]]: (S, m, n), (V, d) and (S, n) -> (S, m, d)."""
    return w @ take_rows(y, ids)


def logistic_loss(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """w · (log(1 + e**x) - y·x)."""
    loss = log1p_of(np, np.exp(-np.abs(x)))
    loss += np.maximum(x, 0.0)
    return w * (loss - y * x)


def logistic_slope(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """w · (1 / (1 + e**-x) - y)."""
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
