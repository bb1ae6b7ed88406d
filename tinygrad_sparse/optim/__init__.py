"""Optimizers: one formula each. Floor 5: may import floors 0 to 4, not `nn`."""

from .optimizer import Optimizer, rule
from .rules import SGD, Adagrad, Adam

__all__ = ["SGD", "Adagrad", "Adam", "Optimizer", "rule"]
