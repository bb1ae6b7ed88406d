"""Every op, under NumPy's name. Floor 4: may import floors 0 to 3.

On Tensors an op computes and, inside a Tape, records; on arrays it is the NumPy function. Here are
also the other names of an op, the methods that take their arguments differently, and the adapter
through which the gradient algebra runs on Tensors.
"""

from __future__ import annotations

from typing import Any

from tinygrad_sparse.backend import register
from tinygrad_sparse.tensor import Tensor

from . import recorded
from .elementwise import (
    absolute,
    add,
    cast,
    divide,
    exp,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    relu,
    sigmoid,
    softplus,
    sqrt,
    subtract,
    tanh,
    where,
)
from .linalg import matmul
from .reduce import log_softmax, logsumexp, max, mean, min, softmax, sum
from .rows import getitem, scatter_rows, take
from .shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    reshape,
    squeeze,
    stack,
    swapaxes,
    transpose,
)

abs, sub, mul, div, neg, pow = absolute, subtract, multiply, divide, negative, power

__all__ = [
    "abs", "absolute", "add", "broadcast_to", "cast", "concatenate", "div", "divide", "exp",
    "expand_dims", "getitem", "log", "log_softmax", "logsumexp", "matmul", "max", "maximum", "mean",
    "min", "minimum", "mul", "multiply", "neg", "negative", "pow", "power", "relu", "reshape",
    "scatter_rows", "sigmoid", "softmax", "softplus", "sqrt", "squeeze", "stack", "sub", "subtract",
    "sum", "swapaxes", "take", "tanh", "transpose", "where",
]  # fmt: skip


def _reshape(self: Any, *shape: Any) -> Any:
    """`ops.reshape`; the sizes may also be given one by one."""
    return reshape(self, shape[0] if len(shape) == 1 else shape)


def _transpose(self: Any, *axes: Any) -> Any:
    """`ops.transpose`; the axes may also be given one by one."""
    return transpose(self, axes[0] if len(axes) == 1 else axes or None)


for _name, _method in {
    "reshape": _reshape,
    "transpose": _transpose,
    "T": property(transpose),
    "astype": cast,
    "swapaxes": swapaxes,
    "squeeze": squeeze,
    "__getitem__": getitem,
}.items():
    setattr(Tensor, _name, _method)

register(Tensor, recorded)
