"""@primitive: an op's forward, VJPs and row rule in one declaration; `pull` runs them. Floor 3.

May import `errors`, `backend`, `slices`, `tensor`, `tape`, `rules`. Calling an op outside a Tape,
or on arrays that nothing tracks, costs the forward alone; on raw arrays it *is* the NumPy function,
which is why VJPs cost no more than the arithmetic in them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from tinygrad_sparse.backend import (
    ANY,
    Array,
    adapter_of,
    adapter_of_type,
    as_array,
    as_operand,
    describe,
    lists_beside,
    refuse_mixed,
)
from tinygrad_sparse.backend.precision import widened
from tinygrad_sparse.errors import DtypeError, ShapeError, TapeError, TinygradSparseError, explain
from tinygrad_sparse.rules import Kink, RowRule, elementwise, ids_of, places_of
from tinygrad_sparse.saved import LARGE, unread
from tinygrad_sparse.shapes import Shape, broadcasts
from tinygrad_sparse.slices import Gradient, IndexedSlices, coarser, rows_of
from tinygrad_sparse.tape import Tape, state, user_line
from tinygrad_sparse.tensor import Tensor, constant

_PLAIN = frozenset({float, int})


class Kernels(dict[type, Callable[..., Array]]):
    """The forward of an op for each array type, resolved at its first use."""

    def __init__(self, resolve: Callable[[Any], Callable[..., Array]]) -> None:
        self.resolve = resolve

    def __missing__(self, array_type: type) -> Callable[..., Array]:
        kernel = self[array_type] = self.resolve(adapter_of_type(array_type))
        return kernel


class Variadic:
    """The VJPs of an op with any number of arguments: made on demand, indexed like a tuple's."""

    def __init__(self, make: Callable[[int], Callable[..., Gradient]]) -> None:
        self.make = make

    def __getitem__(self, k: int) -> Callable[..., Gradient]:
        return self.make(k)


class Primitive:
    """What was declared: the engine's view of an op, found as ``function.op``."""

    __slots__ = ("kernels", "name", "rows", "unread", "variadic", "vjp")

    def __init__(
        self, name: str, kernels: Kernels, vjp: Any, rows: RowRule | None, variadic: bool
    ) -> None:
        self.name = name
        self.kernels = kernels
        self.vjp = vjp
        self.rows = rows
        self.variadic = variadic
        self.unread = unread(vjp, rows, len(vjp)) if not variadic else ()

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


def primitive(
    *,
    vjp: Any,
    rows: RowRule | None = None,
    ufunc: str | None = None,
    kernel: str | None = None,
    canonical: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]] | None = None,
    variadic: bool = False,
    methods: Sequence[str] = (),
    reflected: str | None = None,
    same: Callable[[Any], Any] | None = None,
    kinks: Sequence[Kink] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an op: the decorated function is its forward, ``f(xp, *arrays, **static)``.

    `vjp` has one function an argument, ``(g, out, *args, **static) -> cotangent``, or None where no
    gradient flows; it may use operators and `ops`, never `xp`. Un-broadcasting, accumulation and
    the checks of shape and dtype are the engine's. `rows` is the row rule (see `rules`). With
    `ufunc` the forward is that function of `xp`, with `kernel` that function of the adapter, and
    the body only holds the docstring.
    `canonical(*arrays, **static)` validates and returns (args, static) as the rules want them.
    A `variadic` op takes a sequence of arrays; its ``vjp(k)`` makes the VJP of argument k.
    `same` is the op of two arguments that are one Tensor: x·x is x², with one cotangent, not two.
    `methods` are put on Tensor; `reflected` is the name for (array op Tensor). `kinks` are points
    without a derivative and the value there: a row of the documentation, and a test.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> @primitive(rows=ts.elementwise, vjp=(lambda g, out, x: 3 * x * x * g,))
    ... def cube(xp, x):
    ...     "x³, elementwise."
    ...     return x * x * x
    >>> ts.grad(cube)(np.array(2.0))
    array(12.)
    """

    def declare(forward: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(forward).parameters.values())
        name = forward.__name__.strip("_")
        if ufunc is None and kernel is None:
            if not parameters or parameters[0].name != "xp":
                got = f"{forward.__name__}{inspect.signature(forward)}"
                wanted = "a forward whose first argument is xp, the array namespace"
                raise TypeError(explain(f"primitive {name}", wanted, got))
            parameters = parameters[1:]  # xp is the engine's
        static_names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        arity = 0 if variadic else len(parameters) - len(static_names)
        if kernel is not None:
            kernels = Kernels(attrgetter(kernel))
        elif ufunc is not None:
            kernels = Kernels(attrgetter(f"xp.{ufunc}"))
        else:
            kernels = Kernels(lambda adapter: partial(forward, adapter.xp))
        if not variadic and (not isinstance(vjp, tuple) or len(vjp) != arity):
            got = f"{len(vjp)} of them" if isinstance(vjp, tuple) else type(vjp).__name__
            wanted = f"vjp=(...), a tuple with a function or None for each of {arity} arguments"
            raise TypeError(explain(f"primitive {name}", wanted, got))
        if not variadic:
            _check_vjps(name, vjp, [p.name for p in parameters][:arity])
        op = Primitive(name, kernels, Variadic(vjp) if variadic else vjp, rows, variadic)
        densifies = rows is None or rows.kind == "rowwise"  # then the user's line is recorded
        special = static_names or canonical is not None or densifies
        if variadic or arity > 2 or (arity == 2 and special):
            call = _general(op, arity, static_names, canonical)
        elif special:
            call = _unary_static(op, static_names, canonical)
        else:
            call = _unary(op) if arity == 1 else _binary(op, same)
        call.__name__ = call.__qualname__ = op.name
        call.__doc__ = forward.__doc__
        call.__module__ = forward.__module__
        shown = [p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in parameters]
        if not variadic:
            call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # for help()
        call.op = op  # type: ignore[attr-defined]  # a function carries it
        composite(methods=methods, kinks=kinks)(call)
        if reflected is not None:
            setattr(Tensor, reflected, lambda self, other: call(other, self))
        return call

    return declare


def _check_vjps(name: str, vjp: Sequence[Any], arguments: list[str]) -> None:
    """Raises unless each VJP takes g, out and the arguments: said here, not in a first backward."""
    wanted = ("g", "out", *arguments)
    for argument, rule in zip(arguments, vjp, strict=True):
        if rule is None:
            continue
        kinds = [p.kind for p in inspect.signature(rule).parameters.values()]
        taken = sum(kind.name.startswith("POSITIONAL") for kind in kinds)
        if inspect.Parameter.VAR_POSITIONAL not in kinds and taken != len(wanted):
            expected = f"the VJP of {argument} to take ({', '.join(wanted)}) and static arguments"
            got = str(inspect.signature(rule))
            raise TypeError(explain(f"primitive {name}", expected, got))


def composite(
    *, methods: Sequence[str] = (), kinks: Sequence[Kink] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare what an op made of other ops has besides its body: Tensor methods, and kinks."""

    def declare(f: Callable[..., Any]) -> Callable[..., Any]:
        f.kinks = tuple(kinks)  # type: ignore[attr-defined]  # a function carries them
        for method in methods:
            setattr(Tensor, method, f)
        return f

    return declare


# -- calling: one frame above the forward, specialised by arity ----------------------------------


def _unary(op: Primitive) -> Callable[..., Any]:
    kernels, new = op.kernels, object.__new__

    def call(x: Any) -> Any:
        tracked = type(x) is Tensor
        a, node = (x._data, x._node) if tracked else (as_operand(op.name, x, ANY), 0)
        try:
            out = kernels[type(a)](a)
        except TypeError:
            _refuse_booleans(op.name, (a,))
            raise
        if not tracked:
            return out
        if type(out) is not type(a):
            out = adapter_of(a).asarray(out)
        y = new(Tensor)
        y._data = out
        if node:
            tape = state.tape
            if tape is not None:
                if node < 0:
                    if node not in tape._leaves:
                        tape._adopt(x)
                elif x._tape is not tape:
                    _refuse_foreign(op, x)
                entries = tape._entries
                y._node = len(entries)
                y._tape = tape
                entry = (op, out, (a,), (node,), None, None)
                entries.append(entry if out.nbytes < LARGE else tape._slim(entry, op.unread))
                return y
        y._node = 0
        y._tape = None
        return y

    return call


def _binary(op: Primitive, same: Callable[[Any], Any] | None) -> Callable[..., Any]:
    kernels, new, name = op.kernels, object.__new__, op.name

    def call(x: Any, y: Any) -> Any:
        if type(x) is Tensor:
            a, m = x._data, x._node
            array = type(a)
            if type(y) is Tensor:
                if y is x and same is not None:
                    return same(x)
                b, n = y._data, y._node
            else:
                b, n = y if type(y) in _PLAIN else as_operand(name, y), 0
        elif type(y) is Tensor:
            a, m = x if type(x) in _PLAIN else as_operand(name, x), 0
            b, n = y._data, y._node
            array = type(b)
        else:
            a, b = as_operand(name, x, ANY), as_operand(name, y, ANY)
            try:
                return kernels[type(a) if hasattr(a, "shape") else type(b)](a, b)
            except TypeError:
                if moved := lists_beside(name, (x, y)):
                    return call(*moved)
                refuse_mixed(name, (a, b))
                raise
        try:
            out = kernels[array](a, b)
        except TinygradSparseError:
            raise
        except ValueError:
            _refuse_shapes(op, (a, b))
            raise
        except TypeError:
            if moved := lists_beside(name, (x, y)):
                return call(*moved)
            refuse_mixed(name, (a, b))
            _refuse_booleans(name, (a, b))
            raise
        if type(out) is not array:
            out = adapter_of(a).asarray(out)
        z = new(Tensor)
        z._data = out
        if m or n:
            tape = state.tape
            if tape is not None:
                if m:
                    if m < 0:
                        if m not in tape._leaves:
                            tape._adopt(x)
                    elif x._tape is not tape:
                        _refuse_foreign(op, x)
                if n:
                    if n < 0:
                        if n not in tape._leaves:
                            tape._adopt(y)
                    elif y._tape is not tape:
                        _refuse_foreign(op, y)
                entries = tape._entries
                z._node = len(entries)
                z._tape = tape
                entry = (op, out, (a, b), (m, n), None, None)
                entries.append(entry if out.nbytes < LARGE else tape._slim(entry, op.unread))
                return z
        z._node = 0
        z._tape = None
        return z

    return call


def _unary_static(
    op: Primitive, static_names: list[str], canonical: Callable[..., Any] | None
) -> Callable[..., Any]:
    kernels = op.kernels

    def call(x: Any, *more: Any, **static: Any) -> Any:
        if type(x) is Tensor:
            a, node = x._data, x._node
        else:
            a, node = as_array(op.name, x), 0
        if more:
            static = _by_name(call, static_names, more, static)
        try:
            if canonical is not None:
                (a,), static = canonical(a, **static)
            out = kernels[type(a)](a, **static)
        except TinygradSparseError:
            raise
        except TypeError:
            _check_arguments(call, (x,), static)
            _refuse_booleans(op.name, (a,))
            raise
        except ValueError:
            _refuse_shapes(op, (a,))
            raise
        if type(x) is not Tensor:
            return out
        if type(out) is not type(a):
            out = adapter_of(a).asarray(out)
        tape = state.tape
        if not node or tape is None or out.dtype.kind != "f":
            return constant(out)
        return _record(op, tape, out, (a,), (x,), (node,), static)

    return call


def _general(
    op: Primitive, arity: int, static_names: list[str], canonical: Callable[..., Any] | None
) -> Callable[..., Any]:
    kernels = op.kernels
    # An elementwise op takes Python's numbers as they are, so that they do not widen float32.
    weak = op.rows is not None and op.rows.kind == "elementwise"
    convert = as_operand if weak else as_array

    def call(*args: Any, **static: Any) -> Any:
        if op.variadic:
            given, more = _sequence(op, args), args[1:]
        else:
            given, more = args[:arity], args[arity:]
        if more:
            static = _by_name(call, static_names, more, static)
        tensors, asked = Tensor in map(type, given), static
        kinds = "fiub" if tensors else ANY
        data: tuple[Any, ...] = tuple(
            [x._data if type(x) is Tensor else convert(op.name, x, kinds) for x in given]
        )
        try:
            if canonical is not None:
                data, static = canonical(*data, **static)
            array = next((type(a) for a in data if hasattr(a, "shape")), float)
            out = kernels[array](*data, **static)
        except TinygradSparseError:
            raise
        except TypeError:
            _check_arguments(call, given, static)
            if moved := lists_beside(op.name, given):
                return call(moved, **asked) if op.variadic else call(*moved, **asked)
            refuse_mixed(op.name, data)
            _refuse_booleans(op.name, data)
            raise
        except ValueError:
            _refuse_shapes(op, data)
            raise
        if type(out) is not array:  # an array without axes is NumPy's number soon, and fits any
            refuse_mixed(op.name, data)
        if not tensors:
            return out
        nodes = tuple([x._node if type(x) is Tensor else 0 for x in given])
        if type(out) is not array:
            out = adapter_of(data[0]).asarray(out)
        tape = state.tape
        if tape is None or not any(nodes) or out.dtype.kind != "f":
            return constant(out)
        return _record(op, tape, out, data, given, nodes, static)

    return call


def _record(
    op: Primitive,
    tape: Tape,
    out: Array,
    data: tuple[Any, ...],
    given: Sequence[Any],
    nodes: tuple[int, ...],
    static: dict[str, Any],
) -> Tensor:
    for x, node in zip(given, nodes, strict=False):
        if node < 0:
            tape._adopt(x)
        elif node and x._tape is not tape:
            _refuse_foreign(op, x)
    # An op whose rule may turn a row-sparse gradient dense notes who called it.
    line = None if op.rows is not None and op.rows.kind == "elementwise" else user_line(3)
    z: Tensor = object.__new__(Tensor)
    z._data, z._node, z._tape = out, len(tape._entries), tape
    entry = (op, out, data, nodes, static or None, line)
    if op.unread and max([getattr(x, "nbytes", 0) for x in (out, *data)]) >= LARGE:
        entry = tape._slim(entry, op.unread)
    tape._entries.append(entry)
    return z


def _sequence(op: Primitive, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if not args or isinstance(args[0], Tensor) or not isinstance(args[0], Sequence):
        got = type(args[0]).__name__ if args else "nothing"
        raise ShapeError(explain(op.name, "a sequence of arrays", got))
    return tuple(args[0])


def _by_name(
    call: Callable[..., Any], names: list[str], more: tuple[Any, ...], static: dict[str, Any]
) -> dict[str, Any]:
    """Static arguments given by position, under their names."""
    if not static and len(more) <= len(names):
        return dict(zip(names, more, strict=False))
    twice = set(names[: len(more)]) & set(static)
    if twice or len(more) > len(names):
        what = f"{min(twice)} given twice" if twice else "too many arguments"
        raise TypeError(f"{call.__name__}: {what}; write {call.__name__}{_signature(call)}")
    return {**dict(zip(names, more, strict=False)), **static}


def _check_arguments(
    call: Callable[..., Any], given: Sequence[Any], static: dict[str, Any]
) -> None:
    """After a TypeError: was it a missing or an unknown argument?"""
    try:
        inspect.signature(call).bind(*given, **static)
    except TypeError as error:
        text = f"{call.__name__}: {error}; write {call.__name__}{_signature(call)}"
        raise TypeError(text) from None


def _refuse_booleans(op: str, data: Sequence[Any]) -> None:
    """After a TypeError: NumPy has no - and no sigmoid of True."""
    for a in data:
        if getattr(getattr(a, "dtype", None), "kind", "") == "b":
            got, hint = describe(a), "x.astype(float) has 1.0 for True"
            raise DtypeError(explain(op, "numbers", got, hint)) from None


def _signature(call: Callable[..., Any]) -> str:
    return str(inspect.signature(call))


def _refuse_foreign(op: Primitive, x: Tensor) -> None:
    raise TapeError(
        explain(
            op.name,
            "tensors of the Tape that is recording",
            f"{x.name} {x.shape}, computed under another Tape",
            "write .detach() to use its value as a constant",
        )
    )


def _refuse_shapes(op: Primitive, data: Sequence[Any]) -> None:
    """Turn NumPy's complaint about shapes into ours; other ValueErrors pass on."""
    if op.rows is elementwise and len(data) > 1:
        with suppress(ValueError):
            np.broadcast_shapes(*[getattr(a, "shape", ()) for a in data])
            return
    if any(hasattr(a, "shape") for a in data):
        got = ", ".join(describe(a) for a in data)
        wanted = "shapes that fit together" if len(data) > 1 else "a shape that it is defined for"
        raise ShapeError(explain(op.name, wanted, got))


# -- pulling back: the only place that slices saved values by touched rows -----------------------

Densify = Callable[[IndexedSlices], Array]


def pull(
    op: Primitive,
    g: Gradient,
    out: Array,
    args: Sequence[Any],
    wanted: Sequence[Any],
    static: dict[str, Any] | None,
    densify: Densify,
) -> list[Gradient | None]:
    """Cotangents of the `wanted` args from `g`, the cotangent of `out`; None where not wanted.

    A row-sparse `g` goes by the op's row rule: the same VJPs run on the touched rows alone. Where
    the rule does not hold for rows of this size, larger ones are tried; where there is none that
    does, ``densify(g)`` decides.
    """
    static = static or {}
    if type(g) is IndexedSlices:
        found = _by_rule(op, g, out, args, wanted, static)
        if type(found) is list:
            return found
        g = densify(g) if found is None else found
    return [
        fit(op, k, f(g, out, *args, **static), args[k], out)
        if wanted[k] and (f := op.vjp[k]) is not None
        else None
        for k in range(len(args))
    ]


def _by_rule(
    op: Primitive,
    g: IndexedSlices,
    out: Array,
    args: Sequence[Any],
    wanted: Sequence[Any],
    static: dict[str, Any],
) -> list[Gradient | None] | Array | None:
    """Cotangents by the op's row rule; a dense g if its rows are all there are; None if none holds.

    Rows that stay where they are come first, then rows that move.
    """
    rule = op.rows
    if rule is None:
        return None
    shapes = [tuple(getattr(a, "shape", ())) for a in args]
    for moving in (False, True) if rule.remap else (False,):
        for lead in range(g.lead, 0, -1):
            roles = None if moving else rule.roles(lead, g.shape, shapes, static)
            if roles is None and not moving:
                continue
            rows = coarser(g, lead)
            if rows is not g and len(rows.indices) == math.prod(g.shape[:lead]):
                return rows.values.reshape(g.shape)  # every row, once: dense as it is
            if roles is not None:
                return _pull_rows(op, rows, out, args, wanted, static, roles)
            if (cotangents := _reindex(op, rows, out, args, wanted, static)) is not None:
                return cotangents
    return None


def _reindex(
    op: Primitive,
    g: IndexedSlices,
    out: Array,
    args: Sequence[Any],
    wanted: Sequence[Any],
    static: dict[str, Any],
) -> list[Gradient | None] | None:
    assert op.rows is not None
    remap = op.rows.remap
    cotangents: list[Gradient | None] = []
    for k, arg in enumerate(args):
        f = remap(k) if callable(remap) else remap[k]
        if not wanted[k] or f is None:
            cotangents.append(None)
            continue
        c = f(g, out, *args, **static)
        if c is None:
            return None
        cotangents.append(fit(op, k, c, arg, out))
    return cotangents


def _pull_rows(
    op: Primitive,
    g: IndexedSlices,
    out: Array,
    args: Sequence[Any],
    wanted: Sequence[Any],
    static: dict[str, Any],
    roles: str,
) -> list[Gradient | None]:
    rows, lead = g.indices, g.lead
    n, row_axes = len(rows), (1,) * (lead - 1)
    local: list[Any] = []
    addresses: list[tuple[Array, int] | None] = []  # where an argument's rows are, None if shared
    for a, role in zip(args, roles, strict=True):
        address = None if role == "s" else (rows, lead)
        if role == "b":
            address = _stretched(rows, tuple(a.shape), g.shape, lead)
            a = rows_at(a, *address).reshape((n, *row_axes, *a.shape[address[1] :]))
        elif role == "r":
            a = rows_at(a, rows, lead)
        local.append(a)
        addresses.append(address)
    values = g.values.reshape((n, *row_axes, *g.shape[lead:]))
    cotangents = pull(op, values, rows_at(out, rows, lead), local, wanted, static, _never)
    for k, (c, address) in enumerate(zip(cotangents, addresses, strict=True)):
        if c is not None and address is not None:
            at, own = address
            shape = tuple(args[k].shape)
            cotangents[k] = rows_of(at, c.reshape((n, *shape[own:])), shape, own)
    return cotangents


def _stretched(rows: Array, shape: Shape, out: Shape, lead: int) -> tuple[Array, int]:
    """The rows of an argument that rows of the output come from, and how many axes address them.

    Axes along which the argument is stretched have one place.
    """
    own = lead - (len(out) - len(shape))
    places = places_of(rows, out[:lead])[lead - own :]
    kept = [p if n > 1 else p * 0 for p, n in zip(places, shape, strict=False)]
    return ids_of(kept, shape[:own]), own


def rows_at(a: Array, rows: Array, lead: int) -> Array:
    """The touched rows of a saved value, with as many axes as before so that `axis` still holds."""
    taken = adapter_of(a).take_rows(a, rows, lead)
    return taken if lead == 1 else taken.reshape((len(rows), *(1,) * (lead - 1), *a.shape[lead:]))


def _never(g: IndexedSlices) -> Array:
    raise AssertionError("pull: the rows of a cotangent are dense")


def fit(op: Primitive, k: int, c: Gradient, arg: Array, out: Array) -> Gradient:
    """`c` with the shape and dtype of argument k: broadcasting undone, a wider dtype cast back.

    Anything else is a wrong rule, and is said here, where it happened.
    """
    shape = tuple(getattr(arg, "shape", ()))
    if not hasattr(c, "shape") or not hasattr(c, "dtype"):
        raise ShapeError(
            explain(f"VJP of {op.name}, argument {k}", f"a cotangent of shape {shape}", repr(c))
        )
    if tuple(c.shape) != shape:
        if type(c) is IndexedSlices or not broadcasts(shape, tuple(c.shape)):
            raise ShapeError(
                explain(
                    f"VJP of {op.name}, argument {k}",
                    f"a cotangent of shape {shape}",
                    f"{tuple(c.shape)}",
                )
            )
        c = unbroadcast(c, shape)
    dtype = getattr(arg, "dtype", c.dtype)
    if c.dtype != dtype:
        if c.dtype != out.dtype:
            raise DtypeError(
                explain(f"VJP of {op.name}, argument {k}", f"dtype {dtype}", f"{c.dtype}")
            )
        c = c.astype(dtype)
    return c


def unbroadcast(c: Array, shape: tuple[int, ...]) -> Array:
    """Sum `c` over the axes along which an argument of `shape` was stretched.

    float16 is summed in float32: 2048 + 1 is 2048 there.
    """
    extra = len(c.shape) - len(shape)
    stretched = [i + extra for i, n in enumerate(shape) if n == 1 and c.shape[i + extra] != 1]
    axes = (*range(extra), *stretched)
    if axes:
        wide = widened(c)
        total = adapter_of(c).xp.sum(wide, axis=axes)
        c = total if wide is c else total.astype(c.dtype)
    return c.reshape(shape)
