"""Lookups by the bag: one row a mode and form of ids."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, integers, normal

RAGGED = [[0, 2, 2], [], [4], [1, 0]]


def bag(table, *weights, ids=RAGGED, offsets=None, **static):
    return ops.embedding_bag(table, ids, offsets, weights=weights[0] if weights else None, **static)


CASES = [
    Case(ops.embedding, [normal(5, 3), integers(2, 3, high=5)], static={"padding_idx": 0}),
    Case(ops.embedding_bag, [normal(5, 3), integers(4, 2, high=5)]),
    *[Case(bag, [normal(5, 3)], name=f"embedding_bag: {mode}, ragged", static={"mode": mode})
      for mode in ("sum", "mean", "max")],
    *[Case(bag, [normal(5, 3)], name=f"embedding_bag: {mode}, padded",
           static={"mode": mode, "padding_idx": 2, "ids": [2, 1, 2, 4, 1, 1], "offsets": [0, 2, 2]})
      for mode in ("sum", "mean", "max")],
    Case(bag, [normal(5, 3), normal(6)], name="embedding_bag: weights"),
    Case(bag, [normal(5, 3), normal(3, 2)], name="embedding_bag: weights, padded",
         static={"ids": [[0, 4], [4, 4], [1, 0]], "padding_idx": 0}),
    Case(bag, [normal(5, 2, 3), normal(6)], name="embedding_bag: rows of two axes"),
    Case(bag, [normal(5, 3)], name="embedding_bag: no bags", static={"ids": []}),
]  # fmt: skip
