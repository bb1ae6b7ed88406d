"""Faults that users of other libraries reported, with the right values: numbers.

Reductions (B), singular points and kinks (C), stability (D); the ids are the rows of the collection
of reports that these come from.
"""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import nn, ops

INF = np.inf


def gradients(f, *arrays):
    """Gradients of Σ f by all of the arrays."""
    leaves = [ts.parameter(a) for a in arrays]
    with ts.Tape("raise"):
        loss = ops.sum(f(*leaves))
    grads = loss.backward()
    return [grads[leaf] for leaf in leaves]


VALUES = [  # row, function, arguments, gradients
    ("B13 mean of the only axis", lambda x: ops.mean(x**2, axis=0), [np.ones(5)], [[0.4] * 5]),
    ("B15 tuple axes", lambda x: ops.mean(x, axis=(0, -1)), [np.ones((2, 3, 4))],
     [np.full((2, 3, 4), 1 / 8)]),
    ("B17 no degrees of freedom", lambda x: ops.var(x, ddof=1), [[[1.0]]], [[[np.nan]]]),
    ("B19 std of constant data", ops.std, [[1.0, 1.0]], [[0.0, 0.0]]),
    ("B19 var of constant data", ops.var, [[1.0, 1.0]], [[0.0, 0.0]]),
    ("B21 product of a zero", lambda x: ops.prod(x, axis=0), [[0.0]], [[1.0]]),
    ("B23 cumprod, one zero", ops.cumprod, [[2.0, 0.0, 3.0, 4.0]], [[1.0, 32.0, 0.0, 0.0]]),
    ("B23 cumprod, zero first", ops.cumprod, [[0.0, 2.0, 3.0]], [[9.0, 0.0, 0.0]]),
    ("B23 cumprod, two zeros", ops.cumprod, [[2.0, 0.0, 0.0, 3.0]], [[1.0, 2.0, 0.0, 0.0]]),
    ("B25 ties of max", ops.max, [[0.6, 0.6, 0.3]], [[0.5, 0.5, 0.0]]),
    ("B25 ties of max along an axis", lambda x: ops.max(x, 0), [[0.6, 0.6, 0.3]],
     [[0.5, 0.5, 0.0]]),
    ("B25 ties of maximum", ops.maximum, [1.0, 1.0], [0.5, 0.5]),
    ("B25 ties of minimum", ops.minimum, [1.0, 1.0], [0.5, 0.5]),
    ("C29 norm of the zero vector", ops.norm, [np.zeros(3)], [np.zeros(3)]),
    ("C31 1-normalised, with a zero", lambda x: x / ops.norm(x, 1), [[0.0, 0.2]], [[5.0, 0.0]]),
    ("C33 sqrt at 0 under a maximum", lambda x, y: ops.maximum(ops.sqrt(x**2 + y**2), 1e-10),
     [0.0, 0.0], [0.0, 0.0]),
    ("C33 the same as a power", lambda x, y: ops.maximum((x**2 + y**2) ** 0.5, 1e-10),
     [0.0, 0.0], [0.0, 0.0]),
    ("C37 clip includes its bounds", lambda x: ops.clip(x, -1, 1), [[-1.0, 0.0, 1.0]],
     [[1.0, 1.0, 1.0]]),
    ("C39 0**y by y", lambda y: ops.power(np.array([0.0, 2.0]), y), [[1.0, 1.0]],
     [[0.0, 2 * np.log(2)]]),
    ("C41 a constant exponent", lambda x: x**2, [[-2.0]], [[-4.0]]),
    ("C43 arctan2 at the origin", ops.arctan2, [0.0, 0.0], [0.0, 0.0]),
    ("D45 log-sum-exp of all -inf", ops.logsumexp, [[-INF, -INF]], [[0.0, 0.0]]),
    ("D47 a large entry masked out", lambda x: ops.logsumexp(x, where=[True, False]),
     [[0.0, 100.0]], [[1.0, 0.0]]),
    ("D49 an additive mask", lambda x: ops.softmax(ops.add(x, [0.0, -INF, 0.0])) * [1, 0, 0],
     [[0.0, 1.0, 0.0]], [[0.25, 0.0, -0.25]]),
    ("D51 sigmoid far out", ops.sigmoid, [[-1000.0, 1000.0]], [[0.0, 0.0]]),
    ("D53 a fused cross-entropy", lambda x: nn.cross_entropy(x, [1]), [[[1000.0, 0.0]]],
     [[[1.0, -1.0]]]),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("f", "args", "expected"), [pytest.param(*v[1:], id=v[0]) for v in VALUES])
def test_gradients(f, args, expected, dtype):
    got = gradients(f, *[np.array(a, dtype) for a in args])
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == dtype and g.shape == np.shape(e)
        np.testing.assert_allclose(g, e, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0,), (0, 2), (-1, 0), (2, -2), (0, 1, 2)])
def test_b15_every_kind_of_axis(axis, keepdims):
    x = np.ones((2, 3, 4))
    n = x.size / np.mean(x, axis=axis).size
    (g,) = gradients(lambda v: ops.mean(v, axis, keepdims), x)
    np.testing.assert_array_equal(g, np.full((2, 3, 4), 1 / n))


def test_b21_zero_and_general_products_have_one_shape():
    for x in ([0.0], [2.0]):
        assert ops.prod(np.array(x), axis=0).shape == ()
        assert ops.prod(np.array(x), axis=0, keepdims=True).shape == (1,)


def test_b27_more_ties_than_float16_can_count():
    (g,) = gradients(ops.max, np.ones(70_000, np.float16))
    np.testing.assert_allclose(g, 1.43e-5, rtol=1e-2)


def test_c33_a_nonzero_upstream_of_sqrt_at_zero_is_infinite():
    with np.errstate(divide="ignore"):
        (g,) = gradients(ops.sqrt, np.zeros(1))
    assert g[0] == INF


def test_c35_a_mask_after_log1p_does_not_save_its_singular_point():
    keep = np.array([False, True, True])
    with np.errstate(divide="ignore", invalid="ignore"):
        (g,) = gradients(lambda x: ops.where(keep, ops.log1p(x), 0.0), np.array([-1.0, 0.5, 1.0]))
    np.testing.assert_array_equal(np.isnan(g), [True, False, False])
    np.testing.assert_allclose(g[1:], [2 / 3, 0.5])
    (g,) = gradients(  # what to write instead: select before, and after
        lambda x: ops.where(keep, ops.log1p(ops.where(keep, x, 0.0)), 0.0), np.array([-1.0, 0.5, 1])
    )
    np.testing.assert_allclose(g, [0.0, 2 / 3, 0.5])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_c37_the_bound_is_taken_in_the_arrays_dtype(dtype):
    bound = 0.1  # exact in no float dtype
    (g,) = gradients(lambda x: ops.clip(x, bound, None), np.array([bound], dtype))
    assert g[0] == 1.0


def test_d45_the_value_of_all_minus_infinity():
    assert ops.logsumexp(np.array([-INF, -INF])) == -INF


def test_d47_the_value_without_the_masked_entry():
    assert ops.logsumexp(np.array([0.0, 100.0]), where=np.array([True, False])) == 0.0


def test_d53_the_loss_and_float16_sums():
    assert nn.cross_entropy(np.array([[1000.0, 0.0]]), [1]) == 1000.0
    logits = np.tile(np.array([[100.0, 0.0]], np.float16), (1000, 1))  # the sum is 100,000
    assert nn.cross_entropy(logits, np.ones(1000, int)) == 100.0
