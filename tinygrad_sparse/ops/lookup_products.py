"""Products of looked-up rows, a group of them at a time. Floor 4: declarations only.

With the lookup and the product in one op, nothing is copied out of a table, and a row that stands
in a group once is read once for all the rows that it is multiplied with. The two ops here are each
other's VJPs.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import Any

from tinygrad_sparse.backend import (
    Array,
    adapter_of,
    as_array,
    as_array_beside,
    describe,
    row_ids,
    xp_of,
)
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import elementwise, roles
from tinygrad_sparse.shapes import Shape
from tinygrad_sparse.slices import IndexedSlices, rows_of
from tinygrad_sparse.tensor import ready, unwrap

from .shape import reshape, swapaxes


def _as_rows(ids: Array) -> Array:
    """Ids (S, 1, n) as (S, n, 1), and back."""
    return ids.swapaxes(1, 2)


def _placed(values: Any, ids: Array, table: Any) -> IndexedSlices:
    """Values (S, n, d) as the gradient of the rows that were looked up at S·n ids."""
    return rows_of(ids.reshape(-1), reshape(values, (ids.size, table.shape[1])), tuple(table.shape))


def _flat(x: Any) -> tuple[Any, Array]:
    """x (S, n, d) as a table, and the ids (S, n, 1) at which x stands in it."""
    S, n, d = x.shape
    return reshape(x, (S * n, d)), xp_of(x).arange(S * n).reshape(S, n, 1)


def _product_roles(lead: int, out: Shape, shapes: list[Shape], static: Any) -> str | None:
    """for all but the tables, as elements"""
    return f"ss{elementwise.roles(lead, out, shapes[2:], static)}"


@primitive(
    rows=roles(_product_roles),
    vjp=(
        lambda g, out, x, y, rows, columns: _placed(_weighted_rows(g, y, columns), rows, x),
        lambda g, out, x, y, rows, columns: _placed(
            _weighted_rows(swapaxes(g, 1, 2), x, _as_rows(rows)), columns, y
        ),
        None,
        None,
    ),
)
def _row_products(xp: Any, x: Array, y: Array, rows: Array, columns: Array) -> Array:
    """`row_products` of ids that were checked and are ours: rows (S, m, 1), columns (S, 1, n)."""
    return adapter_of(x).row_products(x, y, rows[:, :, 0], columns[:, 0])


def _sum_roles(lead: int, out: Shape, shapes: list[Shape], static: Any) -> str | None:
    """for the weights and ids, as elements"""
    return f"rs{elementwise.roles(lead, out, shapes[2:], static)}" if lead < 3 else None


@primitive(
    rows=roles(_sum_roles),
    vjp=(
        lambda g, out, w, y, ids: _row_products(*_with(g, y, ids)),
        lambda g, out, w, y, ids: _placed(_sums_of(swapaxes(w, 1, 2), g), ids, y),
        None,
    ),
)
def _weighted_rows(xp: Any, w: Array, y: Array, ids: Array) -> Array:
    """`weighted_rows` of ids (S, 1, n) that were checked and are ours."""
    return adapter_of(y).weighted_rows(w, y, ids[:, 0])


def _with(g: Any, y: Any, ids: Array) -> tuple[Any, Any, Array, Array]:
    x, rows = _flat(g)
    return x, y, rows, ids


def _sums_of(w: Any, g: Any) -> Any:
    x, rows = _flat(g)
    return _weighted_rows(w, x, _as_rows(rows))


def row_products(x: Any, y: Any, rows: Any, columns: Any) -> Any:
    """x[rows[s, i]] · y[columns[s, j]], for all i and j of each group s.

    Shapes: tables x (V, d) and y (W, d), ids rows (S, m) and columns (S, n) -> (S, m, n). It is
    ``x[rows] @ y[columns].transpose(0, 2, 1)``, and the gradients are IndexedSlices of what was
    looked up. Raises RowIndexError and ShapeError.

    >>> import numpy as np
    >>> table = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> row_products(table, table, [[0, 1]], [[2, 1, 0]])
    array([[[0., 1., 1.],
            [2., 2., 1.]]])
    """
    op = "row_products"
    x, rows = _lookup(op, "x", x, rows)
    y, columns = _lookup(op, "y", y, columns)
    if x.shape[1] != y.shape[1] or x.dtype != y.dtype:
        got = f"{describe(x)} and {describe(y)}"
        raise ShapeError(explain(op, "tables (V, d) and (W, d) of one dtype", got))
    if len(rows) != len(columns):
        got = f"{rows.shape} and {columns.shape}"
        raise ShapeError(explain(op, "as many groups of rows as of columns", got))
    return _row_products(x, y, rows[:, :, None], columns[:, None])


def weighted_rows(w: Any, y: Any, ids: Any) -> Any:
    """The sum over j of w[s, i, j] · y[ids[s, j]], for each i of each group s.

    Shapes: weights w (S, m, n), table y (V, d), ids (S, n) -> (S, m, d). It is ``w @ y[ids]``, but
    that on the CPU a weight of 0 leaves its row out, so that no NaN or infinity there shows. y's
    gradient is IndexedSlices of what was looked up. Raises RowIndexError and ShapeError.

    >>> import numpy as np
    >>> weighted_rows(np.array([[[1.0, -2.0]]]), np.array([[1.0, 2.0], [3.0, 4.0]]), [[1, 0]])
    array([[[1., 0.]]])
    """
    op = "weighted_rows"
    y, ids = _lookup(op, "y", y, ids)
    w = as_array_beside(op, w, y)
    if len(w.shape) != 3 or (w.shape[0], w.shape[2]) != ids.shape:
        got = f"{describe(w)}, ids {ids.shape}"
        raise ShapeError(explain(op, "weights (S, m, n) for ids (S, n)", got))
    return _weighted_rows(w, y, ids[:, None])


def _lookup(op: str, name: str, table: Any, ids: Any) -> tuple[Any, Array]:
    """A table whose rows at these ids are up to date, and the ids."""
    table = as_array(op, table)
    if len(table.shape) != 2:
        raise ShapeError(explain(op, f"a table {name} (V, d)", describe(table)))
    ids = row_ids(op, unwrap(ids), table.shape[0], f", table {name} {tuple(table.shape)}", table)
    if ids.ndim != 2:
        raise ShapeError(explain(op, "ids (S, n), a row for each group", f"{ids.shape}"))
    return ready(table, ids), ids
