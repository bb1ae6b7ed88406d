"""Tape: the list of what was computed, and the switch that says whether to keep it. Floor 3.

May import `errors`, `backend`, `report` and `saved`; the reverse loop that reads it is in
`backward`. Entries hold arrays and numbers, never the Tensors they made, so a tape has no reference
cycle: it is freed, however long, the moment its last Tensor and its last name go.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from contextlib import ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinygrad_sparse.backend import adapter_of, describe
from tinygrad_sparse.errors import DensifyWarning, SparsityError, TapeError, explain
from tinygrad_sparse.report import Cost, table
from tinygrad_sparse.saved import slim

if TYPE_CHECKING:
    from tinygrad_sparse.gradstore import GradStore
    from tinygrad_sparse.tensor import Tensor

WARN_ABOVE = 16 * 2**20  # bytes: a smaller gradient that turns dense is not worth a reader's time
_HERE = __name__.partition(".")[0]


class _State(threading.local):
    tape: Tape | None = None  # the tape that records on this thread


state = _State()


class Densified(NamedTuple):
    """One row-sparse gradient that became dense: which op, how large, and whose line."""

    op: str
    shape: tuple[int, ...]
    nbytes: int
    where: str


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == _HERE


def user_line(depth: int = 1) -> tuple[str, int]:
    """File and line of the innermost caller outside this package, from `depth` frames up."""
    frame = sys._getframe(depth)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class _Copied(NamedTuple):
    """An array that an op was given, as it was then."""

    k: int  # the number of the argument
    given: Any
    copy: np.ndarray


class _Watched(list[Any]):
    """The entries of a ``Tape(debug=True)``, with copies of the constants that their rules read.

    A list whose `append` does more: recording an op on any other tape costs what it did.
    """

    def __init__(self) -> None:
        super().__init__([None])
        self.copies: dict[int, tuple[list[_Copied], tuple[str, int]]] = {}  # and the user's line

    def append(self, entry: Any) -> None:
        op, _, args, parents, static, _ = entry
        given = [*zip(args, parents, strict=True), *((a, 0) for a in (static or {}).values())]
        copies = [
            _Copied(k, a, np.array(adapter_of(a).to_host(a)))
            for k, (a, parent) in enumerate(given)
            if not parent and hasattr(a, "nbytes") and k not in op.unread
        ]
        if copies:
            self.copies[len(self)] = copies, user_line(3)
        super().append(entry)

    def check(self, node: int, keep: bool) -> None:
        """Raise TapeError if an array that an entry's rules are about to read was written to."""
        copies, where = (self.copies.get if keep else self.copies.pop)(node, ((), None))
        for k, a, copy in copies:
            now = np.asarray(adapter_of(a).to_host(a))
            changed = (now != copy) & ~((now != now) & (copy != copy))  # a NaN is not itself
            if changed.any():
                at = tuple(map(int, np.argwhere(changed)[0]))
                assert where is not None
                raise TapeError(
                    explain(
                        f"backward of {self[node][0].name}",
                        f"argument {k}, {describe(a)}, as it was in the forward",
                        f"{now[at]} at {list(at)}, {copy[at]} before, at {where[0]}:{where[1]}",
                        "make a new array for each batch, or give the op ts.tensor(x), a copy",
                    )
                )


class Tape:
    """Records the ops of a ``with`` block that involve a parameter, for one `backward`.

    `densify` says what happens when a row-sparse gradient meets an op that cannot keep it sparse:
    ``"warn"`` (a DensifyWarning, once a line, above 16 MiB), ``"allow"`` or ``"raise"``
    (SparsityError). Whatever it is, `densified` lists each one. With ``persistent=True``
    `backward` may be called again; otherwise the saved values are freed on the way. With
    ``profile=True`` it keeps figures for `report`.

    Values are kept as they are, not copied: an array that an op was given must not be written to
    before `backward`, or gradients are silently those of another function. ``debug=True`` keeps
    copies of such arrays, and `backward` raises TapeError where one was written to: op, place.
    Row ids and labels are always copied, for batches of ids are often filled into one array; a
    parameter that was changed is always refused.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((5, 2)))
    >>> with ts.Tape() as tape:
    ...     loss = (W[[3, 3]] ** 2).sum()
    >>> tape.backward(loss)[W].coalesce().values
    array([[4., 4.]])
    """

    _watched: _Watched | None = None
    _slim = staticmethod(slim)  # of a large entry, what backward needs

    def __init__(
        self,
        densify: str = "warn",
        *,
        persistent: bool = False,
        profile: bool = False,
        debug: bool = False,
    ) -> None:
        if densify not in ("warn", "allow", "raise"):
            raise TapeError(explain("Tape", "densify='warn', 'allow' or 'raise'", repr(densify)))
        self.densify = densify
        self.persistent = persistent
        self.densified: list[Densified] = []
        self._costs: dict[str, Cost] | None = {} if profile else None
        # (op, out, args, parents, static, line); entry 0 is a placeholder, for 0 means "constant"
        self._entries: list[Any] = [None]
        if debug:
            self._entries = self._watched = _Watched()
        self._leaves: dict[int, tuple[Tensor, int]] = {}  # parameter and its version at first use
        self._spent = False
        self._freed = 0  # how many entries were recorded before they were freed
        self._outer: tuple[Tape | None] | None = None

    def __enter__(self) -> Tape:
        if state.tape is not None or self._outer is not None:
            raise TapeError(
                explain(
                    "Tape",
                    "no other Tape recording on this thread",
                    "a Tape block inside another",
                    "ts.grad composes with itself and with a Tape; backward(create_graph=True) "
                    "gives gradients of gradients; ts.no_grad() allows an unrelated Tape inside",
                )
            )
        self._refuse_spent("Tape")
        self._outer = (state.tape,)
        state.tape = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._outer is not None
        (state.tape,) = self._outer
        self._outer = None

    def __len__(self) -> int:
        """How many ops are recorded."""
        return self._freed + len(self._entries) - 1

    def __bool__(self) -> bool:
        return True  # an empty tape is still a tape

    def __repr__(self) -> str:
        names = Counter(entry[0].name for entry in self._entries[1:] if entry is not None)
        ops = ", ".join(f"{name} {n}" for name, n in names.most_common(5))
        size = f"{len(self)} ops{': ' + ops if ops else ''}"
        used = "spent" if self._spent else "recording" if state.tape is self else "closed"
        return f"Tape({size}; {len(self._leaves)} parameters; {used})"

    def backward(self, loss: Tensor, seed: Any = None, create_graph: bool = False) -> GradStore:
        """Gradients of `loss` by every parameter it was computed from, as a GradStore.

        `seed` is the cotangent of a loss that is not a scalar, of exactly its shape; IndexedSlices
        will do. With ``create_graph=True`` (inside the block) the gradients are Tensors that are
        recorded too. Raises TapeError for a loss of another tape, or a tape that is spent, and
        ShapeError for a loss that is no scalar without a seed.
        """
        from tinygrad_sparse.backward import backward

        return backward(self, loss, seed, create_graph)

    def report(self) -> str:
        """A table of what the backward passes did by op: rows kept, bytes densified, time.

        >>> import numpy as np, tinygrad_sparse as ts
        >>> W = ts.parameter(np.ones((1000, 2)))
        >>> with ts.Tape(profile=True) as tape:
        ...     loss = (ts.ops.tanh(W)[[3, 5]] ** 2).sum()
        >>> grads = tape.backward(loss)
        >>> print(tape.report())  # doctest: +ELLIPSIS
        op                 calls  sparse   rows kept       of rows  densified bytes  backward ms
        ...
        all                    4       1           2         1,000                0        ...
        """
        if self._costs is None:
            hint = "write Tape(profile=True)"
            raise TapeError(explain("report", "a Tape that keeps figures", repr(self), hint))
        return table(self._costs)

    def _adopt(self, leaf: Tensor) -> None:
        """Note a parameter's version at its first use: a later change makes backward refuse."""
        if leaf._node not in self._leaves:
            self._leaves[leaf._node] = (leaf, leaf._version)

    def _refuse_spent(self, op: str) -> None:
        if self._spent:
            got = "one whose saved values an earlier backward freed"
            hint = "make one Tape a step, or Tape(persistent=True), or backward(create_graph=True)"
            raise TapeError(explain(op, "a Tape that has not been used", got, hint))

    def _free(self) -> None:
        """Let go of every saved value."""
        self._freed += len(self._entries) - 1
        del self._entries[1:]
        if self._watched is not None:
            self._watched.copies.clear()

    def _note_densified(self, op: str, g: Any, line: tuple[str, int] | None) -> Densified:
        """Enter a gradient that turned dense into the ledger."""
        file, number = line or user_line()
        record = Densified(op, g.shape, g.size * g.dtype.itemsize, f"{file}:{number}")
        self.densified.append(record)
        return record

    def _densify(self, op: str, g: Any, line: tuple[str, int] | None) -> Any:
        """`g` as a dense array, because `op` has no row rule here: noted, and said or refused."""
        record = self._note_densified(op, g, line)
        nbytes = record.nbytes
        what = f"a row-sparse gradient {g.shape}, which would become {nbytes:,} dense bytes"
        hint = (
            "look the rows up before this op, f(W[ids]) instead of f(W)[ids], or give the op a row "
            "rule; Tape(densify='allow') accepts the cost"
        )
        if self.densify == "raise":
            raise SparsityError(
                explain(op, "an op that keeps rows apart", f"{what} at {record.where}", hint)
            )
        if self.densify == "warn" and nbytes > WARN_ABOVE:
            file, number = line or user_line()
            if (file, number) not in _warned:
                _warned.add((file, number))
                text = explain(op, "an op that keeps rows apart", f"{what} at {record.where}", hint)
                warnings.warn_explicit(text, DensifyWarning, file, number)
        return g.to_dense()


_warned: set[tuple[str, int]] = set()  # lines that were warned about: said once, not every step


class no_grad(ContextDecorator):
    """Pauses recording on this thread: ``with ts.no_grad(): ...``, or ``@ts.no_grad()``.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones(3))
    >>> with ts.Tape() as tape, ts.no_grad():
    ...     y = W * 2
    >>> len(tape)
    0
    """

    def __init__(self) -> None:
        self._outer: list[Tape | None] = []  # a list, so that one may be entered again inside

    def __enter__(self) -> None:
        self._outer.append(state.tape)
        state.tape = None

    def __exit__(self, *error: object) -> None:
        tape = self._outer.pop()
        # closed meanwhile, if this block is left late: a generator's, say
        state.tape = tape if tape is not None and tape._outer is not None else None
