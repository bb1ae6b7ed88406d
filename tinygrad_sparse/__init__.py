"""tinygrad_sparse: automatic differentiation in which gradients of looked-up tables stay sparse.

import numpy as np, tinygrad_sparse as ts

W = ts.parameter(np.random.default_rng(0).normal(size=(50_000, 64)), name="table")
opt = ts.optim.SGD([W], lr=0.1)
with ts.Tape() as tape:
    loss = (W[[3, 14, 15]] ** 2).sum()
opt.step(tape.backward(loss))       # touches three rows
"""

from . import errors, nn, ops, optim, testing
from .backend import get_num_threads, set_num_threads
from .checkpoint import load, save
from .errors import DensifyWarning
from .functional import grad, hvp, jvp, value_and_grad
from .gradstore import GradStore
from .habits import pointing
from .on_file import normal_rows, parameter_file
from .primitive import primitive
from .rules import Kink, elementwise, reindexed, rowwise
from .slices import IndexedSlices
from .tape import Tape, no_grad
from .tensor import Tensor, parameter, tensor

__getattr__ = pointing(__name__, {"ts.ops": ops, "ts.nn": nn, "ts.optim": optim})
__version__ = "0.1.0"

__all__ = [
    "DensifyWarning",
    "GradStore",
    "IndexedSlices",
    "Kink",
    "Tape",
    "Tensor",
    "elementwise",
    "errors",
    "get_num_threads",
    "grad",
    "hvp",
    "jvp",
    "load",
    "nn",
    "no_grad",
    "normal_rows",
    "ops",
    "optim",
    "parameter",
    "parameter_file",
    "primitive",
    "reindexed",
    "rowwise",
    "save",
    "set_num_threads",
    "tensor",
    "testing",
    "value_and_grad",
]
