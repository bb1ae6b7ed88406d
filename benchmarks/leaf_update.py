"""Leaf update without gradients, B = 64 examples, L = 512 leaves: row-sparse beside dense formulas.

Three ways to one step of the smoothing of leaf counts, from given arrivals and labels:

- ours: lookup, loss, backward, `leaf_update`, rows added; the decay is one number;
- one-hot: U as a matrix product with a (B, C) array of zeros and ones, then the whole table decays;
- log space: for each leaf a (B, C) array of -inf but for each label, as ProtoTree has it.

All use one thread and take turns.
"""

from collections.abc import Callable
from itertools import cycle

import numpy as np
from threadpoolctl import threadpool_limits

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians, peak_bytes
from examples.soft_decision_tree.leaves import CountedLeaves
from tinygrad_sparse.nn.soft_tree import leaves_of, log_arrivals

B, L = 64, 512
SIZES = (200, 2_000, 20_000)
BATCHES = 1000  # of an epoch: how fast counts decay


def logsumexp(x: np.ndarray, axis: int) -> np.ndarray:
    """log Σ e**x; all -inf gives -inf."""
    top = x.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - top).sum(axis=axis)) + top.squeeze(axis)


class Ours:
    """The example's leaves, as training uses them."""

    def __init__(self, C: int) -> None:
        self.leaves = CountedLeaves(C, L)
        self.leaves.begin_epoch(BATCHES, stream=False)

    def step(self, log_leaves: np.ndarray, labels: np.ndarray) -> None:
        """One step."""
        with ts.Tape(densify="raise") as tape:
            loss = self.leaves.losses(log_leaves, labels).mean()
        self.leaves.update(tape.backward(loss), B)

    def table(self) -> np.ndarray:
        """θ."""
        return self.leaves.counts.data()


class Dense:
    """What the two dense ways share: a table, its decay and its responsibilities."""

    def __init__(self, C: int) -> None:
        self.theta, self.steps = np.ones((C, L)), 0

    def step(self, log_leaves: np.ndarray, labels: np.ndarray) -> None:
        """One step."""
        log_q = np.log(self.theta / self.theta.sum(axis=0))
        U = self.update(log_leaves, log_q, labels)
        self.steps += 1
        alpha = max(1 / self.steps, 1 / BATCHES)
        self.theta = np.maximum((1 - alpha) * self.theta + U, 1e-30)

    def table(self) -> np.ndarray:
        """θ."""
        return self.theta


class OneHot(Dense):
    """U = Yᵀ r: a dense product, but a matrix product."""

    def update(self, log_leaves: np.ndarray, log_q: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """U (C, L)."""
        log_r = log_leaves + log_q[labels]
        r = np.exp(log_r - logsumexp(log_r, 1)[:, None])
        chosen = np.zeros((B, len(log_q)))
        chosen[np.arange(B), labels] = 1.0
        return chosen.T @ r


class LogSpace(Dense):
    """U = exp(logsumexp over examples), leaf by leaf."""

    def update(self, log_leaves: np.ndarray, log_q: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """U (C, L)."""
        log_p = logsumexp(log_leaves + log_q[labels], 1)[:, None]
        chosen = np.full((B, len(log_q)), -np.inf)
        chosen[np.arange(B), labels] = 0.0
        columns = [
            np.exp(logsumexp(log_leaves[:, leaf, None] + log_q[:, leaf] - log_p + chosen, 0))
            for leaf in range(L)
        ]
        return np.stack(columns, axis=1)


def steps(way: Ours | Dense, C: int) -> Callable[[], None]:
    """A step of a way, on other labels each time."""
    rng = np.random.default_rng(0)
    log_leaves = leaves_of(log_arrivals(rng.normal(size=(B, L - 1))))
    labels = cycle([rng.integers(0, C, B) for _ in range(64)])
    return lambda: way.step(log_leaves, next(labels))


def main() -> None:
    """Print times, factors, bytes and the difference by the number of classes."""
    heading(f"Leaf update: B = {B}, L = {L}, float64, normalised counts, one thread")
    ts.set_num_threads(1)
    with threadpool_limits(1):
        table()


def table() -> None:
    """A line for each number of classes, then ours over the largest of them."""
    ours = medians({C: steps(Ours(C), C) for C in SIZES}, 300)
    print(
        f"{'C':>8}{'ours ms':>10}{'MB':>7}{'one-hot ms':>12}{'MB':>8}{'factor':>8}"
        f"{'log space ms':>14}{'MB':>8}{'factor':>9}{'difference':>12}"
    )
    for C in SIZES:
        ways = {kind: kind(C) for kind in (Ours, OneHot, LogSpace)}
        runs = {kind: steps(way, C) for kind, way in ways.items()}
        times = medians(runs, min(30, 6_000 // C + 1))
        tables = [way.table() for way in ways.values()]
        difference = max(abs(t - tables[0]).max() for t in tables)
        peaks = [peak_bytes(run) / 1e6 for run in runs.values()]
        one_hot, log_space = times[OneHot], times[LogSpace]
        print(
            f"{C:8,}{times[Ours] * 1e3:10.2f}{peaks[0]:7.2f}{one_hot * 1e3:12.2f}{peaks[1]:8.1f}"
            f"{one_hot / times[Ours]:8.1f}{log_space * 1e3:14.1f}{peaks[2]:8.1f}"
            f"{log_space / times[Ours]:9.0f}{difference:12.1e}"
        )
    print(f"ours, C = 20,000 over 200: {ours[20_000] / ours[200]:.2f}")


if __name__ == "__main__":
    main()
