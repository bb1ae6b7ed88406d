"""From where an example arrives to what the tree says of it.

- `soft`: every leaf has its say, weighed by how probably the example arrives there.
- `hard`: one walk from the root, at each gate to the likelier side. Only the gates on the way are
  computed: h dot products an example, not 2^h - 1.
- `likeliest`: the one leaf where the example most probably arrives; the walk need not end there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from tinygrad_sparse.nn.soft_tree import depth_of

from .counts import host
from .model import CHUNK, Model, rows_of_csr

WALKS = ("hard", "likeliest")  # end in one leaf
ROUTINGS = ("soft", *WALKS)


def route(model: Model, x: Any, routing: str) -> np.ndarray:
    """What the tree says of examples x (n, D), by a `routing`: (n, K)."""
    check_routing(routing, ROUTINGS)
    if routing == "soft":
        return model.expected(x)
    return model.leaves.values()[leaves_reached(model, x, routing)]


def check_routing(routing: str, allowed: tuple[str, ...]) -> None:
    """Raise ValueError for one that is not allowed."""
    if routing not in allowed:
        raise ValueError(f"routing: expected one of {allowed}, got {routing!r}")


def leaves_reached(model: Model, x: Any, routing: str) -> np.ndarray:
    """The one leaf of each example, (n,), counted from the left."""
    check_routing(routing, WALKS)
    reach = walk if routing == "hard" else likeliest
    rows = max(1, CHUNK // max(model.tree.weight.shape))  # features, or arrivals at nodes
    parts = [reach(model, x[i : i + rows]) for i in range(0, x.shape[0], rows)]
    return np.concatenate(parts)


def likeliest(model: Model, x: Any) -> np.ndarray:
    """The leaf with the largest arrival."""
    return model.log_leaves(x).argmax(axis=1)


def walk(model: Model, x: Any) -> np.ndarray:
    """The leaf at the end of a walk that turns right where σ(z) > ½."""
    n, tree = x.shape[0], model.tree
    weight, bias, beta = host(tree.weight.data), host(tree.bias.data), model.beta
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
