"""The stand-in's arrays: a wrapper of NumPy's, not a subclass, so no NumPy function can take it."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from .names import METHODS, UFUNCS


@dataclass
class Counts:
    """What a GPU would have been asked for."""

    launches: int = 0
    syncs: int = 0
    uploads: int = 0
    downloads: int = 0

    def clear(self) -> None:
        self.launches = self.syncs = self.uploads = self.downloads = 0


counts = Counts()
shuffle = np.random.default_rng(0)  # which of several values stays, in which order things add up
_refusing: list[bool] = []
capturing: list[list[Any]] = []  # what a stream that captures was given to launch: see `device`


@contextmanager
def refuse_syncs():
    """Within, whatever waits for the device raises."""
    _refusing.append(True)
    try:
        yield
    finally:
        _refusing.pop()


def wait(what: str) -> None:
    """Note that the host waits for the device."""
    if _refusing:
        raise RuntimeError(f"{what} waits for the device")
    if capturing:
        raise RuntimeError(f"cudaErrorStreamCaptureUnsupported: {what} waits inside of a capture")
    counts.syncs += 1


def refuse_host(x: Any) -> NoReturn:
    raise TypeError(f"Unsupported type {type(x)}: an array on the host meets the device")


def unwrap(x: Any) -> Any:
    """What NumPy is to compute with: the data of device arrays, and scalars as they are."""
    if type(x) is ndarray:
        return x._a
    if isinstance(x, np.ndarray):
        refuse_host(x)
    if isinstance(x, (list, tuple)):
        return type(x)(map(unwrap, x))
    return x


def wrap(result: Any, source: ndarray | None = None) -> Any:
    """NumPy's answer as device arrays; `source` is what it may be a view of."""
    if isinstance(result, (np.ndarray, np.generic)):
        return _new(np.asarray(result), source)
    if isinstance(result, tuple):
        parts = [wrap(part, source) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if isinstance(result, list):
        return [wrap(part, source) for part in result]
    return result


def _new(a: np.ndarray, source: ndarray | None = None) -> ndarray:
    if a.dtype.kind not in "biufc":
        raise ValueError(f"Unsupported dtype {a.dtype}")
    new = object.__new__(ndarray)
    new._a = a
    shares = source is not None and (
        np.may_share_memory(a, source._a) if a.size else a.base is not None
    )
    new.base = (source if source.base is None else source.base) if shares else None
    return new


def wrapped_index(index: Any, shape: tuple[int, ...]) -> Any:
    """An index as NumPy is to see it: ids wrap, and arrays on the host are refused."""
    parts, axis, seen = [], 0, index if isinstance(index, tuple) else (index,)
    used = sum(p._a.ndim if _is_mask(p) else p is not None and p is not ... for p in seen)
    for part in seen:
        if isinstance(part, (list, np.ndarray)):
            raise TypeError(f"an index on the host, {type(part).__name__}, is a hidden upload")
        if part is ...:
            axis += len(shape) - used
        elif _is_mask(part):
            wait("a mask as index")
            axis += part.ndim
            part = part._a
        elif type(part) is ndarray:
            if part.dtype.kind not in "iu":
                raise IndexError(f"an index of {part.dtype}")
            part = part._a % max(1, shape[axis])
            axis += 1
        elif part is not None:
            axis += 1
        parts.append(part)
    return tuple(parts) if isinstance(index, tuple) else parts[0]


def _is_mask(part: Any) -> bool:
    return type(part) is ndarray and part.dtype.kind == "b"


class Flags:
    """CuPy's: nothing about writing, for all of its arrays can be written to."""

    def __init__(self, a: np.ndarray) -> None:
        self.c_contiguous = a.flags.c_contiguous
        self.f_contiguous = a.flags.f_contiguous


class ndarray:
    """An array on the device."""

    __slots__ = ("__weakref__", "_a", "base")
    __array_priority__ = 100
    _a: np.ndarray
    base: ndarray | None

    def __init__(self, *args: Any) -> None:
        raise TypeError("use cupy.empty")

    # -- what the host knows ---------------------------------------------------------------------

    shape = property(lambda self: self._a.shape)
    dtype = property(lambda self: self._a.dtype)
    ndim = property(lambda self: self._a.ndim)
    size = property(lambda self: self._a.size)
    nbytes = property(lambda self: self._a.nbytes)
    itemsize = property(lambda self: self._a.itemsize)
    strides = property(lambda self: self._a.strides)
    flags = property(lambda self: Flags(self._a))
    data = property(lambda self: SimpleNamespace(ptr=self._a.ctypes.data))
    T = property(lambda self: wrap(self._a.T, self))

    def __len__(self) -> int:
        return len(self._a)

    # -- waiting for the device ------------------------------------------------------------------

    def get(self) -> np.ndarray:
        wait("get")
        counts.downloads += 1
        return self._a.copy()

    def item(self) -> Any:
        wait("item")
        counts.downloads += 1
        return self._a.item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        return repr(self.get())

    def __format__(self, spec: str) -> str:
        return format(self.get(), spec)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("Implicit conversion to a NumPy array is not allowed: use .get()")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.where:  # what formulas of optimizers select with: no ufunc does
            return compute(function, *args, **kwargs)
        raise TypeError(f"np.{function.__name__} of an array on the device")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or ufunc.__name__ not in UFUNCS or set(kwargs) - {"dtype"}:
            raise TypeError(f"np.{ufunc.__name__}.{method} {sorted(kwargs)} on the device")
        return compute(ufunc, *inputs, **kwargs)

    # -- elements --------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> ndarray:
        result = self._a[wrapped_index(index, self.shape)]
        counts.launches += not np.may_share_memory(result, self._a)
        return wrap(result, self)

    def __setitem__(self, index: Any, values: Any) -> None:
        counts.launches += 1
        index, values = wrapped_index(index, self.shape), unwrap(values)
        parts = index if isinstance(index, tuple) else (index,)
        if not any(isinstance(p, np.ndarray) and p.dtype.kind in "iu" for p in parts):
            self._a[index] = values
            return
        places = np.arange(self.size).reshape(self.shape)[index]
        values = np.broadcast_to(values, places.shape).reshape(-1)
        order = shuffle.permutation(places.size)
        self._a.flat[places.reshape(-1)[order]] = values[order]

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def take(self, indices: Any, axis: int | None = None) -> ndarray:
        counts.launches += 1
        if type(indices) is not ndarray:
            raise TypeError(f"ids on the host, {type(indices).__name__}, are a hidden upload")
        size = self.size if axis is None else self.shape[axis]
        if not size and indices.size:
            raise IndexError("cannot take from an empty axis")
        return wrap(self._a.take(indices._a % max(1, size), axis))

    def nonzero(self) -> tuple[ndarray, ...]:
        wait("nonzero")
        return wrap(self._a.nonzero())

    # -- other arrays ----------------------------------------------------------------------------

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> ndarray:
        if not copy and self.dtype == dtype:
            return self
        counts.launches += 1
        with np.errstate(all="ignore"):
            return wrap(self._a.astype(dtype, order=order))

    def copy(self, order: str = "C") -> ndarray:
        counts.launches += 1
        return wrap(self._a.copy(order))

    def fill(self, value: Any) -> None:
        counts.launches += 1
        self._a.fill(unwrap(value))

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        result = self._a.reshape(*shape, order=order)
        counts.launches += not np.may_share_memory(result, self._a)
        return wrap(result, self)

    def transpose(self, *axes: Any) -> ndarray:
        return wrap(self._a.transpose(*axes), self)

    def view(self, dtype: Any = None) -> ndarray:
        return wrap(self._a.view() if dtype is None else self._a.view(dtype), self)

    def sort(self, axis: int = -1) -> None:
        counts.launches += 1
        self._a.sort(axis, kind="stable")


def compute(function: Any, *args: Any, **kwargs: Any) -> Any:
    """One launch: what `function` of NumPy's gives for the data. Nothing warns on a device."""
    if capturing:
        raise RuntimeError("a capture takes kernels of RawModule alone, on the stand-in")
    counts.launches += 1
    for x in args:
        if isinstance(x, (list, tuple)) and isinstance(function, np.ufunc):
            raise TypeError(f"{function.__name__} of a {type(x).__name__}")
    if isinstance(function, np.ufunc) or function.__module__ == "_operator":
        refuse_large_numbers(args)
    args, kwargs = unwrap(args), {k: unwrap(v) for k, v in kwargs.items()}
    with np.errstate(all="ignore"):
        return wrap(function(*args, **kwargs))


def refuse_large_numbers(args: Any) -> None:
    """CuPy makes a number of Python's one of the arrays' dtype, for a comparison too."""
    dtypes = [x.dtype for x in args if type(x) is ndarray]
    if dtypes and all(dtype.kind in "iu" for dtype in dtypes):
        dtype = np.result_type(*dtypes)
        for x in args:
            if type(x) is int and not np.iinfo(dtype).min <= x <= np.iinfo(dtype).max:
                raise OverflowError(f"Python integer {x} out of bounds for {dtype}")


def _method(name: str, keywords: tuple[str, ...]) -> Any:
    views = name in ("diagonal", "ravel", "squeeze", "swapaxes")

    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        if set(kwargs) - set(keywords):
            raise TypeError(f"{name}() got an unexpected keyword argument of {sorted(kwargs)}")
        if views:
            return wrap(getattr(self._a, name)(*args, **kwargs), self)
        if name == "repeat" and type(args[0]) is ndarray:
            wait("repeat by an array")
        return compute(getattr(np, name), self, *args, **kwargs)

    method.__name__ = name
    return method


for _name, _keywords in METHODS.items():
    setattr(ndarray, _name, _method(_name, _keywords))

for _name in (
    "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift lt le gt ge eq ne"
).split():
    _function = getattr(operator, _name)
    _bare = _name.strip("_")
    setattr(ndarray, f"__{_bare}__", lambda x, y, f=_function: _binary(f, x, y))
    if _name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(ndarray, f"__r{_bare}__", lambda y, x, f=_function: _binary(f, x, y))
        _in_place = getattr(operator, f"i{_bare}")
        setattr(ndarray, f"__i{_bare}__", lambda x, y, f=_in_place: _onto(f, x, y))
for _name in ("neg", "pos", "abs", "invert"):
    _function = getattr(operator, _name)
    setattr(ndarray, f"__{_name}__", lambda x, f=_function: compute(f, x))
ndarray.__hash__ = None
ndarray.__module__ = "cupy"


def _binary(f: Any, x: Any, y: Any) -> Any:
    known = (ndarray, np.ndarray, np.generic, int, float, complex)
    if not isinstance(x, known) or not isinstance(y, known):
        return NotImplemented  # a Tensor, IndexedSlices
    return compute(f, x, y)


def _onto(f: Any, x: ndarray, y: Any) -> Any:
    counts.launches += 1
    with np.errstate(all="ignore"):
        f(x._a, unwrap(y))
    return x
