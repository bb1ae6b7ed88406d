"""Parameters on a file: tables larger than memory. Floor 3: may import `tensor` and below.

The array is mapped, so a step reads and writes the pages of the rows that it touches. A row gets
its initial values when it is first touched; whether it has them is one byte, in a file beside the
table.
"""

from __future__ import annotations

import math
import os
import warnings
import weakref
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_sparse.backend import files
from tinygrad_sparse.errors import (
    ArgumentError,
    CheckpointError,
    DtypeError,
    ShapeError,
    StorageError,
    StorageWarning,
    explain,
)
from tinygrad_sparse.shapes import whole_numbers
from tinygrad_sparse.tape import WARN_ABOVE, user_line
from tinygrad_sparse.tensor import Tensor, moving_rows, parameter

if TYPE_CHECKING:
    from tinygrad_sparse.tensor import Pending

Init = Callable[[np.ndarray, tuple[int, ...]], Any]

BLOCK = 2**22  # bytes of new rows that are made at a time
CHUNK = 2**20  # rows that are looked at at a time
KNOWN_BY = 16  # numbers of a row that an init is known by


def parameter_file(
    path: str | os.PathLike[str],
    shape: tuple[int, ...],
    dtype: Any = np.float32,
    *,
    init: Init | None = None,
    name: str | None = None,
) -> Tensor:
    """A parameter whose values are in a .npy file: shape (V, \\*row), of any size the disk has.

    A new file is sparse, and stays so: a row takes room once it was touched, and starts then as
    ``init(rows, row_shape)`` has it, (n, \\*row) for ids (n,), which must give the same values for
    the same ids every time, as `normal_rows` does; zeros without `init`. That a row was touched is
    kept in `path` + ".made"; a file without that one is a whole table. An existing file is opened,
    and trained on from there, with the same `init`: a few numbers of it, in `path` + ".init", tell.
    A parameter that had the file open is done with, and raises where it is used.

    What a step has written survives the end of the process, however it ends. What an exact
    optimizer owes to rows at rest is written when nobody has the parameter any more, at the latest
    when the interpreter ends; a process that is killed does not write it. `x.flush()` writes it
    now, and makes sure that all survives the end of the machine, too. An optimizer keeps its state
    for the rows ever touched, in files without a name on the same disk; `opt.state_dict()` has it.

    Reading all of the values, as ``x.data``, `Module.state_dict` and decay under the exact meaning
    do, gives all rows their initial values, with a StorageWarning above 16 MiB: look rows up.

    Raises CheckpointError for a file that holds something else or had another `init`, StorageError
    for one that cannot be written, and, before anything is changed, where the disk has no room for
    rows that come new.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "table.npy")
    >>> W = parameter_file(path, (1_000_000, 64), init=normal_rows(0.1, seed=1))
    >>> rows = W[[3, 999_999]].numpy()
    >>> W = parameter_file(path, (1_000_000, 64), init=normal_rows(0.1, seed=1))
    >>> bool((W[[3, 999_999]].numpy() == rows).all()), int(W._pending.made.sum())
    (True, 2)
    >>> folder.cleanup()
    """
    op = "parameter_file"
    try:
        path, dtype = Path(path), np.dtype(dtype)
        if not path.with_name(path.name + ".made").exists():
            path = path.resolve()  # a link to a table, beside which its notes lie
    except (TypeError, ValueError) as error:
        raise ArgumentError(explain(op, "a path and a dtype", f"{error}")) from None
    if init is not None and not callable(init):
        hint = "ts.normal_rows(0.1, seed=1) is one; for zeros leave it out"
        raise ArgumentError(explain(op, "a function init(rows, row_shape)", repr(init), hint))
    shape = whole_numbers(op, "a shape (V, *row)", shape, least=0)
    if dtype.kind != "f" or dtype.itemsize > 8 or not dtype.isnative:
        raise DtypeError(explain(op, "float16, float32 or float64", str(dtype)))
    if not shape or not math.prod(shape):
        raise ShapeError(explain(op, "a shape (V, *row) of something", f"{shape}"))
    if math.prod(shape) * dtype.itemsize >= 2**63:
        raise ShapeError(explain(op, "a shape of fewer than 2**63 bytes", f"{dtype} {shape}"))
    made_path, init_path = (path.with_name(path.name + end) for end in (".made", ".init"))
    begins = _beginnings(init, shape, dtype)
    made = None
    if made_path.exists() and not path.exists():
        hint = "remove it for a new table"
        raise CheckpointError(explain(op, f"{path} beside {made_path.name}", "none", hint))
    if path.exists():  # what it holds is told first, by its own name
        files.map_array(op, path, shape, dtype)
    try:
        if not made_path.exists() and not path.exists():
            init_path.unlink(missing_ok=True)  # of a table that was removed
            files.map_array(op, init_path, begins.shape, dtype)[...] = begins
        if made_path.exists() or not path.exists():
            # Made first: a table without it would be taken for a whole one.
            made = files.map_array(op, made_path, shape[:1], np.dtype(np.uint8))
        table = files.map_array(op, path, shape, dtype)
    except StorageError:
        if not path.exists():  # or a file of another size could not be made here later
            made_path.unlink(missing_ok=True)
            init_path.unlink(missing_ok=True)
        raise
    if made is not None and init_path.exists():  # earlier versions had none
        before = files.map_array(op, init_path, begins.shape, dtype)
        if not _alike(before, begins) and not made.all():
            raise CheckpointError(
                explain(
                    op,
                    f"for {path} the init that it was made with, which has {_shown(before)}",
                    f"one that has {_shown(begins)}" if init is not None else "none",
                    "rows that are not there yet would start from another distribution; "
                    "ts.normal_rows(std, seed=seed) is known by both of its numbers",
                )
            )
    leaf = parameter(np.empty(0, dtype), name=name)
    del leaf._data
    rows = leaf._pending = RowsOnFile(table, made, init)
    file = path.stat()
    earlier = _open.pop((file.st_dev, file.st_ino), None)
    if earlier is not None:
        earlier.give_up()
    _open[file.st_dev, file.st_ino] = rows
    weakref.finalize(leaf, rows.settle_owed)  # at the end of the interpreter, too
    return leaf


_open: weakref.WeakValueDictionary[tuple[int, int], RowsOnFile] = weakref.WeakValueDictionary()


def _beginnings(init: Init | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """What an init is known by, kept beside the table: the first numbers of its outermost rows."""
    rows = np.unique([0, shape[0] - 1])
    if init is None:
        values = np.zeros((len(rows), *shape[1:]), dtype)
    else:
        values = _initial(init, rows, shape[1:]).astype(dtype)
    return values.reshape(len(rows), -1)[:, :KNOWN_BY]


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal but for what logarithms and cosines of two machines differ by."""
    near = 1e-5 + 4 * float(np.finfo(a.dtype).eps)
    most = float(np.abs(b, where=np.isfinite(b), out=np.zeros(b.shape)).max(initial=0.0))
    return np.allclose(a, b, rtol=near, atol=near * most, equal_nan=True)


def _shown(begins: np.ndarray) -> str:
    return f"{np.array2string(begins[0, :3], precision=4)} at the start of row 0"


def _initial(init: Init, rows: np.ndarray, row_shape: tuple[int, ...]) -> np.ndarray:
    values = np.asarray(init(rows, row_shape))
    wanted = (len(rows), *row_shape)
    if values.shape != wanted or values.dtype.kind != "f":
        got = f"{values.dtype} {values.shape}"
        raise ShapeError(explain("init", f"floats of shape {wanted}", got))
    return values


class RowsOnFile:
    """Gives the rows of a table on a file their initial values when they are first touched."""

    lasting = True
    below: Pending | None = None
    above: Pending | None = None
    given_up = False

    def __init__(self, array: np.ndarray, made: np.ndarray | None, init: Init | None) -> None:
        self.array = array
        self.made = np.ones(len(array), np.uint8) if made is None else made
        self.init = init
        self.complete = made is None
        self.process = os.getpid()

    def settle(self, rows: Any) -> None:
        """Make those of these rows that are not there yet: ids, a slice, or ... for all."""
        if self.given_up:
            text = "the parameter that the file was opened as last"
            hint = "make the optimizer of that one; one file is one parameter at a time"
            raise StorageError(explain("parameter_file", text, "an earlier one", hint))
        if self.complete:
            return
        with moving_rows:
            if rows is ...:
                self._tell_of_all()
            if isinstance(rows, np.ndarray):
                self._make(np.unique(rows[self.made.take(rows) == 0]))
                return
            start, stop, by = (slice(None) if rows is ... else rows).indices(len(self.array))
            for first in range(start, stop, CHUNK * by):
                some = np.arange(first, stop, by)[:CHUNK]
                self._make(np.sort(some[self.made[some] == 0]))
            self.complete = rows is ...

    def _tell_of_all(self) -> None:
        """Warn of a read that fills the disk: nothing of that size is silent."""
        new = len(self.made) - int(np.count_nonzero(self.made))
        nbytes = new * self.array[:1].nbytes
        if self.init is not None and nbytes > WARN_ABOVE:
            text = explain(
                "parameter_file",
                "rows to be looked up",
                f"all {len(self.made):,} read, by .data, numpy(), state_dict() or an op on the "
                f"table: {new:,} get their initial values, {nbytes:,} bytes of the disk",
                "W[ids] reads rows; to copy the table, copy its files",
            )
            warnings.warn_explicit(text, StorageWarning, *user_line(2))

    def settle_owed(self) -> None:
        """What optimizers owe to rows at rest, once nobody has the parameter any more."""
        top, self.above = self.above, None
        if not self.given_up and os.getpid() == self.process:  # a fork has the file, and not rows
            while top is not None and not top.lasting:
                top.settle(...)
                top = top.below

    def give_up(self) -> None:
        """Owe nothing, and be read no more: the file is another parameter's from now on."""
        self.settle_owed()
        self.given_up = True

    def _make(self, rows: np.ndarray) -> None:
        """Write the initial values of rows, each once and ascending, then that they are there."""
        each = max(1, BLOCK // self.array[:1].nbytes)
        for start in range(0, len(rows), each):
            mine = rows[start : start + each]
            files.check_room("parameter_file", self.array, mine)
            if self.init is not None:
                self.array[mine] = _initial(self.init, mine, self.array.shape[1:])
            self.made[mine] = 1

    def flush(self) -> None:
        """Write what was changed to the disk; a row's values before the note that it has them."""
        files.flush(self.array)
        files.flush(self.made)


def normal_rows(std: float = 0.1, *, seed: int = 0) -> Init:
    """Initial rows for `parameter_file`: normal(0, std²), row i by the seed and i alone.

    ``normal_rows(std, seed=s)(rows, row_shape)`` is float32 (n, \\*row_shape). Numbers are hashed
    from their place (SplitMix64, Steele, Lea & Flood, 2014) and made normal by Box & Muller, 1958,
    so rows may be made in any order, at any time.

    >>> rows = normal_rows(0.1, seed=1)
    >>> first, again = rows(np.array([7, 3]), (64,)), rows(np.array([3]), (64,))
    >>> bool((first[1] == again[0]).all()), bool((first[0] == again[0]).any())
    (True, False)
    """
    if not isinstance(std, Real) or not 0 <= std < math.inf:
        raise ArgumentError(explain("normal_rows", "a finite std >= 0", repr(std)))
    if not isinstance(seed, Integral):
        raise ArgumentError(explain("normal_rows", "a whole number as seed", repr(seed)))
    start = _mixed(np.array([int(seed) % 2**64], np.uint64))

    def init(rows: np.ndarray, row_shape: tuple[int, ...]) -> np.ndarray:
        width = math.prod(row_shape)
        pairs = (width + 1) // 2
        places = rows.astype(np.uint64)[:, None] * np.uint64(pairs) + np.arange(
            pairs, dtype=np.uint64
        )
        bits = _mixed(start + places)
        # Half of the bits for each of two numbers: (0, 1] for the logarithm, the other an angle.
        radius = ((bits >> np.uint64(32)).astype(np.float32) + np.float32(1)) * np.float32(2**-32)
        angle = (bits & np.uint64(2**32 - 1)).astype(np.float32) * np.float32(2 * np.pi * 2**-32)
        length = np.float32(std) * np.sqrt(
            np.float32(-2) * np.log(np.minimum(radius, np.float32(1)))
        )
        both = np.concatenate([length * np.cos(angle), length * np.sin(angle)], axis=1)
        return both[:, :width].reshape((len(rows), *row_shape))

    return init


def _mixed(x: np.ndarray) -> np.ndarray:
    """SplitMix64's output for the states x: every bit depends on every bit of x."""
    with np.errstate(over="ignore"):
        x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
