"""The one driver that applies any optimizer's formula to the rows a gradient touches. Floor 5."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinygrad_sparse.backend import adapter_of
from tinygrad_sparse.backward import GradStore
from tinygrad_sparse.errors import (
    CheckpointError,
    ShapeError,
    SparsityError,
    TapeError,
    explain,
)
from tinygrad_sparse.slices import is_sparse, parts_of
from tinygrad_sparse.tensor import Tensor


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
        given = list(params)
        grouped = bool(given) and isinstance(given[0], dict)
        name = type(self).__name__
        self._home: dict[int, tuple[Tensor, dict[str, Any]]] = {}
        for entry in given if grouped else [{"params": given}]:
            unknown = set(entry) - set(defaults) - {"params"}
            if unknown:
                raise TypeError(f"{name}: unknown settings {sorted(unknown)}")
            group = {**defaults, **entry, "params": list(entry["params"])}
            self.groups.append(group)
            for p in group["params"]:
                if type(p) is not Tensor or p._node >= 0:
                    raise TapeError(explain(name, "parameters made by ts.parameter", repr(p)))
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
            slots = [adapter_of(p._data).xp.zeros_like(p._data) for _ in self.rule.slots]
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
            self.rule.formula, rows, values, arrays[0], arrays[1:], hyper
        )
        return p, slots, count, write

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
        if set(state) != {"groups", "steps", "slots"}:
            raise CheckpointError(explain(name, "groups, steps and slots", f"{sorted(state)}"))
        if len(state["groups"]) != len(self.groups) or len(state["steps"]) != len(self._home):
            got = f"{len(state['groups'])} and {len(state['steps'])}"
            wanted = f"{len(self.groups)} groups and {len(self._home)} parameters"
            raise CheckpointError(explain(name, wanted, got))
        slots: dict[int, list[np.ndarray]] = {}
        for (id, (p, _)), given in zip(self._home.items(), state["slots"], strict=True):
            arrays = [np.array(s) for s in given]
            fits = len(arrays) in (0, len(self.rule.slots))
            if not fits or any(s.shape != p.shape or s.dtype != p.dtype for s in arrays):
                shapes = [(s.shape, str(s.dtype)) for s in arrays]
                raise CheckpointError(
                    explain(
                        name, f"{self.rule.slots} like {p.name} {p.dtype} {p.shape}", f"{shapes}"
                    )
                )
            if arrays:
                slots[id] = arrays
        for group, settings in zip(self.groups, state["groups"], strict=True):
            group.update(settings)
        self._slots = slots
        self._steps = {id: n for id, n in zip(self._home, state["steps"], strict=True) if n}
