"""What the leaves say, and the two ways to teach it to them: by gradient, or without.

Without gradients, a leaf counts. It takes its share of every example that it explained,
``U[c, l] = Σ_{i: y_i = c} r_il``, and its distribution follows the counts. U comes out of the same
backward pass that trains the gates, as the row-sparse gradient of a table that the labels looked
up. So a step touches the classes of its batch; the others decay by one factor, kept as one number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np

import tinygrad_sparse as ts
from tinygrad_sparse import ops
from tinygrad_sparse.nn.soft_tree import log_likelihood

from .counts import FLOOR, SMOOTHING, Arrays, host, on, put

LEAST_VARIANCE = 1e-3  # of a leaf, where y has variance 1: no leaf may sit on a single example
LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)


class Leaves(Protocol):
    """What a tree needs of its leaves."""

    @property
    def trained(self) -> Sequence[ts.Tensor]:
        """The parameters that are the optimizer's."""

    def losses(self, log_leaves: Any, targets: np.ndarray) -> Any:
        """What each example costs, (B,), given log_leaves (B, L): where it arrives."""

    def begin_epoch(self, batches: int, stream: bool) -> None:
        """Prepare for so many batches; more will follow a stream's."""

    def update(self, grads: ts.GradStore, weight: float) -> None:
        """The step without gradients."""

    def savepoint(
        self, targets: np.ndarray, batches: int, stream: bool
    ) -> AbstractContextManager[None]:
        """A block of so many batches of these targets: if it raises, no update has been made."""

    def values(self) -> np.ndarray:
        """What each leaf predicts, (L, K)."""

    def arrays(self) -> Arrays:
        """All it remembers."""

    def load(self, arrays: Arrays) -> None:
        """Go on from `arrays`."""


class GradientLeaves(ts.nn.Module):
    """Class distributions softmax(θ), θ (C, L), trained like any parameter.

    The normaliser couples all classes, so the gradient of θ is dense: a step costs O(C·L).
    """

    def __init__(self, C: int, L: int, rng: Any, dtype: Any, device: str = "cpu") -> None:
        start = rng.normal(size=(C, L)).astype(dtype)
        self.logits = ts.parameter(start, name="leaves.logits", device=device)
        self.trained = [self.logits]

    def losses(self, log_leaves: Any, labels: np.ndarray) -> Any:
        """-log p_i(y_i), (B,)."""
        log_q = self.logits[labels] - ops.logsumexp(self.logits, 0)
        return -log_likelihood(log_leaves, log_q)

    def begin_epoch(self, batches: int, stream: bool) -> None:
        """Nothing to prepare."""

    def update(self, grads: ts.GradStore, weight: float) -> None:
        """Nothing to do: the optimizer has done it."""

    def savepoint(self, targets: np.ndarray, batches: int, stream: bool) -> Any:
        """Nothing to keep: the optimizer does."""
        return nullcontext()

    def values(self) -> np.ndarray:
        """The distributions, (L, C)."""
        return host(ops.softmax(self.logits.data, 0)).T

    arrays = ts.nn.Module.state_dict
    load = ts.nn.Module.load_state_dict


class CountedLeaves:
    """Class distributions from pseudo-counts θ (C, L), learned without gradients.

    ``form="normalised"``: θ / Σ_c θ, Σ_c being kept as θ changes, so a step is O(B·L) for any C;
    each full-batch step is one of expectation-maximisation. ``form="softmax"``: softmax(θ), as in
    ProtoTree; its normaliser is O(C·L) a step, since a decay of θ changes every e**θ differently.
    """

    trained: tuple[ts.Tensor, ...] = ()

    def __init__(
        self, C: int, L: int, *, smoothing: str = "exponential", form: str = "normalised",
        dtype: Any = np.float64, device: str = "cpu",
    ) -> None:  # fmt: skip
        self.counts = SMOOTHING[smoothing](np.ones((C, L), dtype), device=device)
        self.normalised = form == "normalised"
        self.begin_epoch, self.savepoint = self.counts.begin_epoch, self.counts.savepoint

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
        self.counts.add((-read(grads)).coalesce(), float(weight))

    def values(self) -> np.ndarray:
        """The distributions, (L, C)."""
        if self.normalised:
            theta = self.counts.data()
            return host(theta / theta.sum(axis=0)).T
        return host(ops.softmax(self.counts.data(), 0)).T

    def arrays(self) -> Arrays:
        return self.counts.arrays()

    def load(self, arrays: Arrays) -> None:
        self.counts.load(arrays)


class TrainedMeans(ts.nn.Module):
    """A number in each leaf, trained so that the tree's mean comes near y: squared error."""

    def __init__(self, L: int, rng: Any, dtype: Any, device: str = "cpu") -> None:
        start = rng.normal(size=L).astype(dtype)
        self.mean = ts.parameter(start, name="leaves.mean", device=device)
        self.trained = [self.mean]

    def losses(self, log_leaves: Any, y: np.ndarray) -> Any:
        """(y_i - Σ_l a_il μ_l)², (B,)."""
        error = ops.exp(log_leaves) @ self.mean - on(self.mean.device, y.astype(self.mean.dtype))
        return error * error

    begin_epoch = GradientLeaves.begin_epoch
    update = GradientLeaves.update
    savepoint = GradientLeaves.savepoint

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

    def __init__(
        self, L: int, *, smoothing: str = "exponential", dtype: Any = np.float64,
        device: str = "cpu",
    ) -> None:  # fmt: skip
        start = np.repeat(np.array([[1.0], [0.0], [1.0]], dtype), L, axis=1)
        floor = np.array([[FLOOR], [-np.inf], [FLOOR]])
        self.counts = SMOOTHING[smoothing](start, floor, device)
        self.log_weight, self.mean, self.log_sigma = (
            ts.parameter(np.zeros(L, dtype), name=f"leaves.{name}", device=device)
            for name in ("log_weight", "mean", "log_sigma")
        )
        self.begin_epoch = self.counts.begin_epoch

    def losses(self, log_leaves: Any, y: np.ndarray) -> Any:
        """-log Σ_l a_il N(y_i; μ_l, σ_l), (B,)."""
        y = on(self.mean.device, y[:, None].astype(self.mean.dtype))
        z = (y - self.mean) * ops.exp(-self.log_sigma)
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
        U = ops.stack([n, about + n * mean, square + mean * (2.0 * about + n * mean)])
        self.counts.add(ts.IndexedSlices(np.arange(3), U, U.shape))
        self._follow()

    @contextmanager
    def savepoint(self, targets: np.ndarray, batches: int, stream: bool) -> Iterator[None]:
        """A block of so many batches: if it raises, nothing has changed."""
        try:
            with self.counts.savepoint(np.arange(3), batches, stream):
                yield
        except BaseException:
            self._follow()
            raise

    def _follow(self) -> None:
        n, first, second = host(self.counts.data())
        mean = first / n
        variance = np.maximum(second / n - mean * mean, LEAST_VARIANCE)
        put(self.mean, mean)
        put(self.log_sigma, 0.5 * np.log(variance))

    def values(self) -> np.ndarray:
        """What the leaves predict, (L, 1)."""
        return self.mean.numpy()[:, None]

    def arrays(self) -> Arrays:
        return self.counts.arrays()

    def load(self, arrays: Arrays) -> None:
        self.counts.load(arrays)
        self._follow()
