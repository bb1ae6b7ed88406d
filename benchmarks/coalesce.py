"""Summing repeated rows, alone: both adapters of this package beside PyTorch's coalesce."""

from collections.abc import Callable

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians
from tinygrad_sparse.backend import adapter_for
from tinygrad_sparse.backend import numpy as numpy_adapter

try:
    import torch
except ImportError:
    torch = None

V = 100_000
SIZES = ((256, 64), (4096, 64), (65536, 16), (65536, 64), (65536, 300))
DRAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "uniform": lambda rng, n: rng.integers(0, V, n),
    "Zipf": lambda rng, n: np.minimum(rng.zipf(1.2, n), V) - 1,  # as words come in a text
}


def main(threads: int = 1) -> None:
    """Print milliseconds, and how many times longer the others take."""
    ts.set_num_threads(threads)
    heading(f"Coalesce: n rows of d floats into a table of {V:,}, float32, threads: {threads}")
    names = ["this package", "its NumPy"] + (["PyTorch"] if torch else [])
    print(f"{'ids':10}{'n':>8}{'d':>5}{'unique':>9}" + "".join(f"{name:>22}" for name in names))
    rng = np.random.default_rng(0)
    adapter = adapter_for("cpu")
    for draw, (n, d) in ((draw, size) for draw in DRAWS for size in SIZES):
        ids, values = DRAWS[draw](rng, n), rng.normal(size=(n, d)).astype(np.float32)
        contestants = {
            "this package": lambda i=ids, v=values: adapter.sum_duplicates(i, v),
            "its NumPy": lambda i=ids, v=values: numpy_adapter.sum_duplicates(i, v),
        }
        if torch:
            torch.set_num_threads(threads)
            i, v = torch.from_numpy(ids)[None], torch.from_numpy(values)
            contestants["PyTorch"] = lambda i=i, v=v: torch.sparse_coo_tensor(
                i, v, (V, v.shape[1]), check_invariants=False
            ).coalesce()
        times = medians(contestants, 200 if n < 10_000 else 20)
        print(
            f"{draw:10}{n:8,}{d:5}{len(np.unique(ids)):9,}"
            + "".join(
                f"{times[name] * 1e3:12.3f} ms {times[name] / times[names[0]]:5.1f}x"
                for name in names
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
