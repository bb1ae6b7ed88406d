"""How many threads a large kernel may use, and the pool that they come from. Floor 1.

A kernel that releases the interpreter lock is called on parts of its rows. The caller takes parts
like everyone else and never waits for a thread that has not begun, so a busy core costs little;
and which thread computes a row changes nothing in it, so results do not depend on the number.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tinygrad_sparse.errors import ArgumentError, explain

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

PAYS = 8 * 2**20  # bytes moved: below it, waking a thread costs more than it brings
PARTS = 4  # parts a thread: small enough that the last one to finish is not waited for long

_busy = threading.Lock()  # one kernel at a time has helpers: never more threads than were allowed
_pool: ThreadPoolExecutor | None = None


def _cores() -> int:
    """Cores that this process may use, or fewer if OMP_NUM_THREADS says so."""
    allowed = getattr(os, "sched_getaffinity", None)
    cores = len(allowed(0)) if allowed is not None else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return min(cores, int(asked)) if asked.isdigit() and int(asked) else cores


_threads = _cores()


def set_num_threads(n: int) -> None:
    """Let kernels use up to `n` threads: only large ones do, and results do not depend on `n`.

    The default is the number of cores that this process may use, or OMP_NUM_THREADS if that is
    less. More than the cores are never used. NumPy's matrix products have threads of their own.
    """
    global _threads, _pool
    if n != int(n) or n < 1:
        raise ArgumentError(explain("set_num_threads", "a number of threads >= 1", repr(n)))
    with _busy:
        _threads = min(int(n), _cores())
        if _pool is not None:
            _pool.shutdown(wait=False)
        _pool = None


def get_num_threads() -> int:
    """How many threads a large kernel may use."""
    return _threads


def pays(nbytes: int) -> bool:
    """True if so much work would be shared out."""
    return nbytes >= PAYS and _threads > 1


def split(kernel: Callable[..., Any], args: tuple[Any, ...], rows: int, nbytes: int) -> None:
    """``kernel(*args, start, stop)`` over all `rows`; by several threads if `nbytes` are many."""
    if not pays(nbytes) or rows < 2 or not _busy.acquire(blocking=False):
        kernel(*args, 0, rows)
        return
    try:
        size = -(-rows // min(rows, _threads * PARTS))
        starts = list(range(0, rows, size))

        def work() -> None:
            while True:
                try:
                    start = starts.pop()  # one step: no two threads get the same
                except IndexError:
                    return
                kernel(*args, start, min(start + size, rows))

        helpers = []
        with suppress(RuntimeError):  # at the end of the interpreter there are no new ones
            helpers += [_executor().submit(work) for _ in range(_threads - 1)]
        work()
        for helper in helpers:
            if not helper.cancel():  # it has begun
                helper.result()
    finally:
        _busy.release()


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        from concurrent.futures import ThreadPoolExecutor  # 70 ms that most programs never need

        _pool = ThreadPoolExecutor(_threads - 1, thread_name_prefix="tinygrad_sparse")
    return _pool


def _forget() -> None:
    """In a forked child the pool's threads do not exist, and nobody holds the lock."""
    global _pool, _busy
    _pool, _busy = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
