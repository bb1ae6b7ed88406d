"""The adapter for Tensor: `backend.adapter.Algebra` by ops, recorded. Floor 4.

With it the gradient algebra of `slices` runs unchanged under ``create_graph=True``, recorded.
Row ids are plain arrays here as everywhere.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tinygrad_sparse.backend import adapter_of, xp_of

from .rows import _scatter_rows, _take_at
from .shape import reshape

xp = sys.modules[__package__]  # the ops themselves have NumPy's names
records = True


def asarray(x: Any) -> Any:
    """A Tensor as it is."""
    return x


def copy(x: Any) -> Any:
    """A Tensor as it is: no op writes to one."""
    return x


def read_only(x: Any) -> Any:
    """A Tensor as it is: its data is read-only already."""
    return x


def namespace(x: Any) -> Any:
    return xp_of(x._data)


def beside(x: Any, ids: Any) -> Any:
    array = x._array()  # of a table at rest as of any other: nothing is read
    return adapter_of(array).beside(array, ids)


def take_rows(table: Any, rows: np.ndarray, lead: int = 1) -> Any:
    return _take_at(table, rows, lead)


def sum_duplicates(
    rows: np.ndarray, values: Any, size: int | None = None
) -> tuple[np.ndarray, Any]:
    unique, inverse = xp_of(rows).unique(rows, return_inverse=True)
    return unique, _scatter_rows(values, inverse.reshape(-1), size=len(unique))


def scatter_rows(rows: np.ndarray, values: Any, size: int) -> Any:
    return _scatter_rows(values, rows, size=size)


def scatter_add_rows(table: Any, rows: np.ndarray, values: Any) -> Any:
    """``table`` plus the values at their rows: a new Tensor."""
    size = table.shape[0]
    return table + reshape(_scatter_rows(values, rows, size=size), table.shape)
