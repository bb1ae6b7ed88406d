"""Square matrices: solving, inverses, determinants, Cholesky factors. Floor 4: declarations only.

Matrices are the last two axes; all before them is a stack, whose rows stay apart. A matrix without
an inverse raises LinAlgError, forward or backward. The determinant needs none: its derivatives are
products of singular values, finite and right for any matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, as_array, as_arrays_beside, describe, xp_of
from tinygrad_sparse.backend.precision import widened
from tinygrad_sparse.errors import LinAlgError, ShapeError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import Kink, elementwise, roles, rowwise
from tinygrad_sparse.shapes import Shape
from tinygrad_sparse.tensor import Tensor, tensor, unwrap

from .diagonals import trace, tril
from .elementwise import where
from .shape import expand_dims, swapaxes

_Slogdet: Any = type(np.linalg.slogdet(np.eye(1)))  # NumPy's named pair: sign, logabsdet


def _square(op: str) -> Callable[..., Any]:
    def canonical(x: Array, *rest: Array) -> Any:
        if getattr(x, "ndim", 0) < 2 or x.shape[-1] != x.shape[-2]:
            raise ShapeError(explain(op, "square matrices, (*batch, n, n)", describe(x)))
        return (x, *rest), {}

    return canonical


def _in_the_stack(lead: int, out: Shape, x: Shape, *rest: Shape) -> bool:
    """for the matrices of a stack"""
    return lead <= len(x) - 2


_ROWS = rowwise("r", when=_in_the_stack)
_OF_EACH = rowwise("r", when=_in_the_stack, dense="never")  # a number a matrix: rows are of a stack


def _computed(op: str, f: Callable[..., Array], *given: Array) -> Array:
    """f(*given) in a dtype that LAPACK has, and back."""
    narrow = all(a.dtype == np.float16 for a in given)
    if narrow:
        given = tuple(map(widened, given))
    try:
        out = f(*given)
    except np.linalg.LinAlgError:
        raise LinAlgError(explain(op, *_trouble(op, given[0]))) from None
    return out.astype(np.float16) if narrow else out


def _trouble(op: str, x: Array) -> tuple[str, str, str]:
    """What was expected of the matrices and which one is otherwise, asked only once f refused."""
    xp = adapter_of(x).xp
    expected = "positive definite matrices" if op == "cholesky" else "matrices that have an inverse"
    finite = xp.isfinite(x).all(axis=(-2, -1))
    if not finite.all():
        bad, what = ~finite, "one with NaN or an infinity in it"
    elif op == "cholesky":
        lowest = xp.linalg.eigvalsh(x)[..., 0]
        bad, what = lowest == lowest.min(), f"one with an eigenvalue of {lowest.min():.3g}"
    else:
        bad, what = xp.linalg.slogdet(x)[0] == 0, "a singular one"
    at = tuple(int(i) for i in xp.argwhere(bad)[0]) if x.ndim > 2 and bad.any() else ()
    place = f" at position {at[0] if len(at) == 1 else at}" if at else ""
    hint = "add a small multiple of the identity, x + c * np.eye(n)"
    return expected, f"{what}{place} ({describe(x)})", hint


# -- solving -------------------------------------------------------------------------------------


def _solve_vjp_x(g: Any, out: Any, x: Any, b: Any) -> Any:
    return -(_solve(swapaxes(x, -1, -2), g) @ swapaxes(out, -1, -2))


def _solve_roles(lead: int, out: Shape, shapes: list[Shape], static: Any) -> str | None:
    """Stacks of matrices broadcast as elements do; a matrix is never cut into rows."""
    stack = out[:-2]
    if lead > len(stack):
        return None
    return elementwise.roles(lead, stack, [a[:-2] for a in shapes], static)


@primitive(
    rows=roles(_solve_roles, dense="if neither is a stack"),
    vjp=(_solve_vjp_x, lambda g, out, x, b: _solve(swapaxes(x, -1, -2), g)),
)
def _solve(xp: Any, x: Array, b: Array) -> Array:
    return _computed("solve", xp.linalg.solve, x, b)


def solve(x: Any, b: Any) -> Any:
    """y with x @ y = b: x (\\*batch, n, n); b (\\*batch, n, k), or a vector (n,) for all of them.

    Raises ShapeError, and LinAlgError if an x is singular.

    >>> solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 2.0]))
    array([1. , 0.5])
    """
    x, b = as_arrays_beside("solve", x, b)
    vector = len(b.shape) == 1
    *stack, rows = b.shape if vector else b.shape[:-1] or (None,)
    if tuple(x.shape[-2:]) != (rows, rows) or not _fit(x.shape[:-2], stack):
        got = f"{describe(x)} and {describe(b)}"
        raise ShapeError(explain("solve", "(*batch, n, n) and (*batch, n, k) or (n,)", got))
    return _solve(x, expand_dims(b, -1))[..., 0] if vector else _solve(x, b)


def _fit(first: Sequence[int], second: Sequence[int]) -> bool:
    pairs = zip(reversed(first), reversed(second), strict=False)
    return all(n == m or 1 in (n, m) for n, m in pairs)


def _inv_vjp(g: Any, out: Any, x: Any) -> Any:
    turned = swapaxes(out, -1, -2)
    return -(turned @ g @ turned)


@primitive(rows=_ROWS, vjp=(_inv_vjp,), canonical=_square("inv"))
def inv(xp: Any, x: Array) -> Array:
    """The inverse of matrices (\\*batch, n, n). `solve` is faster and closer where it will do.

    Raises LinAlgError if one is singular.
    """
    return _computed("inv", xp.linalg.inv, x)


# -- determinants --------------------------------------------------------------------------------
#
# With x = U S V', U and V orthogonal, det x is ± the determinant of U'xV, which is diagonal here:
# its derivatives there are products of singular values that leave out one, two, ... of them.


def _products(xp: Any, s: Array) -> tuple[Array, Array]:
    """Products of all of s but one, (\\*batch, n), and of all but two, (\\*batch, n, n).

    They are products of runs: before the first left out, between the two, after the second.
    """
    n = s.shape[-1]
    one = xp.ones_like(s[..., :1])
    before = xp.cumprod(xp.concatenate([one, s], axis=-1), axis=-1)[..., :-1]
    after = xp.cumprod(xp.concatenate([one, s[..., ::-1]], axis=-1), axis=-1)[..., -2::-1]
    beyond = xp.where(xp.tri(n, dtype=bool), 1.0, s[..., None, :])
    beyond = xp.concatenate([xp.ones_like(beyond[..., :1]), beyond], axis=-1)
    between = xp.cumprod(beyond, axis=-1)[..., :-1]
    pairs = xp.triu(before[..., :, None] * between * after[..., None, :], 1)
    return before * after, pairs + xp.swapaxes(pairs, -1, -2)


def _svd(xp: Any, x: Array) -> tuple[Array, Array, Array, Array]:
    """U, S, V' of x = U S V', and the sign ± by which det x differs from the product of S."""
    u, s, v = xp.linalg.svd(x)
    return u, s, v, xp.sign(xp.linalg.det(u) * xp.linalg.det(v))[..., None, None]


def _slope_vjp_x(g: Any, out: Any, x: Any, h: Any) -> Any:
    # the third derivative of det, which is all that needs an inverse
    y = swapaxes(inv(x), -1, -2)
    a, b = y @ swapaxes(g, -1, -2), y @ swapaxes(h, -1, -2)
    ta, tb, tab, d = (expand_dims(t, (-2, -1)) for t in (*map(_trace, (a, b, a @ b)), det(x)))
    return d * ((ta * tb - tab) * y + (a @ b + b @ a - ta * b - tb * a) @ y)


def _trace(x: Any) -> Any:
    return trace(x, axis1=-2, axis2=-1)


@primitive(
    rows=rowwise("rr", when=_in_the_stack), vjp=(_slope_vjp_x, lambda g, out, x, h: _slope(x, g))
)
def _slope(xp: Any, x: Array, h: Array) -> Array:
    """The derivative of `_cofactor` along h, which is symmetric: also its VJP."""

    def slope(x: Array, h: Array) -> Array:
        u, s, v, sign = _svd(xp, x)
        _, pairs = _products(xp, s)
        turned = xp.swapaxes(u, -1, -2) @ h @ xp.swapaxes(v, -1, -2)
        along = (pairs @ xp.diagonal(turned, 0, -2, -1)[..., None])[..., 0]
        inner = along[..., None] * xp.eye(s.shape[-1], dtype=x.dtype) - pairs * xp.swapaxes(
            turned, -1, -2
        )
        return sign * (u @ inner @ v)

    return _computed("det", slope, x, h)


@primitive(rows=_ROWS, vjp=(lambda g, out, x: _slope(x, g),))
def _cofactor(xp: Any, x: Array) -> Array:
    """The derivative of det: det(x) · x⁻ᵀ where there is an inverse, and its limit where not."""

    def cofactor(x: Array) -> Array:
        u, s, v, sign = _svd(xp, x)
        others, _ = _products(xp, s)
        return sign * ((u * others[..., None, :]) @ v)

    return _computed("det", cofactor, x)


@primitive(
    rows=_OF_EACH,
    vjp=(lambda g, out, x: expand_dims(g, (-2, -1)) * _cofactor(x),),
    canonical=_square("det"),
    kinks=(Kink((((1.0, 0.0), (0.0, 0.0)),), (((0.0, 0.0), (0.0, 1.0)),)),),
)
def det(xp: Any, x: Array) -> Array:
    """The determinant of matrices (\\*batch, n, n) -> (\\*batch).

    Its first and second derivatives hold for singular matrices too; the third needs an inverse.
    """
    return _computed("det", xp.linalg.det, x)


def _logabsdet_vjp(g: Any, out: Any, x: Any) -> Any:
    # no upstream, no slope: a singular matrix that a where left out does no harm
    left_out = expand_dims((out == -np.inf) & (g == 0), (-2, -1))
    safe = where(left_out, xp_of(x).eye(x.shape[-1], dtype=x.dtype), x)
    return expand_dims(g, (-2, -1)) * swapaxes(inv(safe), -1, -2)


@primitive(rows=_OF_EACH, vjp=(_logabsdet_vjp,), canonical=_square("slogdet"))
def _logabsdet(xp: Any, x: Array) -> Array:
    return _computed("slogdet", lambda x: xp.linalg.slogdet(x)[1], x)


def slogdet(x: Any) -> Any:
    """The sign and log abs of the determinant, of matrices (\\*batch, n, n): a pair of (\\*batch).

    Where `det` would overflow, sign · e**logabsdet does not. No gradient flows to the sign. At a
    singular matrix they are 0 and -inf; its gradient raises LinAlgError, unless nothing is asked.
    """
    x = as_array("slogdet", x)
    logabsdet = _logabsdet(x)
    data = unwrap(x)
    sign = adapter_of(data).xp.linalg.slogdet(data.astype(float, copy=False))[0]
    sign = sign.astype(logabsdet.dtype)
    return _Slogdet(tensor(sign) if type(logabsdet) is Tensor else sign, logabsdet)


# -- factors -------------------------------------------------------------------------------------


def _cholesky_vjp(g: Any, out: Any, x: Any) -> Any:
    up = swapaxes(out, -1, -2)
    inner = tril(up @ g)
    inner = where(xp_of(x).eye(x.shape[-1], dtype=bool), 0.5 * inner, inner)
    half = swapaxes(_solve(up, swapaxes(_solve(up, inner), -1, -2)), -1, -2)
    return 0.5 * (half + swapaxes(half, -1, -2))


@primitive(rows=_ROWS, vjp=(_cholesky_vjp,), canonical=_square("cholesky"))
def cholesky(xp: Any, x: Array) -> Array:
    """The lower triangular y with y @ yᵀ = x, of symmetric positive definite (\\*batch, n, n).

    As NumPy's it reads the lower triangle of x only. The gradient is that of a function of
    symmetric matrices: symmetric itself, an element off the diagonal halved between its two places
    (Murray, 2016, "Differentiation of the Cholesky decomposition"). Raises LinAlgError.
    """
    return _computed("cholesky", xp.linalg.cholesky, x)
