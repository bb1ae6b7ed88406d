"""The grid as a picture: a panel for optimizer and number of threads, a line for each table."""

from pathlib import Path
from typing import Any

GOAL = 2.0  # times faster, in every cell


def draw(ratios: dict[Any, float], path: Path) -> None:
    """Draw ratios by (threads, optimizer, V, d, k) to a PNG; without matplotlib, say so."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator, NullFormatter
    except ImportError:
        print("no chart: matplotlib is not installed")
        return
    threads, optimizers, sizes, widths, lookups = (
        list(dict.fromkeys(values)) for values in zip(*ratios, strict=True)
    )
    figure = Figure(figsize=(4 * len(optimizers), 3.4 * len(threads) + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(
        len(threads), len(optimizers), sharex=True, sharey="row", squeeze=False
    )
    colours = dict(zip(widths, ("#440154", "#31688e", "#35b779", "#d8a800"), strict=False))
    for n, line in zip(threads, panels, strict=True):
        for optimizer, panel in zip(optimizers, line, strict=True):
            for V, d in ((V, d) for V in sizes for d in widths):
                values = [ratios[n, optimizer, V, d, k] for k in lookups]
                style = "-o" if V == sizes[0] else "--s"
                label = f"V = {V:,}, d = {d}"
                panel.plot(lookups, values, style, color=colours[d], ms=3, lw=1.2, label=label)
            panel.axhline(1, color="black", lw=0.8)
            panel.axhline(GOAL, color="firebrick", lw=0.8, ls=":")
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(lookups, [f"{k:,}" for k in lookups], fontsize=7)
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.yaxis.set_major_formatter(lambda y, _: f"{y:g}x")
            panel.set_title(f"{optimizer}, threads: {n}", fontsize=10)
            panel.grid(True, which="both", lw=0.3, alpha=0.5)
    for line in panels:
        line[0].set_ylabel("times faster than the fastest peer", fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("k, rows looked up", fontsize=8)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(widths), fontsize=8)
    figure.savefig(path, dpi=110)
