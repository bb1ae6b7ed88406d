"""Losses and similarities of real vectors and scores. Floor 5."""

from __future__ import annotations

from typing import Any

from tinygrad_sparse import ops
from tinygrad_sparse.backend import adapter_of
from tinygrad_sparse.errors import ArgumentError, explain
from tinygrad_sparse.tensor import unwrap

from .arguments import reducer, same_shape, together


def _difference(op: str, x: Any, y: Any) -> Any:
    x, y = together(op, x, y)
    same_shape(op, x=x, y=y)
    return x - y


def mse(x: Any, y: Any, reduction: str = "mean") -> Any:
    """The squared error (x - y)², of arrays of one shape.

    >>> import numpy as np
    >>> mse(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    np.float64(2.0)
    """
    reduce = reducer("mse", reduction)
    d = _difference("mse", x, y)
    return reduce(d * d)


def l1(x: Any, y: Any, reduction: str = "mean") -> Any:
    """The absolute error abs(x - y), of arrays of one shape; its slope at x = y is 0."""
    reduce = reducer("l1", reduction)
    return reduce(ops.absolute(_difference("l1", x, y)))


def huber(x: Any, y: Any, reduction: str = "mean", delta: float = 1.0) -> Any:
    """d²/2 for abs(d) <= δ, δ·(abs(d) - δ/2) beyond, with d = x - y (Huber, 1964).

    >>> import numpy as np
    >>> huber(np.array([1.0, 5.0]), np.array([0.0, 0.0]), reduction="none")
    array([0.5, 4.5])
    """
    reduce = reducer("huber", reduction)
    if not delta > 0:
        raise ArgumentError(explain("huber", "delta > 0", repr(delta)))
    d = _difference("huber", x, y)
    inner = ops.clip(d, -delta, delta)  # one formula: nothing unused can overflow
    return reduce(inner * (d - 0.5 * inner))


# -- vectors -------------------------------------------------------------------------------------


def _unit(x: Any, axis: int) -> Any:
    """x of length 1; a zero vector stays one and gets no gradient.

    Of x over its largest element, so that squares neither overflow nor vanish, in float16 least of
    all; that scale may be held constant, for the result does not depend on it.
    """
    data = unwrap(x)
    xp = adapter_of(data).xp
    largest = adapter_of(data).max_from(xp.abs(data), (axis % data.ndim,), 0.0)
    zero = largest == 0
    y = x / xp.where(zero, 1.0, largest).astype(data.dtype, copy=False)
    square = ops.where(zero, 1.0, ops.sum(y * y, axis, True))
    return ops.where(zero, 0.0, y / ops.sqrt(square))


def cosine_similarity(x: Any, y: Any, axis: int = -1) -> Any:
    """x·y / (‖x‖ ‖y‖) along an axis, of arrays that broadcast; with a zero vector 0, no gradient.

    >>> import numpy as np
    >>> cosine_similarity(np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([4.0, 3.0]))
    array([0.96, 0.  ])
    """
    x, y = together("cosine_similarity", x, y)
    return ops.sum(_unit(x, axis) * _unit(y, axis), axis)


def triplet(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, reduction: str = "mean"
) -> Any:
    """max(0, ‖a - p‖ - ‖a - n‖ + margin) for rows (\\*batch, d) of one shape.

    Schroff, Kalenichenko and Philbin, 2015, "FaceNet".

    >>> import numpy as np
    >>> triplet(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]), np.array([[0.0, 5.5]]))
    np.float64(0.5)
    """
    reduce = reducer("triplet", reduction)
    a, p, n = together("triplet", anchor, positive, negative)
    same_shape("triplet", anchor=a, positive=p, negative=n)
    return reduce(ops.relu(ops.vector_norm(a - p, -1) - ops.vector_norm(a - n, -1) + margin))


# -- scores --------------------------------------------------------------------------------------


def margin_ranking(x: Any, y: Any, order: Any, margin: float = 0.0, reduction: str = "mean") -> Any:
    """max(0, margin - order·(x - y)): order is 1 where x should be larger, -1 where y should.

    >>> import numpy as np
    >>> margin_ranking(np.array([1.0, 2.0]), np.array([3.0, 1.0]), np.array([1.0, 1.0]))
    np.float64(1.0)
    """
    reduce = reducer("margin_ranking", reduction)
    x, y, order = together("margin_ranking", x, y, order)
    d = _difference("margin_ranking", x, y)
    return reduce(ops.relu(margin - order * d))


def hinge(scores: Any, signs: Any, margin: float = 1.0, reduction: str = "mean") -> Any:
    """max(0, margin - sign·score), signs ±1 (Cortes and Vapnik, 1995, "Support-vector networks").

    >>> import numpy as np
    >>> hinge(np.array([0.5, 3.0, -1.0]), np.array([1.0, 1.0, -1.0]), reduction="sum")
    np.float64(0.5)
    """
    reduce = reducer("hinge", reduction)
    scores, signs = together("hinge", scores, signs)
    same_shape("hinge", scores=scores, signs=signs)
    return reduce(ops.relu(margin - signs * scores))
