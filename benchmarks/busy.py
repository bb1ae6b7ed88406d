"""The same steps on a quiet machine and with one core kept busy by another process, in turns.

Work that is shared out waits for its slowest thread; on a busy machine that can cost far more than
the core that is missing. The ratio says what it costs here.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from statistics import median

import numpy as np

import tinygrad_sparse as ts
from benchmarks import op_overhead, separate_parameters
from benchmarks.timing import heading
from tinygrad_sparse import ops

ROUNDS, RUNS = 12, 6
SETTLE = 0.05  # seconds that the scheduler gets to notice


@contextmanager
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing but compute."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def table_step(V: int, d: int, k: int, optimizer: str) -> Callable[[], None]:
    """Lookup, square-sum, backward, update."""
    rng = np.random.default_rng(0)
    W = ts.parameter(rng.standard_normal((V, d), np.float32))
    opt = getattr(ts.optim, optimizer)([W], lr=1e-3)
    batches = cycle([rng.integers(0, V, k) for _ in range(4)])

    def step() -> None:
        with ts.Tape() as tape:
            rows = W[next(batches)]
            loss = (rows * rows).sum()
        opt.step(tape.backward(loss))

    return step


def bag_step() -> Callable[[], None]:
    """Sums of bags, and back."""
    rng = np.random.default_rng(0)
    W = ts.parameter(rng.standard_normal((100_000, 64), np.float32))
    opt, ids = ts.optim.SGD([W], lr=1e-3), rng.integers(0, 100_000, (1024, 50))

    def step() -> None:
        with ts.Tape() as tape:
            out = ops.embedding_bag(W, ids)
            loss = (out * out).sum()
        opt.step(tape.backward(loss))

    return step


def contestants() -> dict[str, Callable[[], object]]:
    """The steps by name."""
    x = ts.parameter(op_overhead.X)
    return {
        "a chain of small ops": lambda: op_overhead.ours(x),
        "table, k = 1,024, SGD": table_step(100_000, 64, 1024, "SGD"),
        "table, k = 16,384, SGD": table_step(1_000_000, 64, 16_384, "SGD"),
        "table, k = 65,536, SGD": table_step(1_000_000, 64, 65_536, "SGD"),
        "table, k = 65,536, Adam": table_step(1_000_000, 64, 65_536, "Adam"),
        "bags of 50": bag_step(),
        "separate parameters": separate_parameters.contestants(10_000)["ask"],
    }


def main() -> None:
    """Print milliseconds quiet and busy, and their ratio, by the number of threads allowed."""
    heading("One core kept busy by another process")
    print(f"{'':26}" + "".join(f"{f'threads: {n}':>30}" for n in (1, 2)))
    print(f"{'':26}" + f"{'quiet ms':>11}{'busy ms':>11}{'ratio':>8}" * 2)
    taken: dict[tuple[str, int, bool], list[float]] = {}
    runs = contestants()
    with other_process() as child:
        for number, busy in ((n, busy) for n in range(ROUNDS) for busy in (False, True)):
            child.send_signal(signal.SIGCONT if busy else signal.SIGSTOP)
            time.sleep(SETTLE)
            for threads in (1, 2):
                ts.set_num_threads(threads)
                for name, run in runs.items():
                    for _ in range(RUNS):
                        start = time.perf_counter()
                        run()
                        if number:
                            seconds = time.perf_counter() - start
                            taken.setdefault((name, threads, busy), []).append(seconds)
    for name in runs:
        cells = []
        for threads in (1, 2):
            quiet, busy = (median(taken[name, threads, b]) * 1e3 for b in (False, True))
            cells.append(f"{quiet:11.3f}{busy:11.3f}{busy / quiet:8.2f}")
        print(f"{name:26}" + "".join(cells))


if __name__ == "__main__":
    main()
