"""A stand-in for the module `cupy`, on NumPy, that is stricter than CuPy: no GPU is needed.

`standin.cupy` is put in ``sys.modules`` under CuPy's name, so the adapter runs on it unchanged. It
computes what NumPy computes, and fails where code that works on NumPy would not work, would be
slow, or would be wrong on a GPU:

- an array on the host meets one on the device, or is an index, or a value that is set: TypeError
- a function of NumPy's other than a ufunc gets a device array, or `np.asarray` does: TypeError
- a function or keyword that CuPy does not have: AttributeError, TypeError (`names` lists them)
- an array of objects: ValueError
- ids that are out of range wrap around, without a word
- of several values set at one place a random one stays, and repeated additions come in any order
- waiting for the device, uploads, downloads and launches are counted; `refuse_syncs` turns the
  first of them into an error with a traceback

What it cannot tell: whether a kernel is right on a GPU, how fast anything is, and what two streams
or a full memory do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from tinygrad_sparse import backend

from .arrays import Counts as Counts
from .arrays import counts as counts
from .arrays import ndarray as ndarray
from .arrays import refuse_syncs as refuse_syncs
from .arrays import shuffle as shuffle
from .functions import cupy as cupy
from .functions import raw_modules

ADAPTER = "tinygrad_sparse.backend.cupy"
OURS = (ADAPTER, "tinygrad_sparse.backend.launching")  # what imports cupy
_adapter: list[ModuleType] = []  # imported once: ops remember an adapter's functions by array type


@contextmanager
def kernels(machine: Any) -> Iterator[None]:
    """Within, the adapter launches its CUDA texts: `machine` runs them on the CPU."""
    launching = _adapter[0].launching
    launching.compiled.cache_clear()
    cupy.RawModule = raw_modules(machine)
    launching.wanted = True
    try:
        yield
    finally:
        launching.wanted = False
        del cupy.RawModule


@contextmanager
def installed() -> Iterator[ModuleType]:
    """Within, `import cupy` gives the stand-in, and ``device="cuda"`` computes on it."""
    kept = {name: sys.modules.pop(name, None) for name in ("cupy", *OURS)}
    adapters = dict(backend._ADAPTERS)
    sys.modules["cupy"] = cupy
    if not _adapter:
        for name in OURS:  # the real package's, if that is installed
            vars(backend).pop(name.rpartition(".")[2], None)
        _adapter.append(import_module(ADAPTER))
    ours = dict(zip(OURS, (_adapter[0], _adapter[0].launching), strict=True))
    _put(ours)
    _adapter[0].launching.wanted = False  # see `kernels`
    try:
        yield cupy
    finally:
        _adapter[0]._unread.clear()
        backend._ADAPTERS.clear()
        backend._ADAPTERS.update(adapters)
        del sys.modules["cupy"]
        _put(kept)


def _put(modules: dict[str, ModuleType | None]) -> None:
    """Have these modules, or none, under their names, where `import` looks: in two places."""
    for name, module in modules.items():
        package, _, own = name.rpartition(".")
        sys.modules.pop(name, None)
        if package:
            vars(sys.modules[package]).pop(own, None)
        if module is not None:
            sys.modules[name] = module
            if package:
                setattr(sys.modules[package], own, module)
