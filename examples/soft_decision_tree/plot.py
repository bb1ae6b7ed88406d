"""Pictures: the tree, and the way of one example through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy import sparse

from tinygrad_sparse.nn.soft_tree import is_whole

from .base import SoftDecisionTree
from .reading import (
    check_class_names,
    check_count,
    class_names_of,
    names_of,
    one_example,
    path_of,
    says,
    strongest,
    summed_up,
)

RIGHT, LEFT = "#b2182b", "#2166ac"  # the two ends of the colour map of weights
MARKED = "#f4a000"  # the way of an example
FEW = 12  # classes that have room for a bar each
BARS = 5  # features shown of a gate that is not an image
WORTH_NAMING = 0.1  # the share of a leaf's second class


def plot_tree(
    tree: SoftDecisionTree,
    *,
    image_shape: tuple[int, int] | None = None,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    X: Any = None,
    example: Any = None,
    root: int = 0,
    levels: int = 4,
) -> Figure:
    """The tree below gate `root`, `levels` gates deep; `figure.savefig(path)` writes it.

    A gate shows its weights: as an image where features are pixels of an `image_shape`, otherwise
    its strongest features by name. Red sends an example right, blue left. What hangs below the
    last level is summed up. With examples X, a line is as thick as the share of X that takes it.
    The way of one `example` is marked, each side with its probability.
    """
    names = _checked_names(tree, feature_names, class_names, image_shape)
    check_count("levels", levels)
    layout = _Layout(tree._depth, root, levels)
    arriving = None if X is None else tree._mean_arrivals(X)
    way = None if example is None else tree.arrivals(one_example(example))[0]
    marked = set() if example is None else _nodes_on_way(tree, example)
    figure = Figure(figsize=layout.size, dpi=100)
    FigureCanvasAgg(figure)
    back = figure.add_axes((0, 0, 1, 1))
    back.set_axis_off()
    back.set(xlim=(0, 1), ylim=(0, 1))
    weights = tree.gate_weights_
    for n, (x, y) in layout.places.items():
        for child in layout.children(n):
            _edge(back, (x, y), layout.places[child], n, child, arriving, way, child in marked)
    for n, place in layout.places.items():
        if layout.children(n):
            if image_shape is not None:
                axes = layout.add(figure, place)
                _image(axes, weights[n].reshape(image_shape))
            else:
                axes = layout.add(figure, place, wide=2.0)
                _bars(axes, weights[n], names)
            _title(axes, f"gate {n}")
        else:
            values = summed_up(tree, n, arriving)
            label = f"leaf {n - len(weights)}" if n >= len(weights) else f"below gate {n}"
            _verdict(layout.add(figure, place), tree, values, class_names, label)
        if n in marked:
            _mark(figure.axes[-1])
    if example is not None and image_shape is not None:
        _example(figure.add_axes(layout.corner), _features(example), image_shape, names)
    back.text(
        0.99, 0.99, "red: more of it sends the example right\nblue: left",
        ha="right", va="top", fontsize=8, color="#444444",
    )  # fmt: skip
    return figure


def plot_path(
    tree: SoftDecisionTree,
    x: Any,
    *,
    image_shape: tuple[int, int] | None = None,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    routing: str = "likeliest",
) -> Figure:
    """The way of one example in a row: itself, each gate with the side it takes, the leaf.

    A gate shows weight times feature, what it saw in *this* example; an image its weights as well.
    """
    names = _checked_names(tree, feature_names, class_names, image_shape)
    path = path_of(tree, x, routing)
    x = _features(x)
    count = len(path.steps) + 2
    rows = 2 if image_shape is not None else 1
    width = 1.5 if image_shape is not None else 2.2  # names need room on both sides
    figure = Figure(figsize=(width * count, 1.1 + 1.35 * rows), dpi=100)
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, count, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    _example(grid[0, 0], x, image_shape, names)
    weights = tree.gate_weights_
    for column, step in enumerate(path.steps, 1):
        _gate(grid[:, column], weights[step.node], x, image_shape, names)
        side = "right" if step.right else "left"
        grid[0, column].set_title(
            f"gate {step.node}\n{side} {step.probability:.3f}",
            fontsize=8,
            color=RIGHT if step.right else LEFT,
        )
    arrival = path.steps[-1].arrival if path.steps else 1.0
    grid[0, -1].set_axis_on()
    label = f"leaf {path.leaf}\narrives with {arrival:.3f}"
    _verdict(grid[0, -1], tree, path.values, class_names, label)
    if image_shape is not None:
        grid[1, 0].text(
            0.5, 0.5, "above: weights\nbelow: weights\ntimes pixels", ha="center", va="center",
            fontsize=8, color="#444444",
        )  # fmt: skip
    figure.tight_layout()
    return figure


def _checked_names(
    tree: SoftDecisionTree, feature_names: Any, class_names: Any, image_shape: Any
) -> list[str]:
    """The features' names. Raises ValueError for any that do not fit the tree."""
    names = names_of(tree, feature_names, image_shape)
    check_class_names(tree, class_names)
    return names


class _Layout:
    """Where the nodes of a subtree stand on the page."""

    def __init__(self, depth: int, root: int, levels: int) -> None:
        gates = 2**depth - 1
        if not is_whole(root, 0, max(gates - 1, 0)):
            raise ValueError(f"root: expected a gate in [0, {gates}), got {root!r}")
        above = (root + 1).bit_length() - 1
        self.levels = min(levels, depth - above)
        wide = 2**self.levels
        self.size = (max(6.0, 1.15 * wide), 1.45 + 1.45 * self.levels)
        width, height = self.size
        self.box = min(0.9, 0.95 * width / wide)
        self.corner = (0.01, 1 - 1.25 / height, 0.95 / width, 0.95 / height)
        self.places: dict[int, tuple[float, float]] = {}
        for k in range(self.levels + 1):
            start = (root + 1) * 2**k - 1
            y = 1 - (0.85 + 1.45 * k) / height
            for i in range(2**k):
                self.places[start + i] = ((i + 0.5) / 2**k, y)

    def children(self, n: int) -> list[int]:
        return [c for c in (2 * n + 1, 2 * n + 2) if c in self.places]

    def add(self, figure: Figure, place: tuple[float, float], wide: float = 1.0) -> Axes:
        width, height = wide * self.box / self.size[0], self.box / self.size[1]
        return figure.add_axes((place[0] - width / 2, place[1] - height / 2, width, height))


def _features(example: Any) -> np.ndarray:
    """The features of an example, (D,), zeros included."""
    x = one_example(example)
    return (x.toarray() if sparse.issparse(x) else x)[0]


def _nodes_on_way(tree: SoftDecisionTree, example: Any) -> set[int]:
    path = path_of(tree, example)
    return {0, *(2 * s.node + 1 + s.right for s in path.steps)}


def _edge(
    back: Axes, a: Any, b: Any, n: int, child: int, arriving: Any, way: Any, marked: bool
) -> None:
    share = 0.5 if arriving is None else float(arriving[child])
    colour = MARKED if marked else "#999999"
    back.plot(
        [a[0], b[0]], [a[1], b[1]], color=colour, lw=0.8 + 6 * share, zorder=2 if marked else 1,
        solid_capstyle="round",
    )  # fmt: skip
    text = None
    if way is not None and way[n] > 0:
        text = f"{way[child] / way[n]:.2f}"
    elif arriving is not None:
        text = f"{100 * arriving[child]:.0f} %"
    if text is not None:
        x, y = a[0] + 0.5 * (b[0] - a[0]), a[1] + 0.5 * (b[1] - a[1])
        back.text(
            x, y, text, ha="center", va="center", fontsize=7, color="#222222", zorder=3,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
        )  # fmt: skip


def _example(axes: Axes, x: np.ndarray, image_shape: Any, names: Sequence[str]) -> None:
    axes.set_axis_on()
    if image_shape is not None:
        axes.imshow(x.reshape(image_shape), cmap="gray_r")
        axes.set(xticks=[], yticks=[])
    else:
        _bars(axes, x, names, ("#666666", "#666666"))
    axes.set_title("the example", fontsize=8)


def _gate(
    panels: np.ndarray, w: np.ndarray, x: np.ndarray, image_shape: Any, names: Sequence[str]
) -> None:
    """Weights times features; an image's weights above that."""
    for axes in panels:
        axes.set_axis_on()
    if image_shape is not None:
        _image(panels[0], w.reshape(image_shape))
        _image(panels[1], (w * x).reshape(image_shape))
    else:
        _bars(panels[0], w * x, names)


def _image(axes: Axes, weights: np.ndarray) -> None:
    top = float(np.abs(weights).max()) or 1.0
    axes.imshow(weights, cmap="RdBu_r", vmin=-top, vmax=top)
    axes.set(xticks=[], yticks=[])


def _bars(
    axes: Axes,
    weights: np.ndarray,
    names: Sequence[str],
    colours: tuple[str, str] = (RIGHT, LEFT),
) -> None:
    chosen = strongest(weights, BARS)[::-1]
    chosen = chosen[weights[chosen] != 0]  # an example has few of many words
    values = weights[chosen]
    axes.barh(range(len(chosen)), values, color=[colours[0 if v > 0 else 1] for v in values])
    top = float(np.abs(values).max(initial=0.0)) or 1.0
    axes.set(xticks=[], yticks=[], xlim=(-1.1 * top, 1.1 * top))
    room = 0.5 * (BARS - len(chosen)) + 0.6
    axes.set_ylim(-room, len(chosen) - 1 + room)
    for i, (f, v) in enumerate(zip(chosen, values, strict=True)):
        name = f" {names[f][:18]} "  # on the side where the bar is not
        axes.text(0, i, name, ha="right" if v > 0 else "left", va="center", fontsize=6)
    axes.spines[:].set_color("#cccccc")


def _title(axes: Axes, text: str) -> None:
    """Above the axes, and over the line that comes from above."""
    background = {"facecolor": "white", "edgecolor": "none", "pad": 0.0}
    axes.set_title(text, fontsize=7, pad=3, bbox=background)


def _verdict(
    axes: Axes, tree: SoftDecisionTree, values: np.ndarray, class_names: Any, label: str
) -> None:
    """A leaf: bars where classes are few, words where they are many or a number is meant."""
    axes.set(xticks=[], yticks=[])
    axes.set_box_aspect(1)
    _title(axes, label)
    if 2 <= len(values) <= FEW:
        best, second = np.argsort(-values, kind="stable")[:2]
        colours = ["#222222" if c == best else "#888888" for c in range(len(values))]
        axes.bar(range(len(values)), values, color=colours)
        axes.set(ylim=(0, 1.6))
        names = class_names_of(tree, class_names)
        if max(map(len, names)) <= 2:
            axes.set_xticks(range(len(names)), names, fontsize=5)
            axes.tick_params(length=0, pad=1)
        told = f"{names[best][:12]} ({values[best]:.2f})"
        axes.text(
            0.5, 0.96, told, transform=axes.transAxes, ha="center", va="top",
            fontsize=7 if len(told) < 15 else 6, weight="bold", color="#222222",
        )  # fmt: skip
        if values[second] >= WORTH_NAMING:
            axes.text(
                0.5, 0.83, f"{names[second][:12]} ({values[second]:.2f})", fontsize=6,
                transform=axes.transAxes, ha="center", va="top", color="#666666",
            )  # fmt: skip
    else:
        lines = says(tree, values, class_names).split(", ")
        text = "\n".join(line if len(line) < 18 else f"{line[:9]}… {line[-6:]}" for line in lines)
        size = 6 if "\n" in text else 8
        axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=size)


def _mark(axes: Axes) -> None:
    axes.spines[["top", "right", "bottom", "left"]].set(visible=True, color=MARKED, linewidth=2.5)
