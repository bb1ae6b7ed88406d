"""What reductions and scans share: what `axis` may be, and in which dtype sums are kept. Floor 4.

No op is declared here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.shapes import whole_numbers

Axes = int | Sequence[int] | None

_ALL = [tuple(range(n)) for n in range(5)]
_HALF, _SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def canonical_axes(op: str, axis: Axes, ndim: int) -> tuple[int, ...]:
    """`axis` as a tuple of distinct numbers in [0, ndim); None means all."""
    if axis is None:
        return _ALL[ndim] if ndim < len(_ALL) else tuple(range(ndim))
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    wanted = f"an axis in [{-ndim}, {ndim})"
    numbers = whole_numbers(op, wanted, axis)
    if any(not -ndim <= a < ndim for a in numbers):
        raise ShapeError(explain(op, wanted, repr(axis)))
    positive = tuple(a % ndim for a in numbers)
    if len(set(positive)) < len(positive):
        raise ShapeError(explain(op, "each axis once", repr(axis)))
    return positive


def canonical_axis(op: str, axis: Any, ndim: int) -> int:
    """`axis` as one number in [0, ndim)."""
    if axis is None or isinstance(axis, (tuple, list)):
        raise ShapeError(explain(op, "one axis", repr(axis)))
    return canonical_axes(op, axis, ndim)[0]


def reducing(op: str, empty: bool = True) -> Callable[..., Any]:
    """The `canonical` of a reduction: `axis` a tuple, `keepdims` a bool, the rest as given.

    Without `empty` there must be an element to choose: ShapeError if an axis has length 0.
    """

    def canonical(x: Array, *, axis: Any = None, keepdims: bool = False, **static: Any) -> Any:
        axes = canonical_axes(op, axis, x.ndim)
        if not empty:
            refuse_empty(op, tuple(x.shape), axes)
        return (x,), {"axis": axes, "keepdims": bool(keepdims), **static}

    return canonical


def refuse_empty(op: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """ShapeError if there is nothing to choose from."""
    if any(shape[a] == 0 for a in axes):
        raise ShapeError(explain(op, "at least one element", f"shape {shape}, axis {axes}"))


def reduced(shape: tuple[int, ...], axis: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """The shape that is left of `shape` by a reduction over `axis`."""
    if keepdims:
        return tuple([1 if a in axis else n for a, n in enumerate(shape)])
    return tuple([n for a, n in enumerate(shape) if a not in axis])


def kept(g: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """g with the axes over which x was reduced back, of length 1; one number fits as it is."""
    return kept_shape(g, x.shape, axis)


def kept_shape(g: Any, shape: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    """The same, given the shape of x alone: what asks for no more lets the tape drop x."""
    if not g.shape:
        return g
    shape = reduced(shape, axis, True)
    return g if tuple(g.shape) == shape else g.reshape(shape)


def wide(x: Array) -> Any:
    """The dtype to sum and multiply in: float32 for float16, otherwise NumPy's own choice."""
    return _SINGLE if x.dtype == _HALF else None


def narrow(total: Array, x: Array) -> Array:
    """A float total in the dtype of what was added up; an integer one as NumPy has it."""
    if total.dtype is x.dtype or x.dtype.kind != "f":
        return total
    return total.astype(x.dtype)
