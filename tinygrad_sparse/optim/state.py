"""State: an optimizer's slots for one parameter, and how rows left behind catch up. Floor 5.

Under the exact meaning each row has a stamp, the last step it took part in; the parameter's
`_pending` is this very object, and whoever reads rows has them settled first.
"""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of
from tinygrad_sparse.errors import SparsityError, explain
from tinygrad_sparse.slices import blocks
from tinygrad_sparse.tensor import moving_rows

from .history import History
from .rest import moveless
from .rule import Rule
from .slots import FROM_P, Slots

if TYPE_CHECKING:
    from tinygrad_sparse.tensor import Pending

BLOCK = 2**18  # bytes of rows caught up at a time, so that they stay in the cache
CHUNK = 2**16  # rows of a whole table looked at at a time


class State(Slots):
    """Slots, stamps and history of one parameter's rows."""

    lasting = False
    above: Pending | None = None
    proven = False  # whether the rule was seen to rest as it says

    def __init__(
        self,
        rule: Rule,
        array: Array,
        settings: dict[str, Any],
        sparse: bool,
        below: Pending | None = None,
    ) -> None:
        self.below = below  # who settles rows before they are looked at here
        super().__init__(rule, array, settings, sparse)
        self.history: History | None = None
        self.exact = False
        self.moving = False  # whether resting moves p, so that a read must settle
        self.drift = 0
        self.base = 0  # the last step of rows without a stamp

    @property
    def leaves(self) -> bool:
        """Whether somebody who reads or sets p has to wait for its rows at rest.

        They move, or what is kept for them follows from p as it is until then.
        """
        return self.moving or self.drift == 2 or "master" in self.names

    def remember(self, exact: bool) -> None:
        """From now on rows may rest: each gets a stamp. If not `exact`, only averages move then."""
        if self.history is None:
            kind = self.rule.rest if exact else moveless
            assert kind is not None
            self.exact = exact
            self.history = History(kind(self.rule, self.wide, self.averaged), self.steps)
            size = len(self.flat) if self.index is None else len(self.ids)
            self.stamps = self.xp.zeros(size, np.int32)
            # zero: never touched, so its slots are zero too
            self.stamps[: self.taken()] = self.steps
            self.base = self.steps

    def expect(self, carry: np.ndarray) -> None:
        """Be ready for a step that does this to a row at rest."""
        assert self.history is not None
        rest = self.history.rest
        self.moving |= rest.moves(carry)
        self.drift = max(self.drift, rest.drift(carry))
        if self.drift and set(self.names) & set(FROM_P):
            self.grow_full()

    def restart(self) -> None:
        """A new history, once all rows are up to date: the old one grew too large."""
        assert self.history is not None
        self._settle_all()
        self.history = History(self.history.rest, self.history.now)

    def forget(self) -> None:
        """All rows are up to date, and will stay so: none rests."""
        self.history = None
        self.stamps = None
        self.drift = 0
        self.moving = False

    def settle(self, rows: Any) -> None:
        """Bring rows up to date: ids of the first axis, a slice of it, or ... for all."""
        with moving_rows:
            history = self.history
            if history is None or history.now == history.origin:
                if rows is not ...:
                    self.settle_below(rows)
                return
            if rows is ...:
                self._settle_all()
                return
            self.settle_below(rows)
            self.settle_flat(self._flat_rows(rows))

    def settle_below(self, rows: Any) -> None:
        """Have rows of the first axis ready to be looked at here."""
        if self.below is not None:
            self.below.settle(rows)

    def flush(self) -> None:
        """What is kept here is kept in memory."""

    def _flat_rows(self, rows: Any) -> Array:
        """Rows of the first axis as rows of `flat`."""
        if isinstance(rows, slice):
            rows = self.xp.arange(*rows.indices(self.array.shape[0]))
        return blocks(rows.reshape(-1), len(self.flat) // max(1, self.array.shape[0]))

    def before_change(self, rows: Any) -> None:
        """Somebody else is about to set rows of the first axis, or all: see `watch`.

        Averages are brought up to what the rows hold now. Rows that were never touched, whose
        averages are what they hold, have averages of their own from here on.
        """
        with moving_rows:
            self.settle(rows)
            if rows is ...:
                self.grow_full()
                places = rows
            else:
                places = self.places(self.xp.unique(self._flat_rows(rows)))
            if self.stamps is not None and self.history is not None:
                self.stamps[places] = self.history.now

    def settle_flat(self, rows: Array) -> None:
        """Bring rows of `flat` up to date; repeats are fine."""
        if self.history is None:
            return
        if self.drift and self.index is not None:
            self.places(rows)  # rows without slots move too
        self._settle(rows)

    def _settle_all(self) -> None:
        history = self.history
        assert history is not None and self.stamps is not None
        if self.drift == 2:
            self.grow_full()  # from now on every row has a state that is not zero
        if self.index is not None:
            self._settle(self.ids[: self.used])
        if self.drift:
            self.settle_below(...)
        if self.index is None or self.drift:
            for start in range(0, len(self.flat), CHUNK):
                rows = self.xp.arange(start, min(start + CHUNK, len(self.flat)))
                if self.index is None:
                    self._settle(rows)
                else:  # rows without slots: one place of zeros, which stay zero, does for all
                    rows = rows[self.index[rows] == 0]
                    nowhere = np.zeros(len(rows), np.int64)
                    slots = [self._new_slot(name, 1) for name in self.names]
                    self._catch_up(rows, nowhere, nowhere, slots)
        self.base = history.now
        if self.index is None and self.drift:
            self.stamps[...] = history.now

    def _settle(self, rows: Array) -> None:
        """Bring those of `rows` that have slots up to date."""
        history = self.history
        assert history is not None and self.stamps is not None
        late = adapter_of(self.array).late_rows
        rows, places, last = late(rows, self.index, self.stamps, history.now, bool(self.drift))
        if len(rows):
            self._catch_up(rows, places, last, self.slots)
            self.stamps[places] = history.now

    def _catch_up(self, rows: Array, places: Array, last: Array, slots: list[Array]) -> None:
        """Rows, each there once, from their last step to now, with their slots at `places`."""
        history, adapter = self.history, adapter_of(self.array)
        if not len(rows):
            return
        assert history is not None
        table, at = self.flat, rows
        if master := "master" in self.names:
            *slots, table = slots
            at = places
        to_host, asarray = adapter.to_host, adapter.asarray  # the history is on the host
        last = to_host(last)
        steps = np.where(last > 0, last, self.base).astype(np.int64)
        factors, columns = history.factors(steps)
        todo: Any = slice(None)
        for formula, sure in history.rest.formulas(factors):
            some = todo if type(todo) is slice else adapter.beside(at, todo)
            mine = at[some], places[some]
            left = adapter.settle_rows(formula, sure, *mine, factors, columns[todo], table, slots)
            todo = left if type(todo) is slice else todo[left]
            if not len(todo):
                break
        each = max(1, BLOCK // max(1, math.prod(self.flat.shape[1:]) * self.wide.itemsize))
        for start in range(0, len(todo), each):
            part = todo[start : start + each]
            some = adapter.beside(at, part)
            row = [to_host(self._take(table, at[some])).astype(self.wide, copy=False)]
            row += [to_host(self._take(slot, places[some])) for slot in slots]
            new = history.rest.replay(row, factors[:, columns[part]], steps[part], history)
            adapter.put_rows(table, at[some], asarray(new[0]))
            for slot, values in zip(slots, new[1:], strict=True):
                adapter.put_rows(slot, places[some], asarray(values))
        if master and self.moving:  # else p may have been set by hand, which nobody was told
            adapter.put_rows(self.flat, rows, self._take(table, places))

    def outgrown(self) -> bool:
        """Whether the history takes more room than it should beside the table."""
        assert self.history is not None
        return self.history.nbytes > max(2**20, self.array.nbytes // 8)

    # -- as a whole --------------------------------------------------------------------------

    def under(self, rule: Rule, settings: dict[str, Any]) -> State:
        """The same state for another rule, once nothing is pending; slots go by their names."""
        self.begin_absent()
        self.grow_full()
        new = State(rule, self.array, settings, False, self.below)
        if not rule.per_row:
            new.refine(self.lead)
        new.slots = [
            self.slots[self.names.index(name)].reshape(slot.shape) if name in self.names else slot
            for name, slot in zip(new.names, new.slots, strict=True)
        ]
        new.steps, new.memory, new.version = self.steps, self.memory, self.version
        new.counts = self.counts if new.lead == self.lead else None
        return new

    def copied(self, array: Array) -> State:
        """The same state for a copy of the parameter's array, once all rows are up to date."""
        new = copy(self)
        new.array = array
        new.flat = array.reshape(self.flat.shape)
        new.slots = [slot.copy() for slot in self.slots]
        new.ids = self.ids.copy()
        new.index = None if self.index is None else self.index.copy()
        new.counts = None if self.counts is None else self.counts.copy()
        new.memory = dict(self.memory)
        new.below = None
        new.forget()
        return new

    @property
    def nbytes(self) -> int:
        """Bytes of all of this."""
        arrays = [*self.slots, self.stamps, self.counts, self.index]
        arrays += [] if self.index is None else [self.ids]
        own = sum(a.nbytes for a in arrays if a is not None)
        return own + (self.history.nbytes if self.history is not None else 0)


def refuse_rows(name: str, rule: Rule, p: Any) -> SparsityError:
    """The error of an exact rule that has no closed form of resting."""
    return SparsityError(
        explain(
            f"{name}(sparse='exact')",
            f"a dense gradient, since {rule.formula.__name__} has no closed form for rows at rest",
            f"a row-sparse one for {p.name} {p.shape}",
            "sparse='lazy' moves the touched rows only; grads.to_dense() pays for all rows",
        )
    )
