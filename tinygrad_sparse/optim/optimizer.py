"""The one driver that applies any optimizer's formula to the rows a gradient touches. Floor 5."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, ClassVar, NoReturn

from tinygrad_sparse.backend import Array, adapter_of
from tinygrad_sparse.errors import (
    ArgumentError,
    DeviceError,
    ShapeError,
    TapeError,
    explain,
)
from tinygrad_sparse.gradstore import GradStore
from tinygrad_sparse.slices import is_sparse
from tinygrad_sparse.tape import user_line
from tinygrad_sparse.tensor import HABITS, LOST, Tensor, moving_rows, pending_of, unwatch, watch

from .clip import RowCap
from .proof import try_formula
from .rule import Rule
from .savepoint import keep, put_back
from .saving import STATES, checked_groups, loaded_state, saved_groups, saved_states
from .schedules import Stateful
from .settings import (
    COMMON,
    RANGES,
    Range,
    Settings,
    check_given,
    check_names,
    checked,
    names_known,
    translated,
)
from .slots import names_of
from .state import State
from .step import commit, let_none_rest, plan_step, refuse_nonfinite, settle_others

# What people who come from other libraries reach for on an optimizer, and what to write here.
OWN_HABITS = {
    "param_groups": "write opt.groups",
    "add_param_group": "write opt.add_group({'params': ..., ...})",
    "learning_rate": "write opt.lr",
    "state": "write opt.state_dict()",
    "defaults": "write opt.groups[0]",
    "get_last_lr": "write opt.lr, or opt.lr(opt.calls) if it is a schedule",
    "minimize": "write opt.step(tape.backward(loss))",
    "apply_gradients": "write opt.step(grads)",
    "update": "write opt.step(grads)",
}

REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # *args, **kwargs

COPY = "copy.deepcopy((model, opt)) copies both; opt.state_dict() is the state alone"


class _Shown:
    """While averages stand in a parameter's place, what anybody else sets there would be lost."""

    def __init__(self, name: str, what: str) -> None:
        self.name, self.what = name, what

    def before_change(self, rows: Any) -> None:
        got = f"a change of {self.what}, which would be undone at its end"
        hint = "step after the block"
        raise TapeError(explain("averaged", f"{self.name}'s block to read only", got, hint))


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

    ``copy.deepcopy((model, opt))`` gives an optimizer of the copied parameters, in that order,
    since it has to find them; of the optimizer alone it is refused.

    ``average=0.999`` also keeps an exponential moving average of the parameters, 0.999a + 0.001p
    after each step; of all rows, at the cost of the touched ones: see `averages`.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W, b = ts.parameter(np.ones((4, 1))), ts.parameter(np.zeros(1))
    >>> groups = [{"params": [W], "sparse": "lazy"}, {"params": [b], "lr": 0.01}]
    >>> opt = ts.optim.Adam(groups, lr=0.1)
    >>> with ts.Tape() as tape:
    ...     loss = (W[[1, 3]] * 2.0 + b).sum()
    >>> opt.step(tape.backward(loss))
    >>> W.data.ravel(), b.data
    (array([1. , 0.9, 1. , 0.9]), array([-0.01]))
    """

    ranges: ClassVar[Mapping[str, Range]] = RANGES

    def __init__(
        self,
        rule: Rule | Callable[[dict[str, Any]], Rule],
        params: Iterable[Any],
        **defaults: Any,
    ) -> None:
        self._choose: Callable[[dict[str, Any]], Rule]
        self._choose = _chooser(type(self).__name__, rule)
        own = rule.defaults if isinstance(rule, Rule) else {}
        self._defaults = {**COMMON, **own, **translated(type(self).__name__, defaults)}
        self._check_names(isinstance(rule, Rule))
        self._settings: list[Settings] = []  # of the groups
        self._home: dict[int, tuple[Tensor, Settings]] = {}
        self._states: dict[int, State] = {}
        self._arrays: set[int] = set()  # ids of the parameters' arrays
        self.calls = 0  # steps taken: what schedules go by
        for entry in _as_groups(type(self).__name__, params):
            self.add_group(entry)
        if not self._home:
            raise ShapeError(explain(type(self).__name__, "at least one parameter", "none"))

    def __repr__(self) -> str:
        groups = []
        for group in self.groups:
            settings = ", ".join(f"{k}={v!r}" for k, v in group.items() if k != "params")
            groups.append(f"{len(group['params'])} parameters, {settings}")
        return f"{type(self).__name__}({'; '.join(groups)})"

    def add_group(self, entry: dict[str, Any]) -> None:
        """More parameters, with settings of their own where `entry` has them."""
        name = type(self).__name__
        entry = translated(name, entry)
        check_names(name, entry, self._defaults)
        if "params" not in entry:
            raise ArgumentError(explain(name, "a group with 'params'", f"{sorted(entry)}"))
        params = entry["params"]
        group = {**self._defaults, **entry}
        group["params"] = [params] if type(params) is Tensor else list(params)
        Settings(name, group, self.ranges).check(group)
        for p in group["params"]:
            if type(p) is not Tensor or p._node >= 0:
                got = f"{p.name} {p.shape}" if type(p) is Tensor else type(p).__name__
                hint = LOST if type(p) is Tensor else None
                raise TapeError(explain(name, "parameters made by ts.parameter", got, hint))
        ids = [p.id for p in group["params"]]
        for p in group["params"]:
            if p.id in self._home or ids.count(p.id) > 1:
                raise TapeError(explain(name, "each parameter once", f"{p.name} twice"))
        self._add(group)

    def _add(self, group: dict[str, Any]) -> None:
        settings = Settings(type(self).__name__, group, self.ranges)
        self._settings.append(settings)
        self._home.update({p.id: (p, settings) for p in group["params"]})
        self._arrays.update(id(p._array()) for p in group["params"])

    def _check_names(self, alone: bool) -> None:
        first = self._choose(self._defaults)
        if not isinstance(first, Rule):
            wanted = "a Rule, picked by a function of a group's settings"
            raise ArgumentError(explain(type(self).__name__, wanted, repr(first)))
        own = [vars(c)["__init__"] for c in type(self).__mro__[:-1] if "__init__" in vars(c)]
        own.remove(Optimizer.__init__)
        known = names_known(own, first, alone)
        if known is not None:
            check_names(type(self).__name__, self._defaults, known)
        check_given(type(self).__name__, self._defaults, first)

    @property
    def groups(self) -> tuple[dict[str, Any], ...]:
        """The groups: each a dict of its settings, to write to, and of its ``"params"``."""
        return tuple([settings.group for settings in self._settings])

    @property
    def rule(self) -> Rule:
        """The rule of the first group, under the settings that it has now."""
        return self._choose(self.groups[0])

    @property
    def lr(self) -> Any:
        """The learning rate of the first group; setting it sets it for all groups."""
        if "lr" not in self._defaults:
            self.__getattr__("lr")
        return self.groups[0]["lr"]

    @lr.setter
    def lr(self, value: Any) -> None:
        if "lr" not in self._defaults:
            self.__getattr__("lr")
        if not callable(value):
            checked(type(self).__name__, "lr", value, self.ranges)
        for group in self.groups:
            group["lr"] = value

    # -- stepping ----------------------------------------------------------------------------

    def step(
        self,
        grads: GradStore = None,  # type: ignore[assignment]  # said by an error of ours
        *,
        clip_rows: float | None = None,
        error_if_nonfinite: bool = False,
    ) -> None:
        """Update the parameters in `grads` that are this optimizer's; the others are left alone.

        Where none is and none ever was, a warning says so.

        ``clip_rows=c`` steps by ``clip_grad_rows(grads, c)``, whose rows are then never stored.
        Everything is computed before anything is written: an error leaves all as it was. With
        `error_if_nonfinite`, so does a step that would write an infinity or a NaN. Threads that
        step take turns, whatever optimizers and parameters they have.
        """
        if type(grads) is not GradStore:
            got = "nothing" if grads is None else type(grads).__name__
            raise TapeError(
                explain("step", "the GradStore that backward returned", got,
                        "opt.step(tape.backward(loss))")
            )  # fmt: skip
        cap = None if clip_rows is None else RowCap(clip_rows, "clip_rows")
        with moving_rows:
            ours = [id for id in grads.get_ids() if id in self._home]
            if not ours and len(grads) and not self._states:
                self._warn_of_others(grads)
            asked = {settings: None for _, settings in (self._home[id] for id in ours)}
            now = {settings: settings.at(self.calls + 1) for settings in asked}
            updates = []
            for id in ours:
                p, settings = self._home[id]
                g, name = grads.get_by_id(id), type(self).__name__
                state = self._state(p, now[settings], is_sparse(g))
                updates.append(
                    plan_step(
                        name, p, state, now[settings], g, self._arrays, error_if_nonfinite, cap
                    )
                )
            if error_if_nonfinite:
                for update in updates:
                    refuse_nonfinite(update)
            self.calls += 1
            for update in updates:
                commit(update)
                self._states[update.p.id] = update.state

    def _warn_of_others(self, grads: GradStore) -> None:
        """A batch may use none of what this optimizer has; before any did, it is a likely fault."""
        mine, theirs = (
            ", ".join(f"{p.name} {p.shape}" for p in some[:3]) + (", ..." if len(some) > 3 else "")
            for some in ([p for p, _ in self._home.values()], list(grads))
        )
        hint = "a copy or another model's parameters are others; `W = W - ...` makes a constant"
        text = explain("step", f"gradients of {type(self).__name__}'s {mine}", theirs, hint)
        warnings.warn_explicit(text, UserWarning, *user_line(2))

    def _state(self, p: Tensor, settings: dict[str, Any], sparse: bool) -> State:
        state, array = self._states.get(p.id), p._array()
        below = None
        if settings["averaged"] or settings["master"]:  # which are copies of p
            below = settle_others(p, state)
        if state is not None and state.settings is settings and state.array is array:
            return state
        rule = self._choose(settings)
        try_formula(rule, settings)
        if state is None:
            state = State(rule, array, settings, sparse, below)
            state.version = p._version
            self._arrays.add(id(array))
            return state
        if state.array is not array:
            got = f"{p.name} {p.shape}, moved to {p.device!r} since"
            hint = "make the optimizer anew, and load_state_dict what the old one's state_dict gave"
            raise DeviceError(explain(type(self).__name__, "parameters where they were", got, hint))
        if state.rule is not rule or state.names != names_of(rule, settings):
            let_none_rest(p, state)
            if below is not None:
                state.below = below
            state = state.under(rule, settings)
        state.settings, state.proven = settings, False
        return state

    def __getattr__(self, name: str) -> NoReturn:
        hint = {**HABITS, **OWN_HABITS}.get(name)
        if name in self.__dict__.get("_defaults", ()):
            hint = f"write opt.groups[0][{name!r}]"
        if name == "lr":
            hint = f"its settings are {sorted(set(self._defaults) - set(COMMON))}, in opt.groups[0]"
        raise AttributeError(f"{type(self).__name__} has no .{name}{f': {hint}' if hint else ''}.")

    def __setattr__(self, name: str, value: Any) -> None:
        setting = name in self.__dict__.get("_defaults", ()) and name != "lr"
        if setting or name in ("learning_rate", "param_groups"):
            self.__getattr__(name)  # it would change nothing
        if name == "groups":
            hint = "opt.groups[i][name] = value sets a setting, opt.add_group(...) adds parameters"
            raise AttributeError(f"{type(self).__name__}.groups stays what it is: {hint}.")
        super().__setattr__(name, value)

    def __copy__(self) -> NoReturn:
        got = "copy.copy, after which two would step one state"
        raise TypeError(explain(type(self).__name__, "copies that share nothing", got, COPY))

    def __deepcopy__(self, memo: dict[int, Any]) -> Optimizer:
        name = type(self).__name__
        for p, _ in self._home.values():
            if id(p) not in memo:
                got = f"{p.name} {p.shape}, which was not copied before"
                raise TapeError(explain(f"deepcopy of {name}", "copied parameters", got, COPY))
        with moving_rows:
            self._begin_anew()
            new: Optimizer = object.__new__(type(self))
            memo[id(self)] = new
            new.__dict__.update(_choose=self._choose, _settings=[])
            new.__dict__.update(_home={}, _states={}, _arrays=set())
            for key, value in self.__dict__.items():
                if key not in new.__dict__:
                    new.__dict__[key] = deepcopy(value, memo)
            for group in self.groups:
                new._add({k: deepcopy(v, memo) for k, v in group.items()})
            for i, state in self._states.items():
                p = self._home[i][0]
                q = memo[id(p)]
                copied = new._states[q.id] = state.copied(q._array())
                copied.version = q._version if state.version == p._version else -1
                if state.averaged:
                    watch(q, copied)
        return new

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__}: pickle is not supported; save .state_dict()")

    @contextmanager
    def savepoint(self, rows: Mapping[Tensor, Any] | None = None) -> Iterator[None]:
        """``with opt.savepoint({W: ids}):`` a block that raises is as if it had taken no step.

        Kept are the rows `ids` of W, of its optimizer state too, and all of each parameter that
        is not named: name those that steps touch few rows of, or none (``[]``). Other rows of W
        keep what steps did to them, but what the optimizer has for those that were new to it may be
        forgotten. Settings are the caller's. Raises TapeError for what is no parameter of this
        optimizer, RowIndexError, ShapeError for rows of a parameter without axes, and SparsityError
        for rows under an exact rule that moves rows at rest.

        >>> import numpy as np, tinygrad_sparse as ts
        >>> W = ts.parameter(np.ones((1_000_000, 1)))
        >>> opt = ts.optim.Adam([W], lr=0.1, sparse="lazy")
        >>> try:
        ...     with opt.savepoint({W: [3]}):
        ...         with ts.Tape() as tape:
        ...             loss = W[[3, 3]].sum()
        ...         opt.step(tape.backward(loss))
        ...         raise KeyboardInterrupt
        ... except KeyboardInterrupt:
        ...     print(W.data[3], opt.calls)
        [1.] 0
        """
        with moving_rows:
            kept, calls = keep(self, {} if rows is None else rows), self.calls
        try:
            yield
        except BaseException:
            with moving_rows:
                put_back(self, kept)
                self.calls = calls
            raise

    def flush(self) -> None:
        """Bring every row of every parameter up to date now."""
        with moving_rows:
            for id, state in self._states.items():
                p = self._home[id][0]
                if pending_of(p) is state:
                    p._come_to_rest(state)
                state.settle(...)

    def _begin_anew(self) -> None:
        """All rows up to date, and histories as of one who goes on from here: with the same sums
        of the same steps, and so to the bit as this optimizer does.
        """
        self.flush()
        for state in self._states.values():
            if state.history is not None:
                state.restart()

    def averages(self, p: Tensor) -> Array:
        """The moving average of a parameter of this optimizer, under ``average=``, where p is.

        >>> import numpy as np, tinygrad_sparse as ts
        >>> W = ts.parameter(np.zeros(3))
        >>> opt = ts.optim.SGD([W], lr=1.0, average=0.5)
        >>> for ids in ([0], [1], [1]):
        ...     with ts.Tape() as tape:
        ...         loss = W[ids].sum()
        ...     opt.step(tape.backward(loss))
        >>> W.data, opt.averages(W)
        (array([-1., -2.,  0.]), array([-0.875, -1.25 ,  0.   ]))
        """
        if type(p) is not Tensor or p.id not in self._home:
            got = p.name if type(p) is Tensor else type(p).__name__
            raise TapeError(explain("averages", "a parameter of this optimizer", got))
        self._check_averaged("averages", [p])
        return self._average(p)

    def _average(self, p: Tensor) -> Array:
        with moving_rows:
            self.flush()
            state, values = self._states.get(p.id), p._data  # reading settles what others left
            return adapter_of(values).copy(values if state is None else state.average())

    def _check_averaged(self, op: str, params: Iterable[Tensor]) -> None:
        """Raises where none of these has an average; a rate of 0 by a schedule is one."""
        groups = [self._home[p.id][1].group for p in params]
        if not any(group["average"] for group in groups):
            got = "average=0.0, which keeps none"
            hint = f"{type(self).__name__}(..., average=0.999)"
            raise ArgumentError(explain(op, "a group with an average", got, hint))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """``with opt.averaged():`` parameters have their averages as values; then their own.

        Within, whoever steps or sets them raises TapeError: it would be undone.
        """
        self._check_averaged("averaged", [p for p, _ in self._home.values()])
        means = {id: self._average(p) for id, (p, _) in self._home.items()}
        own = {id: adapter_of(p._data).copy(p._data) for id, (p, _) in self._home.items()}
        synced = [i for i, s in self._states.items() if s.version == self._home[i][0]._version]
        name = type(self).__name__
        shown = [_Shown(name, f"{p.name} {p.shape}") for p, _ in self._home.values()]
        with moving_rows:
            for p, _ in self._home.values():
                if any(type(one) is _Shown for one in p._watchers or ()):
                    raise TapeError(explain("averaged", "one such block at a time", "another"))
        try:
            for one, (id, (p, _)) in zip(shown, self._home.items(), strict=True):
                p._put(means[id])
                watch(p, one)
            yield
        finally:
            for one, (id, (p, _)) in zip(shown, self._home.items(), strict=True):
                unwatch(p, one)
                p._put(own[id])
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
        number of steps they have seen, and by their state if they have one, as a Plateau has.
        """
        with moving_rows:
            self._begin_anew()
            return {
                "groups": saved_groups(self.groups),
                "calls": self.calls,
                **saved_states(self._coming()),
            }

    def _coming(self) -> Iterator[tuple[State | None, dict[str, Any]]]:
        """Each parameter's state as the settings of the last step have it, and these."""
        # A schedule need not know of a step that may never come.
        coming = {settings: settings.at(max(1, self.calls)) for settings in self._settings}
        for id, (p, own) in self._home.items():
            state, settings = self._states.get(id), coming[own]
            if state is not None:
                rule = self._choose(settings)
                if state.rule is not rule or state.names != names_of(rule, settings):
                    state.below = settle_others(p, state)  # copies of p start as its rows will
                    state = state.under(rule, settings)
            yield state, settings

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`'s answer, bit for bit. Checks everything before any change."""
        name = type(self).__name__
        groups = checked_groups(name, state, self._settings, len(self._home))
        calls = int(state["calls"])
        at = max(1, calls)
        coming = {own: new.at(at) for own, new in zip(self._settings, groups, strict=True)}
        states = {}
        for i, (id, (p, own)) in enumerate(self._home.items()):
            settings = coming[own]
            one = {key: state[key][i] for key in STATES}
            loaded = loaded_state(name, p, self._choose(settings), settings, one)
            if loaded is not None:
                states[id] = loaded
        with moving_rows:
            self.flush()  # what the old state still owes
            for group, new in zip(self.groups, groups, strict=True):
                for key, value in new.group.items():
                    own = group[key]
                    if isinstance(own, Stateful):  # whoever updates it holds this very object
                        own.load_state_dict(value.state_dict())
                    elif key != "params":
                        group[key] = value
            self._states, self.calls = states, calls
            for id, loaded in states.items():
                p = self._home[id][0]
                loaded.version, loaded.below = p._version, p._lasting()


def _chooser(name: str, rule: Any) -> Callable[[dict[str, Any]], Rule]:
    """`rule` as a function that picks one by a group's settings."""
    if isinstance(rule, Rule):
        return lambda settings: rule
    hint = "an optimizer with a name is made by its class: optim.Adam([W])"
    if callable(rule) and not isinstance(rule, type):
        taken = inspect.signature(rule).parameters.values()
        needed = [p for p in taken if p.default is p.empty and p.kind not in REST]
        if len(needed) == 1 and needed[0].kind is not inspect.Parameter.KEYWORD_ONLY:
            picks: Callable[[dict[str, Any]], Rule] = rule
            return picks
        hint = "@optim.rule() above a formula makes it a Rule"
    got = getattr(rule, "__name__", repr(rule))
    raise ArgumentError(explain(name, "a Rule, then parameters", got, hint))


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
