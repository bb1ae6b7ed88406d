"""Matrix products. Floor 4: declarations only."""

from __future__ import annotations

import math
from typing import Any

from tinygrad_sparse.backend import Array, describe
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import RowRule, Shape

from .shape import expand_dims, reshape, squeeze, swapaxes


def _matmul_canonical(x: Array, w: Array) -> Any:
    for a in (x, w):
        if getattr(a, "ndim", 0) == 0:
            raise ShapeError(explain("matmul", "arrays of 1 or more axes", describe(a)))
    if x.shape[-1] != w.shape[-2 if w.ndim > 1 else 0]:
        got = f"{describe(x)} @ {describe(w)}"
        raise ShapeError(explain("matmul", "inner sizes that agree, (n, k) @ (k, m)", got))
    return (x, w), {}


def _matmul_vjp_x(g: Any, out: Any, x: Any, w: Any) -> Any:
    if len(w.shape) == 1:
        return expand_dims(g, -1) * w
    if len(x.shape) == 1:
        return squeeze(expand_dims(g, -2) @ swapaxes(w, -1, -2), -2)
    return g @ swapaxes(w, -1, -2)


def _rows(x: Any) -> Any:
    """x as a matrix; its width may be 0, so -1 would not do."""
    return reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _matmul_vjp_w(g: Any, out: Any, x: Any, w: Any) -> Any:
    if len(x.shape) == 1:
        return expand_dims(x, -1) * expand_dims(g, -2) if len(w.shape) > 1 else x * g
    if len(w.shape) == 1:
        return reshape(g, (-1,)) @ _rows(x)
    if len(w.shape) == 2:  # a shared matrix: one product over all rows, not a stack to be summed
        return _rows(x).T @ _rows(g)
    return swapaxes(x, -1, -2) @ g


def _matmul_roles(lead: int, out: Shape, shapes: list[Shape], static: Any) -> str | None:
    """Row i of x @ w needs row i of x; and row i of w where w has the same leading axes."""
    x, w = shapes
    if len(x) < 2 or x[:lead] != out[:lead]:
        return None
    if len(w) <= 2:
        return "rs" if lead < len(x) else None
    if len(w) == len(x) and lead <= len(x) - 2:
        return "rr" if w[:lead] == out[:lead] else "rs" if set(w[:lead]) == {1} else None
    return None


@primitive(
    rows=RowRule("rowwise", _matmul_roles),
    vjp=(_matmul_vjp_x, _matmul_vjp_w),
    canonical=_matmul_canonical,
    methods=("__matmul__",),
    reflected="__rmatmul__",
)
def matmul(xp: Any, x: Array, w: Array) -> Array:
    """The matrix product (\\*batch, n, k) @ (\\*batch, k, m); 1-D operands as in NumPy."""
    return xp.matmul(x, w)
