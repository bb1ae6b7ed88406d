"""The reverse loop: one pass over the tape, from the loss back. Floor 3.

May import everything on its floor and below. The tape's order is a topological order, so backward
is one loop over it: no sort, no recursion, each node once.
"""

from __future__ import annotations

import time
from functools import partial
from sys import getrefcount
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, describe, refuse_mixed
from tinygrad_sparse.errors import ShapeError, TapeError, TinygradSparseError, explain
from tinygrad_sparse.gradstore import GradStore
from tinygrad_sparse.primitive import fit, pull
from tinygrad_sparse.report import Cost
from tinygrad_sparse.slices import Gradient, accumulate, is_sparse, sealed, some_values
from tinygrad_sparse.tape import Tape, state
from tinygrad_sparse.tensor import LOST, Tensor, constant, recorded, unwrap


def backward(tape: Tape, loss: Tensor, seed: Any, create_graph: bool) -> GradStore:
    """`Tape.backward`: see there."""
    check_call(tape, loss, create_graph)
    g = as_seed(loss, seed, create_graph)
    keep = create_graph or tape.persistent
    try:
        tape._spent = tape._spent or not keep
        cotangents = run(tape, loss._node, 0, g, create_graph, keep)
        store = GradStore()
        for node, (leaf, _) in tape._leaves.items():
            if node in cotangents:
                store._params[-node] = leaf
                store._grads[-node] = sealed(cotangents[node])
        if len(store) < len(tape._leaves):
            store._lost = _consumers(tape, cotangents)
        return store
    finally:
        if not keep:
            tape._free()


def check_call(tape: Tape, loss: Tensor, create_graph: bool) -> None:
    if type(loss) is not Tensor or loss._tape is not tape:
        what = f"{loss.name} {loss.shape}" if type(loss) is Tensor else repr(loss)
        why = "which this Tape did not record"
        raise TapeError(
            explain(
                "backward",
                "a tensor computed from parameters inside this Tape's block",
                f"{what}, {why}",
                LOST if type(loss) is Tensor and not loss._node else None,
            )
        )
    tape._refuse_spent("backward")
    if create_graph and state.tape is not tape:
        raise TapeError(
            explain(
                "backward", "create_graph=True inside the Tape's block", "a call after it",
                "indent the call into the with block, and compute with the gradients there",
            )
        )  # fmt: skip
    for leaf, version in tape._leaves.values():
        if leaf._version != version:
            raise TapeError(
                explain(
                    "backward",
                    f"{leaf.name} {leaf.shape} as it was in the forward",
                    "values that were changed since (by an optimizer step, say)",
                    "call backward before the step",
                )
            )


def as_seed(loss: Tensor, seed: Any, create_graph: bool) -> Any:
    data = loss._data
    if seed is None:
        if loss.size != 1:
            raise ShapeError(
                explain(
                    "backward",
                    "a scalar loss, or a seed of the loss's shape",
                    f"loss {describe(data)} and no seed",
                    "reduce it with .sum() or .mean(), or pass seed=",
                )
            )
        g = adapter_of(data).xp.empty(data.shape, data.dtype)
        g.fill(1)
    elif is_sparse(seed):
        if seed.shape != loss.shape:
            got = f"{seed.dtype} {seed.shape}"
            raise ShapeError(explain("backward", f"a seed of shape {loss.shape}", got))
        refuse_mixed("backward", (data, some_values(seed)))
        return seed.astype(data.dtype)._map(partial(_seed_values, create_graph=create_graph))
    else:
        g = unwrap(seed)
        refuse_mixed("backward", (data, g))
        g = adapter_of(data).asarray(g)
        if g.shape != loss.shape or g.dtype.kind not in "fiub":
            raise ShapeError(explain("backward", f"a seed of shape {loss.shape}", describe(g)))
        if create_graph and type(seed) is Tensor:
            if g.dtype == data.dtype:
                return seed
            return seed.astype(data.dtype)  # type: ignore[attr-defined]  # a method from `ops`
        g = g.astype(data.dtype, copy=True)
    return constant(g) if create_graph else g


def _seed_values(v: Any, create_graph: bool) -> Any:
    if create_graph and type(v) is Tensor:
        return v
    data = unwrap(v)
    own = adapter_of(data).copy(data)
    return constant(own) if create_graph else own


def reverse(
    tape: Tape,
    cotangents: dict[int, Gradient],
    start: int,
    stop: int,
    create_graph: bool,
    keep: bool,
    owned: set[int],
) -> None:
    """Run the tape's entries from `start` down to, but without, `stop`.

    `cotangents` is keyed by node, and holds one for `start`; left in it are those of parameters
    (negative) and of whatever lies at or below `stop`. A cotangent is dropped as soon as it was
    pulled back, and an entry too unless `keep`. `owned` lists the nodes whose sum is a buffer that
    only this loop has seen.
    """
    entries = tape._entries
    op: Any = None
    c: Gradient = None
    k = 0
    try:
        for node in range(start, stop, -1):
            g = cotangents.pop(node, None)
            if g is None:
                continue
            op, out, args, parents, static, line = entries[node]
            c, k = g, -1
            if not keep:
                entries[node] = None
            if create_graph:
                out, args = _lift(tape, node, out, args, parents)
            if type(g) is not type(out):  # rows, or a scalar where an array belongs
                dense = partial(tape._densify, op.name, line=line)
                for parent, c in zip(
                    parents, pull(op, g, out, args, parents, static, dense), strict=True
                ):
                    if c is not None:
                        _add(tape, cotangents, owned, parent, c, op.name, line)
                continue
            # `pull` for a dense g, written out: this is the hot path.
            vjps, n = op.vjp, len(args)
            for k, parent in enumerate(parents):
                if parent and (vjp := vjps[k]) is not None:
                    if static is not None:
                        c = vjp(g, out, *args, **static)
                    elif n == 1:  # spelled out: a call that unpacks a tuple costs half again
                        c = vjp(g, out, args[0])
                    elif n == 2:
                        c = vjp(g, out, args[0], args[1])
                    else:
                        c = vjp(g, out, *args)
                    arg = args[k]
                    if c.shape != arg.shape or c.dtype is not arg.dtype:
                        c = fit(op, k, c, arg, out)
                    total = cotangents.get(parent)
                    if total is None:
                        cotangents[parent] = c
                    elif type(total) is type(c) is type(arg):
                        if parent in owned or (not create_graph and _alone(total)):
                            total += c
                            cotangents[parent] = total
                        else:
                            cotangents[parent] = total + c
                        owned.add(parent)
                    else:
                        _add(tape, cotangents, owned, parent, c, op.name, line)
    except Exception as error:
        if op is not None and not isinstance(error, TinygradSparseError):
            if isinstance(error, AttributeError) and not hasattr(c, "shape"):
                fit(op, k, c, args[k], out)  # raises: it says which rule gave something shapeless
            got = ", ".join(describe(a) for a in args)
            which = f", argument {k}" if k >= 0 else ""  # rows are pulled through all at once
            error.add_note(f"in the VJP of {op.name}{which}; its arguments: {got}")
        raise


def _alone(total: Array) -> bool:
    """Whether the first contribution to a sum is a buffer that nothing but the sum refers to.

    A rule may have answered with its g, a saved value or an array of its own; then there is
    another reference, and where it is a view of one, a base.
    """
    if total.base is not None or getrefcount(total) != _ALONE:
        return False
    return getattr(total.flags, "writeable", True)  # CuPy's arrays all are


def _references() -> int:
    """What `getrefcount` says in `_alone` of an array that only the dictionary of sums holds."""
    cotangents = {1: np.empty(0)}
    total = cotangents.get(1)
    return _counted(total)


def _counted(total: Any) -> int:
    return getrefcount(total)


_ALONE = _references()


def run(
    tape: Tape, start: int, stop: int, seed: Gradient, create_graph: bool, keep: bool
) -> dict[int, Gradient]:
    """The cotangents that `reverse` leaves; by entries where a tape keeps figures or copies."""
    cotangents: dict[int, Gradient] = {start: seed}
    owned: set[int] = set()
    if tape._costs is None and tape._watched is None:
        reverse(tape, cotangents, start, stop, create_graph, keep, owned)
        return cotangents
    for node in range(start, stop, -1):
        if node in cotangents:
            if tape._watched is not None:
                tape._watched.check(node, keep)
            op, g, before = tape._entries[node][0], cotangents[node], len(tape.densified)
            began = time.perf_counter()
            reverse(tape, cotangents, node, node - 1, create_graph, keep, owned)
            seconds = time.perf_counter() - began
            densified = sum(record.nbytes for record in tape.densified[before:])
            if tape._costs is not None:
                tape._costs.setdefault(op.name, Cost()).add(g, densified, seconds)
    return cotangents


def _add(
    tape: Tape,
    cotangents: dict[int, Gradient],
    owned: set[int],
    node: int,
    c: Gradient,
    name: str,
    line: tuple[str, int] | None,
) -> None:
    if node not in cotangents:
        cotangents[node] = c
        return
    total = cotangents[node]
    if is_sparse(total) != is_sparse(c):
        # One dense buffer is what the mathematics asks for here: noted, but nothing to refuse.
        tape._note_densified(f"{name}, added to a dense gradient", c, line)
    cotangents[node] = accumulate(total, c, node in owned)
    owned.add(node)


def _lift(
    tape: Tape, node: int, out: Array, args: tuple[Any, ...], parents: tuple[int, ...]
) -> tuple[Tensor, list[Any]]:
    """An entry's saved values as Tensors that stand where they stood on the tape."""
    lifted: list[Any] = []
    for a, parent in zip(args, parents, strict=True):
        if parent > 0:
            lifted.append(recorded(a, parent, tape))
        else:
            lifted.append(tape._leaves[parent][0] if parent else a)
    return recorded(out, node, tape), lifted


def _consumers(tape: Tape, cotangents: dict[int, Gradient]) -> dict[int, str]:
    """For each recorded parameter without a gradient, an op that used it."""
    lost = {node for node in tape._leaves if node not in cotangents}
    found: dict[int, str] = {}
    for entry in tape._entries[1:]:
        if entry is not None:
            for parent in entry[3]:
                if parent in lost:
                    found.setdefault(-parent, entry[0].name)
    return found
