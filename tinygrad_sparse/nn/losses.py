"""Losses of probabilities, as functions of logits or of their logarithms. Floor 5.

They take logits, not probabilities: a softmax or a sigmoid followed by a logarithm loses the
gradient just where the model is most wrong. Rows (examples) stay apart in all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import (
    Array,
    adapter_of,
    as_array,
    as_array_beside,
    describe,
    refuse_ids_elsewhere,
    row_ids,
    xp_of,
)
from tinygrad_sparse.errors import ArgumentError, ShapeError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import rowwise
from tinygrad_sparse.tensor import unwrap

from .arguments import fits, reducer, refuse_negative, same_shape, together

# -- classes -------------------------------------------------------------------------------------


@primitive(
    rows=rowwise("rr"),
    vjp=(lambda g, out, x, ids: _place(g, ids, classes=x.shape[-1]), None),
)
def _pick(xp: Any, x: Array, ids: Array) -> Array:
    """For each row of x (\\*batch, C) the element that ids (\\*batch) names."""
    return xp.take_along_axis(x, ids[..., None], axis=-1)[..., 0]


@primitive(rows=rowwise("rr"), vjp=(lambda g, out, x, ids, *, classes: _pick(g, ids), None))
def _place(xp: Any, x: Array, ids: Array, *, classes: int) -> Array:
    """Zeros but for x where `_pick` would find it: its transpose."""
    out = xp.zeros((*x.shape, classes), x.dtype)
    out.reshape((ids.size, classes))[xp.arange(ids.size), ids.reshape(-1)] = x.reshape(-1)
    return out


def cross_entropy(
    logits: Any,
    targets: Any,
    reduction: str = "mean",
    *,
    weight: Any = None,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
) -> Any:
    """-log softmax(logits)[target]: logits (\\*batch, C), integer class ids (\\*batch) -> scalar.

    `weight` (C,) multiplies the losses of each class; their mean is then over the sum of the
    weights of the targets. With `label_smoothing` ε the target is 1 - ε of the class and ε / C of
    every class (Szegedy et al., 2016, "Rethinking the Inception architecture"). Examples whose
    target is `ignore_index` count nothing. Raises RowIndexError for another target outside [0, C),
    -1 among them, and ShapeError if the batches differ.

    >>> cross_entropy(np.array([[1000.0, 0.0]]), [1])
    np.float64(1000.0)
    """
    op = "cross_entropy"
    reduce = reducer(op, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(explain(op, "label_smoothing in [0, 1]", repr(label_smoothing)))
    logits = as_array(op, logits)
    chosen = _chosen(op, logits, targets, weight, ignore_index)
    log_probs = ops.log_softmax(logits)
    losses = _losses(log_probs, chosen)
    if label_smoothing:
        even = -ops.mean(log_probs if weight is None else log_probs * chosen.weight, -1)
        losses = losses * (1.0 - label_smoothing) + _kept(even, chosen) * label_smoothing
    return reduce(losses, chosen.total)


def nll(
    log_probs: Any,
    targets: Any,
    reduction: str = "mean",
    *,
    weight: Any = None,
    ignore_index: int | None = None,
) -> Any:
    """-log_probs[target], the negative log-likelihood: `cross_entropy` without its softmax.

    Arguments, reductions and errors are those of `cross_entropy`.

    >>> nll(np.array([[-1.0, -3.0], [-2.0, -4.0]]), [1, 0])
    np.float64(2.5)
    """
    reduce = reducer("nll", reduction)
    log_probs = as_array("nll", log_probs)
    chosen = _chosen("nll", log_probs, targets, weight, ignore_index)
    return reduce(_losses(log_probs, chosen), chosen.total)


class _Chosen(NamedTuple):
    """Class ids that were checked against scores (\\*batch, C), and what they count."""

    ids: Array
    weight: Array | None  # (C,)
    kept: Array | None  # (*batch), False for those to ignore
    total: float | None  # what a mean divides by, if not by their number


def _chosen(op: str, scores: Any, targets: Any, weight: Any, ignore: int | None) -> _Chosen:
    if not scores.shape:
        raise ShapeError(explain(op, "scores (*batch, C)", describe(scores)))
    *batch, classes = scores.shape
    ids, kept = unwrap(targets), None
    shape = tuple(getattr(ids, "shape", ()))
    if shape == tuple(scores.shape) and ids.dtype.kind == "f":
        hint = "targets.argmax(-1) are the ids of one-hot rows; nn.kl_div takes probabilities"
        raise ShapeError(explain(op, f"class ids {tuple(batch)}", describe(ids), hint))
    if len(shape) == len(scores.shape) + 1 and ids.dtype.kind == "f":
        got = f"{describe(ids)} for scores {describe(unwrap(scores))}"
        hint = f"are they the wrong way round? {op}(scores, ids)"
        raise ShapeError(explain(op, f"class ids {tuple(batch)}", got, hint))
    if weight is not None:
        weight = unwrap(as_array_beside(op, weight, scores)).astype(scores.dtype, copy=False)
    if ignore is not None:
        refuse_ids_elsewhere(op, ids, scores)
        ids = as_array(op, ids)
        # by its kind: a narrow dtype need not have the number
        kept = (ids.astype(np.int64) if ids.dtype.kind in "iu" else ids) != ignore
        ids = xp_of(ids).where(kept, ids, 0)
    context = f", scores {tuple(scores.shape)}"
    hint = "ignore_index={id} leaves such targets out"
    refuse_negative(op, ids, classes, context, scores, hint)
    ids = row_ids(op, ids, classes, context)
    if ids.shape != tuple(batch):
        raise ShapeError(explain(op, f"targets {tuple(batch)}", f"{ids.shape}"))
    if weight is None:
        total = None if kept is None else float(kept.sum())
        return _Chosen(_beside(scores, ids), None, _beside(scores, kept), total)
    ids, kept = _beside(scores, ids), _beside(scores, kept)
    if weight.shape != (classes,):
        raise ShapeError(explain(op, f"weight ({classes},)", f"{weight.shape}"))
    each = weight[ids].astype(np.float64)
    return _Chosen(ids, weight, kept, float(each.sum() if kept is None else each[kept].sum()))


def _beside(scores: Any, x: Any) -> Any:
    """Ids, and what was made of them, where the scores are."""
    return None if x is None else adapter_of(scores).beside(scores, x)


def _losses(log_probs: Any, chosen: _Chosen) -> Any:
    picked = -_pick(log_probs, chosen.ids)
    return _kept(picked if chosen.weight is None else picked * chosen.weight[chosen.ids], chosen)


def _kept(losses: Any, chosen: _Chosen) -> Any:
    return losses if chosen.kept is None else ops.where(chosen.kept, losses, 0.0)


# -- probabilities -------------------------------------------------------------------------------


def bce_with_logits(
    logits: Any,
    targets: Any,
    reduction: str = "mean",
    *,
    weight: Any = None,
    pos_weight: Any = None,
) -> Any:
    """Binary cross-entropy of sigmoid(logits): softplus(x) - x·t, stable for any logit.

    `targets` are in [0, 1], of any dtype, and broadcast to the logits, as do `weight`, which
    multiplies the losses, and `pos_weight`, which multiplies their part for t = 1. Raises
    ShapeError where they do not.

    >>> bce_with_logits(np.array([1000.0, -1000.0]), np.array([1.0, 0.0]))
    np.float64(0.0)
    """
    op = "bce_with_logits"
    reduce = reducer(op, reduction)
    logits, targets = together(op, logits, targets)
    fits(op, "targets", targets, logits.shape)
    if pos_weight is None:
        losses = ops.softplus(logits) - logits * targets
    else:
        _, pos_weight = together(op, logits, pos_weight)
        losses = (1 - targets) * logits + (1 + (pos_weight - 1) * targets) * ops.softplus(-logits)
    if weight is not None:
        losses = losses * together(op, logits, weight)[1]
    return reduce(losses)


def kl_div(
    log_probs: Any, targets: Any, reduction: str = "mean", *, log_target: bool = False
) -> Any:
    """The Kullback-Leibler divergence Σ_c t·(log t - log_probs) of each row, (\\*batch, C) twice.

    `targets` are probabilities, or their logarithms with ``log_target=True``; t = 0 adds nothing,
    whatever log_probs is. The mean is over rows, which PyTorch calls "batchmean".

    >>> kl_div(np.log([[0.25, 0.75]]), np.array([[0.0, 1.0]])) == -np.log(0.75)
    np.True_
    """
    reduce = reducer("kl_div", reduction)
    log_probs, targets = together("kl_div", log_probs, targets)
    same_shape("kl_div", log_probs=log_probs, targets=targets)
    data = unwrap(targets)
    zero = data == -np.inf if log_target else data == 0
    logs = ops.where(zero, 0.0, targets) if log_target else ops.log(ops.where(zero, 1.0, targets))
    probs = ops.exp(targets) if log_target else targets
    terms = probs * (logs - ops.where(zero, 0.0, log_probs))
    return reduce(ops.sum(terms, -1))
