"""Lookups and their transpose: where row-sparse gradients are born. Floor 4: declarations only."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, are_row_ids, as_array, row_ids, xp_of
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import members, reindexed
from tinygrad_sparse.shapes import whole_number
from tinygrad_sparse.slices import IndexedSlices, rows_of
from tinygrad_sparse.tensor import Tensor, pending_of, ready, unwrap

from .axes import canonical_axis
from .shape import reshape


def _take_vjp(g: Any, out: Any, x: Any, ids: Array, *, lead: int = 1) -> IndexedSlices:
    row = tuple(x.shape[lead:])
    return rows_of(ids.reshape(-1), g.reshape((ids.size, *row)), tuple(x.shape), lead)


def _take_rows(g: IndexedSlices, out: Any, x: Any, ids: Array, *, lead: int = 1) -> IndexedSlices:
    """A lookup of a lookup: ids of ids, and never the table between them."""
    if g.lead > ids.ndim:
        # g's rows are parts of rows of x: address x as finely
        inner = math.prod(g.shape[ids.ndim : g.lead])
        mine = ids.reshape(-1)[g.indices // inner] * inner + g.indices % inner
        return rows_of(mine, g.values, tuple(x.shape), lead + g.lead - ids.ndim)
    each = math.prod(ids.shape[g.lead :])
    mine = ids.reshape((math.prod(g.shape[: g.lead]), each))[g.indices].reshape(-1)
    values = g.values.reshape((len(mine), *x.shape[lead:]))
    return rows_of(mine, values, tuple(x.shape), lead)


@primitive(kernel="take_rows", rows=reindexed(_take_rows, None), vjp=(_take_vjp, None))
def _take(x: Array, ids: Array) -> Array:
    """Rows of x; the ids were checked and are ours. Two arguments: the shortest way through."""


@primitive(rows=reindexed(_take_rows, None), vjp=(_take_vjp, None))
def _take_at(xp: Any, x: Array, ids: Array, *, lead: int) -> Array:
    """Rows of x that `lead` axes address, by flat ids: the gradient has these axes as its lead."""
    return adapter_of(x).take_rows(x, ids, lead)


def _looked_up(x: Any, ids: Array, lead: int) -> Any:
    """`_take_at` for ids that were checked; of a table at rest it wakes the rows that it reads."""
    if type(x) is Tensor and pending_of(x) is not None:
        x = ready(x, ids // math.prod(x.shape[1:lead]))
    return _take_at(x, ids, lead=lead)


@composite(methods=("take",))
def take(x: Any, ids: Any, axis: int | None = 0) -> Any:
    """Rows of x at `ids`: x (V, \\*row), ids of any rank and integer dtype -> (\\*ids, \\*row).

    Along another axis, what that axis addresses; with axis=None, elements of the flattened x. (The
    default is 0, where NumPy's is None.) The gradient of x is IndexedSlices of exactly what was
    looked up, ``lead=axis + 1``. Raises RowIndexError for ids outside [-V, V) and for ids that are
    not integers, before anything is recorded. The ids are copied: their array may be filled anew.

    >>> import numpy as np
    >>> take(np.array([[1.0], [2.0], [3.0]]), [2, 0]).ravel()
    array([3., 1.])
    """
    table = x._array() if type(x) is Tensor else x
    shape = table.shape if hasattr(table, "shape") else np.shape(table)
    if axis == 0 and shape and are_row_ids(ids, shape[0]):  # the short way of most lookups
        own = ids.copy()
        if type(table) is not np.ndarray:
            own = adapter_of(as_array("take", table)).beside(table, own)
        return _take(ready(x, own), own)
    x = as_array("take", x)
    if axis is None:
        x, axis, shape = reshape(x, -1), 0, (x.size,)
    if not shape:
        raise ShapeError(explain("take", "a table with rows", "a 0-d array"))
    axis = canonical_axis("take", axis, len(shape))
    n = shape[axis]
    where = f"axis {axis} of {shape}" if axis else f"table {shape}"
    ids = row_ids("take", unwrap(ids), n, f", {where}", x)
    if axis == 0:
        return _take(ready(x, ids), ids)
    before = shape[:axis]
    starts = xp_of(x).arange(math.prod(before)).reshape(before + (1,) * ids.ndim) * n
    return _looked_up(x, starts + ids, axis + 1)


def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """x[..., indices[..., i, ...], ...]: for each place its own id along `axis`.

    `indices` has as many axes as x; the others broadcast against those of x. With axis=None x is
    flattened and `indices` has one axis. The gradient of x is IndexedSlices of the elements taken.

    >>> import numpy as np
    >>> take_along_axis(np.array([[1.0, 2.0], [3.0, 4.0]]), [[1], [0]]).ravel()
    array([2., 3.])
    """
    x = as_array("take_along_axis", x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    shape = tuple(x.shape)
    axis = canonical_axis("take_along_axis", axis, len(shape))
    n = shape[axis]
    ids = row_ids("take_along_axis", unwrap(indices), n, f", axis {axis} of {shape}", x)
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    if ids.ndim != len(shape) or any(
        m != k and 1 not in (m, k)
        for a, (m, k) in enumerate(zip(ids.shape, one, strict=False))
        if a != axis
    ):
        raise ShapeError(
            explain(
                "take_along_axis", f"indices of {len(shape)} axes that fit {shape}", f"{ids.shape}"
            )
        )
    # indices that do not vary along the axes behind address whole rows
    lead = axis + 1 if math.prod(ids.shape[axis + 1 :]) == 1 else len(shape)
    ids = ids.reshape(ids.shape[:lead])
    xp = xp_of(x)
    flat: Any = 0
    for a in range(lead):
        along = (-1,) + (1,) * (lead - 1 - a)
        flat = flat * shape[a] + (ids if a == axis else xp.arange(shape[a]).reshape(along))
    return _looked_up(x, flat, lead)


def _scatter_rows_rows(
    g: IndexedSlices, out: Any, values: Any, ids: Array, *, size: int
) -> IndexedSlices | None:
    """Only the values placed at touched rows."""
    if g.lead != 1:
        return None
    g, here, at = members(g, ids)
    return rows_of(here, adapter_of(g.values).take_rows(g.values, at), tuple(values.shape))


@primitive(
    rows=reindexed(_scatter_rows_rows, None),
    vjp=(lambda g, out, values, ids, *, size: _take(g, ids), None),
)
def _scatter_rows(xp: Any, values: Array, ids: Array, *, size: int) -> Array:
    return adapter_of(values).scatter_rows(ids, values, size)


def scatter_rows(values: Any, ids: Any, size: int) -> Any:
    """A table of `size` rows, zero but for the sum of `values` at `ids`: the transpose of `take`.

    Shapes: values (n, \\*row), ids (n,) -> (size, \\*row). Repeated ids add up.

    >>> import numpy as np
    >>> scatter_rows(np.array([[1.0], [2.0], [4.0]]), [1, 1, 0], 3).ravel()
    array([4., 3., 0.])
    """
    values = as_array("scatter_rows", values)
    size = whole_number("scatter_rows", "a whole number of rows, 0 or more", size, least=0)
    rows = row_ids("scatter_rows", unwrap(ids), size, beside=values)
    if rows.ndim != 1 or tuple(values.shape[:1]) != rows.shape:
        raise ShapeError(
            explain(
                "scatter_rows",
                "values (n, *row) and ids (n,)",
                f"values {tuple(values.shape)} and ids {rows.shape}",
            )
        )
    return _scatter_rows(values, rows, size=size)


def one_hot(ids: Any, classes: int, dtype: Any = np.float32) -> Array:
    """1 at each id and 0 elsewhere: ids (\\*batch) in [-classes, classes) -> (\\*batch, classes).

    A constant array. Where it would multiply a table, ``table[ids]`` is the same without it: a
    label is an embedding id. Raises RowIndexError.

    >>> one_hot([2, 0], 3)
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    classes = whole_number("one_hot", "a whole number of classes, 0 or more", classes, least=0)
    rows = row_ids("one_hot", unwrap(ids), classes, f", {classes} classes")
    return (rows[..., None] == xp_of(rows).arange(classes)).astype(dtype)
