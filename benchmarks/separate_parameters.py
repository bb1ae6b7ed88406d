"""V one-row parameters, 12 touched a step: asking the GradStore beside walking every parameter."""

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians
from tinygrad_sparse import ops


def main() -> None:
    """Print the time of a step by the number of parameters."""
    heading("Separate parameters: 12 of V touched a step, SGD")
    print(f"{'V':>8}{'step us':>12}{'walk all us':>14}{'factor':>10}")
    rng = np.random.default_rng(0)
    steps = {}
    for V in (1_000, 10_000, 50_000):
        words = [ts.parameter(rng.normal(size=16)) for _ in range(V)]
        opt = ts.optim.SGD(words, lr=1e-3)
        with ts.Tape() as tape:
            loss = (ops.stack([words[i] for i in rng.choice(V, 12, replace=False)]) ** 2).sum()
        grads = tape.backward(loss)

        def walk(words: list[ts.Tensor] = words, grads: ts.GradStore = grads) -> None:
            for p in words:
                g = grads.get(p)
                if g is not None:
                    p._data -= 1e-3 * g

        times = medians({"step": lambda opt=opt, g=grads: opt.step(g), "walk": walk}, 40)
        steps[V] = times["step"]
        print(
            f"{V:8,}{times['step'] * 1e6:12.1f}{times['walk'] * 1e6:14.1f}"
            f"{times['walk'] / times['step']:10.1f}"
        )
    print(f"50,000 over 1,000 parameters: {steps[50_000] / steps[1_000]:.2f}")


if __name__ == "__main__":
    main()
