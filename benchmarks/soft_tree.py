"""A training step of a soft decision tree, beside the same tree in PyTorch where that is installed.

Dense: 784 features, 10 classes, as for images. Many classes: 19,269 features of which a row has 11,
3,887 classes, as for WordNet's glosses. All use one thread and Adam. The data are random: a step
costs the same whatever they mean.
"""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.timing import heading, medians, peak_bytes
from examples.soft_decision_tree import SoftDecisionTreeClassifier
from examples.soft_decision_tree.model import Data

DEPTH, B = 8, 128


def ours(X: Any, C: int, leaves: str) -> Callable[[], object]:
    """A step of the estimator's model, on another batch each time."""
    tree = SoftDecisionTreeClassifier(DEPTH, leaves=leaves, random_state=0, schedule="constant")
    tree.partial_fit(X[:B], np.arange(B) % C, classes=np.arange(C))
    model = tree._model
    model.leaves.begin_epoch(X.shape[0] // B, stream=False)
    labels = np.random.default_rng(0).integers(0, C, X.shape[0])
    ones = np.ones(B)
    parts = [slice(i, i + B) for i in range(0, X.shape[0], B)]
    batches = cycle([Data(X[part], labels[part], ones) for part in parts])
    return lambda: model.step(next(batches))


def torch_tree(X: Any, C: int) -> Callable[[], object] | None:
    """The same tree with gradient leaves in PyTorch; None if that is not there."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    D, N, L = X.shape[1], 2**DEPTH - 1, 2**DEPTH
    weight = torch.nn.Parameter(torch.randn(D, N) / D**0.5)
    bias = torch.nn.Parameter(torch.zeros(N))
    logits = torch.nn.Parameter(torch.randn(C, L))
    optimizer = torch.optim.Adam([weight, bias, logits], lr=1e-3)
    labels = torch.from_numpy(np.random.default_rng(0).integers(0, C, X.shape[0]))
    batches = cycle(range(0, X.shape[0], B))

    def gates(start: int) -> Any:
        x = X[start : start + B]
        if not sparse.issparse(x):
            return torch.from_numpy(x) @ weight + bias
        columns, values = torch.from_numpy(x.indices).long(), torch.from_numpy(x.data)
        bounds = torch.from_numpy(x.indptr[:-1]).long()
        return bias + torch.nn.functional.embedding_bag(
            columns, weight, bounds, mode="sum", per_sample_weights=values
        )

    def step() -> None:
        start = next(batches)
        z = gates(start)
        right, left = torch.nn.functional.logsigmoid(z), torch.nn.functional.logsigmoid(-z)
        arrival = torch.zeros(B, 1)
        penalty = torch.zeros(())
        for k in range(DEPTH):
            level = slice(2**k - 1, 2 ** (k + 1) - 1)
            sides = torch.stack([arrival + left[:, level], arrival + right[:, level]], -1)
            share = torch.logsumexp(sides, 0) - torch.logsumexp(arrival, 0)[:, None]
            penalty = penalty - 0.05 * 0.5**k * share.sum()
            arrival = sides.reshape(B, -1)
        rows = (logits - torch.logsumexp(logits, 0))[labels[start : start + B]]
        loss = penalty - torch.logsumexp(arrival + rows, 1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def compare(title: str, X: Any, C: int, rounds: int) -> None:
    """One table."""
    print(f"\n{title}\n{'':34}{'ms a step':>10}{'peak MB':>9}{'over first':>11}")
    runs = {
        "leaves that count": ours(X, C, "derivative_free"),
        "leaves by gradient": ours(X, C, "gradient"),
    }
    if (torch_step := torch_tree(X, C)) is not None:
        runs["PyTorch, leaves by gradient"] = torch_step
    times = medians(runs, rounds)
    first = times["leaves that count"]
    for name, seconds in times.items():
        peak = "-" if "PyTorch" in name else f"{peak_bytes(runs[name]) / 1e6:.1f}"
        print(f"{name:34}{seconds * 1e3:10.2f}{peak:>9}{seconds / first:11.2f}")


def main() -> None:
    """Print both tables."""
    heading(f"Soft tree: a training step, depth {DEPTH}, B = {B}, float32, one thread")
    rng = np.random.default_rng(0)
    dense = rng.uniform(0, 1, (16 * B, 784)).astype(np.float32)
    compare("dense: 784 features, 10 classes", dense, 10, 60)
    D, each = 19_269, 11
    columns = rng.integers(0, D, 16 * B * each)
    values = np.full(columns.size, each**-0.5, np.float32)
    rows = sparse.csr_array(
        (values, columns, np.arange(0, columns.size + 1, each)), shape=(16 * B, D)
    )
    rows.sum_duplicates()
    compare(f"sparse: {each} of {D:,} features, 3,887 classes", rows, 3_887, 20)


if __name__ == "__main__":
    main()
