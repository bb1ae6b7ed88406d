"""Arrays made of integers, without a gradient. Floor 4."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, row_ids
from tinygrad_sparse.tensor import unwrap


def one_hot(ids: Any, classes: int, dtype: Any = np.float32) -> Array:
    """1 at each id and 0 elsewhere: ids (\\*batch) in [-classes, classes) -> (\\*batch, classes).

    A constant array. Where it would multiply a table, ``table[ids]`` is the same without it: a
    label is an embedding id. Raises RowIndexError.

    >>> one_hot([2, 0], 3)
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    rows = row_ids("one_hot", unwrap(ids), classes, f", {classes} classes")
    return (rows[..., None] == np.arange(classes)).astype(dtype)
