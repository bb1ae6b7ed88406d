"""One op of a small-array chain, forward and backward, beside NumPy doing the same arithmetic."""

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading, medians
from tinygrad_sparse import ops

LENGTH = 300  # links of tanh(y * x + x): three ops each
X = np.random.default_rng(0).normal(size=8)


def ours(x: ts.Tensor) -> object:
    """The chain on a Tape."""
    with ts.Tape() as tape:
        y = x
        for _ in range(LENGTH):
            y = ops.tanh(y * x + x)
    return tape.backward(y, seed=np.ones(8))


def bare() -> object:
    """The same arithmetic with nothing around it."""
    saved, y = [], X
    for _ in range(LENGTH):
        t = np.tanh(y * X + X)
        saved.append((y, t))
        y = t
    g, gx = np.ones(8), np.zeros(8)
    for y, t in reversed(saved):
        inner = g * (1 - t * t)
        gx = gx + inner
        gx = gx + inner * y
        g = inner * X
    return gx + g


def main() -> None:
    """Print microseconds an op and the ratio to bare NumPy."""
    x = ts.parameter(X)
    contestants = {"tinygrad_sparse": lambda: ours(x), "bare NumPy": bare}
    try:
        import torch
    except ImportError:
        pass
    else:
        leaf = torch.tensor(X, requires_grad=True)

        def torch_chain() -> object:
            y = leaf
            for _ in range(LENGTH):
                y = torch.tanh(y * leaf + leaf)
            leaf.grad = None
            y.backward(torch.ones(8, dtype=torch.float64))
            return leaf.grad

        contestants["PyTorch"] = torch_chain
    try:
        from autograd import elementwise_grad
        from autograd import numpy as anp
    except ImportError:
        pass
    else:

        def chain(x: object) -> object:
            y = x
            for _ in range(LENGTH):
                y = anp.tanh(y * x + x)
            return y

        contestants["HIPS/autograd"] = lambda: elementwise_grad(chain)(X)
    times = medians(contestants, 60)
    heading("Op overhead: tanh(y*x + x) on 8 floats, forward + backward")
    for name, seconds in times.items():
        ratio = seconds / times["bare NumPy"]
        print(f"{name:18}{seconds / LENGTH / 3 * 1e6:8.2f} us an op {ratio:8.2f} x bare NumPy")


if __name__ == "__main__":
    main()
