"""Layers and losses: one row an op and shape."""

import numpy as np

from tinygrad_sparse import nn
from tinygrad_sparse.nn.losses import _place
from tinygrad_sparse.nn.norm import _deviation
from tinygrad_sparse.testing import Case, integers, normal, uniform

EACH = {"reduction": "none"}
WEIGHT = np.array([0.5, 2.0, 1.0])


def log_probabilities(*shape):
    """Logarithms of rows that sum to 1."""

    def draw(rng):
        x = rng.normal(size=shape)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    return draw


def probabilities(*shape):
    return lambda rng: np.exp(log_probabilities(*shape)(rng))


def signs(*shape):
    return lambda rng: rng.integers(0, 2, shape) * 2 - 1


def sampled(loss, **static):
    """hidden, table, bias, and what the loss takes besides, in an order that a Case can have."""

    def f(hidden, table, bias, targets, negatives, target_log_q, negative_log_q):
        return loss(
            hidden, table, targets, negatives, target_log_q, negative_log_q, bias=bias, **static
        )

    f.__name__ = loss.__name__
    return f


def dropout(x):
    return nn.dropout(x, 0.4, np.random.default_rng(1))


SHARED = [
    normal(5, 3),
    normal(7, 3),
    normal(7),
    integers(5, high=7),
    integers(4, high=7),
    uniform(5, low=-3.0),
    uniform(4, low=-3.0),
]
APART = [
    normal(5, 3),
    normal(7, 3),
    normal(7),
    integers(5, high=7),
    integers(5, 2, high=7),
    uniform(5, low=-3.0),
    uniform(5, 2, low=-3.0),
]

CASES = [
    # classes
    Case(nn.cross_entropy, [normal(5, 3), integers(5, high=3)]),
    Case(nn.cross_entropy, [normal(5, 3), integers(5, high=3)], name="each", commutes=(0, 1),
         static=EACH),
    Case(nn.cross_entropy, [normal(5, 2, 3), integers(5, 2, high=3)], name="everything",
         static={"weight": WEIGHT, "label_smoothing": 0.1, "ignore_index": 1}),
    Case(nn.cross_entropy, [normal(5, 3), integers(5, high=3)], name="everything, each",
         commutes=(0, 1),
         static={"weight": WEIGHT, "label_smoothing": 0.1, "ignore_index": 1, **EACH}),
    Case(nn.nll, [log_probabilities(5, 3), integers(5, high=3)]),
    Case(nn.nll, [log_probabilities(5, 3), integers(5, high=3)], name="weight, each",
         commutes=(0, 1), static={"weight": WEIGHT, **EACH}),
    # probabilities
    Case(nn.bce_with_logits, [normal(5, 3), uniform(5, 3)]),
    Case(nn.bce_with_logits, [normal(5, 3), uniform(5, 3)], name="weights, each", commutes=(0, 1),
         static={"weight": WEIGHT, "pos_weight": WEIGHT[::-1], **EACH}),
    Case(nn.kl_div, [log_probabilities(5, 3), probabilities(5, 3)]),
    Case(nn.kl_div, [log_probabilities(5, 3), log_probabilities(5, 3)], name="logarithms, each",
         commutes=(0, 1), static={"log_target": True, **EACH}),
    # differences, vectors, scores
    Case(nn.mse, [normal(5, 3), normal(5, 3)]),
    Case(nn.mse, [normal(5, 3), normal(5, 3)], name="each", commutes=(0, 1), static=EACH),
    Case(nn.l1, [normal(5, 3), normal(5, 3)]),
    Case(nn.huber, [normal(5, 3), normal(5, 3)], name="each", commutes=(0, 1),
         static={"delta": 0.7, **EACH}),
    Case(nn.cosine_similarity, [normal(5, 3), normal(5, 3)], commutes=(0, 1)),
    Case(nn.cosine_similarity, [normal(5, 3), normal(3)], name="with one", commutes=(0,)),
    Case(nn.cosine_similarity, [normal(5, 3), normal(5, 3)], name="columns", rows="dense",
         static={"axis": 0}),
    Case(nn.triplet, [normal(5, 3), normal(5, 3), normal(5, 3)]),
    Case(nn.triplet, [normal(5, 3), normal(5, 3), normal(5, 3)], name="each", commutes=(0, 1, 2),
         static=EACH),
    Case(nn.margin_ranking, [normal(5), normal(5), signs(5)], name="each", commutes=(0, 1, 2),
         static={"margin": 0.5, **EACH}),
    Case(nn.hinge, [normal(5, 2), signs(5, 2)]),
    # a sample of the classes
    *[Case(sampled(loss), draws, name=name)
      for loss in (nn.sampled_softmax, nn.nce)
      for name, draws in (("shared", SHARED), ("of each row", APART))],
    Case(sampled(nn.sampled_softmax, **EACH), APART, name="each", commutes=(0, 3, 4, 5, 6)),
    # layers
    Case(dropout, [normal(5, 3)]),
    Case(nn.layer_norm, [normal(5, 3), normal(3), normal(3)], commutes=(0,)),
    Case(nn.layer_norm, [normal(5, 2, 2)], name="two axes", commutes=(0,),
         static={"axis": (1, 2)}),
    Case(_deviation, [normal(5, 3)], commutes=(0,), static={"axis": (1,), "eps": 0.1}),
    Case(_deviation, [normal(5, 3)], name="columns", rows="dense",
         static={"axis": (0,), "eps": 0.1}),
    Case(_place, [normal(5), integers(5, high=3)], commutes=(0, 1), static={"classes": 3}),
    Case(nn.layer_norm, [normal(5, 3)], name="columns", rows="dense", static={"axis": 0}),
]  # fmt: skip
