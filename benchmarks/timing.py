"""Interleaved medians: contestants take turns, so a busy moment hits them all."""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median
from typing import TypeVar

import numpy as np

from tinygrad_sparse.testing import count_bytes

K = TypeVar("K")


def medians(contestants: dict[K, Callable[[], object]], rounds: int = 30) -> dict[K, float]:
    """Median seconds of each contestant over interleaved rounds, after one to warm up."""
    times: dict[K, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if number:
                times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def peak_bytes(run: Callable[[], object]) -> int:
    """Most bytes held at once by one run, beyond what was held before it; after one to warm up."""
    run()
    with count_bytes() as used:
        run()
    return used.peak


def machine() -> str:
    """The machine and the versions that numbers belong to."""
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    numba = f", numba {version('numba')}" if find_spec("numba") is not None else ""
    return f"({platform.machine()}, {os.cpu_count()} cores, {versions}{numba})"


def heading(title: str) -> None:
    """A title, with the machine and versions that the numbers belong to."""
    print(f"\n{title}\n{machine()}")
