"""Where the arrays of a law live, and how it looks at them: it compares on the host. Floor 6."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_for, adapter_of
from tinygrad_sparse.slices import IndexedSlices, densify, is_sparse, rows_of
from tinygrad_sparse.tensor import unwrap


def put(x: np.ndarray, like: Array) -> Array:
    """`x` where the array `like` is."""
    return adapter_of(like).asarray(x)


def placed(x: np.ndarray, device: str) -> Array:
    """`x` on a device."""
    return adapter_for(device).asarray(x)


def home(x: Any) -> Any:
    """The values of `x`, an array, a Tensor or a gradient, on the host: rows stay rows."""
    if is_sparse(x):
        if type(x.values) is np.ndarray:
            return x
        return rows_of(home(x.indices), home(x.values), x.shape, x.lead)
    x = unwrap(x)
    return x if isinstance(x, np.ndarray) else adapter_of(x).to_host(x)


def dense(g: IndexedSlices | Array) -> Any:
    """The same as a dense array; repeats are summed on the host, in their order."""
    return densify(home(g))


def rows_at(x: Array, ids: list[int]) -> Array:
    """Rows of an array; lists are no index on a device."""
    return adapter_of(x).take_rows(x, put(np.array(ids, np.int64), x))
