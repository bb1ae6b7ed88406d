"""From an array's type to the functions that work on it. Floor 1: may import `errors` only.

An adapter is a module with the few functions in which array libraries differ, which `adapter`
lists. It is found by one dictionary lookup on the array's type. `Tensor` is registered here too, by
the operators, so the gradient algebra of `slices` runs on recorded values unchanged. CuPy, and its
adapter with it, is imported when the first of its arrays comes or device="cuda" is asked for.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from tinygrad_sparse.errors import (
    DeviceError,
    DtypeError,
    RowIndexError,
    TinygradSparseError,
    explain,
)

from . import numpy as numpy_adapter
from .adapter import Adapter, Algebra
from .adapter import Array as Array
from .ids import are_row_ids as are_row_ids
from .reuse import reuse_freed_memory
from .threads import get_num_threads as get_num_threads
from .threads import set_num_threads as set_num_threads

SWITCH = "TINYGRAD_SPARSE_BACKEND"

ANY = "fiubc"  # kinds of numbers, complex ones among them
_SCALARS = frozenset({float, int, bool})  # operands that an op takes as they are


def _for_ndarray() -> Adapter:
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


_CPU = _for_ndarray()
_ADAPTERS: dict[type, Any] = {np.ndarray: _CPU}
reuse_freed_memory()


def register(array_type: type, adapter: Algebra) -> None:
    """Make `adapter` responsible for arrays of `array_type`."""
    _ADAPTERS[array_type] = adapter


def adapter_of(x: Array) -> Any:
    """The adapter for an array; Python and NumPy scalars count as NumPy's."""
    return _ADAPTERS.get(type(x), numpy_adapter)


def adapter_of_type(array_type: type) -> Any:
    """The adapter for arrays of a type."""
    return _ADAPTERS.get(array_type, numpy_adapter)


def xp_of(x: Array) -> Any:
    """The namespace of the arrays that `x`, an array or a Tensor, consists of: for ids and counts.

    Under create_graph the `xp` of a Tensor is the ops, but its row ids are arrays as everywhere.
    """
    return adapter_of(x).namespace(x)


def adapter_for(device: str) -> Adapter:
    """The adapter of a device by its public name."""
    if device == "cpu":
        return _CPU
    if device != "cuda":
        hint = "CuPy's current GPU is used: CUDA_VISIBLE_DEVICES=1 makes it another"
        one_of_many = isinstance(device, str) and device.startswith("cuda:")
        raise DeviceError(
            explain("device", "'cpu' or 'cuda'", repr(device), hint if one_of_many else None)
        )
    try:
        from . import cupy as cupy_adapter
    except ImportError as error:
        hint = "pip install 'tinygrad_sparse[cuda12x]', or [cuda13x]"
        got = str(error)
        raise DeviceError(explain("device='cuda'", "CuPy 14.2 or later", got, hint)) from None
    if cupy_adapter.ndarray not in _ADAPTERS:
        if not cupy_adapter.is_available():
            raise DeviceError(explain("device='cuda'", "a GPU that CuPy can use", "none"))
        register(cupy_adapter.ndarray, cupy_adapter)
    return cupy_adapter


def _is_known(x: Any) -> bool:
    """Whether there is an adapter for `x`; the first array of CuPy's brings its own."""
    if type(x) not in _ADAPTERS and type(x).__module__.partition(".")[0] == "cupy":
        adapter_for("cuda")
    return type(x) in _ADAPTERS


def refuse_mixed(op: str, arrays: Sequence[Any]) -> None:
    """DeviceError if these are arrays of more than one device; scalars and lists are of none."""
    kinds = set(map(type, arrays))
    if len(kinds) < 2 and not any(adapter_of_type(kind).records for kind in kinds):
        return
    devices: dict[str, Any] = {}
    for x in arrays:
        if _is_array(x):
            devices.setdefault(_device(x), x)
    if len(devices) > 1:
        got = " and ".join(f"{describe(x)} on {name!r}" for name, x in sorted(devices.items()))
        hint = "x.to(device) copies one to the other; nothing is copied unasked"
        raise DeviceError(explain(op, "arrays of one device", got, hint))


def _device(x: Any) -> str:
    """The public name of where an array is, or a Tensor, whose rows need not be up to date."""
    adapter = adapter_of(x)
    return x.device if adapter.records else adapter.device


def refuse_ids_elsewhere(op: str, ids: Any, beside: Array) -> None:
    """DeviceError for ids on a GPU that an array is not on. Those on the host may go anywhere."""
    there = _device(ids) if _is_known(ids) else "cpu"
    if there not in ("cpu", _device(beside)):
        wanted = f"ids on the CPU for an array {tuple(beside.shape)} there"
        got = f"ids {describe(ids)} on {there!r}"
        hint = f"ids.get() brings CuPy's to the host; x.to({there!r}) brings the array to them"
        raise DeviceError(explain(op, wanted, got, hint))


def adapter_of_all(arrays: Sequence[Array]) -> Any:
    """The adapter for arrays that are put together: that of Tensors, if some are recorded."""
    adapters = [adapter_of(x) for x in arrays]
    return next((a for a in adapters if a.records), adapters[0])


def as_ours(op: str, x: Any) -> Array:
    """`x` as an array that has an adapter: itself, or as NumPy's."""
    return x if _is_known(x) else as_host_array(op, x)


def as_host_array(op: str, x: Any) -> np.ndarray:
    """`x` as an array of NumPy's. What a mask hides must not be computed with.

    Raises DeviceError for arrays on a GPU, and lists of them: they are not copied unasked.
    """
    if isinstance(x, np.ma.MaskedArray):
        hint = "x.filled(value) has numbers everywhere, ops.where(mask, x, y) chooses"
        raise DtypeError(explain(op, "an array without a mask", type(x).__name__, hint))
    try:
        return np.asarray(x)
    except ValueError as error:  # lists of different lengths
        raise DtypeError(explain(op, "real numbers, arrays or Tensors", repr(x))) from error
    except TinygradSparseError:
        raise
    except TypeError as error:  # what CuPy and PyTorch raise
        got = describe(x) if hasattr(x, "dtype") else f"a {type(x).__name__} of them elsewhere"
        hint = "x.get() copies an array of CuPy's to the host"
        raise DeviceError(explain(op, "arrays on the CPU", got, hint)) from error


def as_operand(op: str, x: Any, kinds: str = "fiub") -> Array:
    """`x` as something an op can compute with: scalars stay scalars, lists become arrays.

    `kinds` of numbers other than these raise DtypeError. Among arrays alone complex ones are fine:
    there an op is the NumPy function.
    """
    if type(x) in _SCALARS:
        return x
    array = x if type(x) in _ADAPTERS else as_ours(op, x)
    dtype = array.dtype
    if dtype.kind not in kinds:
        got = f"{type(x).__name__} ({dtype})"
        raise DtypeError(explain(op, "real numbers, arrays or Tensors", got))
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def as_array(op: str, x: Any, kinds: str = ANY) -> Array:
    """`x` as an array or a Tensor that an op can compute with: lists and numbers become arrays."""
    x = as_operand(op, x, kinds)
    return np.asarray(x) if type(x) in _SCALARS else x


def as_array_beside(op: str, x: Any, like: Array) -> Array:
    """`x` as an array where `like` is: a list or a number is put there, an array has to be there.

    Raises DeviceError for an array on another device.
    """
    array = as_array(op, x)
    if not _is_array(x):
        return xp_of(like).asarray(array)
    refuse_mixed(op, (like, array))
    return array


def as_arrays_beside(op: str, *given: Any) -> list[Array]:
    """The same for several: the first of them that is an array says where."""
    like = next((x for x in given if _is_array(x)), None)
    return [as_array(op, x) if like is None else as_array_beside(op, x, like) for x in given]


def lists_beside(op: str, given: Sequence[Any]) -> list[Any] | None:
    """`given`, its lists and NumPy's numbers put where its arrays are; None if they are there."""
    like = next((x for x in given if _is_array(x) and not isinstance(x, np.ndarray)), None)
    if like is None or xp_of(like) is np:
        return None
    moved = [x if type(x) in _SCALARS else as_array_beside(op, x, like) for x in given]
    return None if all(map(operator.is_, moved, given)) else moved


def _is_array(x: Any) -> bool:
    """Whether `x` is somewhere: an array or a Tensor. Numbers and lists are not."""
    return isinstance(x, np.ndarray) or _is_known(x)


def as_arrays(op: str, given: Sequence[Any]) -> list[Array]:
    """The same for several; Python's numbers take the dtype of the others, as in arithmetic."""
    data = [as_operand(op, x, ANY) for x in given]
    if not all(map(operator.is_, data, given)):
        data = lists_beside(op, given) or data
    if not any(type(x) in _SCALARS for x in data):
        return data
    dtype = np.result_type(*(x if type(x) in _SCALARS else x.dtype for x in data))
    arrays = [x for x in data if type(x) not in _SCALARS]
    xp = xp_of(arrays[0]) if arrays else np
    return [xp.asarray(x, dtype) if type(x) in _SCALARS else x for x in data]


def describe(x: Array) -> str:
    """An array's dtype and shape, for error texts: ``float32 (10, 8)``."""
    return f"{x.dtype} {tuple(x.shape)}" if hasattr(x, "dtype") else repr(x)


def row_ids(op: str, ids: Any, size: int, context: str = "", beside: Array = None) -> Array:
    """`ids` as int64 in [0, size), negative ones counted from the end; any rank, any integer dtype.

    A copy: who fills the same array with the next batch must not change what was checked here, and
    what a Tape keeps. With `beside`, an array or a Tensor, they are on its device: ids on the host
    for a table that is not there are uploaded, here and once. Raises RowIndexError for anything
    else, before the caller has recorded or changed a thing; for ids on a GPU see `cupy.own_ids`.
    """
    if are_row_ids(ids, size):
        ids = ids.copy()
    else:
        if type(ids) not in _ADAPTERS:
            try:
                ids = as_ours(op, ids)
            except DtypeError as error:
                raise RowIndexError(explain(op, "integer ids", f"{ids!r}{context}")) from error
        if beside is not None:
            refuse_ids_elsewhere(op, ids, beside)
        ids = adapter_of(ids).own_ids(op, ids, size, context)
    return ids if beside is None else adapter_of(beside).beside(beside, ids)
