"""Pictures: how the loss fell, where words lie; and nearest neighbours as a table."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.cluster import AgglomerativeClustering
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.manifold import TSNE

from ..program import write_picture
from .keyed_vectors import KeyedVectors, unit_rows

# Found in every Python's documentation, and each with a meaning of its own there.
WORDS = ["list", "string", "dictionary", "file", "read", "error"]
WORDS += ["integer", "class", "thread", "socket", "server", "month"]


GLYPH = "Glyph .* missing from"  # how Matplotlib begins to say that a font lacks a sign


def neighbour_table(kv: KeyedVectors, words: Sequence[str], count: int = 7) -> str:
    """A line for each word: its nearest neighbours, or that it is not in the vocabulary."""
    width = max(map(len, words), default=0)
    nearest = dict(
        zip(known := [*filter(kv.has_vector, words)], kv.neighbours(known, count), strict=True)
    )
    lines = []
    for word in words:
        text = "  ".join(f"{other} {cosine:.2f}" for other, cosine in nearest.get(word, []))
        if word not in nearest:
            lower = word.lower()
            other = f"; {lower} is" if lower != word and kv.has_vector(lower) else ""
            text = f"(not in the vocabulary{other})"
        lines.append(f"{word:>{width}} | {text}")
    return "\n".join(lines)


def telling_words(words: Sequence[str], count: int = 150) -> np.ndarray:
    """Places of the first words that mean something by themselves: no "the", no "x"."""
    telling = (
        # one or two signs of Chinese are a word
        (len(word) > 2 or not word.isascii()) and word not in ENGLISH_STOP_WORDS
        for word in words
    )
    return np.flatnonzero(list(telling))[:count]


def _write(figure: Figure, path: str | Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", GLYPH)  # said when places were found
        write_picture(Path(path), figure)


@contextmanager
def _told_once() -> Iterator[None]:
    """One warning for all the signs that the font lacks, which are one each for Matplotlib."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    lacking = [one for one in told if re.match(GLYPH, str(one.message))]
    for one in told:
        if one not in lacking:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if lacking:
        warnings.warn(f"the font has no picture of {len(lacking)} signs", stacklevel=1)


def draw_loss(losses: Sequence[float], path: str | Path) -> None:
    """Save a picture of the loss a pair: every step in grey, on it the means over 1% of the run.

    The ending of its name says of which kind it is, as it does for `draw_map`.
    """
    losses = np.asarray(losses)
    width = max(1, len(losses) // 100)
    means = [part.mean() for part in np.split(losses, range(width, len(losses), width))]
    steps = np.minimum(np.arange(len(means)) * width + width / 2, len(losses))
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss a pair", title="The loss as it fell")
    axes.plot(losses, color="0.85", linewidth=0.5)
    axes.plot(steps, means)
    low, high = np.quantile(losses, [0.001, 0.999])
    axes.set_ylim(low - 0.05, high + 0.05)
    _write(figure, path)


def draw_map(
    kv: KeyedVectors,
    path: str | Path,
    words: Sequence[str] | None = None,
    method: str = "t-sne",
    seed: int = 1,
) -> None:
    """Save a picture in which similar words stand close together: these, or the most frequent.

    t-SNE unless told: the first two principal components hold a few percent of what 100 dimensions
    say, so a map by PCA is one crowded ball. Colours are groups found in all dimensions.
    """
    title = f"{len(words or [])} words"
    if words is None:
        words = [kv.words[i] for i in telling_words(kv.words)]
        title = f"The {len(words)} most frequent words, stop words aside"
    if len(words) < 2:
        raise ValueError(f"a map needs at least 2 words, stop words aside; got {len(words)}")
    unit = unit_rows(kv[words])
    if method == "pca":
        places = PCA(2, random_state=seed).fit_transform(unit)
    else:
        # Neighbourhoods of about 10 words, or a third of what there is.
        perplexity = min(10.0, len(words) / 3)
        places = TSNE(perplexity=perplexity, init="random", random_state=seed).fit_transform(unit)
    groups = AgglomerativeClustering(min(10, len(words))).fit_predict(unit)

    figure = Figure(figsize=(12, 9), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot(xticks=[], yticks=[])
    axes.set_title(f"{title} ({method} of their vectors)")
    axes.set(xlim=limits(places[:, 0]), ylim=limits(places[:, 1]))
    labels = [
        axes.text(
            x, y, word, ha="center", va="center", size=11, color=f"C{group}", parse_math=False
        )
        for (x, y), word, group in zip(places, words, groups, strict=True)
    ]
    with _told_once():
        canvas.draw()
    boxes = [label.get_window_extent() for label in labels]
    pixels = spread(
        np.array([[(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2] for box in boxes]),
        np.array([[box.width, box.height] for box in boxes]) + 4,
    )
    for label, place in zip(labels, axes.transData.inverted().transform(pixels), strict=True):
        label.set_position(place)
    _write(figure, path)


def limits(values: np.ndarray) -> tuple[float, float]:
    """The range of the values and a margin for the labels."""
    margin = 0.06 * np.ptp(values) + 1e-6
    return values.min() - margin, values.max() + margin


def spread(centres: np.ndarray, sizes: np.ndarray, steps: int = 1000) -> np.ndarray:
    """Move boxes apart, a little at a time, until no two overlap; they stay near their places."""
    centres = centres.copy()
    apart = (sizes[:, None] + sizes) / 2
    order = np.sign(np.arange(len(centres))[:, None] - np.arange(len(centres)))[:, :, None]
    for _ in range(steps):
        gap = centres[:, None] - centres
        overlap = apart - np.abs(gap)
        touching = (overlap > 0).all(axis=2) & (order[:, :, 0] != 0)
        if not touching.any():
            break
        # Along the axis where less is to be done; boxes at the same place part by their order.
        direction = np.where(gap == 0, order, np.sign(gap))
        shorter = overlap == overlap.min(axis=2, keepdims=True)
        push = np.where(touching[:, :, None] & shorter, (overlap + 1) * direction, 0)
        centres += 0.25 * push.sum(axis=1)
    return centres
