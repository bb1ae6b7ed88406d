"""From a text to batches, by array operations alone: who is near whom, and who is drawn at random.

Three choices make the maths of `models` cheap:

* **A batch is made of spans**, some words in a row. The windows of neighbours overlap, so a span of
  16 words needs the vectors of 26 contexts, where 16 windows apart from each other need 90.
  Scoring all against all is one small matrix product; `near` says which of the scores are meant.
* **Spans come from all over a block of text**, so that a batch does not dwell on one subject.
* **A batch may share its negatives.** Scoring n centres against k shared words is one matrix
  product, where drawing them for every pair would be a separate dot product each.

Every block has a random generator of its own, seeded by its place. So a run can be taken up again
at any batch, and whoever makes the blocks, in whatever order, makes the same ones.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .vocabulary import Text

BLOCK = 100_000  # words made into batches at a time
SPAN = 16  # centres in a row

# From a block's random generator, what gives each of its batches its negatives.
Draw = Callable[[np.random.Generator], Callable[["Batch"], np.ndarray]]
NO_NEGATIVES = np.zeros(0, np.int64)


class Place(NamedTuple):
    """A batch of a run: the epoch, the block as the epoch orders them, the batch in the block."""

    epoch: int = 0
    block: int = 0
    batch: int = 0


START = Place()


class Batch(NamedTuple):
    """S spans of L centres each, with w words of the text before and after a span.

    `near[s, i, j]` is True if word j of span s is a context of its centre i, which is word w + i.
    """

    ids: np.ndarray  # (S, w + L + w)
    near: np.ndarray  # (S, L, w + L + w), True or False
    sizes: np.ndarray  # (S, L): how many contexts each centre has
    negatives: np.ndarray  # ids drawn at random: their shape is up to who draws
    words: int  # of the text that this batch used up, skipped ones included
    after: Place  # where to go on

    @property
    def centres(self) -> np.ndarray:
        """(S, L), a part of `ids`."""
        L = self.near.shape[1]
        w = (self.ids.shape[1] - L) // 2
        return self.ids[:, w : w + L]


def batches(
    text: Text,
    keep: np.ndarray,
    draw: Draw,
    *,
    window: int = 5,
    centres: int = 4096,
    epochs: int = 1,
    seed: int = 1,
    start: Place = START,
) -> Iterator[Batch]:
    """All batches of a run from `start` on: in each epoch every kept word is a centre once."""
    parts = list(blocks(text, BLOCK))
    for epoch in range(start.epoch, epochs):
        order = np.random.default_rng((seed, epoch)).permutation(len(parts))
        for number in range(start.block, len(parts)):
            rng = np.random.default_rng((seed, epoch, number))
            made = block_batches(part_of(text, *parts[order[number]]), keep, rng, window, centres)
            drawn = draw(rng)
            for i, batch in enumerate(made):
                negatives = drawn(batch)
                if i >= start.batch:
                    yield batch._replace(negatives=negatives, after=Place(epoch, number, i + 1))
            start = Place(epoch, number + 1)
        start = Place(epoch + 1)


def blocks(text: Text, size: int) -> Iterator[tuple[int, int]]:
    """The text in runs of whole sentences, about `size` words each: first sentence and end."""
    ids, bounds = text
    starts = np.searchsorted(bounds, np.arange(0, len(ids), size))
    yield from pairwise(np.unique([*starts, len(bounds) - 1]).tolist())


def part_of(text: Text, first: int, end: int) -> Text:
    """Some sentences of a text."""
    bounds = text.bounds[first : end + 1]
    ids = np.asarray(text.ids[bounds[0] : bounds[-1]], np.int64)
    return Text(ids, bounds - bounds[0])


def block_batches(
    text: Text, keep: np.ndarray, rng: np.random.Generator, window: int, centres: int
) -> Iterator[Batch]:
    """The batches of one block, spans in random order, still without negatives."""
    ids, bounds = subsample(text, keep, rng)
    if not len(ids):
        return
    left, right = reaches(bounds, rng.integers(1, window + 1, len(ids)))
    count = -(-len(ids) // SPAN)  # spans; the last one may be filled up with centres that see none
    beyond = count * SPAN - len(ids)
    padded = np.pad(ids, (window, beyond + window))
    spans = np.lib.stride_tricks.sliding_window_view(padded, SPAN + 2 * window)[::SPAN]
    left, right = (np.pad(x, (0, beyond)).reshape(count, SPAN) for x in (left, right))
    sizes = (left + right).astype(np.float32)
    # Whether word j of a span is within reach of its centre i, a row for each reach and i.
    offset = np.arange(-window, SPAN + window) - np.arange(SPAN)[:, None]
    reach = np.arange(window + 1)[:, None, None]
    after = ((offset <= reach) & (offset != 0)).reshape(-1, SPAN + 2 * window)
    before = (-offset <= reach).reshape(after.shape)
    left, right = (x * SPAN + np.arange(SPAN) for x in (left, right))

    order = rng.permutation(count)
    parts = np.array_split(order, -(-count * SPAN // centres))
    used = np.linspace(0, len(text.ids), len(parts) + 1).astype(int)
    for rows, words in zip(parts, np.diff(used), strict=True):
        near = before.take(left[rows], 0)
        near &= after.take(right[rows], 0)
        yield Batch(spans[rows], near, sizes[rows], NO_NEGATIVES, int(words), START)


def subsample(text: Text, keep: np.ndarray, rng: np.random.Generator) -> Text:
    """Leave out each word with probability 1 - keep[word]; the rest of a sentence closes up."""
    kept = rng.random(len(text.ids)) < keep[text.ids]
    before = np.concatenate([[0], np.cumsum(kept)])
    return Text(text.ids[kept], before[text.bounds])


def reaches(bounds: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many contexts each word has on its left and right: `reach`, or as its sentence ends."""
    at, lengths = np.arange(len(reach)), np.diff(bounds)
    left = np.minimum(reach, at - np.repeat(bounds[:-1], lengths))
    right = np.minimum(reach, np.repeat(bounds[1:], lengths) - 1 - at)
    return left, right
