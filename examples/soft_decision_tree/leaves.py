"""What the leaves say, and the two ways to teach it to them: by gradient, or without.

A kind of leaves has `losses` (what each example costs, given the log-probabilities that it arrives
at each leaf), `update` (the step without gradients), `values` (what a leaf predicts) and `arrays`
(all it remembers, by name). Its `trained` parameters are the optimizer's.

Without gradients, a leaf counts. It takes its share of every example that it explained,
``U[c, l] = Σ_{i: y_i = c} r_il``, and its distribution follows the counts. U comes out of the same
backward pass that trains the gates, as the row-sparse gradient of a table that the labels looked
up. So a step touches the classes of its batch; the others decay by one factor, kept as one number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tinygrad_sparse as ts
from tinygrad_sparse import ops, optim
from tinygrad_sparse.nn.soft_tree import leaf_update, log_likelihood

FLOOR = 1e-30  # of a count, so that the logarithm of a class never seen is finite
SMALL = 1e-6  # a scale below this is multiplied into its table
WINDOW = 100  # batches remembered of a stream, which has no epochs

LEAST_VARIANCE = 1e-3  # of a leaf, where y has variance 1: no leaf may sit on a single example
LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)

Arrays = dict[str, np.ndarray]


class GradientLeaves(ts.nn.Module):
    """Class distributions softmax(θ), θ (C, L), trained like any parameter.

    The normaliser couples all classes, so the gradient of θ is dense: a step costs O(C·L).
    """

    def __init__(self, C: int, L: int, rng: Any, dtype: Any) -> None:
        self.logits = ts.parameter(rng.normal(size=(C, L)).astype(dtype), name="leaves.logits")
        self.trained = [self.logits]

    def losses(self, log_leaves: Any, labels: np.ndarray) -> Any:
        """-log p_i(y_i), (B,)."""
        log_q = self.logits[labels] - ops.logsumexp(self.logits, 0)
        return -log_likelihood(log_leaves, log_q)

    def begin_epoch(self, batches: int, stream: bool) -> None:
        """Nothing to prepare."""

    def update(self, grads: ts.GradStore, weight: float) -> None:
        """Nothing to do: the optimizer has done it."""

    def values(self) -> np.ndarray:
        """The distributions, (L, C)."""
        return ops.softmax(self.logits.data, 0).T

    arrays = ts.nn.Module.state_dict
    load = ts.nn.Module.load_state_dict


class Counts(ts.nn.Module):
    """Pseudo-counts θ (C, L), a few rows a step: t += 1, θ ← (1 - α) θ + U, α = max(1/t, 1/n).

    With n batches an epoch that is a running mean at first, then a window about an epoch long. The
    table holds θ / scale: rows that a step does not touch decay with the scale alone.
    """

    def __init__(self, table: np.ndarray, floor: Any = FLOOR) -> None:
        self.table = ts.parameter(table, name="leaves.counts")
        self.floor = floor
        self.scale, self.steps = 1.0, 0
        self.sgd = optim.SGD([self.table], lr=1.0)
        self.begin_epoch(1, stream=False)

    def begin_epoch(self, batches: int, stream: bool) -> None:
        """Take n, and sum anew what steps only add to: rounding errors end here."""
        self.batches = WINDOW if stream else batches
        self._set(self.data())

    def __getitem__(self, classes: np.ndarray) -> Any:
        """The rows θ[classes], tracked."""
        return self.table[classes] * self.scale

    def log_shares(self, classes: np.ndarray) -> Any:
        """log(θ / Σ_c θ) of the classes, tracked as if the sum were a constant."""
        return ops.log(self.table[classes]) - np.log(self.totals)  # the scale cancels

    def data(self) -> np.ndarray:
        """θ, whole."""
        return self.table.data * self.scale

    def times_slope(self, grads: ts.GradStore) -> ts.IndexedSlices:
        """θ ∘ gradient by θ, where the scale cancels too."""
        return leaf_update(self.table, grads[self.table])

    def slope(self, grads: ts.GradStore) -> ts.IndexedSlices:
        """The gradient by θ."""
        return grads[self.table] / self.scale

    def add(self, U: ts.IndexedSlices, gain: float = 1.0) -> None:
        """One step with gain · U, written as one of gradient descent."""
        self.steps += 1
        keep = 1.0 - max(1.0 / self.steps, 1.0 / self.batches)
        if keep == 0.0:
            self._set(np.zeros_like(self.table.data))
        self.scale *= keep or 1.0
        gain /= self.scale
        self.sgd.lr = -gain
        self.sgd.step(store(self.table, U))
        self.totals = self.totals + gain * U.values.sum(axis=0)
        if self.scale < SMALL:
            self._set(self.data())

    def _set(self, table: np.ndarray) -> None:
        self.load_state_dict({"table": np.maximum(table, self.floor).astype(table.dtype)})
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
        self._set(arrays["table"])
        self.scale, self.steps = float(arrays["scale"]), int(arrays["steps"])


class EpochCounts(ts.nn.Module):
    """Pseudo-counts that an epoch replaces step by step: θ ← θ - θ[start of epoch] / n + U.

    So θ = ρ · start + fresh, where ρ falls evenly from 1 to 0 and `fresh` is the sum of U: no table
    is touched but for the rows of U, and nothing can fall below zero by rounding.
    """

    def __init__(self, table: np.ndarray, floor: Any = FLOOR) -> None:
        self.start = ts.parameter(table, name="leaves.start")
        self.fresh = ts.parameter(np.zeros_like(table), name="leaves.fresh")
        self.floor = floor
        self.kept = 1.0
        self.sgd = optim.SGD([self.fresh], lr=1.0)
        self.begin_epoch(1, stream=False)

    def begin_epoch(self, batches: int, stream: bool) -> None:
        """What was counted becomes the start; of a stream, each part is an epoch."""
        self.batches = batches
        self._set(self.data())

    def __getitem__(self, classes: np.ndarray) -> Any:
        return self.start[classes] * self.kept + self.fresh[classes]

    def log_shares(self, classes: np.ndarray) -> Any:
        return ops.log(self[classes]) - np.log(self.start_totals * self.kept + self.totals)

    def data(self) -> np.ndarray:
        return self.start.data * self.kept + self.fresh.data

    def times_slope(self, grads: ts.GradStore) -> ts.IndexedSlices:
        """θ ∘ gradient by θ: both tables' parts of it, by the chain rule."""
        return leaf_update(self.start, grads[self.start]) + leaf_update(
            self.fresh, grads[self.fresh]
        )

    def slope(self, grads: ts.GradStore) -> ts.IndexedSlices:
        return grads[self.fresh]

    def add(self, U: ts.IndexedSlices, gain: float = 1.0) -> None:
        self.sgd.lr = -gain
        self.sgd.step(store(self.fresh, U))
        self.totals = self.totals + gain * U.values.sum(axis=0)
        self.kept = max(0.0, self.kept - 1.0 / self.batches)
        if self.kept < SMALL:
            self._set(self.data())

    def _set(self, table: np.ndarray) -> None:
        table = np.maximum(table, self.floor).astype(table.dtype)
        self.load_state_dict({"start": table, "fresh": np.zeros_like(table)})
        self.start_totals, self.totals = table.sum(axis=0), np.zeros_like(table[0])
        self.kept = 1.0

    def arrays(self) -> Arrays:
        return {**self.state_dict(), "kept": np.array(self.kept)}

    def load(self, arrays: Arrays) -> None:
        self._set(arrays["start"])
        self.load_state_dict({"start": arrays["start"], "fresh": arrays["fresh"]})
        self.totals = arrays["fresh"].sum(axis=0)
        self.kept = float(arrays["kept"])


SMOOTHING = {"exponential": Counts, "epoch": EpochCounts}


def store(parameter: ts.Tensor, g: Any) -> ts.GradStore:
    """A GradStore with one gradient."""
    grads = ts.GradStore()
    grads[parameter] = g
    return grads


class CountedLeaves:
    """Class distributions from pseudo-counts θ (C, L), learned without gradients.

    ``form="normalised"``: θ / Σ_c θ, Σ_c being kept as θ changes, so a step is O(B·L) for any C;
    each full-batch step is one of expectation-maximisation. ``form="softmax"``: softmax(θ), as in
    ProtoTree; its normaliser is O(C·L) a step, since a decay of θ changes every e**θ differently.
    """

    trained: tuple[ts.Tensor, ...] = ()

    def __init__(
        self, C: int, L: int, *, smoothing: str = "exponential", form: str = "normalised",
        dtype: Any = np.float64,
    ) -> None:  # fmt: skip
        self.counts = SMOOTHING[smoothing](np.ones((C, L), dtype))
        self.normalised = form == "normalised"
        self.begin_epoch = self.counts.begin_epoch

    def losses(self, log_leaves: Any, labels: np.ndarray) -> Any:
        """-log p_i(y_i), (B,)."""
        if self.normalised:
            log_q = self.counts.log_shares(labels)
        else:
            log_q = self.counts[labels] - ops.logsumexp(self.counts.data(), 0)
        return -log_likelihood(log_leaves, log_q)

    def update(self, grads: ts.GradStore, weight: float) -> None:
        """Add the batch's U: `grads` is of its weighted mean loss, `weight` the sum of weights.

        The normaliser was a constant, so the gradient by θ[y] is r/θ[y], or r for the softmax.
        """
        read = self.counts.times_slope if self.normalised else self.counts.slope
        self.counts.add(read(grads).coalesce(), -float(weight))

    def values(self) -> np.ndarray:
        """The distributions, (L, C)."""
        if self.normalised:
            theta = self.counts.data()
            return (theta / theta.sum(axis=0)).T
        return ops.softmax(self.counts.data(), 0).T

    def arrays(self) -> Arrays:
        return self.counts.arrays()

    def load(self, arrays: Arrays) -> None:
        self.counts.load(arrays)


class TrainedMeans(ts.nn.Module):
    """A number in each leaf, trained so that the tree's mean comes near y: squared error."""

    def __init__(self, L: int, rng: Any, dtype: Any) -> None:
        self.mean = ts.parameter(rng.normal(size=L).astype(dtype), name="leaves.mean")
        self.trained = [self.mean]

    def losses(self, log_leaves: Any, y: np.ndarray) -> Any:
        """(y_i - Σ_l a_il μ_l)², (B,)."""
        error = ops.exp(log_leaves) @ self.mean - y.astype(self.mean.dtype)
        return error * error

    begin_epoch = GradientLeaves.begin_epoch
    update = GradientLeaves.update

    def values(self) -> np.ndarray:
        """What the leaves predict, (L, 1)."""
        return self.mean.numpy()[:, None]

    arrays = ts.nn.Module.state_dict
    load = ts.nn.Module.load_state_dict


class GaussianLeaves(ts.nn.Module):
    """A normal distribution in each leaf, learned without gradients.

    Three counts a leaf, smoothed like any others: Σr, Σr·y and Σr·y². They too are read off
    gradients of the log-likelihood: by a leaf's log-weight Σr, by its mean Σr(y - μ)/σ², and by
    log σ Σr((y - μ)²/σ² - 1).
    """

    trained: tuple[ts.Tensor, ...] = ()

    def __init__(self, L: int, *, smoothing: str = "exponential", dtype: Any = np.float64) -> None:
        start = np.repeat(np.array([[1.0], [0.0], [1.0]], dtype), L, axis=1)
        floor = np.array([[FLOOR], [-np.inf], [FLOOR]])
        self.counts = SMOOTHING[smoothing](start, floor)
        self.log_weight = ts.parameter(np.zeros(L, dtype), name="leaves.log_weight")
        self.mean = ts.parameter(np.zeros(L, dtype), name="leaves.mean")
        self.log_sigma = ts.parameter(np.zeros(L, dtype), name="leaves.log_sigma")
        self.begin_epoch = self.counts.begin_epoch

    def losses(self, log_leaves: Any, y: np.ndarray) -> Any:
        """-log Σ_l a_il N(y_i; μ_l, σ_l), (B,)."""
        z = (y[:, None].astype(self.mean.dtype) - self.mean) * ops.exp(-self.log_sigma)
        log_density = self.log_weight - self.log_sigma - 0.5 * (z * z) - LOG_ROOT_2PI
        return -log_likelihood(log_leaves, log_density)

    def update(self, grads: ts.GradStore, weight: float) -> None:
        """Add the batch's three sums, then follow the counts."""
        n, first, second = (
            -float(weight) * grads[p] for p in (self.log_weight, self.mean, self.log_sigma)
        )
        mean, variance = self.mean.data, np.exp(2.0 * self.log_sigma.data)
        about = variance * first  # Σ r (y - μ)
        square = variance * (second + n)  # Σ r (y - μ)²
        U = np.stack([n, about + n * mean, square + mean * (2.0 * about + n * mean)])
        self.counts.add(ts.IndexedSlices(np.arange(3), U, U.shape))
        self._follow()

    def _follow(self) -> None:
        n, first, second = self.counts.data()
        mean = first / n
        variance = np.maximum(second / n - mean * mean, LEAST_VARIANCE)
        new = {"mean": mean, "log_sigma": 0.5 * np.log(variance)}
        self.load_state_dict(self.state_dict() | new)

    def values(self) -> np.ndarray:
        """What the leaves predict, (L, 1)."""
        return self.mean.numpy()[:, None]

    def arrays(self) -> Arrays:
        return self.counts.arrays()

    def load(self, arrays: Arrays) -> None:
        self.counts.load(arrays)
        self._follow()
