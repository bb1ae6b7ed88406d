"""Embedding: a table that is looked up. Floor 5."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.tensor import Tensor, parameter

from .module import Module


class Embedding(Module):
    """A table `weight` (V, d); ``embedding(ids)`` is (\\*ids, d), with a row-sparse gradient.

    `weight` starts as normal(0, std), drawn with the seed. float32 unless `dtype` says otherwise.
    """

    def __init__(
        self, V: int, d: int, *, std: float = 0.1, seed: int | None = None, dtype: Any = np.float32
    ) -> None:
        rows = np.random.default_rng(seed).normal(0.0, std, (V, d))
        self.weight = parameter(rows.astype(dtype), name="embedding.weight")

    def __call__(self, ids: Any) -> Tensor:
        return self.weight[ids]
