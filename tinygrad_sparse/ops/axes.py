"""What `axis` may be, in every op: an int, a tuple, or None. Floor 4; no op is declared here."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_sparse.errors import ShapeError, explain

Axes = int | Sequence[int] | None


def canonical_axes(op: str, axis: Axes, ndim: int) -> tuple[int, ...]:
    """`axis` as a tuple of distinct numbers in [0, ndim); None means all."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    try:
        numbers = [operator.index(a) for a in axes]
    except TypeError:
        numbers = [ndim]
    if any(not -ndim <= a < ndim for a in numbers):
        raise ShapeError(explain(op, f"an axis in [{-ndim}, {ndim})", repr(axis)))
    positive = tuple(a % ndim for a in numbers)
    if len(set(positive)) < len(positive):
        raise ShapeError(explain(op, "each axis once", repr(axis)))
    return positive


def canonical_axis(op: str, axis: Any, ndim: int) -> int:
    """`axis` as one number in [0, ndim)."""
    if axis is None or isinstance(axis, (tuple, list)):
        raise ShapeError(explain(op, "one axis", repr(axis)))
    return canonical_axes(op, axis, ndim)[0]


def as_array(x: Any) -> Any:
    """`x` as something with a shape: lists and numbers as arrays, all else as it is."""
    return x if hasattr(x, "shape") else np.asarray(x)
