"""Embedding and EmbeddingBag: tables that are looked up. Floor 5."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backend import Array, adapter_of, row_ids, xp_of
from tinygrad_sparse.errors import ArgumentError, explain
from tinygrad_sparse.ops.bag import MODES, _bags
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import elementwise
from tinygrad_sparse.tensor import Tensor, parameter, unwrap

from .arguments import refuse_negative
from .module import Module


@primitive(rows=elementwise, vjp=(lambda g, out, x, factor: g * factor, None))
def _with_gradient_times(xp: Any, x: Array, factor: Array) -> Array:
    """x, whose gradient is multiplied by `factor`: on purpose not the gradient of x."""
    return x


class Embedding(Module):
    """A table `weight` (V, d); ``embedding(ids)`` is (\\*ids, d), with a row-sparse gradient.

    `weight` starts as normal(0, std), drawn with the seed; float32 unless `dtype` says otherwise.

    - `padding_idx`: this id gives zeros; its row starts at zero, and is in no gradient. With -1 it
      is the last row, and -1 among the ids stands for it.
    - `max_norm`: a row that is longer is scaled down to this length where it is looked up, as part
      of the computation: the gradient goes through the scaling, and the table is not overwritten.
    - `scale_grad_by_freq`: a row's gradient is divided by how often its id occurs in the call.

    Raises RowIndexError for ids that have no row, and for negative ones: data uses them to pad, so
    only the one that `padding_idx` names is taken.

    >>> embedding = Embedding(10, 4, padding_idx=0, seed=1)
    >>> embedding([[3, 0]]).shape, float(abs(embedding([0]).numpy()).max())
    ((1, 2, 4), 0.0)
    """

    def __init__(
        self,
        V: int,
        d: int,
        *,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        scale_grad_by_freq: bool = False,
        std: float = 0.1,
        seed: int | None = None,
        dtype: Any = np.float32,
    ) -> None:
        if max_norm is not None and not max_norm > 0:
            raise ArgumentError(explain("Embedding", "max_norm > 0", repr(max_norm)))
        self.weight = _table("embedding.weight", V, d, padding_idx, std, seed, dtype)
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.scale_grad_by_freq = scale_grad_by_freq

    def __call__(self, ids: Any) -> Tensor:
        _refuse_padding("Embedding", self.weight, ids, self.padding_idx)
        rows = ops.embedding(self.weight, ids, self.padding_idx)
        if self.scale_grad_by_freq:
            rows = _with_gradient_times(rows, _inverse_counts(ids, self.weight)[..., None])
        if self.max_norm is not None:
            lengths = ops.vector_norm(rows, axis=-1, keepdims=True)
            rows = rows * (self.max_norm / ops.maximum(lengths, self.max_norm))
        return rows


class EmbeddingBag(Module):
    """A table `weight` (V, d); of each bag of ids the sum, mean or maximum of their rows, (b, d).

    Called as `ops.embedding_bag` without its table: ids (b, m), or a list of lists, or ids (n,)
    with offsets; `weights` for a weighted sum. `weight` starts as in `Embedding`, and negative ids
    are refused as there.

    >>> bag = EmbeddingBag(10, 4, mode="mean", seed=1)
    >>> bag([[3, 1, 3], [7], []]).shape
    (3, 4)
    """

    def __init__(
        self,
        V: int,
        d: int,
        *,
        mode: str = "mean",
        padding_idx: int | None = None,
        std: float = 0.1,
        seed: int | None = None,
        dtype: Any = np.float32,
    ) -> None:
        if mode not in MODES:
            raise ArgumentError(explain("EmbeddingBag", f"a mode of {MODES}", repr(mode)))
        self.weight = _table("embedding_bag.weight", V, d, padding_idx, std, seed, dtype)
        self.mode = mode
        self.padding_idx = padding_idx

    def __call__(self, ids: Any, offsets: Any = None, *, weights: Any = None) -> Tensor:
        flat, _ = _bags("EmbeddingBag", ids, offsets, self.weight)
        _refuse_padding("EmbeddingBag", self.weight, flat, self.padding_idx)
        return ops.embedding_bag(
            self.weight,
            ids,
            offsets,
            mode=self.mode,
            weights=weights,
            padding_idx=self.padding_idx,
        )


def _refuse_padding(layer: str, table: Tensor, ids: Any, padding_idx: int | None) -> None:
    """Raise RowIndexError for negative ids that `padding_idx` does not name."""
    V, d = table.shape
    hint = f"if {{id}} pads, give it a row: {layer}({V + 1}, {d}, padding_idx=-1), and -1 for it"
    refuse_negative(layer, ids, V, f", table {(V, d)}", table, hint, padding_idx)


def _table(
    name: str, V: int, d: int, padding_idx: int | None, std: float, seed: int | None, dtype: Any
) -> Tensor:
    rows = np.random.default_rng(seed).normal(0.0, std, (V, d))
    if padding_idx is not None:
        rows[row_ids("padding_idx", padding_idx, V)] = 0.0
    return parameter(rows.astype(dtype), name=name)


def _inverse_counts(ids: Any, table: Tensor) -> Array:
    """1 / (how often each id occurs among them all)."""
    ids = row_ids("embedding", unwrap(ids), table.shape[0])
    _, where, counts = xp_of(ids).unique(ids, return_inverse=True, return_counts=True)
    share = (1.0 / counts[where.reshape(ids.shape)]).astype(table.dtype)
    return adapter_of(table).beside(table, share)
