"""Reductions by id: one row an op and shape."""

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, integers, normal

FULL = {"num_segments": 3}  # each segment has a row: finite differences of -inf mean nothing


def every(rng):
    return np.array([2, 0, 2, 1, 0, 2])


CASES = [
    *[Case(op, [normal(6, 3), every], static=FULL)
      for op in (ops.segment_sum, ops.segment_mean, ops.segment_max)],
    *[Case(op, [normal(6), every], name="numbers", static=FULL)
      for op in (ops.segment_sum, ops.segment_mean, ops.segment_max)],
    *[Case(op, [normal(2, 3, 2, 2), lambda rng: every(rng).reshape(2, 3)], name="ids of rank 2",
           static=FULL) for op in (ops.segment_sum, ops.segment_mean, ops.segment_max)],
    *[Case(op, [normal(5, 2), integers(5, high=3)], name="empty segments",
           static={"num_segments": 9}) for op in (ops.segment_sum, ops.segment_mean)],
    *[Case(op, [normal(0, 2), integers(0, high=3)], name="no rows", static=FULL)
      for op in (ops.segment_sum, ops.segment_mean)],
    Case(lambda x, ids: ops.segment_max(x, ids, 9)[ids], [normal(5, 2), integers(5, high=9)],
         name="segment_max: looked up"),
]  # fmt: skip
