"""One table, every size: lookup, square-sum, backward and optimizer step, beside its peers'.

`python -m benchmarks.grid` prints how many times faster a step is than the fastest peer's, for each
optimizer and number of threads; `--quick` leaves out the middle of the grid, and
``--out DIRECTORY`` writes the tables as Markdown there, and a chart.
"""

import argparse
import os
import time
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from statistics import geometric_mean, median
from typing import NamedTuple

import numpy as np

from benchmarks import peers
from benchmarks.chart import draw
from benchmarks.timing import heading, machine

SIZES = (10_000, 1_000_000)
WIDTHS = (16, 64, 128, 300)
LOOKUPS = (256, 1024, 4096, 16384, 65536)
BATCHES = 4  # different ids, so that no step finds its rows in the cache because of itself
SECONDS = 0.4  # a cell: enough for medians of 7 steps or more


class Cell(NamedTuple):
    """One place of the grid."""

    threads: int
    optimizer: str
    V: int
    d: int
    k: int

    def __str__(self) -> str:
        return (
            f"{self.optimizer}, V = {self.V:,}, d = {self.d}, k = {self.k:,}, "
            f"threads: {self.threads}"
        )


def seconds(steps: dict[str, peers.Step], V: int, k: int) -> dict[str, float]:
    """The median time of each step, taking turns."""
    rng = np.random.default_rng(0)
    batches = cycle([rng.integers(0, V, k) for _ in range(BATCHES)])
    times: dict[str, list[float]] = {name: [] for name in steps}
    began, rounds = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS or rounds < 8:
        ids, rounds = next(batches), rounds + 1
        for name, step in steps.items():
            start = time.perf_counter()
            step(ids)
            times[name].append(time.perf_counter() - start)
    return {name: median(taken[1:]) for name, taken in times.items()}


def measure(quick: bool, say: Callable[[str], None]) -> dict[Cell, tuple[float, str]]:
    """How many times faster than the fastest peer each cell is, and which peer that is."""
    found: dict[Cell, tuple[float, str]] = {}
    contestants = {"ours": peers.tinygrad_sparse, **peers.installed()}
    lookups, widths = (LOOKUPS[::2], WIDTHS[::2]) if quick else (LOOKUPS, WIDTHS)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for threads in sorted({1, min(2, cores or 1)}):
        peers.set_num_threads(threads)
        for optimizer in peers.OPTIMIZERS:
            say(row([f"{optimizer}, threads: {threads}", "d", *[f"k = {k:,}" for k in lookups]]))
            say(row(["---:"] * (2 + len(lookups))))
            for V, d in product(SIZES, widths):
                table = np.random.default_rng(0).normal(size=(V, d)).astype(np.float32)
                made = {name: make(table, optimizer) for name, make in contestants.items()}
                steps = {name: step for name, step in made.items() if step is not None}
                cells = []
                for k in lookups:
                    times = seconds(steps, V, k)
                    ours = times.pop("ours")
                    best = min(times, key=times.__getitem__)
                    found[Cell(threads, optimizer, V, d, k)] = times[best] / ours, best
                    cells.append(f"{times[best] / ours:.1f}x {best[0]}")
                say(row([f"V = {V:,}", str(d), *cells]))
            say("")
    return found


def row(cells: list[str]) -> str:
    """A row of a Markdown table."""
    return f"| {cells[0]:>20} | " + " | ".join(f"{cell:>11}" for cell in cells[1:]) + " |"


def summary(found: dict[Cell, tuple[float, str]]) -> list[str]:
    """For each number of threads: geometric means, and the worst cell."""
    lines = []
    for threads in sorted({cell.threads for cell in found}):
        mine = {cell: ratio for cell, (ratio, _) in found.items() if cell.threads == threads}
        worst = min(mine, key=mine.__getitem__)
        below = sum(ratio < 2 for ratio in mine.values())
        each = {
            name: geometric_mean(r for cell, r in mine.items() if cell.optimizer == name)
            for name in peers.OPTIMIZERS
        }
        by_name = ", ".join(f"{name} {mean:.1f}x" for name, mean in each.items())
        lines.append(
            f"Threads: {threads}. Geometric mean {geometric_mean(mine.values()):.1f}x ({by_name}); "
            f"{below} of {len(mine)} cells below 2x; worst {mine[worst]:.2f}x: {worst}."
        )
    return lines


def main(quick: bool = True, out: Path | None = None) -> None:
    """Print the ratios, their geometric means and the worst; write them, and a chart, to `out`."""
    names = list(peers.installed())
    if not names:
        print("\nThe grid needs PyTorch beside this package.")
        return
    heading("Table step: times faster than the fastest peer")
    lines: list[str] = []

    def say(text: str) -> None:
        lines.append(text)
        print(text, flush=True)

    found = measure(quick, say)
    closing = summary(found)
    print("\n".join(closing))
    if out is None:
        return
    legend = ", ".join(f"{name[0]}: {name}" for name in names)
    text = [
        "# Table step: times faster than the fastest peer",
        "",
        "A step is a lookup of k rows of a (V, d) float32 table, the sum of their squares,",
        "backward and the optimizer; Adam is the lazy one. Medians of steps that take turns. Each",
        "cell has the ratio to the fastest peer and its letter:",
        f"{legend}. Made by `python -m benchmarks.grid --out docs/benchmarks`.",
        "",
        machine(),
        "",
        "![chart](grid.png)",
        "",
        *closing,
        "",
        *lines,
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / "grid.md").write_text("\n".join(text).rstrip() + "\n")
    draw({cell: ratio for cell, (ratio, _) in found.items()}, out / "grid.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="leave out the middle of the grid")
    parser.add_argument("--out", type=Path, help="where to write grid.md and grid.png")
    arguments = parser.parse_args()
    main(arguments.quick, arguments.out)
