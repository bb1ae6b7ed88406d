"""Losses, as functions of logits. Floor 5.

They take logits, not probabilities: a softmax or a sigmoid followed by a logarithm loses the
gradient just where the model is most wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import row_ids
from tinygrad_sparse.errors import ShapeError, TinygradSparseError, explain
from tinygrad_sparse.tensor import unwrap


def _reduce(losses: Any, reduction: str, op: str) -> Any:
    if reduction == "none":
        return losses
    if reduction == "sum":
        return ops.sum(losses)
    if reduction == "mean":
        return ops.mean(losses)
    raise TinygradSparseError(explain(op, "reduction 'mean', 'sum' or 'none'", repr(reduction)))


def cross_entropy(logits: Any, targets: Any, reduction: str = "mean") -> Any:
    """-log softmax(logits)[target]: logits (\\*batch, C), integer class ids (\\*batch) -> scalar.

    Raises RowIndexError for a target outside [-C, C) and ShapeError if the batches differ.

    >>> cross_entropy(np.array([[1000.0, 0.0]]), [1])
    np.float64(1000.0)
    """
    classes = logits.shape[-1]
    ids = row_ids("cross_entropy", unwrap(targets), classes)
    if ids.shape != tuple(logits.shape[:-1]):
        raise ShapeError(
            explain("cross_entropy", f"targets {tuple(logits.shape[:-1])}", f"{ids.shape}")
        )
    hit = ids[..., None] == np.arange(classes)  # selected row by row, so rows stay apart
    picked = ops.sum(ops.where(hit, ops.log_softmax(logits), 0.0), -1)
    return _reduce(-picked, reduction, "cross_entropy")


def bce_with_logits(logits: Any, targets: Any, reduction: str = "mean") -> Any:
    """Binary cross-entropy of sigmoid(logits): softplus(x) - x·t, stable for any logit.

    `targets` are in [0, 1] and broadcast against the logits.

    >>> bce_with_logits(np.array([1000.0, -1000.0]), np.array([1.0, 0.0]))
    np.float64(0.0)
    """
    return _reduce(ops.softplus(logits) - logits * targets, reduction, "bce_with_logits")
