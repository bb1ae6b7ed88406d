"""Training of a soft decision tree, beside the same tree in PyTorch where that is installed.

    python -m benchmarks.soft_tree                         # random examples
    python -m benchmarks.soft_tree --data FOLDER           # an epoch of what --data names
    python -m benchmarks.soft_tree --data data.noun --rounds 100

Random examples are of two kinds. Dense: 784 features, 10 classes, as for images. Many classes:
19,269 features of which a row has 11, 3,887 classes, as for WordNet's glosses.

All use one thread and take turns. They start from the same weights and see the same batches, so
those with leaves by gradient are one tree: their losses, at the end, are the same number. One of
them writes the loss in its dense form, by the (B, C) probabilities of all classes.
"""

import argparse
from collections.abc import Callable
from itertools import cycle
from statistics import mean
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians, peak_bytes
from examples.soft_decision_tree.data import read
from examples.soft_decision_tree.leaves import CountedLeaves, GradientLeaves
from examples.soft_decision_tree.model import Data, Model, Size
from tinygrad_sparse import ops
from tinygrad_sparse.nn.soft_tree import PathPenalty, SoftTree

DEPTH, B = 8, 128
PENALTY, RATE = 0.1, 1.0  # as the estimator has them
LAST = 10  # steps whose mean loss is shown

Step = Callable[[Data], float]


class DenseFormLeaves(GradientLeaves):
    """The same leaves by another road: all probabilities, (B, C), then one in each row."""

    def losses(self, log_leaves: Any, labels: np.ndarray) -> Any:
        """-log p_i(y_i), (B,)."""
        p = ops.exp(log_leaves) @ ops.softmax(self.logits, 0).T
        one_hot = np.zeros(p.shape, p.dtype)
        one_hot[np.arange(len(labels)), labels] = 1.0
        return -ops.log(ops.sum(p * one_hot, 1))


def ours(data: Data, C: int, kind: str, batches: int) -> Model:
    """The example's model as an estimator would build it, before its first step."""
    size, dtype = Size.of(data), data.x.dtype
    tree = SoftTree(data.x.shape[1], DEPTH, std=1.0 / size.length, seed=0, dtype=dtype)
    if kind == "counted":
        leaves: Any = CountedLeaves(C, 2**DEPTH, dtype=dtype)
    else:
        by_gradient = DenseFormLeaves if kind == "dense form" else GradientLeaves
        leaves = by_gradient(C, 2**DEPTH, np.random.RandomState(0), dtype)
    leaves.begin_epoch(batches, stream=False)
    model = Model(tree, leaves, PathPenalty(DEPTH, PENALTY), size)
    model.set_rate(RATE)
    return model


def pytorch(like: Model) -> Step | None:
    """A step of the same tree in PyTorch, from the weights of `like`; None if that is not there."""
    try:
        import torch
    except ImportError:
        return None
    from torch.nn.functional import embedding_bag, logsigmoid

    torch.set_num_threads(1)
    weight, bias, logits = (
        torch.nn.Parameter(torch.from_numpy(np.array(p.data)))
        for p in (like.tree.weight, like.tree.bias, like.leaves.logits)
    )
    of_weights, of_others = like.optimizer.groups
    rates = {"lr": of_weights["lr"], "eps": of_weights["eps"]}
    others = torch.optim.Adam([bias, logits], lr=of_others["lr"], eps=of_others["eps"])
    charge = torch.from_numpy(like.penalty.charge).float()
    log_memory = torch.from_numpy(like.penalty.log_memory).float()
    past = torch.full((2, len(charge)), -torch.inf)
    optimizers: list[Any] = []
    steps = 0

    def gates(x: Any) -> Any:
        if not sparse.issparse(x):
            return torch.from_numpy(x) @ weight + bias
        columns, values = torch.from_numpy(x.indices).long(), torch.from_numpy(x.data)
        bounds = torch.from_numpy(x.indptr[:-1]).long()
        summed = embedding_bag(
            columns, weight, bounds, mode="sum", per_sample_weights=values, sparse=True
        )
        return summed + bias

    def step(batch: Data) -> float:
        nonlocal past, steps
        if not optimizers:
            lazy = sparse.issparse(batch.x)
            of_table = (torch.optim.SparseAdam if lazy else torch.optim.Adam)([weight], **rates)
            optimizers.extend([of_table, others])
        z = gates(batch.x)
        right, left = logsigmoid(z), logsigmoid(-z)
        arrival = torch.zeros(z.shape[0], 1)
        levels = []
        for k in range(DEPTH):
            level = slice(2**k - 1, 2 ** (k + 1) - 1)
            sides = torch.stack([arrival + left[:, level], arrival + right[:, level]], -1)
            levels.append(torch.logsumexp(sides, 0))
            arrival = sides.flatten(1)
        shares = torch.logaddexp(torch.cat(levels).T, past + log_memory)
        past = shares.detach()
        penalty = -(charge * (shares - torch.logsumexp(shares, 0))).sum()
        labels = torch.from_numpy(batch.targets)
        rows = logits[labels] - torch.logsumexp(logits, 0)
        fit = -torch.logsumexp(arrival + rows, 1).mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        (fit + penalty).backward()
        steps += 1
        if sparse.issparse(batch.x):  # SparseAdam adds ε to √v where Adam adds it to √v̂
            optimizers[0].param_groups[0]["eps"] = rates["eps"] * (1 - 0.999**steps) ** 0.5
        for optimizer in optimizers:
            optimizer.step()
        return fit.item()

    return step


def compare(title: str, data: Data, C: int, rounds: int) -> None:
    """One table: `rounds` steps of each, on the same batches."""
    order = np.random.default_rng(0).permutation(len(data.targets))
    batches = [data.take(order[i : i + B]) for i in range(0, len(order) - B + 1, B)]
    by_gradient = ours(data, C, "gradient", len(batches))
    steps: dict[str, Step] = {
        "leaves that count": ours(data, C, "counted", len(batches)).step,
        "leaves by gradient": by_gradient.step,
        "leaves by gradient, dense form": ours(data, C, "dense form", len(batches)).step,
    }
    if (torch_step := pytorch(by_gradient)) is not None:
        steps["PyTorch, leaves by gradient"] = torch_step
    losses: dict[str, list[float]] = {name: [] for name in steps}

    def run(name: str) -> Callable[[], None]:
        turns = cycle(batches)
        return lambda: losses[name].append(steps[name](next(turns)))

    runs = {name: run(name) for name in steps}
    ts.set_num_threads(1)
    with threadpool_limits(1):
        times = medians(runs, rounds)
    last = {name: mean(of_one[-LAST:]) for name, of_one in losses.items()}
    first = times["leaves that count"]
    print(f"\n{title}, {rounds + 1} steps")
    print(f"{'':34}{'ms a step':>10}{'over first':>11}{'peak MB':>9}{'loss at the end':>17}")
    for name, seconds in times.items():
        peak = "-" if "PyTorch" in name else f"{peak_bytes(runs[name]) / 1e6:.1f}"
        print(f"{name:34}{seconds * 1e3:10.2f}{seconds / first:11.2f}{peak:>9}{last[name]:17.4f}")


def dense_examples(n: int) -> Data:
    """Rows as of images; they mean nothing."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (n, 784)).astype(np.float32)
    return Data(x, rng.integers(0, 10, n), np.ones(n))


def sparse_examples(n: int) -> Data:
    """Rows as of short texts; they mean nothing."""
    rng = np.random.default_rng(0)
    D, each = 19_269, 11
    columns = rng.integers(0, D, n * each)
    values = np.full(columns.size, each**-0.5, np.float32)
    bounds = np.arange(0, columns.size + 1, each)
    x = sparse.csr_array((values, columns, bounds), shape=(n, D))
    x.sum_duplicates()
    return Data(x, rng.integers(0, 3_887, n), np.ones(n))


def main(source: str | None = None, rounds: int | None = None) -> None:
    """Print the tables: of random examples, or of what `source` names."""
    heading(f"Soft tree: training, depth {DEPTH}, B = {B}, float32, one thread")
    if source is None:
        compare("dense: 784 features, 10 classes", dense_examples(16 * B), 10, rounds or 60)
        title = "sparse: 11 of 19,269 features, 3,887 classes"
        compare(title, sparse_examples(16 * B), 3_887, rounds or 20)
        return
    examples = read(source)
    classes, labels = np.unique(examples.y, return_inverse=True)
    n, D = examples.X.shape
    title = f"{n:,} examples, {D:,} features, {len(classes):,} classes"
    compare(title, Data(examples.X, labels, np.ones(n)), len(classes), rounds or n // B - 1)


if __name__ == "__main__":
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--data", metavar="NAME|PATH")
    p.add_argument("--rounds", type=int)
    options = p.parse_args()
    main(options.data, options.rounds)
