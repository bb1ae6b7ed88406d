"""The formulas, simplest first, and the classes that name their settings. Floor 5.

A formula is written once, with NumPy's ufunc names, for rows or for single numbers: an adapter may
compile the same function. It returns new values and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .optimizer import Optimizer, rule


@rule(still=True)
def sgd(p: Any, g: Any, *, lr: float) -> tuple[Any, ...]:
    """p -= lr · g.   Robbins & Monro, 1951."""
    return (p - lr * g,)


@rule(slots=("square_sum",), still=True)
def adagrad(p: Any, g: Any, square_sum: Any, *, lr: float, eps: float) -> tuple[Any, ...]:
    """h += g²;  p -= lr · g / (√h + ε).   Duchi, Hazan & Singer, 2011."""
    square_sum = square_sum + g * g
    return p - lr * g / (np.sqrt(square_sum) + eps), square_sum


@rule(slots=("m", "v"), still=False)
def adam(
    p: Any, g: Any, m: Any, v: Any, *, lr: float, beta1: float, beta2: float, eps: float, step: int
) -> tuple[Any, ...]:
    """m = β₁m + (1-β₁)g;  v = β₂v + (1-β₂)g²;  p -= lr · m̂ / (√v̂ + ε), m̂ = m / (1-β₁ᵗ), v̂ alike.

    Kingma & Ba, 2015.
    """
    m = beta1 * m + (1.0 - beta1) * g
    v = beta2 * v + (1.0 - beta2) * (g * g)
    unbiased = lr / (1.0 - beta1**step)
    return p - unbiased * m / (np.sqrt(v / (1.0 - beta2**step)) + eps), m, v


class SGD(Optimizer):
    """Stochastic gradient descent: ``p -= lr · g`` (Robbins & Monro, 1951).

    >>> import tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((4, 1)))
    >>> opt = SGD([W], lr=0.5)
    >>> with ts.Tape() as tape:
    ...     loss = W[[1, 1, 3]].sum()
    >>> opt.step(tape.backward(loss))
    >>> W.data.ravel()
    array([1. , 0. , 1. , 0.5])
    """

    def __init__(self, params: Iterable[Any], lr: float) -> None:
        super().__init__(sgd, params, lr=lr)


class Adagrad(Optimizer):
    """Steps scaled by the root of the sum of squared gradients (Duchi, Hazan & Singer, 2011)."""

    def __init__(self, params: Iterable[Any], lr: float = 0.01, eps: float = 1e-10) -> None:
        super().__init__(adagrad, params, lr=lr, eps=eps)


class Adam(Optimizer):
    """Adam (Kingma & Ba, 2015).

    A zero gradient still moves a row under Adam. ``sparse="exact"``, the default, means what a
    dense run means; it takes dense gradients only so far and raises SparsityError for row-sparse
    ones. ``sparse="lazy"`` moves the touched rows only, with the parameter's own step count in the
    bias correction: what PyTorch's SparseAdam does.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        *,
        sparse: str = "exact",
    ) -> None:
        beta1, beta2 = betas
        super().__init__(
            adam, params, lr=lr, beta1=beta1, beta2=beta2, eps=eps, step=0, sparse=sparse
        )
