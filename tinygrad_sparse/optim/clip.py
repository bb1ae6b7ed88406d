"""Clipping: a GradStore in, a GradStore out, row-sparse gradients still row-sparse. Floor 5.

Repeated rows are summed first: clipping is not linear, so it may not see them apart.
"""

from __future__ import annotations

import math

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import adapter_of
from tinygrad_sparse.errors import TinygradSparseError, explain
from tinygrad_sparse.gradstore import GradStore
from tinygrad_sparse.slices import Gradient, map_rows
from tinygrad_sparse.tensor import unwrap


def _check(op: str, bound: float) -> None:
    if not bound > 0:
        raise TinygradSparseError(explain(op, "a bound > 0", repr(bound)))


def clip_grad_norm(grads: GradStore, max_norm: float, ord: float = 2) -> GradStore:
    """All gradients scaled by one factor, min(1, max_norm / ‖grads‖): Pascanu et al., 2013.

    The norm is over all gradients together; `ord` is 2, 1, inf or any p > 0. Raises
    TinygradSparseError if the norm is not finite, since no factor could mend that.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.array([[3.0], [4.0], [0.0]]))
    >>> with ts.Tape():
    ...     grads = (W[[0, 1]] ** 2).sum().backward()
    >>> clip_grad_norm(grads, 1.0)[W].values.ravel()
    array([0.6, 0.8])
    """
    _check("clip_grad_norm", max_norm)
    norm = grads.norm(ord)
    if not math.isfinite(norm):
        hint = "grads.norm() tells beforehand; skip such a step, or look for its cause"
        raise TinygradSparseError(explain("clip_grad_norm", "a finite norm", str(norm), hint))
    return grads if norm <= max_norm else grads * (max_norm / norm)


def clip_grad_value(grads: GradStore, max_value: float) -> GradStore:
    """Every element of every gradient kept within ±max_value, repeated rows summed first."""
    _check("clip_grad_value", max_value)

    def clip(values: Gradient) -> Gradient:
        return ops.maximum(ops.minimum(values, max_value), -max_value)

    return grads.map(lambda g: map_rows(g, clip))


def clip_grad_rows(grads: GradStore, max_norm: float) -> GradStore:
    """Each row's length capped: row · min(1, max_norm / ‖row‖), repeated rows summed first.

    A row is what the first axis addresses, of a dense gradient too; of IndexedSlices with
    ``lead=n``, what the first n do. In a large batch the gradients of a frequent row add up, and
    its step with them, while the others' do not: this bounds the one without slowing the rest.
    """
    _check("clip_grad_rows", max_norm)
    return grads.map(lambda g: map_rows(g, lambda rows: _shortened(rows, max_norm)))


def _shortened(rows: Gradient, max_norm: float) -> Gradient:
    """`rows` with no row longer than `max_norm`."""
    axes = tuple(range(1, len(rows.shape)))
    if (
        axes and unwrap(rows) is rows
    ):  # an array: its lengths in one pass, where squares are in range
        flat = rows.reshape((len(rows), math.prod(rows.shape[1:])))
        with np.errstate(over="ignore"):
            squares = adapter_of(rows).xp.vecdot(flat, flat)
        limit = rows.dtype.type(max_norm) ** 2
        if (squares <= limit).all():
            return rows
        if np.finfo(rows.dtype).tiny < limit and squares.max() < np.inf:
            factors = max_norm / np.sqrt(np.maximum(squares, limit))
            return rows * factors.reshape((-1, *(1,) * len(axes))).astype(rows.dtype, copy=False)
    lengths = ops.vector_norm(rows, axes, True) if axes else ops.absolute(rows)
    return rows * (max_norm / ops.maximum(lengths, max_norm))
