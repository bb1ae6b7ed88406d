"""What a tape entry keeps: of large arrays only those whose elements some rule reads. Floor 3.

May import `backend` and `rules`. A sum's cotangent needs the shape of what was summed, a square's
does not need the square. That is read off the rules' own code, once, when an op is declared: an
argument that a rule never names, or names for its shape alone, is not read. In a large entry it is
replaced by a stand-in, one number stretched to its shape, so that everything else sees an array.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from tinygrad_sparse.backend import Array, adapter_of
from tinygrad_sparse.rules import RowRule

LARGE = 2**18  # bytes of a result below which it is not worth asking
FILL = 0.0  # what stand-ins show; nobody reads it
OUT = -1  # the result's number among an entry's values, beside those of the arguments
_OF_SHAPE = frozenset({"shape", "dtype", "ndim", "size"})


def unread(vjp: Any, rows: RowRule | None, arity: int) -> tuple[int, ...]:
    """The numbers of the arguments, and OUT, whose elements no rule of an op reads."""
    remap = rows.remap if rows is not None else ()
    if not isinstance(vjp, tuple) or not isinstance(remap, tuple):
        return ()  # made for each argument when it is asked for
    read: set[int] = set()
    for rule in filter(None, (*vjp, *remap)):
        rule = inspect.unwrap(rule)  # a rule that only hands values on reads what that one reads
        if type(rule) is not FunctionType or rule.__code__.co_argcount != arity + 2:
            return ()
        names = rule.__code__.co_varnames[1 : arity + 2]  # after g: out and the arguments
        read.update(k for k, name in enumerate(names, OUT) if name in _elements_read(rule))
    return tuple(k for k in range(OUT, arity) if k not in read)


def _elements_read(rule: FunctionType) -> set[str]:
    """The variables that a function loads other than to ask for a shape or dtype."""
    steps = list(dis.get_instructions(rule))
    read: set[str] = set()
    for step, following in zip(steps, [*steps[1:], steps[-1]], strict=True):
        if step.opname.startswith("LOAD") or step.opname == "MAKE_CELL":
            names = list(step.argval) if isinstance(step.argval, tuple) else [step.argval]
            if following.opname == "LOAD_ATTR" and following.argval in _OF_SHAPE:
                names.pop()  # of two that one instruction loads, the last
            read.update(names)
    return read


def slim(entry: tuple[Any, ...], unread: Sequence[int]) -> tuple[Any, ...]:
    """A tape entry without the elements that no rule reads."""
    op, out, args, *rest = entry
    return (
        op,
        _stand_in(out) if OUT in unread else out,
        tuple([_stand_in(a) if k in unread else a for k, a in enumerate(args)]),
        *rest,
    )


def _stand_in(x: Any) -> Array:
    dtype = getattr(x, "dtype", None)
    if dtype is None or dtype.kind != "f":
        return x
    adapter = adapter_of(x)
    return adapter.broadcast_to(adapter.xp.full((), FILL, dtype), x.shape)
