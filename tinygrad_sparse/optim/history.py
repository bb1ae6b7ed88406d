"""History: what many steps did to a row that got no gradient, as a few numbers, in O(1). Floor 5.

Steps that a row missed compose: what happened from step a to step e, then from e to t. `Rest` says
what is carried and how it composes; History answers "from a to now" for any a.

Prefix sums alone would not do: Σ over (a, t] as P(t) - P(a), divided by the decay up to a, loses
all its digits once that decay is small. So sums are kept from each step a to the *end* of its block
of steps, from each block's end to the start of the open one, and from each step of the open block
to now. Nothing is ever subtracted or divided, and what underflows was nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

BLOCK = 128  # steps

# Of the numbers of a row, (p, *slots), and the factors of its rest; a tuple of each.
Formula = Callable[[Any, Any], Any]


class Rest(Protocol):
    """A closed form of resting. A carry is `width` float64 numbers, one column a row."""

    width: int
    kept: int  # numbers of each single step that `replay` may ask History for

    def one(self, hyper: Any, average: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """The carry of one step, and what to keep of it; `average` is what an average keeps."""

    def same(self) -> np.ndarray:
        """The carry of no step."""

    def chain(self, first: np.ndarray, then: np.ndarray) -> np.ndarray:
        """The carry of both, one after the other; columns broadcast."""

    def drift(self, carry: np.ndarray) -> int:
        """What it does to a row without state: 0 nothing, 1 moves p, 2 gives it state too."""

    def moves(self, carry: np.ndarray) -> bool:
        """Whether p can move at all: if not, there is nothing to settle before a read."""

    def factors(self, carry: np.ndarray) -> np.ndarray:
        """What the formulas compute with, (k, n), from carries (width, n)."""

    def formulas(self, factors: np.ndarray) -> list[tuple[Formula, Formula]]:
        """What brings a row up to date, element by element, and where it is sure to.

        The next one is for the rows in which it is not; `replay` for those that are left.
        """

    def replay(
        self, row: list[Any], factors: Any, steps: np.ndarray, history: History
    ) -> list[Any]:
        """Rows as they are now, that are given as they were after `steps`."""


class History:
    """The steps from `origin` to `now`, for rows that were last up to date anywhere between."""

    def __init__(self, rest: Rest, origin: int) -> None:
        self.rest = rest
        self.origin = self.start = self.now = origin  # the open block's first step is start + 1
        self._same = rest.same()
        self._closed = np.empty((rest.width, 0))  # step a -> end of its block
        self._tails = np.empty((rest.width, 0))  # end of a block -> start
        self._open = np.empty((rest.width, BLOCK + 1))  # step a -> now
        self._open[:, 0] = self._same
        self._kept = np.empty((rest.kept, BLOCK))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(a.nbytes for a in (self._closed, self._tails, self._open, self._kept))

    def push(self, carry: np.ndarray, kept: np.ndarray) -> None:
        """One more step."""
        n = self.now - self.start + 1
        self._open[:, :n] = self.rest.chain(self._open[:, :n], carry[:, None])
        self._open[:, n] = self._same
        if self.now - self.origin == self._kept.shape[1]:
            self._kept = _doubled(self._kept)
        self._kept[:, self.now - self.origin] = kept
        self.now += 1
        if n == BLOCK:
            self._close()

    def _close(self) -> None:
        done = self.start - self.origin
        if done == self._closed.shape[1]:
            self._closed = _doubled(self._closed, BLOCK)
        self._closed[:, done : done + BLOCK] = self._open[:, :BLOCK]
        tails = self.rest.chain(self._tails, self._open[:, :1])
        self._tails = np.concatenate([tails, self._same[:, None]], axis=1)
        self.start = self.now
        self._open[:, 0] = self._same

    def step(self, number: int) -> np.ndarray:
        """What was kept of one step."""
        return self._kept[:, number - 1 - self.origin]

    def factors(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What rest needs to bring rows from these steps to now: (k, n), and the column of each."""
        first = int(steps.min())
        used = np.zeros(self.now - first + 1, bool)
        used[steps - first] = True
        each = np.flatnonzero(used)
        columns = np.empty(len(used), np.int64)
        columns[each] = np.arange(len(each))
        return self.rest.factors(self.since(each + first)), columns[steps - first]

    def since(self, steps: np.ndarray) -> np.ndarray:
        """The carries from each of these steps to now: (width, n)."""
        old = np.flatnonzero(steps < self.start)
        carry = np.take(self._open, np.maximum(steps - self.start, 0), axis=1)
        if len(old):
            tails = self.rest.chain(self._tails, self._open[:, :1])
            at = steps[old] - self.origin
            carry[:, old] = self.rest.chain(
                np.take(self._closed, at, axis=1), np.take(tails, at // BLOCK, axis=1)
            )
        return carry


def _doubled(a: np.ndarray, least: int = 1) -> np.ndarray:
    more = np.empty((len(a), max(least, 2 * a.shape[1])))
    more[:, : a.shape[1]] = a
    return more
