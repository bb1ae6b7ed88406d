"""The optimizers by name: their settings, and which formula those ask for. Floor 5.

All of them take `sparse`, `maximize`, `master`, `count` and `average`, and groups with settings of
their own: see `Optimizer`. A setting may be a schedule. Each raises ArgumentError for a setting
that it has not or a value out of range, DtypeError for one that is no number, TapeError for what is
no parameter, and SparsityError for meanings that do not go together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from . import rules
from .optimizer import Optimizer
from .rule import Rule
from .settings import ABOVE_0, RANGES


class SGD(Optimizer):
    """Stochastic gradient descent: ``p -= lr · g`` (Robbins & Monro, 1951).

    With `momentum` μ (Polyak, 1964) b = μb + (1-δ)g, p -= lr · b; `dampening` is δ, which the first
    step goes without. `nesterov` takes g + μb for b, `weight_decay` λ adds λp to g. These move rows
    that no gradient touched; under the exact meaning such rows catch up when they are read.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((4, 1)))
    >>> opt = SGD([W], lr=0.5)
    >>> with ts.Tape() as tape:
    ...     loss = W[[1, 1, 3]].sum()
    >>> opt.step(tape.backward(loss))
    >>> W.data.ravel()
    array([1. , 0. , 1. , 0.5])
    """

    def __init__(
        self, params: Iterable[Any], lr: Any, momentum: float = 0.0, weight_decay: float = 0.0,
        *, dampening: float = 0.0, nesterov: bool = False, **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            _sgd, params, lr=lr, momentum=momentum, weight_decay=weight_decay,
            dampening=dampening, nesterov=nesterov, **common,
        )  # fmt: skip


def _sgd(settings: dict[str, Any]) -> Rule:
    if settings["momentum"]:
        return rules.momentum
    return rules.sgd_decay if settings["weight_decay"] else rules.sgd


class Adagrad(Optimizer):
    """h += g²;  p -= lr · g / (√h + eps): Duchi, Hazan & Singer, 2011.

    h starts at `initial`; `lr_decay` η makes the rate lr / (1 + (t-1)η) at step t. With
    `weight_decay` λ, which adds λp to g, rows at rest have no closed form: use ``sparse="lazy"``.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((3, 1)))
    >>> opt = Adagrad([W], lr=0.1)
    >>> for ids in ([0, 1], [1]):
    ...     with ts.Tape() as tape:
    ...         loss = W[ids].sum()
    ...     opt.step(tape.backward(loss))
    >>> W.data.ravel().round(3)
    array([0.9  , 0.829, 1.   ])
    """

    def __init__(
        self, params: Iterable[Any], lr: Any = 0.01, eps: float = 1e-10, *, lr_decay: float = 0.0,
        weight_decay: float = 0.0, initial: float = 0.0, **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            lambda s: rules.adagrad_decay if s["weight_decay"] else rules.adagrad,
            params, lr=lr, eps=eps, lr_decay=lr_decay, weight_decay=weight_decay, initial=initial,
            **common,
        )  # fmt: skip


class RowwiseAdagrad(Optimizer):
    """Adagrad with one number a row, the mean of its squares: what recommenders use for tables.

    As in DLRM (Naumov et al., 2019): 1/d of Adagrad's state.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.zeros((1000, 64), np.float32))
    >>> opt = RowwiseAdagrad([W], lr=0.1)
    >>> with ts.Tape() as tape:
    ...     loss = W[[3, 5]].sum()
    >>> opt.step(tape.backward(loss))
    >>> opt.state_bytes(), W.nbytes
    (4000, 256000)
    """

    def __init__(
        self, params: Iterable[Any], lr: Any = 0.01, eps: float = 1e-10, *, initial: float = 0.0,
        **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(rules.rowwise_adagrad, params, lr=lr, eps=eps, initial=initial, **common)


class RMSprop(Optimizer):
    """v = αv + (1-α)g²;  p -= lr · g / (√v + eps): Tieleman & Hinton, 2012.

    `alpha` is α. ``centered=True`` takes v - m² for v, m being the mean that v is of squares, and
    `momentum` μ moves by b = μb + g / (√v + eps) (Graves, 2013).

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((3, 1)))
    >>> opt = RMSprop([W], lr=0.1, momentum=0.9)
    >>> for ids in ([0, 1], [1]):
    ...     with ts.Tape() as tape:
    ...         loss = W[ids].sum()
    ...     opt.step(tape.backward(loss))
    >>> W.data.ravel().round(3)
    array([-0.9  , -1.609,  1.   ])
    """

    def __init__(
        self, params: Iterable[Any], lr: Any = 0.01, alpha: float = 0.99, eps: float = 1e-8, *,
        momentum: float = 0.0, centered: bool = False, **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            _rmsprop, params, lr=lr, alpha=alpha, eps=eps, momentum=momentum, centered=centered,
            **common,
        )  # fmt: skip


def _rmsprop(settings: dict[str, Any]) -> Rule:
    if settings["centered"]:
        return rules.rmsprop_centered_momentum if settings["momentum"] else rules.rmsprop_centered
    return rules.rmsprop_momentum if settings["momentum"] else rules.rmsprop


class Adadelta(Optimizer):
    """Steps in the parameter's own units, without a rate to choose: Zeiler, 2012.

    v = ρv + (1-ρ)g²;  Δ = √(u + eps) / √(v + eps) · g;  u = ρu + (1-ρ)Δ²;  p -= lr · Δ. `rho` is ρ.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((3, 1)))
    >>> opt = Adadelta([W])
    >>> for ids in ([0, 1], [1]):
    ...     with ts.Tape() as tape:
    ...         loss = W[ids].sum()
    ...     opt.step(tape.backward(loss))
    >>> W.data.ravel().round(5)
    array([0.99684, 0.99359, 1.     ])
    """

    def __init__(
        self, params: Iterable[Any], lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6,
        **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(rules.adadelta, params, lr=lr, rho=rho, eps=eps, **common)


class FTRL(Optimizer):
    """Follow the regularised leader, proximal: McMahan et al., 2013, algorithm 1.

    n += g²;  z += g - (√n - √n before) / lr · p;  p = -(z - sign(z)λ₁) / ((β + √n)/lr + λ₂), and 0
    where |z| ≤ λ₁. `beta` β makes first steps smaller, `l1` λ₁ makes zeros, `l2` λ₂ shrinks. The
    formula divides by `lr`, which has to be above 0. Elements without gradient wait.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((3, 1)))
    >>> opt = FTRL([W], l1=0.1)
    >>> for ids in ([0, 1], [1]):
    ...     with ts.Tape() as tape:
    ...         loss = W[ids].sum()
    ...     opt.step(tape.backward(loss))
    >>> W.data.ravel().round(3)
    array([0.445, 0.404, 1.   ])
    """

    ranges: ClassVar = {**RANGES, "lr": ABOVE_0}

    def __init__(
        self, params: Iterable[Any], lr: Any = 0.1, *, beta: float = 1.0, l1: float = 0.0,
        l2: float = 0.0, **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(rules.ftrl, params, lr=lr, beta=beta, l1=l1, l2=l2, **common)


class Adam(Optimizer):
    """Adam (Kingma & Ba, 2015); with `amsgrad`, its largest v (Reddi, Kale & Kumar, 2018).

    m = β₁m + (1-β₁)g;  v = β₂v + (1-β₂)g²;  p -= lr · m̂ / (√v̂ + eps), m̂ = m / (1-β₁ᵗ) at step t and
    v̂ = v / (1-β₂ᵗ). `betas` is (β₁, β₂).

    A zero gradient still moves a row under Adam. ``sparse="exact"``, the default, means what a
    dense run means: rows that were not touched catch up when they are read. ``sparse="lazy"`` moves
    the touched rows only, with the parameter's own step count in the bias correction (as PyTorch's
    SparseAdam does), or with each row's: ``count="row"``.

    `weight_decay` λ adds λp to g; rows at rest have no closed form then, so it is for dense
    gradients or the lazy meaning. AdamW's decay has one.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W, D = ts.parameter(np.ones((3, 2))), ts.parameter(np.ones((3, 2)))
    >>> rows, dense = Adam([W]), Adam([D])
    >>> for ids in ([0], [1], [1, 1], [2]):
    ...     for table, opt in ((W, rows), (D, dense)):
    ...         with ts.Tape() as tape:
    ...             loss = (table[ids] ** 3).sum()
    ...         grads = tape.backward(loss)
    ...         opt.step(grads if opt is rows else grads.to_dense())
    >>> np.allclose(W.data, D.data, rtol=1e-14, atol=0)
    True
    """

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.0, *, amsgrad: bool = False, **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            _adam, params, lr=lr, betas=betas, eps=eps,
            weight_decay=weight_decay, amsgrad=amsgrad, **common,
        )  # fmt: skip


def _adam(settings: dict[str, Any]) -> Rule:
    if settings["amsgrad"]:
        return rules.amsgrad_l2 if settings["weight_decay"] else rules.amsgrad
    return rules.adam_l2 if settings["weight_decay"] else rules.adam


class AdamW(Optimizer):
    """p *= 1 - lr · λ, then Adam's step: Loshchilov & Hutter, 2019.

    `weight_decay` is λ, the other settings are Adam's. The decay does not go through the quotient,
    so rows that rest have a closed form.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((3, 1)))
    >>> opt = AdamW([W], lr=0.1)
    >>> for ids in ([0, 1], [1]):
    ...     with ts.Tape() as tape:
    ...         loss = W[ids].sum()
    ...     opt.step(tape.backward(loss))
    >>> W.data.ravel().round(3)
    array([0.831, 0.798, 0.998])
    """

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.01, *, amsgrad: bool = False, **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            lambda s: rules.amsgrad if s["amsgrad"] else rules.adamw,
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
            amsgrad=amsgrad, **common,
        )  # fmt: skip


class NAdam(Optimizer):
    """Adam with Nesterov's momentum: Dozat, 2016.

    p -= lr · (μ' m / (1 - Π μ μ') + (1-μ) g / (1 - Π μ)) / (√v̂ + eps), m and v as in Adam, μ and μ'
    its momentum now and at the next step: μₜ = β₁(1 - 0.96^(tψ) / 2), ψ being `momentum_decay`.
    `weight_decay` is decoupled, as AdamW's. It counts all steps: ``count="row"`` is refused.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((3, 1)))
    >>> opt = NAdam([W], lr=0.1)
    >>> for ids in ([0, 1], [1]):
    ...     with ts.Tape() as tape:
    ...         loss = W[ids].sum()
    ...     opt.step(tape.backward(loss))
    >>> W.data.ravel().round(3)
    array([0.888, 0.816, 1.   ])
    """

    def __init__(
        self, params: Iterable[Any], lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0.0, *, momentum_decay: float = 4e-3,
        **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            rules.nadam, params, lr=lr, betas=betas, eps=eps,
            weight_decay=weight_decay, momentum_decay=momentum_decay, **common,
        )  # fmt: skip
