"""A table larger than memory, on a sparse file: its step beside the step of a small one.

``python -m benchmarks.table_on_file FOLDER``, on a disk that keeps files sparse, with 5 GB of room.
A child process is killed in the middle of its steps; then the file is opened again and compared
with a table that was trained in memory.
"""

import argparse
import resource
import signal
import subprocess
import sys
import tempfile
from itertools import cycle
from pathlib import Path

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians

K, D = 4096, 64
LARGE, SMALL = 100_000_000, 100_000
WORKING = 20_000  # rows of either table that most steps are about
INIT = ts.normal_rows(0.1, seed=7)
OPTIMIZERS = {"SGD": ts.optim.SGD, "Adagrad": ts.optim.Adagrad, "Adam": ts.optim.Adam}


def step(W: ts.Tensor, opt: ts.optim.Optimizer, ids: np.ndarray) -> None:
    """Lookup, square-sum, backward, update."""
    with ts.Tape() as tape:
        rows = W[ids]
        loss = (rows * rows).sum()
    opt.step(tape.backward(loss))


def batches(V: int, seed: int, count: int) -> list[np.ndarray]:
    """Ids of a working set that is spread over the whole table."""
    rng = np.random.default_rng(seed)
    working = rng.integers(0, V, WORKING)
    return [working[rng.integers(0, WORKING, K)] for _ in range(count)]


def times(folder: Path) -> None:
    """Print times of a step: rows that were touched before, and rows that come new."""
    print(f"{'':10}{'small ms':>10}{'large ms':>10}{'ratio':>8}{'new rows, small':>18}{'large':>8}")
    for name, optimizer in OPTIMIZERS.items():
        runs, fresh = {}, {}
        for V in (SMALL, LARGE):
            W = ts.parameter_file(folder / f"{name}{V}.npy", (V, D), init=INIT)
            opt = optimizer([W], lr=1e-3)
            ids = batches(V, 0, 64)
            for some in ids:  # the working set is there, in the page cache
                step(W, opt, some)
            again = cycle(ids)
            rng = np.random.default_rng(1)
            runs[V] = lambda W=W, opt=opt, again=again: step(W, opt, next(again))
            fresh[V] = lambda W=W, opt=opt, rng=rng, V=V: step(W, opt, rng.integers(0, V, K))
        known, new = medians(runs, 60), medians(fresh, 10)
        print(
            f"{name:10}{known[SMALL] * 1e3:10.2f}{known[LARGE] * 1e3:10.2f}"
            f"{known[LARGE] / known[SMALL]:8.2f}{new[SMALL] * 1e3:18.2f}{new[LARGE] * 1e3:8.2f}"
        )
    path = folder / f"SGD{LARGE}.npy"
    size, room = path.stat().st_size, path.stat().st_blocks * 512
    print(f"file {size / 1e9:.1f} GB, of which {room / 1e9:.2f} GB on the disk")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"peak resident memory {peak / 1e9:.2f} GB, pages of the files among it")


def train(path: Path, steps: int) -> None:
    """The child: so many steps, then word that they are done, then on and on until it is killed."""
    W = ts.parameter_file(path, (LARGE, D), init=INIT)
    opt = ts.optim.SGD([W], lr=1e-3)
    for ids in batches(LARGE, 3, steps):
        step(W, opt, ids)
    print("done", flush=True)
    # Rows that the first steps did not touch: these may be killed at any point.
    others = np.setdiff1d(np.arange(K * 4), np.concatenate(batches(LARGE, 3, steps)))
    while True:
        step(W, opt, others)


def killed(folder: Path, steps: int = 50) -> None:
    """Kill a process in the middle of a step, open the file and compare."""
    path = folder / "killed.npy"
    command = [sys.executable, "-m", "benchmarks.table_on_file", str(path), "--train", str(steps)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == b"done"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    W = ts.parameter_file(path, (LARGE, D), init=INIT)
    ids = np.concatenate(batches(LARGE, 3, steps))
    touched, places = np.unique(ids, return_inverse=True)
    mine = ts.parameter(INIT(touched, (D,)))
    opt = ts.optim.SGD([mine], lr=1e-3)
    for some in places.reshape(steps, K):
        step(mine, opt, some)
    same = np.array_equal(W[touched].numpy(), mine.data)
    print(f"killed and opened again: {len(touched):,} rows of {steps} steps are the same: {same}")


def main() -> None:
    """Print the table, in a folder that is gone afterwards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to make the files")
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.folder, arguments.train)
        return
    heading(f"Tables on files: V = {SMALL:,} and {LARGE:,}, d = {D}, float32, k = {K}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        times(Path(folder))
        killed(Path(folder))


if __name__ == "__main__":
    main()
