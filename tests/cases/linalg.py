"""Matrix products: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal

CASES = [
    Case(ops.matmul, [normal(5, 3), normal(3, 4)], commutes=(0,)),
    Case(ops.matmul, [normal(5, 5), normal(5, 5)], name="square", commutes=(0,)),
    Case(ops.matmul, [normal(5, 3), normal(3)], name="matrix @ vector", commutes=(0,)),
    Case(ops.matmul, [normal(3), normal(3, 4)], name="vector @ matrix", rows="dense"),
    Case(ops.matmul, [normal(3), normal(3)], name="vector @ vector"),
    Case(ops.matmul, [normal(5, 2, 3), normal(5, 3, 2)], name="batched", commutes=(0, 1)),
    Case(ops.matmul, [normal(5, 2, 3), normal(3, 2)], name="batch @ shared", commutes=(0,)),
    Case(ops.matmul, [normal(5, 2, 3), normal(1, 3, 2)], name="batch of 1", commutes=(0,)),
    Case(ops.matmul, [normal(5, 2, 3), normal(3)], name="batch @ vector", commutes=(0,)),
    Case(ops.matmul, [normal(3), normal(5, 3, 2)], name="vector @ batch", rows="dense"),
    Case(ops.matmul, [normal(0, 3), normal(3, 2)], name="empty batch"),
    Case(ops.matmul, [normal(5, 3), normal(3, 0)], name="no columns", commutes=(0,)),
    Case(ops.matmul, [normal(5, 0), normal(0, 3)], name="no inner size", commutes=(0,)),
]  # fmt: skip
