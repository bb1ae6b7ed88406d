"""Words as numbers: which words are kept, how often each is skipped, how negatives are drawn.

The two corrections for word frequency of Mikolov et al., "Distributed Representations of Words
and Phrases and their Compositionality" (2013), sections 2.2 and 2.3, live here.
"""

import math
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .corpus import Sentence

ROOM = 10_000_000  # different words that are counted at a time
PIECE = 1 << 20  # ids that are looked at at a time
POOL = 1 << 14  # random words that are drawn at a time
PART = 1 << 20  # ids that are kept in memory before they go to a file


class Text(NamedTuple):
    """Sentences as one row of word ids: sentence i is `ids[bounds[i]:bounds[i + 1]]`."""

    ids: np.ndarray
    bounds: np.ndarray

    def checksum(self) -> int:
        """A number that another text hardly has: other words, another order, other sentences."""
        found = 0
        for numbers in (self.ids, self.bounds):
            for start in range(0, len(numbers), PIECE):
                found = zlib.crc32(np.ascontiguousarray(numbers[start : start + PIECE]), found)
        return found


class Vocabulary(NamedTuple):
    """The kept words, most frequent first; the id of a word is its place in `words`."""

    words: list[str]
    counts: np.ndarray
    index: dict[str, int]

    @classmethod
    def of(cls, words: Iterable[str], counts: Iterable[int]) -> "Vocabulary":
        """Of words that are in order already."""
        words = list(words)
        index = {word: i for i, word in enumerate(words)}
        return cls(words, np.array(counts, dtype=np.int64), index)

    @classmethod
    def build(
        cls,
        sentences: Iterable[Sentence],
        min_count: int = 5,
        max_size: int | None = None,
        room: int = ROOM,
    ) -> "Vocabulary":
        """Keep the words that occur at least `min_count` times: rarer ones cannot be learned.

        And at most `max_size` of them, the most frequent. When more than `room` different words are
        being counted, the rarest are forgotten, and counts may be too low.
        """
        counter: Counter[str] = Counter()
        rare = 0
        for sentence in sentences:
            counter.update(sentence)
            while len(counter) > room:
                rare += 1
                counter = Counter({word: n for word, n in counter.items() if n > rare})
        # Equal counts in alphabetical order: an id must not depend on which word came first.
        kept = sorted((-count, word) for word, count in counter.items() if count >= min_count)
        kept = kept[:max_size]
        return cls.of([word for _, word in kept], [-count for count, _ in kept])

    def encode(self, sentences: Iterable[Sentence]) -> Text:
        """The sentences as ids; words outside the vocabulary close up, as if never written.

        A long text goes to a temporary file, four bytes a word, that is gone when the program ends:
        it is read as if it were in memory, and stays there as far as it fits.
        """
        index, ids, bounds, stored = self.index, array("i"), array("q", [0]), 0
        with tempfile.TemporaryFile() as file:
            for sentence in sentences:
                ids.extend([index[word] for word in sentence if word in index])
                if stored + len(ids) > bounds[-1]:
                    bounds.append(stored + len(ids))
                if len(ids) >= PART:
                    ids.tofile(file)
                    stored, ids = stored + len(ids), array("i")
            if stored:
                ids.tofile(file)
                file.flush()
                return Text(np.memmap(file, np.int32, mode="r"), np.array(bounds, np.int64))
        return Text(np.array(ids, np.int32), np.array(bounds, np.int64))


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
    """Draws word ids in proportion to count^(3/4): rarer words get more than their share.

    A word has a share of the numbers from 0 to 1. Most of the pieces that these are cut into lie
    in one word's share: whose, is a table. In most others one word's share ends and the next one's
    begins. Only where still more words meet a number is searched for.
    """

    def __init__(self, counts: np.ndarray, power: float = 0.75) -> None:
        weights = np.cumsum(counts**power)
        self.cumulative = weights / weights[-1]
        ends = np.arange((1 << (4 * len(counts)).bit_length()) + 1)
        ends = ends / (len(ends) - 1)
        first = np.searchsorted(self.cumulative, ends[:-1], side="right")
        last = np.searchsorted(self.cumulative, ends[1:], side="left")
        self.pieces = np.where(first == last, first, ~first).astype(np.int32)  # < 0: of several

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """So many ids."""
        drawn = rng.random(count)
        ids = self.pieces.take((drawn * len(self.pieces)).astype(np.int64)).astype(np.int64)
        several = np.flatnonzero(ids < 0)
        x, word = drawn[several], ~ids[several]
        word += self.cumulative[word] <= x
        beyond = np.flatnonzero(self.cumulative[word] <= x)
        word[beyond] = np.searchsorted(self.cumulative, x[beyond], side="right")
        ids[several] = word
        return ids


class Draws:
    """Ids from a sampler, drawn many at a time and handed out as they are asked for."""

    def __init__(self, sampler: NegativeSampler, rng: np.random.Generator) -> None:
        self.sampler, self.rng = sampler, rng
        self.pool = np.zeros(0, np.int64)

    def take(self, shape: tuple[int, ...]) -> np.ndarray:
        """The next ids, in this shape."""
        count = math.prod(shape)
        if len(self.pool) < count:
            more = self.sampler.draw(self.rng, max(POOL, count))
            self.pool = np.concatenate([self.pool, more])
        ids, self.pool = self.pool[:count], self.pool[count:]
        return ids.reshape(shape)
