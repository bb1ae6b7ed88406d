"""The tree, its leaves and their training: steps, epochs, stopping early.

A step is one forward and one backward pass. The gates (and leaves that are trained by gradient)
then take an Adam step, and leaves that count take theirs, with what the same pass found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from tqdm import tqdm

import tinygrad_sparse as ts
from tinygrad_sparse import ops, optim
from tinygrad_sparse.errors import CheckpointError, explain
from tinygrad_sparse.nn.soft_tree import PathPenalty, SoftTree, SparseRows, leaves_of

from .counts import Arrays, host, on
from .leaves import Leaves

SLOW = 0.05
EPS = 1e-8  # Adam's
CHUNK = 2**22  # features measured at a time


class Data(NamedTuple):
    """Examples x (n, D), dense or CSR; their targets (n,); their weights (n,), all positive."""

    x: Any
    targets: np.ndarray
    weights: np.ndarray

    def take(self, rows: Any) -> Data:
        """Some of the examples."""
        return Data(self.x[rows], self.targets[rows], self.weights[rows])


def rows_of_csr(x: Any) -> SparseRows:
    """A CSR matrix by its non-zeros."""
    rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    return SparseRows(rows, x.indices, x.data, x.shape[0])


class Size(NamedTuple):
    """How large examples are: what makes a step mean the same in any unit of the features."""

    reach: float = 1.0  # mean of Σ|x|: a weight step of 1/reach moves a logit by up to 1
    length: float = 1.0  # root of the mean of Σx²: weights of 1/length give logits of variance 1

    @staticmethod
    def of(data: Data) -> Size:
        """Of some examples; 1 where all are zero.

        Raises ValueError where they are so large or small that squares, which Adam takes of
        gradients, would not be numbers of their dtype.
        """
        reach = square = 0.0
        rows = max(1, CHUNK // data.x.shape[1])
        with np.errstate(over="ignore", under="ignore"):
            for start in range(0, data.x.shape[0], rows):
                x = abs(data.x[start : start + rows].astype(np.float64, copy=False))
                weights = data.weights[start : start + rows].astype(np.float64, copy=False)
                squares = x.multiply(x) if sparse.issparse(x) else x * x
                reach += float(np.asarray(x.sum(axis=1)).ravel() @ weights)
                square += float(np.asarray(squares.sum(axis=1)).ravel() @ weights)
        total = float(data.weights.sum(dtype=np.float64))
        size = Size(reach / total or 1.0, (square / total) ** 0.5 or 1.0)
        big = float(np.finfo(data.x.dtype).max) ** 0.25
        if not (1 / big <= min(size) and max(size) <= big):
            raise ValueError(
                f"X: expected {data.x.dtype} features whose length and sum of sizes are from"
                f" {1 / big:.0e} to {big:.0e}, got {size.length:.3g} and {size.reach:.3g}."
                " Hint: put a scaler in front."
            )
        return size


class Model:
    """Everything that training changes; picklable and savable through `arrays`.

    `rate` says how far one step may move the logit of a typical example. What every example sees
    (biases, temperatures, leaves trained by gradient) moves by `SLOW` of it.
    """

    def __init__(self, tree: SoftTree, leaves: Leaves, penalty: PathPenalty, size: Size) -> None:
        self.tree, self.leaves, self.penalty, self.size = tree, leaves, penalty, size
        others = [*tree.parameters()[1:], *leaves.trained]
        # Lazy matters for sparse x only: a gate's weights for a feature move when it is seen.
        self.optimizer = optim.Adam([{"params": [tree.weight]}, {"params": others}], sparse="lazy")

    def set_rate(self, rate: float) -> None:
        """Say how far the next step may go."""
        weights, others = self.optimizer.groups
        if not (lr := rate / self.size.reach) <= float(np.finfo(self.dtype).max):
            raise ValueError(f"learning_rate: expected steps that {self.dtype} holds, got {lr}")
        weights["lr"], weights["eps"] = lr, EPS * self.size.length
        others["lr"] = rate * SLOW

    @property
    def dtype(self) -> Any:
        """Of the weights, and so of the features."""
        return self.tree.weight.dtype

    @property
    def beta(self) -> np.ndarray:
        """The inverse temperatures of the gates, (N,)."""
        beta = self.tree.beta
        return host(beta.data if isinstance(beta, ts.Tensor) else beta)

    @property
    def device(self) -> str:
        """Where all of it is."""
        return self.tree.weight.device

    def given(self, x: Any) -> Any:
        """Examples as the tree takes them, where it is."""
        if not sparse.issparse(x):
            return on(self.device, x)
        rows = rows_of_csr(x)
        return rows._replace(values=on(self.device, rows.values))

    def step(self, batch: Data) -> float:
        """Learn from a batch; the weighted mean loss of its examples, penalty aside."""
        weight = float(batch.weights.sum())
        with ts.Tape(densify="raise") as tape:
            log_nodes = self.tree(self.given(batch.x))
            losses = self.leaves.losses(leaves_of(log_nodes), batch.targets)
            shares = on(self.device, (batch.weights / weight).astype(losses.dtype))
            loss = fit = ops.sum(losses * shares)
            if self.penalty.charge.any():
                even = (batch.weights == 1.0).all()
                weights = None if even else on(self.device, np.log(batch.weights))
                loss = fit + self.penalty(log_nodes, weights)
        if not np.isfinite(found := loss.item()):
            hint = "lower learning_rate, inverse_temperature or penalty"
            raise ValueError(f"fit: expected a finite loss, got {found}. Hint: {hint}.")
        grads = tape.backward(loss)
        self.optimizer.step(grads)
        self.leaves.update(grads, weight)
        return fit.item()

    @contextmanager
    def savepoint(self, data: Data, batches: int, stream: bool) -> Iterator[None]:
        """A block of so many batches of these examples: if it raises, nothing has changed.

        What is kept is what they touch: of a sparse x the weights of its features.
        """
        seen = {self.tree.weight: data.x.indices} if sparse.issparse(data.x) else None
        past = self.penalty.past
        try:
            with (
                self.optimizer.savepoint(seen),
                self.leaves.savepoint(data.targets, batches, stream),
            ):
                yield
        except BaseException:
            self.penalty.past = past
            raise

    def log_nodes(self, x: Any) -> np.ndarray:
        """The log-probabilities that examples arrive at the nodes, (n, 2N + 1)."""
        with ts.no_grad():
            return host(self.tree(self.given(x)).data)

    # -- state -------------------------------------------------------------------------------

    def arrays(self) -> Arrays:
        """All that training has changed, as named arrays."""
        state = self.optimizer.state_dict()
        slots = {
            f"optimizer.{i}.{j}": slot
            for i, slots in enumerate(state["slots"])
            for j, slot in enumerate(slots)
        }
        rows = {f"rows.{i}": ids for i, ids in enumerate(state["rows"]) if ids is not None}
        past = {} if self.penalty.past is None else {"penalty.past": host(self.penalty.past)}
        return {
            **{f"tree.{name}": a for name, a in self.tree.state_dict().items()},
            **{f"leaves.{name}": a for name, a in self.leaves.arrays().items()},
            "size": np.array(self.size),
            **{f"optimizer.{name}": np.array(state[name]) for name in ("calls", "steps", "leads")},
            "optimizer.rules": np.array([rule or "" for rule in state["rules"]]),
            **slots,
            **rows,
            **past,
        }

    def load(self, arrays: Arrays) -> None:
        """Go on from `arrays`. Raises CheckpointError where they do not fit this model."""
        self.tree.load_state_dict(part(arrays, "tree."))
        self.leaves.load(part(arrays, "leaves."))
        size = arrays["size"]
        if size.dtype != np.float64 or size.shape != (2,) or not (0 < size).all():
            raise CheckpointError(explain("load", "a size of two numbers > 0", f"{size}"))
        self.size = Size(*size.tolist())
        slots, rows = part(arrays, "optimizer."), part(arrays, "rows.")
        numbers = {name: slots[name].tolist() for name in ("calls", "steps", "leads")}
        count = len(numbers["steps"])
        state = self.optimizer.state_dict() | {
            **numbers,
            "rules": [rule or None for rule in slots["rules"].tolist()],
            "slots": [
                [slots[f"{i}.{j}"] for j in range(2) if f"{i}.{j}" in slots] for i in range(count)
            ],
            "rows": [rows.get(str(i)) for i in range(count)],
        }
        self.optimizer.load_state_dict(state)
        past = arrays.get("penalty.past")
        if past is not None and past.shape != (wanted := (2, len(self.penalty.charge))):
            raise CheckpointError(explain("load", f"penalty.past {wanted}", f"{past.shape}"))
        self.penalty.past = None if past is None else on(self.device, past)


def part(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays under a prefix, without it."""
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


class Plan(NamedTuple):
    """How long and how fast to train."""

    batch_size: int
    learning_rate: float
    epochs: int = 1
    schedule: str = "constant"  # or "linear": falls evenly to 0
    patience: int = 1  # epochs without a better validation score
    tol: float = 0.0  # what counts as better
    verbose: bool = False
    stream: bool = False  # more examples will come: an epoch is not all there is
    again: bool = False  # the model has learned before: what it was may be the best

    def batches(self, data: Data) -> int:
        """Those of an epoch."""
        return -(-len(data.targets) // self.batch_size)


class History(NamedTuple):
    """What the epochs showed."""

    losses: list[float]
    scores: list[float]  # on the validation part; empty without one


def train(
    model: Model, data: Data, plan: Plan, rng: Any, score: Callable[[], float] | None = None
) -> History:
    """Train for `plan.epochs` epochs; with `score`, stop early and go back to the best epoch."""
    n, batches = len(data.targets), plan.batches(data)
    history = History([], [])
    best, best_score, best_epoch = None, -np.inf, -1
    if score is not None and plan.again:
        best, best_score = model.arrays(), score()
    total = plan.epochs * batches
    decay = (
        optim.linear_decay if plan.schedule == "linear" else lambda rate, _: optim.constant(rate)
    )
    rate = decay(plan.learning_rate, total)
    with tqdm(total=total, unit=" batches", disable=not plan.verbose) as bar:
        for epoch in range(plan.epochs):
            model.leaves.begin_epoch(batches, plan.stream)
            order = rng.permutation(n)
            loss = 0.0
            for k in range(batches):
                model.set_rate(rate(epoch * batches + k + 1))
                batch = data if batches == 1 else data.take(order[k::batches])
                loss += model.step(batch) * float(batch.weights.sum())
                bar.update()
            history.losses.append(loss / float(data.weights.sum()))
            told = f"epoch {epoch + 1}, loss {history.losses[-1]:.3f}"
            if score is not None:
                history.scores.append(score())
                told += f", validation {history.scores[-1]:.3f}"
                if history.scores[-1] > best_score + plan.tol:
                    best, best_score, best_epoch = model.arrays(), history.scores[-1], epoch
            bar.set_postfix_str(told)
            if score is not None and epoch - best_epoch >= plan.patience:
                break
    if best is not None:
        model.load(best)
    if not plan.stream and not np.isfinite(host(model.tree.weight.data)).all():
        raise ValueError("fit: expected finite weights, got others. Hint: lower learning_rate.")
    return history
