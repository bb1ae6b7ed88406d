"""Words as numbers: which words are kept, how often each is skipped, how negatives are drawn.

The two corrections for word frequency of Mikolov et al., "Distributed Representations of Words
and Phrases and their Compositionality" (2013), sections 2.2 and 2.3, live here.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .corpus import Sentence


class Text(NamedTuple):
    """Sentences as one row of word ids: sentence i is `ids[bounds[i]:bounds[i + 1]]`."""

    ids: np.ndarray
    bounds: np.ndarray


class Vocabulary(NamedTuple):
    """The kept words, most frequent first; the id of a word is its place in `words`."""

    words: list[str]
    counts: np.ndarray
    index: dict[str, int]

    @classmethod
    def build(cls, sentences: Iterable[Sentence], min_count: int = 5) -> "Vocabulary":
        """Keep the words that occur at least `min_count` times: rarer ones cannot be learned."""
        counter: Counter[str] = Counter()
        for sentence in sentences:
            counter.update(sentence)
        # Equal counts in alphabetical order: an id must not depend on which word came first.
        kept = sorted((-count, word) for word, count in counter.items() if count >= min_count)
        words = [word for _, word in kept]
        counts = np.array([-count for count, _ in kept], dtype=np.int64)
        return cls(words, counts, {word: i for i, word in enumerate(words)})

    def encode(self, sentences: Iterable[Sentence]) -> Text:
        """The sentences as ids; words outside the vocabulary close up, as if never written."""
        index = self.index
        ids: list[int] = []
        bounds = [0]
        for sentence in sentences:
            ids += [index[word] for word in sentence if word in index]
            if len(ids) > bounds[-1]:
                bounds.append(len(ids))
        return Text(np.array(ids, dtype=np.int32), np.array(bounds, dtype=np.int64))


def keep_probability(counts: np.ndarray, sample: float = 1e-3) -> np.ndarray:
    """How likely an occurrence of each word is to be read: min(1, √(t/f) + t/f).

    `f` is the word's share of the text and `t` is `sample`; 0 keeps everything. The paper has
    the square root alone; this is what its authors' program, and everyone since, computes.
    """
    if sample == 0:
        return np.ones(len(counts))
    ratio = sample * counts.sum() / counts
    return np.minimum(1.0, np.sqrt(ratio) + ratio)


class NegativeSampler:
    """Draws word ids in proportion to count^(3/4): rarer words get more than their share."""

    def __init__(self, counts: np.ndarray, power: float = 0.75) -> None:
        weights = np.cumsum(counts**power)
        self.cumulative = weights / weights[-1]

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """An array of ids of this shape."""
        return np.searchsorted(self.cumulative, rng.random(shape), side="right")
