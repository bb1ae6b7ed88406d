"""Pseudo-counts of which a step touches a few rows, whatever the smoothing does to the others.

Both smoothings decay all rows alike, so the decay is one number beside the table. The rows that a
step adds are added by an SGD step, so this works wherever an optimizer does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tinygrad_sparse as ts
from tinygrad_sparse import ops, optim
from tinygrad_sparse.errors import CheckpointError, explain
from tinygrad_sparse.nn.soft_tree import leaf_update

FLOOR = 1e-30  # of a count, so that the logarithm of a class never seen is finite
SMALL = 1e-6  # a scale below this is multiplied into its table
WINDOW = 100  # batches remembered of a stream, which has no epochs

Arrays = dict[str, np.ndarray]


def host(x: Any) -> np.ndarray:
    """An array where NumPy can read it: itself on the CPU."""
    return x if isinstance(x, np.ndarray) else ts.tensor(x).numpy()


def on(device: str, x: np.ndarray) -> Any:
    """An array on a device: itself on the CPU."""
    return x if device == "cpu" else ts.tensor(x, device=device).data


def put(p: ts.Tensor, values: np.ndarray) -> None:
    """Set a parameter where it is."""
    p.assign(on(p.device, values))


class Counts(ts.nn.Module):
    """Pseudo-counts θ (C, L), a few rows a step: t += 1, θ ← (1 - α) θ + U, α = max(1/t, 1/n).

    With n batches an epoch that is a running mean at first, then a window about an epoch long. The
    table holds θ / scale: rows that a step does not touch decay with the scale alone.
    """

    def __init__(self, table: np.ndarray, floor: Any = FLOOR, device: str = "cpu") -> None:
        self.table = ts.parameter(table, name="leaves.counts", device=device)
        self.floor = floor
        self.scale, self.steps = 1.0, 0
        self.sgd = optim.SGD([self.table], lr=1.0)
        self.begin_epoch(1, stream=False)

    def begin_epoch(self, batches: int, stream: bool) -> None:
        """Take n, and sum anew what steps only add to: rounding errors end here.

        Not for each part of a stream, which may be small beside the table: there it is done when
        the scale has become small.
        """
        self.batches = WINDOW if stream else batches
        if not stream:
            self._set(self.data())

    @contextmanager
    def savepoint(self, classes: np.ndarray, batches: int, stream: bool) -> Iterator[None]:
        """A block of so many batches of these classes: if it raises, nothing has changed."""
        steps = self.steps + 1 + np.arange(batches)
        scale = self.scale * np.prod(1.0 - np.maximum(1.0 / steps, 1.0 / WINDOW))
        by_rows = stream and scale > 2 * SMALL  # else the table will be set as a whole
        before = self.batches, self.scale, self.steps, self.totals
        try:
            with self.sgd.savepoint({self.table: classes} if by_rows else None):
                yield
        except BaseException:
            self.batches, self.scale, self.steps, self.totals = before
            raise

    def __getitem__(self, classes: np.ndarray) -> Any:
        """The rows θ[classes], tracked."""
        return self.table[classes] * self.scale

    def log_shares(self, classes: np.ndarray) -> Any:
        """log(θ / Σ_c θ) of the classes, tracked as if the sum were a constant."""
        return ops.log(self.table[classes]) - np.log(self.totals)  # the scale cancels

    def data(self) -> Any:
        """θ, whole, where the table is."""
        return self.table.data * self.scale

    def times_slope(self, grads: ts.GradStore) -> ts.IndexedSlices:
        """θ ∘ gradient by θ, where the scale cancels too."""
        return leaf_update(self.table, grads[self.table])

    def slope(self, grads: ts.GradStore) -> ts.IndexedSlices:
        """The gradient by θ."""
        return grads[self.table] / self.scale

    def add(self, U: ts.IndexedSlices, gain: float = 1.0) -> None:
        """One step with gain · U, written as one of gradient ascent."""
        self.steps += 1
        keep = 1.0 - max(1.0 / self.steps, 1.0 / self.batches)
        if keep == 0.0:
            self._set(np.zeros(self.table.shape, self.table.dtype))
        self.scale *= keep or 1.0
        gain /= self.scale
        self.sgd.step(store(self.table, U * -gain))
        self.totals = self.totals + gain * U.values.sum(axis=0)
        if self.scale < SMALL:
            self._set(self.data())

    def _set(self, table: Any) -> None:
        put(self.table, at_least(self.floor, table))
        self.totals = self.table.data.sum(axis=0)
        self.scale = 1.0

    def arrays(self) -> Arrays:
        """All it remembers."""
        return {
            "table": self.table.numpy(),
            "scale": np.array(self.scale),
            "steps": np.array(self.steps),
        }

    def load(self, arrays: Arrays) -> None:
        """Go on from `arrays`."""
        scale, steps = float(arrays["scale"]), int(arrays["steps"])
        if not (0 < scale <= 1 and steps >= 0):
            raise CheckpointError(explain("load", "0 < scale <= 1", f"{scale} at step {steps}"))
        self._set(arrays["table"])
        self.scale, self.steps = scale, steps


class EpochCounts(ts.nn.Module):
    """Pseudo-counts that an epoch replaces step by step: θ ← θ - θ[start of epoch] / n + U.

    So θ = ρ · start + fresh, where ρ falls evenly from 1 to 0 and `fresh` is the sum of U: no table
    is touched but for the rows of U, and nothing can fall below zero by rounding.
    """

    def __init__(self, table: np.ndarray, floor: Any = FLOOR, device: str = "cpu") -> None:
        self.start = ts.parameter(table, name="leaves.start", device=device)
        self.fresh = ts.parameter(np.zeros_like(table), name="leaves.fresh", device=device)
        self.floor = floor
        self.kept = 1.0
        self.sgd = optim.SGD([self.start, self.fresh], lr=1.0)  # the start is only kept by it
        self.begin_epoch(1, stream=False)

    def begin_epoch(self, batches: int, stream: bool) -> None:
        """What was counted becomes the start; in a stream, once `WINDOW` batches are."""
        self.batches = WINDOW if stream else batches
        if not stream:
            self._set(self.data())

    @contextmanager
    def savepoint(self, classes: np.ndarray, batches: int, stream: bool) -> Iterator[None]:
        by_rows = stream and self.kept - batches / WINDOW > 2 * SMALL
        rows = {self.start: [], self.fresh: classes} if by_rows else None
        before = self.batches, self.kept, self.start_totals, self.totals
        try:
            with self.sgd.savepoint(rows):
                yield
        except BaseException:
            self.batches, self.kept, self.start_totals, self.totals = before
            raise

    def __getitem__(self, classes: np.ndarray) -> Any:
        return self.start[classes] * self.kept + self.fresh[classes]

    def log_shares(self, classes: np.ndarray) -> Any:
        return ops.log(self[classes]) - np.log(self.start_totals * self.kept + self.totals)

    def data(self) -> Any:
        return self.start.data * self.kept + self.fresh.data

    def times_slope(self, grads: ts.GradStore) -> ts.IndexedSlices:
        """θ ∘ gradient by θ: both tables' parts of it, by the chain rule."""
        return leaf_update(self.start, grads[self.start]) + leaf_update(
            self.fresh, grads[self.fresh]
        )

    def slope(self, grads: ts.GradStore) -> ts.IndexedSlices:
        return grads[self.fresh]

    def add(self, U: ts.IndexedSlices, gain: float = 1.0) -> None:
        self.sgd.step(store(self.fresh, U * -gain))
        self.totals = self.totals + gain * U.values.sum(axis=0)
        self.kept = max(0.0, self.kept - 1.0 / self.batches)
        if self.kept < SMALL:
            self._set(self.data())

    def _set(self, table: Any) -> None:
        table = at_least(self.floor, table)
        put(self.start, table)
        put(self.fresh, np.zeros_like(table))
        self.start_totals, self.totals = (p.data.sum(axis=0) for p in (self.start, self.fresh))
        self.kept = 1.0

    def arrays(self) -> Arrays:
        return {**self.state_dict(), "kept": np.array(self.kept)}

    def load(self, arrays: Arrays) -> None:
        kept = float(arrays["kept"])
        if not 0 <= kept <= 1:
            raise CheckpointError(explain("load", "0 <= kept <= 1", f"{kept}"))
        self._set(arrays["start"])
        self.load_state_dict({"start": arrays["start"], "fresh": arrays["fresh"]})
        self.totals = self.fresh.data.sum(axis=0)
        self.kept = kept


SMOOTHING = {"exponential": Counts, "epoch": EpochCounts}


def at_least(floor: Any, table: Any) -> np.ndarray:
    """The table on the host, in its dtype, with no count below the floor."""
    table = host(table)
    return np.maximum(table, floor).astype(table.dtype)


def store(parameter: ts.Tensor, g: Any) -> ts.GradStore:
    """A GradStore with one gradient."""
    grads = ts.GradStore()
    grads[parameter] = g
    return grads
