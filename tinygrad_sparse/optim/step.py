"""What one step does to one parameter: planned first, then written. Floor 5.

Planning may settle rows that rest and make room for state; it changes no value that anybody reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinygrad_sparse.backend import refuse_mixed
from tinygrad_sparse.errors import SparsityError, TinygradSparseError, explain
from tinygrad_sparse.slices import coarser, finer, is_sparse, parts_of, touched
from tinygrad_sparse.tensor import Tensor, before_change, pending_of, unwrap, watch

from .clip import RowCap
from .proof import prove
from .settings import check_count
from .state import State, refuse_rows

if TYPE_CHECKING:
    from tinygrad_sparse.tensor import Pending


class Update(NamedTuple):
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


def plan_step(
    name: str, p: Tensor, state: State, settings: dict[str, Any], g: Any, arrays: set[int],
    look: bool, cap: RowCap | None,
) -> Update:  # fmt: skip
    """What a step would write; `arrays`: of the parameters, by id; `look`: at the new rows."""
    sparse = is_sparse(g)
    rule = state.rule
    state.begin_absent()
    exact = settings["sparse"] == "exact" and not rule.still
    if exact and sparse and rule.rest is None:
        raise refuse_rows(name, rule, p)
    check_count(name, rule, settings["count"])
    if sparse and not state.proven and settings["sparse"] == "exact":
        prove(name, rule, settings)
        state.proven = True
    # Where nobody looks at the new rows, sums and what shortens them are made as they are applied.
    in_place = state.in_place() and not look and settings["count"] != "row"
    if cap is not None and not (in_place and sparse and g.lead == state.lead):
        g, cap = cap.of(g), None
    if sparse:
        if g.lead > state.lead and not rule.per_row:
            state.settle(...)
            state.refine(g.lead)
        # what has one number a row knows rows of one size, whoever looked up parts of them
        g = (finer if g.lead < state.lead else coarser)(g, state.lead)
    rows, values = parts_of(g) if in_place else touched(g)
    values = unwrap(values)
    refuse_mixed(name, (state.array, values))
    if in_place and id(_owner(values)) in arrays:
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
        let_none_rest(p, state)
    if resting:
        carry = _carry(name, p, state, hyper, exact, settings["average"])
    _tell_others(p, state, rows)
    if rows is ...:
        state.grow_full()
    elif resting:
        state.settle_flat(rows)
    places = state.places(rows)
    counts = None
    if settings["count"] == "row":
        counts = _counts(state, places) + 1
        shape = (len(counts), *(1,) * (values.ndim - 1))
        if "step" in hyper:
            hyper["step"] = counts.reshape(shape).astype(np.float64)
    if p._version != state.version and settings["master"]:
        state.read_again()
    new: list[Any] = []
    if in_place:
        write = state.plan(places, rows, values, hyper, cap)
    else:
        new = state.new_rows(places, rows, values, hyper, settings["average"])
        write = partial(state.write, places, rows, new)
    return Update(p, state, rows, places, new, write, carry, counts, memory)


def _carry(
    name: str, p: Tensor, state: State, hyper: dict[str, Any], exact: bool, average: float
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
        divisors = [f"{k} > 0" for k in ("eps", "beta2") if k in hyper]
        raise SparsityError(
            explain(
                f"{name}(sparse='exact')",
                "settings under which a zero gradient moves a row by a finite amount",
                f"{hyper} for {p.name} {p.shape}",
                " and ".join(divisors) or None,
            )
        )
    state.expect(carry)
    if state.outgrown():
        state.restart()
    return carry, kept


def let_none_rest(p: Tensor, state: State) -> None:
    """All rows up to date, and no history from here on."""
    if state.history is not None:
        if pending_of(p) is state:
            p._come_to_rest(state)
        state.settle(...)
        state.forget()


def settle_others(p: Tensor, state: State | None) -> Pending | None:
    """Rows that other optimizers left behind are up to date; who may have rows to settle still."""
    return state.below if state is not None and pending_of(p) is state else p._lasting()


def _tell_others(p: Tensor, state: State, rows: Any) -> None:
    """Rows that other optimizers left behind, or average, take the steps they missed first."""
    if rows is not ... and state.lead > 1:
        rows = rows // max(1, len(state.flat) // max(1, p.shape[0]))
    other = pending_of(p)
    if other is state:
        state.settle_below(rows)
    elif other is not None:
        if rows is ...:
            p._data  # noqa: B018  reading settles
        else:
            if state.leaves:
                other = p._lasting()
            if other is not None:
                other.settle(rows)
    # rows that are left to rest change too, later and without a word
    before_change(p, ... if state.leaves else rows, state)


def _counts(state: State, places: Any) -> Any:
    if state.counts is None:
        size = len(state.flat) if state.index is None else len(state.ids)
        state.counts = state.xp.full(size, 0, np.int32)
        state.counts[: state.taken()] = state.steps
    return state.counts[places]


def refuse_nonfinite(update: Update) -> None:
    """Raises if the step would write an infinity or a NaN."""
    for name, values in zip(("p", *update.state.names), update.new, strict=True):
        if name == "p":  # as it will be written: float16 has less room than what it is made of
            with np.errstate(over="ignore"):
                values = values.astype(update.p.dtype, copy=False)
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


def commit(update: Update) -> None:
    """Write it all."""
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
        if state.leaves:
            p._leave(state)
        if state.averaged:
            watch(p, state)
    p._version += 1
    state.version = p._version


def _owner(x: Any) -> Any:
    """The array whose memory a view shows."""
    while getattr(x, "base", None) is not None:
        x = x.base
    return x
