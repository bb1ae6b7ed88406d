"""Products of vectors, matrices and more axes. Floor 4: declarations only."""

from __future__ import annotations

import math
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, as_array, as_arrays_beside, describe
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import composite, primitive
from tinygrad_sparse.rules import elementwise, roles
from tinygrad_sparse.shapes import Shape

from .axes import canonical_axes
from .einsum import _einsum
from .elementwise import multiply
from .shape import expand_dims, reshape, squeeze, swapaxes


def _matmul_canonical(x: Array, w: Array) -> Any:
    for a in (x, w):
        if getattr(a, "ndim", 0) == 0:
            raise ShapeError(explain("matmul", "arrays of 1 or more axes", describe(a)))
    if x.shape[-1] != w.shape[-2 if w.ndim > 1 else 0]:
        got = f"{describe(x)} @ {describe(w)}"
        raise ShapeError(explain("matmul", "inner sizes that agree, (n, k) @ (k, m)", got))
    return (x, w), {}


def _matrix(x: Any) -> Any:
    # its width may be 0, so -1 would not do
    return x if len(x.shape) == 2 else reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _matmul_vjp_x(g: Any, out: Any, x: Any, w: Any) -> Any:
    if len(w.shape) == 1:
        return expand_dims(g, -1) * w
    if len(x.shape) == 1:
        return squeeze(expand_dims(g, -2) @ swapaxes(w, -1, -2), -2)
    if g.shape[-1] == 1:  # an outer product: a multiply does it in a third of the time of BLAS
        return g * swapaxes(w, -1, -2)
    return g @ swapaxes(w, -1, -2)


def _matmul_vjp_w(g: Any, out: Any, x: Any, w: Any) -> Any:
    if len(x.shape) == 1:
        return expand_dims(x, -1) * expand_dims(g, -2) if len(w.shape) > 1 else x * g
    if len(w.shape) == 1:
        return reshape(g, (-1,)) @ _matrix(x)
    if len(w.shape) == 2:  # a shared matrix: one product over all rows, not a stack to be summed
        return _matrix(x).T @ _matrix(g)
    if g.shape[-2] == 1:
        return swapaxes(x, -1, -2) * g
    return swapaxes(x, -1, -2) @ g


def _matmul_roles(lead: int, out: Shape, shapes: list[Shape], static: Any) -> str | None:
    """Stacks of matrices broadcast as elements do; below them, row i of x @ w needs row i of x."""
    x, w = shapes
    stacks = [a[:-2] for a in shapes]
    n = max(map(len, stacks))
    if lead <= n:
        return elementwise.roles(lead, out[:n], stacks, static)
    alone = len(x) == lead + 1 and x[:lead] == out[:lead] and all(m == 1 for m in w[:-2])
    return "rs" if alone else None


@primitive(
    rows=roles(_matmul_roles, dense="if x is a vector"),
    vjp=(_matmul_vjp_x, _matmul_vjp_w),
    canonical=_matmul_canonical,
    methods=("__matmul__",),
    reflected="__rmatmul__",
)
def matmul(xp: Any, x: Array, w: Array) -> Array:
    """The matrix product (\\*batch, n, k) @ (\\*batch, k, m); 1-D operands as in NumPy.

    All rows share w, whose gradient is dense, that of picked elements ``(x @ y.T)[i, j]`` too:
    ``inner(x, y)[i, j]`` keeps the rows of both, and `row_products` computes no others.
    """
    return xp.matmul(x, w)


# -- products made of others ---------------------------------------------------------------------


def _has_axes(op: str, x: Any) -> bool:
    return bool(as_array(op, x).shape)


@composite(methods=("dot",))
def dot(x: Any, y: Any) -> Any:
    """x @ y for vectors and matrices; x · y if one is a number.

    In general the sum over the last axis of x and the last but one of y, (\\*n, k) and
    (\\*m, k, c) -> (\\*n, \\*m, c), which is not what matmul does with a stack.
    """
    if not _has_axes("dot", x) or not _has_axes("dot", y):
        return multiply(x, y)
    x, y = as_arrays_beside("dot", x, y)
    return x @ y if len(y.shape) <= 2 else tensordot(x, y, (-1, -2))


def inner(x: Any, y: Any) -> Any:
    """The sum of products over the last axis of both: (\\*n, k) and (\\*m, k) -> (\\*n, \\*m)."""
    if not _has_axes("inner", x) or not _has_axes("inner", y):
        return multiply(x, y)
    return tensordot(x, y, (-1, -1))


def vdot(x: Any, y: Any) -> Any:
    """The sum of products over all elements of two arrays of one size."""
    x, y = as_arrays_beside("vdot", x, y)
    if x.size != y.size:
        got = f"{describe(x)} and {describe(y)}"
        raise ShapeError(explain("vdot", "arrays of one size", got))
    return reshape(x, x.size) @ reshape(y, y.size)


def outer(x: Any, y: Any) -> Any:
    """Every product of an element of x with one of y: sizes n and m -> (n, m)."""
    x, y = as_arrays_beside("outer", x, y)
    return reshape(x, (x.size, 1)) * reshape(y, y.size)


def kron(x: Any, y: Any) -> Any:
    """The Kronecker product: each element of x times the whole of y, in blocks.

    >>> kron(np.array([1.0, 10.0]), np.array([1.0, 2.0]))
    array([ 1.,  2., 10., 20.])
    """
    x, y = as_arrays_beside("kron", x, y)
    n = max(len(x.shape), len(y.shape))
    blocks, inside = ((1,) * (n - len(a.shape)) + tuple(a.shape) for a in (x, y))
    apart = reshape(x, [m for size in blocks for m in (size, 1)])
    within = reshape(y, [m for size in inside for m in (1, size)])
    return reshape(apart * within, [b * i for b, i in zip(blocks, inside, strict=True)])


def tensordot(x: Any, y: Any, axes: Any = 2) -> Any:
    """The sum of products over pairs of axes: what is left of x, then what is left of y.

    `axes` is a number n (the last n of x with the first n of y, in order; 0 is the outer product)
    or a pair, each an axis or a sequence of axes. Raises ShapeError.

    >>> tensordot(np.ones((2, 3, 4)), np.ones((4, 3, 5)), axes=([1, 2], [1, 0])).shape
    (2, 5)
    """
    x, y = as_arrays_beside("tensordot", x, y)
    pairs = _pairs(axes, x, y)
    mine, yours = ascii_lowercase[: len(x.shape)], list(ascii_uppercase[: len(y.shape)])
    for i, j in pairs:
        yours[j] = mine[i]
    kept = [a for a in mine if a not in yours] + [a for a in yours if a not in mine]
    return _einsum([x, y], inputs=(mine, "".join(yours)), output="".join(kept))


def _pairs(axes: Any, x: Any, y: Any) -> list[tuple[int, int]]:
    """Which axis of x goes with which of y."""
    m, n = len(x.shape), len(y.shape)
    if isinstance(axes, (int, np.integer)):
        axes = (range(m - axes, m), range(axes))
    if len(axes) != 2:
        expected = "axes: a number, or a pair of axes"
        raise ShapeError(explain("tensordot", expected, repr(axes)))
    mine, yours = (
        canonical_axes("tensordot", tuple(a) if isinstance(a, range) else a, ndim)
        for a, ndim in zip(axes, (m, n), strict=True)
    )
    if [x.shape[a] for a in mine] != [y.shape[a] for a in yours]:
        got = f"{describe(x)} along {mine} and {describe(y)} along {yours}"
        raise ShapeError(explain("tensordot", "axes of equal length", got))
    return list(zip(mine, yours, strict=True))
