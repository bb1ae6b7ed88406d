"""Slots: what an optimizer keeps for the rows of one parameter, and where it is. Floor 5.

Kept for the rows ever touched while those are few, then as full tables. It knows the parameter's
array, never the parameter: no reference cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of
from tinygrad_sparse.backend.files import map_of, zeros_beside

from .rule import Rule

COMPACT = 2**20  # bytes of full slots below which rows are not counted
FROM_P = ("average", "master")  # slots that start as the parameter does


def names_of(rule: Rule, settings: dict[str, Any]) -> tuple[str, ...]:
    """The slots that a rule has under these settings."""
    average = ["average"] if settings["averaged"] else []
    return (*rule.slots, *average, *(["master"] if settings["master"] else []))


class Slots:
    """Slots of one parameter's rows, which `State` brings up to date. A row is what `lead` axes
    address.
    """

    def __init__(self, rule: Rule, array: Array, settings: dict[str, Any], sparse: bool) -> None:
        self.rule = rule
        self.array = array
        self.xp = adapter_of(array).xp
        self.on_file = map_of(array) is not None
        self.wide = np.promote_types(array.dtype, np.float32)  # float16 has no room for squares
        self.names = names_of(rule, settings)
        self.averaged = settings["averaged"]
        self.lead = 0
        self.steps = 0
        self.memory: Any = {}
        self.version = 0
        self.settings = settings
        self.stamps: Array | None = None  # the last step each row took part in, where rows rest
        self.counts: Array | None = None  # how many it took part in, where they are asked for
        self.index: Array | None = None  # row -> 1 + its place in the slots; None: its own number
        self.used = 0  # places taken
        self.absent: Array | None = None  # rows that a state_dict says nothing of: they start late
        self.ids = np.empty(0, np.int64)  # place -> row
        self.flat = array.reshape(1) if not array.ndim else array
        self._set_lead(min(1, array.ndim))
        full = sum(self._slot_bytes(name) for name in self.names)
        compact = sparse and (full > COMPACT or self.on_file) and full > 16 * len(self.flat)
        compact = compact and not adapter_of(array).waits  # for how many rows are new, each step
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
        return self._room((rows, *self._row(name)), self.wide)

    def _room(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Zeros, where the table is."""
        if self.on_file:
            return zeros_beside(self.array, shape, dtype)
        return self.xp.zeros(shape, dtype)

    def _longer(self, a: Array, rows: int) -> Array:
        more = self._room((rows, *a.shape[1:]), a.dtype)
        more[: len(a)] = a
        return more

    def settle_below(self, rows: Any) -> None:
        """Have rows of p that are about to be read here up to date: `State` knows by whom."""

    def _fill(self, places: Any, rows: Any) -> None:
        """What new rows start with, where that is not zero; some ids are those of settled rows."""
        if type(rows) is slice and set(self.names) & set(FROM_P):
            self.settle_below(...)
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
        if 4 * total > len(self.flat) and not self.on_file:
            self.grow_full()
            return rows
        if total > len(self.ids):
            room = max(1024, total + total // 2)
            for i in range(len(self.slots)):  # one by one: the old one of each is let go
                self.slots[i] = self._longer(self.slots[i], room)
            self.ids = self._longer(self.ids, room)
            self.stamps = None if self.stamps is None else self._longer(self.stamps, room)
            self.counts = None if self.counts is None else self._longer(self.counts, room)
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
        if self.averaged:
            mean = self._take(self.slots[own], places)
            new.append(average * mean + (1.0 - average) * new[0])
        return [*new, new[0]] if master else new

    def in_place(self) -> bool:
        """Whether a step is the formula and nothing else."""
        plain = not self.averaged and "master" not in self.names
        return plain and self.flat.dtype == self.wide

    def plan(
        self, places: Any, rows: Any, g: Array, hyper: dict[str, Any], cap: Any = None
    ) -> Callable[[], None]:
        """A step that only has to be written, by calling the answer; rows may repeat."""
        plan = adapter_of(self.array).plan_update
        places = None if self.index is None else places
        return plan(self.rule.formula, rows, g, self.flat, self.slots, hyper, places, cap)

    def read_again(self) -> None:
        """What was set by hand is what counts there, not the master copy of before."""
        mine = self.slots[-1][: self.taken()]
        rows = self.flat if self.index is None else self.flat[self.ids[: self.used]]
        with np.errstate(over="ignore"):
            changed = mine.astype(rows.dtype) != rows
        mine[...] = self.xp.where(changed, rows, mine)

    def write(self, places: Any, rows: Any, new: list[Array]) -> None:
        """Commit what `new_rows` gave."""
        put = adapter_of(self.array).put_rows
        put(self.flat, rows, new[0])
        for slot, values in zip(self.slots, new[1:], strict=True):
            put(slot, places, values)

    def _take(self, table: Array, rows: Any) -> Array:
        return table if rows is ... else adapter_of(table).take_rows(table, rows)

    # -- as a whole --------------------------------------------------------------------------

    def load(
        self, steps: int, arrays: list[Any], compact: bool, counted: bool, memory: dict[str, float]
    ) -> None:
        """Take over saved slots, then the rows they are of and the counts where there are any."""
        self.steps, self.memory = steps, memory
        arrays = [self.xp.asarray(a) for a in arrays]
        slots, rest = arrays[: len(self.names)], arrays[len(self.names) :]
        if compact:
            ids = rest.pop(0)
            places = self.places(ids)
            if self.index is None and set(self.names) & set(FROM_P):
                others = self.xp.ones(len(self.flat), bool)
                others[ids] = False
                self.absent = self.xp.flatnonzero(others)
        else:
            places = ...
        for mine, slot in zip(self.slots, slots, strict=True):
            mine[places] = slot if compact else slot.reshape(mine.shape)
        if counted:
            self.counts = self.xp.zeros(
                len(self.flat) if self.index is None else len(self.ids), np.int32
            )
            self.counts[places] = rest.pop(0)

    def begin_absent(self) -> None:
        """Copies of rows that were loaded without any start now: p may have been loaded since."""
        if self.absent is not None:
            self._fill(self.absent, self.absent)
            self.absent = None

    def saved_counts(self) -> np.ndarray:
        """A copy of the counts by row for a state_dict."""
        assert self.counts is not None
        return np.array(adapter_of(self.array).to_host(self.counts[: self.taken()]))

    def saved_shape(self, name: str, rows: int) -> tuple[int, ...]:
        """A slot's shape in a state_dict: the parameter's, unless it holds rows or is per row."""
        if self.index is None and name not in self.rule.per_row:
            return self.array.shape
        return self.rows_shape(name, rows)

    def rows_shape(self, name: str, rows: int) -> tuple[int, ...]:
        """The shape of so many rows of a slot."""
        return (rows, *self._row(name))

    def saved(self) -> list[Array]:
        """Copies of the slots for a state_dict, NumPy's whatever the device."""
        self.begin_absent()
        n, to_host = self.taken(), adapter_of(self.array).to_host
        return [
            np.array(to_host(slot[:n].reshape(self.saved_shape(name, n))))
            for name, slot in zip(self.names, self.slots, strict=True)
        ]

    def average(self) -> Array:
        """The table of averages, once all is up to date."""
        self.begin_absent()
        table = self.flat.astype(self.wide)
        if "average" in self.names:
            rows = slice(None) if self.index is None else self.ids[: self.used]
            table[rows] = self.slots[self.names.index("average")][: self.taken()]
        return table.reshape(self.array.shape).astype(self.array.dtype, copy=False)

    def taken(self) -> int:
        """How many rows the slots hold."""
        return len(self.flat) if self.index is None else self.used
