"""How a step grows: with V, k, d and the number of parameters, each alone; a picture of all four.

The step on a (V, d) table is a lookup of k rows, their square-sum, backward and Adagrad; the step
on separate parameters touches 12 of them. Dense gradients stand beside where they are worth the
wait.
"""

import argparse
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

import tinygrad_sparse as ts
from benchmarks import separate_parameters
from benchmarks.timing import heading, medians

BASE = {"V": 100_000, "k": 1024, "d": 64}
GROWTH = {
    "V": (10_000, 100_000, 1_000_000, 10_000_000),
    "k": (64, 256, 1024, 4096, 16_384, 65_536),
    "d": (4, 16, 64, 256, 1024),
}
LABELS = {
    "V": "V, rows of the table",
    "k": "k, rows looked up",
    "d": "d, numbers in a row",
    "parameters": "parameters of their own, 12 touched",
}
DENSE = 2**26  # elements: beyond it a dense gradient is not worth the wait


def steps(V: int, k: int, d: int) -> dict[str, Callable[[], None]]:
    """A training step with a row-sparse gradient, and with a dense one."""
    rng = np.random.default_rng(0)
    W = ts.parameter(rng.standard_normal((V, d), np.float32))
    opt = ts.optim.Adagrad([W], lr=1e-3)
    batches = cycle([rng.integers(0, V, k) for _ in range(8)])

    def step(dense: bool) -> None:
        with ts.Tape() as tape:
            rows = W[next(batches)]
            loss = (rows * rows).sum()
        grads = tape.backward(loss)
        opt.step(grads.to_dense() if dense else grads)

    runs: dict[str, Callable[[], None]] = {"rows": lambda: step(False)}
    if V * d <= DENSE:
        runs["dense"] = lambda: step(True)
    return runs


def measured() -> dict[str, dict[str, dict[int, float]]]:
    """Seconds by what grows, by contestant, by size."""
    curves: dict[str, dict[str, dict[int, float]]] = {}
    for what, sizes in GROWTH.items():
        curve = curves[what] = {"rows": {}, "dense": {}}
        for size in sizes:
            for name, seconds in medians(steps(**{**BASE, what: size}), 25).items():
                curve[name][size] = seconds
    mine = {V: separate_parameters.contestants(V) for V in separate_parameters.SIZES}
    asked = medians({V: runs["ask"] for V, runs in mine.items()}, 100)
    walked = medians({V: runs["walk"] for V, runs in mine.items()}, 10)
    curves["parameters"] = {"rows": asked, "dense": walked}
    return curves


def draw(curves: dict[str, Any], path: Path) -> None:
    """Save the four curves as a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2).ravel()
    for (what, curve), panel in zip(curves.items(), panels, strict=True):
        for name, style in (("rows", "-o"), ("dense", "--s")):
            points = curve[name]
            label = {
                "rows": "touched rows alone",
                "dense": "walk over all of them" if what == "parameters" else "dense gradient",
            }[name]
            panel.plot(points.keys(), [t * 1e3 for t in points.values()], style, ms=4, label=label)
        panel.set(xscale="log", yscale="log", xlabel=LABELS[what], ylabel="ms a step")
        others = [f"{key} = {n:,}" for key, n in BASE.items() if key != what]
        panel.set_title("" if what == "parameters" else ", ".join(others), fontsize=10)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    figure.suptitle("A training step as one thing grows: lookup, square-sum, backward, update")
    figure.savefig(path)


def main(out: Path | None = None) -> None:
    """Print the times; draw them if a file is given."""
    heading("Growth of a step: ms by what grows, the others at V = 100,000, k = 1,024, d = 64")
    curves = measured()
    for what, curve in curves.items():
        print(LABELS[what])
        sizes = list(curve["rows"])
        print(f"{'':8}" + "".join(f"{n:>12,}" for n in sizes))
        for name, points in curve.items():
            cells = [f"{points[n] * 1e3:12.3f}" if n in points else f"{'':12}" for n in sizes]
            print(f"{name:8}" + "".join(cells))
    if out is not None:
        draw(curves, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="save the curves as a PNG")
    main(parser.parse_args().out)
