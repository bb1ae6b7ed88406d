"""Arrays on files: memory-mapped, so that only the pages that are touched are read or written.

Floor 1. What is mapped is an ndarray like any other, and every adapter works on it. A file is
sparse until it is written to: rows that nobody touched take no room on the disk.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad_sparse.errors import CheckpointError, StorageError, explain

SPARE = 2**26  # bytes that are left free on a disk
PAGE = mmap.PAGESIZE


def map_array(op: str, path: Path, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The array in a .npy file, to be read and written in place; a new file holds zeros."""
    if not path.exists():
        try:
            return np.lib.format.open_memmap(path, "w+", dtype, shape).view(np.ndarray)
        except OSError as error:
            path.unlink(missing_ok=True)  # of a size that the disk cannot have, say
            raise StorageError(explain(op, f"a new file {path}", f"{error}")) from error
    wanted = f"{dtype} {shape} in {path}, as .npy"
    try:
        np.lib.format.open_memmap(
            path, "r"
        )  # to be written to, a file cut short would be made longer
        array = np.lib.format.open_memmap(path, "r+").view(np.ndarray)
    except OSError as error:
        raise StorageError(explain(op, f"a file {path} to write to", f"{error}")) from error
    except ValueError as error:  # no .npy file, or one that was cut short
        raise CheckpointError(explain(op, wanted, f"{error}")) from error
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        order = "" if array.flags.c_contiguous else ", in Fortran's order"
        raise CheckpointError(explain(op, wanted, f"{array.dtype} {array.shape}{order}"))
    return array


def map_of(x: Any) -> np.memmap | None:
    """The mapped file that an array is a view of, if it is one."""
    while x is not None and type(x) is not np.memmap:
        x = getattr(x, "base", None)
    return x


def zeros_beside(x: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros; where `x` lies on a file, in a file without a name on the same disk.

    That file is gone with the array. All its room is taken at once, so that writing cannot fail.
    """
    mapped, nbytes = map_of(x), math.prod(shape) * np.dtype(dtype).itemsize
    if mapped is None or nbytes < PAGE:
        return np.zeros(shape, dtype)
    assert mapped.filename is not None
    folder = Path(mapped.filename).parent
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, nbytes)
        except OSError as error:
            text = f"{nbytes:,} bytes of room in {folder} for an optimizer's state"
            raise StorageError(explain("step", text, f"{error}")) from error
        return np.memmap(file, dtype, "r+", shape=shape).view(np.ndarray)


def check_room(op: str, x: np.ndarray, rows: np.ndarray) -> None:
    """Raise StorageError where the disk has no room for the pages of these rows, ascending.

    What is written to a map when the disk is full kills the process: so it is asked before.
    """
    mapped = map_of(x)
    assert mapped is not None and mapped.filename is not None
    row = x[:1].nbytes
    pages = 1 + np.count_nonzero(np.diff(rows * row // PAGE)) if len(rows) else 0
    wanted = int(pages) * (row // PAGE + 2) * PAGE
    disk = os.statvfs(mapped.filename)
    free = disk.f_bavail * disk.f_frsize
    if wanted + SPARE > free:
        text = f"room for {len(rows):,} new rows, up to {wanted:,} bytes and {SPARE:,} to spare"
        hint = "make room and go on: nothing was changed"
        raise StorageError(explain(op, text, f"{free:,} bytes free for {mapped.filename}", hint))


def flush(x: np.ndarray) -> None:
    """Write what was changed to the disk, where `x` lies on a file."""
    mapped = map_of(x)
    if mapped is not None:
        mapped.flush()
