"""What the losses share: how arguments meet, and how losses are reduced. Floor 5."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.errors import ShapeError, TinygradSparseError, explain
from tinygrad_sparse.ops.given import as_array
from tinygrad_sparse.tensor import Tensor


def together(op: str, *given: Any) -> list[Any]:
    """The arguments with shapes; arrays take the dtype of the Tensors that they meet.

    Labels come as integers and targets as float64, and neither should make a float32 loss float64.
    """
    arrays = [as_array(op, x) for x in given]
    dtypes = [x.dtype for x in arrays if type(x) is Tensor]
    if not dtypes:
        return arrays
    dtype = np.result_type(*dtypes)
    return [x if type(x) is Tensor else x.astype(dtype, copy=False) for x in arrays]


def same_shape(op: str, **arrays: Any) -> None:
    """Raise ShapeError unless the arrays have one shape: (n,) and (n, 1) would give (n, n)."""
    shapes = {name: tuple(a.shape) for name, a in arrays.items()}
    if len(set(shapes.values())) > 1:
        got = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ShapeError(explain(op, "arrays of one shape", got))


def reduced(op: str, losses: Any, reduction: str, total: float | None = None) -> Any:
    """`losses` as they are ("none"), their "sum", or their "mean": the sum over `total`, their
    number if None. The mean of no losses is 0, with a zero gradient.
    """
    if reduction == "none":
        return losses
    if reduction not in ("mean", "sum"):
        raise TinygradSparseError(explain(op, "reduction 'mean', 'sum' or 'none'", repr(reduction)))
    count = losses.size
    if reduction == "sum" or not count or total == 0:
        return ops.sum(losses)
    # not sum / total, for the sum of float16 losses may be too large where their mean is not
    return ops.mean(losses) if total in (None, count) else ops.mean(losses) * (count / total)
