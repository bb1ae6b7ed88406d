"""What an optimizer saves, and the checks before any of it is loaded. Floor 5."""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import deepcopy
from numbers import Integral
from typing import Any

import numpy as np

from tinygrad_sparse.backend import as_host_array
from tinygrad_sparse.errors import CheckpointError, DtypeError, TinygradSparseError, explain
from tinygrad_sparse.tensor import Tensor, native

from .rule import Rule
from .schedules import Stateful
from .settings import COMMON, Settings
from .state import State

ELSEWHERE = "load it into the optimizer that saved it, with the settings it had"
MOST = 2**30  # steps: rows are stamped with int32 numbers, and training is to go on

STATES = (
    "rules",
    "steps",
    "slots",
    "rows",
    "leads",
    "counts",
    "memory",
)  # lists, an entry a parameter


def saved_groups(groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings that are values. A schedule is code, and stays with the optimizer: what is saved
    of it is its state, if it has one.
    """
    return [
        {
            k: v.state_dict() if isinstance(v, Stateful) else _value(v)
            for k, v in group.items()
            if k != "params" and (isinstance(v, Stateful) or not callable(v))
        }
        for group in groups
    ]


def _value(setting: Any) -> Any:
    """A setting as nobody can write to it: the number in an array of no axes, say."""
    return setting.item() if getattr(setting, "ndim", None) == 0 else setting


def saved_states(
    states: Iterable[tuple[State | None, dict[str, Any]]],
) -> dict[str, list[Any]]:
    """Copies of all that training needs to go on, by what is saved, an entry a parameter."""
    saved: dict[str, list[Any]] = {key: [] for key in STATES}
    for state, settings in states:
        one = dict(NOTHING) if state is None else _saved(state, settings)
        for key in STATES:
            saved[key].append(one[key])
    return saved


NOTHING: dict[str, Any] = {
    "rules": None, "steps": 0, "slots": [], "rows": None, "leads": 0, "counts": None, "memory": {},
}  # fmt: skip


def _saved(s: State, settings: dict[str, Any]) -> dict[str, Any]:
    by_row = s.counts is not None and settings["count"] == "row"
    return {
        "rules": s.rule.formula.__name__,
        "steps": s.steps,
        "slots": s.saved(),
        "rows": None if s.index is None else s.ids[: s.used].copy(),
        "leads": s.lead,
        "counts": s.saved_counts() if by_row else None,
        "memory": dict(s.memory),
    }


def checked_groups(name: str, state: Any, own_groups: list[Settings], count: int) -> list[Settings]:
    """The groups as a state_dict has them, after a look at the whole of it."""
    if not isinstance(state, dict) or set(state) != {"groups", "calls", *STATES}:
        got = f"{sorted(state)}" if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(explain(name, f"groups, calls, {', '.join(STATES)}", got))
    lists = [state[key] for key in ("groups", *STATES)]
    lists += lists[3] if isinstance(lists[3], (list, tuple)) else []
    if not all(isinstance(one, (list, tuple)) for one in lists):
        raise CheckpointError(explain(name, "lists", f"{[type(x).__name__ for x in lists]}"))
    lists = lists[: 1 + len(STATES)]
    if len(lists[0]) != len(own_groups) or any(len(x) != count for x in lists[1:]):
        sizes = ", ".join(f"{len(x)} {key}" for key, x in zip(STATES, lists[1:], strict=True))
        got = f"{len(lists[0])} groups, {sizes}"
        wanted = f"{len(own_groups)} groups and {count} parameters"
        raise CheckpointError(explain(name, wanted, got))
    calls = state["calls"]
    if not _is_count(calls):
        raise CheckpointError(explain(name, "a number of calls", repr(calls)))
    groups = []
    for settings, saved in zip(own_groups, state["groups"], strict=True):
        group = settings.group
        own = sorted(set(group) - {"params", *settings.schedules()})
        named = isinstance(saved, dict) and set(own) <= set(saved) <= set(group) - {"params"}
        if not named:
            raise _other_settings(name, own, set(group) - {"params"}, saved, state["rules"])
        loaded = _loaded_schedules(settings, saved)
        new = Settings(
            name, {**group, **{key: saved[key] for key in own}, **loaded}, settings.ranges
        )
        try:
            new.check(new.group)
        except TinygradSparseError as error:
            raise CheckpointError(str(error)) from error
        groups.append(new)
    return groups


def _other_settings(
    name: str, own: list[str], known: set[str], saved: Any, rules: Any
) -> CheckpointError:
    """The error of a group that has not the settings that this optimizer saves."""
    if not isinstance(saved, dict):
        return CheckpointError(explain(name, f"the settings {own}", repr(saved)))
    missing, more = [k for k in own if k not in saved], [k for k in saved if k not in known]
    theirs = sorted({repr(rule) for rule in rules if rule is not None})
    if missing and not more and not set(missing) & set(COMMON):
        got = f"one without {missing}, which was a schedule there, or was not saved"
        hint = f"make {name} with the schedule that it had: a schedule is code, and is not saved"
        return CheckpointError(explain(name, f"a state with the settings {own}", got, hint))
    if not theirs:
        got = f"{missing} missing, {more} unknown"
        return CheckpointError(explain(name, f"the settings {own}", got, ELSEWHERE))
    wanted = f"a state that {name} saved, with the settings {own}"
    got = f"one of the rule {', '.join(theirs)}, with {list(saved)}"
    return CheckpointError(explain(name, wanted, got, ELSEWHERE))


def _loaded_schedules(settings: Settings, saved: dict[str, Any]) -> dict[str, Stateful]:
    """Copies of the schedules that have a state, with the state that was saved of them."""
    loaded = {}
    for key, own in settings.schedules().items():
        if isinstance(own, Stateful) and isinstance(saved.get(key), dict):
            loaded[key] = deepcopy(own)
            loaded[key].load_state_dict(saved[key])
    return loaded


def _is_count(x: Any) -> bool:
    """Whether it is a number of steps."""
    return isinstance(x, Integral) and not isinstance(x, bool) and 0 <= int(x) <= MOST


def loaded_state(
    name: str, p: Tensor, rule: Rule, settings: dict[str, Any], one: dict[str, Any]
) -> State | None:
    """A State of what was saved for one parameter; None where it was never stepped."""
    steps = one["steps"]
    if not _is_count(steps):
        raise CheckpointError(explain(name, f"a step count of {p.name}", repr(steps)))
    _check_memory(name, p, rule if steps else None, settings, one)
    if not steps:
        kept = [key for key in ("rules", "rows", "counts") if one[key] is not None]
        kept += ["slots"] if len(one["slots"]) else []
        if kept:
            got = ", ".join(kept)
            raise CheckpointError(explain(name, f"nothing kept for {p.name}, step 0", got))
        return None
    mine = rule.formula.__name__
    if one["rules"] != mine:
        got = f"that of {one['rules']!r}"
        raise CheckpointError(
            explain(name, f"state of the rule {mine!r} for {p.name}", got, ELSEWHERE)
        )
    rows, counts = (None if one[k] is None else _array(name, p, one[k]) for k in ("rows", "counts"))
    lead = one["leads"]
    least = min(1, p.ndim)
    most = least if rule.per_row else p.ndim
    if not _is_count(lead) or not least <= lead <= most:
        raise CheckpointError(explain(name, f"rows of {p.name}'s first axes", repr(lead)))
    if counts is not None and settings["count"] != "row":
        raise CheckpointError(explain(name, f"no counts by row for {p.name}", "some"))
    state = State(rule, p._array(), settings, sparse=rows is not None)
    state.refine(int(lead))
    size = len(state.flat) if rows is None else np.size(rows)
    # Rows may be loaded where full tables are kept, on a GPU say.
    shape = state.saved_shape if rows is None else state.rows_shape
    wanted = [(state.wide, shape(slot, size)) for slot in state.names]
    wanted += [] if rows is None else [(np.dtype(np.int64), (size,))]
    wanted += [] if counts is None else [(np.dtype(np.int32), (size,))]
    given = [*one["slots"]]
    given += [a for a in (rows, counts) if a is not None]
    arrays = [native(_array(name, p, a)) for a in given]
    if [(a.dtype, a.shape) for a in arrays] != wanted:
        shown = ", ".join(f"{a.dtype} {a.shape}" for a in arrays) or "none"
        expected = ", ".join(f"{dtype} {shape}" for dtype, shape in wanted) or "none"
        raise CheckpointError(explain(name, f"slots {expected} for {p.name}, step {steps}", shown))
    for slot, values in zip(state.names, arrays, strict=False):
        if slot in rule.squares and (values < 0).any():
            got = f"{values.min()}"
            raise CheckpointError(explain(name, f"{slot} of {p.name} with no element < 0", got))
    if counts is not None and not ((arrays[-1] >= 0) & (arrays[-1] <= steps)).all():
        got = f"{arrays[-1].min()} to {arrays[-1].max()}"
        raise CheckpointError(explain(name, f"counts of {p.name} in 0 ... {steps}", got))
    if rows is not None:
        ids = arrays[len(state.names)]
        if len(np.unique(ids)) < size or (
            size and not 0 <= ids.min() <= ids.max() < len(state.flat)
        ):
            raise CheckpointError(explain(name, f"rows of {p.name} {p.shape}, each once", f"{ids}"))
    state.load(int(steps), arrays, rows is not None, counts is not None, dict(one["memory"]))
    return state


def _array(name: str, p: Tensor, saved: Any) -> np.ndarray:
    """What was saved as an array."""
    try:
        return as_host_array(name, saved)
    except DtypeError as error:  # lists of lists that are not all as long as each other
        raise CheckpointError(explain(name, f"arrays for {p.name}", repr(saved))) from error


def _check_memory(
    name: str, p: Tensor, rule: Rule | None, settings: dict[str, Any], one: dict[str, Any]
) -> None:
    """Raises unless the numbers kept from step to step are those that this rule keeps."""
    keys = set() if rule is None else set(rule.hyper(settings, 1, {})[1])
    memory = one["memory"]
    fits = isinstance(memory, dict) and set(memory) == keys
    try:
        fits = fits and all(math.isfinite(memory[key]) for key in keys)
        if fits and rule is not None:
            rule.hyper(settings, int(one["steps"]) + 1, memory)
    except (TypeError, ArithmeticError):
        fits = False
    if not fits:
        wanted = f"finite numbers {sorted(keys)} in the memory of {p.name}"
        raise CheckpointError(explain(name, wanted, repr(memory)))
