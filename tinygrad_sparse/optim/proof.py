"""Is a formula one that a step can use, and does it rest as its rule claims? Tried, once. Floor 5.

A formula gets views of the parameter and of its state. One that writes to them would undo the order
in which a step computes all and then writes, so each is tried on a few numbers of its own first.

`still` and `rest` are claims that a rule's author makes. Their factors are read off the formula,
but whether the formula has that form at all only trying shows. So before the first rows of a rule
rest, a handful of numbers take some steps by the formula and by the claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from tinygrad_sparse.errors import ArgumentError, SparsityError, explain

from .history import History
from .rest import columns_of
from .rule import Memory, Rule

MOVED, RESTED = 3, 5  # steps with a gradient, and then without
ROWS = (6, 4)

_tried: WeakSet[Any] = WeakSet()  # formulas
_proven: WeakKeyDictionary[Any, set[Any]] = WeakKeyDictionary()  # by formula


def try_formula(rule: Rule, settings: Mapping[str, Any]) -> None:
    """Raises ArgumentError for a formula that writes to its arguments or answers no tuple."""
    if rule.formula in _tried:
        return
    rng = np.random.default_rng(0)
    rows = {"p": rng.normal(size=ROWS), "g": rng.normal(size=ROWS)}
    for slot in rule.slots:  # what starts at 0 may be scaled in place and look untouched
        rows[slot] = rng.uniform(0.5, 1.5, (ROWS[0], 1 if slot in rule.per_row else ROWS[1]))
    given = {name: values.copy() for name, values in rows.items()}
    hyper, _ = rule.hyper(_moving(settings), 1, {})
    try:
        with np.errstate(all="ignore"):
            new = rule.formula(*given.values(), **hyper)
    except Exception:  # made for rows of another size, or wrong: a step will say so
        return
    name = f"rule {rule.formula.__name__}"
    if changed := [k for k, values in rows.items() if not np.array_equal(given[k], values)]:
        hint = "write p = p - lr * g, not p -= lr * g"
        got = f"other values in {', '.join(changed)}"
        raise ArgumentError(explain(name, "a formula that writes to no argument", got, hint))
    if not isinstance(new, (tuple, list)):
        row = f"({', '.join(('p', *rule.slots))}{'' if rule.slots else ','})"
        got = f"one {type(new).__name__}"
        raise ArgumentError(explain(name, f"the answer {row}", got, f"return {row}"))
    _tried.add(rule.formula)


def prove(name: str, rule: Rule, settings: Mapping[str, Any]) -> None:
    """Raises SparsityError where the rule's claim is not what its formula does at rest."""
    proven = _proven.setdefault(rule.formula, set())
    shape = (rule.still, rule.rest, *(bool(x) for x in settings.values()))
    if shape not in proven:
        _try(name, rule, settings)
        proven.add(shape)


def _try(name: str, rule: Rule, settings: Mapping[str, Any]) -> None:
    settings = _moving(settings)
    rng = np.random.default_rng(0)
    row: list[Any] = [rng.normal(size=ROWS)]
    for slot in rule.slots:
        width = 1 if slot in rule.per_row else ROWS[1]
        row.append(np.full((ROWS[0], width), float(settings.get(rule.start.get(slot, ""), 0.0))))
    sizes = 10.0 ** -np.arange(ROWS[1])
    memory: Memory = {}
    hypers = []
    for step in range(1, MOVED + RESTED + 1):
        hyper, memory = rule.hyper(settings, step, memory)
        hypers.append(hyper)
    with np.errstate(all="ignore"):
        for hyper in hypers[:MOVED]:  # to numbers that the rule can come to
            g = rng.normal(size=ROWS) * sizes
            g[0] = 0.0  # a row that never had a gradient rests as well
            row = list(rule.formula(row[0], g, *row[1:], **hyper))
            if len(row) != len(rule.slots) + 1:
                return  # a step will say so
        wanted = row
        for hyper in hypers[MOVED:]:
            wanted = list(rule.formula(wanted[0], np.zeros(ROWS), *wanted[1:], **hyper))
        claimed = row if rule.still else _rested(rule, row, hypers[MOVED:])
        if claimed is None:
            return
        for slot, was, is_now, said in zip(("p", *rule.slots), row, wanted, claimed, strict=True):
            way = 0.0 if rule.still else 1e-6 * _largest(is_now - was)
            near = abs(is_now - said) <= way + 1e-13 * max(_largest(was), _largest(is_now))
            right = near | (is_now == said) | (np.isnan(is_now) & np.isnan(said))
            if not right.all():
                at = tuple(np.argwhere(~right)[0])
                raise _disagrees(name, rule, slot, was[at], is_now[at], said[at])


def _moving(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings under which a formula moves something: a schedule may begin at a rate of 0."""
    return {**settings, "lr": 0.01} if settings.get("lr") == 0 else settings


def _largest(x: Any) -> float:
    return float(np.max(abs(x), initial=0.0, where=np.isfinite(x)))


def _rested(rule: Rule, row: list[Any], hypers: list[Any]) -> list[Any] | None:
    """The row after these steps by the closed form; None where that says that it has none."""
    assert rule.rest is not None
    rest = rule.rest(rule, np.dtype(np.float64))
    history = History(rest, 0)
    for hyper in hypers:
        carry, kept = rest.one(hyper)
        if np.isnan(carry).any():
            return None
        history.push(carry, kept)
    steps = np.zeros(ROWS[0], np.int64)
    factors, columns = history.factors(steps)
    formula, sure = rest.formulas(factors)[-1]
    factors = factors[:, columns]
    numbers = columns_of(factors, row[0])
    rested = list(formula(row, numbers))
    good = np.broadcast_to(sure(row, numbers), ROWS).all(axis=1, keepdims=True)
    if not good.all():
        replayed = rest.replay(row, factors, steps, history)
        rested = [np.where(good, a, b) for a, b in zip(rested, replayed, strict=True)]
    return rested


def _disagrees(
    name: str, rule: Rule, slot: str, was: float, is_now: float, said: float
) -> SparsityError:
    """The error of a rule that does not rest as it says."""
    claim = "still=True" if rule.still else "its rest="
    return SparsityError(
        explain(
            f"{name}(sparse='exact')",
            f"{rule.formula.__name__} to rest as {claim} says: {slot} = {was:.6g} to become "
            f"{said:.6g} in {RESTED} steps with a zero gradient",
            f"{is_now:.6g} from its formula",
            "correct the claim, or leave it out: dense gradients and sparse='lazy' need none",
        )
    )
