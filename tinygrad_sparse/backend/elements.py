"""Numbers of a table, for compiled code: floats that Python's floats do not widen. Floor 1.

NumPy lets a Python float take on the dtype of the array it meets; numba widens the array's float32
to the Python float's 64 bits. `Element` is a type of its own, so that compiled formulas follow
NumPy: an element and a plain float give an element, plain floats among themselves are Python's.
Only what is declared here has a meaning for elements.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import (
    intrinsic,
    lower_builtin,
    models,
    register_model,
    type_callable,
)

LINE = 64  # bytes that memory hands over at a time

UNARY: tuple[Any, ...] = (
    operator.neg, operator.pos, abs, np.negative, np.absolute, np.square, np.sign,
    np.sqrt, np.exp, np.expm1, np.log, np.log1p, np.tanh,
)  # fmt: skip
BINARY: tuple[Any, ...] = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow,
    np.add, np.subtract, np.multiply, np.divide, np.power, np.maximum, np.minimum,
)  # fmt: skip
COMPARISONS: tuple[Any, ...] = (
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
)


class Element(types.Type):
    """A number of a table: `dtype` in memory, and in whatever is computed with it."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Element({dtype})")


@register_model(Element)
class _ElementModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, manager.lookup(kind.dtype).get_value_type())


def _element_of(kinds: Sequence[Any]) -> Any:
    return next((kind for kind in kinds if isinstance(kind, Element)), None)


# -- arithmetic ----------------------------------------------------------------------------------


def _declare(f: Callable[..., Any], arity: int, boolean: bool = False) -> None:
    """``f`` of elements and plain numbers: all take the elements' dtype, as in NumPy."""

    def result(*kinds: Any) -> Any:
        kind = _element_of(kinds)
        return types.boolean if boolean and kind is not None else kind

    type_callable(f)(
        (lambda context: lambda x: result(x))
        if arity == 1
        else (lambda context: lambda x, y: result(x, y))
    )

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        dtype = _element_of(signature.args).dtype
        numbers = [
            _as_dtype(context, builder, a, kind, dtype)
            for a, kind in zip(args, signature.args, strict=True)
        ]
        typing = context.typing_context
        function = typing.resolve_value_type(f)
        plain = function.get_call_type(typing, (dtype,) * arity, {})
        value = context.get_function(function, plain)(builder, numbers)
        return context.cast(builder, value, plain.return_type, types.boolean if boolean else dtype)

    pairs = [(Element, Element), (Element, types.Any), (types.Any, Element)]
    for kinds in [(Element,)] if arity == 1 else pairs:
        lower_builtin(f, *kinds)(lower)


def _as_dtype(context: Any, builder: Any, value: Any, kind: Any, dtype: Any) -> Any:
    return value if isinstance(kind, Element) else context.cast(builder, value, kind, dtype)


for _f in UNARY:
    _declare(_f, 1)
for _f in BINARY:
    _declare(_f, 2)
for _f in COMPARISONS:
    _declare(_f, 2, boolean=True)


@type_callable(np.where)
def _type_where(context: Any) -> Any:
    return lambda condition, x, y: _element_of((x, y))


@lower_builtin(np.where, types.Boolean, types.Any, types.Any)
def _where(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    dtype = signature.return_type.dtype
    pair = zip(args[1:], signature.args[1:], strict=True)
    x, y = (_as_dtype(context, builder, a, kind, dtype) for a, kind in pair)
    return builder.select(args[0], x, y)


# -- rows of several arrays ------------------------------------------------------------------------


def _views(context: Any, builder: Any, kind: Any, value: Any) -> list[tuple[Any, Any]]:
    """(type, view) of an array, or of each array of a tuple."""
    if not isinstance(kind, types.BaseTuple):
        return [(kind, context.make_array(kind)(context, builder, value))]
    return [
        (k, context.make_array(k)(context, builder, builder.extract_value(value, n)))
        for n, k in enumerate(kind)
    ]


def _place(context: Any, builder: Any, kind: Any, view: Any, *index: Any) -> Any:
    return cgutils.get_item_pointer(context, builder, kind, view, list(index), wraparound=False)


@intrinsic
def read(typing, arrays, row, place, column):  # type: ignore[no-untyped-def]  # numba types it
    """The numbers at `column` of a row of the first array and of a `place` of the others."""
    result = types.UniTuple(Element(arrays.dtype.dtype), len(arrays))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers = []
        for n, (kind, view) in enumerate(_views(context, builder, signature.args[0], args[0])):
            place = _place(context, builder, kind, view, args[2 if n else 1], args[3])
            numbers.append(context.unpack_value(builder, kind.dtype, place))
        return context.make_tuple(builder, signature.return_type, numbers)

    return result(arrays, types.intp, types.intp, types.intp), generate


@intrinsic
def write(typing, arrays, row, place, column, new):  # type: ignore[no-untyped-def]  # numba types it
    """Put ``new[k]`` where `read` finds the number of array k."""
    if len(new) != len(arrays):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        views = _views(context, builder, signature.args[0], args[0])
        for n, (kind, view) in enumerate(views):
            number = builder.extract_value(args[4], n)
            value = _as_dtype(context, builder, number, signature.args[4][n], kind.dtype)
            place = _place(context, builder, kind, view, args[2 if n else 1], args[3])
            context.pack_value(builder, kind.dtype, value, place)
        return context.get_dummy_value()

    return types.void(arrays, types.intp, types.intp, types.intp, new), generate


@intrinsic
def prefetch(typing, arrays, row, place):  # type: ignore[no-untyped-def]  # numba types it
    """Ask memory for a row of an array; for the same of the first of a tuple, `place` of others."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer, number, number, number]),
            "llvm.prefetch.p0",
        )
        reading, keep, data = (ir.Constant(number, n) for n in (0, 3, 1))
        for n, (kind, view) in enumerate(_views(context, builder, signature.args[0], args[0])):
            row, d = args[2 if n else 1], builder.extract_value(view.shape, 1)
            columns = context.get_constant(types.intp, 0), d
            begin, end = (
                builder.ptrtoint(_place(context, builder, kind, view, row, column), d.type)
                for column in columns
            )
            # A row need not begin where a line does: it may lie in one line more than it fills.
            line, start = ir.Constant(d.type, LINE), ir.Constant(d.type, -LINE)
            with cgutils.for_range_slice(builder, builder.and_(begin, start), end, line) as (
                address,
                _,
            ):
                place = builder.inttoptr(address, pointer)
                builder.call(function, [place, reading, keep, data])
        return context.get_dummy_value()

    return types.void(arrays, types.intp, types.intp), generate
