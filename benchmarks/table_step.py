"""One (V, d) table: lookup, square-sum, backward, SGD step; row-sparse beside a dense gradient."""

from itertools import cycle

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians, peak_bytes

K, D = 4096, 64
SIZES = (10_000, 100_000, 1_000_000, 2_000_000, 10_000_000)
DENSE = 1_000_000  # rows: beyond it a dense gradient is not worth the wait


def main() -> None:
    """Print time and bytes of a step by the size of the table; bytes over those of k rows, too."""
    heading(f"Table step: k = {K}, d = {D}, float32, SGD")
    print(
        f"{'V':>10}{'sparse ms':>12}{'MB':>8}{'/ rows':>10}{'dense ms':>12}{'MB':>8}{'factor':>9}"
    )
    rng = np.random.default_rng(0)
    runs = {}
    for V in SIZES:
        W = ts.parameter(rng.standard_normal((V, D), np.float32))
        opt = ts.optim.SGD([W], lr=1e-3)
        batches = cycle([rng.integers(0, V, K) for _ in range(16)])

        def step(dense: bool, W: ts.Tensor = W, opt: ts.optim.SGD = opt, ids=batches) -> None:
            with ts.Tape() as tape:
                rows = W[next(ids)]
                loss = (rows * rows).sum()
            grads = tape.backward(loss)
            opt.step(grads.to_dense() if dense else grads)

        runs[V] = step
        line = {"sparse": lambda s=step: s(False)}
        if V <= DENSE:
            line["dense"] = lambda s=step: s(True)
        times = medians(line, 15)
        peaks = {name: peak_bytes(run) for name, run in line.items()}
        cells = [f"{times[name] * 1e3:12.2f}{peaks[name] / 1e6:8.2f}" for name in line]
        cells.insert(1, f"{peaks['sparse'] / (K * D * 4):10.2f}")
        factor = f"{times['dense'] / times['sparse']:9.1f}" if "dense" in times else ""
        print(f"{V:10,}" + "".join(cells) + factor)
    # The sizes take turns, so that a busy moment hits both.
    small, large = SIZES[1], SIZES[-1]
    times = medians({V: lambda s=runs[V]: s(False) for V in (small, large)}, 100)
    print(f"V = {large:,} over {small:,}: {times[large] / times[small]:.2f}")


if __name__ == "__main__":
    main()
