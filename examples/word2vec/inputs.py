"""What a word looks like to the model: a vector of its own, or one made of its parts as well.

A word made of parts is the mean of its own vector and those of its character n-grams (Bojanowski
et al., "Enriching Word Vectors with Subword Information", 2017). So words with a common stem
learn from each other, and a word that was never seen has a vector.
"""

from collections.abc import Sequence

import numpy as np

import tinygrad_sparse as ts
from tinygrad_sparse import nn, ops

MADE = 8192  # words whose vectors are made at a time


class Words:
    """One table, a row for each word."""

    def __init__(self, table: np.ndarray, device: str = "cpu") -> None:
        self.table = ts.parameter(table, name="words", device=device)

    def __call__(self, ids: np.ndarray) -> tuple[ts.Tensor, np.ndarray]:
        """A table, and in which of its rows the words with these ids are."""
        return self.table, ids

    def vectors(self) -> np.ndarray:
        """The vectors of all words."""
        return self.table.numpy()


class Grams:
    """Which character n-grams a word has, as rows of a table of `rows` rows.

    There are more n-grams than anyone wants rows for, so their rows are found by hashing, and
    rare ones may meet in one.
    """

    def __init__(self, shortest: int, longest: int, rows: int) -> None:
        self.shortest, self.longest, self.rows = shortest, longest, rows

    def __call__(self, word: str) -> list[str]:
        """The n-grams of `<word>`; the brackets tell "<un" at a beginning from "un" elsewhere."""
        text = f"<{word}>"
        lengths = range(self.shortest, min(self.longest, len(text) - 1) + 1)
        return [text[i : i + n] for n in lengths for i in range(len(text) - n + 1)]

    def bags(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the n-grams of all words, one after the other, and where each word's begin."""
        found = [self(word) for word in words]
        starts = np.concatenate([[0], np.cumsum([len(grams) for grams in found])])
        # Each n-gram is hashed once, however many words it is in.
        index: dict[str, int] = {}
        which = [index.setdefault(gram, len(index)) for grams in found for gram in grams]
        rows = nn.hash_ids(list(index), self.rows) if index else np.zeros(0, np.int64)
        return rows[np.array(which, np.int64)], starts


class Parts:
    """One table: a row for each word, then the rows that n-grams share."""

    def __init__(
        self, table: np.ndarray, words: Sequence[str], grams: Grams, device: str = "cpu"
    ) -> None:
        self.table = ts.parameter(table, name="words and their parts", device=device)
        self.count, self.grams = len(words), grams
        rows, starts = grams.bags(words)
        # The word itself stands before its n-grams.
        self.rows = np.insert(rows + self.count, starts[:-1], np.arange(self.count))
        self.starts = starts + np.arange(self.count + 1)

    def __call__(self, ids: np.ndarray) -> tuple[ts.Tensor, np.ndarray]:
        """A table that is made of the words with these ids, and in which rows they are."""
        unique, places = np.unique(ids, return_inverse=True)
        lengths = np.diff(self.starts)[unique]
        offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        rows = self.rows[
            np.arange(lengths.sum()) + np.repeat(self.starts[unique] - offsets, lengths)
        ]
        made = ops.embedding_bag(self.table, rows, offsets, mode="mean")
        return made, places.reshape(ids.shape)

    def vectors(self) -> np.ndarray:
        """The vectors of all words."""
        parts = np.array_split(np.arange(self.count), -(-self.count // MADE))
        return np.concatenate([self(ids)[0].numpy() for ids in parts])
