"""From how many bytes on two threads are faster than one: steps by `threads.PAYS`, in turns.

Waking a thread takes time, and what one core has just computed lies in its cache, not the other's.
Below the right bound two threads are slower than one; above it, time that they would save is lost.
"""

from itertools import product
from statistics import median

import numpy as np

import tinygrad_sparse as ts
from benchmarks import peers
from benchmarks.timing import heading, medians
from tinygrad_sparse.backend import threads

MIB = 2**20
BOUNDS = (2, 4, 6, 8, 12)  # MiB
TABLES = ((10_000, 300, 1_024), (10_000, 64, 4_096), (10_000, 128, 4_096), (10_000, 300, 4_096),
          (10_000, 16, 16_384), (10_000, 64, 16_384), (1_000_000, 64, 4_096),
          (1_000_000, 64, 16_384))  # fmt: skip
ROUNDS, BATCHES = 60, 4


def main() -> None:
    """Print the time of a step on one thread, and on two over that for each bound."""
    heading("Sharing out: time of a step on two threads over one, by the bound in MiB")
    print(f"{'':9}{'V':>10}{'d':>5}{'k':>8}{'one, ms':>10}" + "".join(f"{b:8}" for b in BOUNDS))
    usual = threads.PAYS
    ratios: dict[int, list[float]] = {bound: [] for bound in BOUNDS}
    for optimizer, (V, d, k) in product(("SGD", "Adam"), TABLES):
        rng = np.random.default_rng(0)
        step = peers.tinygrad_sparse(rng.standard_normal((V, d), np.float32), optimizer)
        batches = [rng.integers(0, V, k) for _ in range(BATCHES)]

        def run(count: int, bound: int, step: peers.Step = step, batches=batches) -> None:
            ts.set_num_threads(count)
            threads.PAYS = bound * MIB
            for ids in batches:
                step(ids)

        ways = {0: lambda: run(1, 1), **{b: lambda b=b: run(2, b) for b in BOUNDS}}
        times = medians(ways, ROUNDS)
        for bound in BOUNDS:
            ratios[bound].append(times[bound] / times[0])
        cells = "".join(f"{times[bound] / times[0]:8.2f}" for bound in BOUNDS)
        print(f"{optimizer:9}{V:10,}{d:5}{k:8,}{times[0] / BATCHES * 1e3:10.2f}{cells}", flush=True)
    threads.PAYS = usual
    for name, of in (("median", median), ("worst", max)):
        print(f"{name:42}" + "".join(f"{of(ratios[bound]):8.2f}" for bound in BOUNDS))


if __name__ == "__main__":
    main()
