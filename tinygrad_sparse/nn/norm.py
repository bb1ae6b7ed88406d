"""LayerNorm: rows of mean 0 and variance 1. Floor 5."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import Array, as_array
from tinygrad_sparse.backend.precision import widened
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.ops.axes import canonical_axes
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import fixed_axes, rowwise
from tinygrad_sparse.shapes import whole_numbers
from tinygrad_sparse.tensor import parameter

from .module import Module


def _centred(xp: Any, x: Array, axis: tuple[int, ...]) -> Array:
    """x less its mean, in the dtype to add squares up in."""
    x = widened(x)
    return x - xp.mean(x, axis=axis, keepdims=True)


def _deviation_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], eps: float) -> Any:
    n = math.prod(x.shape[a] for a in axis)
    return (g / out / n) * (x - ops.mean(x, axis, True))


@primitive(rows=rowwise("r", when=fixed_axes), vjp=(_deviation_vjp,))
def _deviation(xp: Any, x: Array, *, axis: tuple[int, ...], eps: float) -> Array:
    """√(variance + ε) over `axis`, which is kept."""
    c = _centred(xp, x, axis)
    return xp.sqrt(xp.mean(c * c, axis=axis, keepdims=True) + eps).astype(x.dtype, copy=False)


def _standardised_vjp(g: Any, out: Any, x: Any, *, axis: tuple[int, ...], eps: float) -> Any:
    along = out * ops.mean(g * out, axis, True)
    return (g - ops.mean(g, axis, True) - along) / _deviation(x, axis=axis, eps=eps)


@primitive(rows=rowwise("r", when=fixed_axes), vjp=(_standardised_vjp,))
def _standardised(xp: Any, x: Array, *, axis: tuple[int, ...], eps: float) -> Array:
    """(x - mean) / √(variance + ε) over `axis`."""
    c = _centred(xp, x, axis)
    c /= xp.sqrt(xp.mean(c * c, axis=axis, keepdims=True) + eps)
    return c.astype(x.dtype, copy=False)


def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, axis: Any = -1, eps: float = 1e-5
) -> Any:
    """(x - mean) / √(variance + ε) over `axis`, times weight, plus bias (Ba, Kiros, Hinton, 2016).

    A row of equal numbers becomes zeros. Other rows do not matter, so they stay apart.

    >>> layer_norm(np.array([[1.0, 3.0], [5.0, 5.0]]), eps=1e-12).round(6)
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    x = as_array("layer_norm", x)
    y = _standardised(x, axis=canonical_axes("layer_norm", axis, len(x.shape)), eps=float(eps))
    y = y if weight is None else ops.multiply(y, weight)
    return y if bias is None else ops.add(y, bias)


class LayerNorm(Module):
    """`layer_norm` over the last axes, of the given shape, with `weight` and `bias` of that shape.

    `weight` starts at one, `bias` at zero; neither is there with ``affine=False``.
    """

    def __init__(
        self, shape: Any, *, eps: float = 1e-5, affine: bool = True, dtype: Any = np.float32
    ) -> None:
        self.shape = whole_numbers("LayerNorm", "a shape: a size, or several", shape, least=0)
        self.eps = eps
        self.weight = self.bias = None
        if affine:
            self.weight = parameter(np.ones(self.shape, dtype), name="layer_norm.weight")
            self.bias = parameter(np.zeros(self.shape, dtype), name="layer_norm.bias")

    def __call__(self, x: Any) -> Any:
        n = len(self.shape)
        if tuple(x.shape[-n:]) != self.shape:
            expected = f"(*batch, {', '.join(map(str, self.shape))})"
            raise ShapeError(explain("LayerNorm", expected, str(tuple(x.shape))))
        return layer_norm(x, self.weight, self.bias, tuple(range(-n, 0)), self.eps)
