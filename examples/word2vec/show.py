"""What the vectors know: nearest neighbours as a table, frequent words as a map."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.cluster import AgglomerativeClustering
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.manifold import TSNE

from .vocabulary import Vocabulary

# Found in every Python's documentation, and each with a meaning of its own there.
WORDS = ["list", "string", "dictionary", "file", "read", "error"]
WORDS += ["integer", "class", "thread", "socket", "server", "month"]


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Each row at length 1, so that a dot product is a cosine."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def neighbours(unit: np.ndarray, i: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids of the `count` words most similar to word `i`, and their cosines."""
    cosines = unit @ unit[i]
    nearest = np.argsort(-cosines, kind="stable")
    nearest = nearest[nearest != i][:count]
    return nearest, cosines[nearest]


def neighbour_table(
    vocabulary: Vocabulary, vectors: np.ndarray, words: Sequence[str], count: int = 7
) -> str:
    """A line for each word: its nearest neighbours, or that it is not in the vocabulary."""
    unit = unit_rows(vectors)
    width = max(map(len, words), default=0)
    lines = []
    for word in words:
        if word in vocabulary.index:
            nearest = zip(*neighbours(unit, vocabulary.index[word], count), strict=True)
            text = "  ".join(f"{vocabulary.words[j]} {cosine:.2f}" for j, cosine in nearest)
        else:
            text = "(not in the vocabulary)"
        lines.append(f"{word:>{width}} | {text}")
    return "\n".join(lines)


def telling_words(vocabulary: Vocabulary, count: int = 150) -> np.ndarray:
    """Ids of the most frequent words that mean something by themselves: no "the", no "x"."""
    telling = (len(word) > 2 and word not in ENGLISH_STOP_WORDS for word in vocabulary.words)
    return np.flatnonzero(list(telling))[:count]


def draw_map(vocabulary: Vocabulary, vectors: np.ndarray, path: str | Path, seed: int = 1) -> None:
    """Save a picture of the most frequent words in which similar words stand close together.

    t-SNE, not PCA: the first two principal components hold a few percent of what 100 dimensions
    say, so a PCA map is one crowded ball. Colours are groups found in all dimensions.
    """
    ids = telling_words(vocabulary)
    if len(ids) < 2:
        raise ValueError(f"the map needs at least 2 words that are not stop words, got {len(ids)}")
    unit = unit_rows(vectors[ids])
    # Neighbourhoods of about 10 words, or a third of what there is.
    perplexity = min(10.0, len(ids) / 3)
    places = TSNE(perplexity=perplexity, init="random", random_state=seed).fit_transform(unit)
    groups = AgglomerativeClustering(min(10, len(ids))).fit_predict(unit)

    figure = Figure(figsize=(12, 9), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot(xticks=[], yticks=[])
    axes.set_title(f"The {len(ids)} most frequent words, stop words aside (t-SNE of their vectors)")
    axes.set(xlim=limits(places[:, 0]), ylim=limits(places[:, 1]))
    labels = [
        axes.text(x, y, vocabulary.words[i], ha="center", va="center", size=11, color=f"C{group}")
        for (x, y), i, group in zip(places, ids, groups, strict=True)
    ]
    canvas.draw()
    boxes = [label.get_window_extent() for label in labels]
    pixels = spread(
        np.array([[(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2] for box in boxes]),
        np.array([[box.width, box.height] for box in boxes]) + 4,
    )
    for label, place in zip(labels, axes.transData.inverted().transform(pixels), strict=True):
        label.set_position(place)
    figure.savefig(path, format="png")


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
