"""The one driver that applies any optimizer's formula to the rows a gradient touches. Floor 5."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tinygrad_sparse.errors import (
    ShapeError,
    SparsityError,
    TapeError,
    TinygradSparseError,
    explain,
)
from tinygrad_sparse.gradstore import GradStore
from tinygrad_sparse.slices import finer, is_sparse, parts_of, touched
from tinygrad_sparse.tensor import HABITS, Tensor, moving_rows, pending_of, unwrap

from .rule import Rule
from .saving import (
    STATES,
    check_settings,
    checked_groups,
    loaded_state,
    saved_groups,
    saved_states,
)
from .state import State, names_of, refuse_rows

COMMON = {"sparse": "exact", "maximize": False, "master": False, "count": "all", "average": 0.0}


class _Update(NamedTuple):
    """All that a step will write for one parameter."""

    p: Tensor
    state: State
    rows: Any
    places: Any
    new: list[Any]  # empty where the formula is applied in place
    write: Callable[[], None]
    carry: Any  # the step as History wants it, under the exact meaning
    counts: Any
    memory: Any


class Optimizer:
    """Applies a rule to the parameters that a GradStore has a gradient for, and to those alone.

    `params` is parameters, or dicts ``{"params": [...], "lr": ...}`` for groups with settings of
    their own. `rule` is a Rule, or a function that picks one by a group's settings. A setting may
    be a function of the number of the step, from 1: a schedule.

    ``sparse="exact"``, the default, means what the rule means on dense gradients; rows that rest
    are caught up when they are read. ``sparse="lazy"`` moves the touched rows only. Either way
    `step` costs the touched rows: not the table, not the number of parameters.

    ``maximize=True`` goes uphill. ``master=True`` keeps a float32 copy of float16 parameters and
    rounds only what is read. ``count="row"`` (lazy only) gives each row its own step count, for
    bias corrections.

    ``average=0.999`` also keeps an exponential moving average of the parameters, 0.999a + 0.001p
    after each step; of all rows, at the cost of the touched ones: see `averages`.
    """

    def __init__(
        self,
        rule: Rule | Callable[[dict[str, Any]], Rule],
        params: Iterable[Any],
        **defaults: Any,
    ) -> None:
        self._choose: Callable[[dict[str, Any]], Rule]
        self._choose = (lambda settings: rule) if isinstance(rule, Rule) else rule
        self._defaults = {**COMMON, **defaults}
        self.groups: list[dict[str, Any]] = []
        self._home: dict[int, tuple[Tensor, dict[str, Any]]] = {}
        self._states: dict[int, State] = {}
        self._arrays: set[int] = set()  # ids of the parameters' arrays
        self.calls = 0  # steps taken: what schedules go by
        for entry in _as_groups(type(self).__name__, params):
            self.add_group(entry)
        if not self._home:
            raise ShapeError(explain(type(self).__name__, "at least one parameter", "none"))
        self.rule = self._choose(self.groups[0])

    def __repr__(self) -> str:
        groups = []
        for group in self.groups:
            settings = ", ".join(f"{k}={v!r}" for k, v in group.items() if k != "params")
            groups.append(f"{len(group['params'])} parameters, {settings}")
        return f"{type(self).__name__}({'; '.join(groups)})"

    def add_group(self, entry: dict[str, Any]) -> None:
        """More parameters, with settings of their own where `entry` has them."""
        name = type(self).__name__
        entry = self._translated(entry)
        unknown = set(entry) - set(self._defaults) - {"params"}
        if unknown or "params" not in entry:
            what = f"unknown settings {sorted(unknown)}" if unknown else "no 'params'"
            raise TypeError(f"{name}: a group with {what}")
        params = entry["params"]
        group = {**self._defaults, **entry}
        group["params"] = [params] if type(params) is Tensor else list(params)
        check_settings(name, group)
        for p in group["params"]:
            if type(p) is not Tensor or p._node >= 0:
                got = f"{p.name} {p.shape}" if type(p) is Tensor else type(p).__name__
                raise TapeError(explain(name, "parameters made by ts.parameter", got))
        ids = [p.id for p in group["params"]]
        for p in group["params"]:
            if p.id in self._home or ids.count(p.id) > 1:
                raise TapeError(explain(name, "each parameter once", f"{p.name} twice"))
        self.groups.append(group)
        self._home.update({p.id: (p, group) for p in group["params"]})
        self._arrays.update(id(p._array()) for p in group["params"])

    def _translated(self, entry: dict[str, Any]) -> dict[str, Any]:
        """A group's settings under the names that formulas use."""
        entry = dict(entry)
        if "betas" in entry and "beta1" in self._defaults:
            entry["beta1"], entry["beta2"] = entry.pop("betas")
        return entry

    @property
    def lr(self) -> Any:
        """The learning rate of the first group; setting it sets it for all groups."""
        return self.groups[0]["lr"]

    @lr.setter
    def lr(self, value: Any) -> None:
        for group in self.groups:
            group["lr"] = value

    # -- stepping ----------------------------------------------------------------------------

    def step(self, grads: GradStore, *, error_if_nonfinite: bool = False) -> None:
        """Update the parameters in `grads` that are this optimizer's; the others are left alone.

        Everything is computed before anything is written: an error leaves all as it was. With
        `error_if_nonfinite`, so does a step that would write an infinity or a NaN. Threads that
        step take turns, whatever optimizers and parameters they have.
        """
        if type(grads) is not GradStore:
            got = type(grads).__name__
            raise TapeError(
                explain("step", "the GradStore that backward returned", got,
                        "opt.step(tape.backward(loss))")
            )  # fmt: skip
        with moving_rows:
            updates = [
                self._plan(*self._home[id], grads.get_by_id(id), error_if_nonfinite)
                for id in grads.get_ids()
                if id in self._home
            ]
            if error_if_nonfinite:
                for update in updates:
                    self._refuse_nonfinite(update)
            self.calls += 1
            for update in updates:
                self._commit(update)

    def _plan(self, p: Tensor, group: dict[str, Any], g: Any, look: bool = False) -> _Update:
        """What a step would write. What it does do, settling rows, changes no value."""
        settings = self._settings(group)
        sparse = is_sparse(g)
        state = self._state(p, settings, sparse)
        rule = state.rule
        exact = settings["sparse"] == "exact" and not rule.still
        if exact and sparse and rule.rest is None:
            raise refuse_rows(type(self).__name__, rule, p)
        if sparse:
            if g.lead > state.lead:
                state.settle(...)
                state.refine(g.lead)
            g = finer(g, state.lead)
        # Where nobody looks at the new rows, repeats are summed where they are applied.
        in_place = state.in_place() and not look and settings["count"] != "row"
        rows, values = parts_of(g) if in_place else touched(g)
        values = unwrap(values)
        if in_place and id(_owner(values)) in self._arrays:
            values = values.copy()  # a gradient that is some parameter's values, which will change
        if rows is ...:
            values = values.reshape(state.flat.shape)
        if settings["maximize"]:
            values = -values
        step: Any = state.steps + 1
        hyper, memory = rule.hyper(settings, step, state.memory)
        carry = None
        resting = sparse and (exact or state.averaged)
        if state.history is not None and not (resting and state.exact == exact):
            self._let_none_rest(p, state)
        if resting:
            carry = self._carry(p, state, hyper, exact, settings["average"])
        self._settle_others(p, state, rows)
        if rows is ...:
            state.grow_full()
        elif resting:
            state.settle_flat(rows)
        places = state.places(rows)
        counts = None
        if settings["count"] == "row":
            counts = self._counts(state, places) + 1
            shape = (len(counts), *(1,) * (values.ndim - 1))
            if "step" in hyper:
                hyper["step"] = counts.reshape(shape).astype(np.float64)
        if p._version != state.version and settings["master"]:
            state.read_again()
        new: list[Any] = []
        if in_place:
            write = state.plan(places, rows, values, hyper)
        else:
            new = state.new_rows(places, rows, values, hyper, settings["average"])
            self._check_shapes(state, values, new)
            write = partial(state.write, places, rows, new)
        return _Update(p, state, rows, places, new, write, carry, counts, memory)

    def _state(self, p: Tensor, settings: dict[str, Any], sparse: bool) -> State:
        rule = self._choose(settings)
        state = self._states.get(p.id)
        if state is None:
            state = State(rule, p._array(), settings, sparse)
            state.version = p._version
            return state
        if state.rule is not rule or state.names != names_of(rule, settings):
            self._let_none_rest(p, state)
            state = state.under(rule, settings)
            self._states[p.id] = state
        return state

    def _settings(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group's settings at the coming step: schedules asked, names of slots decided."""
        settings = {
            k: v(self.calls + 1) if callable(v) else v for k, v in group.items() if k != "params"
        }
        return {**settings, "averaged": bool(group["average"])}

    def _carry(
        self, p: Tensor, state: State, hyper: dict[str, Any], exact: bool, average: float
    ) -> Any:
        """This step as a step at rest, for the rows that it will leave behind."""
        fresh = state.history is None
        state.remember(exact)
        history = state.history
        assert history is not None
        with np.errstate(all="ignore"):
            carry, kept = history.rest.one(hyper, average)
        if np.isnan(carry).any():
            if fresh:
                state.forget()
            raise SparsityError(
                explain(
                    f"{type(self).__name__}(sparse='exact')",
                    "settings under which a zero gradient moves a row by a finite amount",
                    f"{hyper} for {p.name} {p.shape}",
                    "eps > 0 and beta2 > 0",
                )
            )
        state.expect(carry)
        if state.outgrown():
            state.restart()
        return carry, kept

    @staticmethod
    def _let_none_rest(p: Tensor, state: State) -> None:
        if state.history is not None:
            if pending_of(p) is state:
                p._data  # noqa: B018  reading settles
            state.settle(...)
            state.forget()

    @staticmethod
    def _settle_others(p: Tensor, state: State, rows: Any) -> None:
        """Rows that another optimizer left behind take its missed steps first."""
        other = pending_of(p)
        if other is None or other is state:
            return
        if rows is ... or state.moving or state.lead != 1:
            p._data  # noqa: B018
        else:
            other.settle(rows)

    @staticmethod
    def _counts(state: State, places: Any) -> Any:
        if state.counts is None:
            size = len(state.flat) if state.index is None else len(state.ids)
            state.counts = state.xp.full(size, 0, np.int32)
            state.counts[: state.taken()] = state.steps
        return state.counts[places]

    def _check_shapes(self, state: State, g: Any, new: list[Any]) -> None:
        """A formula of one's own may give too little: said before anything is written."""
        name = state.rule.formula.__name__
        wanted = 1 + len(state.slots)
        row = state.flat.shape[1:]
        shapes = [(len(g), *row)]
        shapes += [(len(g), *state._row(slot)) for slot in state.names]
        got = [np.shape(a) for a in new]
        if got != shapes:
            raise ShapeError(explain(name, f"{wanted} results, {shapes}", f"{got}"))

    def _refuse_nonfinite(self, update: _Update) -> None:
        for name, values in zip(("p", *update.state.names), update.new, strict=True):
            finite = update.state.xp.isfinite(values.astype(update.state.wide, copy=False))
            if not finite.all():
                where = "" if update.rows is ... else " in the rows touched"
                raise TinygradSparseError(
                    explain(
                        "step", "finite values",
                        f"{int((~finite).sum())} others in the new {name} of {update.p.name} "
                        f"{update.p.shape}{where}",
                        "nothing was changed; skip this step, or look for the cause",
                    )
                )  # fmt: skip

    def _commit(self, update: _Update) -> None:
        p, state = update.p, update.state
        update.write()
        state.steps += 1
        state.memory = update.memory
        if update.counts is not None:
            assert state.counts is not None
            state.counts[update.places] = update.counts
        if update.carry is not None:
            assert state.history is not None and state.stamps is not None
            state.history.push(*update.carry)
            state.stamps[update.places] = state.steps
            if state.moving:
                p._leave(state)
        self._states[p.id] = state
        p._version += 1
        state.version = p._version

    def __getattr__(self, name: str) -> NoReturn:
        what = f": {HABITS[name]}." if name in HABITS else ""
        raise AttributeError(f"{type(self).__name__} has no .{name}{what}")

    def flush(self) -> None:
        """Bring every row of every parameter up to date now."""
        with moving_rows:
            for id, state in self._states.items():
                p = self._home[id][0]
                if pending_of(p) is state:
                    p._data  # noqa: B018
                state.settle(...)

    def averages(self, p: Tensor) -> np.ndarray:
        """The moving average of a parameter of this optimizer, under ``average=``.

        >>> import tinygrad_sparse as ts
        >>> W = ts.parameter(np.zeros(3))
        >>> opt = ts.optim.SGD([W], lr=1.0, average=0.5)
        >>> for ids in ([0], [1], [1]):
        ...     with ts.Tape() as tape:
        ...         loss = W[ids].sum()
        ...     opt.step(tape.backward(loss))
        >>> W.data, opt.averages(W)
        (array([-1., -2.,  0.]), array([-0.875, -1.25 ,  0.   ]))
        """
        if p.id not in self._home:
            raise TapeError(explain("averages", "a parameter of this optimizer", p.name))
        with moving_rows:
            self.flush()
            state = self._states.get(p.id)
            return p.numpy() if state is None else np.array(state.average())

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """``with opt.averaged():`` parameters have their averages as values; then their own."""
        means = {id: self.averages(p) for id, (p, _) in self._home.items()}
        own = {id: p.numpy() for id, (p, _) in self._home.items()}
        synced = [i for i, s in self._states.items() if s.version == self._home[i][0]._version]
        try:
            for id, (p, _) in self._home.items():
                p._overwrite(means[id])
            yield
        finally:
            for id, (p, _) in self._home.items():
                p._overwrite(own[id])
            for id in synced:
                self._states[id].version = self._home[id][0]._version

    # -- state -------------------------------------------------------------------------------

    def state_bytes(self) -> int:
        """Bytes of optimizer state held now: slots, stamps and histories."""
        return sum(state.nbytes for state in self._states.values())

    def state_dict(self) -> dict[str, Any]:
        """Settings, step counts and state, by the order in which parameters were given.

        Brings all rows up to date first, so that parameters saved before or after agree with it.
        Where `rows` has ids, the slots hold those rows only. Schedules are saved as `calls`, the
        number of steps they have seen.
        """
        with moving_rows:
            self.flush()
            return {
                "groups": saved_groups(self.groups),
                "calls": self.calls,
                **saved_states([self._states.get(id) for id in self._home]),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`'s answer, bit for bit. Checks everything before any change."""
        name = type(self).__name__
        groups = checked_groups(name, state, self.groups, len(self._home))
        states = {}
        for i, (id, (p, old)) in enumerate(self._home.items()):
            group = next(new for new, own in zip(groups, self.groups, strict=True) if own is old)
            settings = self._settings(group)
            one = {key: state[key][i] for key in STATES}
            loaded = loaded_state(name, p, self._choose(settings), settings, one)
            if loaded is not None:
                states[id] = loaded
        with moving_rows:
            self.flush()  # what the old state still owes
            for group, new in zip(self.groups, groups, strict=True):
                group.update(new)
            self._states, self.calls = states, int(state["calls"])
            for id, loaded in states.items():
                loaded.version = self._home[id][0]._version


def _owner(x: Any) -> Any:
    """The array whose memory a view shows."""
    while getattr(x, "base", None) is not None:
        x = x.base
    return x


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
