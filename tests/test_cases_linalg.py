"""Real faults of other libraries: stability (D) and products, einsum, convolution (E).

Ids are the section and row of our list of cases; what the row asks for is in the function's name.
"""

import itertools

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import nn, ops
from tinygrad_sparse.testing import check_grads

DTYPES = [np.float64, np.float32, np.float16]


def gradients(f, *arrays):
    """f's value, and the gradients of its sum."""
    leaves = [ts.parameter(a) for a in arrays]
    with ts.Tape("raise"):
        out = f(*leaves)
        loss = ops.sum(out)
    grads = loss.backward()
    return out.numpy(), *[grads[leaf] for leaf in leaves]


def row(*names):
    return pytest.mark.parametrize("case", names)


# -- D: softmax family, sigmoid, half precision --------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@row("D45")
def test_logsumexp_of_nothing_is_minus_infinity_with_zero_gradient(case, dtype):
    value, g = gradients(ops.logsumexp, np.array([-np.inf, -np.inf], dtype))
    assert value == -np.inf
    np.testing.assert_array_equal(g, [0.0, 0.0])


@row("D47")
def test_an_excluded_large_entry_counts_nothing(case):
    kept = np.array([True, False])
    value, g = gradients(lambda x: ops.logsumexp(ops.where(kept, x, -np.inf)), np.array([0.0, 100]))
    assert value == 0.0
    np.testing.assert_array_equal(g, [1.0, 0.0])


@row("D49")
def test_an_additive_mask_gives_zeros_and_finite_gradients(case):
    mask, weight = np.array([0.0, -np.inf, 0.0]), np.array([1.0, 2.0, 3.0])
    p, g = gradients(lambda x: ops.softmax(x + mask) * weight, np.array([0.0, 5.0, 0.0]))
    np.testing.assert_array_equal(p, [0.5, 0.0, 1.5])
    np.testing.assert_allclose(g, [-0.5, 0.0, 0.5])  # p (w - Σ p w)


@pytest.mark.parametrize("dtype", DTYPES)
@row("D51")
def test_the_slope_of_a_saturated_sigmoid_is_zero(case, dtype):
    value, g = gradients(ops.sigmoid, np.array([-1000.0, 1000.0], dtype))
    np.testing.assert_array_equal(value, [0.0, 1.0])
    np.testing.assert_array_equal(g, [0.0, 0.0])


@pytest.mark.parametrize("dtype", DTYPES)
@row("D53")
def test_a_wrong_and_certain_model_keeps_its_gradient(case, dtype):
    loss, g = gradients(lambda x: nn.cross_entropy(x, [1]), np.array([[1000.0, 0.0]], dtype))
    assert loss == 1000.0
    np.testing.assert_array_equal(g, [[1.0, -1.0]])


@row("D53 mean")
def test_the_mean_of_float16_losses_whose_sum_is_too_large(case):
    logits = np.zeros((1000, 2), np.float16)
    logits[:, 0] = 1000.0
    for options in ({}, {"ignore_index": 7}, {"weight": [1.0, 3.0]}):
        loss, _ = gradients(lambda x, o=options: nn.cross_entropy(x, [1] * 1000, **o), logits)
        assert loss == 1000.0


# -- E: matmul, einsum, convolution --------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (3, 2)])
@row("E55")
def test_matmul_of_any_two_ranks(case, m, n):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 2, 4)[3 - m :])
    w = rng.normal(size=((4,), (4, 3), (5, 4, 3))[n - 1])
    np.testing.assert_allclose(ops.matmul(x, w), np.matmul(x, w))
    check_grads(ops.matmul, [x, w])


@row("E55 values")
def test_matrix_by_vector(case):
    x, w = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 3.0])
    _, gx, gw = gradients(ops.matmul, x, w)
    np.testing.assert_array_equal(gx, [[1, 2, 3], [1, 2, 3]])
    np.testing.assert_array_equal(gw, [3, 5, 7])


@pytest.mark.parametrize("shapes", [((0, 5), (5, 3)), ((2, 0), (0, 3)), ((0, 5), (5,))])
@row("E57")
def test_empty_products_have_gradients(case, shapes):
    x, w = (np.ones(shape) for shape in shapes)
    _, gx, gw = gradients(ops.matmul, x, w)
    np.testing.assert_array_equal(gx, np.zeros(shapes[0]))
    np.testing.assert_array_equal(gw, np.zeros(shapes[1]))


@row("E59")
def test_a_label_repeated_anywhere(case):
    x = np.arange(12.0).reshape(2, 2, 3)
    value, g = gradients(lambda x: ops.einsum("iij->i", x), x)
    np.testing.assert_array_equal(value, [3.0, 30.0])
    np.testing.assert_array_equal(g, np.broadcast_to(np.eye(2)[:, :, None], (2, 2, 3)))
    for subscripts in ("iij", "iji->j", "jii->ij", "iii", "ii->"):
        shape = (3,) * len(subscripts.partition("->")[0])
        y = np.random.default_rng(0).normal(size=shape)
        np.testing.assert_allclose(ops.einsum(subscripts, y), np.einsum(subscripts, y))
        check_grads(lambda y, s=subscripts: ops.einsum(s, y), [y])


@pytest.mark.parametrize("stack", [(1, 1), (1, 2), (4, 1), (4, 2)])
@row("E61")
def test_stack_labels_of_length_one(case, stack):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1, 1, 5, 3)), rng.normal(size=(*stack, 3, 2))
    got = gradients(lambda x, y: ops.einsum("bnij,bnjc->bnic", x, y) ** 2, x, y)
    wanted = gradients(lambda x, y: (x @ y) ** 2, x, y)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b)


def slow_conv2d(x, w, stride, padding, dilation, groups):
    """The sum, written out."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    n, _, height, width = x.shape
    features, each, kh, kw = w.shape
    a = (height - dilation * (kh - 1) - 1) // stride + 1
    b = (width - dilation * (kw - 1) - 1) // stride + 1
    out = np.zeros((n, features, a, b))
    for o, c, i, j, u, v in itertools.product(*map(range, (features, each, kh, kw, a, b))):
        channel = o // (features // groups) * each + c
        place = x[:, channel, u * stride + i * dilation, v * stride + j * dilation]
        out[:, o, u, v] += place * w[o, c, i, j]
    return out


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("stride", [1, 2, 3])
@row("E63")
def test_conv2d_at_every_stride_padding_dilation_and_groups(
    case, stride, padding, dilation, groups
):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 2, 5, 4)), rng.normal(size=(2, 2 // groups, 2, 2))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    np.testing.assert_allclose(ops.conv2d(x, w, **options), slow_conv2d(x, w, **options))
    check_grads(lambda x, w: ops.conv2d(x, w, **options), [x, w])
