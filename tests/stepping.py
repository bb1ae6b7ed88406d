"""What tests of optimizers step with: a GradStore of one gradient."""

import numpy as np

from tinygrad_sparse import GradStore


def store(p, g=None):
    """The gradient g of p, or ones."""
    grads = GradStore()
    grads[p] = np.ones(p.shape, p.dtype) if g is None else g
    return grads
