"""The formulas, simplest first. Floor 5.

A formula is written once, with NumPy's ufunc names, for rows or for single numbers: an adapter may
compile the same function. It returns new values and writes nothing. Settings are plain numbers, so
`if weight_decay` costs nothing per element and saves a pass over the rows. Decay makes two rules of
one body where it decides how a row rests: a function does the work, and each rule calls it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .rest import linear, quotient
from .rule import Memory, rule


@rule(still=True)
def sgd(p: Any, g: Any, *, lr: float) -> tuple[Any, ...]:
    """p -= lr · g.   Robbins & Monro, 1951."""
    return (p - lr * g,)


@rule(rest=linear)
def sgd_decay(p: Any, g: Any, *, lr: float, weight_decay: float) -> tuple[Any, ...]:
    """p -= lr · (g + λp): ridge regression's decay.   Krogh & Hertz, 1992."""
    return (p - lr * (g + weight_decay * p),)


@rule(slots=("velocity",), rest=linear)
def momentum(
    p: Any, g: Any, velocity: Any, *, lr: float, momentum: float, dampening: float,
    nesterov: bool, weight_decay: float, step: int,
) -> tuple[Any, ...]:  # fmt: skip
    """b = μb + (1-δ)(g + λp), undamped at the first step;  p -= lr · b.   Polyak, 1964.

    Nesterov: p -= lr · (g + λp + μb).   Sutskever, Martens, Dahl & Hinton, 2013.
    """
    if weight_decay != 0.0:
        g = g + weight_decay * p
    fresh = 1.0 - dampening if step > 1 else 1.0
    velocity = momentum * velocity + fresh * g
    if nesterov:
        g = g + momentum * velocity
    else:
        g = velocity
    return p - lr * g, velocity


def _adagrad(
    p: Any, g: Any, square_sum: Any, lr: float, eps: float, lr_decay: float, step: int
) -> tuple[Any, ...]:
    square_sum = square_sum + g * g
    return p - lr / (1.0 + (step - 1) * lr_decay) * g / (np.sqrt(square_sum) + eps), square_sum


@rule(slots=("square_sum",), still=True, start={"square_sum": "initial"}, squares=("square_sum",))
def adagrad(
    p: Any, g: Any, square_sum: Any, *, lr: float, eps: float, lr_decay: float, step: int
) -> tuple[Any, ...]:
    """h += g²;  p -= lr · g / (√h + ε).   Duchi, Hazan & Singer, 2011.

    With a decay η of the learning rate, lr / (1 + (t-1)η) in its place.
    """
    return _adagrad(p, g, square_sum, lr, eps, lr_decay, step)


@rule(slots=("square_sum",), start={"square_sum": "initial"}, squares=("square_sum",))
def adagrad_decay(
    p: Any, g: Any, square_sum: Any, *, lr: float, eps: float, lr_decay: float,
    weight_decay: float, step: int,
) -> tuple[Any, ...]:  # fmt: skip
    """Adagrad on g + λp, as PyTorch's `Adagrad(weight_decay=λ)`."""
    return _adagrad(p, g + weight_decay * p, square_sum, lr, eps, lr_decay, step)


@rule(
    slots=("square_sum",),
    still=True,
    per_row=("square_sum",),
    start={"square_sum": "initial"},
    squares=("square_sum",),
)
def rowwise_adagrad(p: Any, g: Any, square_sum: Any, *, lr: float, eps: float) -> tuple[Any, ...]:
    """h += mean of g² over the row;  p -= lr · g / (√h + ε).   As in DLRM: Naumov et al., 2019."""
    axes = tuple(range(1, g.ndim))
    d = max(1, math.prod(g.shape[1:]))
    square_sum = square_sum + (g * g).sum(axis=axes, keepdims=True) / d
    return p - lr * g / (np.sqrt(square_sum) + eps), square_sum


def _mean(mean: Any, x: Any, kept: float) -> Any:
    """A running mean, of which a part is kept and x is the rest."""
    return kept * mean + (1.0 - kept) * x


def _deviation(square_mean: Any, mean: Any) -> Any:
    """√(v - m²): rounding may have the mean of squares below the square of the mean."""
    return np.sqrt(np.maximum(square_mean - mean * mean, 0.0))


@rule(slots=("square_mean",), rest=linear, squares=("square_mean",))
def rmsprop(
    p: Any, g: Any, square_mean: Any, *, lr: float, alpha: float, eps: float
) -> tuple[Any, ...]:
    """v = αv + (1-α)g²;  p -= lr · g / (√v + ε).   Tieleman & Hinton, 2012."""
    square_mean = _mean(square_mean, g * g, alpha)
    return p - lr * g / (np.sqrt(square_mean) + eps), square_mean


@rule(slots=("square_mean", "velocity"), rest=linear, squares=("square_mean",))
def rmsprop_momentum(
    p: Any, g: Any, square_mean: Any, velocity: Any, *, lr: float, alpha: float, eps: float,
    momentum: float,
) -> tuple[Any, ...]:  # fmt: skip
    """v as in RMSprop;  b = μb + g / (√v + ε);  p -= lr · b.   Graves, 2013."""
    square_mean = _mean(square_mean, g * g, alpha)
    velocity = momentum * velocity + g / (np.sqrt(square_mean) + eps)
    return p - lr * velocity, square_mean, velocity


@rule(slots=("square_mean", "mean"), rest=linear, squares=("square_mean",))
def rmsprop_centered(
    p: Any, g: Any, square_mean: Any, mean: Any, *, lr: float, alpha: float, eps: float
) -> tuple[Any, ...]:
    """m = αm + (1-α)g, v as in RMSprop;  p -= lr · g / (√(v - m²) + ε).   Graves, 2013."""
    square_mean = _mean(square_mean, g * g, alpha)
    mean = _mean(mean, g, alpha)
    return p - lr * g / (_deviation(square_mean, mean) + eps), square_mean, mean


@rule(slots=("square_mean", "mean", "velocity"), rest=linear, squares=("square_mean",))
def rmsprop_centered_momentum(
    p: Any, g: Any, square_mean: Any, mean: Any, velocity: Any, *, lr: float, alpha: float,
    eps: float, momentum: float,
) -> tuple[Any, ...]:  # fmt: skip
    """b = μb + g / (√(v - m²) + ε);  p -= lr · b, m and v as above.   Graves, 2013."""
    square_mean = _mean(square_mean, g * g, alpha)
    mean = _mean(mean, g, alpha)
    velocity = momentum * velocity + g / (_deviation(square_mean, mean) + eps)
    return p - lr * velocity, square_mean, mean, velocity


@rule(slots=("square_mean", "square_step"), rest=linear, squares=("square_mean", "square_step"))
def adadelta(
    p: Any, g: Any, square_mean: Any, square_step: Any, *, lr: float, rho: float, eps: float
) -> tuple[Any, ...]:
    """v = ρv + (1-ρ)g²;  Δ = √(u + ε) / √(v + ε) · g;  u = ρu + (1-ρ)Δ²;  p -= lr · Δ.

    Zeiler, 2012.
    """
    square_mean = _mean(square_mean, g * g, rho)
    move = np.sqrt(square_step + eps) / np.sqrt(square_mean + eps) * g
    square_step = _mean(square_step, move * move, rho)
    return p - lr * move, square_mean, square_step


@rule(slots=("z", "n"), still=True, squares=("n",))
def ftrl(
    p: Any, g: Any, z: Any, n: Any, *, lr: float, beta: float, l1: float, l2: float
) -> tuple[Any, ...]:
    """σ = (√(n+g²) - √n) / lr;  z += g - σp;  n += g²;  p = -(z - sign(z)λ₁) / ((β+√n)/lr + λ₂),
    or 0 where |z| ≤ λ₁.   McMahan et al., 2013, algorithm 1: elements without gradient wait.
    """
    square = n + g * g
    z = z + g - (np.sqrt(square) - np.sqrt(n)) / lr * p
    shrunk = np.sign(z) * np.maximum(np.abs(z) - l1, 0.0)
    new = -shrunk / ((beta + np.sqrt(square)) / lr + l2)
    return np.where(g == 0.0, p, new), z, square


def _adam_terms(hyper: Any) -> tuple[float, float, float]:
    """Adam at a zero gradient: p -= lr/(1-β₁ᵗ) · m / (√v / √(1-β₂ᵗ) + ε)."""
    step = hyper["step"]
    weight = hyper["lr"] / (1.0 - hyper["beta1"] ** step)
    return weight, (1.0 - hyper["beta2"] ** step) ** 0.5, hyper["eps"]


def _adam(
    p: Any, g: Any, m: Any, v: Any, lr: float, beta1: float, beta2: float, eps: float, step: int
) -> tuple[Any, ...]:
    m = _mean(m, g, beta1)
    v = _mean(v, g * g, beta2)
    unbiased = lr / (1.0 - beta1**step)
    return p - unbiased * m / (np.sqrt(v / (1.0 - beta2**step)) + eps), m, v


@rule(slots=("m", "v"), rest=quotient("m", "v", _adam_terms), squares=("v",))
def adam(
    p: Any, g: Any, m: Any, v: Any, *, lr: float, beta1: float, beta2: float, eps: float, step: int
) -> tuple[Any, ...]:
    """m = β₁m + (1-β₁)g;  v = β₂v + (1-β₂)g²;  p -= lr · m̂ / (√v̂ + ε), m̂ = m / (1-β₁ᵗ), v̂ alike.

    Kingma & Ba, 2015.
    """
    return _adam(p, g, m, v, lr, beta1, beta2, eps, step)


@rule(slots=("m", "v"), rest=quotient("m", "v", _adam_terms), squares=("v",))
def adamw(
    p: Any, g: Any, m: Any, v: Any, *, lr: float, beta1: float, beta2: float, eps: float,
    weight_decay: float, step: int,
) -> tuple[Any, ...]:  # fmt: skip
    """Adam after p *= 1 - lr · λ.   Loshchilov & Hutter, 2019."""
    return _adam((1.0 - lr * weight_decay) * p, g, m, v, lr, beta1, beta2, eps, step)


@rule(slots=("m", "v"), squares=("v",))
def adam_l2(
    p: Any, g: Any, m: Any, v: Any, *, lr: float, beta1: float, beta2: float, eps: float,
    weight_decay: float, step: int,
) -> tuple[Any, ...]:  # fmt: skip
    """Adam on g + λp, the coupled decay that Loshchilov & Hutter, 2019, set AdamW against.

    The decay goes through the quotient, so a row at rest follows no closed form.
    """
    return _adam(p, g + weight_decay * p, m, v, lr, beta1, beta2, eps, step)


def _amsgrad(
    p: Any, g: Any, m: Any, v: Any, v_max: Any, lr: float, beta1: float, beta2: float, eps: float,
    step: int,
) -> tuple[Any, ...]:  # fmt: skip
    m = _mean(m, g, beta1)
    v = _mean(v, g * g, beta2)
    v_max = np.maximum(v_max, v)
    unbiased = lr / (1.0 - beta1**step)
    return p - unbiased * m / (np.sqrt(v_max / (1.0 - beta2**step)) + eps), m, v, v_max


@rule(slots=("m", "v", "v_max"), rest=quotient("m", "v_max", _adam_terms), squares=("v", "v_max"))
def amsgrad(
    p: Any, g: Any, m: Any, v: Any, v_max: Any, *, lr: float, beta1: float, beta2: float,
    eps: float, weight_decay: float, step: int,
) -> tuple[Any, ...]:  # fmt: skip
    """AdamW with the largest v so far in place of v.   Reddi, Kale & Kumar, 2018."""
    kept = (1.0 - lr * weight_decay) * p
    return _amsgrad(kept, g, m, v, v_max, lr, beta1, beta2, eps, step)


@rule(slots=("m", "v", "v_max"), squares=("v", "v_max"))
def amsgrad_l2(
    p: Any, g: Any, m: Any, v: Any, v_max: Any, *, lr: float, beta1: float, beta2: float,
    eps: float, weight_decay: float, step: int,
) -> tuple[Any, ...]:  # fmt: skip
    """AMSGrad on g + λp, as PyTorch's `Adam(weight_decay=λ, amsgrad=True)`."""
    return _amsgrad(p, g + weight_decay * p, m, v, v_max, lr, beta1, beta2, eps, step)


def _nadam_prepare(
    memory: Memory, *, beta1: float, momentum_decay: float, step: Any, **_: Any
) -> tuple[dict[str, Any], dict[str, float]]:
    """The momentum's schedule, μₜ = β₁(1 - 0.96^(tψ) / 2), and Π μ so far."""
    now = beta1 * (1.0 - 0.5 * 0.96 ** (step * momentum_decay))
    ahead = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * momentum_decay))
    product = memory.get("product", 1.0) * now
    more = {
        "of_g": (1.0 - now) / (1.0 - product),
        "of_m": ahead / (1.0 - product * ahead),
    }
    return more, {"product": product}


def _nadam_terms(hyper: Any) -> tuple[float, float, float]:
    root = (1.0 - hyper["beta2"] ** hyper["step"]) ** 0.5
    return hyper["lr"] * hyper["of_m"], root, hyper["eps"]


@rule(
    slots=("m", "v"), rest=quotient("m", "v", _nadam_terms), prepare=_nadam_prepare, squares=("v",)
)
def nadam(
    p: Any, g: Any, m: Any, v: Any, *, lr: float, beta1: float, beta2: float, eps: float,
    weight_decay: float, of_g: float, of_m: float, step: int,
) -> tuple[Any, ...]:  # fmt: skip
    """p -= lr · (μₜ₊₁ m / (1 - Π μ up to t+1) + (1-μₜ) g / (1 - Π μ up to t)) / (√v̂ + ε), m and v
    as in Adam, after p *= 1 - lr · λ.   Dozat, 2016.
    """
    m = _mean(m, g, beta1)
    v = _mean(v, g * g, beta2)
    kept = (1.0 - lr * weight_decay) * p
    return kept - lr * (of_m * m + of_g * g) / (np.sqrt(v / (1.0 - beta2**step)) + eps), m, v
