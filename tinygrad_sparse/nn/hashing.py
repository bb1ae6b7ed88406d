"""Feature hashing: ids in a table of any size for keys of any kind. Floor 5."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.backend import as_host_array
from tinygrad_sparse.errors import DtypeError, ShapeError, explain


def hash_ids(keys: Any, size: int, *, seed: int = 0) -> np.ndarray:
    """An id in [0, size) for each key, an integer or a string; the same on every machine.

    Different keys may meet in one row (Weinberger et al., 2009, "Feature hashing for large scale
    multitask learning"); tables with other seeds make the same two meet in another place. The
    result is int64 in the shape of `keys`.

    >>> ids = hash_ids(["red", "green", "red"], 1000)
    >>> bool(ids[0] == ids[2]), bool(ids[0] == ids[1])
    (True, False)
    """
    if size < 1:
        raise ShapeError(explain("hash_ids", "size >= 1", repr(size)))
    array = as_host_array("hash_ids", keys)
    start = np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
    if array.dtype.kind in "iu":
        mixed = _mix(array.astype(np.uint64) ^ _mix(np.full(1, start))[0])
    elif array.dtype.kind == "U":
        mixed = _of_text(array, start)
    else:
        raise DtypeError(explain("hash_ids", "integers or strings", f"{array.dtype}"))
    return (mixed % np.uint64(size)).astype(np.int64)


def _mix(x: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64 (Steele, Lea & Flood, 2014): every bit depends on all."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _of_text(texts: np.ndarray, start: np.uint64) -> np.ndarray:
    """A character at a time, for all strings at once; shorter ones end in zeros, left alone."""
    width = texts.dtype.itemsize // 4
    letters = np.ascontiguousarray(texts).astype(f"<U{max(1, width)}").view("<u4")
    letters = letters.reshape(*texts.shape, max(1, width))
    h = np.full(texts.shape, start, np.uint64)
    for column in range(letters.shape[-1]):
        letter = letters[..., column].astype(np.uint64)
        h = np.where(letter != 0, _mix(h ^ letter), h)
    return _mix(h)
