"""Optimizers: one formula each. Floor 5: may import floors 0 to 4, not `nn`."""

from .clip import clip_grad_norm, clip_grad_rows, clip_grad_value
from .optimizer import Optimizer, rule
from .rules import SGD, Adagrad, Adam

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "Optimizer",
    "clip_grad_norm",
    "clip_grad_rows",
    "clip_grad_value",
    "rule",
]
