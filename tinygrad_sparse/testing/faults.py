"""Wrong rules, planted one at a time: does this case notice? Floor 6.

A law that never fails proves nothing, and neither does a case that a wrong rule would pass.
`planted_faults` breaks the VJPs and the row rules of every op that a case records, each in a few
ways; a fault that changes no number on this case (swapping the arguments of a sum) is left out,
because it was tried, not because a list says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tinygrad_sparse.primitive import Primitive
from tinygrad_sparse.rules import RowRule, elementwise
from tinygrad_sparse.slices import IndexedSlices, densify, is_sparse, rows_of
from tinygrad_sparse.tape import Tape
from tinygrad_sparse.tensor import parameter

from .cases import Case
from .laws import LAWS, ROW_SETS, Law
from .substitute import Vjp, vjps_of


class Fault(NamedTuple):
    """One planted error: in which op, which argument, of what kind."""

    op: Primitive
    argument: int
    kind: str
    case: Case
    vjp: Any
    rows: RowRule | None

    def __str__(self) -> str:
        return f"{self.op.name}, argument {self.argument}: {self.kind} ({self.case})"

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The op has this fault inside the block."""
        op = self.op
        right = op.vjp, op.rows
        op.vjp, op.rows = self.vjp, self.rows
        try:
            yield
        finally:
            op.vjp, op.rows = right

    def seen_by(self, laws: Any = LAWS) -> str | None:
        """The name of the first law that this fault breaks, at order 1; None if none does."""
        case = replace(self.case, order=1)
        with self.planted():
            for law in laws:
                if _breaks(law, case):
                    return law.__name__
        return None


def _breaks(law: Law, case: Case) -> bool:
    try:
        law(case)
    except Exception:
        return True
    return False


def planted_faults(case: Case, ops: Any = None) -> Iterator[Fault]:
    """Every fault that changes a gradient of this case, in `ops` or in all ops that it records.

    >>> from tinygrad_sparse import ops
    >>> from tinygrad_sparse.testing import integers, normal
    >>> [fault.kind for fault in planted_faults(Case(ops.add, [normal(3), integers(3, high=9)]))]
    ['0.1 % too much', 'a flipped sign', 'a term added', 'an entry dropped', 'the sign lost']
    """
    right = _gradients(case)
    for op, arity, shapes, tracked in _recorded(case):
        if ops is not None and op not in ops:
            continue
        for k in tracked:
            for fault in _faults(op, k, arity, shapes, case):
                with fault.planted():
                    try:
                        wrong = _gradients(case)
                    except Exception:
                        continue  # the engine itself refuses this one
                if not all(map(_equal, right, wrong)):
                    yield fault


def _recorded(case: Case) -> list[tuple[Primitive, int, list[Any], list[int]]]:
    """The ops of a case: (op, how many arguments, their shapes, the ones with a gradient)."""
    with Tape("allow") as tape:
        case(*[parameter(a) if a.dtype.kind == "f" else a for a in case.draw()])
    found: dict[int, tuple[Primitive, int, list[Any], list[int]]] = {}
    for op, _, args, parents, *_ in tape._entries[1:]:
        vjps = vjps_of(op, len(args))
        tracked = [k for k, parent in enumerate(parents) if parent and vjps[k] is not None]
        shapes = [tuple(getattr(a, "shape", ())) for a in args]
        found.setdefault(id(op), (op, len(args), shapes, tracked))
    return list(found.values())


def recorded_ops(case: Case) -> list[Primitive]:
    """The ops that a case records, each once."""
    return [op for op, *_ in _recorded(case)]


def _faults(op: Primitive, k: int, arity: int, shapes: list[Any], case: Case) -> Iterator[Fault]:
    vjps = vjps_of(op, arity)
    right = vjps[k]
    assert right is not None
    wrong: dict[str, Vjp] = {
        "0.1 % too much": lambda g, out, *a, **s: right(g, out, *a, **s) * 1.001,
        "a flipped sign": lambda g, out, *a, **s: -right(g, out, *a, **s),
        "a term added": lambda g, out, *a, **s: _with_one_more(right(g, out, *a, **s)),
        "an entry dropped": lambda g, out, *a, **s: _without_largest(right(g, out, *a, **s)),
        "the sign lost": lambda g, out, *a, **s: right(abs(g), out, *a, **s),
        "the upstream passed on": lambda g, out, *a, **s: g,
    }
    for j, other in enumerate(vjps):
        if j != k and other is not None and shapes[j] == shapes[k]:
            wrong[f"that of argument {j}"] = other
    for kind, vjp in wrong.items():
        planted = [vjp if j == k else v for j, v in enumerate(vjps)]
        yield Fault(op, k, kind, case, planted, op.rows)
    for kind, rows in _row_faults(op.rows, k, arity):
        yield Fault(op, k, kind, case, op.vjp, rows)


def _without_largest(c: Any) -> Any:
    if is_sparse(c):
        return rows_of(c.indices, _without_largest(c.values), c.shape, c.lead)
    c = np.array(c)
    if c.size:
        c.reshape(-1)[np.argmax(np.abs(c))] = 0.0
    return c


def _with_one_more(c: Any) -> Any:
    if is_sparse(c):
        return rows_of(c.indices, _with_one_more(c.values), c.shape, c.lead)
    return c + 1.0


def _row_faults(rule: RowRule | None, k: int, arity: int) -> Iterator[tuple[str, RowRule]]:
    if rule is not elementwise:
        yield "the row rule of an elementwise op", elementwise
    if rule is not None and rule.remap:
        for kind, spoil in (("ids off by one", _shifted), ("a row dropped", _shortened)):
            yield kind, rule._replace(remap=_spoiled(rule.remap, k, arity, spoil))


def _spoiled(
    remap: Any, k: int, arity: int, spoil: Callable[[IndexedSlices], IndexedSlices]
) -> tuple[Any, ...]:
    functions = [remap(j) if callable(remap) else remap[j] for j in range(arity)]
    right = functions[k]
    if right is not None:

        def wrong(g: Any, out: Any, *args: Any, **static: Any) -> Any:
            c = right(g, out, *args, **static)
            return None if c is None else spoil(c)

        functions[k] = wrong
    return tuple(functions)


def _shifted(c: IndexedSlices) -> IndexedSlices:
    size = max(1, math.prod(c.shape[: c.lead]))
    return rows_of((c.indices + 1) % size, c.values, c.shape, c.lead)


def _shortened(c: IndexedSlices) -> IndexedSlices:
    return rows_of(c.indices[1:], c.values[1:], c.shape, c.lead)


def _gradients(case: Case) -> list[Any]:
    """Gradients of all arguments, for a dense upstream and for some rows of one, at every lead."""
    rng = np.random.default_rng(7)
    arrays = case.draw()
    found = []
    tape = Tape("allow", persistent=True)
    leaves = {k: parameter(a) for k, a in enumerate(arrays) if a.dtype.kind == "f"}
    with tape:
        out = case(*[leaves.get(k, a) for k, a in enumerate(arrays)])
    seeds: list[Any] = [rng.normal(size=out.shape)]
    for lead in range(1, out.ndim + 1):
        size = math.prod(out.shape[:lead])
        for chosen in ROW_SETS.values():
            rows = [r % size for r in chosen] if size else []
            values = rng.normal(size=(len(rows), *out.shape[lead:]))
            seeds.append(IndexedSlices(rows, values, out.shape, lead))
    for seed in seeds:
        grads = tape.backward(out, seed=seed)
        found += [densify(grads[p]) for p in leaves.values() if p in grads]
    return found


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))
