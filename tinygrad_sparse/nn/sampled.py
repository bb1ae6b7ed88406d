"""Losses over very many classes, of which a step looks at a sample. Floor 5.

The sample is the caller's: ids of negative classes and the logarithms of the probabilities with
which they (and the targets) are drawn. Nothing here is random. Only the looked-up rows of the class
table get a gradient, IndexedSlices, so a step does not depend on how many classes there are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import Array, as_array, describe, refuse_mixed, row_ids
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.tensor import unwrap

from .arguments import reducer, refuse_negative, together
from .losses import cross_entropy


def sampled_softmax(
    hidden: Any,
    table: Any,
    targets: Any,
    negatives: Any,
    target_log_q: Any,
    negative_log_q: Any,
    *,
    bias: Any = None,
    reduction: str = "mean",
) -> Any:
    """Cross-entropy of each target among itself and the negatives, scores less log q.

    Shapes: hidden (B, d), table (C, d), bias (C,); class ids targets (B,) and negatives (S,), which
    all rows share, or (B, S); target_log_q and negative_log_q as the ids. A negative that is the
    row's target is left out. Less log q, the gradient tends to that of the whole softmax as S
    grows. Raises RowIndexError and ShapeError.

    Bengio and Senécal, 2008, "Adaptive importance sampling"; Jean et al., 2015, "On using very
    large target vocabulary".
    """
    reducer("sampled_softmax", reduction)  # an unknown one is refused before anything is recorded
    ids, others, true, false = _scores(
        "sampled_softmax", hidden, table, targets, negatives, target_log_q, negative_log_q, bias
    )
    false = ops.where(others == ids[:, None], -np.inf, false)
    logits = ops.concatenate([ops.expand_dims(true, -1), false], -1)
    return cross_entropy(logits, ids * 0, reduction)


def nce(
    hidden: Any,
    table: Any,
    targets: Any,
    negatives: Any,
    target_log_q: Any,
    negative_log_q: Any,
    *,
    bias: Any = None,
    reduction: str = "mean",
) -> Any:
    """Noise-contrastive estimation: is it the target, or one of S draws from q?

    softplus(-u) + Σ softplus(v) for each row, with u and v the scores of target and negatives, less
    log (S·q). Scores then tend to log-probabilities, without a sum over all classes. Arguments,
    shapes and errors are those of `sampled_softmax`; a negative that is the target stays in.

    Gutmann and Hyvärinen, 2010, "Noise-contrastive estimation"; Mnih and Teh, 2012, for words.
    """
    reduce = reducer("nce", reduction)
    _, others, true, false = _scores(
        "nce", hidden, table, targets, negatives, target_log_q, negative_log_q, bias
    )
    log_draws = math.log(max(1, others.shape[-1]))
    true, false = true - log_draws, false - log_draws
    losses = ops.softplus(-true) + ops.sum(ops.softplus(false), -1)
    return reduce(losses)


def _scores(
    op: str, hidden: Any, table: Any, targets: Any, negatives: Any, target_log_q: Any,
    negative_log_q: Any, bias: Any,
) -> tuple[Array, Array, Any, Any]:  # fmt: skip
    """Ids, and scores less log q, of targets (B,) and of negatives (B, S)."""
    hidden, table = as_array(op, hidden), as_array(op, table)
    refuse_mixed(op, (hidden, table, bias))
    if len(hidden.shape) != 2 or len(table.shape) != 2 or hidden.shape[1] != table.shape[1]:
        got = f"{describe(hidden)} and {describe(table)}"
        raise ShapeError(explain(op, "hidden (B, d) and table (C, d)", got))
    rows, classes = hidden.shape[0], table.shape[0]
    context = f", table {tuple(table.shape)}"
    hint = "leave the rows without a target out: hidden[kept], targets[kept]"
    refuse_negative(op, targets, classes, context, table, hint)
    refuse_negative(op, negatives, classes, context, table)
    ids = row_ids(op, unwrap(targets), classes, context, table)
    others = row_ids(op, unwrap(negatives), classes, context, table)
    if ids.shape != (rows,) or others.shape[:-1] not in ((), (rows,)) or not others.ndim:
        expected = f"targets ({rows},) and negatives (S,) or ({rows}, S)"
        raise ShapeError(explain(op, expected, f"{ids.shape} and {others.shape}"))
    _, *log_q = together(op, hidden, target_log_q, negative_log_q)
    if [tuple(a.shape) for a in log_q] != [ids.shape, others.shape]:
        got = f"{tuple(log_q[0].shape)} and {tuple(log_q[1].shape)}"
        raise ShapeError(explain(op, f"log q {ids.shape} and {others.shape}", got))
    true = ops.sum(hidden * ops.take(table, ids), -1)
    looked_up = ops.take(table, others)
    if others.ndim == 1:
        false = hidden @ ops.transpose(looked_up)
    else:
        false = ops.einsum("bd,bsd->bs", hidden, looked_up)
    if bias is not None:
        true, false = true + ops.take(bias, ids), false + ops.take(bias, others)
    return ids, others, true - log_q[0], false - log_q[1]
