"""check_grads: gradients against central differences, at order 1 and above. Floor 6."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.errors import DtypeError, explain
from tinygrad_sparse.functional import grad
from tinygrad_sparse.slices import densify
from tinygrad_sparse.tensor import tensor, unwrap

FULL = 48  # arguments up to this size are checked element by element, larger ones along a direction


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    eps: float | None = None,
    atol: float = 1e-6,
    rtol: float = 1e-6,
    seed: int = 0,
) -> None:
    """Raise AssertionError unless f's gradients equal finite differences, up to `order`.

    `f` maps arrays to one Tensor of any shape; the float64 arguments are differentiated, the others
    held fixed. f is weighed by a random w, L(x) = Σ w·f(x), and ∇L compared with
    (L(x + εv) - L(x - εv)) / 2ε for each unit direction v of a small argument, or a random v of a
    large one. Order 2 checks the function Σ v·∇L in the same way.

    >>> check_grads(lambda x: ops.tanh(x) * x, [np.linspace(-1.0, 1.0, 5)])
    """
    arrays = [np.asarray(a) for a in args]
    numbers = tuple(i for i, a in enumerate(arrays) if a.dtype.kind == "f")
    if any(arrays[i].dtype != np.float64 for i in numbers):
        got = ", ".join(str(arrays[i].dtype) for i in numbers)
        raise DtypeError(
            explain("check_grads", "float64 arguments", got, "differences in float32 prove nothing")
        )
    if not numbers:
        raise DtypeError(explain("check_grads", "at least one float64 argument", "none"))
    rng = np.random.default_rng(seed)
    shape = np.shape(unwrap(f(*[tensor(a) for a in arrays])))
    w = rng.normal(size=shape)

    def weighed(*xs: Any) -> Any:
        return ops.sum(f(*xs) * w)

    gradients = [densify(g) for g in grad(weighed, numbers)(*arrays)]
    step = eps or 1e-6
    for i, g in zip(numbers, gradients, strict=True):
        _compare(f, weighed, arrays, i, g, step, atol, rtol, rng)
    if order > 1:
        vs = [rng.normal(size=arrays[i].shape) for i in numbers]

        def slope(*xs: Any) -> Any:
            inner = grad(weighed, numbers)(*xs)
            total: Any = 0.0
            for g, v in zip(inner, vs, strict=True):
                total = total + ops.sum(densify(g) * v)
            return total * tensor(1.0)

        check_grads(slope, arrays, order - 1, eps, atol * 10, rtol * 10, seed + 1)


def _compare(
    f: Any, weighed: Any, arrays: list[Any], i: int, g: Any, eps: float, atol: float, rtol: float,
    rng: np.random.Generator,
) -> None:  # fmt: skip
    x = arrays[i]
    if g.shape != x.shape or g.dtype != x.dtype:
        raise AssertionError(
            f"{_name(f)}: gradient of argument {i} is {g.dtype} {g.shape}, not {x.dtype} {x.shape}"
        )
    directions: list[tuple[Any, np.ndarray]]
    if x.size <= FULL:
        directions = [(at, _unit(x, at)) for at in np.ndindex(x.shape)]
    else:
        v = rng.normal(size=x.shape)
        directions = [("a random direction", v / np.linalg.norm(v))]
    for where, v in directions:
        sides = []
        for sign in (1.0, -1.0):
            moved = [*arrays[:i], x + sign * eps * v, *arrays[i + 1 :]]
            sides.append(weighed(*[tensor(a) for a in moved]).item())
        expected = (sides[0] - sides[1]) / (2 * eps)
        got = float((g * v).sum())
        scale = max(abs(got), abs(expected), max(map(abs, sides)) * 1e-3)
        if not abs(got - expected) <= atol + rtol * scale:
            raise AssertionError(
                f"{_name(f)}: gradient of argument {i} at {where}: got {got:.9g}, "
                f"expected {expected:.9g} by central differences"
            )


def _unit(x: np.ndarray, at: Any) -> np.ndarray:
    v = np.zeros_like(x)
    v[at] = 1.0
    return v


def _name(f: Any) -> str:
    return getattr(f, "__name__", None) or str(f)
