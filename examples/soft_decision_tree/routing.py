"""From where an example arrives to what the tree says of it.

- `soft`: every leaf has its say, weighed by how probably the example arrives there.
- `hard`: one walk from the root, at each gate to the likelier side. Only the gates on the way are
  computed: h dot products an example, not 2^h - 1.
- `likeliest`: the one leaf where the example most probably arrives; the walk need not end there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from tinygrad_sparse.nn.soft_tree import depth_of, leaves_of

from .counts import host
from .model import Model, rows_of_csr

WALKS = ("hard", "likeliest")  # end in one leaf
ROUTINGS = ("soft", *WALKS)
PART = 2**17  # numbers computed at a time, of each kind
LEAST = 64  # examples at a time at least: a product reads all weights, for however few


def route(
    model: Model, x: Any, routing: str, read: Callable[[np.ndarray], np.ndarray] | None = None
) -> np.ndarray:
    """What the tree says of examples x (n, D), by a `routing`: (n, K).

    With `read`, what it makes of rows (m, K), so that there is never more than a part of (n, K).
    """
    check_routing(routing, ROUTINGS)
    read = read or (lambda values: values)
    values = model.leaves.values()
    if routing != "soft":
        return read(values)[leaves_reached(model, x, routing)]

    def said(part: Any) -> np.ndarray:
        return read(np.exp(leaves_of(model.log_nodes(part))) @ values)

    return in_parts(said, x, max(nodes(model), values.shape[1]))


def check_routing(routing: str, allowed: tuple[str, ...]) -> None:
    """Raise ValueError for one that is not allowed."""
    if not isinstance(routing, str) or routing not in allowed:
        raise ValueError(f"routing: expected one of {allowed}, got {routing!r}")


def arrivals(model: Model, x: Any) -> np.ndarray:
    """The probability that each example arrives at each node, (n, 2N + 1)."""
    return in_parts(lambda part: np.exp(model.log_nodes(part)), x, nodes(model))


def mean_arrivals(model: Model, x: Any) -> np.ndarray:
    """The mean of `arrivals` over examples, (2N + 1,), in float64."""
    total = np.zeros(nodes(model))
    for part in parts(x, nodes(model)):
        total += np.exp(model.log_nodes(x[part])).sum(axis=0, dtype=np.float64)
    return total / x.shape[0]


def leaves_reached(model: Model, x: Any, routing: str) -> np.ndarray:
    """The one leaf of each example, (n,), counted from the left."""
    check_routing(routing, WALKS)
    if routing == "likeliest":
        return in_parts(lambda part: likeliest(model, part), x, nodes(model))
    gates = host(model.tree.weight.data), host(model.tree.bias.data), model.beta
    numbers = x.nnz if sparse.issparse(x) else x.size  # as many weights are looked up at a level
    return in_parts(lambda part: walk(*gates, part), x, numbers // x.shape[0])


def nodes(model: Model) -> int:
    """How many there are, leaves included."""
    return 2 * int(model.tree.weight.shape[1]) + 1


def parts(x: Any, width: int) -> Iterator[slice]:
    """Examples some at a time, of each of which so many numbers are computed at once."""
    rows = max(LEAST, PART // max(1, width))
    return (slice(start, start + rows) for start in range(0, x.shape[0], rows))


def in_parts(f: Callable[[Any], np.ndarray], x: Any, width: int) -> np.ndarray:
    """f(x) row by row, computed in `parts`: on the way it takes the memory of one."""
    first, *others = parts(x, width)
    begin = f(x[first])
    out = np.empty((x.shape[0], *begin.shape[1:]), begin.dtype)
    out[first] = begin
    for part in others:
        out[part] = f(x[part])
    return out


def likeliest(model: Model, x: Any) -> np.ndarray:
    """The leaf with the largest arrival."""
    return leaves_of(model.log_nodes(x)).argmax(axis=1)


def walk(weight: np.ndarray, bias: np.ndarray, beta: np.ndarray, x: Any) -> np.ndarray:
    """The leaf at the end of a walk that turns right where σ(z) > ½."""
    n = x.shape[0]
    looked_up = rows_of_csr(x) if sparse.issparse(x) else None
    node = np.zeros(n, np.int64)
    for _ in range(depth_of(len(bias))):
        if looked_up is not None:
            rows, columns, values, _ = looked_up
            z = np.bincount(rows, values * weight[columns, node[rows]], minlength=n)
        else:
            z = np.einsum("nd,dn->n", x, weight[:, node])
        node = 2 * node + 1 + ((z + bias[node]) * beta[node] > 0)
    return node - len(bias)
