"""What the losses share: how arguments meet, and how losses are reduced. Floor 5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import as_array
from tinygrad_sparse.errors import ShapeError, TinygradSparseError, explain
from tinygrad_sparse.shapes import broadcasts
from tinygrad_sparse.tensor import Tensor


def as_data(op: str, x: Any, dtype: np.dtype) -> Any:
    """An array in the dtype of the parameters that it meets; a Tensor as it is."""
    return x if type(x) is Tensor else as_array(op, x, "fiub").astype(dtype, copy=False)


def together(op: str, *given: Any) -> list[Any]:
    """The arguments with shapes; arrays take the float dtype of the Tensors that they meet.

    Labels come as integers and targets as float64, and neither should make a float32 loss float64.
    Where no Tensor is given, the first argument's dtype counts.
    """
    arrays = [as_array(op, x) for x in given]
    floats = [x.dtype for x in arrays if type(x) is Tensor and x.dtype.kind == "f"]
    dtype = np.result_type(*floats or [arrays[0].dtype])
    if dtype.kind != "f":
        return arrays
    return [
        x if x.dtype == dtype or (type(x) is Tensor and x.dtype.kind == "f") else x.astype(dtype)
        for x in arrays
    ]


def same_shape(op: str, **arrays: Any) -> None:
    """Raise ShapeError unless the arrays have one shape: (n,) and (n, 1) would give (n, n)."""
    shapes = {name: tuple(a.shape) for name, a in arrays.items()}
    if len(set(shapes.values())) > 1:
        got = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ShapeError(explain(op, "arrays of one shape", got))


def fits(op: str, name: str, x: Any, shape: tuple[int, ...]) -> None:
    """Raise ShapeError unless `x` broadcasts to `shape` and no further."""
    if not broadcasts(x.shape, shape):  # (n,) and (n, 1) would make (n, n) losses
        wanted = f"{name} that broadcast to {tuple(shape)}"
        raise ShapeError(explain(op, wanted, f"{tuple(x.shape)}"))


def reducer(op: str, reduction: str) -> Callable[..., Any]:
    """What makes of each example's loss what a loss returns: all of them, their sum, their mean.

    It takes the losses and, for a mean, what to divide their sum by if not by their number. The
    mean of no losses is 0, with a zero gradient.
    """
    if reduction not in _REDUCERS:
        raise TinygradSparseError(explain(op, "reduction 'mean', 'sum' or 'none'", repr(reduction)))
    return _REDUCERS[reduction]


def _mean(losses: Any, total: float | None = None) -> Any:
    count = losses.size
    if not count or total == 0:
        return ops.sum(losses)
    # not sum / total, for the sum of float16 losses may be too large where their mean is not
    return ops.mean(losses) if total in (None, count) else ops.mean(losses) * (count / total)


_REDUCERS: dict[str, Callable[..., Any]] = {
    "none": lambda losses, total=None: losses,
    "sum": lambda losses, total=None: ops.sum(losses),
    "mean": _mean,
}
