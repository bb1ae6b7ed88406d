"""Case: an op, arguments to try it on, and how sparse its gradients should stay. Floor 6."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .places import placed

Draw = Callable[[np.random.Generator], np.ndarray]


def normal(*shape: int) -> Draw:
    """Standard normal numbers."""
    return lambda rng: rng.normal(size=shape)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Draw:
    """Uniform numbers in [low, high): for ops with a domain, or to stay away from kinks."""
    return lambda rng: rng.uniform(low, high, size=shape)


def distinct(*shape: int, gap: float = 0.1) -> Draw:
    """Numbers of which no two are nearer than `gap`: for max, sort and other ops with ties."""
    return lambda rng: (
        gap * (rng.permutation(math.prod(shape)).reshape(shape) - math.prod(shape) / 2)
    )


def integers(*shape: int, high: int) -> Draw:
    """Integers in [0, high), such as row ids; no gradient flows to them."""
    return lambda rng: rng.integers(0, high, size=shape)


@dataclass(frozen=True)
class Case:
    """`function` of the drawn `args`, with the static arguments `static`.

    `rows` says what a row-sparse cotangent of the output becomes: "sparse", if no argument that has
    a row for each row of the output may turn dense; "dense", if rows mix. `commutes` lists the
    arguments whose rows give the same rows of the result, for the law f(x)[r] == f(x[r]). `device`
    is where the laws compute: floats are drawn there, ids stay on the host, as a user has them.
    """

    function: Callable[..., Any]
    args: Sequence[Draw]
    name: str = ""
    rows: str = "sparse"
    commutes: Sequence[int] = ()
    order: int = 2
    static: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def __str__(self) -> str:
        label = getattr(self.function, "__name__", type(self.function).__name__)
        if label == "<lambda>":
            return self.name or label
        return f"{label}: {self.name}" if self.name else label

    def draw(self, seed: int = 0, dtype: Any = np.float64) -> list[Any]:
        """The arguments: floats in `dtype`, integers as they are."""
        rng = np.random.default_rng(seed)
        drawn = [np.asarray(draw(rng)) for draw in self.args]
        return [placed(a.astype(dtype), self.device) if a.dtype.kind == "f" else a for a in drawn]

    def __call__(self, *args: Any) -> Any:
        return self.function(*args, **self.static)
