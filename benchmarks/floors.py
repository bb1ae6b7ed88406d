"""How near to memory's own speed the kernels are: bytes moved over time, as a part of the rates.

The rates are the machine's, measured in the same run by the plainest loops there are: a copy, a
gather of random rows, and a read, an addition and a write of random rows. A kernel's floor is the
time that its bytes would take at the rate of what it does most; the table says what part of the
kernel's time that is. Needs numba.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians
from tinygrad_sparse.backend import adapter_for
from tinygrad_sparse.backend.elements import prefetch
from tinygrad_sparse.optim import rules

V, D, K = 1_000_000, 128, 65_536
ROUNDS = 15
HYPER = {
    "sgd": {"lr": 1e-3},
    "adagrad": {"lr": 1e-3, "eps": 1e-10, "lr_decay": 0.0, "step": 10},
    "adam": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "step": 10},
}


@numba.njit(error_model="numpy")
def gather(table: Any, rows: Any, out: Any) -> None:
    """out[i] = table[rows[i]], each row asked for a few rows ahead."""
    for i in range(len(rows)):
        if i + 4 < len(rows):
            prefetch(table, rows[i + 4], 0)
        for c in range(table.shape[1]):
            out[i, c] = table[rows[i], c]


@numba.njit(error_model="numpy")
def modify(table: Any, rows: Any) -> None:
    """table[rows[i]] += 1, likewise."""
    for i in range(len(rows)):
        if i + 4 < len(rows):
            prefetch(table, rows[i + 4], 0)
        for c in range(table.shape[1]):
            table[rows[i], c] += np.float32(1)


def contestants(
    table: np.ndarray, rows: np.ndarray
) -> dict[str, tuple[Callable[[], object], int, str | None]]:
    """What is timed: (run, bytes moved, the rate it is held against)."""
    adapter = adapter_for("cpu")
    row, k = D * table.itemsize, len(rows)
    rng = np.random.default_rng(1)
    values, out = rng.standard_normal((k, D), np.float32), np.empty((k, D), np.float32)
    found: dict[str, tuple[Callable[[], object], int, str | None]] = {
        "copy": (partial(np.copyto, out, values), 2 * k * row, None),
        "gather": (lambda: gather(table, rows, out), 2 * k * row, None),
        "modify": (lambda: modify(table, rows), 2 * k * row, None),
        "take_rows": (lambda: adapter.take_rows(table, rows), 2 * k * row, "gather"),
        "sum_duplicates": (lambda: adapter.sum_duplicates(rows, values), 2 * k * row, "gather"),
    }
    for name, hyper in HYPER.items():
        rule = getattr(rules, name)
        mine = [np.abs(table) for _ in rule.slots]
        nbytes = (1 + 2 * (1 + len(mine))) * k * row  # the gradient, and each table twice

        def update(f: Any = rule.formula, mine: list[np.ndarray] = mine, h: Any = hyper) -> None:
            adapter.plan_update(f, rows, values, table, mine, h)()

        found[f"update, {name}"] = (update, nbytes, "modify")
    return found


def main(threads: int = 1) -> None:
    """Print rates and parts of them."""
    ts.set_num_threads(threads)
    heading(f"Floors: V = {V:,}, d = {D}, k = {K:,} different rows, float32, threads: {threads}")
    rng = np.random.default_rng(0)
    table = rng.standard_normal((V, D), np.float32)
    rows = rng.choice(V, K, replace=False)
    runs = contestants(table, rows)
    times = medians({name: run for name, (run, _, _) in runs.items()}, ROUNDS)
    rates = {name: nbytes / times[name] for name, (_, nbytes, _) in runs.items()}
    print(f"{'':18}{'ms':>9}{'GB/s':>8}{'part of the rate':>20}")
    for name, (_, _, of) in runs.items():
        part = "" if of is None else f"{rates[name] / rates[of]:12.2f} of {of}"
        print(f"{name:18}{times[name] * 1e3:9.2f}{rates[name] / 1e9:8.2f}{part:>20}")


if __name__ == "__main__":
    main()
