"""What the exact meaning costs, beside lazy and dense, as V grows; and the state that it keeps."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

import tinygrad_sparse as ts
from benchmarks import peers
from benchmarks.timing import heading, medians
from tinygrad_sparse import optim

K, FEW, D = 4096, 256, 64
BATCHES = 64  # a row comes back after this many steps, so exact always has a gap to catch up
RULES: dict[str, Callable[..., optim.Optimizer]] = {
    "Adam": lambda p, **how: optim.Adam([p], lr=1e-3, **how),
    "AdamW": lambda p, **how: optim.AdamW([p], lr=1e-3, **how),
    "SGD, momentum, decay": lambda p, **how: optim.SGD(
        [p], lr=1e-3, momentum=0.9, weight_decay=1e-4, **how
    ),
}


def batches(V: int, k: int) -> Any:
    """Ids of k lookups a step, over and over."""
    rng = np.random.default_rng(0)
    return cycle([rng.integers(0, V, k) for _ in range(BATCHES)])


def contestant(
    V: int, make: Callable[..., optim.Optimizer], meaning: str, k: int = K
) -> Callable[[], None]:
    """A training step: lookup of k ids, sum of squares, backward, optimizer."""
    W = ts.parameter(np.ones((V, D), np.float32))
    opt = make(W) if meaning == "dense" else make(W, sparse=meaning)
    ids = batches(V, k)

    def step() -> None:
        with ts.Tape() as tape:
            rows = W[next(ids)]
            loss = (rows * rows).sum()
        grads = tape.backward(loss)
        opt.step(grads.to_dense() if meaning == "dense" else grads)

    for _ in range(0 if meaning == "dense" else BATCHES + 6):
        step()
    return step


def torch_dense(V: int) -> Callable[[], None] | None:
    """The same step with PyTorch's dense Adam, where PyTorch is installed."""
    try:
        import torch
    except ImportError:
        return None
    W = torch.ones((V, D), requires_grad=True)
    opt = torch.optim.Adam([W], lr=1e-3)
    ids = batches(V, K)

    def step() -> None:
        rows = W[torch.from_numpy(next(ids))]
        (rows * rows).sum().backward()
        opt.step()
        opt.zero_grad()

    return step


def beside_the_others(V: int) -> None:
    """Exact over lazy, and the dense step over exact."""
    threads = ts.get_num_threads()
    peers.set_num_threads(threads)  # as many for everybody
    heading(
        f"Exact, lazy, dense: V = {V:,}, d = {D}, k = {K}, float32, one training step, "
        f"{threads} threads"
    )
    print(
        f"{'':24}{'lazy ms':>9}{'exact ms':>10}{'exact/lazy':>12}{'dense ms':>10}"
        f"{'dense/exact':>13}"
    )
    for name, make in RULES.items():
        fast = medians({how: contestant(V, make, how) for how in ("lazy", "exact")}, 30)
        slow = {"dense": contestant(V, make, "dense")}
        peer = torch_dense(V) if name == "Adam" else None
        if peer is not None:
            slow["torch"] = peer
        slowly = medians(slow, 2)
        print(
            f"{name:24}{fast['lazy'] * 1e3:9.2f}{fast['exact'] * 1e3:10.2f}"
            f"{fast['exact'] / fast['lazy']:12.2f}{slowly['dense'] * 1e3:10.1f}"
            f"{slowly['dense'] / fast['exact']:13.1f}"
        )
        if "torch" in slowly:
            print(
                f"{'PyTorch Adam, dense':24}{'':31}{slowly['torch'] * 1e3:10.1f}"
                f"{slowly['torch'] / fast['exact']:13.1f}"
            )


def with_few_ids(V: int) -> None:
    """Exact over lazy in small batches, where what a step costs whatever it touches counts."""
    heading(f"Exact and lazy: V = {V:,}, d = {D}, k = {FEW}, float32")
    for name, make in RULES.items():
        times = medians({how: contestant(V, make, how, FEW) for how in ("lazy", "exact")}, 100)
        lazy, exact = times["lazy"], times["exact"]
        print(
            f"{name:24}lazy {lazy * 1e3:.3f} ms   exact {exact * 1e3:.3f} ms   {exact / lazy:.2f}"
        )


def as_the_table_grows(sizes: tuple[int, ...]) -> None:
    """The exact step of each rule on tables of growing size, taking turns."""
    heading(f"Exact, as V grows: d = {D}, k = {K}, float32")
    for name, make in RULES.items():
        times = medians({V: contestant(V, make, "exact") for V in sizes}, 20)
        line = "   ".join(f"V = {V:,}: {times[V] * 1e3:.2f} ms" for V in sizes)
        print(f"{name:24}{line}   last over first: {times[sizes[-1]] / times[sizes[0]]:.2f}")


def state_of_few_rows(V: int) -> None:
    """Bytes of state once 1 % of the rows were touched, beside the full tables of a dense run."""
    heading(f"State: V = {V:,}, d = {D}, float32, 1 % of the rows touched")
    touched = np.random.default_rng(0).permutation(V)[: V // 100]
    momentum = {"SGD, momentum": lambda p: optim.SGD([p], lr=1e-3, momentum=0.9)}
    for name, make in (RULES | momentum).items():
        W = ts.parameter(np.zeros((V, D), np.float32))  # memory that is reserved, not yet used
        opt = make(W)
        for ids in np.array_split(touched, 25):
            with ts.Tape(densify="raise") as tape:
                loss = W[ids].sum()
            opt.step(tape.backward(loss))
        full = W.nbytes * len(opt.rule.slots)
        held = opt.state_bytes()
        print(f"{name:24}{held / 2**20:9.1f} MiB of {full / 2**20:9.1f}{held / full:8.1%}")


def main() -> None:
    """Print all tables."""
    beside_the_others(1_000_000)
    with_few_ids(1_000_000)
    as_the_table_grows((100_000, 1_000_000, 10_000_000))
    state_of_few_rows(10_000_000)


if __name__ == "__main__":
    main()
