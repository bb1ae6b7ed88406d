"""What `backend.reuse` saves: an SGD step where freed memory is used again, over one where not.

The first allocations of a program decide what malloc keeps. So each way has processes of its own,
in turns, and in each the sizes come from small to large.
"""

import json
import resource
import subprocess
import sys
from statistics import median

import numpy as np

from benchmarks import peers
from benchmarks.timing import heading, medians

V, D = 10_000, 16
LOOKUPS = (4_096, 16_384, 32_768, 65_536, 131_072)
WAYS = {"kept": "", "given back": "sys.modules['tinygrad_sparse.backend.reuse'] = Nothing; "}
BEFORE = "import sys\nclass Nothing: reuse_freed_memory = staticmethod(lambda: None)\n"
ROUNDS = 3


def measure() -> list[tuple[float, float]]:
    """Milliseconds and page faults of a step, for each number of lookups."""
    rng, found = np.random.default_rng(0), []
    step = peers.tinygrad_sparse(np.ones((V, D), np.float32), "SGD")
    for k in LOOKUPS:
        ids = rng.integers(0, V, k)
        for _ in range(2):
            step(ids)
        before, rounds = faults(), 50
        seconds = medians({"step": lambda ids=ids: step(ids)}, rounds)["step"]
        found.append((seconds * 1e3, (faults() - before) / (rounds + 1)))
    return found


def faults() -> int:
    """Pages that the system has given to this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main() -> None:
    """Print the time of a step and its page faults, each way."""
    heading(f"Freed memory kept or given back: an SGD step, V = {V:,}, d = {D}, one thread")
    runs: dict[str, list[list[tuple[float, float]]]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way, first in WAYS.items():
            code = f"{BEFORE}{first}import json\nfrom benchmarks import freed_memory, peers\n"
            code += "peers.set_num_threads(1)\nprint(json.dumps(freed_memory.measure()))"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            runs[way].append(json.loads(done.stdout))
    print(f"{'k':>10}" + "".join(f"{way + ', ms':>16}{'faults':>8}" for way in WAYS) + "   ratio")
    for i, k in enumerate(LOOKUPS):
        cells = {way: [median(run[i][j] for run in runs[way]) for j in range(2)] for way in WAYS}
        line = "".join(f"{ms:16.2f}{count:8.0f}" for ms, count in cells.values())
        print(f"{k:10,}{line}{cells['given back'][0] / cells['kept'][0]:8.2f}")


if __name__ == "__main__":
    main()
