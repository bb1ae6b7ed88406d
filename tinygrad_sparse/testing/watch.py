"""What a piece of code records, allocates and densifies: budgets instead of timings. Floor 6.

A test that counts fails for one reason and on every machine alike; a test that times does not.
"""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from tinygrad_sparse import ops
from tinygrad_sparse.backend import xp_of
from tinygrad_sparse.errors import SparsityError, TapeError, explain
from tinygrad_sparse.slices import Gradient, is_sparse
from tinygrad_sparse.tape import Densified, Tape, state

from .substitute import Vjp, vjps_of, with_vjps


@contextmanager
def no_densify() -> Iterator[None]:
    """Inside the block a row-sparse gradient that turns dense raises SparsityError, on any Tape.

    Stricter than ``Tape(densify="raise")``: it also refuses a sum of a dense and a row-sparse
    gradient, and holds for Tapes that the code under test makes itself. It holds in all threads.
    Not refused is what asks for a dense array by name, `to_dense`.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((5, 2)))
    >>> with no_densify(), ts.Tape() as tape:
    ...     grads = tape.backward((W[[1, 3]] ** 2).sum())
    """
    note = Tape._note_densified

    def refuse(tape: Tape, op: str, g: Any, line: tuple[str, int] | None) -> Densified:
        record = note(tape, op, g, line)
        raise SparsityError(
            explain(op, "gradients that stay row-sparse", f"one {g.shape} turned dense",
                    f"the op was called at {record.where}")
        )  # fmt: skip

    Tape._note_densified = refuse  # type: ignore[assignment]  # until the block ends
    try:
        yield
    finally:
        Tape._note_densified = note  # type: ignore[method-assign]  # as it was


class _Entries(list[Any]):
    """A tape's entries, which count what is appended: backward empties the list."""

    counted: Counter[str]

    def append(self, entry: Any) -> None:
        self.counted[entry[0].name] += 1
        super().append(entry)


@contextmanager
def count_ops() -> Iterator[Counter[str]]:
    """How many ops the recording Tape gains inside the block, by name.

    Ops on constants and under `no_grad` are not recorded, and a first-order backward records none.
    Raises TapeError if no Tape records.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((5, 2)))
    >>> with ts.Tape(), count_ops() as counted:
    ...     loss = (W[[1, 3]] * 2).sum()
    >>> counted.total(), counted["take"]
    (3, 1)
    """
    tape = state.tape
    if tape is None:
        raise TapeError(
            explain("count_ops", "a recording Tape", "none", "with ts.Tape(), count_ops() as n:")
        )
    counting = _Entries(tape._entries)
    counting.counted = Counter()
    tape._entries = counting
    try:
        yield counting.counted
    finally:
        tape._entries = list(counting)


class Bytes:
    """What `count_bytes` measured: `peak` above the start, and what was `kept` at the end."""

    peak = 0
    kept = 0

    def __repr__(self) -> str:
        return f"Bytes(peak={self.peak:,}, kept={self.kept:,})"


@contextmanager
def count_bytes() -> Iterator[Bytes]:
    """Bytes that the block allocates, by Python's tracemalloc, which NumPy reports to.

    Small things count too (some hundred bytes an op), so compare sizes that differ by much, or two
    runs of which only V differs. Blocks do not nest: an inner one resets the outer one's peak.

    >>> import numpy as np
    >>> with count_bytes() as used:
    ...     x = np.ones((1000, 100))
    ...     y = float((x * 2).sum())
    >>> 1_600_000 <= used.peak < 1_700_000, 800_000 <= used.kept < 900_000
    (True, True)
    """
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    used = Bytes()
    try:
        tracemalloc.reset_peak()
        start, _ = tracemalloc.get_traced_memory()
        yield used
        end, peak = tracemalloc.get_traced_memory()
        used.peak, used.kept = peak - start, end - start
    finally:
        if not running:
            tracemalloc.stop()


def dense_twin(f: Callable[..., Any]) -> Callable[..., Any]:
    """The same function (or model), whose gradients are dense from the lookup on.

    Every row-sparse cotangent becomes dense where it arises, as a product with one-hot vectors,
    which shares no code with the gradient algebra; row rules are not used. Whatever holds for the
    gradients of f must hold for the twin's, at any cost in memory and at any order.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> f = lambda W: (W[[3, 1, 3]] ** 2).sum()
    >>> W = np.arange(8.0).reshape(4, 2)
    >>> type(ts.grad(f)(W)).__name__, type(ts.grad(dense_twin(f))(W)).__name__
    ('IndexedSlices', 'ndarray')
    """

    @wraps(f)
    def twin(*args: Any, **kwargs: Any) -> Any:
        tape = state.tape
        start = 0 if tape is None else len(tape._entries)
        out = f(*args, **kwargs)
        if tape is not None:
            tape._entries[start:] = [_dense(entry) for entry in tape._entries[start:]]
        return out

    return twin


def _dense(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    op, _, args, *_ = entry
    vjps = [v and partial(_densified, v) for v in vjps_of(op, len(args))]
    twin = with_vjps(op, vjps)
    twin.rows = None
    return (twin, *entry[1:])


def _densified(vjp: Vjp, *args: Any, **static: Any) -> Gradient:
    g = vjp(*args, **static)
    if not is_sparse(g):
        return g
    rows, n = math.prod(g.shape[: g.lead]), len(g.indices)
    xp = xp_of(g.values)
    one_hot = xp.zeros((rows, n), g.dtype)
    one_hot[g.indices, xp.arange(n)] = 1.0
    flat = ops.matmul(one_hot, ops.reshape(g.values, (n, math.prod(g.shape[g.lead :]))))
    return ops.reshape(flat, g.shape)
