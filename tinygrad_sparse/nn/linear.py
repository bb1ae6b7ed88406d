"""Linear: x @ weight + bias. Floor 5."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.shapes import whole_numbers
from tinygrad_sparse.tensor import Tensor, parameter

from .arguments import as_data
from .module import Module


class Linear(Module):
    """``x @ weight + bias``: x (\\*batch, n) -> (\\*batch, m), weight (n, m), bias (m,).

    An array x, which is data, is computed with in the dtype of `weight`: NumPy's float64 does not
    widen a float32 layer. `weight` starts uniform in ±√(6 / (n + m)) (Glorot and Bengio, 2010),
    `bias` at zero.
    """

    def __init__(
        self, n: int, m: int, *, bias: bool = True, seed: int | None = None, dtype: Any = np.float32
    ) -> None:
        n, m = whole_numbers("Linear", "numbers of inputs and outputs, 0 or more", (n, m), least=0)
        bound = (6.0 / max(1, n + m)) ** 0.5
        weight = np.random.default_rng(seed).uniform(-bound, bound, (n, m))
        self.weight = parameter(weight.astype(dtype), name="linear.weight")
        self.bias = parameter(np.zeros(m, dtype), name="linear.bias") if bias else None

    def __call__(self, x: Any) -> Tensor:
        y = as_data("Linear", x, self.weight.dtype) @ self.weight
        return y if self.bias is None else y + self.bias
