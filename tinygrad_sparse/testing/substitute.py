"""An op with other VJPs: how laws look into the reverse loop, and faults are planted. Floor 6."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinygrad_sparse.primitive import Primitive

Vjp = Callable[..., Any]


def vjps_of(op: Primitive, arity: int) -> list[Vjp | None]:
    """The VJPs of an op's arguments, made for as many as there are if it takes any number."""
    return [op.vjp[k] for k in range(arity)]


def with_vjps(op: Primitive, vjps: Sequence[Vjp | None]) -> Primitive:
    """The same op with these VJPs, one an argument."""
    return Primitive(op.name, op.kernels, tuple(vjps), op.rows, False)
