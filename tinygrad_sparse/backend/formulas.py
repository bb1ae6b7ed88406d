"""An optimizer's own formula, compiled into one loop: gather, compute, write. Floor 1.

A formula is a Python function written for rows, ``formula(p, g, *slots, **hyper) -> (p, *slots)``.
Here the same function is compiled for single numbers, of the types in `elements`, so a result is
NumPy's to the bit, except where exp, log and the like round differently. A formula that uses what
`elements` does not declare, or that is not element by element (a mean over the row, say), does not
compile and runs on NumPy.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from inspect import CO_VARARGS, CO_VARKEYWORDS, getsource
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.errors import NumbaError
from numba.extending import NativeValue, models, overload, register_model, unbox

from . import compiled, elements
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


_bodies: dict[str, Callable[..., Any]] = {}  # formulas by the name of their type
_numbers = itertools.count()  # names for formulas that have no digest


def evaluate(formula: Any, numbers: tuple[Any, ...]) -> Any:
    """The new numbers, compiled in."""


@overload(evaluate)
def _evaluate(formula, numbers):
    body = numba.njit(_bodies[formula.name], error_model="numpy", forceinline=True)
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
    formula: Any, rows: Any, order: Any, starts: Any, places: Any, scales: Any, values: Any,
    arrays: Any, hyper: Any, start: int, stop: int,
) -> None:  # fmt: skip
    """Apply the formula to row rows[j] of each array, with the sum of run j as its gradient.

    The arrays after the first have it at places[j]; no `places`: where the first does. No `rows`:
    all of them. No `starts`: values[j] is the gradient. With `scales`, it is scales[j] times that.
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
        short = len(scales) == 0 or scales[j] == 1
        if run == 1 and short:
            apply(formula, arrays, row, place, values, i, hyper)
            continue
        add_run(values, order, ahead, starts[j], starts[j + 1], total, 0, parts)
        if not short:
            for c in range(width):
                total[0, c] *= scales[j]
        apply(formula, arrays, row, place, total, 0, hyper)


# -- compiling one -------------------------------------------------------------------------------


class Unstable(Exception):
    """A formula that uses something whose value a digest cannot hold."""


_update_unkept = numba.njit(update.py_func, nogil=True, error_model="numpy")
# Part of every digest: numba looks for changes in a kernel's own file, not in those it uses.
_used = getsource(compiled) + getsource(elements)


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
    body = FunctionType(
        code.replace(co_argcount=code.co_argcount + len(settings), co_kwonlyargcount=0),
        formula.__globals__,
        formula.__name__,
        None,
        formula.__closure__,
    )
    try:
        name, loop = digest(formula), update
    except Unstable:
        name, loop = f"number {next(_numbers)}", _update_unkept
    kind, table = Formula(f"{formula.__qualname__} {name}"), rows_of(dtype)
    scales = types.Array(table.dtype, 1, "C")
    tables, numbers = types.UniTuple(table, arrays), types.UniTuple(types.float64, len(settings))
    _bodies[kind.name] = body
    try:
        return loop.compile((kind, ids, places, places, ids, scales, table, tables, numbers, *part))
    except NumbaError:
        return None


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

    return hashlib.sha256(f"{_used} {value(formula)}".encode()).hexdigest()[:16]
