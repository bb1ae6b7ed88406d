"""What float16 is added up in: float32, for in float16 2048 + 1 is 2048. Floor 1."""

from __future__ import annotations

from typing import Any

import numpy as np

_HALF, _SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def wide_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype to add and multiply numbers of `dtype` in."""
    return _SINGLE if dtype == _HALF else dtype


def widened(x: Any) -> Any:
    """`x` in the dtype to add it up in; itself if it has that already."""
    return x.astype(_SINGLE) if x.dtype == _HALF else x
