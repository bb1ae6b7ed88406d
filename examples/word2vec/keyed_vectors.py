"""Words and their vectors, to be asked questions."""

from collections.abc import Iterable, Sequence

import numpy as np

from .inputs import Grams

Ranked = list[tuple[str, float]]
AT_ONCE = 1 << 25  # cosines in memory at a time


class UnknownWordError(KeyError):
    """A word that has no vector."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word

    def __str__(self) -> str:
        lower = self.word.lower()
        hint = "" if lower == self.word else f". Hint: prose is learned in lower case: {lower!r}"
        return f"{self.word!r} is not in the vocabulary{hint}"


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Each row at length 1, so that a dot product is a cosine; a row of zeros stays."""
    with np.errstate(invalid="ignore", over="ignore"):  # what is infinite has no direction: NaN
        # Squares of 1e30 leave float32: so first by a power of 2, which rounds nothing.
        _, exponents = np.frexp(np.abs(vectors).max(axis=-1, keepdims=True, initial=0))
        vectors = np.ldexp(vectors, -exponents)
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        return vectors / np.where(lengths > 0, lengths, 1)


class KeyedVectors:
    """Vectors (V, d) by word. A word's place in `words` is its row.

    With `grams` and their table a word that is not among them has a vector too: the mean of those
    of its character n-grams.

    >>> kv = KeyedVectors(["king", "queen", "stone"], [[2.0, 1.0], [2.0, 1.5], [-1.0, 0.0]])
    >>> [word for word, cosine in kv.most_similar("king")]
    ['queen', 'stone']
    >>> kv.doesnt_match(["king", "queen", "stone"])
    'stone'
    """

    def __init__(
        self,
        words: Iterable[str],
        vectors: np.ndarray,
        grams: Grams | None = None,
        gram_table: np.ndarray | None = None,
    ) -> None:
        self.words, self.vectors = list(words), np.asarray(vectors, np.float32)
        self.index = {word: i for i, word in enumerate(self.words)}
        self.grams, self.gram_table = grams, gram_table
        if self.vectors.ndim != 2 or not len(self.index) == len(self.words) == len(self.vectors):
            got = f"{len(self.index)} different words and an array {self.vectors.shape}"
            raise ValueError(f"expected a row for each of the words, all different; got {got}")
        self.unit = unit_rows(self.vectors)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.words[:3])) + (", ..." if len(self) > 3 else "")
        made = f", and n-grams in {len(self.gram_table)} rows" if self.grams else ""
        return f"KeyedVectors({len(self)} of {self.vectors.shape[1]} numbers: {shown}{made})"

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self.index

    def has_vector(self, word: str) -> bool:
        """Whether the word has a vector: a row of its own, or one made of its n-grams."""
        try:
            self[word]
        except UnknownWordError:
            return False
        return True

    def __getitem__(self, word: str | Sequence[str]) -> np.ndarray:
        """The vector of a word (d,), or those of several (n, d). Raises UnknownWordError."""
        if not isinstance(word, str):
            return np.array([self[one] for one in word]).reshape(-1, self.vectors.shape[1])
        if word in self.index:
            return self.vectors[self.index[word]]
        if self.grams is not None and self.gram_table is not None:
            rows, _ = self.grams.bags([word])
            if len(rows):
                return self.gram_table[rows].mean(axis=0)
        raise UnknownWordError(word)

    def similarity(self, a: str, b: str) -> float:
        """The cosine between two words."""
        return float(unit_rows(self[a]) @ unit_rows(self[b]))

    def most_similar(
        self,
        positive: str | Sequence[str] = (),
        negative: str | Sequence[str] = (),
        topn: int = 10,
        among: int | None = None,
    ) -> Ranked:
        """The words nearest to the mean direction of `positive` and opposite of `negative`.

        ``most_similar(["king", "woman"], ["man"])`` completes man : king = woman : ?. Words that
        were asked about are no answers; with `among`, nor are any but that many first words.
        """
        positive, negative = ([w] if isinstance(w, str) else list(w) for w in (positive, negative))
        if not positive and not negative:
            raise ValueError("most_similar needs at least one word")
        signs = np.array([1.0] * len(positive) + [-1.0] * len(negative), np.float32)
        query = (signs[:, None] * unit_rows(self[[*positive, *negative]])).mean(axis=0)
        asked = [self.index[w] for w in (*positive, *negative) if w in self.index]
        return self.nearest(query[None], [asked], topn, among)[0]

    def neighbours(self, words: Sequence[str], topn: int = 10) -> list[Ranked]:
        """For each of many words the ones nearest to it, by one product of matrices."""
        if not words:
            return []
        asked = [[self.index[w]] if w in self.index else [] for w in words]
        return self.nearest(self[list(words)], asked, topn)

    def doesnt_match(self, words: Sequence[str]) -> str:
        """The word that is furthest from the mean of all. Raises UnknownWordError."""
        if not words:
            raise ValueError("doesnt_match needs at least one word")
        unit = unit_rows(self[list(words)])
        return words[int(np.argmin(unit @ unit_rows(unit.mean(axis=0))))]

    def nearest(
        self,
        queries: np.ndarray,
        asked: Sequence[Sequence[int]],
        topn: int = 10,
        among: int | None = None,
    ) -> list[Ranked]:
        """For each query (n, d) the `topn` words with the highest cosine, without those `asked`.

        With `among`, of that many first words.
        """
        found = []
        unit = self.unit[:among]
        step = max(1, AT_ONCE // max(1, len(unit)))
        for start in range(0, len(queries), step):
            cosines = unit_rows(queries[start : start + step]) @ unit.T
            for row, mine in zip(cosines, asked[start : start + step], strict=True):
                row[[i for i in mine if i < len(unit)]] = -np.inf
                best = top(row, topn)
                found.append([(self.words[i], float(row[i])) for i in best if row[i] > -np.inf])
        return found


def top(values: np.ndarray, count: int) -> np.ndarray:
    """Places of the `count` greatest values, the greatest first, without sorting all of them."""
    count = min(count, len(values))
    if count <= 0:
        return np.zeros(0, np.int64)
    if count == 1:
        return values.argmax(keepdims=True)
    best = np.argpartition(-values, count - 1)[:count]
    return best[np.lexsort((best, -values[best]))]
