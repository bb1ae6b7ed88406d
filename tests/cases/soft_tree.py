"""The parts of soft decision trees: one row a part and shape."""

import math

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.nn import soft_tree
from tinygrad_sparse.testing import Case, integers, normal, uniform

X = np.random.default_rng(0).normal(size=(5, 6))
SPARSE = soft_tree.SparseRows(
    np.array([0, 0, 2, 3, 3, 3]), np.array([4, 1, 4, 0, 1, 4]), X.ravel()[:6], 5
)


def of_dtype(x, dtype):
    """The same matrix in numbers of another dtype."""
    return x._replace(values=x.values.astype(dtype))


def counted(table, labels):
    """Rows of a leaf table as log-probabilities; what is divided by is a constant."""
    return ops.log(table[labels]) - math.log(7.0)


CASES = [
    Case(soft_tree.log_arrivals, [normal(5, 7)], commutes=(0,)),
    Case(soft_tree.log_arrivals, [normal(5, 1)], name="one gate", commutes=(0,)),
    Case(soft_tree.log_arrivals, [normal(5, 0)], name="no gate", commutes=(0,)),
    Case(soft_tree.log_arrivals, [normal(4, 2, 3)], name="two batch axes", commutes=(0,)),
    Case(soft_tree.log_arrivals, [normal(0, 3)], name="empty batch"),
    Case(soft_tree.log_arrivals, [normal(7)], name="one example", rows="dense"),
    Case(lambda z: soft_tree.leaves_of(soft_tree.log_arrivals(z)), [normal(5, 7)],
         name="leaves of log_arrivals", commutes=(0,)),
    Case(lambda w, b, beta: soft_tree.gate_logits(X.astype(w.dtype), w, b, beta),
         [normal(6, 3), normal(3), normal(3)], name="gate_logits: dense"),
    Case(lambda w, b: soft_tree.gate_logits(of_dtype(SPARSE, w.dtype), w, b, 2.0),
         [normal(6, 3), normal(3)], name="gate_logits: sparse"),
    Case(soft_tree.log_likelihood, [normal(5, 4), normal(5, 4)], commutes=(0, 1)),
    Case(lambda a, q, y: soft_tree.log_likelihood(a, counted(q, y)),
         [normal(5, 4), uniform(3, 4, low=0.5), integers(5, high=3)], name="leaves that count"),
    Case(lambda z: soft_tree.PathPenalty(3, 0.3, window=False)(soft_tree.log_arrivals(z)),
         [normal(5, 7)], name="path penalty"),
    Case(lambda z, w: soft_tree.PathPenalty(3, 0.3, decay=0.7)(soft_tree.log_arrivals(z), w),
         [normal(5, 7), normal(5)], name="path penalty: weighted"),
]  # fmt: skip
