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
    Case(ops.matmul, [normal(3), normal(5, 3, 2)], name="vector @ batch", commutes=(1,)),
    Case(ops.matmul, [normal(2, 3), normal(5, 3, 2)], name="shared @ batch", commutes=(1,)),
    Case(ops.matmul, [normal(2, 1, 3, 4), normal(5, 4, 2)], name="two batches", rows="dense"),
    Case(ops.matmul, [normal(5, 3), normal(3, 1)], name="one column", commutes=(0,)),
    Case(ops.matmul, [normal(5, 1, 3), normal(5, 3, 2)], name="one row each", commutes=(0, 1)),
    Case(ops.matmul, [normal(0, 3), normal(3, 2)], name="empty batch"),
    Case(ops.dot, [normal(5, 3), normal(3, 4)], commutes=(0,)),
    Case(ops.dot, [normal(), normal(5, 3)], name="a number", commutes=(1,)),
    Case(ops.dot, [normal(5, 3), normal(2, 3, 4)], name="every pair", commutes=(0,)),
    Case(ops.inner, [normal(5, 3), normal(4, 3)], commutes=(0,)),
    Case(ops.vdot, [normal(2, 3), normal(3, 2)]),
    Case(ops.outer, [normal(5), normal(2, 2)], commutes=(0,)),
    Case(ops.kron, [normal(2, 3), normal(3)], rows="dense"),
    Case(ops.kron, [normal(3), normal(2)], name="vectors", rows="dense"),
    Case(ops.tensordot, [normal(5, 2, 3), normal(2, 3, 4)], commutes=(0,)),
    Case(ops.tensordot, [normal(5, 2, 3), normal(4, 2)], name="a pair of axes", commutes=(0,),
         static={"axes": (1, -1)}),
    Case(ops.tensordot, [normal(2, 5, 3), normal(3, 4, 2)], name="pairs of axes", rows="dense",
         static={"axes": ([2, 0], [0, -1])}),
    Case(ops.tensordot, [normal(5, 2), normal(3)], name="no axes", commutes=(0,),
         static={"axes": 0}),
    Case(ops.matmul, [normal(5, 0), normal(0, 2)], name="empty sum"),
    Case(ops.tensordot, [normal(5, 0), normal(0, 2)], name="empty sum", static={"axes": 1}),
]  # fmt: skip
