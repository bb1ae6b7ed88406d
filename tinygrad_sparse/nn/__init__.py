"""Modules and losses. Floor 5: may import floors 0 to 4, not `optim`."""

from tinygrad_sparse import ops
from tinygrad_sparse.habits import pointing

from .distances import cosine_similarity, hinge, huber, l1, margin_ranking, mse, triplet
from .dropout import Dropout, dropout
from .embedding import Embedding, EmbeddingBag
from .hashing import hash_ids
from .linear import Linear
from .losses import bce_with_logits, cross_entropy, kl_div, nll
from .module import Module
from .norm import LayerNorm, layer_norm
from .sampled import nce, sampled_softmax
from .sequential import Sequential
from .soft_tree import PathPenalty, SoftTree

__getattr__ = pointing(__name__, {"ts.ops": ops})
__all__ = [
    "Dropout",
    "Embedding",
    "EmbeddingBag",
    "LayerNorm",
    "Linear",
    "Module",
    "PathPenalty",
    "Sequential",
    "SoftTree",
    "bce_with_logits",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "hash_ids",
    "hinge",
    "huber",
    "kl_div",
    "l1",
    "layer_norm",
    "margin_ranking",
    "mse",
    "nce",
    "nll",
    "sampled_softmax",
    "triplet",
]
