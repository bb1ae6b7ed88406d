"""At which touched fraction a dense gradient becomes the faster one: (V, d) table, Adagrad.

The sparse step looks k rows up, squares, sums, goes back and updates the rows it touched. The
dense step does the same with ``grads.to_dense()``, so that every row is updated. Both do the same
to the table: Adagrad leaves a row with a zero gradient alone.
"""

import argparse
from itertools import cycle
from pathlib import Path

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians

TABLES = [(10_000, 16), (10_000, 128), (100_000, 64)]
FRACTIONS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0]


def ratio(V: int, d: int, fraction: float, rounds: int = 15) -> float:
    """Sparse time over dense time when a batch has fraction·V ids, drawn with repeats."""
    rng = np.random.default_rng(0)
    W = ts.parameter(rng.normal(size=(V, d)).astype(np.float32))
    opt = ts.optim.Adagrad([W], lr=1e-3)
    batches = cycle([rng.integers(0, V, max(1, int(fraction * V))) for _ in range(4)])

    def gradients() -> ts.GradStore:
        with ts.Tape() as tape:
            rows = W[next(batches)]
            loss = (rows * rows).sum()
        return tape.backward(loss)

    times = medians(
        {
            "sparse": lambda: opt.step(gradients()),
            "dense": lambda: opt.step(gradients().to_dense()),
        },
        rounds,
    )
    return times["sparse"] / times["dense"]


def crossing(ratios: list[float]) -> float | None:
    """The fraction at which the ratio reaches 1, by interpolation between the logarithms."""
    for (f0, r0), (f1, r1) in zip(
        zip(FRACTIONS, ratios, strict=True), zip(FRACTIONS[1:], ratios[1:], strict=True),
        strict=False,
    ):  # fmt: skip
        if r0 < 1.0 <= r1:
            t = np.log(1.0 / r0) / np.log(r1 / r0)
            return float(np.exp(np.log(f0) + t * np.log(f1 / f0)))
    return None


def draw(curves: dict[tuple[int, int], list[float]], path: Path) -> None:
    """Save the curves as a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xscale="log", yscale="log")
    for ((V, d), ratios), marker in zip(curves.items(), cycle("os^D"), strict=False):
        axes.plot(FRACTIONS, ratios, marker=marker, label=f"V = {V:,} rows of d = {d} numbers")
    axes.axhline(1.0, color="black", linewidth=1)
    for y, side, text in (
        (1.07, "bottom", "dense gradient faster"), (0.93, "top", "row-sparse gradient faster"),
    ):  # fmt: skip
        axes.text(FRACTIONS[0], y, text, va=side, color="0.3", style="italic")
    lowest = min(min(ratios) for ratios in curves.values())
    axes.set_ylim(0.7 * lowest, 2.0)
    axes.set_yticks([r for r in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2) if r >= 0.7 * lowest])
    axes.yaxis.set_major_formatter("{x:g} ×")
    axes.set_xticks([0.001, 0.01, 0.1, 1.0], ["0.1 %", "1 %", "10 %", "100 %"])
    axes.minorticks_off()
    axes.set_xlabel(
        "ids looked up in a step, as a share of the table's rows\n"
        "(drawn with repeats: 100 % touches 63 % of the rows)"
    )
    axes.set_ylabel("time of the row-sparse step / time of the dense step")
    axes.set_title("Lookup, square-sum, backward and Adagrad step on a (V, d) table, float32")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path)


def main(out: Path | None = None) -> None:
    """Print the ratios and where they cross 1; draw them if a file is given."""
    heading("Break-even: sparse step time over dense step time, Adagrad, float32")
    print(f"{'V':>8}{'d':>5}" + "".join(f"{f:>8g}" for f in FRACTIONS) + "   crosses 1 at")
    curves = {}
    for V, d in TABLES:
        curves[V, d] = [ratio(V, d, f) for f in FRACTIONS]
        at = crossing(curves[V, d])
        row = "".join(f"{r:8.3f}" for r in curves[V, d])
        print(f"{V:8,}{d:5}{row}   {'nowhere here' if at is None else f'{at:.2f}'}")
    if out is not None:
        draw(curves, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="save the curves as a PNG")
    main(parser.parse_args().out)
