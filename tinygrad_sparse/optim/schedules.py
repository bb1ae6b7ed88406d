"""Schedules: functions of the number of the step, from 1, to give in place of a setting. Floor 5.

``optim.SGD([W], lr=optim.cosine(0.1, steps=1000))``: nothing is to be called between steps, and a
checkpoint needs no more than the optimizer's own count. A momentum or a decay may be one as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinygrad_sparse.errors import ArgumentError, explain

Schedule = Callable[[int], float]


def _check(op: str, steps: int) -> None:
    if not steps > 0:
        raise ArgumentError(explain(op, "steps > 0", repr(steps)))


def constant(value: float) -> Schedule:
    """The same at every step."""
    return lambda step: value


def step_decay(value: float, every: int, factor: float = 0.1) -> Schedule:
    """value · factorᵏ after k times `every` steps.

    >>> [step_decay(1.0, every=2, factor=0.5)(t) for t in (1, 2, 3, 4, 5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    _check("step_decay", every)
    return lambda step: value * factor ** ((step - 1) // every)


def exponential(value: float, factor: float) -> Schedule:
    """value · factorᵗ⁻¹."""
    return lambda step: value * factor ** (step - 1)


def cosine(value: float, steps: int, end: float = 0.0) -> Schedule:
    """Half a cosine from value to `end` over `steps` steps, then `end`.  Loshchilov & Hutter, 2017.

    >>> [round(cosine(1.0, 4)(t), 3) for t in (1, 3, 5, 9)]
    [1.0, 0.5, 0.0, 0.0]
    """
    _check("cosine", steps)

    def schedule(step: int) -> float:
        part = min(1.0, (step - 1) / steps)
        return end + (value - end) * 0.5 * (1.0 + math.cos(math.pi * part))

    return schedule


def linear_decay(value: float, steps: int, end: float = 0.0) -> Schedule:
    """A straight line from value to `end` over `steps` steps, then `end`.

    >>> [linear_decay(1.0, 4)(t) for t in (1, 2, 5, 6)]
    [1.0, 0.75, 0.0, 0.0]
    """
    _check("linear_decay", steps)
    return lambda step: value + (end - value) * min(1.0, (step - 1) / steps)


def warm_up(steps: int, then: float | Schedule) -> Schedule:
    """A straight line up over `steps` steps to what `then` is or begins with; then that.

    >>> [warm_up(4, linear_decay(1.0, 2))(t) for t in (1, 2, 4, 5, 6, 7)]
    [0.25, 0.5, 1.0, 1.0, 0.5, 0.0]
    """
    _check("warm_up", steps)
    after: Schedule = then if callable(then) else constant(then)
    return lambda step: after(1) * step / steps if step <= steps else after(step - steps)


def one_cycle(
    top: float, steps: int, *, rise: float = 0.3, start: float | None = None,
    end: float | None = None,
) -> Schedule:  # fmt: skip
    """Up from `start` (top/25) along half a cosine for a part `rise` of the steps, down to `end`
    (start/10⁴) for the rest.   Smith & Topin, 2018. For a momentum that goes the other way round,
    give a `start` above the top.

    >>> lr = one_cycle(1.0, 10, rise=0.5, start=0.0, end=0.0)
    >>> [round(lr(t), 3) for t in (1, 6, 11)]
    [0.0, 1.0, 0.0]
    """
    _check("one_cycle", steps)
    low = top / 25.0 if start is None else start
    last = low / 1e4 if end is None else end
    up = max(1, round(rise * steps))
    climb, fall = cosine(low, up, top), cosine(top, max(1, steps - up), last)
    return lambda step: climb(step) if step <= up else fall(step - up)


class Plateau:
    """A value that is cut when a measure stops getting better: call `update(measure)` with it.

    After more than `patience` measures in a row that are not below the best by a part `threshold`,
    value · `factor`, not below `least`; `larger` for measures that should grow. Its own state is to
    be saved with the optimizer's.

    >>> lr = Plateau(1.0, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     lr.update(loss)
    >>> lr(1)
    0.5
    """

    def __init__(
        self, value: float, *, factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        least: float = 0.0, larger: bool = False,
    ) -> None:  # fmt: skip
        self.value = value
        self.best = math.inf
        self.waited = 0
        self._factor, self._patience, self._least = factor, patience, least
        self._threshold, self._sign = threshold, -1.0 if larger else 1.0

    def __call__(self, step: int) -> float:
        return self.value

    def update(self, measure: float) -> None:
        """A new measure, of an epoch say."""
        measure = self._sign * float(measure)
        if self.best == math.inf or measure < self.best - self._threshold * abs(self.best):
            self.best, self.waited = measure, 0
            return
        self.waited += 1
        if self.waited > self._patience:
            self.value, self.waited = max(self._least, self.value * self._factor), 0

    def state_dict(self) -> dict[str, Any]:
        """What it remembers."""
        return {"value": self.value, "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.value, self.best = float(state["value"]), float(state["best"])
        self.waited = int(state["waited"])
