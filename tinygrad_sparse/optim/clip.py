"""Clipping: a GradStore in, a GradStore out, row-sparse gradients still row-sparse. Floor 5.

Repeated rows are summed first: clipping is not linear, so it may not see them apart.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import adapter_of
from tinygrad_sparse.errors import ArgumentError, DtypeError, explain
from tinygrad_sparse.gradstore import GradStore
from tinygrad_sparse.slices import Gradient, map_rows, touched
from tinygrad_sparse.tape import no_grad
from tinygrad_sparse.tensor import Tensor, unwrap

from .rule import plain


def _checked(op: str, bound: Any) -> float:
    number = plain(bound)
    if type(number) not in (int, float):
        raise DtypeError(explain(op, "a number for the bound", repr(bound)))
    if not number > 0:
        raise ArgumentError(explain(op, "a bound > 0", repr(bound)))
    try:
        return float(number)
    except OverflowError:  # an int that no float is as large as
        return math.inf


def _check_finite(op: str, norm: float) -> None:
    if not math.isfinite(norm):
        raise _not_finite(op, norm)


def _not_finite(op: str, norm: float) -> ArgumentError:
    hint = "grads.norm() tells beforehand; skip such a step, or look for its cause"
    return ArgumentError(explain(op, "a finite norm", str(norm), hint))


def clip_grad_norm(grads: GradStore, max_norm: float, ord: float = 2) -> GradStore:
    """All gradients scaled by one factor, min(1, max_norm / ‖grads‖): Pascanu et al., 2013.

    The norm is over all gradients together; `ord` is 2, 1, inf or any p > 0. Raises
    ArgumentError if the norm is not finite, since no factor could mend that. The factor is
    recorded where the gradients are, under ``create_graph=True``.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.array([[3.0], [4.0], [0.0]]))
    >>> with ts.Tape():
    ...     grads = (W[[0, 1]] ** 2).sum().backward()
    >>> clip_grad_norm(grads, 1.0)[W].values.ravel()
    array([0.6, 0.8])
    """
    max_norm = _checked("clip_grad_norm", max_norm)
    with no_grad():  # whether to scale is a choice; the factor is recorded below
        norm = grads.norm(ord)
    _check_finite("clip_grad_norm", norm)
    if norm <= max_norm:
        return grads
    values = [touched(g)[1] for _, g in grads.items()]
    if not any(type(v) is Tensor for v in values):
        return grads.map(lambda g: _scaled(g, max_norm / norm))
    lengths = [ops.vector_norm(v.astype(np.float64), ord=ord) for v in values]
    factor = max_norm / ops.vector_norm(ops.stack(lengths), ord=ord)
    return grads.map(lambda g: _scaled(g, factor.astype(np.promote_types(g.dtype, np.float32))))


def _scaled(g: Any, factor: Any) -> Any:
    """g · factor in its own dtype; a factor rounded to float16 would miss the bound."""
    wide = np.promote_types(g.dtype, np.float32)
    return g * factor if g.dtype == wide else (g.astype(wide) * factor).astype(g.dtype)


def clip_grad_value(grads: GradStore, max_value: float) -> GradStore:
    """Every element of every gradient kept within ±max_value, repeated rows summed first.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((5, 2)))
    >>> with ts.Tape() as tape:
    ...     loss = (W[[1, 1, 2]] * [-3.0, 0.5]).sum()
    >>> clip_grad_value(tape.backward(loss), 2.0)[W].values
    array([[-2. ,  1. ],
           [-2. ,  0.5]])
    """
    max_value = _checked("clip_grad_value", max_value)

    def clip(values: Gradient) -> Gradient:
        return ops.maximum(ops.minimum(values, max_value), -max_value)

    return grads.map(lambda g: map_rows(g, clip))


def clip_grad_rows(grads: GradStore, max_norm: float) -> GradStore:
    """Each row's length capped: row · min(1, max_norm / ‖row‖), repeated rows summed first.

    A row is what the first axis addresses, of a dense gradient too; of IndexedSlices with
    ``lead=n``, what the first n do. In a large batch the gradients of a frequent row add up, and
    its step with them, while the others' do not: this bounds the one without slowing the rest.
    Raises ArgumentError for a row of which the norm is not finite; on a GPU later, as for ids.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((5, 2)))
    >>> with ts.Tape() as tape:
    ...     loss = (W[[1, 1, 1, 2]] * [3.0, 4.0]).sum()
    >>> clip_grad_rows(tape.backward(loss), 5.0)[W].values
    array([[3., 4.],
           [3., 4.]])
    """
    return grads.map(RowCap(max_norm).of)


class RowCap:
    """What `clip_grad_rows` does to the rows of a gradient, repeats summed."""

    def __init__(self, max_norm: Any, op: str = "clip_grad_rows") -> None:
        self.max_norm = _checked(op, max_norm)

    def of(self, g: Gradient) -> Gradient:
        """The gradient with no row longer than `max_norm`."""
        return map_rows(g, self)

    def __call__(self, rows: Gradient) -> Gradient:
        return _shortened(rows, self.max_norm)


def _shortened(rows: Gradient, max_norm: float) -> Gradient:
    """`rows` with no row longer than `max_norm`."""
    axes, adapter = tuple(range(1, len(rows.shape))), adapter_of(rows)
    if not rows.size:
        return rows
    if (axes or adapter.waits) and type(rows) is not Tensor:  # lengths in one pass
        flat = rows.reshape((len(rows), math.prod(rows.shape[1:])))
        new = adapter.shortened(flat, max_norm, partial(_not_finite, "clip_grad_rows"))
        if new is not None:
            return rows if new is flat else new.reshape(rows.shape)
    wide = rows.astype(np.promote_types(rows.dtype, np.float32))  # a norm may be larger
    lengths = ops.vector_norm(wide, axes, True) if axes else ops.absolute(wide)
    _check_finite("clip_grad_rows", float(unwrap(lengths).max()))
    return (wide * (max_norm / ops.maximum(lengths, max_norm))).astype(rows.dtype)
