"""hvp and jvp: against dense mathematics, and sparse where only rows are looked up."""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import ops

X = np.linspace(-1.0, 1.0, 10).reshape(5, 2)
V = np.cos(np.arange(10.0)).reshape(5, 2)


def test_hvp_of_a_lookup_is_rows():
    Hv = ts.hvp(lambda W: (W[[3, 1, 3]] ** 3).sum(), X, V)
    assert isinstance(Hv, ts.IndexedSlices)
    assert set(Hv.indices) == {1, 3}
    weight = np.zeros((5, 1))
    weight[[1, 3], 0] = 1, 2
    np.testing.assert_allclose(Hv.to_dense(), weight * 6 * X * V)


def test_hvp_equals_a_difference_of_gradients():
    def f(W):
        return ops.tanh(W @ W.T).sum()

    step = 1e-6
    expected = (ts.grad(f)(X + step * V) - ts.grad(f)(X - step * V)) / (2 * step)
    np.testing.assert_allclose(ts.hvp(f, X, V), expected, rtol=1e-6, atol=1e-9)


def test_gradients_of_gradients_of_a_lookup_are_rows():
    g = ts.grad(lambda W: (ts.grad(lambda U: (U[[0, 2]] ** 3).sum())(W).values ** 2).sum())(X)
    assert isinstance(g, ts.IndexedSlices)
    expected = np.zeros_like(X)
    expected[[0, 2]] = 36 * X[[0, 2]] ** 3
    np.testing.assert_allclose(g.to_dense(), expected)


def test_jvp_goes_forward_through_a_lookup():
    value, slope = ts.jvp(lambda W, y: ops.exp(W[[4, 4]]) * y, (X, X[:2]), (V, V[:2]))
    np.testing.assert_allclose(value, np.exp(X[[4, 4]]) * X[:2])
    np.testing.assert_allclose(slope, np.exp(X[[4, 4]]) * (V[[4, 4]] * X[:2] + V[:2]))


@pytest.mark.parametrize("call", [ts.hvp, lambda f, x, v: ts.jvp(f, (x,), (v,))])
def test_a_vector_of_another_shape_is_refused(call):
    with pytest.raises(ts.errors.ShapeError, match="expected a vector of shape"):
        call(lambda x: (x * x).sum(), X, V[:3])
