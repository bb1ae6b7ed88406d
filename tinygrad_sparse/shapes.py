"""Shapes and counts as a user gives them. Floor 1: may import `errors` only."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tinygrad_sparse.errors import ShapeError, explain

Shape = tuple[int, ...]


def whole_numbers(op: str, wanted: str, given: Any, least: int | None = None) -> Shape:
    """`given`, one whole number or a sequence of them, as Python integers.

    Raises ShapeError, with `wanted` for what was expected, for anything else: floats, strings, and
    numbers below `least`.

    >>> whole_numbers("reshape", "a shape", range(2, 4))
    (2, 3)
    """
    if type(given) is tuple and least is None and {int}.issuperset(map(type, given)):
        return given  # a shape of an array, as it nearly always is
    listed = isinstance(given, (Sequence, range)) or getattr(given, "ndim", 0) == 1
    try:
        numbers = tuple([operator.index(n) for n in (given if listed else (given,))])
    except TypeError:
        raise ShapeError(explain(op, wanted, repr(given))) from None
    if least is not None and any(n < least for n in numbers):
        raise ShapeError(explain(op, wanted, repr(given)))
    return numbers


def whole_number(op: str, wanted: str, given: Any, least: int | None = None) -> int:
    """`given` as one Python integer, or ShapeError."""
    (number,) = whole_numbers(op, wanted, (given,), least)
    return number


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """True if an array of `shape` stretches to `to`, which gets neither longer nor wider.

    >>> broadcasts((3, 1), (2, 3, 4)), broadcasts((2, 3), (3,))
    (True, False)
    """
    if not shape:
        return True
    trailing = to[len(to) - len(shape) :]
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(shape, trailing, strict=True))
