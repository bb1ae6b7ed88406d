"""What an optimizer saves, and the checks before any of it is loaded. Floor 5."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from tinygrad_sparse.errors import (
    CheckpointError,
    DtypeError,
    SparsityError,
    TinygradSparseError,
    explain,
)
from tinygrad_sparse.tensor import Tensor

from .rule import Rule
from .state import State

STATES = ("steps", "slots", "rows", "leads", "counts", "memory")  # lists, an entry a parameter


def check_settings(name: str, settings: dict[str, Any]) -> None:
    """Raises unless every setting of a group is of its kind."""
    for key, value in settings.items():
        if key == "sparse":
            if value not in ("exact", "lazy"):
                raise SparsityError(explain(name, "sparse='exact' or 'lazy'", repr(value)))
        elif key == "count":
            if value not in ("all", "row"):
                raise SparsityError(explain(name, "count='all' or 'row'", repr(value)))
        elif key != "params" and not isinstance(value, Real) and not callable(value):
            raise DtypeError(explain(name, f"a number for {key}", repr(value)))
        elif key == "lr" and not callable(value) and not 0.0 <= value < math.inf:
            hint = "maximize=True goes uphill"
            raise TinygradSparseError(explain(name, "lr >= 0", repr(value), hint))
    if settings["count"] == "row" and settings["sparse"] == "exact":
        hint = "exact means what a dense run does, which counts all steps; sparse='lazy' may not"
        raise SparsityError(explain(name, "count='all' with sparse='exact'", "'row'", hint))


def saved_groups(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The settings that are values; a schedule is code, and stays with the optimizer."""
    return [
        {k: v for k, v in group.items() if k != "params" and not callable(v)} for group in groups
    ]


def saved_states(states: list[State | None]) -> dict[str, list[Any]]:
    """Copies of all that training needs to go on."""
    return {
        "steps": [s.steps if s else 0 for s in states],
        "slots": [s.saved() if s else [] for s in states],
        "rows": [s.ids[: s.used].copy() if s and s.index is not None else None for s in states],
        "leads": [s.lead if s else 0 for s in states],
        "counts": [
            s.counts[: s.taken()].copy() if s and s.counts is not None else None for s in states
        ],
        "memory": [dict(s.memory) if s else {} for s in states],
    }


def checked_groups(
    name: str, state: Any, own_groups: list[dict[str, Any]], count: int
) -> list[dict[str, Any]]:
    """The groups as a state_dict has them, after a look at the whole of it."""
    if not isinstance(state, dict) or set(state) != {"groups", "calls", *STATES}:
        got = f"{sorted(state)}" if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(explain(name, f"groups, calls, {', '.join(STATES)}", got))
    lists = [state[key] for key in ("groups", *STATES)]
    lists += lists[2] if isinstance(lists[2], (list, tuple)) else []
    if not all(isinstance(one, (list, tuple)) for one in lists):
        raise CheckpointError(explain(name, "lists", f"{[type(x).__name__ for x in lists]}"))
    lists = lists[: 1 + len(STATES)]
    if len(lists[0]) != len(own_groups) or any(len(x) != count for x in lists[1:]):
        sizes = ", ".join(f"{len(x)} {key}" for key, x in zip(STATES, lists[1:], strict=True))
        got = f"{len(lists[0])} groups, {sizes}"
        wanted = f"{len(own_groups)} groups and {count} parameters"
        raise CheckpointError(explain(name, wanted, got))
    if not isinstance(state["calls"], Integral) or state["calls"] < 0:
        raise CheckpointError(explain(name, "a number of calls", repr(state["calls"])))
    groups = []
    for group, saved in zip(own_groups, state["groups"], strict=True):
        own = sorted(k for k, v in group.items() if k != "params" and not callable(v))
        named = isinstance(saved, dict) and set(own) <= set(saved) <= set(group) - {"params"}
        if not named:
            raise CheckpointError(explain(name, f"the settings {own}", repr(saved)))
        new = {**group, **{key: saved[key] for key in own}}
        try:
            check_settings(name, new)
        except TinygradSparseError as error:
            raise CheckpointError(str(error)) from error
        groups.append(new)
    return groups


def loaded_state(
    name: str, p: Tensor, rule: Rule, settings: dict[str, Any], one: dict[str, Any]
) -> State | None:
    """A State of what was saved for one parameter; None where it was never stepped."""
    steps = one["steps"]
    if not isinstance(steps, Integral) or steps < 0:
        raise CheckpointError(explain(name, f"a step count of {p.name}", repr(steps)))
    if not steps:
        if len(one["slots"]):
            raise CheckpointError(explain(name, f"no slots for {p.name}, step 0", "some"))
        return None
    rows, counts, lead = one["rows"], one["counts"], one["leads"]
    if not isinstance(lead, Integral) or not min(1, p.ndim) <= int(lead) <= p.ndim:
        raise CheckpointError(explain(name, f"rows of {p.name}'s first axes", repr(lead)))
    state = State(rule, p._array(), settings, sparse=rows is not None)
    state.refine(int(lead))
    size = len(state.flat) if rows is None else np.size(rows)
    wanted = [(state.wide, state.saved_shape(slot, size)) for slot in state.names]
    wanted += [] if rows is None else [(np.dtype(np.int64), (size,))]
    wanted += [] if counts is None else [(np.dtype(np.int32), (size,))]
    given = [*one["slots"]]
    given += [a for a in (rows, counts) if a is not None]
    arrays = [np.asarray(a) for a in given]
    if [(a.dtype, a.shape) for a in arrays] != wanted:
        shown = ", ".join(f"{a.dtype} {a.shape}" for a in arrays) or "none"
        expected = ", ".join(f"{dtype} {shape}" for dtype, shape in wanted) or "none"
        raise CheckpointError(explain(name, f"slots {expected} for {p.name}, step {steps}", shown))
    if rows is not None:
        ids = arrays[len(state.names)]
        if len(np.unique(ids)) < size or (
            size and not 0 <= ids.min() <= ids.max() < len(state.flat)
        ):
            raise CheckpointError(explain(name, f"rows of {p.name} {p.shape}, each once", f"{ids}"))
    state.load(int(steps), arrays, rows is not None, counts is not None, dict(one["memory"]))
    return state
