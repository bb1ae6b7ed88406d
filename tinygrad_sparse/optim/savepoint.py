"""What steps will change, kept by rows, so that it can be put back. Floor 5.

A copy of everything costs the table; what a few steps touch is known before them, and costs its
rows. Arrays that an optimizer replaces as it grows are not written to again, so of those the old
one is enough; of those that it writes to, the rows are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, row_ids
from tinygrad_sparse.errors import ShapeError, SparsityError, TapeError, explain
from tinygrad_sparse.tensor import Tensor, pending_of

from .state import State
from .step import let_none_rest

if TYPE_CHECKING:
    from .optimizer import Optimizer


class Part(NamedTuple):
    """Rows of an array as they were."""

    array: Array
    rows: Any
    values: Array

    @staticmethod
    def of(array: Array, rows: Any) -> Part:
        """Some rows, or ... for all."""
        # ids pick a copy
        return Part(array, rows, adapter_of(array).copy(array) if rows is ... else array[rows])

    def put_back(self) -> None:
        """Write them where they were."""
        self.array[self.rows] = self.values


class Kept(NamedTuple):
    """Rows of a parameter and what its optimizer has for them."""

    p: Tensor
    rows: Any
    values: Array
    state: State | None
    fields: dict[str, Any]  # of the state
    parts: list[Part]  # of the arrays among them that are written to
    synced: bool  # whether nobody else had set p since the last step


def keep(opt: Optimizer, rows: Mapping[Tensor, Any]) -> list[Kept]:
    """Rows of all parameters of `opt`: those in `rows`, or a whole parameter that is not there."""
    if not isinstance(rows, Mapping):
        hint = "opt.savepoint({W: ids})"
        raise TapeError(explain("savepoint", "a dict of rows", type(rows).__name__, hint))
    for p in rows:
        if type(p) is not Tensor or p.id not in opt._home:
            got = p.name if type(p) is Tensor else type(p).__name__
            raise TapeError(explain("savepoint", "parameters of this optimizer", got))
    return [_kept(opt, p, rows.get(p, ...)) for p, _ in opt._home.values()]


def put_back(opt: Optimizer, kept: list[Kept]) -> None:
    """Undo every step since `keep`."""
    for p, rows, values, state, fields, parts, synced in kept:
        now = opt._states.pop(p.id, None)
        if now is not None:
            let_none_rest(p, now)
        if rows is ... or len(rows):
            p._overwrite(values, None if rows is ... else rows)
        if state is None:
            continue
        vars(state).clear()
        vars(state).update(fields)
        for part in parts:
            part.put_back()
        if state.index is not None:
            state.index[state.index > state.used] = 0  # of rows that were not named
            # room that was given away is zero where it is given again
            for array in _by_place(state):
                array[state.used :] = 0
        state.version = p._version if synced else -1
        opt._states[p.id] = state


def _kept(opt: Optimizer, p: Tensor, rows: Any) -> Kept:
    state = opt._states.get(p.id)
    if rows is not ...:
        rows = _checked(opt, p, state, rows)
    elif state is not None:
        let_none_rest(p, state)
    if rows is ...:
        values = adapter_of(p._data).copy(p._data)  # reading settles what anybody left
    else:
        if (pending := pending_of(p)) is not None:
            pending.settle(rows)
        values = p._array()[rows]
    if state is None:
        return Kept(p, rows, values, None, {}, [], True)
    fields = {**vars(state), "slots": list(state.slots), "memory": dict(state.memory)}
    synced = state.version == p._version
    return Kept(p, rows, values, state, fields, _parts(state, rows), synced)


def _checked(opt: Optimizer, p: Tensor, state: State | None, rows: Any) -> Array:
    """Row ids, each once. Raises SparsityError where a step moves other rows than it touches."""
    if not p.ndim:
        raise ShapeError(explain("savepoint", "rows of a parameter with axes", f"{p.name} ()"))
    group = opt._home[p.id][1].group
    resting = group["sparse"] == "exact" and not opt._choose(group).still
    if resting or group["average"] or (state is not None and state.history is not None):
        got = f"rows of {p.name} {p.shape}, whose other rows move at rest"
        hint = "make the optimizer with sparse='lazy' and no average, or keep the whole parameter"
        raise SparsityError(explain("savepoint", "a rule that moves touched rows only", got, hint))
    rows = row_ids("savepoint", rows, p.shape[0], f", {p.name} {p.shape}", p).reshape(-1)
    return adapter_of(rows).xp.unique(rows)


def _by_place(state: State) -> list[Array]:
    """The arrays that have a row for each place."""
    return [*state.slots, *([] if state.counts is None else [state.counts])]


def _parts(state: State, rows: Any) -> list[Part]:
    if rows is ...:
        index = [] if state.index is None else [Part.of(state.index, ...)]
        return [*index, *(Part.of(array, ...) for array in _by_place(state))]
    flat = state._flat_rows(rows)
    if state.index is None:
        return [Part.of(array, flat) for array in _by_place(state)]
    at = state.index[flat]
    places = at[at > 0].astype(np.int64) - 1
    return [Part(state.index, flat, at), *(Part.of(array, places) for array in _by_place(state))]
