"""Square matrices: one row an op and shape, singular ones where the op has a gradient there."""

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.ops.solve import _cofactor, _slope
from tinygrad_sparse.testing import Case, normal


def invertible(*shape):
    """Well away from singular: the identity and a little noise."""
    return lambda rng: 2.0 * np.eye(shape[-1]) + 0.3 * rng.normal(size=shape)


def of_rank(rank, *shape):
    """Products of (n, rank) and (rank, n): singular if rank < n."""
    *stack, n = shape
    return lambda rng: rng.normal(size=(*stack, n, rank)) @ rng.normal(size=(*stack, rank, n))


def symmetric_cholesky(x):
    return ops.cholesky(x + ops.swapaxes(x, -1, -2))


CASES = [
    Case(ops.solve, [invertible(3, 3), normal(3, 2)], rows="dense"),
    Case(ops.solve, [invertible(3, 3), normal(3)], name="vector", rows="dense"),
    Case(ops.solve, [invertible(5, 3, 3), normal(5, 3, 2)], name="stacks", commutes=(0, 1)),
    Case(ops.solve, [invertible(5, 3, 3), normal(3)], name="stack, vector", commutes=(0,)),
    Case(ops.solve, [invertible(3, 3), normal(5, 3, 2)], name="matrix, stack", commutes=(1,)),
    Case(ops.solve, [invertible(2, 1, 2, 2), normal(3, 2, 1)], name="two stacks", rows="dense"),
    Case(ops.inv, [invertible(3, 3)], rows="dense"),
    Case(ops.inv, [invertible(5, 2, 2)], name="stack", commutes=(0,)),
    Case(ops.det, [normal(3, 3)]),
    Case(ops.det, [normal(5, 2, 2)], name="stack", commutes=(0,)),
    Case(ops.det, [of_rank(3, 4, 4)], name="rank n - 1"),
    # of lower rank, the determinant and its gradient are zero: a term gives the sum a scale
    Case(lambda x: ops.det(x) + (x * x).sum((-2, -1)), [of_rank(2, 5, 4)],
         name="det: rank n - 2, stack", commutes=(0,)),
    Case(lambda x: ops.det(x) + (x * x).sum((-2, -1)), [of_rank(1, 4)], name="det: rank 1 of 4"),
    Case(ops.det, [normal(1, 1)], name="one number"),
    Case(ops.det, [normal(5, 0, 0)], name="nothing", commutes=(0,)),
    Case(_cofactor, [invertible(3, 3)], rows="dense", order=1),
    Case(_slope, [invertible(3, 3), normal(3, 3)], rows="dense", order=1),
    Case(_cofactor, [invertible(5, 2, 2)], name="stack", commutes=(0,), order=1),
    Case(_slope, [invertible(5, 3, 3), normal(5, 3, 3)], name="stack", commutes=(0, 1), order=1),
    Case(lambda x: ops.slogdet(x).logabsdet, [invertible(3, 3)], name="slogdet: matrix"),
    Case(lambda x: ops.slogdet(x).logabsdet, [invertible(5, 2, 2)], name="slogdet: stack",
         commutes=(0,)),
    Case(symmetric_cholesky, [invertible(3, 3)], name="cholesky: matrix", rows="dense"),
    Case(symmetric_cholesky, [invertible(5, 2, 2)], name="cholesky: stack", commutes=(0,)),
]  # fmt: skip
