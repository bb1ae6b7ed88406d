"""Skip-gram and CBOW (Mikolov et al., 2013a), on words or their parts, with one of four losses."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import tinygrad_sparse as ts
from tinygrad_sparse import ops

from . import losses
from .huffman import Tree
from .inputs import Grams, Parts, Words
from .losses import Task, beside
from .pairs import Batch
from .vocabulary import Draws, NegativeSampler, Vocabulary

PAIR = 2  # spans that look at the same random words: so half as many rows are read and changed


class Settings(NamedTuple):
    """What a run depends on, besides its text."""

    model: str = "skipgram"
    loss: str = "shared"
    dim: int = 100
    window: int = 5
    negatives: int = 5  # each true pair weighs as much as this many drawn ones ...
    shared: int = 12  # ... of which a span looks at this many
    parts: int = 0  # rows that the n-grams of words share; 0: words are whole
    shortest: int = 3
    longest: int = 6
    epochs: int = 5
    centres: int = 4096  # a step
    lr: float = 0.075
    clip: float = 0.5  # no row moves further than this in a step
    sample: float = 1e-3
    seed: int = 1

    @property
    def grams(self) -> Grams | None:
        """The n-grams that words are made of; None if they are whole."""
        return Grams(self.shortest, self.longest, self.parts) if self.parts else None


def skip_gram(inputs: Words | Parts, batch: Batch) -> Task:
    """A word predicts each word around it."""
    return Task(*inputs(batch.centres), batch.ids, batch.near, batch.sizes)


def cbow(inputs: Words | Parts, batch: Batch) -> Task:
    """The mean of the words around it predicts a word."""
    seen = batch.sizes > 0
    S, L = seen.shape
    weights = batch.near / np.maximum(batch.sizes, 1)[:, :, None]
    table, ids = inputs(batch.ids)
    means = ops.weighted_rows(beside(table, weights), table, ids)
    itself = np.eye(L, dtype=bool) & seen[:, :, None]
    hidden = np.arange(S * L).reshape(S, L)
    return Task(means.reshape(S * L, -1), hidden, batch.centres, itself, seen.astype(np.float32))


def by_pairs(draws: Draws, spans: int, count: int) -> np.ndarray:
    """`count` random words for each span, (spans, count), the same ones for the two of a pair."""
    drawn = draws.take((-(-spans // PAIR), count))
    return drawn.repeat(PAIR, axis=0)[:spans]


MODELS = {"skipgram": skip_gram, "cbow": cbow}
LOSSES = ("shared", "own", "hierarchical", "softmax")


class Model:
    """The tables of a model and the loss of a batch under them."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        settings: Settings,
        tables: tuple[np.ndarray, np.ndarray] | None = None,
        device: str = "cpu",
    ) -> None:
        s, V = settings, len(vocabulary.words)
        self.settings = s
        self.sampler = NegativeSampler(vocabulary.counts)
        self.tree = Tree(vocabulary.counts) if s.loss == "hierarchical" else None
        rows = V if self.tree is None else self.tree.size
        shapes = (V + s.parts, s.dim), (rows, s.dim)
        if tables is None:
            rng = np.random.default_rng(s.seed)
            start = rng.uniform(-0.5, 0.5, shapes[0]).astype(np.float32) / s.dim
            tables = start, np.zeros(shapes[1], np.float32)
        elif tuple(table.shape for table in tables) != shapes:
            raise ValueError(f"expected tables {shapes}, got {[table.shape for table in tables]}")
        self.inputs: Words | Parts = Words(tables[0], device)
        if s.grams is not None:
            self.inputs = Parts(tables[0], vocabulary.words, s.grams, device)
        self.outputs = ts.parameter(tables[1], name="outputs", device=device)

    @property
    def parameters(self) -> list[ts.Tensor]:
        """All that is trained."""
        return [self.inputs.table, self.outputs]

    def task(self, batch: Batch) -> Task:
        """Hidden vectors, and what they should predict."""
        return MODELS[self.settings.model](self.inputs, batch)

    def loss(self, batch: Batch) -> ts.Tensor:
        """The loss of a batch, summed over its pairs."""
        task, s = self.task(batch), self.settings
        if s.loss == "shared":
            return losses.shared_negatives(task, self.outputs, batch.negatives, s.negatives)
        if s.loss == "own":
            return losses.own_negatives(task, self.outputs, batch.negatives)
        if self.tree is not None:
            return losses.hierarchical_softmax(task, self.outputs, self.tree)
        return losses.full_softmax(task, self.outputs)

    def pairs(self, batch: Batch) -> int:
        """How many (hidden vector, target) pairs a batch has."""
        sizes = batch.sizes if self.settings.model == "skipgram" else batch.sizes > 0
        return int(sizes.sum())

    def draw(self, rng: np.random.Generator) -> Callable[[Batch], np.ndarray]:
        """How a batch gets its negatives."""
        s, draws = self.settings, Draws(self.sampler, rng)
        if s.loss == "shared":
            return lambda batch: by_pairs(draws, len(batch.ids), s.shared)
        if s.loss == "own":
            return lambda batch: draws.take((self.pairs(batch), s.negatives))
        return lambda batch: batch.negatives
