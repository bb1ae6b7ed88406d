"""check_grads and check_vjp: is it the derivative, and does it keep its promises? Floor 6.

`check_grads` is for functions of Tensors, ours or yours. `check_vjp` is for a plain NumPy function
with a derivative written by hand, and needs nothing else of this package.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import describe
from tinygrad_sparse.backward import run
from tinygrad_sparse.errors import (
    ArgumentError,
    DtypeError,
    TapeError,
    TinygradSparseError,
    explain,
)
from tinygrad_sparse.functional import grad, identity
from tinygrad_sparse.slices import Gradient, densify
from tinygrad_sparse.tape import Tape, no_grad
from tinygrad_sparse.tensor import Tensor, parameter, tensor, unwrap

from .compare import Options, Problem, check_form, compare, own, rounding
from .conduct import check_repeatable, check_sparse, check_strides, check_unwritten, check_zero
from .diagnosis import GradientError
from .differences import Arrays
from .places import dense, home, put
from .watch import dense_twin

METHODS = ("central", "complex")


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
    method: str = "central",
) -> None:
    """Raise GradientError unless f's gradients equal finite differences, up to `order`.

    `f` maps arrays to a Tensor of any shape, or a tuple of them. Float arguments are
    differentiated, others (ids) held fixed. Differences are taken in float64 whatever the dtype;
    the gradient is computed in the arguments' own dtype and compared with that dtype's tolerance:

        |got - expected| <= atol + rtol · max(|got|, |expected|) + rounding of the differences

    with rtol 1e-6, 2e-4, 2e-2 and atol 1e-9, 2e-4, 2e-2 times the largest entry for float64, 32,
    16; ten times that for each further order. Order 2 checks x -> Σ v·∇(Σ w·f(x)) for random v, w.
    Also checked: two runs agree in every bit; a zero upstream gives zeros; the upstream may be
    read-only and have any strides; nothing is written to; using f twice adds up; a row-sparse
    gradient equals the dense one, and has the ids of rows that are read and no others.

    ``method="complex"`` uses the complex step instead, exact to rounding, for order 1. f must then
    take complex arrays and be analytic: that cannot be seen from outside, so it is yours to say,
    and checked roughly against differences. The error's text says where, what, and what it looks
    like (a sign, a factor, a kink, ...); its `kind` says that in a word.

    >>> check_grads(lambda x: ops.tanh(x) * x, [np.linspace(-1.0, 1.0, 5)])
    >>> check_grads(lambda x: x.data * x, [np.ones(2)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tinygrad_sparse.testing.diagnosis.GradientError: <lambda>: gradient of argument 0 at [0]: ...
    """
    options = _options("check_grads", eps, atol, rtol, seed, method)
    arrays, wanted = own("check_grads", [unwrap(a) for a in _listed("check_grads", args)])
    with no_grad():
        if method == "complex":
            _check_complex(f, arrays, wanted)
        problem = traced(f, arrays, wanted)
        _check_first_order(problem, traced(f, arrays, wanted), options)
        check_sparse(problem, traced(dense_twin(f), arrays, wanted), options)
        check_twice(f, problem, options)
        compare_higher(f, arrays, wanted, order, options)


def check_vjp(
    f: Callable[..., Any],
    vjp: Callable[..., Any] | Sequence[Callable[..., Any] | None],
    args: Sequence[Any],
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
    method: str = "central",
) -> None:
    """Raise GradientError unless `vjp` pulls cotangents back through the NumPy function `f`.

    ``f(*args)`` gives an array or a number. `vjp` is written as in `primitive`: one function an
    argument, ``(g, out, *args) -> cotangent``, None for an argument without one; or a single such
    function that gives a cotangent for the only float argument, or a tuple with one for each.
    A plain derivative f' of a scalar function of one argument is ``lambda g, out, x: g * df(x)``.
    Tolerances, promises, `method` and messages are those of `check_grads`, at order 1.

    >>> check_vjp(np.sin, lambda g, out, x: g * np.cos(x), [np.linspace(0.0, 1.0, 4)])
    >>> check_vjp(np.sin, lambda g, out, x: -g * np.cos(x), [np.ones(2)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tinygrad_sparse.testing.diagnosis.GradientError: sin: gradient of argument 0 at [0]: ...
    """
    options = _options("check_vjp", eps, atol, rtol, seed, method)
    arrays, wanted = own("check_vjp", _listed("check_vjp", args))
    _check_taken("f", f, [f"argument {i}" for i in range(len(arrays))])
    for rule in [vjp] if callable(vjp) else vjp:
        if rule is not None:
            _check_taken(
                "a vjp", rule, ["g", "out", *(f"argument {i}" for i in range(len(arrays)))]
            )
    problem = _written(f, vjp, arrays, wanted)
    _check_first_order(problem, _written(f, vjp, arrays, wanted), options)


def _listed(op: str, args: Any) -> Sequence[Any]:
    """`args`, which is a list even of one: an array would be taken for a list of its rows."""
    if isinstance(args, (list, tuple)):
        return args
    raise ArgumentError(explain(op, "a list of arguments", type(args).__name__, f"{op}(..., [x])"))


def _check_taken(what: str, f: Callable[..., Any], given: list[str]) -> None:
    """Raise ArgumentError for a function that does not take what it will be given."""
    try:
        signature = inspect.signature(f)
    except ValueError:  # of a function written in C that has none
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        wanted = f"{what} that takes ({', '.join(given)})"
        got = f"{name_of(f)}{signature}: {error}"
        raise ArgumentError(explain("check_vjp", wanted, got)) from None


def _check_first_order(problem: Problem, again: Problem, options: Options) -> None:
    check_unwritten(problem, options)
    check_repeatable(problem, again, options)
    compare(problem, options)
    check_zero(problem)
    check_strides(problem, options)


def _check_complex(f: Callable[..., Any], arrays: Arrays, wanted: tuple[int, ...]) -> None:
    """A real result of complex arguments is a modulus, a maximum, a comparison: not analytic."""
    parts = [f(*[a.astype(complex) if i in wanted else a for i, a in enumerate(arrays)])]
    for part in parts:
        if isinstance(part, (tuple, list)):
            parts += part
        elif not np.iscomplexobj(part):
            raise GradientError(
                explain(
                    name_of(f),
                    "complex results of complex arrays, for method='complex'",
                    describe(unwrap(part)),
                    "abs, maximum, comparisons and norms are not analytic: method='central'",
                ),
                "not analytic",
            )


def _options(
    op: str, eps: float | None, atol: float | None, rtol: float | None, seed: int, method: str
) -> Options:
    if method not in METHODS:
        raise ArgumentError(explain(op, f"a method of {METHODS}", repr(method)))
    return Options(eps, atol, rtol, seed, method)


# -- functions of Tensors ------------------------------------------------------------------------


def traced(
    f: Callable[..., Any], arrays: Arrays, wanted: tuple[int, ...], name: str = "", order: int = 1
) -> Problem:
    """The problem of checking f's own gradients: the pull-back is a Tape's.

    It computes where the `wanted` arrays are.
    """
    name = name or name_of(f)
    there = partial(put, like=arrays[wanted[0]] if wanted else np.empty(0))
    tape = Tape("allow", persistent=True)
    leaves = {i: parameter(arrays[i]) for i in wanted}
    with tape:
        out = _joined(f(*[leaves.get(i, a) for i, a in enumerate(arrays)]), name)
        if out._node < 0:  # f is the identity
            out = identity(out)
    held = [*arrays, *(leaf._data for leaf in leaves.values())]
    held += [entry[1] for entry in tape._entries[1:] if _can_be_written(entry[1])]

    def value(moved: Arrays) -> np.ndarray:
        if any(a.dtype.kind == "c" for a in moved):
            return np.asarray(_joined(f(*moved), name))
        moved = [there(a) if i in wanted else a for i, a in enumerate(moved)]
        return np.asarray(home(_joined(f(*_constants(moved, wanted)), name, tracked=False)))

    def vjp(seed: Any) -> dict[int, Gradient]:
        if not out._node:
            return {}
        cotangents = run(tape, out._node, 0, seed, False, True)
        found = {i: cotangents.get(leaf._node) for i, leaf in leaves.items()}
        return {i: g for i, g in found.items() if g is not None}

    def reads_nan(moved: Arrays) -> bool:
        watch = Tape("allow")
        watch._slim = lambda entry, unread: entry  # type: ignore[method-assign]  # all values
        with watch, np.errstate(all="ignore"):
            try:
                f(*[parameter(there(a)) if i in wanted else a for i, a in enumerate(moved)])
            except TinygradSparseError:
                return True  # f looked at the value and refused it
        return any(np.isnan(entry[1]).any() for entry in watch._entries[1:])

    here = [home(a) for a in arrays]
    value_here = home(out)
    return Problem(name, here, wanted, value_here, value, vjp, reads_nan, held, order, there)


def compare_higher(
    f: Callable[..., Any], arrays: Arrays, wanted: tuple[int, ...], order: int, options: Options
) -> None:
    """Orders 2 and above: the same comparison for the function x -> Σ v·∇(Σ w·f(x))."""
    name = name_of(f)
    for reached in range(2, order + 1):
        f = _slope(f, arrays, wanted, options.seed + reached, name)
        compare(traced(f, arrays, wanted, name, reached), options._replace(method="central"))


def _slope(
    f: Callable[..., Any], arrays: Arrays, wanted: tuple[int, ...], seed: int, name: str
) -> Callable[..., Any]:
    rng, like = np.random.default_rng(seed), arrays[wanted[0]]
    vs = [put(rng.normal(size=arrays[i].shape), like) for i in wanted]
    shape = _joined(f(*_constants(arrays, wanted)), name, tracked=False).shape
    w = put(rng.normal(size=shape), like)

    def weighed(*xs: Any) -> Any:
        return ops.sum(_joined(f(*xs), name) * w)

    def slope(*xs: Any) -> Any:
        total: Any = tensor(put(np.zeros(()), like))
        for g, v in zip(grad(weighed, wanted)(*xs), vs, strict=True):
            total = total + ops.sum(densify(g) * v)
        return total

    return slope


def check_twice(f: Callable[..., Any], problem: Problem, options: Options) -> None:
    """Using f twice, with upstreams v and w, gives the gradients of both, added."""
    rng, out = np.random.default_rng(options.seed), problem.out
    v, w = (rng.normal(size=out.shape).astype(out.dtype) for _ in range(2))
    leaves = {i: parameter(problem.put(problem.arrays[i])) for i in problem.wanted}
    with Tape("allow"):
        xs = [leaves.get(i, a) for i, a in enumerate(problem.arrays)]
        first, second = (_joined(f(*xs), problem.name) for _ in range(2))
        total = ops.sum(first * problem.put(v)) + ops.sum(second * problem.put(w))
    if not total.requires_grad:
        return
    grads = total.backward()
    for i, leaf in leaves.items():
        check_form(problem, i, grads.get(leaf))
        got = _wide(grads.get(leaf), leaf)
        parts = [_wide(problem.pull(seed).get(i), leaf).copy() for seed in (v, w)]
        off = np.abs(got - sum(parts))
        if not (off <= rounding(leaf.dtype) * np.abs(parts).max(initial=0.0)).all():
            at = tuple(map(int, np.unravel_index(np.argmax(off), off.shape)))
            raise GradientError(
                explain(
                    f"{problem.name}: gradient of argument {i} at {list(at)}",
                    f"{parts[0][at]:.6g} and {parts[1][at]:.6g} added, when it is used twice",
                    f"{got[at]:.6g}",
                    "a rule returns a cotangent and keeps none: only the engine adds them up",
                ),
                "twice",
                i,
                at,
            )


def _wide(g: Gradient | None, leaf: Tensor) -> np.ndarray:
    return np.zeros(leaf.shape) if g is None else dense(g).astype(np.float64)


def _can_be_written(x: Any) -> bool:
    """On a device every array can."""
    return type(x) is not np.ndarray or x.flags.writeable


def _constants(arrays: Arrays, wanted: tuple[int, ...]) -> list[Any]:
    return [tensor(a) if i in wanted else a for i, a in enumerate(arrays)]


def _joined(out: Any, name: str, tracked: bool = True) -> Any:
    """One Tensor that holds all results; for complex arguments, or if not `tracked`, an array may.

    Of constants, what ``grad`` gives inside f are arrays.
    """
    if isinstance(out, (tuple, list)):
        out = ops.concatenate([ops.reshape(_joined(part, name, tracked), (-1,)) for part in out])
    data = unwrap(out)
    is_array = hasattr(data, "dtype") and (not tracked or data.dtype.kind == "c")
    if type(out) is not Tensor and not is_array:
        raise TapeError(
            explain(
                name,
                "a Tensor, or a tuple of them",
                f"a {type(out).__name__}, from which no gradient can flow",
                "use ops of tinygrad_sparse; check_vjp checks plain NumPy functions",
            )
        )
    if data.dtype.kind not in "fc":
        raise DtypeError(explain(name, "a float result", describe(data)))
    return out


def name_of(f: Any) -> str:
    """What an error calls the function."""
    return getattr(f, "__name__", None) or str(f)


# -- plain NumPy functions -----------------------------------------------------------------------


def _written(f: Callable[..., Any], vjp: Any, arrays: Arrays, wanted: tuple[int, ...]) -> Problem:
    """The problem of checking a derivative that was written by hand."""
    name = name_of(f)
    if not callable(vjp):
        if len(vjp) != len(arrays):
            raise ArgumentError(
                explain("check_vjp", f"a VJP or None for each of {len(arrays)} arguments",
                        f"{len(vjp)}", "or one function that gives a tuple")
            )  # fmt: skip
        wanted = tuple(i for i in wanted if vjp[i] is not None)
    out = np.asarray(f(*arrays))
    if out.dtype.kind != "f":
        raise DtypeError(explain(name, "a float result", describe(out)))
    mine = [a.copy() for a in arrays]

    def pull(g: np.ndarray) -> dict[int, Gradient]:
        if not callable(vjp):
            return {i: _array(vjp[i](g, out, *mine)) for i in wanted}
        found = vjp(g, out, *mine)
        found = found if type(found) in (tuple, list) else (found,)
        if len(found) != len(wanted):
            raise ArgumentError(
                explain(f"vjp of {name}", f"a cotangent for each of {len(wanted)} float arguments",
                        f"{len(found)}")
            )  # fmt: skip
        return {i: _array(c) for i, c in zip(wanted, found, strict=True) if c is not None}

    def value(moved: Arrays) -> np.ndarray:
        return np.asarray(f(*moved))

    def reads_nan(moved: Arrays) -> bool:
        with np.errstate(all="ignore"):
            return bool(np.isnan(f(*moved)).any())

    return Problem(name, arrays, wanted, out, value, pull, reads_nan, [*mine, out])


def _array(c: Any) -> Gradient:
    return c if getattr(c, "ndim", 0) else np.asarray(c)  # numbers and lists become arrays
