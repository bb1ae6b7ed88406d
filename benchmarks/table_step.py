"""One (V, d) table: lookup, square-sum, backward, SGD step; row-sparse beside a dense gradient."""

from itertools import cycle

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians, peak_bytes

K, D = 4096, 64


def main() -> None:
    """Print time and bytes of a step by the size of the table."""
    heading(f"Table step: k = {K}, d = {D}, float32, SGD")
    print(f"{'V':>10}{'sparse ms':>12}{'MB':>8}{'dense ms':>12}{'MB':>8}{'factor':>9}")
    rng = np.random.default_rng(0)
    sparse_times = {}
    for V in (10_000, 100_000, 1_000_000):
        W = ts.parameter(rng.normal(size=(V, D)).astype(np.float32))
        opt = ts.optim.SGD([W], lr=1e-3)
        batches = cycle([rng.integers(0, V, K) for _ in range(16)])

        def step(dense: bool, W: ts.Tensor = W, opt: ts.optim.SGD = opt, ids=batches) -> None:
            with ts.Tape() as tape:
                rows = W[next(ids)]
                loss = (rows * rows).sum()
            grads = tape.backward(loss)
            opt.step(grads.to_dense() if dense else grads)

        times = medians({"sparse": lambda s=step: s(False), "dense": lambda s=step: s(True)}, 15)
        sparse_times[V] = times["sparse"]
        print(
            f"{V:10,}{times['sparse'] * 1e3:12.2f}{peak_bytes(lambda s=step: s(False)) / 1e6:8.2f}"
            f"{times['dense'] * 1e3:12.2f}{peak_bytes(lambda s=step: s(True)) / 1e6:8.1f}"
            f"{times['dense'] / times['sparse']:9.1f}"
        )
    print(f"V = 1e6 over 1e4: {sparse_times[1_000_000] / sparse_times[10_000]:.2f}")


if __name__ == "__main__":
    main()
