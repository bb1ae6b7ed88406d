"""Cases on a GPU, or on what stands in for one."""

from dataclasses import replace
from functools import wraps
from types import FunctionType

import numpy as np

import tinygrad_sparse as ts
from tinygrad_sparse.errors import DeviceError
from tinygrad_sparse.nn.soft_tree import SparseRows
from tinygrad_sparse.testing.places import placed


def on_gpu(case):
    """The case there. Row ids stay on the host: they are uploaded.

    Where a case has other data there, which is an error, all that it has is moved: what it is
    given, its static arguments, and the arrays that its function knows by a name in capitals.
    """
    case = replace(case, device="cuda")
    try:
        for xs in (case.draw(), map(ts.tensor, case.draw())):
            case(*xs)
        return case
    except (DeviceError, TypeError):
        pass
    f, static = case.function, {k: _moved(v) for k, v in case.static.items()}
    if f.__name__ == "<lambda>":
        names = {n: _moved(f.__globals__[n]) for n in f.__code__.co_names if n.isupper()}
        f = FunctionType(f.__code__, {**f.__globals__, **names}, closure=f.__closure__)

    @wraps(f)
    def function(*args, **static):
        return f(*map(_moved, args), **static)

    return replace(case, function=function, static=static)


def _moved(x):
    """Arrays, constants and rows on the device; anything else as it is."""
    if isinstance(x, SparseRows):
        return SparseRows(*map(_moved, x))
    if type(x) is ts.Tensor and x.device == "cpu":
        return ts.tensor(_moved(x._data))
    return placed(x, "cuda") if isinstance(x, np.ndarray) else x
