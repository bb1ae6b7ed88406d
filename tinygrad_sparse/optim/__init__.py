"""Optimizers: one formula each. Floor 5: may import floors 0 to 4, not `nn`."""

from .clip import clip_grad_norm, clip_grad_rows, clip_grad_value
from .optimizer import Optimizer
from .optimizers import (
    FTRL,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    NAdam,
    RMSprop,
    RowwiseAdagrad,
)
from .rest import along, linear, quotient
from .rule import Rule, rule

__all__ = [
    "FTRL",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "NAdam",
    "Optimizer",
    "RMSprop",
    "RowwiseAdagrad",
    "Rule",
    "along",
    "clip_grad_norm",
    "clip_grad_rows",
    "clip_grad_value",
    "linear",
    "quotient",
    "rule",
]
