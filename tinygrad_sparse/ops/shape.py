"""Ops that give elements other places, each of them one. Floor 4: declarations only."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, as_array, xp_of
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import elementwise, ids_of, moved, places_of, reindexed
from tinygrad_sparse.shapes import broadcasts, whole_numbers
from tinygrad_sparse.slices import Gradient, IndexedSlices, rows_of

from .axes import Axes, canonical_axes, canonical_axis


def _reshape_canonical(x: Array, *, shape: Any) -> tuple[tuple[Array], dict[str, Any]]:
    wanted = f"a shape of {x.size} elements for {x.shape}"
    numbers = whole_numbers("reshape", wanted, shape)
    if numbers.count(-1) == 1:
        rest = math.prod(n for n in numbers if n != -1)
        if rest and x.size % rest == 0:
            numbers = tuple(x.size // rest if n == -1 else n for n in numbers)
    if any(n < 0 for n in numbers) or math.prod(numbers) != x.size:
        raise ShapeError(explain("reshape", wanted, f"{shape}"))
    return (x,), {"shape": numbers}


def _reshape_vjp(g: Gradient, out: Any, x: Any, *, shape: Any) -> Gradient:
    return g.reshape(tuple(x.shape))


@primitive(rows=reindexed(_reshape_vjp), vjp=(_reshape_vjp,), canonical=_reshape_canonical)
def reshape(xp: Any, x: Array, *, shape: Any) -> Array:
    """x with another shape of as many elements; one entry may be -1."""
    return xp.reshape(x, shape)


@composite(methods=("reshape",))
def _reshape_method(self: Any, *shape: Any) -> Any:
    """`ops.reshape`; the sizes may also be given one by one."""
    return reshape(self, shape[0] if len(shape) == 1 else shape)


@composite(methods=("ravel", "flatten"))
def ravel(x: Any) -> Any:
    """x as one axis."""
    return reshape(x, -1)


def expand_dims(x: Any, axis: Axes) -> Any:
    """x with new axes of length 1 at the given places of the result."""
    x = as_array("expand_dims", x)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = len(x.shape) + len(given)
    new = canonical_axes("expand_dims", axis, ndim)
    old = iter(x.shape)
    return reshape(x, tuple(1 if a in new else next(old) for a in range(ndim)))


@composite(methods=("squeeze",))
def squeeze(x: Any, axis: Axes = None) -> Any:
    """x without the given axes of length 1; without all of them if None."""
    x = as_array("squeeze", x)
    if axis is None:
        gone: tuple[int, ...] = tuple(a for a, n in enumerate(x.shape) if n == 1)
    else:
        gone = canonical_axes("squeeze", axis, len(x.shape))
        if any(x.shape[a] != 1 for a in gone):
            raise ShapeError(explain("squeeze", "axes of length 1", f"axis {axis} of {x.shape}"))
    return reshape(x, tuple(n for a, n in enumerate(x.shape) if a not in gone))


def atleast_1d(x: Any) -> Any:
    """x with one axis or more."""
    x = as_array("atleast_1d", x)
    return x if x.shape else reshape(x, (1,))


def atleast_2d(x: Any) -> Any:
    """x with two axes or more; new ones come in front."""
    x = as_array("atleast_2d", x)
    return x if len(x.shape) > 1 else reshape(x, (1, *x.shape) if x.shape else (1, 1))


def atleast_3d(x: Any) -> Any:
    """x with three axes or more: (n,) becomes (1, n, 1) and (n, m) becomes (n, m, 1)."""
    x = as_array("atleast_3d", x)
    return x if len(x.shape) > 2 else expand_dims(atleast_2d(x), -1)


def _transpose_canonical(x: Array, *, axes: Any = None) -> tuple[tuple[Array], dict[str, Any]]:
    if axes is None:
        return (x,), {"axes": tuple(range(x.ndim))[::-1]}
    canonical = canonical_axes("transpose", axes, x.ndim)
    if len(canonical) != x.ndim:
        raise ShapeError(explain("transpose", f"{x.ndim} axes for {x.shape}", repr(axes)))
    return (x,), {"axes": canonical}


def _transpose_rows(g: IndexedSlices, out: Any, x: Any, *, axes: Any) -> IndexedSlices:
    """Ids of the row axes in x's order. Axes of x in front of one of these become row axes too.

    So a row of ``W.T`` is a column of W, at ``lead=2``: as many elements, and nothing padded.
    """
    lead = 1 + max(axes[: g.lead])
    within = [k for k, a in enumerate(axes) if k >= g.lead]  # axes of g's rows
    into = [k for k in within if axes[k] < lead]
    order = into + sorted((k for k in within if axes[k] >= lead), key=lambda k: axes[k])
    if order != within:
        turned = transpose(g.values, (0, *[1 + k - g.lead for k in order]))
    else:
        turned = g.values
    cut = tuple(g.shape[k] for k in into)
    # g's rows, each cut into parts by the axes that become row axes
    xp = xp_of(g.indices)
    grid = places_of(xp.arange(math.prod(cut)), cut) if into else []
    places = {axes[k]: p[:, None] for k, p in enumerate(places_of(g.indices, g.shape[: g.lead]))}
    places.update({axes[k]: p for k, p in zip(into, grid, strict=True)})
    shape = tuple(x.shape)
    ids = ids_of([places[a] for a in range(lead)], shape[:lead])
    ids = xp.broadcast_to(ids, (len(g.indices), math.prod(cut))).reshape(-1)
    return rows_of(ids, turned.reshape((len(ids), *shape[lead:])), shape, lead)


@primitive(
    rows=reindexed(_transpose_rows),
    vjp=(lambda g, out, x, *, axes: transpose(g, tuple(np.argsort(axes).tolist())),),
    canonical=_transpose_canonical,
)
def transpose(xp: Any, x: Array, *, axes: Any = None) -> Array:
    """x with its axes permuted; reversed if `axes` is None."""
    return xp.transpose(x, axes)


@composite(methods=("transpose",))
def _transpose_method(self: Any, *axes: Any) -> Any:
    """`ops.transpose`; the axes may also be given one by one."""
    return transpose(self, axes[0] if len(axes) == 1 else axes or None)


@composite(methods=("swapaxes",))
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """x with two axes exchanged."""
    x = as_array("swapaxes", x)
    ndim = len(x.shape)
    first, second = canonical_axes("swapaxes", axis1, ndim) + canonical_axes(
        "swapaxes", axis2, ndim
    )
    order = list(range(ndim))
    order[first], order[second] = second, first
    return transpose(x, tuple(order))


def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """x with the axes `source` at the places `destination`; the others keep their order."""
    x = as_array("moveaxis", x)
    ndim = len(x.shape)
    moving = canonical_axes("moveaxis", source, ndim)
    to = canonical_axes("moveaxis", destination, ndim)
    if len(moving) != len(to):
        got = f"{source!r} and {destination!r}"
        raise ShapeError(explain("moveaxis", "as many destinations as sources", got))
    order = [a for a in range(ndim) if a not in moving]
    for place, a in sorted(zip(to, moving, strict=True)):
        order.insert(place, a)
    return transpose(x, tuple(order))


def _broadcast_canonical(x: Array, *, shape: Any) -> tuple[tuple[Array], dict[str, Any]]:
    wanted = f"a shape that {x.shape} stretches to"
    numbers = whole_numbers("broadcast_to", wanted, shape)
    if not broadcasts(x.shape, numbers):
        raise ShapeError(explain("broadcast_to", wanted, f"{shape}"))
    return (x,), {"shape": numbers}


@primitive(
    kernel="broadcast_to",
    rows=elementwise,
    vjp=(lambda g, out, x, *, shape: g,),
    canonical=_broadcast_canonical,
)
def broadcast_to(x: Array, *, shape: Any) -> Array:
    """x repeated along new axes and axes of length 1, to `shape`."""


def _flip_canonical(x: Array, *, axis: Axes = None) -> tuple[tuple[Array], dict[str, Any]]:
    return (x,), {"axis": canonical_axes("flip", axis, x.ndim)}


def _flip_rows(g: IndexedSlices, out: Any, x: Any, *, axis: tuple[int, ...]) -> IndexedSlices:
    inner = tuple(1 + a - g.lead for a in axis if a >= g.lead)
    moves = {a: lambda place, last=x.shape[a] - 1: last - place for a in axis}
    return moved(g, g.shape, moves, flip(g.values, inner) if inner else g.values)


@primitive(
    rows=reindexed(_flip_rows),
    vjp=(lambda g, out, x, *, axis: flip(g, axis),),
    canonical=_flip_canonical,
)
def flip(xp: Any, x: Array, *, axis: Axes = None) -> Array:
    """x in reverse order along `axis`: an int, a tuple, or None for all."""
    return xp.flip(x, axis)


def _roll_rows(
    g: IndexedSlices, out: Any, x: Any, *, shift: tuple[int, ...], axis: tuple[int, ...]
) -> IndexedSlices:
    back = dict(zip(axis, shift, strict=True))
    inner = {1 + a - g.lead: -by for a, by in back.items() if a >= g.lead}
    moves = {a: lambda place, n=x.shape[a], by=by: (place - by) % n for a, by in back.items()}
    values = _roll(g.values, shift=tuple(inner.values()), axis=tuple(inner)) if inner else g.values
    return moved(g, g.shape, moves, values)


@primitive(
    rows=reindexed(_roll_rows),
    vjp=(lambda g, out, x, *, shift, axis: _roll(g, shift=tuple(-n for n in shift), axis=axis),),
)
def _roll(xp: Any, x: Array, *, shift: tuple[int, ...], axis: tuple[int, ...]) -> Array:
    return xp.roll(x, shift, axis)


def roll(x: Any, shift: int | Sequence[int], axis: Axes = None) -> Any:
    """x moved by `shift` places along `axis`, what leaves at one end coming back at the other.

    Several shifts for several axes; one axis given twice moves by the sum. With axis=None the
    elements move in the order of the flattened x.

    >>> roll(np.arange(4.0), 1)
    array([3., 0., 1., 2.])
    """
    x = as_array("roll", x)
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, 0), x.shape)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    total: dict[int, int] = {}
    try:
        pairs = np.broadcast(np.asarray(shift), np.asarray(axes))
        shifts = [(operator.index(by), operator.index(a)) for by, a in pairs]
    except (ValueError, TypeError):
        got = f"shift {shift!r} and axis {axis!r}"
        raise ShapeError(explain("roll", "a whole number of places for each axis", got)) from None
    for by, a in shifts:
        a = canonical_axis("roll", a, len(x.shape))
        total[a] = total.get(a, 0) + by
    return _roll(x, shift=tuple(total.values()), axis=tuple(total))
