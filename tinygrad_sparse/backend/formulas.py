"""An optimizer's own formula, compiled into one loop: gather, compute, write. Floor 1.

A formula is a Python function written for rows, ``formula(p, g, *slots, **hyper) -> (p, *slots)``.
Here the same function is compiled for single numbers, of the types in `elements`, so a result is
NumPy's to the bit, except where exp, log and the like round differently. A formula that uses what
`elements` does not declare, or that is not element by element (a mean over the row, say), does not
compile and runs on NumPy.
"""

from __future__ import annotations

import dis
import hashlib
import itertools
from collections.abc import Callable
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.errors import NumbaError
from numba.extending import NativeValue, models, overload, register_model, unbox

from .compiled import LEVELS, add_run, ids, jit, part, places, rows_ahead, rows_of
from .elements import prefetch, read, write
from .numba import keywords

# -- the loop ------------------------------------------------------------------------------------


class Formula(types.Type):
    """A formula as an argument: the type says which, so that each has its own compiled loop.

    Its name holds a digest of the code, not an address: that is what lets numba find the loop on
    disk again in another process, and never find an older version of the formula.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=f"Formula({name})")


@register_model(Formula)
class _FormulaModel(models.OpaqueModel):
    pass


@unbox(Formula)
def _unbox(kind: Any, value: Any, c: Any) -> NativeValue:
    return NativeValue(c.context.get_dummy_value())


_bodies: dict[str, Any] = {}  # formulas, to be compiled, by the name of their type
_numbers = itertools.count()  # names for formulas that have no digest


def evaluate(formula: Any, numbers: tuple[Any, ...]) -> Any:
    """The new numbers, compiled in."""


@overload(evaluate)
def _evaluate(formula, numbers):
    body = _bodies[formula.name]
    return lambda formula, numbers: body(*numbers)


@numba.njit(error_model="numpy", forceinline=True)
def apply(formula: Any, arrays: Any, row: int, place: int, g: Any, i: int, hyper: Any) -> None:
    """The formula on a row of the first array and a place of the others, by row i of g."""
    for c in range(g.shape[1]):
        old = read(arrays, row, place, c)
        numbers = (old[0], *read((g,), i, i, c), *old[1:], *hyper)
        write(arrays, row, place, c, evaluate(formula, numbers))


@jit
def update(
    formula: Any, rows: Any, order: Any, starts: Any, places: Any, values: Any, arrays: Any,
    hyper: Any, start: int, stop: int,
) -> None:  # fmt: skip
    """Apply the formula to row rows[j] of each array, with the sum of run j as its gradient.

    The arrays after the first have it at places[j]; no `places`: where the first does. No `rows`:
    all of them. No `starts`: values[j] is the gradient.
    """
    ahead = rows_ahead(values)
    width = values.shape[1] if len(starts) else 0  # of sums; a whole table may be one row
    total = np.empty((1, width), values.dtype)
    parts = np.empty((LEVELS, width), values.dtype)
    for j in range(start, stop):
        row, i, run = j, j, 1
        if len(rows):
            row = rows[j]
            if j + ahead < stop:
                soon = rows[j + ahead]
                prefetch(arrays, soon, places[j + ahead] if len(places) else soon)
        place = places[j] if len(places) else row
        if len(starts):
            i, run = order[starts[j]], starts[j + 1] - starts[j]
            if starts[j] + ahead < len(order):
                prefetch(values, order[starts[j] + ahead], 0)
        if run == 1:
            apply(formula, arrays, row, place, values, i, hyper)
            continue
        add_run(values, order, ahead, starts[j], starts[j + 1], total, 0, parts)
        apply(formula, arrays, row, place, total, 0, hyper)


@numba.njit(error_model="numpy", forceinline=True)
def holds(sure: Any, arrays: Any, row: int, place: int, factors: Any) -> bool:
    """Whether `sure` is True of all elements."""
    result = True
    for c in range(arrays[0].shape[1]):
        result &= evaluate(sure, (read(arrays, row, place, c), factors))
    return result


@jit
def settle(
    formula: Any, sure: Any, rows: Any, places: Any, factors: Any, columns: Any, arrays: Any,
    left: Any, start: int, stop: int,
) -> None:  # fmt: skip
    """The formula on row rows[j] of the first array and places[j] of the others, by its factors.

    Where `sure` does not hold, nothing changes but left[j]. `factors` is a tuple of (n, 1) arrays.
    """
    ahead = rows_ahead(arrays[0])
    for j in range(start, stop):
        if j + ahead < stop:
            prefetch(arrays, rows[j + ahead], places[j + ahead])
        row, place = rows[j], places[j]
        numbers = read(factors, columns[j], columns[j], 0)
        if holds(sure, arrays, row, place, numbers):
            for c in range(arrays[0].shape[1]):
                new = evaluate(formula, (read(arrays, row, place, c), numbers))
                write(arrays, row, place, c, new)
        else:
            left[j] = True


# -- compiling one -------------------------------------------------------------------------------


class Unstable(Exception):
    """A formula that uses something whose value a digest cannot hold."""


class Refused(Exception):
    """A formula that may not be compiled."""


_unkept = {
    loop: numba.njit(loop.py_func, nogil=True, error_model="numpy") for loop in (update, settle)
}
_flags = types.Array(types.boolean, 1, "C")


def compile_update(
    formula: Callable[..., Any], dtype: np.dtype, arrays: int, settings: tuple[str, ...]
) -> Callable[..., Any] | None:
    """`update` for a formula, so many arrays, the table being the first, and these settings.

    None if the formula cannot be compiled, or does not take just these.
    """
    if type(formula) is not FunctionType or keywords(formula) != settings:
        return None
    code = formula.__code__
    if code.co_argcount != arrays + 1 or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
        return None
    # The same function, with its keyword arguments made positional.
    code = code.replace(co_argcount=code.co_argcount + len(settings), co_kwonlyargcount=0)
    table = rows_of(dtype)
    tables, numbers = types.UniTuple(table, arrays), types.UniTuple(types.float64, len(settings))
    return _compile(
        update, {formula: code}, (ids, places, places, ids, table, tables, numbers, *part)
    )


def compile_settle(
    formula: Callable[..., Any], sure: Callable[..., Any], dtype: np.dtype, arrays: int,
    factors: int,
) -> Callable[..., Any] | None:  # fmt: skip
    """`settle` for a formula and where it holds, so many arrays, the table first, and factors.

    None if they cannot be compiled.
    """
    table = rows_of(dtype)
    tables, numbers = types.UniTuple(table, arrays), types.UniTuple(table, factors)
    codes = {formula: formula.__code__, sure: sure.__code__}
    return _compile(settle, codes, (ids, ids, numbers, ids, tables, _flags, *part))


def _compile(
    loop: Any, formulas: dict[Any, CodeType], arguments: tuple[Any, ...]
) -> Callable[..., Any] | None:
    """`loop` for formulas, of which the code may have been changed, and more arguments."""
    kinds = []
    try:
        for formula, code in formulas.items():
            try:
                name = digest(formula)
            except Unstable:
                name, loop = f"number {next(_numbers)}", _unkept.get(loop, loop)
            kinds.append(Formula(f"{formula.__qualname__} {name}"))
            _bodies[kinds[-1].name] = _inlined(formula, code)
        return loop.compile((*kinds, *arguments))
    except (NumbaError, Refused):
        return None


def _inlined(f: FunctionType, code: CodeType, within: tuple[Any, ...] = ()) -> Any:
    """A function to be compiled into who calls it, with the functions that it refers to."""
    if f in within:
        raise Refused("it calls itself")
    steps = list(dis.get_instructions(code))
    if any(step.opname == "RAISE_VARARGS" for step in steps):
        raise Refused("in the middle of the writing nothing may fail any more")
    names = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}

    def known(x: Any) -> Any:
        return _inlined(x, x.__code__, (*within, f)) if type(x) is FunctionType else x

    own = {name: known(f.__globals__[name]) for name in names if name in f.__globals__}
    cells = tuple([CellType(known(cell.cell_contents)) for cell in f.__closure__ or ()])
    copy = FunctionType(code, {**f.__globals__, **own}, f.__name__, f.__defaults__, cells)
    return numba.njit(copy, error_model="numpy", forceinline=True)


def digest(formula: FunctionType) -> str:
    """A short name for what a function computes: its code and the values that it refers to."""
    seen: set[int] = set()

    def value(x: Any) -> str:
        if type(x) is FunctionType:
            if id(x) in seen:
                return "itself"
            seen.add(id(x))
            cells = [value(cell.cell_contents) for cell in x.__closure__ or ()]
            names = [f"{n}={value(x.__globals__[n])}" for n in x.__code__.co_names
                     if n in x.__globals__]  # fmt: skip
            return f"{text(x.__code__)} {names} {cells}"
        if isinstance(x, ModuleType):
            return x.__name__
        if x is None or isinstance(x, (bool, int, float, str)):
            return repr(x)
        raise Unstable

    def text(code: CodeType) -> str:
        constants = [text(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
        return f"{code.co_code!r} {code.co_names} {code.co_varnames} {code.co_freevars} {constants}"

    return hashlib.sha256(value(formula).encode()).hexdigest()[:16]
