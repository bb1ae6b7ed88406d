"""Modules and losses. Floor 5: may import floors 0 to 4, not `optim`."""

from .embedding import Embedding
from .linear import Linear
from .losses import bce_with_logits, cross_entropy
from .module import Module
from .soft_tree import PathPenalty, SoftTree

__all__ = [
    "Embedding",
    "Linear",
    "Module",
    "PathPenalty",
    "SoftTree",
    "bce_with_logits",
    "cross_entropy",
]
