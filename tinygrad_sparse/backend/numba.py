"""The numba adapter: what NumPy computes, by compiled loops where the input is large. Floor 1.

Arrays are NumPy's, and so is every function that is not defined here. numba itself is imported
when the first input comes that is large enough: a small program never waits for it. Which way an
input goes depends on its size and type alone, so the same program gives the same bits every time.
The NumPy adapter is the reference that this one must agree with: tests/test_backend.py.
"""

# mypy: disable-error-code="no-redef"

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache, partial
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from . import numpy as reference
from . import threads
from .numpy import *  # noqa: F403  what is not defined below is NumPy's

FEW, SMALL = 128, 2048  # rows and elements: fewer are not worth loading a compiler for
DENSE = 2**13  # elements of a dense update: fewer are as fast in NumPy
PRODUCTS, REUSED = 2**16, 8  # products that are worth it; of the bytes in them, how many are near
FAR, NARROW = 2**22, 64  # bytes: a table that no near cache holds, a row for NumPy's own loop
REPEAT = 1024  # bytes that are written in the time that a wrongly foretold repeat costs
WIDE, BLOCK = 64, 2**12  # elements that make a row long, and those of short ones taken together
FLOATS = frozenset(map(np.dtype, ("f4", "f8")))
PLAIN = frozenset({float, int, bool})  # hyper-parameters that take on the table's dtype
_INT64, _SINGLE = np.dtype(np.int64), np.dtype(np.float32)


@cache
def _compiled() -> dict[str, ModuleType] | None:
    """The modules that need numba; None, and a warning, where it is installed but does not work."""
    try:
        import numba

        if numba.config.DISABLE_JIT:
            raise ImportError("NUMBA_DISABLE_JIT is set")
        from . import compiled, formulas, products
    except ImportError as error:
        text = f"numba cannot be used, NumPy computes instead: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None
    return {"compiled": compiled, "formulas": formulas, "products": products}


@cache
def _kernel(name: str, dtype: np.dtype, module: str = "compiled") -> Callable[..., Any] | None:
    modules = _compiled()
    return None if modules is None else modules[module].kernel(name, dtype)


def _plain(x: np.ndarray) -> bool:
    return x.flags.c_contiguous and x.flags.aligned


def _large(rows: np.ndarray, values: np.ndarray) -> bool:
    return len(rows) >= FEW and values.size >= SMALL


def _table(x: np.ndarray) -> np.ndarray:
    """`x` as (rows, elements), C-contiguous: a view where it can be one."""
    flat = x if x.ndim == 2 else x.reshape((len(x), math.prod(x.shape[1:])))
    return flat if _plain(flat) else flat.copy()


def take_rows(table: np.ndarray, rows: np.ndarray, lead: int = 1) -> np.ndarray:
    """From a cache by NumPy's own loop; from memory, which is asked for rows ahead of their use."""
    n = rows.size
    if n < FEW or not _plain(table):
        return reference.take_rows(table, rows, lead)
    row = table.shape[lead:]
    d = math.prod(row)
    large, nbytes = d * table.itemsize >= NARROW, 2 * n * d * table.itemsize
    far = large and table.nbytes >= FAR and table.dtype in FLOATS and rows.dtype == _INT64
    if not far and not threads.pays(nbytes):
        return reference.take_rows(table, rows, lead)
    flat, out = table.reshape((math.prod(table.shape[:lead]), d)), np.empty((n, d), table.dtype)
    kernel = (_kernel("take", table.dtype) if far else None) or _take
    threads.split(kernel, (flat, np.ascontiguousarray(rows).reshape(-1), out), n, nbytes)
    return out.reshape(rows.shape + row)


def _take(table: np.ndarray, rows: np.ndarray, out: np.ndarray, start: int, stop: int) -> None:
    table.take(rows[start:stop], 0, out[start:stop], "clip")  # "raise" would write to a copy


def sum_duplicates(
    rows: np.ndarray, values: np.ndarray, size: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Members are added in the order of appearance, whatever the number of threads."""
    wide = np.dtype(np.float32) if values.dtype == np.float16 else values.dtype
    runs = _runs(rows) if _large(rows, values) and wide in FLOATS else None
    if runs is None:
        return reference.sum_duplicates(rows, values)
    unique, _, _ = runs
    if len(unique) < len(rows):
        unique = unique.copy()  # not a view that keeps all of them
    sums = _sums(runs, values.astype(wide, copy=False))
    return unique, sums.astype(values.dtype, copy=False)


Runs = tuple[np.ndarray, np.ndarray, np.ndarray]


def _sums(runs: Runs, values: np.ndarray) -> np.ndarray:
    """The sum of each run."""
    unique, order, starts = runs
    flat, sums = _table(values), np.empty((len(unique), *values.shape[1:]), values.dtype)
    kernel = _kernel("sum_runs", values.dtype)
    assert kernel is not None
    # Half the bytes: the values were mostly just computed, so they come from the cache.
    nbytes = (flat.nbytes + sums.nbytes) // 2
    args = flat, order, starts, _sweeps(runs, values), _table(sums)
    threads.split(kernel, args, len(unique), nbytes)
    return sums


def _sweeps(runs: Runs, values: np.ndarray) -> bool:
    """Whether so many ids repeat, and rows are so short, that a sweep over them all pays."""
    return (len(values) - len(runs[0])) * REPEAT > len(runs[0]) * values[:1].nbytes


def _runs(rows: np.ndarray) -> Runs | None:
    """(unique ids, places sorted by id, where each id's run starts); None: leave it to NumPy."""
    n = len(rows)
    kernel = _kernel("group", _INT64)
    if kernel is None or n >= 2**31:
        return None
    unique, order, starts = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n + 1, np.int32)
    count = kernel(np.ascontiguousarray(rows), order, unique, starts)
    return None if count < 0 else (unique[:count], order, starts)


def scatter_add_rows(table: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    if not _large(rows, values):
        return reference.scatter_add_rows(table, rows, values)
    plan_update(_add, rows, values, table, [], {})()
    return table


def _add(p: Any, g: Any) -> tuple[Any, ...]:
    return (p + g,)


def scatter_rows(rows: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    if not _large(rows, values):
        return reference.scatter_rows(rows, values, size)
    return scatter_add_rows(np.zeros((size, *values.shape[1:]), values.dtype), rows, values)


def embedding_bag(
    table: np.ndarray,
    rows: np.ndarray,
    starts: np.ndarray,
    weights: np.ndarray | None = None,
    mean: bool = False,
) -> np.ndarray:
    d = math.prod(table.shape[1:])
    large = len(rows) >= FEW and len(rows) * d >= SMALL
    usable = large and table.dtype in FLOATS and _plain(table)
    same = weights is None or weights.dtype == table.dtype
    kernel = _kernel("bag", table.dtype) if usable and same else None
    if kernel is None:
        return reference.embedding_bag(table, rows, starts, weights, mean)
    out = np.empty((len(starts) - 1, *table.shape[1:]), table.dtype)
    given = np.empty(0, table.dtype) if weights is None else weights
    args = (_table(table), *map(np.ascontiguousarray, (rows, starts, given)), mean, _table(out))
    threads.split(kernel, args, len(out), len(rows) * d * table.itemsize)
    return out


# -- products of looked-up rows --------------------------------------------------------------------


def row_products(x: np.ndarray, y: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    (S, m), n = rows.shape, columns.shape[1]
    kernel = _of_groups("row_products", S * m * n * x.shape[1], (x, y), (rows, columns))
    if kernel is None:
        return reference.row_products(x, y, rows, columns)
    out = np.empty((S, m, n), x.dtype)
    threads.split(kernel, (x, y, rows, columns, out), S, out.nbytes * x.shape[1] // REUSED)
    return out


def weighted_rows(w: np.ndarray, y: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """What has a weight of 0 is left out, so a NaN in it does not show."""
    (S, m, n), d = w.shape, y.shape[1]
    kernel = (
        _of_groups("weighted_rows", S * m * n * d, (y,), (ids,)) if w.dtype == y.dtype else None
    )
    if kernel is None or not w.flags.aligned:
        return reference.weighted_rows(w, y, ids)
    out = np.empty((S, m, d), y.dtype)
    threads.split(kernel, (w, y, ids, out.reshape(S * m, d)), S, w.nbytes * d // REUSED)
    return out


def _of_groups(
    name: str, products: int, tables: tuple[np.ndarray, ...], ids: tuple[np.ndarray, ...]
) -> Callable[..., Any] | None:
    """The kernel for rows of these tables, if they are such that it pays."""
    dtype = tables[0].dtype
    usable = products >= PRODUCTS and dtype in FLOATS and all(map(_plain, (*tables, *ids)))
    if not usable or any(table.dtype != dtype for table in tables):
        return None
    return _kernel(name, dtype, "products")


def logistic_loss(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return _by_element("logistic_loss", x, y, w)


def logistic_slope(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return _by_element("logistic_slope", x, y, w)


def _by_element(name: str, *arrays: np.ndarray) -> np.ndarray:
    """An elementwise kernel, for large float32 arrays of one shape."""
    x = arrays[0]
    alike = all(
        type(a) is np.ndarray and a.dtype == _SINGLE and a.shape == x.shape and _plain(a)
        for a in arrays
    )
    kernel = _kernel(name, _SINGLE, "products") if alike and x.size >= SMALL else None
    if kernel is None:
        return getattr(reference, name)(*arrays)
    out = np.empty(x.shape, _SINGLE)
    flat = [a.reshape(-1) for a in (*arrays, out)]
    threads.split(kernel, tuple(flat), x.size, 4 * out.nbytes)
    return out


# -- updates -------------------------------------------------------------------------------------

Loop = Callable[..., Any]
_loops: WeakKeyDictionary[Callable[..., Any], dict[Any, Loop | None]] = WeakKeyDictionary()
_NO_IDS, _NO_PLACES = np.empty(0, np.int64), np.empty(0, np.int32)
_EVERY_ROW = _NO_IDS, _NO_PLACES, _NO_PLACES, _NO_IDS


def plan_update(
    formula: Callable[..., tuple[Any, ...]],
    rows: Any,
    values: np.ndarray,
    table: np.ndarray,
    slots: list[np.ndarray],
    hyper: dict[str, Any],
    places: Any = None,
    cap: Any = None,
) -> Callable[[], None]:
    """The formula is compiled into one loop that gathers, computes and writes, in place.

    Nothing in it can fail. Repeats are summed in the same loop, or before it if they are many.
    """
    loop = _loop(formula, rows, values, (table, *slots), hyper, together=places is None)
    if loop is not None and rows is ...:
        values = values if cap is None else cap(values)
        return _ready(loop, formula, _EVERY_ROW, values, [table, *slots], hyper)
    runs = None if loop is None else _runs(rows)
    if loop is None or runs is None or runs[0].item(-1) >= len(table):  # NumPy raises then
        return reference.plan_update(formula, rows, values, table, slots, hyper, places, cap)
    unique, order, starts = runs
    at = _NO_IDS if places is None else places[order[starts[: len(unique)]]].astype(np.int64)
    if cap is not None or _sweeps(runs, values):
        values = _sums(runs, values)
        values = values if cap is None else _shortened(values, cap)
        order = starts = _NO_PLACES
    return _ready(loop, formula, (unique, order, starts, at), values, [table, *slots], hyper)


def _shortened(sums: np.ndarray, cap: Any) -> np.ndarray:
    """What `cap` makes of sums that nobody else has: where it can be, in place."""
    flat, kernel = _table(sums), _kernel("shorten", sums.dtype)
    factors = reference.factors_to(cap.max_norm, flat)
    if kernel is None or factors is None:
        return cap(sums)
    threads.split(kernel, (flat, factors), len(flat), flat.nbytes)
    return sums


def update_rows(
    formula: Callable[..., tuple[Any, ...]],
    rows: Any,
    g: np.ndarray,
    table: np.ndarray,
    slots: list[np.ndarray],
    hyper: dict[str, Any],
    places: Any = None,
) -> list[np.ndarray]:
    places = rows if places is None else places
    loop = _loop(formula, rows, g, (table, *slots), hyper, together=places is rows)
    if loop is None:
        return reference.update_rows(formula, rows, g, table, slots, hyper, places)
    if rows is ...:
        new = [a.copy() for a in (table, *slots)]
    else:
        new = [take_rows(table, rows), *(take_rows(a, places) for a in slots)]
    _ready(loop, formula, _EVERY_ROW, g, new, hyper)()
    return new


def _ready(
    loop: Loop,
    formula: Callable[..., Any],
    runs: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    values: np.ndarray,
    arrays: list[np.ndarray],
    hyper: dict[str, Any],
) -> Callable[[], None]:
    """A compiled formula that has only to be called to change `arrays` in place."""
    flat, *tables = map(_whole if runs is _EVERY_ROW else _table, (values, *arrays))
    numbers = tuple([float(hyper[name]) for name in keywords(formula)])
    count = len(flat) if runs is _EVERY_ROW else len(runs[0])
    nbytes = flat.nbytes + 2 * len(tables) * count * flat.shape[1] * flat.itemsize
    args = (None, *runs, flat, tuple(tables), numbers)
    return partial(threads.split, loop, args, count, nbytes)


def _whole(x: np.ndarray) -> np.ndarray:
    """`_table` for an array whose every row changes: short rows are taken together."""
    if math.prod(x.shape[1:]) >= WIDE:
        return _table(x)
    width = math.gcd(x.size, BLOCK)  # rows enough to share out, if the size can be cut so
    return _table(x.reshape((-1, width if width >= WIDE else x.size)))


def keywords(f: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's keyword-only arguments, in order."""
    code = f.__code__
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]


def _loop(
    formula: Callable[..., Any],
    rows: Any,
    values: np.ndarray,
    arrays: tuple[np.ndarray, ...],
    hyper: dict[str, Any],
    together: bool = True,
) -> Loop | None:
    """The compiled loop of a formula; None for what is NumPy's to compute.

    That is: what is small, arrays of different shapes or dtypes or not in one piece, settings that
    are not plain numbers, and formulas that do not compile. Arrays that are not `together` have
    rows of one shape, but not as many.
    """
    dtype, shape = values.dtype, arrays[0].shape
    if rows is ...:
        large, wanted = values.size >= DENSE, shape
    elif isinstance(rows, np.ndarray):
        large, wanted = _large(rows, values), (len(rows), *shape[1:])
    else:
        return None
    if not large or values.shape != wanted or dtype not in FLOATS:
        return None
    for a in arrays:
        if a.dtype != dtype or a.shape[1:] != shape[1:] or not _plain(a):
            return None
        if together and a.shape != shape:
            return None
    if type(formula) is not FunctionType or set(keywords(formula)) != set(hyper):
        return None
    if not PLAIN.issuperset(map(type, hyper.values())):
        return None
    known = _loops.get(formula)
    if known is None:
        known = _loops[formula] = {}
    key = dtype, len(arrays)
    if key not in known:
        view = _whole if rows is ... else _table
        known[key] = _compile(formula, view(values), list(map(view, arrays)), hyper)
    return known[key]


def _compile(
    formula: Callable[..., Any], g: np.ndarray, tables: list[np.ndarray], hyper: dict[str, Any]
) -> Loop | None:
    """The compiled loop, if it gives what NumPy gives on some of the numbers at hand."""
    modules, names = _compiled(), keywords(formula)
    loop = modules and modules["formulas"].compile_update(formula, g.dtype, len(tables), names)
    if not loop:
        return None
    n = min(len(g), len(tables[0]), 8)
    g, *old = (a[:n, :64].copy() for a in (g, *tables))
    with np.errstate(all="ignore"):
        wanted = formula(old[0], g, *old[1:], **hyper)
    numbers = tuple([float(hyper[name]) for name in names])
    loop(None, *_EVERY_ROW, g, tuple(old), numbers, 0, n)
    return loop if _same(old, wanted) else None


def _same(got: Any, wanted: Any) -> bool:
    close = 1e-5 if got[0].dtype == np.float32 else 1e-12
    return all(np.allclose(a, b, close, 0, True) for a, b in zip(got, wanted, strict=True))


# -- rows at rest --------------------------------------------------------------------------------


def late_rows(
    rows: np.ndarray, index: np.ndarray | None, stamps: np.ndarray, now: int, all_rows: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    kernel = _kernel("late", _INT64) if len(rows) >= SMALL else None
    if kernel is None:
        return reference.late_rows(rows, index, stamps, now, all_rows)
    n = len(rows)
    late, places, last = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32)
    index_ = _NO_PLACES if index is None else index
    n = kernel(np.ascontiguousarray(rows), index_, stamps, now, all_rows, late, places, last)
    if n < 0:  # NumPy raises
        return reference.late_rows(rows, index, stamps, now, all_rows)
    return late[:n], places[:n], last[:n]


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
    """Both functions are compiled into one loop, as an optimizer's formula is."""
    arrays = table, *slots
    dtype, shape = table.dtype, table.shape[1:]
    usable = all(a.dtype == dtype and a.shape[1:] == shape and _plain(a) for a in arrays)
    large = len(rows) >= FEW and len(rows) * math.prod(shape) >= SMALL
    if not usable or not large or dtype not in FLOATS:
        return reference.settle_rows(formula, sure, rows, places, factors, columns, table, slots)
    with np.errstate(over="ignore"):
        numbers = tuple([line.reshape(-1, 1) for line in factors.astype(dtype)])
    ids, flat = [*map(np.ascontiguousarray, (rows, places))], tuple(map(_table, arrays))
    known = _loops.setdefault(formula, {})
    key = sure, dtype, len(arrays), len(numbers)
    if key not in known:
        known[key] = _compile_settle(formula, sure, ids, numbers, columns, flat)
    loop = known[key]
    if loop is None:
        return reference.settle_rows(formula, sure, rows, places, factors, columns, table, slots)
    left = np.zeros(len(rows), bool)
    nbytes = 2 * len(flat) * len(rows) * flat[0][:1].nbytes
    args = (None, None, *ids, numbers, columns, flat, left)
    threads.split(loop, args, len(rows), nbytes)
    return np.flatnonzero(left)


def _compile_settle(
    formula: Callable[..., Any], sure: Callable[..., Any], ids: list[np.ndarray],
    numbers: tuple[np.ndarray, ...], columns: np.ndarray, arrays: tuple[np.ndarray, ...],
) -> Loop | None:  # fmt: skip
    """The compiled loop, if it gives what NumPy gives on some of the rows at hand."""
    modules, dtype = _compiled(), arrays[0].dtype
    loop = modules and modules["formulas"].compile_settle(
        formula, sure, dtype, len(arrays), len(numbers)
    )
    if not loop:
        return None
    rows, places = (x[:8] for x in ids)
    got = [a[at, :64] for a, at in zip(arrays, [rows, *[places] * len(arrays)], strict=False)]
    wanted = [a.copy() for a in got]
    each, columns = np.arange(len(rows)), columns[:8].copy()
    loop(None, None, each, each, numbers, columns, tuple(got), left := np.zeros(8, bool), 0, 8)
    factors = np.stack(numbers)[:, :, 0]
    wanted_left = reference.settle_rows(
        formula, sure, each, each, factors, columns, wanted[0], wanted[1:]
    )
    fits = np.array_equal(np.flatnonzero(left), wanted_left) and _same(got, wanted)
    return loop if fits else None
