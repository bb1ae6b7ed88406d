"""Diagonals and triangles of matrices. Floor 4: declarations only."""

from __future__ import annotations

from typing import Any

from tinygrad_sparse.backend import Array, adapter_of, as_array, describe, xp_of
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import ids_of, places_of, reindexed
from tinygrad_sparse.shapes import whole_number
from tinygrad_sparse.slices import IndexedSlices, finer, rows_of

from .axes import canonical_axes
from .elementwise import where
from .reduce import sum


def _on_diagonal(xp: Any, sizes: tuple[int, int], offset: int) -> tuple[Array, Array]:
    """The places of a diagonal of a matrix."""
    n, m = sizes
    at = xp.arange(max(0, min(n + min(offset, 0), m - max(offset, 0))))
    return at - min(offset, 0), at + max(offset, 0)


def _undiagonal_rows(
    g: IndexedSlices, out: Any, x: Any, *, sizes: Any, offset: int, axes: Any, place: int
) -> IndexedSlices:
    """Elements of touched rows that are on the diagonal, as rows of x; or the diagonals of rows."""
    lead, shape = g.lead, tuple(x.shape)
    if min(*axes, place) >= lead:
        inner = tuple(a - lead + 1 for a in axes)
        values = _diagonal(g.values, offset=offset, axes=inner, place=place - lead + 1)
        return rows_of(g.indices, values, shape, lead)
    rest, row = _row_axes(lead - 1, axes, place, g.ndim)
    g = finer(g, row)
    places = places_of(g.indices, g.shape[:row])
    i, j = (places[a] for a in axes)
    here = xp_of(i).flatnonzero(j - i == offset)
    mine = [places[a] for a in rest]
    mine.insert(place, i + min(offset, 0))
    ids = ids_of([p[here] for p in mine], shape[: len(mine)])
    return rows_of(ids, adapter_of(g.values).take_rows(g.values, here), shape, len(mine))


def _row_axes(lead: int, axes: tuple[int, int], place: int, ndim: int) -> tuple[list[int], int]:
    """The row axes beside the two of matrices, and how many there are with these two.

    The fewest that are the first axes both of the matrices and, with one at `place` for two, of
    their diagonals, `lead` of which address the rows that came.
    """
    rest = [a for a in range(ndim) if a not in axes]
    n = max(place, lead - 1, max(axes) - 1)
    while max(*axes, *rest[:n]) >= n + 2:
        n += 1
    return rest[:n], n + 2


@primitive(
    rows=reindexed(_undiagonal_rows),
    vjp=(
        lambda g, out, x, *, sizes, offset, axes, place: _diagonal(
            g, offset=offset, axes=axes, place=place
        ),
    ),
)
def _undiagonal(xp: Any, x: Array, *, sizes: Any, offset: int, axes: Any, place: int) -> Array:
    """Zeros but for x on a diagonal along two axes: the transpose of `_diagonal`."""
    x = xp.moveaxis(x, place, -1)
    out = xp.zeros((*x.shape[:-1], *sizes), x.dtype)
    out[..., *_on_diagonal(xp, sizes, offset)] = x
    return xp.moveaxis(out, (-2, -1), axes)


def _diagonal_vjp(g: Any, out: Any, x: Any, *, offset: int, axes: Any, place: int) -> Any:
    sizes = tuple(x.shape[a] for a in axes)
    return _undiagonal(g, sizes=sizes, offset=offset, axes=axes, place=place)


def _diagonal_rows(
    g: IndexedSlices, out: Any, x: Any, *, offset: int, axes: Any, place: int
) -> IndexedSlices:
    """Rows above both axes stay rows; a place on the diagonal becomes a place along both axes."""
    shape, lead = tuple(x.shape), g.lead
    sizes = tuple(shape[a] for a in axes)
    if min(*axes, place) >= lead:
        inner = tuple(a - lead + 1 for a in axes)
        values = _undiagonal(
            g.values, sizes=sizes, offset=offset, axes=inner, place=place - lead + 1
        )
        return rows_of(g.indices, values, shape, lead)
    rest, row = _row_axes(lead, axes, place, len(shape))
    g = finer(g, row - 1)
    places = places_of(g.indices, g.shape[: row - 1])
    along = places.pop(place)
    at = dict(zip(rest, places, strict=True))
    lines = _on_diagonal(xp_of(along), sizes, offset)
    at.update(zip(axes, (line[along] for line in lines), strict=True))
    return rows_of(ids_of([at[a] for a in range(row)], shape[:row]), g.values, shape, row)


@primitive(rows=reindexed(_diagonal_rows), vjp=(_diagonal_vjp,))
def _diagonal(xp: Any, x: Array, *, offset: int, axes: Any, place: int) -> Array:
    """The diagonal along two axes of x, as axis `place` of the result."""
    return xp.moveaxis(xp.diagonal(x, offset, *axes), -1, place)


@composite(methods=("diagonal",))
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements of x with i + offset = j along two axes, as the last axis of the result.

    >>> import numpy as np
    >>> diagonal(np.arange(6.0).reshape(2, 3), offset=1)
    array([1., 5.])
    """
    x = as_array("diagonal", x)
    if len(x.shape) < 2:
        raise ShapeError(explain("diagonal", "an array of 2 or more axes", describe(x)))
    axes = canonical_axes("diagonal", (axis1, axis2), len(x.shape))
    offset = whole_number("diagonal", "a whole number as offset", offset)
    return _diagonal(x, offset=offset, axes=axes, place=len(x.shape) - 2)


@composite(methods=("trace",))
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The sum of a diagonal along two axes."""
    return sum(diagonal(x, offset, axis1, axis2), -1)


def diag(x: Any, k: int = 0) -> Any:
    """A square matrix with the vector x on its k-th diagonal; of a matrix, that diagonal.

    >>> import numpy as np
    >>> diag(np.array([1.0, 2.0]))
    array([[1., 0.],
           [0., 2.]])
    """
    x = as_array("diag", x)
    if len(x.shape) == 2:
        return diagonal(x, k)
    if len(x.shape) != 1:
        raise ShapeError(explain("diag", "a vector or a matrix", describe(x)))
    k = whole_number("diag", "a whole number as k", k)
    n = x.shape[0] + abs(k)
    return _undiagonal(x, sizes=(n, n), offset=k, axes=(0, 1), place=0)


def _triangle(op: str, x: Any, k: int, lower: bool) -> Any:
    x = as_array(op, x)
    if len(x.shape) < 2:
        raise ShapeError(explain(op, "matrices, (*batch, n, m)", describe(x)))
    k = whole_number(op, "a whole number as k", k)
    n, m = x.shape[-2:]
    below = xp_of(x).tri(n, m, k if lower else k - 1, dtype=bool)
    zero: Any = 0.0 if x.dtype.kind == "f" else x.dtype.type(0)  # integers stay integers
    return where(below, x, zero) if lower else where(below, zero, x)


def tril(x: Any, k: int = 0) -> Any:
    """The lower triangle of matrices (\\*batch, n, m): zero above the k-th diagonal."""
    return _triangle("tril", x, k, lower=True)


def triu(x: Any, k: int = 0) -> Any:
    """The upper triangle of matrices (\\*batch, n, m): zero below the k-th diagonal."""
    return _triangle("triu", x, k, lower=False)
