"""Values of reductions, scans, norms and the softmax family that no law can see."""

import math

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, ops
from tinygrad_sparse.testing import check_grads

DTYPES = [np.float64, np.float32, np.float16]
WIDE = {np.float16: np.float32}
AXES = [None, 0, -1, 1, (0, 2), (-1, 0), (0, 1, 2), ()]


def gradient(f, x, seed=None):
    leaf = ts.parameter(x)
    with ts.Tape("allow"):
        out = f(leaf)
    return out.backward(seed=np.ones(out.shape) if seed is None else seed)[leaf]


def draw(dtype, *shape):
    return np.random.default_rng(0).normal(size=shape or (4, 3, 5)).astype(dtype)


def same(got, expected):
    got = got.data if type(got) is ts.Tensor else np.asarray(got)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


# -- the forward is NumPy's ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "var", "std", "max", "min"])
def test_reductions_are_numpys_to_the_bit(name, axis, keepdims, dtype):
    x = draw(dtype)
    sums = {} if name in ("max", "min") else {"dtype": WIDE.get(dtype)}
    if name in ("var", "std", "mean", "sum", "prod"):
        expected = getattr(np, name)(x, axis=axis, keepdims=keepdims, **sums).astype(dtype)
    else:
        expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    expected = np.asarray(expected)
    same(getattr(ops, name)(x, axis, keepdims=keepdims), expected)
    same(getattr(ts.tensor(x), name)(axis=axis, keepdims=keepdims), expected)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "cumsum", "cumprod", "argmax"])
def test_integers_and_lists_are_taken_as_numpy_takes_them(name):
    for x in (np.array([[3, 1], [2, 2]], np.int8), [[True, False], [True, True]]):
        same(getattr(ops, name)(x), np.asarray(getattr(np, name)(x)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [None, 0, -1, 1])
def test_scans_and_places_are_numpys(axis, dtype):
    x = draw(dtype)
    for name in ("cumsum", "cumprod"):
        expected = getattr(np, name)(x, axis, dtype=WIDE.get(dtype)).astype(dtype)
        same(getattr(ops, name)(x, axis), expected)
        same(getattr(ts.tensor(x), name)(axis), expected)
    for name in ("argmax", "argmin"):
        for keepdims in (False, True):
            expected = np.asarray(getattr(np, name)(x, axis, keepdims=keepdims))
            same(getattr(ops, name)(x, axis, keepdims), expected)
            same(getattr(ts.tensor(x), name)(axis=axis, keepdims=keepdims), expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("ord", [None, 1, 2, 3, 0.5, np.inf, -np.inf])
def test_norms_are_numpys_to_the_bit(ord, dtype):
    x = draw(dtype, 6, 5)
    for axis in (0, 1):
        for keepdims in (False, True):
            same(ops.norm(x, ord, axis, keepdims), np.linalg.norm(x, ord, axis, keepdims))
    for y in (x, x[0], x[:, None]):
        same(ops.norm(y), np.asarray(np.linalg.norm(y)))
    if ord is not None:
        np.testing.assert_allclose(
            ops.vector_norm(x, ord=ord), np.linalg.vector_norm(x, ord=ord), rtol=1e-6
        )
    np.testing.assert_allclose(ops.norm(x, "fro"), np.linalg.norm(x, "fro"), rtol=1e-6)


def test_zero_size_and_0_d():
    empty = np.zeros((0, 3))
    same(ops.sum(empty, 0), np.zeros(3))
    same(ops.prod(empty, 0), np.ones(3))
    same(ops.logsumexp(empty, 0), np.full(3, -np.inf))
    same(ops.norm(empty, axis=0), np.zeros(3))
    same(ops.softmax(empty, 0), empty)
    same(ops.cumsum(empty), np.zeros(0))
    for op in (ops.sum, ops.prod, ops.logsumexp, ops.var, ops.cumsum, ops.cumprod, ops.softmax):
        assert gradient(op, empty).shape == (0, 3)
    for op in (ops.sum, ops.prod, ops.max, ops.logsumexp, ops.norm, ops.cumsum, ops.cumprod):
        same(gradient(op, np.array(2.0)), np.array(1.0))


@pytest.mark.parametrize("op", [ops.max, ops.min, ops.argmax, ops.argmin])
def test_nothing_to_choose_from_is_an_error(op):
    with pytest.raises(errors.ShapeError, match=r"arg|m..: expected at least one element, got"):
        op(np.zeros((0, 3)))
    assert op(np.zeros((0, 3)), 1).shape == (0,)


@pytest.mark.parametrize("op", [ops.sum, ops.prod, ops.std, ops.max, ops.logsumexp, ops.norm])
@pytest.mark.parametrize("axis", [2, -3, (0, 0), 0.5], ids=str)
def test_bad_axes_are_named(op, axis):
    with pytest.raises(errors.ShapeError, match=rf"{op.__name__}: expected (an|each) axis"):
        op(np.ones((2, 3)), axis=axis)


@pytest.mark.parametrize("op", [ops.cumsum, ops.cumprod, ops.argmax])
def test_scans_and_places_take_one_axis(op):
    with pytest.raises(errors.ShapeError, match=rf"{op.__name__}: expected one axis, got \(0, 1\)"):
        op(np.ones((2, 3)), axis=(0, 1))
    with pytest.raises(errors.ShapeError, match=rf"{op.__name__}: expected an axis in \[-2, 2\)"):
        op(np.ones((2, 3)), axis=2)


# -- float16 keeps its sums and counts in float32 --------------------------------------------------


def test_float16_totals_do_not_overflow_on_the_way():
    x = np.full(70_000, 1.0, np.float16)
    assert ops.mean(x) == 1.0
    assert ops.var(np.tile(np.array([300.0, 500.0], np.float16), 5)) == 10_000
    assert ops.std(np.tile(np.array([-3e4, 3e4], np.float16), 5)) == 3e4
    assert ops.norm(np.full(4, 300.0, np.float16)) == 600
    assert ops.logsumexp(x) == np.float16(1 + math.log(70_000))
    assert ops.sum(np.array([6e4, 6e4, -6e4], np.float16)) == np.float16(6e4)
    assert ops.cumsum(np.full(3000, 1.0, np.float16))[-1] == 3000
    assert ops.prod(np.array([300.0, 300.0, 0.01], np.float16)) == np.float16(900)
    for op in (ops.max, ops.mean):
        np.testing.assert_allclose(gradient(op, x), 1 / 70_000, rtol=1e-2)
    np.testing.assert_allclose(gradient(ops.logsumexp, x), 1 / 70_000, rtol=1e-2)


# -- products --------------------------------------------------------------------------------------


def others(x):
    return np.array([np.prod(np.delete(x, i)) for i in range(len(x))])


@pytest.mark.parametrize("zeros", [[], [1], [0, 3], [0, 1, 2, 3, 4]], ids=str)
def test_a_products_gradient_is_the_product_of_the_others(zeros):
    x = draw(np.float64, 5)
    x[zeros] = 0.0
    np.testing.assert_allclose(gradient(ops.prod, x), others(x), rtol=1e-14)
    check_grads(ops.prod, [x])
    check_grads(ops.cumprod, [x])
    np.testing.assert_allclose(
        gradient(ops.cumprod, x),
        sum(np.pad(others(x[: k + 1]), (0, 4 - k)) for k in range(5)),
        rtol=1e-14,
    )


def test_the_second_derivative_of_a_product_is_the_product_of_the_rest():
    x = np.array([2.0, 0.0, 3.0, 0.0])
    hessian = [ts.grad(lambda v, i=i: ts.grad(lambda u: ops.prod(u))(v)[i])(x) for i in range(4)]
    expected = np.zeros((4, 4))
    expected[1, 3] = expected[3, 1] = 6.0
    np.testing.assert_array_equal(hessian, expected)


def test_products_over_several_axes_in_any_order():
    x = draw(np.float64, 2, 3, 4)
    for axis in ((0, 2), (2, 0), (1, 2), (-1, -2), None):
        whole = np.prod(x, axis=axis, keepdims=True)
        np.testing.assert_allclose(gradient(lambda v, axis=axis: ops.prod(v, axis), x), whole / x)


def test_a_running_product_where_parts_overflow_and_a_zero_comes_first():
    x = np.array([0.0, 1e200, 1e200, 1e200, 0.0, 2.0])
    seed = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(gradient(ops.cumprod, x, seed), [1.0, 0, 0, 0, 0, 0])


def test_a_long_scan_against_a_plain_loop():
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=(37, 2)), rng.normal(size=(37, 2))
    expected = np.zeros_like(x)
    carried = np.zeros(2)
    before = np.vstack([np.ones((1, 2)), np.cumprod(x, 0)[:-1]])
    for i in range(36, -1, -1):
        carried = g[i] + (x[i + 1] * carried if i < 36 else 0.0)
        expected[i] = before[i] * carried
    np.testing.assert_allclose(gradient(lambda v: ops.cumprod(v, 0), x, g), expected, rtol=1e-12)


# -- spread ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [ops.var, ops.std])
def test_no_degrees_of_freedom_is_nan_of_the_right_shape(op, dtype):
    for shape, ddof in (((2, 3), 3), ((2, 3), 4), ((2, 1), 1), ((2, 0), 0)):
        x = draw(dtype, 6)[: math.prod(shape)].reshape(shape)
        same(op(x, 1, ddof), np.full(2, np.nan, dtype))
        same(op(x, axis=1, ddof=ddof, keepdims=True), np.full((2, 1), np.nan, dtype))
        same(gradient(lambda v, ddof=ddof: op(v, 1, ddof), x), np.full(shape, np.nan, dtype))


@pytest.mark.parametrize("ddof", [0, 1, 1.5])
def test_ddof_is_numpys(ddof):
    x = draw(np.float64)
    same(ops.var(x, 1, ddof), np.var(x, axis=1, ddof=ddof))
    same(ops.std(x, (0, 2), ddof=ddof), np.std(x, axis=(0, 2), ddof=ddof))
    check_grads(lambda v: ops.std(v, 1, ddof), [x])


@pytest.mark.parametrize("dtype", DTYPES)
def test_constant_data_has_no_slope_however_its_mean_is_rounded(dtype):
    x = np.full((3, 7), 0.1, dtype)
    x[1] = 1 / 3
    np.testing.assert_array_equal(gradient(lambda v: ops.std(v, 1), x), 0.0)
    x[2, 0] = 0.2  # one row that varies changes nothing for the others
    g = gradient(lambda v: ops.std(v, 1), x)
    np.testing.assert_array_equal(g[:2], 0.0)
    assert (g[2] != 0).all()


# -- ties ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [ops.max, ops.min])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_ties_share_all_of_the_cotangent(op, axis):
    x = np.array([[1.0, 1.0, 2.0], [2.0, 1.0, 2.0]])
    out = op(x, axis)
    g = gradient(lambda v: op(v, axis), x)
    np.testing.assert_allclose(g.sum(axis), np.ones(np.shape(out)))
    assert ((g != 0) == (x == op(x, axis, keepdims=True))).all()


def test_places_end_the_path_and_find_rows_again():
    W = ts.parameter(np.array([[1.0, 5.0], [7.0, 7.0]]))
    with ts.Tape("raise") as tape:
        best = W.argmax(axis=0)
        assert not best.requires_grad and best.dtype == np.int64
        loss = W[best].sum()
    np.testing.assert_array_equal(tape.backward(loss).touched_rows(W), [1])
    assert ops.argmax(np.array([3.0, 3.0])) == 0


# -- norms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ord", [1, 2, 3, 1.5, np.inf])
@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_neither_overflow_nor_vanish(ord, dtype):
    limits = np.finfo(dtype)
    unit = np.array([3.0, -4.0], dtype)

    def norm(v):
        return ops.vector_norm(v, ord=ord)

    size, slope = norm(unit), gradient(norm, unit)
    for scale in (limits.max / 16, 2.0 ** (math.log2(limits.tiny) // 1), 1.0):
        x = unit * dtype(scale)
        got = norm(x)
        assert got.dtype == dtype
        np.testing.assert_allclose(got / dtype(scale), size, rtol=4 * limits.eps)
        np.testing.assert_allclose(gradient(norm, x), slope, rtol=8 * limits.eps)


def test_a_safe_lane_keeps_its_bits_beside_one_that_is_not():
    x = np.array([[1e200, 1e200], [0.1, 0.7], [0.0, 0.0], [1e-200, 0.0], [np.inf, 1.0]])
    got = ops.norm(x, axis=1)
    assert got[1] == np.linalg.norm(x[1:2], axis=1)[0]
    np.testing.assert_allclose(got, [math.sqrt(2) * 1e200, got[1], 0.0, 1e-200, np.inf], rtol=1e-15)
    assert np.isnan(ops.norm(np.array([np.nan, 1.0])))


def test_norm_refuses_what_numpy_makes_a_matrix_norm_of():
    x = np.ones((2, 3))
    with pytest.raises(errors.ShapeError, match=r"norm: expected one axis .* Hint: vector_norm"):
        ops.norm(x, 1)
    with pytest.raises(errors.ShapeError, match=r"norm: expected one axis"):
        ops.norm(x, "fro", axis=1)
    for ord in (0, -1, "nuc"):
        with pytest.raises(errors.TinygradSparseError, match=r"vector_norm: expected ord > 0"):
            ops.vector_norm(x, ord=ord)


# -- the softmax family ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_shifts(dtype):
    x = np.array([[1000.0, 0.0], [-1000.0, -1000.0], [-np.inf, 3.0], [-np.inf, -np.inf]], dtype)
    same(ops.softmax(x), np.array([[1, 0], [0.5, 0.5], [0, 1], [0, 0]], dtype))
    np.testing.assert_allclose(
        ops.log_softmax(x),
        np.array([[0, -1000], [-math.log(2)] * 2, [-np.inf, 0], [-np.inf] * 2], dtype),
        rtol=1e-3,
    )
    np.testing.assert_allclose(
        ops.logsumexp(x, 1), np.array([1000, -1000 + math.log(2), 3, -np.inf]), rtol=1e-3
    )
    for op in (ops.softmax, ops.logsumexp):
        assert np.isfinite(gradient(op, x)).all()


def test_logsumexp_passes_a_nan_on():
    assert np.isnan(ops.logsumexp(np.array([np.nan, 1.0])))


@pytest.mark.parametrize("x", [1e8, -1e8, 0.0])
def test_shares_keep_their_digits_where_the_logarithm_has_lost_them(x):
    row = np.full(5, x, np.float32)
    np.testing.assert_allclose(gradient(ops.logsumexp, row), 0.2, rtol=1e-6)
    y = np.array([x], np.float32)
    np.testing.assert_allclose(gradient(lambda v: ops.logaddexp(v, y), y), 0.5, rtol=1e-6)


def test_a_mask_excludes_exactly():
    x = np.array([[0.0, 1e9, np.nan], [1.0, 1.0, 5.0]])
    keep = np.array([[True, False, False], [True, True, False]])
    same(ops.logsumexp(x, 1, where=keep), np.array([0.0, 1.0 + math.log(2)]))
    shares = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    same(ops.softmax(x, where=keep), shares)
    same(ops.log_softmax(x, where=keep)[0], np.array([0.0, -np.inf, -np.inf]))
    same(gradient(lambda v: ops.logsumexp(v, 1, where=keep), x), shares)
    assert ops.logsumexp(x, where=np.zeros((2, 3), bool)) == -np.inf
    same(gradient(lambda v: ops.logsumexp(v, where=np.zeros((2, 3), bool)), x), np.zeros((2, 3)))
    with pytest.raises(errors.ShapeError, match=r"logsumexp: expected a mask that broadcasts to"):
        ops.logsumexp(x, where=np.ones((4, 2, 3), bool))
    with pytest.raises(errors.ShapeError, match=r"softmax: expected a mask"):
        ops.softmax(x, where=np.ones(2, bool))
