"""Layers and losses: one row an op and shape."""

from tinygrad_sparse import nn
from tinygrad_sparse.testing import Case, integers, normal, uniform

CASES = [
    Case(nn.cross_entropy, [normal(5, 3), integers(5, high=3)]),
    Case(nn.cross_entropy, [normal(5, 3), integers(5, high=3)], name="each", commutes=(0, 1),
         static={"reduction": "none"}),
    Case(nn.bce_with_logits, [normal(5, 3), uniform(5, 3)]),
]  # fmt: skip
