"""From an array's type to the functions that work on it. Floor 1: may import `errors` only.

An adapter is a module with `xp` (the NumPy-like namespace) and the few functions in which array
libraries differ. It is found by one dictionary lookup on the array's type. `Tensor` is registered
here too, by the operators, so the gradient algebra of `slices` runs on recorded values unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from tinygrad_sparse.errors import DtypeError, RowIndexError, TinygradSparseError, explain

from . import numpy as numpy_adapter
from .threads import get_num_threads as get_num_threads
from .threads import set_num_threads as set_num_threads

Array = Any  # an ndarray of whichever library holds the data; a Tensor where second order runs
SWITCH = "TINYGRAD_SPARSE_BACKEND"

ANY = "fiubc"  # kinds of numbers, complex ones among them
_SCALARS = frozenset({float, int, bool})  # operands that an op takes as they are
_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)


def _for_ndarray() -> ModuleType:
    """The adapter for NumPy arrays: numba's, where it is installed and not switched off.

    That module does not import numba before there is something to compute with it.
    """
    wanted = os.environ.get(SWITCH, "auto")
    if wanted not in ("auto", "numpy", "numba"):
        raise TinygradSparseError(explain(SWITCH, "auto, numpy or numba", repr(wanted)))
    if wanted == "numpy":
        return numpy_adapter
    if find_spec("numba") is None:
        if wanted == "numba":
            hint = "pip install 'tinygrad_sparse[fast]'"
            raise TinygradSparseError(explain(SWITCH, "numba to be installed", "none", hint))
        return numpy_adapter
    from . import numba as numba_adapter

    return numba_adapter


_ADAPTERS: dict[type, Any] = {np.ndarray: _for_ndarray()}


def register(array_type: type, adapter: Any) -> None:
    """Make `adapter` responsible for arrays of `array_type`."""
    _ADAPTERS[array_type] = adapter


def adapter_of(x: Array) -> Any:
    """The adapter for an array; Python and NumPy scalars count as NumPy's."""
    return _ADAPTERS.get(type(x), numpy_adapter)


def adapter_of_type(array_type: type) -> Any:
    """The adapter for arrays of a type."""
    return _ADAPTERS.get(array_type, numpy_adapter)


def adapter_for(device: str) -> ModuleType:
    """The adapter of a device by its public name."""
    if device == "cpu":
        return _ADAPTERS[np.ndarray]
    hint = "this version computes on the CPU alone"
    raise TinygradSparseError(explain("device", "'cpu'", repr(device), hint))


def adapter_of_all(arrays: Sequence[Array]) -> Any:
    """The adapter for arrays that are put together: that of Tensors, if some are recorded."""
    adapters = [adapter_of(x) for x in arrays]
    return next((a for a in adapters if a.records), adapters[0])


def as_host_array(op: str, x: Any) -> np.ndarray:
    """`x`, which is no array of ours, as NumPy's. What a mask hides must not be computed with."""
    if isinstance(x, np.ma.MaskedArray):
        hint = "x.filled(value) has numbers everywhere, ops.where(mask, x, y) chooses"
        raise DtypeError(explain(op, "an array without a mask", type(x).__name__, hint))
    try:
        return np.asarray(x)
    except ValueError as error:  # lists of different lengths
        raise DtypeError(explain(op, "real numbers, arrays or Tensors", repr(x))) from error


def as_operand(op: str, x: Any, kinds: str = "fiub") -> Array:
    """`x` as something an op can compute with: scalars stay scalars, lists become arrays.

    `kinds` of numbers other than these raise DtypeError. Among arrays alone complex ones are fine:
    there an op is the NumPy function.
    """
    if type(x) in _SCALARS:
        return x
    array = x if type(x) in _ADAPTERS else as_host_array(op, x)
    dtype = array.dtype
    if dtype.kind not in kinds:
        got = f"{type(x).__name__} ({dtype})"
        raise DtypeError(explain(op, "real numbers, arrays or Tensors", got))
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def as_array(op: str, x: Any, kinds: str = ANY) -> Array:
    """`x` as an array or a Tensor that an op can compute with: lists and numbers become arrays."""
    x = as_operand(op, x, kinds)
    return np.asarray(x) if type(x) in _SCALARS else x


def as_arrays(op: str, given: Sequence[Any]) -> list[Array]:
    """The same for several; Python's numbers take the dtype of the others, as in arithmetic."""
    data = [as_operand(op, x, ANY) for x in given]
    if not any(type(x) in _SCALARS for x in data):
        return data
    dtype = np.result_type(*(x if type(x) in _SCALARS else x.dtype for x in data))
    return [np.asarray(x, dtype) if type(x) in _SCALARS else x for x in data]


def describe(x: Array) -> str:
    """An array's dtype and shape, for error texts: ``float32 (10, 8)``."""
    return f"{x.dtype} {tuple(x.shape)}" if hasattr(x, "dtype") else repr(x)


def are_row_ids(ids: Any, size: int) -> bool:
    """True if `ids` is an int64 NumPy array in [0, size) already; False means: ask `row_ids`.

    One comparison, of unsigned numbers, sees ids that are too large and negative ones.
    """
    if type(ids) is not np.ndarray or ids.dtype is not _INT64 or not ids.size:
        return False
    unsigned = ids.view(_UINT64)
    return unsigned.item(unsigned.argmax()) < size


def row_ids(op: str, ids: Any, size: int, context: str = "") -> Array:
    """`ids` as int64 in [0, size), negative ones counted from the end; any rank, any integer dtype.

    A copy: who fills the same array with the next batch must not change what was checked here, and
    what a Tape keeps. Raises RowIndexError for anything else, before the caller has recorded or
    changed a thing. Ids never pass through a float: float32 cannot tell row 16,777,216 from
    16,777,217.
    """
    if are_row_ids(ids, size):
        return ids.copy()
    fresh = isinstance(ids, (list, tuple))
    if type(ids) not in _ADAPTERS:
        try:
            ids = as_host_array(op, ids)
        except DtypeError as error:
            raise RowIndexError(explain(op, "integer ids", f"{ids!r}{context}")) from error
    if ids.dtype.kind not in "iu":
        if ids.size or ids.dtype != np.float64:  # NumPy makes [] float64; no id is lost in it
            boolean = ids.dtype.kind == "b"
            hint = "np.flatnonzero(mask) gives the rows of a mask" if boolean else "ids.astype(int)"
            raise RowIndexError(
                explain(op, "integer ids", f"{ids.dtype} {ids.shape}{context}", hint)
            )
        ids = ids.astype(np.int64)
    if ids.size and (ids.dtype != np.int64 or int(ids.view(np.uint64).max()) >= size):
        low, high = int(ids.min()), int(ids.max())
        if low < -size or high >= size:
            flat = ids.ravel()
            at = int(((flat >= size) | (flat < -size)).argmax())
            raise RowIndexError(
                explain(
                    op,
                    f"ids in [{-size}, {size})" if low < 0 else f"ids in [0, {size})",
                    f"{int(flat[at])} at position {at} (ids {describe(ids)}{context})",
                )
            )
        ids, fresh = ids.astype(np.int64), True
        if low < 0:
            ids = np.where(ids < 0, ids + size, ids)
    return ids.astype(np.int64, copy=not fresh)
