"""Order: sort, argsort, topk. Floor 4: declarations only.

Ties keep the order they come in, from whichever end one looks, so nothing depends on how many
elements are asked for. A gradient goes to the elements that were chosen; the choice has none.
"""

from __future__ import annotations

from typing import Any

from tinygrad_sparse.backend import Array, as_array, xp_of
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import ids_of, places_of, reindexed
from tinygrad_sparse.shapes import whole_number
from tinygrad_sparse.slices import IndexedSlices, finer, rows_of
from tinygrad_sparse.tensor import unwrap

from .axes import canonical_axis
from .rows import take_along_axis
from .shape import reshape


def _argsort_canonical(x: Array, *, axis: int | None = -1, descending: bool = False) -> Any:
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = canonical_axis("argsort", axis, x.ndim)
    return (x,), {"axis": axis, "descending": bool(descending)}


@primitive(vjp=(None,), canonical=_argsort_canonical, methods=("argsort",))
def argsort(xp: Any, x: Array, *, axis: int | None = -1, descending: bool = False) -> Array:
    """The ids that sort x along `axis`; ties keep their order. No gradient flows through it.

    With axis=None x is flattened. NaN comes last, and first if descending.

    >>> import numpy as np
    >>> argsort(np.array([3.0, 1.0, 3.0])), argsort(np.array([3.0, 1.0, 3.0]), descending=True)
    (array([1, 0, 2]), array([0, 2, 1]))
    """
    if not descending:
        return xp.argsort(x, axis=axis, kind="stable")
    backward = xp.argsort(xp.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - xp.flip(backward, axis)


def _permute_rows(g: IndexedSlices, out: Any, x: Any, order: Array, *, axis: int) -> IndexedSlices:
    if axis >= g.lead:
        lead = g.lead
        mine = order.reshape((-1, *order.shape[lead:]))[g.indices]
        along = 1 + axis - lead
        values = _permute(g.values, xp_of(mine).argsort(mine, axis=along), axis=along)
        return rows_of(g.indices, values, g.shape, lead)
    g = finer(g, len(g.shape))  # each element goes its own way
    places = places_of(g.indices, g.shape)
    places[axis] = order.reshape(-1)[g.indices]
    return rows_of(ids_of(places, g.shape), g.values, g.shape, g.lead)


@primitive(
    rows=reindexed(_permute_rows, None),
    vjp=(
        lambda g, out, x, order, *, axis: _permute(
            g, xp_of(order).argsort(order, axis=axis), axis=axis
        ),
        None,
    ),
)
def _permute(xp: Any, x: Array, order: Array, *, axis: int) -> Array:
    """x along `axis` in the given order, in which each place occurs once."""
    return xp.take_along_axis(x, order, axis)


def sort(x: Any, axis: int | None = -1, descending: bool = False) -> Any:
    """x in ascending order along `axis`; flattened first if None. NaN comes last.

    The gradient goes back to where each element came from.
    """
    x = as_array("sort", x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = canonical_axis("sort", axis, len(x.shape))
    return _permute(x, argsort(unwrap(x), axis, descending), axis=axis)


def topk(x: Any, k: int, axis: int = -1) -> tuple[Any, Any]:
    """The k largest elements along `axis`, largest first, and their ids: (values, ids).

    Of equal elements the first comes first, whatever k is. The gradient of x is IndexedSlices of
    the elements chosen.

    >>> import numpy as np
    >>> values, ids = topk(np.array([1.0, 2.0, 6.0, 4.0, 6.0]), 3)
    >>> values, ids
    (array([6., 6., 4.]), array([2, 4, 3]))
    """
    x = as_array("topk", x)
    axis = canonical_axis("topk", axis, len(x.shape))
    wanted = f"a whole number k in [0, {x.shape[axis]}]"
    k = whole_number("topk", wanted, k, least=0)
    if k > x.shape[axis]:
        raise ShapeError(explain("topk", wanted, f"{k}"))
    order = argsort(x, axis, True)
    ids = order[(slice(None),) * axis + (slice(k),)]
    return take_along_axis(x, unwrap(ids), axis), ids
