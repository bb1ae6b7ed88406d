"""The one driver that applies any optimizer's formula to the rows a gradient touches. Floor 5."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tinygrad_sparse.backend import adapter_of, describe
from tinygrad_sparse.errors import (
    CheckpointError,
    DtypeError,
    ShapeError,
    SparsityError,
    TapeError,
    TinygradSparseError,
    explain,
)
from tinygrad_sparse.gradstore import GradStore
from tinygrad_sparse.slices import is_sparse, parts_of
from tinygrad_sparse.tensor import HABITS, Tensor, unwrap


class Rule(NamedTuple):
    """An optimizer's formula: ``formula(p, g, *slots, **hyper) -> (p, *slots)``, on rows."""

    formula: Callable[..., tuple[Any, ...]]
    slots: tuple[str, ...]
    still: bool  # a zero gradient moves nothing, so updating the touched rows alone is exact


def rule(*, slots: Sequence[str] = (), still: bool) -> Callable[[Callable[..., Any]], Rule]:
    """Declare a formula. `slots` names its state, one value an element, starting at zero.

    A formula whose hyper-parameters include `step` gets the parameter's step count, from 1.
    """
    return lambda formula: Rule(formula, tuple(slots), still)


class Optimizer:
    """Applies `rule` to the parameters that a GradStore has a gradient for, and to those alone.

    `params` is parameters, or dicts ``{"params": [...], "lr": ...}`` for groups with their own
    settings. `step` costs the touched rows: not the table, not the number of parameters.
    """

    def __init__(self, rule: Rule, params: Iterable[Any], **defaults: Any) -> None:
        self.rule = rule
        self.groups: list[dict[str, Any]] = []
        self._home: dict[int, tuple[Tensor, dict[str, Any]]] = {}
        name = type(self).__name__
        for entry in _as_groups(name, params):
            unknown = set(entry) - set(defaults) - {"params"}
            if unknown or "params" not in entry:
                what = f"unknown settings {sorted(unknown)}" if unknown else "no 'params'"
                raise TypeError(f"{name}: a group with {what}")
            own = entry["params"]
            group = {**defaults, **entry, "params": [own] if type(own) is Tensor else list(own)}
            _check_settings(name, group)
            self.groups.append(group)
            for p in group["params"]:
                if type(p) is not Tensor or p._node >= 0:
                    got = f"{p.name} {p.shape}" if type(p) is Tensor else type(p).__name__
                    raise TapeError(explain(name, "parameters made by ts.parameter", got))
                if p.id in self._home:
                    raise TapeError(explain(name, "each parameter once", f"{p.name} twice"))
                self._home[p.id] = (p, group)
        if not self._home:
            raise ShapeError(explain(name, "at least one parameter", "none"))
        self._slots: dict[int, list[np.ndarray]] = {}
        self._steps: dict[int, int] = {}

    @property
    def lr(self) -> float:
        """The learning rate of the first group; setting it sets it for all groups."""
        return self.groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self.groups:
            group["lr"] = value

    def step(self, grads: GradStore) -> None:
        """Update the parameters in `grads` that are this optimizer's; the others are left alone.

        Everything is computed before anything is written: an error leaves all as it was.
        """
        if type(grads) is not GradStore:
            got = type(grads).__name__
            raise TapeError(
                explain("step", "the GradStore that backward returned", got,
                        "opt.step(tape.backward(loss))")
            )  # fmt: skip
        updates = [
            self._plan(*self._home[id], grads.get_by_id(id))
            for id in grads.get_ids()
            if id in self._home
        ]
        for p, slots, count, write in updates:
            self._slots[p.id] = slots
            self._steps[p.id] = count
            write()
            p._version += 1

    def _plan(self, p: Tensor, group: dict[str, Any], g: Any) -> tuple[Any, ...]:
        if group.get("sparse") == "exact" and is_sparse(g) and not self.rule.still:
            raise SparsityError(
                explain(
                    f"{type(self).__name__}(sparse='exact')",
                    "a dense gradient",
                    f"a row-sparse one for {p.name} {p.shape}",
                    "sparse='lazy' moves the touched rows only; grads.to_dense() pays for all rows",
                )
            )
        slots = self._slots.get(p.id)
        if slots is None:
            xp, dtype = adapter_of(p._data).xp, _slot_dtype(p)
            slots = [xp.zeros_like(p._data, dtype=dtype) for _ in self.rule.slots]
        count = self._steps.get(p.id, 0) + 1
        hyper = {k: v for k, v in group.items() if k not in ("params", "sparse")}
        if "step" in hyper:
            hyper["step"] = count
        rows, values = parts_of(g)
        arrays = [p._data, *slots]
        if rows is not ... and g.lead > 1:  # the row axes as one: views, for these are contiguous
            lead = math.prod(p.shape[: g.lead])
            arrays = [a.reshape((lead, *a.shape[g.lead :])) for a in arrays]
        write = adapter_of(p._data).plan_update(
            self.rule.formula, rows, unwrap(values), arrays[0], arrays[1:], hyper
        )
        return p, slots, count, write

    def __getattr__(self, name: str) -> NoReturn:
        what = f": {HABITS[name]}." if name in HABITS else ""
        raise AttributeError(f"{type(self).__name__} has no .{name}{what}")

    # -- state -------------------------------------------------------------------------------

    def state_bytes(self) -> int:
        """Bytes of optimizer state held now."""
        return sum(s.nbytes for slots in self._slots.values() for s in slots)

    def state_dict(self) -> dict[str, Any]:
        """Settings, step counts and state, by the order in which parameters were given."""
        return {
            "groups": [{k: v for k, v in g.items() if k != "params"} for g in self.groups],
            "steps": [self._steps.get(id, 0) for id in self._home],
            "slots": [[s.copy() for s in self._slots.get(id, [])] for id in self._home],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`'s answer. Checks everything before it changes anything."""
        name = type(self).__name__
        if not isinstance(state, dict) or set(state) != {"groups", "steps", "slots"}:
            got = f"{sorted(state)}" if isinstance(state, dict) else type(state).__name__
            raise CheckpointError(explain(name, "groups, steps and slots", got))
        lists = [state[key] for key in ("groups", "steps", "slots")]
        lists += lists[2] if isinstance(lists[2], (list, tuple)) else []
        if not all(isinstance(given, (list, tuple)) for given in lists):
            raise CheckpointError(explain(name, "lists", f"{[type(x).__name__ for x in lists]}"))
        lengths = tuple(map(len, lists[:3]))
        if lengths != (len(self.groups), len(self._home), len(self._home)):
            got = f"{lengths[0]} groups, {lengths[1]} steps and {lengths[2]} slots"
            wanted = f"{len(self.groups)} groups and {len(self._home)} parameters"
            raise CheckpointError(explain(name, wanted, got))
        for group, settings in zip(self.groups, state["groups"], strict=True):
            names = sorted(set(group) - {"params"})
            if not isinstance(settings, dict) or sorted(settings) != names:
                raise CheckpointError(explain(name, f"the settings {names}", f"{settings}"))
            try:
                _check_settings(name, settings)
            except TinygradSparseError as error:
                raise CheckpointError(str(error)) from error
        steps: dict[int, int] = {}
        slots: dict[int, list[np.ndarray]] = {}
        for (p, _), step, given in zip(
            self._home.values(), state["steps"], state["slots"], strict=True
        ):
            if not isinstance(step, Integral) or step < 0:
                raise CheckpointError(explain(name, f"a step count of {p.name}", repr(step)))
            arrays = [np.array(s) for s in given]
            count, dtype = len(self.rule.slots) if step else 0, _slot_dtype(p)
            if len(arrays) != count or any(s.shape != p.shape or s.dtype != dtype for s in arrays):
                got = ", ".join(map(describe, arrays)) or "none"
                raise CheckpointError(
                    explain(name, f"{count} slots {dtype} {p.shape} for {p.name}, step {step}", got)
                )
            if step:
                steps[p.id], slots[p.id] = int(step), arrays
        for group, settings in zip(self.groups, state["groups"], strict=True):
            group.update(settings)
        self._steps, self._slots = steps, slots


def _as_groups(name: str, params: Any) -> list[dict[str, Any]]:
    """What was given as a list of groups."""
    if type(params) is Tensor or not isinstance(params, Iterable):
        got = f"{params.name} {params.shape}" if type(params) is Tensor else type(params).__name__
        hint = "[W] for one parameter, model.parameters() for a Module"
        raise TapeError(explain(name, "a list of parameters, or of groups", got, hint))
    given = list(params)
    groups = [entry for entry in given if isinstance(entry, dict)]
    if groups and len(groups) < len(given):
        raise TapeError(explain(name, "parameters or groups", "a list of both"))
    return groups or [{"params": given}]


def _check_settings(name: str, settings: dict[str, Any]) -> None:
    for key, value in settings.items():
        if key == "sparse":
            if value not in ("exact", "lazy"):
                raise SparsityError(explain(name, "sparse='exact' or 'lazy'", repr(value)))
        elif key != "params" and not isinstance(value, Real):
            raise DtypeError(explain(name, f"a number for {key}", repr(value)))


def _slot_dtype(p: Tensor) -> np.dtype:
    """float16 parameters keep float32 state: sums of squares would overflow, or round to 0."""
    return np.promote_types(p.dtype, np.float32)
