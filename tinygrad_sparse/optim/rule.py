"""What an optimizer's rule is: a formula on rows, its state, and how a row rests. Floor 5."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from tinygrad_sparse.errors import ArgumentError, explain

Memory = Mapping[str, float]  # numbers of a whole parameter that go from step to step
Prepare = Callable[..., tuple[dict[str, Any], dict[str, float]]]


class Rule(NamedTuple):
    """An optimizer's formula: ``formula(p, g, *slots, **hyper) -> (p, *slots)``, on rows."""

    formula: Callable[..., tuple[Any, ...]]
    slots: tuple[str, ...]
    still: bool  # a zero gradient moves nothing, so updating the touched rows alone is exact
    rest: Callable[..., Any] | None  # the closed form of many steps with a zero gradient
    per_row: tuple[str, ...]  # slots with one value a row; the formula then sees whole rows
    start: Mapping[str, str]  # slots that start at a setting's value, not at zero
    settings: tuple[str, ...]  # their names, as the formula asks for them
    prepare: Prepare | None
    squares: tuple[str, ...] = ()  # slots that are never negative
    defaults: Mapping[str, Any] = {}  # of the formula's settings

    def hyper(
        self, settings: Mapping[str, Any], step: Any, memory: Memory
    ) -> tuple[dict[str, Any], Memory]:
        """What the formula gets at this step, as plain numbers, and the memory after it.

        Raises ArgumentError for what the formula asks for and nobody gave.
        """
        known: dict[str, Any] = {**self.defaults, **settings, "step": step}
        if self.prepare is not None:
            more, memory = self.prepare(memory, **known)
            known.update(more)
        try:
            return {name: plain(known[name]) for name in self.settings}, memory
        except KeyError:
            missing = [name for name in self.settings if name not in known]
            name = f"rule {self.formula.__name__}"
            wanted = f"the settings {missing}"
            hint = None
            if self.prepare is not None:
                hint = "give them to the optimizer, or have prepare answer them"
            raise ArgumentError(explain(name, wanted, f"{sorted(known)}", hint)) from None

    def at_rest(self, hyper: Mapping[str, Any]) -> np.ndarray:
        """The formula with a zero gradient, on unit vectors: column j is where (p, *slots)[j] goes.

        A closed form reads its factors here, off the formula itself.
        """
        size = len(self.slots) + 1
        p, *slots = np.eye(size)
        with np.errstate(all="ignore"):
            return np.array(self.formula(p, np.zeros(size), *slots, **hyper))


def plain(x: Any) -> Any:
    """A setting as the formula gets it: Python's number, which never widens a table's dtype."""
    if type(x) is float or type(x) is int:
        return x
    number = x.item() if getattr(x, "ndim", None) == 0 else x
    if isinstance(number, Integral):
        return int(number)
    return float(number) if isinstance(number, Real) else number


def rule(
    formula: None = None,
    /,
    *,
    slots: Sequence[str] = (),
    still: bool = False,
    rest: Callable[..., Any] | None = None,
    per_row: Sequence[str] = (),
    start: Mapping[str, str] | None = None,
    prepare: Prepare | None = None,
    squares: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Rule]:
    """Declare a formula: ``formula(p, g, *slots, **settings) -> (p, *slots)``, writing nothing.

    It is written once with NumPy's ufunc names, for arrays or single numbers; its keyword-only
    arguments are the settings it needs, `step` among them if it counts steps, from 1; those with a
    default need not be given. `slots` names its state, one value an element, starting at zero (or,
    by `start`, at a setting's value); those in `per_row` have one value a row, those in `squares`
    are never negative (a state_dict that says otherwise is refused).

    With a zero gradient a row rests. ``still=True``: it does not move. `rest` tells how it does:
    `linear`, `along(...)` or `quotient(...)`, see there; then the exact meaning costs the touched
    rows only. With neither, ``sparse="exact"`` takes dense gradients alone.

    `prepare(memory, *, setting, **_)` may compute more numbers for a step, and keep some for the
    next: it answers ``(more, memory)``. It names the settings that it needs, as formulas do.

    Raises ArgumentError for a declaration that does not fit the formula. Whether a formula rests as
    `still` or `rest` says is looked at when the first rows do.
    """
    if formula is not None:
        got = f"{getattr(formula, '__name__', formula)!r} where they go"
        raise ArgumentError(explain("rule", "keywords", got, "write @optim.rule(), or with slots="))

    def declare(formula: Callable[..., Any]) -> Rule:
        parameters = inspect.signature(formula).parameters.values()
        keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        names = tuple(p.name for p in keywords)
        defaults = {
            p.name: p.default for p in keywords if p.default is not p.empty and p.name != "step"
        }
        _check_slots(formula, parameters, tuple(slots))
        for what, some in (("per_row", per_row), ("start", start or {}), ("squares", squares)):
            if strangers := sorted(set(some) - set(slots)):
                wanted = f"slots among {tuple(slots)} in {what}"
                raise ArgumentError(explain(f"rule {formula.__name__}", wanted, f"{strangers}"))
        if still and rest is not None:
            hint = "what is still does not move at rest"
            got = "both"
            raise ArgumentError(
                explain(f"rule {formula.__name__}", "still=True or rest=", got, hint)
            )
        if getattr(formula, "whole_rows", bool(per_row)) != bool(per_row):
            wanted = "one kind of rows for a formula: per_row= in all its declarations, or in none"
            hint = "declare a second function"
            raise ArgumentError(explain(f"rule {formula.__name__}", wanted, "both", hint))
        # Kernels for single elements cannot run a formula that sums over a row.
        formula.whole_rows = bool(per_row)  # type: ignore[attr-defined]  # a function carries it
        declared = Rule(
            formula, tuple(slots), still, rest, tuple(per_row), dict(start or {}), names, prepare,
            tuple(squares), defaults,
        )  # fmt: skip
        if rest is not None:
            rest(declared, np.dtype(np.float64))  # looks at the slots it is told of
        return declared

    return declare


def _check_slots(
    formula: Callable[..., Any], parameters: Collection[inspect.Parameter], slots: tuple[str, ...]
) -> None:
    """Raises unless the formula takes p, g and the slots, in their order."""
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return
    taken = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(taken) < 2 or tuple(taken[2:]) != slots:
        wanted = f"the arguments ({', '.join(('p', 'g', *slots))}), then settings after a *"
        hint = "slots= names the state, in the order in which the formula takes and returns it"
        got = f"({', '.join(taken)})"
        raise ArgumentError(explain(f"rule {formula.__name__}", wanted, got, hint))
