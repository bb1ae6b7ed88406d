"""The reverse loop, the GradStore it fills, and the functional forms. Floor 3.

May import everything on its floor and below. The tape's order is a topological order, so backward
is one loop over it: no sort, no recursion, each node once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial, wraps
from numbers import Real
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, describe
from tinygrad_sparse.errors import (
    DtypeError,
    MissingGradientError,
    ShapeError,
    SparsityError,
    TapeError,
    TinygradSparseError,
    explain,
)
from tinygrad_sparse.primitive import fit, primitive, pull
from tinygrad_sparse.report import Cost
from tinygrad_sparse.rules import elementwise
from tinygrad_sparse.slices import (
    Gradient,
    accumulate,
    densify,
    is_sparse,
    sealed,
    touched,
)
from tinygrad_sparse.tape import Tape, state
from tinygrad_sparse.tensor import Tensor, constant, parameter, recorded, unwrap


class GradStore:
    """Gradients by parameter: what `backward` returns and an optimizer takes.

    `get_ids()` lists the ids of the parameters that got a gradient (candle's meaning of the name);
    `touched_rows(p)` lists the rows of one parameter. It holds trainable leaves only.

    >>> import tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((5, 2))); b = ts.parameter(np.zeros(2))
    >>> with ts.Tape():
    ...     grads = (W[[1, 3]] + b).sum().backward()
    >>> grads.get_ids() == [W.id, b.id], grads.touched_rows(W), grads[b]
    (True, array([1, 3]), array([2., 2.]))
    """

    __slots__ = ("_grads", "_lost", "_params")
    __array_ufunc__ = None  # a NumPy number on the left of an operator defers to us

    def __init__(self) -> None:
        self._params: dict[int, Tensor] = {}
        self._grads: dict[int, Gradient] = {}
        self._lost: dict[int, str] = {}  # recorded parameters that the loss does not depend on

    # -- reading -----------------------------------------------------------------------------

    def get_ids(self) -> list[int]:
        """Ids of the parameters that got a gradient, ascending; costs what it lists."""
        return sorted(self._grads)

    def get_by_id(self, id: int) -> Gradient:
        """The gradient of the parameter with this id."""
        return self[self._params[id]] if id in self._params else self._missing(f"id {id}", id)

    def parameter(self, id: int) -> Tensor:
        """The parameter with this id."""
        return self._params[id] if id in self._params else self._missing(f"id {id}", id)

    def __getitem__(self, p: Tensor) -> Gradient:
        id = _id_of(p)
        if id not in self._grads:
            self._missing(f"{p.name} {p.shape}", id, leaf=p._node < 0)
        return self._grads[id]

    def _missing(self, what: str, id: int, leaf: bool = True) -> Any:
        if not leaf:
            why = f"{what}, which is not a parameter"
        elif id in self._lost:
            why = f"{what}: it went into {self._lost[id]}, whose result the loss does not depend on"
        else:
            why = f"{what}, which no op of this Tape used as a tracked tensor"
        raise MissingGradientError(
            explain(
                "GradStore",
                "a parameter that the loss depends on",
                why,
                "grads.get(p) gives None instead; .detach(), .data and no_grad cut the path",
            )
        )

    def __contains__(self, p: Tensor) -> bool:
        return _id_of(p) in self._grads

    def __iter__(self) -> Iterator[Tensor]:
        return (self._params[id] for id in self.get_ids())

    def __len__(self) -> int:
        return len(self._grads)

    def items(self) -> Iterator[tuple[Tensor, Gradient]]:
        """(parameter, gradient) pairs in the order of `get_ids`."""
        return ((self._params[id], self._grads[id]) for id in self.get_ids())

    def get(self, p: Tensor, default: Any = None) -> Gradient:
        """The gradient of p, or `default` if it got none."""
        return self._grads.get(_id_of(p), default)

    def touched_rows(self, p: Tensor) -> np.ndarray | None:
        """Sorted unique int64 rows with a gradient, zero or not; None if the gradient is dense."""
        rows, _ = touched(self[p])
        if rows is ...:
            return None
        rows = rows.view()
        rows.flags.writeable = False
        return rows

    @property
    def nbytes(self) -> int:
        """Bytes that the gradients hold."""
        return sum(g.nbytes for g in self._grads.values())

    def norm(self, ord: float = 2) -> float:
        """The p-norm over all gradients together, repeated rows summed first; `ord` may be inf.

        Computed in float64 and scaled by the largest element, so that squares do not overflow.
        """
        if not ord > 0:
            raise ShapeError(explain("norm", "ord > 0, or inf", repr(ord)))
        flat = [self._flat(g) for g in self._grads.values()]
        top = max((float(abs(v).max()) for v in flat if v.size), default=0.0)
        if ord == math.inf or not 0.0 < top < math.inf:
            return top
        return top * float(sum(float(((abs(v) / top) ** ord).sum()) for v in flat)) ** (1 / ord)

    @staticmethod
    def _flat(g: Gradient) -> np.ndarray:
        values = unwrap(touched(g)[1])
        return adapter_of(values).to_host(values).astype(np.float64).ravel()

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{p.name}: {g if is_sparse(g) else describe(g)}" for p, g in list(self.items())[:8]
        )
        more = ", ..." if len(self) > 8 else ""
        return f"GradStore({shown}{more})"

    # -- changing ----------------------------------------------------------------------------

    def __setitem__(self, p: Tensor, g: Gradient) -> None:
        id = _id_of(p)
        if p._node >= 0:
            raise TapeError(explain("GradStore", "a parameter as key", f"{p.name} {p.shape}"))
        if not hasattr(g, "shape") or tuple(g.shape) != p.shape:
            raise ShapeError(
                explain("GradStore", f"a gradient of shape {p.shape} for {p.name}", describe(g))
            )
        if g.dtype != p.dtype:
            raise DtypeError(
                explain("GradStore", f"a gradient of {p.dtype} for {p.name}", str(g.dtype))
            )
        self._params[id] = p
        self._grads[id] = sealed(g)

    def pop(self, p: Tensor, *default: Any) -> Gradient:
        """Take the gradient of p out."""
        if default and p not in self:
            return default[0]
        g = self[p]
        del self._grads[p.id], self._params[p.id]
        return g

    def to_dense(self) -> GradStore:
        """The same store with every gradient dense."""
        return self.map(densify)

    def map(self, f: Callable[[Gradient], Gradient]) -> GradStore:
        """A new store with f of each gradient; f keeps shape and dtype."""
        new = GradStore()
        new._lost = self._lost
        for p, g in self.items():
            new[p] = f(g)
        return new

    def __mul__(self, c: float) -> GradStore:
        factor = _factor("*", c)
        return self.map(lambda g: g * factor)

    __rmul__ = __mul__

    def __truediv__(self, c: float) -> GradStore:
        factor = _factor("/", c)
        return self.map(lambda g: g / factor)

    def __add__(self, other: GradStore) -> GradStore:
        """Accumulation over micro-batches: row-sparse gradients stay so."""
        if type(other) is not GradStore:
            return NotImplemented
        new = self.map(lambda g: g)
        new._lost = {**other._lost, **self._lost}
        for p, g in other.items():
            new[p] = accumulate(new[p], g, owned=False) if p in new else g
        return new


def _id_of(p: Any) -> int:
    if type(p) is not Tensor:
        raise TapeError(explain("GradStore", "a parameter as key", repr(p)))
    return p.id


def _factor(sign: str, c: Any) -> Any:
    """`c` as what scales a gradient of any dtype without widening it."""
    if isinstance(c, Real):
        return float(c)
    if getattr(c, "shape", None) != () or c.dtype.kind not in "fiu":
        raise SparsityError(explain(f"GradStore {sign}", "a real number", describe(c)))
    return c if type(c) is Tensor else c.item()


# -- the reverse loop --------------------------------------------------------------------------


def backward(tape: Tape, loss: Tensor, seed: Any, create_graph: bool) -> GradStore:
    """`Tape.backward`: see there."""
    _check_call(tape, loss, create_graph)
    g = _as_seed(loss, seed, create_graph)
    keep = create_graph or tape.persistent
    try:
        tape._spent = tape._spent or not keep
        cotangents = _run(tape, loss._node, 0, g, create_graph, keep)
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


def _check_call(tape: Tape, loss: Tensor, create_graph: bool) -> None:
    if type(loss) is not Tensor or loss._tape is not tape:
        what = f"{loss.name} {loss.shape}" if type(loss) is Tensor else repr(loss)
        why = "which this Tape did not record"
        raise TapeError(
            explain(
                "backward",
                "a tensor computed from parameters inside this Tape's block",
                f"{what}, {why}",
            )
        )
    if tape._spent:
        raise TapeError(
            explain(
                "backward",
                "a Tape that has not been used",
                "one whose saved values an earlier backward freed",
                "make one Tape a step, or Tape(persistent=True), or backward(create_graph=True)",
            )
        )
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


def _as_seed(loss: Tensor, seed: Any, create_graph: bool) -> Any:
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
        g = adapter_of(data).xp.ones_like(data)
    elif is_sparse(seed):
        if seed.shape != loss.shape or seed.dtype != data.dtype:
            got = f"{seed.dtype} {seed.shape}"
            raise ShapeError(explain("backward", f"a seed like {describe(data)}", got))
        return seed._map(partial(_seed_values, create_graph=create_graph))
    else:
        g = adapter_of(data).asarray(unwrap(seed))
        if g.shape != loss.shape or g.dtype.kind not in "fiub":
            raise ShapeError(explain("backward", f"a seed of shape {loss.shape}", describe(g)))
        if create_graph and type(seed) is Tensor:
            return seed if g.dtype == data.dtype else seed.astype(data.dtype)  # type: ignore[attr-defined]
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
            k = -1
            for parent in parents:
                k += 1
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
                        if parent in owned:
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
            error.add_note(f"in the VJP of {op.name}, argument {k}; its arguments: {got}")
        raise


def _run(
    tape: Tape, start: int, stop: int, seed: Gradient, create_graph: bool, keep: bool
) -> dict[int, Gradient]:
    """The cotangents that `reverse` leaves; entry by entry where the tape keeps figures."""
    cotangents: dict[int, Gradient] = {start: seed}
    owned: set[int] = set()
    if tape._costs is None:
        reverse(tape, cotangents, start, stop, create_graph, keep, owned)
        return cotangents
    for node in range(start, stop, -1):
        if node in cotangents:
            op, g, before = tape._entries[node][0], cotangents[node], len(tape.densified)
            began = time.perf_counter()
            reverse(tape, cotangents, node, node - 1, create_graph, keep, owned)
            seconds = time.perf_counter() - began
            densified = sum(record.nbytes for record in tape.densified[before:])
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


# -- functional forms --------------------------------------------------------------------------


@primitive(rows=elementwise, vjp=(lambda g, out, x: g,))
def identity(xp: Any, x: Array) -> Array:
    """A new node with the same value: what `grad` differentiates by."""
    return x


def _variable(x: Any, tape: Tape) -> Tensor:
    """A new node with the value of x, for `grad` to differentiate by.

    Not x itself: in ``grad(lambda x: x * grad(lambda y: x + y)(x))`` the inner y is not the x.
    """
    if type(x) is Tensor and x._node:
        return identity(x)
    data = parameter(x)._data
    tape._entries.append((identity.op, data, (data,), (0,), None, None))  # type: ignore[attr-defined]
    return recorded(data, len(tape._entries) - 1, tape)


def value_and_grad(
    f: Callable[..., Tensor], argnums: int | tuple[int, ...] = 0
) -> Callable[..., tuple[Tensor, Any]]:
    """``f`` and its gradient by the numbered positional arguments: a function giving both.

    `f` returns a scalar Tensor. An argument may be a float array or a Tensor; each gradient has
    its argument's shape and dtype (IndexedSlices where only rows were looked up). Composes with
    itself and with a surrounding Tape: then the gradients are Tensors that are recorded.

    >>> import tinygrad_sparse as ts
    >>> value, g = value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    >>> value.item(), g
    (5.0, array([2., 4.]))
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @wraps(f)
    def both(*args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        nested = state.tape is not None
        with nullcontext(state.tape) if state.tape is not None else Tape() as tape:
            inputs = list(args)
            for i in numbers:
                inputs[i] = _variable(args[i], tape)
            nodes = [inputs[i]._node for i in numbers]
            value = f(*inputs, **kwargs)
            _check_scalar(f, value)
        cotangents: dict[int, Gradient] = {}
        if value._tape is tape:
            _check_call(tape, value, create_graph=nested)
            seed = _as_seed(value, None, create_graph=nested)
            cotangents = _run(tape, value._node, max(nodes), seed, nested, keep=nested)
        grads = tuple(
            cotangents[node] if node in cotangents else adapter_of(x._data).xp.zeros_like(x._data)
            for node, x in zip(nodes, (inputs[i] for i in numbers), strict=True)
        )
        if not nested:
            value, grads = value.detach(), tuple(sealed(g) for g in grads)
        return value, grads[0] if isinstance(argnums, int) else grads

    return both


def _check_scalar(f: Callable[..., Tensor], loss: Any) -> None:
    if type(loss) is not Tensor or loss.size != 1:
        got = describe(loss._data) if type(loss) is Tensor else repr(loss)
        name = getattr(f, "__name__", "f")
        raise ShapeError(explain("grad", f"{name} to return a scalar Tensor", got))


def grad(f: Callable[..., Tensor], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The gradient of a scalar function by the numbered positional arguments.

    >>> import tinygrad_sparse as ts
    >>> f = lambda x: x**3
    >>> float(grad(f)(np.array(2.0))), float(grad(grad(f))(np.array(2.0)))
    (12.0, 12.0)
    """
    both = value_and_grad(f, argnums)

    @wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient
