"""The softmax family: one row an op and shape."""

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal

from .reduce import along_axes

MASK = np.array([True, False, True, True])

CASES = [
    Case(ops.logaddexp, [normal(5, 3), normal(5, 3)], commutes=(0, 1)),
    Case(ops.logaddexp, [normal(3), normal(5, 1)], name="shared left", commutes=(1,)),
    *along_axes(ops.logsumexp, normal(5, 4)),
    *along_axes(ops.logsumexp, normal(5, 4), where=MASK)[1:2],
    Case(ops.logsumexp, [normal(5, 4)], name="all"),
    Case(ops.logsumexp, [normal(5, 4)], name="a mask with rows",
         static={"axis": 1, "where": np.tri(5, 4, dtype=bool)}),
    Case(ops.softmax, [normal(5, 3)], commutes=(0,)),
    Case(ops.softmax, [normal(5, 3)], name="axis 0", rows="dense", static={"axis": 0}),
    Case(ops.softmax, [normal(5, 2, 3)], name="two axes", commutes=(0,), static={"axis": (1, 2)}),
    Case(ops.softmax, [normal(5, 4)], name="masked", commutes=(0,), static={"where": MASK}),
    Case(ops.log_softmax, [normal(5, 3)], commutes=(0,)),
    Case(ops.log_softmax, [normal(5, 3)], name="axis 0", rows="dense", static={"axis": 0}),
]  # fmt: skip
