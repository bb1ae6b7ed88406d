"""What the losses share: how arguments meet, and how losses are reduced. Floor 5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import as_array, as_arrays_beside, as_ours, refuse_ids_elsewhere
from tinygrad_sparse.backend.ids import at_place
from tinygrad_sparse.errors import ArgumentError, DtypeError, RowIndexError, ShapeError, explain
from tinygrad_sparse.shapes import broadcasts
from tinygrad_sparse.tensor import Tensor, unwrap


def as_data(op: str, x: Any, dtype: np.dtype) -> Any:
    """An array in the dtype of the parameters that it meets; a Tensor as it is."""
    return x if type(x) is Tensor else as_array(op, x, "fiub").astype(dtype, copy=False)


def together(op: str, *given: Any) -> list[Any]:
    """The arguments with shapes; arrays take the float dtype of the Tensors that they meet.

    Labels come as integers and targets as float64, and neither should make a float32 loss float64.
    Where no Tensor is given, the first argument's dtype counts.
    """
    arrays = as_arrays_beside(op, *given)
    floats = [x.dtype for x in arrays if type(x) is Tensor and x.dtype.kind == "f"]
    dtype = np.result_type(*floats or [arrays[0].dtype])
    if dtype.kind in "iub":
        dtype = np.result_type(dtype, np.float64)  # unsigned differences would wrap
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


def refuse_negative(
    op: str, ids: Any, size: int, context: str, beside: Any, hint: str = "",
    allowed: int | None = None,
) -> None:  # fmt: skip
    """Raise RowIndexError for ids below 0, other than the one that is `allowed`.

    The ops count them from the end, as NumPy does. What a layer or a loss is given comes from data,
    where -1 says that nothing is there; read from the end, it would train the last row. The hint's
    ``{id}`` is the id.
    """
    try:
        array = as_ours(op, unwrap(ids))
    except DtypeError:  # ragged: refused where it is looked up
        return
    refuse_ids_elsewhere(op, array, beside)  # not read first, which would wait for them
    if array.dtype.kind != "i" or not array.size or array.min() >= 0:
        return
    flat = array.reshape(-1).astype(np.int64, copy=False)  # int8 need not have the one allowed
    bad = flat < 0 if allowed is None else (flat < 0) & (flat != allowed)
    if bad.any():
        at = int(bad.argmax())
        id = int(flat[at])
        got = at_place(id, at, array.dtype, array.shape, context)
        raise RowIndexError(
            explain(op, f"ids in [0, {size})", got, hint.format(id=id) if hint else None)
        )


def reducer(op: str, reduction: str) -> Callable[..., Any]:
    """What makes of each example's loss what a loss returns: all of them, their sum, their mean.

    It takes the losses and, for a mean, what to divide their sum by if not by their number. The
    mean of no losses is 0, with a zero gradient.
    """
    if reduction not in _REDUCERS:
        raise ArgumentError(explain(op, "reduction 'mean', 'sum' or 'none'", repr(reduction)))
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
