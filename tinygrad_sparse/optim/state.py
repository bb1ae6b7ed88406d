"""State: what an optimizer keeps for one parameter, and how rows left behind catch up. Floor 5.

Slots are kept for the rows ever touched while those are few, then as full tables. Under the exact
meaning each row has a stamp, the last step it took part in; the parameter's `_pending` is this very
object, and whoever reads rows has them settled first. It knows the parameter's array, never the
parameter: no reference cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of
from tinygrad_sparse.errors import SparsityError, explain
from tinygrad_sparse.tensor import moving_rows

from .history import History
from .rest import moveless
from .rule import Rule

BLOCK = 2**18  # bytes of rows caught up at a time, so that they stay in the cache
COMPACT = 2**20  # bytes of full slots below which rows are not counted
CHUNK = 2**16  # rows of a whole table looked at at a time
FROM_P = ("average", "master")  # slots that start as the parameter does


def names_of(rule: Rule, settings: dict[str, Any]) -> tuple[str, ...]:
    """The slots that a rule has under these settings."""
    average = ["average"] if settings["averaged"] else []
    return (*rule.slots, *average, *(["master"] if settings["master"] else []))


class State:
    """Slots, stamps and history of one parameter's rows. A row is what `lead` axes address."""

    def __init__(self, rule: Rule, array: Array, settings: dict[str, Any], sparse: bool) -> None:
        self.rule = rule
        self.array = array
        self.xp = adapter_of(array).xp
        self.wide = np.promote_types(array.dtype, np.float32)  # float16 has no room for squares
        self.names = names_of(rule, settings)
        self.averaged = settings["averaged"]
        self.lead = 0
        self.steps = 0
        self.memory: Any = {}
        self.version = 0
        self.settings = settings
        self.history: History | None = None
        self.exact = False
        self.moving = False  # whether resting moves p, so that a read must settle
        self.drift = 0
        self.base = 0  # the last step of rows without a stamp
        self.stamps: Array | None = None
        self.counts: Array | None = (
            None  # the steps each row took part in, where they are asked for
        )
        self.index: Array | None = None  # row -> 1 + its place in the slots; None: its own number
        self.used = 0  # places taken
        self.ids = np.empty(0, np.int64)  # place -> row
        self.flat = array.reshape(1) if not array.ndim else array
        self._set_lead(min(1, array.ndim))
        full = sum(self._slot_bytes(name) for name in self.names)
        compact = sparse and full > COMPACT and full > 16 * len(self.flat)
        if compact:
            self.index = self.xp.zeros(len(self.flat), np.int32)
        self.slots = [self._new_slot(name, 0 if compact else len(self.flat)) for name in self.names]
        if not compact:
            self._fill(slice(None), slice(None))

    # -- rows and their places ---------------------------------------------------------------

    def _set_lead(self, lead: int) -> None:
        self.lead = lead
        if self.array.ndim:
            shape = self.array.shape
            self.flat = self.array.reshape((math.prod(shape[:lead]), *shape[lead:]))

    def _row(self, name: str) -> tuple[int, ...]:
        row = self.flat.shape[1:]
        return (1,) * len(row) if name in self.rule.per_row else row

    def _slot_bytes(self, name: str) -> int:
        return len(self.flat) * math.prod(self._row(name)) * self.wide.itemsize

    def _new_slot(self, name: str, rows: int) -> Array:
        return self.xp.zeros((rows, *self._row(name)), self.wide)

    def _fill(self, places: Any, rows: Any) -> None:
        """What new rows start with, where that is not zero."""
        for name, slot in zip(self.names, self.slots, strict=True):
            if name in FROM_P:
                slot[places] = self.flat[rows]
            elif name in self.rule.start and (value := self.settings[self.rule.start[name]]):
                slot[places] = value

    def refine(self, lead: int) -> None:
        """Rows cut smaller, because a gradient addresses them by more axes."""
        if lead == self.lead:
            return
        old = len(self.flat)
        self.grow_full()
        self._set_lead(lead)
        inner = len(self.flat) // max(1, old)
        new = []
        for name, slot in zip(self.names, self.slots, strict=True):
            if name in self.rule.per_row:
                slot = self.xp.repeat(slot, inner, axis=0)
            new.append(slot.reshape((len(self.flat), *self._row(name))))
        self.slots = new
        if self.stamps is not None:
            self.stamps = self.xp.repeat(self.stamps, inner)
        if self.counts is not None:
            self.counts = self.xp.repeat(self.counts, inner)

    def places(self, rows: Any) -> Any:
        """Where these rows are in the slots; room is made for new ones."""
        if self.index is None:
            return rows
        at = self.index[rows]
        new = rows[at == 0]
        if not len(new):
            return at - 1
        # Each once, in the order of their last appearance: all write a mark, one mark stays.
        marks = np.arange(1, len(new) + 1, dtype=np.int32)
        self.index[new] = marks
        new = new[self.index[new] == marks]
        self.index[new] = 0
        used, total = self.used, self.used + len(new)
        if 4 * total > len(self.flat):
            self.grow_full()
            return rows
        if total > len(self.ids):
            room = max(1024, 2 * len(self.ids), total + total // 4)
            self.slots = [_longer(slot, room) for slot in self.slots]
            self.ids = _longer(self.ids, room)
            self.stamps = None if self.stamps is None else _longer(self.stamps, room)
            self.counts = None if self.counts is None else _longer(self.counts, room)
        self.index[new] = np.arange(used + 1, total + 1, dtype=np.int32)
        self.ids[used:total] = new
        self.used = total
        self._fill(slice(used, total), new)
        return self.index[rows] - 1

    def grow_full(self) -> None:
        """From rows ever touched to full tables."""
        if self.index is None:
            return
        used = self.used
        ids = self.ids[:used]
        few, self.slots = self.slots, [self._new_slot(n, len(self.flat)) for n in self.names]
        self._fill(slice(None), slice(None))
        for slot, mine in zip(self.slots, few, strict=True):
            slot[ids] = mine[:used]
        for name in ("stamps", "counts"):
            mine = getattr(self, name)
            if mine is not None:
                setattr(self, name, self.xp.zeros(len(self.flat), np.int32))
                getattr(self, name)[ids] = mine[:used]
        self.index, self.ids, self.used = None, np.empty(0, np.int64), 0

    # -- one step ----------------------------------------------------------------------------

    def new_rows(
        self, places: Any, rows: Any, g: Array, hyper: dict[str, Any], average: float
    ) -> list[Array]:
        """The new rows of the parameter and of its slots; writes nothing."""
        formula, update = self.rule.formula, adapter_of(self.array).update_rows
        master = "master" in self.names
        own = len(self.rule.slots)
        if self.flat.dtype == self.wide and not master:
            new = update(formula, rows, g, self.flat, self.slots[:own], hyper, places)
        else:
            slots = [self._take(slot, places) for slot in self.slots[:own]]
            p = self._take(self.slots[-1], places) if master else self._take(self.flat, rows)
            wide = (a.astype(self.wide, copy=False) for a in (g, p))
            new = update(formula, ..., *wide, slots, hyper)
        if self.averaged and len(new) == own + 1:
            mean = self._take(self.slots[own], places)
            new.append(average * mean + (1.0 - average) * new[0])
        return [*new, new[0]] if master else new

    def in_place(self) -> bool:
        """Whether a step is the formula and nothing else."""
        plain = not self.averaged and "master" not in self.names
        return plain and self.flat.dtype == self.wide

    def plan(self, places: Any, rows: Any, g: Array, hyper: dict[str, Any]) -> Callable[[], None]:
        """A step that only has to be written, by calling the answer; rows may repeat."""
        plan = adapter_of(self.array).plan_update
        places = None if self.index is None else places
        return plan(self.rule.formula, rows, g, self.flat, self.slots, hyper, places)

    def read_again(self) -> None:
        """The parameter was set by hand: that is what counts, not the master copy of before."""
        self.slots[-1][: self.taken()] = (
            self.flat if self.index is None else self.flat[self.ids[: self.used]]
        )

    def write(self, places: Any, rows: Any, new: list[Array]) -> None:
        """Commit what `new_rows` gave."""
        put = adapter_of(self.array).put_rows
        put(self.flat, rows, new[0])
        for slot, values in zip(self.slots, new[1:], strict=True):
            put(slot, places, values)

    def _take(self, table: Array, rows: Any) -> Array:
        return table if rows is ... else adapter_of(table).take_rows(table, rows)

    # -- rows left behind --------------------------------------------------------------------

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
        if self.drift == 2 or (self.drift and set(self.names) & set(FROM_P)):
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
                return
            if rows is ...:
                self._settle_all()
                return
            if isinstance(rows, slice):
                rows = np.arange(*rows.indices(self.array.shape[0]))
            rows = rows.reshape(-1)
            if self.lead > 1:
                inner = len(self.flat) // max(1, self.array.shape[0])
                rows = (rows[:, None] * inner + np.arange(inner)).reshape(-1)
            self.settle_flat(rows)

    def settle_flat(self, rows: Array) -> None:
        """Bring rows of `flat` up to date; repeats are fine."""
        if self.history is None:
            return
        places = rows
        if self.index is not None:
            if self.drift:
                self.places(np.unique(rows))
            if self.index is not None:
                places = self.index[rows] - 1
                known = places >= 0
                rows, places = rows[known], places[known]
        assert self.stamps is not None
        last = self.stamps[places]
        late = last < self.history.now
        if not self.drift:
            late &= last > 0
        rows, places, last = rows[late], places[late], last[late]
        if not len(rows):
            return
        # Each row once: all write their mark, one mark stays.
        marks = -np.arange(1, len(rows) + 1, dtype=np.int32)
        self.stamps[places] = marks
        once = self.stamps[places] == marks
        rows, places, last = rows[once], places[once], last[once]
        self.stamps[places] = last
        self._catch_up(rows, places, last)

    def _settle_all(self) -> None:
        history = self.history
        assert history is not None and self.stamps is not None
        if self.index is not None:
            late = np.flatnonzero(self.stamps[: self.used] < history.now)
            self._catch_up(self.ids[late], late, self.stamps[late])
        if self.index is None or self.drift:
            for start in range(0, len(self.flat), CHUNK):
                rows = np.arange(start, min(start + CHUNK, len(self.flat)))
                if self.index is None:
                    last = self.stamps[rows]
                    late = last < history.now if self.drift else (last < history.now) & (last > 0)
                    self._catch_up(rows[late], rows[late], last[late])
                else:  # rows without slots: only their decay
                    rows = rows[self.index[rows] == 0]
                    self._catch_up(rows, None, np.zeros(len(rows), np.int32))
        self.base = history.now
        if self.index is None and self.drift:
            self.stamps[...] = history.now

    def _catch_up(self, rows: Array, places: Array | None, last: Array) -> None:
        history = self.history
        if not len(rows):
            return
        assert history is not None and self.stamps is not None
        put = adapter_of(self.array).put_rows
        master = "master" in self.names
        each = max(1, BLOCK // max(1, math.prod(self.flat.shape[1:]) * self.wide.itemsize))
        steps = np.where(last > 0, last, self.base).astype(np.int64)
        factors = history.factors(steps)
        for start in range(0, len(rows), each):
            part = slice(start, start + each)
            mine, at = rows[part], None if places is None else places[part]
            if at is None:
                slots = [self._new_slot(name, len(mine)) for name in self.names]
            else:
                slots = [self._take(slot, at) for slot in self.slots]
            p = slots.pop() if master else self._take(self.flat, mine).astype(self.wide, copy=False)
            p, slots = history.rest.apply(factors[:, part], p, slots, steps[part], history)
            if self.moving:
                put(self.flat, mine, p)
            if at is not None:
                for slot, values in zip(self.slots, [*slots, p] if master else slots, strict=True):
                    put(slot, at, values)
                self.stamps[at] = history.now

    def outgrown(self) -> bool:
        """Whether the history takes more room than it should beside the table."""
        assert self.history is not None
        return self.history.nbytes > max(2**20, self.array.nbytes // 8)

    # -- as a whole --------------------------------------------------------------------------

    def under(self, rule: Rule, settings: dict[str, Any]) -> State:
        """The same state for another rule, once nothing is pending; slots go by their names."""
        self.grow_full()
        new = State(rule, self.array, settings, sparse=False)
        new.refine(self.lead)
        new.slots = [
            self.slots[self.names.index(name)] if name in self.names else slot
            for name, slot in zip(new.names, new.slots, strict=True)
        ]
        new.steps, new.memory, new.version = self.steps, self.memory, self.version
        new.counts = self.counts
        return new

    def load(
        self, steps: int, arrays: list[Any], compact: bool, counted: bool, memory: dict[str, float]
    ) -> None:
        """Take over saved slots, then the rows they are of and the counts where there are any."""
        self.steps, self.memory = steps, memory
        slots, rest = arrays[: len(self.names)], list(arrays[len(self.names) :])
        if compact:
            ids = rest.pop(0)
            places = self.places(ids)
        else:
            places = ...
        for mine, slot in zip(self.slots, slots, strict=True):
            mine[places] = slot if compact else slot.reshape(mine.shape)
        if counted:
            self.counts = self.xp.zeros(
                len(self.flat) if self.index is None else len(self.ids), np.int32
            )
            self.counts[places] = rest.pop(0)

    def saved_shape(self, name: str, rows: int) -> tuple[int, ...]:
        """A slot's shape in a state_dict: the parameter's, unless it holds rows or is per row."""
        if self.index is None and name not in self.rule.per_row:
            return self.array.shape
        return (rows, *self._row(name))

    def saved(self) -> list[Array]:
        """Copies of the slots for a state_dict."""
        n = self.taken()
        return [
            slot[:n].reshape(self.saved_shape(name, n)).copy()
            for name, slot in zip(self.names, self.slots, strict=True)
        ]

    def average(self) -> Array:
        """The table of averages, once all is up to date."""
        table = self.flat.astype(self.wide)
        if "average" in self.names:
            rows = slice(None) if self.index is None else self.ids[: self.used]
            table[rows] = self.slots[self.names.index("average")][: self.taken()]
        return table.reshape(self.array.shape).astype(self.array.dtype, copy=False)

    def taken(self) -> int:
        """How many rows the slots hold."""
        return len(self.flat) if self.index is None else self.used

    @property
    def nbytes(self) -> int:
        """Bytes of all of this."""
        arrays = [*self.slots, self.stamps, self.counts, self.index]
        arrays += [] if self.index is None else [self.ids]
        own = sum(a.nbytes for a in arrays if a is not None)
        return own + (self.history.nbytes if self.history is not None else 0)


def _longer(a: Array, rows: int) -> Array:
    more = adapter_of(a).xp.zeros((rows, *a.shape[1:]), a.dtype)
    more[: len(a)] = a
    return more


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
