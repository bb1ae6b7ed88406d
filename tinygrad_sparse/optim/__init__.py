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
from .schedules import (
    Plateau,
    constant,
    cosine,
    exponential,
    linear_decay,
    one_cycle,
    step_decay,
    warm_up,
)

__all__ = [
    "FTRL",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "NAdam",
    "Optimizer",
    "Plateau",
    "RMSprop",
    "RowwiseAdagrad",
    "Rule",
    "along",
    "clip_grad_norm",
    "clip_grad_rows",
    "clip_grad_value",
    "constant",
    "cosine",
    "exponential",
    "linear",
    "linear_decay",
    "one_cycle",
    "quotient",
    "rule",
    "step_decay",
    "warm_up",
]
