"""V one-row parameters, 12 touched a step: asking the GradStore beside walking every parameter.

PyTorch, where it is installed, walks them: its SGD looks at all that it was given.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import cycle

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians
from tinygrad_sparse import ops

SIZES = (1_000, 10_000, 50_000)


def batches(V: int) -> Iterator[list[int]]:
    """Which 12 of V a step touches."""
    rng = np.random.default_rng(0)
    return cycle([rng.choice(V, 12, replace=False).tolist() for _ in range(64)])


def contestants(V: int) -> dict[str, Callable[[], None]]:
    """A training step on 12 other parameters each time, and the same with a walk over all."""
    rng = np.random.default_rng(0)
    words = [ts.parameter(rng.normal(size=16)) for _ in range(V)]
    opt = ts.optim.SGD(words, lr=1e-3)
    rows = batches(V)

    def gradients() -> ts.GradStore:
        with ts.Tape() as tape:
            loss = (ops.stack([words[i] for i in next(rows)]) ** 2).sum()
        return tape.backward(loss)

    def ask() -> None:
        opt.step(gradients())

    def walk() -> None:
        grads = gradients()
        for p in words:
            g = grads.get(p)
            if g is not None:
                p._data -= 1e-3 * g

    return {"ask": ask, "walk": walk}


def of_torch(V: int) -> Callable[[], None]:
    """The same step there."""
    import torch

    words = [torch.randn(16, dtype=torch.float64, requires_grad=True) for _ in range(V)]
    opt = torch.optim.SGD(words, lr=1e-3)
    rows = batches(V)

    def step() -> None:
        opt.zero_grad()
        (torch.stack([words[i] for i in next(rows)]) ** 2).sum().backward()
        opt.step()

    return step


def main() -> None:
    """Print the time of a training step by the number of parameters."""
    heading("Separate parameters: 12 of V touched a step; forward, backward, SGD")
    runs = {V: contestants(V) for V in SIZES}
    # The sizes take turns; the walks are timed apart, since each one empties the caches.
    asked = medians({V: run["ask"] for V, run in runs.items()}, 300)
    taken = {"walk all us": medians({V: run["walk"] for V, run in runs.items()}, 20)}
    if find_spec("torch"):
        taken["PyTorch us"] = medians({V: of_torch(V) for V in SIZES}, 20)
    print(f"{'V':>8}{'ask us':>12}" + "".join(f"{t:>14}{'factor':>8}" for t in taken))
    for V in SIZES:
        cells = (f"{t[V] * 1e6:14.1f}{t[V] / asked[V]:8.1f}" for t in taken.values())
        print(f"{V:8,}{asked[V] * 1e6:12.1f}" + "".join(cells))
    print(f"ask, V = 50,000 over 1,000: {asked[50_000] / asked[1_000]:.2f}")


if __name__ == "__main__":
    main()
