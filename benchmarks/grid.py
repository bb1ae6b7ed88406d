"""One table, every size: lookup, square-sum, backward and optimizer step, beside PyTorch's.

`python -m benchmarks.grid` prints how many times faster than `Embedding(sparse=True)` a step is,
for each optimizer and number of threads; `--quick` leaves out the middle of the grid.
"""

import os
import sys
import time
from collections.abc import Callable
from itertools import cycle, product
from statistics import geometric_mean, median

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading

try:
    import torch
except ImportError:
    torch = None

SIZES = (10_000, 1_000_000)
WIDTHS = (16, 64, 128, 300)
LOOKUPS = (256, 1024, 4096, 16384, 65536)
BATCHES = 4  # different ids, so that no step finds its rows in the cache because of itself
SECONDS = 0.4  # a cell: enough for medians of 7 steps or more

OURS: dict[str, Callable[..., ts.optim.Optimizer]] = {
    "SGD": lambda p: ts.optim.SGD(p, lr=1e-3),
    "Adagrad": lambda p: ts.optim.Adagrad(p, lr=1e-3),
    "Adam": lambda p: ts.optim.Adam(p, lr=1e-3, sparse="lazy"),
}
THEIRS: dict[str, Callable[..., object]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=1e-3),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
    "Adam": lambda p: torch.optim.SparseAdam(p, lr=1e-3),
}


def our_step(table: np.ndarray, optimizer: str) -> Callable[[np.ndarray], None]:
    """A training step of this package on the ids that it is given."""
    W = ts.parameter(table)
    opt = OURS[optimizer]([W])

    def step(ids: np.ndarray) -> None:
        with ts.Tape() as tape:
            rows = W[ids]
            loss = (rows * rows).sum()
        opt.step(tape.backward(loss))

    return step


def torch_step(table: np.ndarray, optimizer: str) -> Callable[[np.ndarray], None]:
    """The same step of PyTorch."""
    embedding = torch.nn.Embedding.from_pretrained(
        torch.from_numpy(table.copy()), freeze=False, sparse=True
    )
    opt = THEIRS[optimizer](embedding.parameters())

    def step(ids: np.ndarray) -> None:
        opt.zero_grad()
        rows = embedding(torch.from_numpy(ids))
        (rows * rows).sum().backward()
        opt.step()

    return step


def ratio(ours: Callable[..., None], theirs: Callable[..., None], V: int, k: int) -> float:
    """Their median over ours, taking turns."""
    rng = np.random.default_rng(0)
    batches = cycle([rng.integers(0, V, k) for _ in range(BATCHES)])
    times: dict[Callable[..., None], list[float]] = {ours: [], theirs: []}
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS or len(times[ours]) < 8:
        ids = next(batches)
        for step, taken in times.items():
            start = time.perf_counter()
            step(ids)
            taken.append(time.perf_counter() - start)
    return median(times[theirs][1:]) / median(times[ours][1:])


def table_of_ratios(optimizer: str, quick: bool) -> dict[tuple[int, int, int], float]:
    """Print a line for each table and a column for each batch; the ratios by (V, d, k)."""
    lookups = LOOKUPS[::2] if quick else LOOKUPS
    print(f"{optimizer:10}{'V':>11}{'d':>5}" + "".join(f"{f'k = {k:,}':>12}" for k in lookups))
    found = {}
    for V, d in product(SIZES, WIDTHS[::2] if quick else WIDTHS):
        table = np.random.default_rng(0).normal(size=(V, d)).astype(np.float32)
        ours, theirs = our_step(table, optimizer), torch_step(table, optimizer)
        cells = [ratio(ours, theirs, V, k) for k in lookups]
        found.update(zip([(V, d, k) for k in lookups], cells, strict=True))
        print(f"{'':10}{V:11,}{d:5}" + "".join(f"{cell:11.1f}x" for cell in cells), flush=True)
    return found


def main(quick: bool = True) -> None:
    """Print the ratios, their geometric mean and the worst, for one thread and for all cores."""
    if torch is None:
        print("\nThe grid needs PyTorch beside this package.")
        return
    ts.set_num_threads(os.cpu_count() or 1)
    for threads in sorted({1, ts.get_num_threads()}):
        ts.set_num_threads(threads)
        torch.set_num_threads(threads)
        heading(f"Table step: times faster than PyTorch {torch.__version__}, threads: {threads}")
        found = {
            (optimizer, *cell): value
            for optimizer in OURS
            for cell, value in table_of_ratios(optimizer, quick).items()
        }
        worst = min(found, key=found.__getitem__)
        print(
            f"geometric mean {geometric_mean(found.values()):.1f}, worst {found[worst]:.2f} at "
            "{} V = {:,} d = {} k = {:,}".format(*worst)
        )


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
