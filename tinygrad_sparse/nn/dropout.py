"""Dropout: random zeros while training, from a generator that is given. Floor 5."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import as_array, xp_of
from tinygrad_sparse.errors import ArgumentError, explain

from .module import Module


def _check_probability(op: str, p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(explain(op, "p in [0, 1]", repr(p)))


def dropout(x: Any, p: float, rng: np.random.Generator) -> Any:
    """x / (1 - p) with each element zero with probability p: x on average.

    The zeros are drawn from `rng` at the call and kept, so the gradient has them in the same places
    and rows stay apart. Srivastava et al., 2014, "Dropout".

    >>> dropout(np.ones(6), 0.5, np.random.default_rng(0))
    array([2., 2., 2., 0., 0., 0.])
    """
    x = as_array("dropout", x)
    _check_probability("dropout", p)
    if not isinstance(rng, np.random.Generator):
        hint = "np.random.default_rng(seed) makes one"
        raise ArgumentError(explain("dropout", "a random generator", repr(rng), hint))
    if p == 0:
        return x
    kept = xp_of(x).asarray(rng.random(x.shape, dtype=np.float32) >= p)
    return ops.where(kept, x * (1.0 / (1.0 - p)) if p < 1 else x, 0.0)


class Dropout(Module):
    """`dropout` while training, and nothing after ``eval()``; draws from a generator of its own.

    Where that has come to is saved by `state_dict`, so that training goes on with the same zeros.
    """

    def __init__(self, p: float = 0.5, *, seed: int | None = None) -> None:
        _check_probability("Dropout", p)
        self.p = p
        self.rng = np.random.default_rng(seed)

    def __call__(self, x: Any) -> Any:
        return dropout(x, self.p, self.rng) if self.training else x
