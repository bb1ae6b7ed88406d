"""Schedules: functions of the number of the step, from 1, to give in place of a setting. Floor 5.

``optim.SGD([W], lr=optim.cosine(0.1, steps=1000))``: nothing is to be called between steps, and a
checkpoint needs no more than the optimizer's own count. A momentum or a decay may be one as well.
A schedule that has a state of its own, as Plateau has, is saved with the optimizer: any callable
with `state_dict` and `load_state_dict` is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any, Protocol, runtime_checkable

from tinygrad_sparse.errors import ArgumentError, CheckpointError, explain

from .rule import plain
from .settings import FINITE

Schedule = Callable[[int], float]


@runtime_checkable
class Stateful(Protocol):
    """A schedule that goes by more than the number of the step."""

    def __call__(self, step: int) -> float: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class _Named:
    """A function of the step that shows how it was made."""

    __slots__ = ("at", "text")

    def __init__(self, text: str, at: Schedule) -> None:
        self.text, self.at = text, at

    def __call__(self, step: int) -> float:
        return self.at(step)

    def __repr__(self) -> str:
        return self.text


def _check(op: str, expected: str, got: Any, holds: Callable[[Any], bool] = FINITE.holds) -> None:
    number = plain(got)
    if not (isinstance(number, Real) and holds(number)):
        raise ArgumentError(explain(op, expected, repr(got)))


def _check_values(op: str, **values: Any) -> None:
    for name, value in values.items():
        _check(op, FINITE.text.format(name), value)


def _above_0(x: float) -> bool:
    return x > 0


def _power(factor: float, n: int) -> float:
    """factorⁿ; what no float is as large as is infinite, and refused where it is asked for."""
    try:
        return float(plain(factor) ** n)
    except OverflowError:
        return math.inf


def constant(value: float) -> Schedule:
    """The same at every step: what a number is, where a schedule is asked for.

    >>> lr = constant(0.1)
    >>> lr(1), lr(1000), lr
    (0.1, 0.1, constant(0.1))
    """
    _check_values("constant", value=value)
    return _Named(f"constant({value!r})", lambda step: value)


def step_decay(value: float, every: int, factor: float = 0.1) -> Schedule:
    """value · factorᵏ after k times `every` steps.

    >>> [step_decay(1.0, every=2, factor=0.5)(t) for t in (1, 2, 3, 4, 5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    _check("step_decay", "every > 0", every, _above_0)
    _check_values("step_decay", value=value, factor=factor)
    text = f"step_decay({value!r}, {every!r}, {factor!r})"
    return _Named(text, lambda step: value * _power(factor, (step - 1) // every))


def exponential(value: float, factor: float) -> Schedule:
    """value · factorᵗ⁻¹ at step t.

    >>> [exponential(1.0, 0.5)(t) for t in (1, 2, 4)]
    [1.0, 0.5, 0.125]
    """
    _check_values("exponential", value=value, factor=factor)
    text = f"exponential({value!r}, {factor!r})"
    return _Named(text, lambda step: value * _power(factor, step - 1))


def cosine(value: float, steps: int, end: float = 0.0) -> Schedule:
    """Half a cosine from value to `end` over `steps` steps, then `end`.  Loshchilov & Hutter, 2017.

    >>> [round(cosine(1.0, 4)(t), 3) for t in (1, 3, 5, 9)]
    [1.0, 0.5, 0.0, 0.0]
    """
    _check("cosine", "steps > 0", steps, _above_0)
    _check_values("cosine", value=value, end=end)

    def schedule(step: int) -> float:
        part = min(1.0, (step - 1) / steps)
        return end + (value - end) * 0.5 * (1.0 + math.cos(math.pi * part))

    return _Named(f"cosine({value!r}, {steps!r}, {end!r})", schedule)


def linear_decay(value: float, steps: int, end: float = 0.0) -> Schedule:
    """A straight line from value to `end` over `steps` steps, then `end`.

    >>> [linear_decay(1.0, 4)(t) for t in (1, 2, 5, 6)]
    [1.0, 0.75, 0.0, 0.0]
    """
    _check("linear_decay", "steps > 0", steps, _above_0)
    _check_values("linear_decay", value=value, end=end)
    text = f"linear_decay({value!r}, {steps!r}, {end!r})"
    return _Named(text, lambda step: value + (end - value) * min(1.0, (step - 1) / steps))


def warm_up(steps: int, then: float | Schedule) -> Schedule:
    """A straight line up over `steps` steps to what `then` is or begins with; then that.

    >>> [warm_up(4, linear_decay(1.0, 2))(t) for t in (1, 2, 4, 5, 6, 7)]
    [0.25, 0.5, 1.0, 1.0, 0.5, 0.0]
    """
    _check("warm_up", "steps > 0", steps, _above_0)
    _check("warm_up", "a schedule or a finite number", 0.0 if callable(then) else then)
    made = _WarmUpOfState if isinstance(then, Stateful) else _WarmUp
    return made(steps, then if callable(then) else constant(then))


class _WarmUp:
    """What `warm_up` answers: it holds the schedule after it, so that a copy has its own."""

    def __init__(self, steps: int, then: Any) -> None:
        self.steps, self.then = steps, then

    def __call__(self, step: int) -> float:
        if step > self.steps:
            return float(self.then(step - self.steps))
        return float(self.then(1) * step / self.steps)

    def __repr__(self) -> str:
        return f"warm_up({self.steps!r}, {self.then!r})"


class _WarmUpOfState(_WarmUp):
    """Before a schedule that has a state, which is then its own."""

    def state_dict(self) -> dict[str, Any]:
        return dict(self.then.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.then.load_state_dict(state)


def one_cycle(
    top: float, steps: int, *, rise: float = 0.3, start: float | None = None,
    end: float | None = None,
) -> Schedule:  # fmt: skip
    """From `start` (top/25) to `top` along half a cosine for a part `rise` of the steps, to `end`
    for the rest: start/10⁴, or start itself where that is above the top, as for a momentum that
    goes the other way round.   Smith & Topin, 2018.

    >>> lr = one_cycle(1.0, 10, rise=0.5, start=0.0, end=0.0)
    >>> [round(lr(t), 3) for t in (1, 6, 11)]
    [0.0, 1.0, 0.0]
    >>> momentum = one_cycle(0.85, 10, rise=0.5, start=0.95)
    >>> [round(momentum(t), 3) for t in (1, 6, 11)]
    [0.95, 0.85, 0.95]
    """
    _check("one_cycle", "steps > 0", steps, _above_0)
    _check("one_cycle", "0 <= rise <= 1", rise, lambda x: 0 <= x <= 1)
    given = {"top": top, "start": start, "end": end}
    _check_values("one_cycle", **{name: x for name, x in given.items() if x is not None})
    low = top / 25.0 if start is None else start
    after = low / 1e4 if low <= top else low
    last = after if end is None else end
    up = max(1, round(rise * steps))
    climb, fall = cosine(low, up, top), cosine(top, max(1, steps - up), last)
    text = f"one_cycle({top!r}, {steps!r}, rise={rise!r}, start={low!r}, end={last!r})"
    return _Named(text, lambda step: climb(step) if step <= up else fall(step - up))


class Plateau:
    """A value that is cut when a measure stops getting better: call `update(measure)` with it.

    After more than `patience` measures in a row that are not below the best by a part `threshold`,
    value · `factor`, not below `least`; `larger` for measures that should grow. A NaN is not
    better than anything. Its state is saved and loaded with the optimizer's.

    >>> lr = Plateau(1.0, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     lr.update(loss)
    >>> lr(1), lr
    (0.5, Plateau(0.5, factor=0.5, patience=1, threshold=0.0001, least=0.0, larger=False))
    """

    def __init__(
        self, value: float, *, factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        least: float = 0.0, larger: bool = False,
    ) -> None:  # fmt: skip
        _check_values("Plateau", value=value, least=least)
        _check("Plateau", "0 < factor < 1", factor, lambda x: 0 < x < 1)
        _check("Plateau", "patience >= 0", patience, lambda x: x >= 0)
        _check("Plateau", "0 <= threshold < 1", threshold, lambda x: 0 <= x < 1)
        self.value = value
        self.best = math.inf
        self.waited = 0
        self._factor, self._patience, self._least = factor, patience, least
        self._threshold, self._larger = threshold, larger

    def __call__(self, step: int) -> float:
        return self.value

    def __repr__(self) -> str:
        return (
            f"Plateau({self.value!r}, factor={self._factor!r}, patience={self._patience!r}, "
            f"threshold={self._threshold!r}, least={self._least!r}, larger={self._larger!r})"
        )

    def update(self, measure: float) -> None:
        """A new measure, of an epoch say: a number, or an array or Tensor of one."""
        measure = _measured(measure)
        measure = -measure if self._larger else measure
        first = self.best == math.inf
        if measure < (self.best if first else self.best - self._threshold * abs(self.best)):
            self.best, self.waited = measure, 0
            return
        self.waited += 1
        if self.waited > self._patience:
            cut = max(self._least, self.value * self._factor)
            self.value, self.waited = min(self.value, cut), 0

    def state_dict(self) -> dict[str, Any]:
        """What it remembers."""
        return {"value": self.value, "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there. Raises CheckpointError for what no Plateau remembers."""
        fits = (
            isinstance(state, dict)
            and set(state) == {"value", "best", "waited"}
            and all(isinstance(x, Real) and x == x for x in state.values())
            and FINITE.holds(state["value"])
            and 0 <= state["waited"] < math.inf
        )
        if not fits:
            raise CheckpointError(explain("Plateau", "numbers value, best, waited", repr(state)))
        self.value, self.best = float(state["value"]), float(state["best"])
        self.waited = int(state["waited"])


def _measured(measure: Any) -> float:
    try:
        if not isinstance(measure, (str, bytes)):  # of which float reads some
            return float(measure)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ArgumentError(explain("Plateau.update", "a number", repr(measure)))
