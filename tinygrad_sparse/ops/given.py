"""What an op that is made of others may be given. Floor 4; no op is declared here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_sparse.backend import as_operand


def as_array(op: str, x: Any) -> Any:
    """`x` with a shape: Tensors and arrays as they are, lists and numbers as arrays."""
    return x if hasattr(x, "shape") else np.asarray(as_operand(op, x))


def as_arrays(op: str, given: Sequence[Any]) -> list[Any]:
    """The same for several; Python's numbers take the dtype of the others, as in arithmetic."""
    data = [x if hasattr(x, "shape") else as_operand(op, x) for x in given]
    if all(hasattr(x, "shape") for x in data):
        return data
    dtype = np.result_type(*(x.dtype if hasattr(x, "shape") else x for x in data))
    return [x if hasattr(x, "shape") else np.asarray(x, dtype) for x in data]
