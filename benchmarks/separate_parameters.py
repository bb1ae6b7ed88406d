"""V one-row parameters, 12 touched a step: asking the GradStore beside walking every parameter."""

from collections.abc import Callable
from itertools import cycle

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians
from tinygrad_sparse import ops

SIZES = (1_000, 10_000, 50_000)


def contestants(V: int) -> dict[str, Callable[[], None]]:
    """A training step on 12 other parameters each time, and the same with a walk over all."""
    rng = np.random.default_rng(0)
    words = [ts.parameter(rng.normal(size=16)) for _ in range(V)]
    opt = ts.optim.SGD(words, lr=1e-3)
    batches = cycle([rng.choice(V, 12, replace=False).tolist() for _ in range(64)])

    def gradients() -> ts.GradStore:
        with ts.Tape() as tape:
            loss = (ops.stack([words[i] for i in next(batches)]) ** 2).sum()
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


def main() -> None:
    """Print the time of a training step by the number of parameters."""
    heading("Separate parameters: 12 of V touched a step; forward, backward, SGD")
    print(f"{'V':>8}{'get_ids us':>12}{'walk all us':>14}{'factor':>10}")
    runs = {V: contestants(V) for V in SIZES}
    # The sizes take turns; the walks are timed apart, since each one empties the caches.
    asked = medians({V: runs[V]["ask"] for V in SIZES}, 300)
    walked = medians({V: runs[V]["walk"] for V in SIZES}, 20)
    for V in SIZES:
        print(f"{V:8,}{asked[V] * 1e6:12.1f}{walked[V] * 1e6:14.1f}{walked[V] / asked[V]:10.1f}")
    print(f"get_ids, V = 50,000 over 1,000: {asked[50_000] / asked[1_000]:.2f}")


if __name__ == "__main__":
    main()
