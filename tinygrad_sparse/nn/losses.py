"""Losses, as functions of logits. Floor 5.

They take logits, not probabilities: a softmax or a sigmoid followed by a logarithm loses the
gradient just where the model is most wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import describe, row_ids
from tinygrad_sparse.errors import ShapeError, TinygradSparseError, explain
from tinygrad_sparse.tensor import unwrap

_REDUCTIONS: dict[str, Any] = {"mean": ops.mean, "sum": ops.sum, "none": lambda losses: losses}


def _reduction(op: str, name: str) -> Any:
    """The named reduction: looked up before anything is computed, or recorded."""
    if name not in _REDUCTIONS:
        raise TinygradSparseError(explain(op, "reduction 'mean', 'sum' or 'none'", repr(name)))
    return _REDUCTIONS[name]


def cross_entropy(logits: Any, targets: Any, reduction: str = "mean") -> Any:
    """-log softmax(logits)[target]: logits (\\*batch, C), integer class ids (\\*batch) -> scalar.

    Raises RowIndexError for a target outside [-C, C) and ShapeError if the batches differ.

    >>> cross_entropy(np.array([[1000.0, 0.0]]), [1])
    np.float64(1000.0)
    """
    reduce = _reduction("cross_entropy", reduction)
    logits = logits if hasattr(logits, "shape") else np.asarray(logits)
    if len(logits.shape) == 0:
        raise ShapeError(explain("cross_entropy", "logits (*batch, C)", describe(logits)))
    classes = logits.shape[-1]
    ids = row_ids("cross_entropy", unwrap(targets), classes)
    if ids.shape != tuple(logits.shape[:-1]):
        raise ShapeError(
            explain("cross_entropy", f"targets {tuple(logits.shape[:-1])}", f"{ids.shape}")
        )
    hit = ids[..., None] == np.arange(classes)  # selected row by row, so rows stay apart
    picked = ops.sum(ops.where(hit, ops.log_softmax(logits), 0.0), -1)
    return reduce(-picked)


def bce_with_logits(logits: Any, targets: Any, reduction: str = "mean") -> Any:
    """Binary cross-entropy of sigmoid(logits): softplus(x) - x·t, stable for any logit.

    `targets` are in [0, 1], of any dtype, and broadcast to the logits. Raises ShapeError.

    >>> bce_with_logits(np.array([1000.0, -1000.0]), np.array([1.0, 0.0]))
    np.float64(0.0)
    """
    reduce = _reduction("bce_with_logits", reduction)
    logits = logits if hasattr(logits, "shape") else np.asarray(logits)
    t = ops.cast(targets, logits.dtype)  # labels are often integers, which would widen float32
    try:
        fits = np.broadcast_shapes(t.shape, logits.shape) == tuple(logits.shape)
    except ValueError:
        fits = False
    if not fits:  # (n,) and (n, 1) would make (n, n) losses
        wanted = f"targets that broadcast to {tuple(logits.shape)}"
        raise ShapeError(explain("bce_with_logits", wanted, f"{tuple(t.shape)}"))
    return reduce(ops.softplus(logits) - logits * t)
