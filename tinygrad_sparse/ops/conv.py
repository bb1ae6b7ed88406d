"""Convolutions: windows of the input, and an einsum of them with the weights. Floor 4.

`_windows` is a view of the padded input, no copy; its transpose `_overlaid` adds windows back where
they came from. Each is the other's VJP, so stride, padding, dilation and every order come with the
pair. Rows (the batch) stay apart throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tinygrad_sparse.backend import Array, as_arrays_beside, describe
from tinygrad_sparse.backend.precision import wide_dtype
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import rowwise
from tinygrad_sparse.shapes import Shape, whole_numbers

from .einsum import _einsum
from .shape import reshape


class _Grid(NamedTuple):
    """Where the windows lie along each axis of space: the same for any batch, and hashable."""

    kernel: Shape
    stride: Shape
    dilation: Shape
    padding: tuple[tuple[int, int], ...]
    space: Shape

    @property
    def padded(self) -> Shape:
        return tuple(n + a + b for n, (a, b) in zip(self.space, self.padding, strict=True))

    @property
    def inside(self) -> tuple[slice, ...]:
        """Where in the padded input the input is."""
        bounds = zip(self.space, self.padding, strict=True)
        return (slice(None), slice(None), *(slice(a, a + n) for n, (a, _) in bounds))

    @property
    def places(self) -> Shape:
        """How many windows there are."""
        axes = zip(self.padded, self.kernel, self.dilation, self.stride, strict=True)
        return tuple((n - d * (k - 1) - 1) // s + 1 for n, k, d, s in axes)


def _above_space(lead: int, out: Shape, x: Shape, *, grid: _Grid) -> bool:
    return lead <= 2


_ROWS = rowwise("r", when=_above_space, dense="never")


@primitive(rows=_ROWS, vjp=(lambda g, out, x, *, grid: _overlaid(g, grid=grid),))
def _windows(xp: Any, x: Array, *, grid: _Grid) -> Array:
    """(N, C, \\*space) -> (N, C, \\*kernel, \\*places): a view of x, or of a padded copy."""
    if grid.padded != grid.space:
        whole = xp.zeros((*x.shape[:2], *grid.padded), x.dtype)
        whole[grid.inside] = x
        x = whole
    steps = x.strides[2:]
    apart = tuple(n * d for n, d in zip(steps, grid.dilation, strict=True))
    along = tuple(n * s for n, s in zip(steps, grid.stride, strict=True))
    return xp.lib.stride_tricks.as_strided(
        x, (*x.shape[:2], *grid.kernel, *grid.places), (*x.strides[:2], *apart, *along)
    )


@primitive(rows=_ROWS, vjp=(lambda g, out, x, *, grid: _windows(g, grid=grid),))
def _overlaid(xp: Any, x: Array, *, grid: _Grid) -> Array:
    """The transpose of `_windows`: each window added back where it came from."""
    out = xp.zeros((*x.shape[:2], *grid.padded), wide_dtype(x.dtype))
    for at in np.ndindex(*grid.kernel):
        axes = zip(at, grid.dilation, grid.stride, grid.places, strict=True)
        cut = (slice(i * d, i * d + s * (n - 1) + 1, s) for i, d, s, n in axes)
        out[(..., *cut)] += x[(slice(None), slice(None), *at)]
    return out[grid.inside].astype(x.dtype, copy=False)


# -- the ops -------------------------------------------------------------------------------------


def conv1d(
    x: Any, w: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """Σ x[n, c, stride·a + dilation·i] · w[o, c, i], over c and i, for each n, o and a.

    Shapes: x (N, C, L), w (O, C / groups, K) -> (N, O, A). As elsewhere in learning this is a
    correlation: w is not flipped. `padding` is how many zeros to put on both sides, or a pair
    (before, after), or "same" (as many as make A = L, for stride 1), or "valid" (none). `groups`
    splits the channels of x and of the result into as many parts, each with its own w. Raises
    ShapeError.

    >>> conv1d(np.array([[[1.0, 2.0, 4.0, 8.0]]]), np.array([[[1.0, -1.0]]]), stride=2)
    array([[[-1., -4.]]])
    """
    return _conv("conv1d", x, w, stride, padding, dilation, groups)


def conv2d(
    x: Any, w: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """`conv1d` along two axes: x (N, C, H, W), w (O, C / groups, KH, KW) -> (N, O, A, B).

    `stride`, `dilation` and `padding` may be pairs, one entry for each axis; an entry of `padding`
    may be a pair (before, after) itself. Raises ShapeError.

    >>> conv2d(np.ones((1, 1, 3, 3)), np.ones((1, 1, 3, 3)), padding="same")[0, 0]
    array([[4., 6., 4.],
           [6., 9., 6.],
           [4., 6., 4.]])
    """
    return _conv("conv2d", x, w, stride, padding, dilation, groups)


_SHAPES = {
    "conv1d": "x (N, C, L) and w (O, C / groups, K)",
    "conv2d": "x (N, C, H, W) and w (O, C / groups, KH, KW)",
}


def _conv(op: str, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    x, w = as_arrays_beside(op, x, w)
    (groups,) = _numbers(op, "groups", groups, 1, 1)
    grid = _grid(op, x, w, stride, padding, dilation, groups)
    kernel, places = "ij"[: len(grid.kernel)], "ab"[: len(grid.kernel)]
    windows = _windows(x, grid=grid)
    if groups == 1:
        inputs = (f"nc{kernel}{places}", f"oc{kernel}")
        return _einsum([windows, w], inputs=inputs, output=f"no{places}")
    n, channels, *rest = windows.shape
    windows = reshape(windows, (n, groups, channels // groups, *rest))
    w = reshape(w, (groups, w.shape[0] // groups, *w.shape[1:]))
    inputs = (f"ngc{kernel}{places}", f"goc{kernel}")
    out = _einsum([windows, w], inputs=inputs, output=f"ngo{places}")
    return reshape(out, (n, groups * w.shape[1], *grid.places))


def _grid(op: str, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> _Grid:
    """The windows, once everything is known to fit."""
    axes = int(op[-2])
    got = f"{describe(x)} and {describe(w)}"
    if not len(x.shape) == len(w.shape) == axes + 2:
        raise ShapeError(explain(op, _SHAPES[op], got))
    (_, channels, *space), (features, each, *kernel) = x.shape, w.shape
    if channels != each * groups or features % groups:
        expected = f"{_SHAPES[op]}, C and O multiples of groups"
        raise ShapeError(explain(op, expected, f"{got}, groups {groups}"))
    steps = _numbers(op, "stride", stride, axes, 1)
    apart = _numbers(op, "dilation", dilation, axes, 1)
    spans = [d * (k - 1) + 1 for d, k in zip(apart, kernel, strict=True)]
    margins = _margins(op, padding, spans, steps)
    grid = _Grid(tuple(kernel), steps, apart, margins, tuple(space))
    if min(kernel) < 1 or any(s > n for s, n in zip(spans, grid.padded, strict=True)):
        expected = f"windows that fit into {grid.padded}, the padded input"
        raise ShapeError(explain(op, expected, f"{tuple(spans)} from {got}"))
    return grid


def _margins(op: str, padding: Any, spans: list[int], steps: Shape) -> Any:
    """Zeros (before, after) along each axis."""
    axes = len(spans)
    if isinstance(padding, str):
        if padding not in ("same", "valid") or (padding == "same" and set(steps) != {1}):
            expected = "padding 'valid', or 'same' with stride 1, or numbers"
            raise ShapeError(explain(op, expected, f"{padding!r} with stride {steps}"))
        extra = [s - 1 if padding == "same" else 0 for s in spans]
        return tuple((n // 2, n - n // 2) for n in extra)
    if axes == 1 and isinstance(padding, Sequence) and len(padding) == 2:
        padding = [padding]
    each = padding if isinstance(padding, Sequence) else [padding] * axes
    if len(each) != axes:
        raise ShapeError(explain(op, f"padding for {axes} axes", repr(padding)))
    return tuple(_numbers(op, "padding", p, 2, 0) for p in each)


def _numbers(op: str, name: str, given: Any, count: int, least: int) -> Shape:
    """`given` as `count` integers: one for all of them, or one each."""
    expected = f"{name} as a whole number >= {least}, or {count} of them"
    numbers = whole_numbers(op, expected, given, least)
    numbers = numbers if isinstance(given, Sequence) else numbers * count
    if len(numbers) != count:
        raise ShapeError(explain(op, expected, repr(given)))
    return numbers
