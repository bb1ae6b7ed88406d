"""Dot products and weighted sums of rows, for compiled code: several numbers at a time. Floor 1.

A compiler may not reorder sums of floats, so it adds up a dot product one number after the other.
Here the order is chosen: a sum has a part for each lane of a vector of LANES bytes, and parts are
added by halves at the end. As it is written out, it is the same on every machine whose processor
multiplies and adds in one instruction; without one, the last digits may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 32  # bytes that are computed with at once
HELD = 12, 8, 4, 1  # vectors of a sum that stay in registers at once: as many as there are


class _Vector:
    """Code for vectors of `lanes` numbers that lie next to each other; one lane: for numbers."""

    def __init__(self, builder: Any, number: Any, itemsize: int, lanes: int) -> None:
        self.builder, self.number, self.itemsize, self.lanes = builder, number, itemsize, lanes
        self.type = number if lanes == 1 else ir.VectorType(number, lanes)

    def zero(self) -> Any:
        return ir.Constant(self.type, 0.0 if self.lanes == 1 else [0.0] * self.lanes)

    def _at(self, pointer: Any, column: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(pointer, [column]), self.type.as_pointer())

    def load(self, pointer: Any, column: Any) -> Any:
        return self.builder.load(self._at(pointer, column), align=self.itemsize)

    def store(self, value: Any, pointer: Any, column: Any) -> None:
        self.builder.store(value, self._at(pointer, column), align=self.itemsize)

    def filled(self, number: Any) -> Any:
        """The number in every lane."""
        if self.lanes == 1:
            return number
        first = ir.Constant(ir.IntType(32), 0)
        one = self.builder.insert_element(ir.Constant(self.type, ir.Undefined), number, first)
        return self._chosen(one, [0] * self.lanes)

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """a·b + c, rounded once where the processor has an instruction for it."""
        lanes = "" if self.lanes == 1 else f"v{self.lanes}"
        name = f"llvm.fmuladd.{lanes}f{8 * self.itemsize}"
        kind = ir.FunctionType(self.type, [self.type] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [a, b, c])

    def folded(self, value: Any) -> Any:
        """A longer vector with this many lanes, halves added; of one lane: a number."""
        lanes = value.type.count
        while lanes > self.lanes:
            lanes //= 2
            low, high = range(lanes), range(lanes, 2 * lanes)
            value = self.builder.fadd(self._chosen(value, low), self._chosen(value, high))
        if self.lanes > 1:
            return value
        return self.builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    def _chosen(self, value: Any, lanes: Any) -> Any:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        return self.builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)


def _row(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> tuple[Any, Any]:
    """Where a row of a matrix begins, and how long it is."""
    view = context.make_array(kind)(context, builder, array)
    zero = context.get_constant(types.intp, 0)
    place = cgutils.get_item_pointer(context, builder, kind, view, [row, zero], wraparound=False)
    return place, builder.extract_value(view.shape, 1)


def _members(builder: Any, tuple_: Any, count: int) -> list[Any]:
    return [builder.extract_value(tuple_, k) for k in range(count)]


def _parts(
    builder: Any, number: Any, itemsize: int, d: Any, counts: Sequence[int]
) -> Iterator[tuple[_Vector, int, Any, Any, Any]]:
    """Ways to go over d columns, each from where the one before ended: blocks of fewer and fewer.

    (vector, how many of it a block has, first column, end, step); whole vectors as `counts` says.
    """
    full, start = LANES // itemsize, ir.Constant(d.type, 0)
    for lanes, count in [*((full, n) for n in counts), (full // 2, 1), (1, 1)]:
        step = ir.Constant(d.type, lanes * count)
        left = builder.sub(d, start)
        stop = builder.add(start, builder.sub(left, builder.urem(left, step)))
        yield _Vector(builder, number, itemsize, lanes), count, start, stop, step
        start = stop


def _variables(builder: Any, vector: _Vector, values: Sequence[Any]) -> list[Any]:
    """Variables that have these values and can be added to."""
    variables = [cgutils.alloca_once(builder, vector.type) for _ in values]
    for variable, value in zip(variables, values, strict=True):
        builder.store(value, variable)
    return variables


def _add_product(builder: Any, vector: _Vector, variable: Any, a: Any, b: Any) -> None:
    builder.store(vector.fused(a, b, builder.load(variable)), variable)


@intrinsic
def dots(typing, x, y, rows, columns):  # type: ignore[no-untyped-def]  # numba types it
    """x[r] · y[c] for each r of the tuple `rows` and each c of `columns`, as one tuple."""
    m, n = len(rows), len(columns)
    result = types.UniTuple(x.dtype, m * n)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = context.get_value_type(x.dtype)
        itemsize = context.get_abi_sizeof(number)
        left = [_row(context, builder, x, args[0], r) for r in _members(builder, args[2], m)]
        right = [_row(context, builder, y, args[1], c) for c in _members(builder, args[3], n)]
        totals: list[Any] = []
        for vector, _, start, stop, step in _parts(builder, number, itemsize, left[0][1], (1,)):
            begun = [*map(vector.folded, totals)] or [vector.zero()] * (m * n)
            sums = _variables(builder, vector, begun)
            with cgutils.for_range_slice(builder, start, stop, step) as (column, _):
                a = [vector.load(place, column) for place, _ in left]
                b = [vector.load(place, column) for place, _ in right]
                for k, variable in enumerate(sums):
                    _add_product(builder, vector, variable, a[k // n], b[k % n])
            totals = [*map(builder.load, sums)]
        return context.make_tuple(builder, result, totals)

    return result(x, y, rows, columns), generate


@intrinsic
def weighted_sum(typing, y, at, weights, count, out, row):  # type: ignore[no-untyped-def]  # numba types it
    """out[row] = the sum over k < count of weights[k] · y[at[k]], in the order of k."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = context.get_value_type(y.dtype)
        itemsize = context.get_abi_sizeof(number)
        ids = context.make_array(at)(context, builder, args[1]).data
        factors = context.make_array(weights)(context, builder, args[2]).data
        target, d = _row(context, builder, out, args[4], args[5])
        zero, one = ir.Constant(d.type, 0), ir.Constant(d.type, 1)
        for vector, held, start, stop, step in _parts(builder, number, itemsize, d, HELD):
            lanes = [ir.Constant(d.type, k * vector.lanes) for k in range(held)]
            with cgutils.for_range_slice(builder, start, stop, step) as (column, _):
                sums = _variables(builder, vector, [vector.zero()] * held)
                with cgutils.for_range_slice(builder, zero, args[3], one) as (k, _):
                    source, _ = _row(
                        context, builder, y, args[0], builder.load(builder.gep(ids, [k]))
                    )
                    source = builder.gep(source, [column])
                    factor = vector.filled(builder.load(builder.gep(factors, [k])))
                    for lane, variable in zip(lanes, sums, strict=True):
                        _add_product(builder, vector, variable, factor, vector.load(source, lane))
                for lane, variable in zip(lanes, sums, strict=True):
                    vector.store(builder.load(variable), target, builder.add(column, lane))
        return context.get_dummy_value()

    return types.void(y, at, weights, count, out, row), generate
