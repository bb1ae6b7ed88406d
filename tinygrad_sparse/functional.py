"""Gradients as functions of functions: grad, value_and_grad, jvp, hvp. Floor 3.

May import everything on its floor and below. They compose with themselves and with a Tape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import Any

from tinygrad_sparse.backend import Array, adapter_of, as_array, describe, xp_of
from tinygrad_sparse.backward import as_seed, check_call, run
from tinygrad_sparse.errors import ShapeError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import elementwise
from tinygrad_sparse.shapes import whole_numbers
from tinygrad_sparse.slices import Gradient, inner, sealed
from tinygrad_sparse.tape import Tape, state
from tinygrad_sparse.tensor import Tensor, constant, parameter, recorded, unwrap


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
    tape._entries.append((identity.op, data, (data,), (0,), None, None))  # type: ignore[attr-defined]  # an op's function
    return recorded(data, len(tape._entries) - 1, tape)


def value_and_grad(
    f: Callable[..., Tensor], argnums: int | tuple[int, ...] = 0
) -> Callable[..., tuple[Tensor, Any]]:
    """``f`` and its gradient by the numbered positional arguments: a function giving both.

    `f` returns a scalar Tensor. An argument may be a float array or a Tensor; each gradient has
    its argument's shape and dtype (IndexedSlices where only rows were looked up). Composes with
    itself and with a surrounding Tape: then the gradients are Tensors that are recorded.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> value, g = value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    >>> value.item(), g
    (5.0, array([2., 4.]))
    """
    wanted = "positions of arguments: a whole number, or several"
    numbers = whole_numbers("grad", wanted, argnums)
    one = not isinstance(argnums, Sequence)

    @wraps(f)
    def both(*args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        nested = state.tape is not None
        with nullcontext(state.tape) if state.tape is not None else Tape() as tape:
            inputs = list(args)
            if any(not -len(args) <= i < len(args) for i in numbers):
                wanted = f"positional arguments {numbers} of {getattr(f, '__name__', 'f')}"
                raise ShapeError(explain("grad", wanted, f"{len(args)} of them"))
            for i in numbers:
                inputs[i] = _variable(args[i], tape)
            nodes = [inputs[i]._node for i in numbers]
            value = f(*inputs, **kwargs)
            _check_scalar(f, value)
        cotangents: dict[int, Gradient] = {}
        if value._tape is tape:
            check_call(tape, value, create_graph=nested)
            seed = as_seed(value, None, create_graph=nested)
            cotangents = run(tape, value._node, max(nodes), seed, nested, keep=nested)
        grads = tuple(
            cotangents[node] if node in cotangents else _zeros_like(inputs[i], nested)
            for node, i in zip(nodes, numbers, strict=True)
        )
        if not nested:
            value, grads = value.detach(), tuple(sealed(g) for g in grads)
        return value, grads[0] if one else grads

    return both


def _zeros_like(x: Tensor, nested: bool) -> Any:
    """The gradient by what the result does not depend on."""
    zeros = adapter_of(x._data).xp.zeros_like(x._data)
    return constant(zeros) if nested else zeros


def _check_scalar(f: Callable[..., Tensor], loss: Any) -> None:
    if type(loss) is not Tensor or loss.size != 1:
        got = describe(loss._data) if type(loss) is Tensor else repr(loss)
        name = getattr(f, "__name__", "f")
        raise ShapeError(explain("grad", f"{name} to return a scalar Tensor", got))


def grad(f: Callable[..., Tensor], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The gradient of a scalar function by the numbered positional arguments.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> f = lambda x: x**3
    >>> float(grad(f)(np.array(2.0))), float(grad(grad(f))(np.array(2.0)))
    (12.0, 12.0)
    """
    both = value_and_grad(f, argnums)

    @wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient


def hvp(f: Callable[..., Tensor], x: Any, v: Any) -> Any:
    """The Hessian of a scalar function at x times v: the gradient of ⟨∇f(x), v⟩.

    Shapes: x, v and the result alike. Where f only looks rows of x up, ∇f and the product stay
    IndexedSlices, and the cost is that of the rows (Pearlmutter, 1994).

    >>> import numpy as np, tinygrad_sparse as ts
    >>> hvp(lambda x: (x**3).sum(), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([ 6., 12.])
    """
    v = as_array("hvp", v)
    return grad(lambda y: inner(grad(f)(y), v))(x)


def jvp(
    f: Callable[..., Tensor], primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Tensor, Any]:
    """f at `primals` and its derivative along `tangents`: value and tangent, of one shape.

    Reverse mode twice: the cotangents ⟨g, ∂f⟩ are linear in g, and their transpose is the tangent.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> value, slope = jvp(ts.ops.tanh, (np.array([0.0, 0.5]),), (np.array([1.0, 0.0]),))
    >>> slope
    array([1., 0.])
    """
    if not isinstance(primals, Sequence) or not isinstance(tangents, Sequence):
        got = f"{type(primals).__name__} and {type(tangents).__name__}"
        raise ShapeError(explain("jvp", "tuples of primals and of tangents", got))
    if len(primals) != len(tangents):
        got = f"{len(tangents)} for {len(primals)}"
        raise ShapeError(explain("jvp", "a tangent for each primal", got))
    tangents = tuple(as_array("jvp", t) for t in tangents)
    value = f(*primals)

    def pulled(u: Tensor) -> Any:
        gs = grad(lambda *xs: (f(*xs) * u).sum(), tuple(range(len(primals))))(*primals)
        total: Any = 0.0
        for g, tangent in zip(gs, tangents, strict=True):
            total = inner(g, tangent) + total
        return total

    start = unwrap(value)
    return value, grad(pulled)(xp_of(start).zeros_like(start))
