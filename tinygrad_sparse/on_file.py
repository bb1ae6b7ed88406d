"""Parameters on a file: tables larger than memory. Floor 3: may import `tensor` and below.

The array is mapped, so a step reads and writes the pages of the rows that it touches. A row gets
its initial values when it is first touched; whether it has them is one byte, in a file beside the
table.
"""

from __future__ import annotations

import math
import os
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
    explain,
)
from tinygrad_sparse.shapes import whole_numbers
from tinygrad_sparse.tensor import Tensor, moving_rows, parameter

if TYPE_CHECKING:
    from tinygrad_sparse.tensor import Pending

Init = Callable[[np.ndarray, tuple[int, ...]], Any]

BLOCK = 2**22  # bytes of new rows that are made at a time
CHUNK = 2**20  # rows that are looked at at a time


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
    and trained on from there.

    What a step has written survives the end of the process, however it ends; `x.flush()` makes sure
    that it survives the end of the machine, too, and writes what an exact optimizer owes to rows at
    rest. An optimizer keeps its state for the rows ever touched, in files without a name on the
    same disk; `opt.state_dict()` has it. Reading all of the values, as ``x.data`` does, gives all
    rows their initial values: look rows up instead.

    Raises CheckpointError for a file that holds something else, StorageError for one that cannot be
    written, and, before anything is changed, where the disk has no room for rows that come new.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "table.npy")
    >>> W = parameter_file(path, (1_000_000, 64), init=normal_rows(0.1, seed=1))
    >>> rows = W[[3, 999_999]].numpy()
    >>> W = parameter_file(path, (1_000_000, 64))
    >>> bool((W[[3, 999_999]].numpy() == rows).all()), int(W._pending.made.sum())
    (True, 2)
    >>> folder.cleanup()
    """
    op = "parameter_file"
    try:
        path, dtype = Path(path), np.dtype(dtype)
    except TypeError as error:
        raise ArgumentError(explain(op, "a path and a dtype", f"{error}")) from None
    if init is not None and not callable(init):
        hint = "ts.normal_rows(0.1, seed=1) is one; for zeros leave it out"
        raise ArgumentError(explain(op, "a function init(rows, row_shape)", repr(init), hint))
    shape = whole_numbers(op, "a shape (V, *row)", shape, least=0)
    if dtype.kind != "f" or dtype.itemsize > 8 or not dtype.isnative:
        raise DtypeError(explain(op, "float16, float32 or float64", str(dtype)))
    if not shape or not math.prod(shape):
        raise ShapeError(explain(op, "a shape (V, *row) of something", f"{shape}"))
    made_path = path.with_name(path.name + ".made")
    made = None
    if made_path.exists() and not path.exists():
        hint = "remove it for a new table"
        raise CheckpointError(explain(op, f"{path} beside {made_path.name}", "none", hint))
    if made_path.exists() or not path.exists():
        # Made first: a table without it would be taken for a whole one.
        made = files.map_array(op, made_path, shape[:1], np.dtype(np.uint8))
    try:
        table = files.map_array(op, path, shape, dtype)
    except StorageError:
        if not path.exists():  # or a file of another size could not be made here later
            made_path.unlink(missing_ok=True)
        raise
    leaf = parameter(np.empty(0, dtype), name=name)
    del leaf._data
    leaf._pending = RowsOnFile(table, made, init)
    return leaf


class RowsOnFile:
    """Gives the rows of a table on a file their initial values when they are first touched."""

    lasting = True
    below: Pending | None = None

    def __init__(self, array: np.ndarray, made: np.ndarray | None, init: Init | None) -> None:
        self.array = array
        self.made = np.ones(len(array), np.uint8) if made is None else made
        self.init = init
        self.complete = made is None

    def settle(self, rows: Any) -> None:
        """Make those of these rows that are not there yet: ids, a slice, or ... for all."""
        if self.complete:
            return
        with moving_rows:
            if isinstance(rows, np.ndarray):
                self._make(np.unique(rows[self.made.take(rows) == 0]))
                return
            start, stop, by = (slice(None) if rows is ... else rows).indices(len(self.array))
            for first in range(start, stop, CHUNK * by):
                some = np.arange(first, stop, by)[:CHUNK]
                self._make(np.sort(some[self.made[some] == 0]))
            self.complete = rows is ...

    def _make(self, rows: np.ndarray) -> None:
        """Write the initial values of rows, each once and ascending, then that they are there."""
        each = max(1, BLOCK // self.array[:1].nbytes)
        for start in range(0, len(rows), each):
            mine = rows[start : start + each]
            files.check_room("parameter_file", self.array, mine)
            if self.init is not None:
                self.array[mine] = self._initial(mine)
            self.made[mine] = 1

    def _initial(self, rows: np.ndarray) -> np.ndarray:
        assert self.init is not None
        values = np.asarray(self.init(rows, self.array.shape[1:]))
        wanted = (len(rows), *self.array.shape[1:])
        if values.shape != wanted or values.dtype.kind != "f":
            got = f"{values.dtype} {values.shape}"
            raise ShapeError(explain("init", f"floats of shape {wanted}", got))
        return values

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
