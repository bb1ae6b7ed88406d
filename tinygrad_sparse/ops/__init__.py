"""Every op, under NumPy's name. Floor 4: may import floors 0 to 3.

On Tensors an op computes and, inside a Tape, records; on arrays it is the NumPy function. An op is
a public function of one of the modules below: declaring it there is all it takes.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tinygrad_sparse.backend import register
from tinygrad_sparse.habits import pointing
from tinygrad_sparse.tensor import Tensor

from . import recorded, shape

if TYPE_CHECKING:
    from .activation import *
    from .bag import *
    from .conv import *
    from .diagonals import *
    from .einsum import *
    from .elementwise import *
    from .exponential import *
    from .index import *
    from .join import *
    from .linalg import *
    from .logistic import *
    from .lookup_products import *
    from .norms import *
    from .reduce import *
    from .rounding import *
    from .rows import *
    from .scan import *
    from .segment import *
    from .shape import *
    from .softmax import *
    from .solve import *
    from .sorting import *
    from .trigonometric import *

# In the order in which a reader meets them. Some have the name of an op, which takes their place.
MODULES = tuple(
    import_module(f"{__name__}.{name}")
    for name in (
        "elementwise", "exponential", "rounding", "trigonometric", "activation", "logistic",
        "shape", "rows", "lookup_products", "index", "join", "sorting", "segment", "bag",
        "reduce", "scan", "norms", "softmax",
        "diagonals", "linalg", "einsum", "solve", "conv",
    )
)  # fmt: skip


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

__getattr__ = pointing(__name__, {})
Tensor.T = property(shape.transpose)  # type: ignore[attr-defined]  # Tensor's ops come from here
register(Tensor, recorded)
