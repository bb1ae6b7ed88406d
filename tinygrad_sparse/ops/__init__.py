"""Every op, under NumPy's name. Floor 4: may import floors 0 to 3.

On Tensors an op computes and, inside a Tape, records; on arrays it is the NumPy function. An op is
a public function of one of the modules below: declaring it there is all it takes.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from tinygrad_sparse.backend import register
from tinygrad_sparse.tensor import Tensor

from . import constants, conv, diagonals, elementwise, linalg, recorded, reduce, rows, shape
from . import einsum as _einsum  # the op of this name takes its place
from . import solve as _solve

if TYPE_CHECKING:
    from .constants import *
    from .conv import *
    from .diagonals import *
    from .einsum import *
    from .elementwise import *
    from .linalg import *
    from .reduce import *
    from .rows import *
    from .shape import *
    from .solve import *

MODULES = (elementwise, shape, reduce, diagonals, _einsum, linalg, _solve, conv, constants, rows)


def declared(module: ModuleType) -> dict[str, Any]:
    """The ops of a module: its own public functions, other names of one op included."""
    return {
        name: f
        for name, f in vars(module).items()
        if getattr(f, "__module__", None) == module.__name__ and not name.startswith("_")
    }


__all__ = []  # filled below
for _module in MODULES:
    _ops = declared(_module)
    globals().update(_ops)
    __all__ += sorted(_ops)

Tensor.T = property(shape.transpose)  # type: ignore[attr-defined]
register(Tensor, recorded)
