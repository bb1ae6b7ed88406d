"""From a text to batches of (centre, contexts, negatives), by array operations alone.

Two choices make the maths of `train` cheap:

* **Centres with equally many contexts share a batch.** Then contexts are a full (b, m) array,
  with no padding and no mask, and each centre's vector is looked up once for its m contexts.
* **A batch shares its negatives.** Scoring b centres against k shared words is one small matrix
  product, where drawing them for every pair would be b·m·k separate dot products.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .vocabulary import NegativeSampler, Text

BLOCK = 100_000  # words made into batches at a time; they need some 200 bytes a word


class Batch(NamedTuple):
    """Ids of b centre words, the m words around each, and k words drawn at random."""

    centres: np.ndarray  # (b,)
    contexts: np.ndarray  # (b, m)
    negatives: np.ndarray  # (k,)
    words: int  # of the text that this batch used up, skipped ones included


def windows(bounds: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each of n words, 2·max(reach) positions around it and which of them are its contexts.

    Word i sees `reach[i]` words on each side, and never over a bound of its sentence.
    """
    lengths = np.diff(bounds)
    first = np.repeat(bounds[:-1], lengths)[:, None]
    end = np.repeat(bounds[1:], lengths)[:, None]
    furthest = reach.max(initial=0)
    offsets = np.concatenate([np.arange(-furthest, 0), np.arange(1, furthest + 1)])
    positions = np.arange(len(reach))[:, None] + offsets
    inside = (np.abs(offsets) <= reach[:, None]) & (positions >= first) & (positions < end)
    return positions, inside


def subsample(text: Text, keep: np.ndarray, rng: np.random.Generator) -> Text:
    """Leave out each word with probability 1 - keep[word]; the rest of a sentence closes up."""
    kept = rng.random(len(text.ids)) < keep[text.ids]
    before = np.concatenate([[0], np.cumsum(kept)])
    return Text(text.ids[kept], before[text.bounds])


def blocks(text: Text, size: int = BLOCK) -> Iterator[Text]:
    """The text in pieces of whole sentences, about `size` words each."""
    ids, bounds = text
    starts = np.searchsorted(bounds, np.arange(0, len(ids), size))
    for a, b in pairwise(np.unique([*starts, len(bounds) - 1])):
        yield Text(ids[bounds[a] : bounds[b]], bounds[a : b + 1] - bounds[a])


def batches(
    text: Text,
    keep: np.ndarray,
    sampler: NegativeSampler,
    rng: np.random.Generator,
    *,
    window: int = 5,
    pairs: int = 4096,
    shared: int = 64,
) -> Iterator[Batch]:
    """One epoch, in random order: every kept word is a centre once, `pairs` pairs a batch."""
    pieces = list(blocks(text))
    for i in rng.permutation(len(pieces)):
        ids, bounds = subsample(pieces[i], keep, rng)
        positions, inside = windows(bounds, rng.integers(1, window + 1, len(ids)))
        groups = list(same_size_groups(inside.sum(axis=1), pairs, rng))
        negatives = sampler.draw(rng, (len(groups), shared))
        words = np.diff(np.linspace(0, len(pieces[i].ids), len(groups) + 1).astype(int))
        for j in rng.permutation(len(groups)):
            rows = groups[j]
            contexts = ids[positions[rows][inside[rows]]].reshape(len(rows), -1)
            yield Batch(ids[rows], contexts, negatives[j], int(words[j]))


def same_size_groups(
    sizes: np.ndarray, pairs: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Rows in random order, those of equal size together, about `pairs` pairs in a group."""
    for size in range(1, sizes.max(initial=0) + 1):
        rows = rng.permutation(np.flatnonzero(sizes == size))
        step = max(1, pairs // size)
        for start in range(0, len(rows), step):
            yield rows[start : start + step]
