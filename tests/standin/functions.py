"""The stand-in's module: CuPy's functions by NumPy's, of the names that `names` lists alone."""

from __future__ import annotations

import math
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tinygrad_sparse.backend.cuda import Kernel, Launch, entries_of

from .arrays import capturing, compute, counts, ndarray, shuffle, unwrap, wait, wrap
from .device import captured, cuda, get_default_memory_pool
from .names import ALIASES, AT, FUNCTIONS, UFUNCS, WAITING

VIEWS = {
    "broadcast_to", "diagonal", "expand_dims", "flip", "moveaxis", "ravel", "reshape", "squeeze",
    "swapaxes", "transpose", "lib.stride_tricks.as_strided",
}  # fmt: skip
RENAMED = {"newshape": "shape"}


class Ufunc:
    """A ufunc: called, or `at` where there are atomic operations."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._f = getattr(np, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if out is None:
            return compute(self._f, *args, **kwargs)
        counts.launches += 1
        with np.errstate(all="ignore"):
            self._f(*unwrap(args), out=out._a, **kwargs)
        return out

    def at(self, table: ndarray, rows: ndarray, values: Any) -> None:
        if table.dtype.char not in AT.get(self.__name__, ""):
            raise TypeError(f"{self.__name__}.at of {table.dtype}")
        if type(rows) is not ndarray:
            raise TypeError("ids on the host are a hidden upload")
        counts.launches += 1
        values = np.broadcast_to(unwrap(values), (*rows.shape, *table.shape[rows.ndim :]))
        order = shuffle.permutation(len(rows))
        self._f.at(table._a, rows._a[order] % max(1, len(table)), values[order])


def _function(name: str, parameters: tuple[str, ...]) -> Any:
    f = np
    for part in name.split("."):
        f = getattr(f, part)

    def call(*args: Any, **kwargs: Any) -> Any:
        wrong = len(args) > len(parameters) or set(kwargs) - set(parameters)
        if wrong and "kwargs" not in parameters:
            raise TypeError(f"cupy.{name} takes {parameters}, got {len(args)}, {sorted(kwargs)}")
        if name in WAITING:
            wait(name)
        if name == "repeat" and type(args[1]) is ndarray:
            wait("repeat by an array")
        if name == "argsort" or name == "sort":
            kwargs["kind"] = "stable"
        kwargs = {RENAMED.get(k, k): v for k, v in kwargs.items()}
        if name in ("empty", "empty_like"):  # memory that was used before, and no launch
            room = f(*unwrap(args), **kwargs)
            room.fill(np.nan if room.dtype.kind in "fc" else room.dtype.type(111))
            return wrap(room)
        if name in VIEWS:
            return wrap(f(unwrap(args[0]), *args[1:], **kwargs), args[0])
        return compute(f, *args, **kwargs)

    call.__name__ = name
    return call


def _uploaded(x: Any, dtype: Any, order: str, copy: bool) -> ndarray:
    if type(x) is ndarray:
        if not copy and (dtype is None or x.dtype == dtype):
            return x
        counts.launches += 1
        return wrap(np.array(x._a, dtype, order=order))
    if isinstance(x, (list, tuple)) and any(type(part) is ndarray for part in x):
        raise TypeError("a list of device arrays")
    counts.uploads += 1
    return wrap(np.array(x, dtype, order=order))


def array(obj: Any, dtype: Any = None, copy: bool = True, order: str = "K") -> ndarray:
    return _uploaded(obj, dtype, order, copy)


def asarray(a: Any, dtype: Any = None) -> ndarray:
    return _uploaded(a, dtype, "K", False)


def take(a: ndarray, indices: ndarray, axis: int | None = None) -> ndarray:
    return a.take(indices, axis)


def take_along_axis(a: ndarray, indices: ndarray, axis: int) -> ndarray:
    return compute(lambda a, i: np.take_along_axis(a, i % max(1, a.shape[axis]), axis), a, indices)


def raw_modules(machine: Any) -> Any:
    """CuPy's RawModule, whose kernels a `machine` of cuda_machines runs, in either order."""

    class RawModule:
        def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None:
            if type(code) is not str or type(options) is not tuple:
                raise TypeError("RawModule wants a str, and a tuple of options")
            self.code = code

        def get_function(self, name: str) -> Any:
            if name not in entries_of(self.code):
                raise RuntimeError(f"CUDA_ERROR_NOT_FOUND: named symbol not found: {name}")
            kernel = Kernel(name, self.code)

            def launched(grid: Any, block: Any, args: Any) -> None:
                machine.order = int(shuffle.integers(2))
                machine.launches.clear()
                args = tuple(x._a if type(x) is ndarray else x for x in args)
                machine.launch(Launch(kernel, (*grid, 1, 1)[:3], (*block, 1, 1)[:3], args))

            def launch(grid: Any, block: Any, args: Any) -> None:
                check_launch(name, grid, block, args)
                counts.launches += 1
                if capturing:
                    captured(lambda args: launched(grid, block, args), args)
                else:
                    launched(grid, block, args)

            return launch

    return RawModule


MOST = (2**31 - 1, 65535, 65535)  # blocks of a grid


def check_launch(name: str, grid: Any, block: Any, args: Any) -> None:
    """What CuPy or CUDA refuses; and numbers of Python's, which become int64 or float64 unseen."""
    for sizes, most in ((grid, MOST), (block, (1024, 1024, 64))):
        if type(sizes) is not tuple or not all(type(n) is int for n in sizes):
            raise TypeError(f"{name}: expected a tuple of ints, got {sizes}")
        if not all(0 < n <= m for n, m in zip(sizes, most, strict=False)):
            raise ValueError(f"{name}: CUDA_ERROR_INVALID_VALUE: {grid} blocks of {block}")
    if math.prod(block) > 1024:
        raise ValueError(f"{name}: CUDA_ERROR_INVALID_VALUE: {grid} blocks of {block}")
    for x in args:
        if type(x) is not ndarray and not isinstance(x, np.generic):
            raise TypeError(f"{name}: expected arrays on the device and NumPy's scalars, got {x!r}")


def copyto(dst: ndarray, src: ndarray, casting: str = "same_kind", where: Any = None) -> None:
    dst[...] = src


def _module() -> ModuleType:
    cupy = ModuleType("cupy", "A stand-in on NumPy: see tests/standin.")
    for namespace in ("linalg", "lib", "lib.stride_tricks"):
        _set(cupy, namespace, SimpleNamespace())
    for name, parameters in FUNCTIONS.items():
        _set(cupy, name, _function(name, parameters))
    for name in UFUNCS:
        setattr(cupy, name, Ufunc(name))
    for name, of in ALIASES.items():
        setattr(cupy, name, getattr(cupy, of))
    for own in (array, asarray, take, take_along_axis, ndarray, copyto, get_default_memory_pool):
        setattr(cupy, own.__name__, own)
    cupy.is_available = lambda: True
    cupy.cuda, cupy.__version__ = cuda, "14.2.0"
    return cupy


def _set(module: Any, name: str, value: Any) -> None:
    *path, last = name.split(".")
    for part in path:
        module = getattr(module, part)
    setattr(module, last, value)


cupy = _module()
