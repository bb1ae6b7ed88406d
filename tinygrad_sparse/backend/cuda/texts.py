"""Every CUDA text there is, whole and plain: `extern "C"`, pointers and sizes, no headers. Floor 1.

A text is a few type names, source/common.cu, for an update the formula as `formula` prints it, and
one file of source/. Any compiler of CUDA C takes it as it is; nothing here needs a GPU, or CuPy.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .formula import Generated

# One rounding an operation, as in NumPy: a fused multiply-add would have other last digits.
OPTIONS = ("-std=c++17", "--fmad=false")
FLOATS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
_ENTRY = re.compile(r"__global__ void(?: __launch_bounds__\(.*?\))? (\w+)\(")
_INTS = {np.dtype(np.int32): "int", np.dtype(np.int64): "long long"}


class Kernel(NamedTuple):
    """One kernel: its name, and the text that defines it."""

    entry: str
    text: str


def pack_of(dtype: np.dtype) -> int:
    """How many numbers make 16 bytes, the most that a thread moves at once."""
    return 16 // np.dtype(dtype).itemsize


def entries_of(text: str) -> list[str]:
    """The names of a text's kernels."""
    return _ENTRY.findall(text)


@cache
def rows_text(dtype: np.dtype, ids: np.dtype, vec: int) -> str:
    """Lookups and bags."""
    return _text("rows", _types(dtype, vec, I=_INTS[ids]))


@cache
def sort_text(keys: np.dtype, given: np.dtype) -> str:
    """Sorting ids, and numbering the runs of equal ones; `given`: how few ids come."""
    names = {"K": f"unsigned {_INTS[keys]}", "GIVEN": _INTS[given]}
    return _text("sort", _types(np.dtype(np.float32), 1, **names))


@cache
def _update_text(name: str, formula: str, dtype: np.dtype, ids: np.dtype, vec: int) -> str:
    return _text(name, _types(dtype, vec, I=_INTS[ids]), formula)


def update_text(formula: Generated, dtype: np.dtype, ids: np.dtype, vec: int) -> str:
    """A formula on rows."""
    if formula.whole_rows:
        return _update_text("update_whole", formula.text, dtype, ids, 1)
    return _update_text("update", formula.text, dtype, ids, vec)


def _types(dtype: np.dtype, vec: int, **names: str) -> str:
    names = {"T": FLOATS[dtype], **names}
    lines = [f"typedef {kind} {name};" for name, kind in names.items()]
    return "\n".join([*lines, f"#define VEC {vec}\n"])


def _text(name: str, types: str, formula: str = "") -> str:
    return "\n".join([types, _source("common"), formula, _source(name)])


@cache
def _source(name: str) -> str:
    return (Path(__file__).parent / "source" / f"{name}.cu").read_text(encoding="utf-8")
