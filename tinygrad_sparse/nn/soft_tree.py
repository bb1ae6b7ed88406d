"""The parts of a soft decision tree: gates, arrivals, a penalty, leaf updates. Floor 5.

A full binary tree of depth h has N = 2^h - 1 gates and L = 2^h leaves. Its nodes are numbered level
by level: node n has the children 2n + 1 (left) and 2n + 2 (right), and the leaves are the last L of
the 2N + 1 nodes. A gate sends an example to the right with probability σ(z), so the example arrives
at *every* node, with a probability that is a product along the path. Those products underflow from
a dozen levels on; hence logarithms from the logits to the loss, and no 1e-7 anywhere.

Frosst & Hinton, 2017; Nauta, van Bree & Seifert, 2021 (leaves without gradients).
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import (
    Array,
    adapter_of,
    as_array,
    describe,
    refuse_mixed,
    row_ids,
    xp_of,
)
from tinygrad_sparse.errors import ArgumentError, DtypeError, RowIndexError, ShapeError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import rowwise
from tinygrad_sparse.shapes import Shape, broadcasts, whole_number
from tinygrad_sparse.slices import Gradient, IndexedSlices, coarser, is_sparse, some_values, touched
from tinygrad_sparse.tensor import Tensor, parameter, unwrap

from .module import Module

DEEPEST = 24  # a tree of more levels fits no memory
TINY, BIG = np.finfo(float).tiny, np.finfo(float).max
REAL = "fiub"  # kinds of dtypes that can be computed with


def depth_of(gates: int) -> int:
    """The depth h of a full tree with 2^h - 1 gates. Raises ShapeError if there is none."""
    gates = whole_number("soft tree", "a whole number of gates", gates)
    if gates < 0 or (gates + 1) & gates:
        raise ShapeError(explain("soft tree", "1, 3, 7, ..., 2^h - 1 gates", str(gates)))
    return gates.bit_length()


def level(k: int) -> slice:
    """The nodes at depth k."""
    return slice(2**k - 1, 2 ** (k + 1) - 1)


def _canonical(z: Array) -> tuple[tuple[Array], dict[str, Any]]:
    if z.ndim == 0:
        raise ShapeError(explain("log_arrivals", "logits (*batch, gates)", describe(z)))
    depth_of(z.shape[-1])
    as_array("log_arrivals", z, REAL)
    return (z if z.dtype.kind == "f" else z.astype(np.float64),), {}


def _log_arrivals_vjp(g: Any, out: Any, z: Any) -> Any:
    """From the leaves up: what arrives at a node's gate is the cotangents of all nodes below it."""
    depth = depth_of(z.shape[-1])
    goes_right, goes_left = ops.sigmoid(z), ops.sigmoid(-z)
    by_level: list[Any] = []
    below: Any = g[..., level(depth)]
    for k in reversed(range(depth)):
        left, right = below[..., 0::2], below[..., 1::2]
        by_level.append(right * goes_left[..., level(k)] - left * goes_right[..., level(k)])
        below = g[..., level(k)] + left + right
    return ops.concatenate(by_level[::-1], -1) if by_level else z


def _per_example(lead: int, out: Shape, *shapes: Shape) -> bool:
    """for several examples"""
    return lead < len(out)


@primitive(rows=rowwise("r", when=_per_example), vjp=(_log_arrivals_vjp,), canonical=_canonical)
def log_arrivals(xp: Any, z: Array) -> Array:
    """The logarithm of the probability that an example arrives at each node.

    ``log a(root) = 0``; ``log a(right) = log a(n) + log σ(z_n)``, left with σ(-z_n). Gate logits
    z (\\*batch, N) -> (\\*batch, 2N + 1), leaves last. Exact for logits of any size: the one
    log1p(e^-|z|) serves both sides. Raises ShapeError unless N is 2^h - 1.

    >>> import numpy as np
    >>> np.exp(log_arrivals(np.array([0.0, np.log(3.0), 0.0])))
    array([1.   , 0.5  , 0.5  , 0.125, 0.375, 0.25 , 0.25 ])
    """
    rest = xp.log1p(xp.exp(-xp.abs(z)))
    left, right = -xp.maximum(z, 0.0) - rest, xp.minimum(z, 0.0) - rest
    out = xp.empty((*z.shape[:-1], 2 * z.shape[-1] + 1), z.dtype)
    out[..., :1] = 0.0
    for k in range(depth_of(z.shape[-1])):
        gates, children = level(k), out[..., level(k + 1)]
        children[..., 0::2] = out[..., gates] + left[..., gates]
        children[..., 1::2] = out[..., gates] + right[..., gates]
    return out


def leaves_of(log_nodes: Any) -> Any:
    """The leaves' part of `log_arrivals`: (\\*batch, 2N + 1) -> (\\*batch, N + 1).

    Raises ShapeError unless N is 2^h - 1.
    """
    log_nodes = as_array("leaves_of", log_nodes, REAL)
    if not log_nodes.ndim or not log_nodes.shape[-1] % 2:
        wanted = "log-arrivals (*batch, 2N + 1)"
        raise ShapeError(explain("leaves_of", wanted, describe(log_nodes)))
    depth_of(log_nodes.shape[-1] // 2)
    return log_nodes[..., log_nodes.shape[-1] // 2 :]


def check_depth(op: str, depth: int) -> None:
    """Raise ArgumentError unless there is a tree of this depth."""
    if not is_whole(depth, 0, DEEPEST):
        got = f"{depth!r:.20}"
        raise ArgumentError(explain(op, f"depth, a whole number from 0 to {DEEPEST}", got))


def is_whole(value: Any, least: int, most: int | None = None) -> bool:
    """Whether it is a whole number, least <= value <= most."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and bool(least <= value and (most is None or value <= most))


def is_number(value: Any, low: float, high: float) -> bool:
    """Whether it is one, and low <= value <= high; NaN is none."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    return real and bool(low <= value <= high)


class SparseRows(NamedTuple):
    """A matrix by its non-zeros: ``values[j]`` at row ``rows[j]`` and column ``columns[j]``.

    ``x @ weight`` looks up the rows of `weight` that have a non-zero in x, so its cost is theirs
    and its gradient is row-sparse, however many columns x has. A column below 0 is none.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((1_000_000, 2)))
    >>> x = SparseRows(np.array([0, 0, 1]), np.array([7, 9, 7]), np.array([1.0, 2.0, 3.0]), 2)
    >>> with ts.Tape(densify="raise"):
    ...     grads = ((x @ W) ** 2).sum().backward()
    >>> grads.touched_rows(W)
    array([7, 9])
    """

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    n: int  # rows, empty ones included

    def __matmul__(self, weight: Any) -> Any:
        """(n, D) @ (D, m) -> (n, m). Raises ShapeError, DtypeError and RowIndexError."""
        op = "SparseRows"
        weight, values = as_array(op, weight, REAL), as_array(op, self.values, REAL)
        rows, columns = as_array(op, self.rows), as_array(op, self.columns)
        parts = values, rows, columns
        if weight.ndim != 2 or any(a.ndim != 1 or len(a) != len(values) for a in parts):
            wanted = "values, rows and columns (k,) and a weight (D, m)"
            got = ", ".join(describe(a) for a in (*parts, weight))
            raise ShapeError(explain(op, wanted, got))
        n = whole_number(op, "a whole number of rows, 0 or more", self.n, least=0)
        ids = {}
        for name, given, size in (("rows", rows, n), ("columns", columns, weight.shape[0])):
            ids[name] = row_ids(op, given, size, f" among {name}", weight)
            if len(given) and given.dtype.kind == "i" and (least := int(given.min())) < 0:
                wanted = f"{name} in [0, {size})"  # NumPy would count from the end
                raise RowIndexError(explain(op, wanted, f"{least}"))
        looked_up = ops.take(weight, ids["columns"])
        return ops.scatter_rows(looked_up * values[:, None], ids["rows"], n)


def gate_logits(x: Any, weight: Any, bias: Any, beta: Any) -> Any:
    """β(x·w + b): all gates in one product. x (\\*batch, D) or SparseRows -> (\\*batch, N).

    The inverse temperature β, one number or one a gate, makes decisions sharp without making the
    weights long.
    """
    product = x @ weight if isinstance(x, SparseRows) else ops.matmul(x, weight)
    return ops.multiply(ops.add(product, bias), beta)


class SoftTree(Module):
    """The gates of a tree; ``tree(x)`` is `log_arrivals`, x (\\*batch, D) -> (\\*batch, 2N + 1).

    `weight` (D, N) starts as normal(0, std), 1/√D if None, so that inputs of unit variance give
    logits of unit variance; `bias` (N,) at zero; `beta` (N,) at `inverse_temperature`, trained only
    if `learn_temperature`. Raises ArgumentError for a depth that no tree has, for D < 1 and for
    what is no number of the dtype, and DtypeError.
    """

    def __init__(
        self,
        D: int,
        depth: int,
        *,
        inverse_temperature: float = 1.0,
        learn_temperature: bool = False,
        std: float | None = None,
        seed: int | None = None,
        dtype: Any = np.float32,
    ) -> None:
        check_depth("SoftTree", depth)
        if not is_whole(D, 1):
            raise ArgumentError(explain("SoftTree", "D >= 1 features", repr(D)))
        try:
            most = float(np.finfo(dtype).max)
        except (TypeError, ValueError):
            wanted = "dtype float16, float32 or float64"
            raise DtypeError(explain("SoftTree", wanted, repr(dtype))) from None
        std = D**-0.5 if std is None else std
        if not is_number(std, 0, most):
            raise ArgumentError(explain("SoftTree", "std, a number >= 0", repr(std)))
        if not is_number(inverse_temperature, -most, most):
            wanted = f"inverse_temperature, a number that {np.dtype(dtype)} holds"
            raise ArgumentError(explain("SoftTree", wanted, repr(inverse_temperature)))
        try:
            rng = np.random.default_rng(seed)
        except (TypeError, ValueError) as error:
            wanted = "seed, None or whole numbers >= 0"
            raise ArgumentError(explain("SoftTree", wanted, repr(seed))) from error
        N = 2**depth - 1
        weight = rng.normal(0.0, std, (D, N))
        beta = np.full(N, inverse_temperature, dtype)
        self.weight = parameter(weight.astype(dtype), name="tree.weight")
        self.bias = parameter(np.zeros(N, dtype), name="tree.bias")
        self.beta = parameter(beta, name="tree.beta") if learn_temperature else beta

    def __call__(self, x: Any) -> Tensor:
        beta = self.beta if type(self.beta) is Tensor else xp_of(self.weight).asarray(self.beta)
        return log_arrivals(gate_logits(x, self.weight, self.bias, beta))

    def constants(self) -> dict[str, np.ndarray]:
        """The temperatures, where they are not trained."""
        return {} if type(self.beta) is Tensor else {"beta": self.beta.copy()}


def log_likelihood(log_leaves: Any, log_q: Any) -> Any:
    """log p_i(y_i) = log Σ_l a_il q_l(y_i): (\\*batch, L) and rows log Q[y] (\\*batch, L) -> (\\*batch).

    With the leaf distributions as a table Q of shape (C, L), a label is a row id: only Q[y] is
    needed, never the (B, C) prediction. Raises ShapeError for unequal numbers of leaves, and of
    examples.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> Q = np.array([[0.9, 0.2], [0.1, 0.8]])
    >>> np.exp(log_likelihood(np.log([[0.5, 0.5]]), np.log(Q[[1]])))
    array([0.45])
    """  # noqa: E501  shapes in one line
    log_leaves, log_q = (as_array("log_likelihood", x, REAL) for x in (log_leaves, log_q))
    shapes = tuple(log_leaves.shape), tuple(log_q.shape)
    stretches = broadcasts(*shapes) or broadcasts(*reversed(shapes))
    if not shapes[0] or shapes[0][-1:] != shapes[1][-1:] or not stretches:
        wanted = "two (*batch, L) of equal L"
        raise ShapeError(explain("log_likelihood", wanted, f"{shapes[0]} and {shapes[1]}"))
    return ops.logsumexp(ops.add(log_leaves, log_q), -1)


def leaf_update(table: Any, g: Gradient) -> IndexedSlices:
    """U = Q ∘ g, for g the gradient of Σ_i log p_i(y_i) by a looked-up leaf table Q (C, L).

    ``U[c, l] = Σ_{i: y_i = c} r_il`` with the responsibility ``r_il = a_il Q[c, l] / p_i(c)`` of
    leaf l for example i. The classes in the batch get a row, the others none: O(B·L), whatever C.
    It needs no more than the identity ∂ log p_i / ∂Q[y_i, l] = r_il / Q[y_i, l], so it holds for
    any table that Q is proportional to in each leaf, if the lookup was divided by a constant.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> Q = ts.parameter(np.array([[0.9, 0.2], [0.1, 0.8], [0.0, 0.0]]))
    >>> with ts.Tape():
    ...     fit = log_likelihood(np.log([[0.5, 0.5]]), ops.log(Q[[1]])).sum()
    >>> U = leaf_update(Q, fit.backward()[Q])
    >>> U.indices, U.values
    (array([1]), array([[0.11111111, 0.88888889]]))
    """
    refuse_mixed("leaf_update", (table, some_values(g)))
    rows, values = touched(coarser(g, 1) if is_sparse(g) else g)  # Q[y, l] picks parts of rows
    table = as_array("leaf_update", table, REAL)
    if rows is ... or tuple(table.shape) != tuple(g.shape):
        wanted = f"the gradient of a table {tuple(table.shape)} that was only looked up"
        got = describe(g) if rows is ... else repr(g)
        raise ShapeError(explain("leaf_update", wanted, got))
    return IndexedSlices(rows, unwrap(ops.take(table, rows)) * values, g.shape)


class PathPenalty:
    """Keeps both sides of every gate in use: Frosst & Hinton, 2017, section 3.

    ``-λ Σ_n γ^depth(n) · ½ [log α_n + log(1 - α_n)]``, where ``α_n = Σ_i a_in σ_in / Σ_i a_in`` is
    the share of what arrives at gate n that goes right. The mean is weighted by arrival; without
    that a gate is charged for examples that never reach it. `weight` is λ, `decay` is γ.

    With ``window=True`` both sums run over past batches too, with a memory of 2^depth batches: a
    gate at depth 7 sees one example of 128, and its share in one batch says little. The past is a
    constant; the gradient comes through the present batch.

    Without the window and with γ = ½ the sum telescopes: a gate's children pay back what it
    charges, and the penalty is λ · (mean over leaves of -log of the leaf's share).
    """

    def __init__(
        self, depth: int, weight: float, *, decay: float = 0.5, window: bool = True
    ) -> None:
        check_depth("PathPenalty", depth)
        if not (is_number(weight, 0, BIG) and is_number(decay, TINY, 1)):
            raise ArgumentError(
                explain("PathPenalty", "weight >= 0 and 0 < decay <= 1", f"{weight} and {decay}")
            )
        if not isinstance(window, (bool, np.bool_)):
            raise ArgumentError(explain("PathPenalty", "window, True or False", repr(window)))
        depths = np.repeat(np.arange(depth), 2 ** np.arange(depth))
        self.charge = 0.5 * weight * decay**depths  # (N,)
        memory = 1.0 - 0.5**depths  # none at the root: its window is the present batch
        self.log_memory = np.log(memory, where=memory > 0, out=np.full(len(memory), -math.inf))
        self.window = window
        self.past: Array | None = None  # (2, N): log sums of what went left and right

    def __call__(self, log_nodes: Any, log_weights: Any = None) -> Any:
        """The penalty of a batch: log_nodes (B, 2N + 1), log sample weights (B,) -> scalar.

        It has the dtype of log_nodes. Raises ShapeError for the nodes of a tree of another
        depth, and where there is no example, for no share is known then.
        """
        log_nodes = as_array("PathPenalty", log_nodes, REAL)
        nodes = 2 * len(self.charge) + 1
        if log_nodes.ndim != 2 or log_nodes.shape[1] != nodes or not len(log_nodes):
            wanted = f"log_nodes (B, {nodes}) of one example or more"
            raise ShapeError(explain("PathPenalty", wanted, f"shape {tuple(log_nodes.shape)}"))
        if log_nodes.dtype.kind != "f":
            log_nodes = ops.cast(log_nodes, np.float64)
        charge = xp_of(log_nodes).asarray(self.charge.astype(log_nodes.dtype))
        if log_weights is not None:
            log_weights = as_array("PathPenalty", log_weights, REAL)
            if tuple(log_weights.shape) != tuple(log_nodes.shape[:1]):
                wanted = f"log_weights ({log_nodes.shape[0]},)"
                raise ShapeError(explain("PathPenalty", wanted, describe(log_weights)))
            log_weights = ops.cast(log_weights, log_nodes.dtype)
            log_nodes = ops.add(log_nodes, log_weights[:, None])
        children = ops.logsumexp(log_nodes, 0, True)[:, 1:]  # both of gate 0, both of gate 1, ...
        sides = ops.transpose(ops.reshape(children, (-1, 2)))  # (2, N)
        if self.window:
            sides = self._with_past(sides)
        here = ops.logsumexp(sides, 0)
        return -(charge * (sides - here)).sum()

    def _with_past(self, sides: Any) -> Any:
        """log(e^sides + memory · e^past), which is the past of the next batch."""
        if self.past is not None:
            past = (self.past + xp_of(self.past).asarray(self.log_memory)).astype(sides.dtype)
            sides = ops.logsumexp(ops.stack([sides, past]), 0)
        self.past = adapter_of(unwrap(sides)).copy(unwrap(sides))
        return sides
