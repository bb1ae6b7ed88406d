"""Values of elementwise ops that no law can see: NumPy's bits, far ends, special points."""

import math

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, ops

DTYPES = [np.float64, np.float32, np.float16]

UNARY = """absolute arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh exp exp2 expm1
floor log log10 log1p log2 negative positive reciprocal round sign sin sinh sqrt square tan tanh
trunc""".split()
BINARY = """add arctan2 copysign divide floor_divide fmod hypot logaddexp maximum minimum multiply
power remainder subtract""".split()


def specials(dtype):
    limits = np.finfo(dtype)
    positive = [0.0, 1e-3, 0.5, 1.0, 2.5, 3.0, 1e3, limits.tiny, limits.max, np.inf]
    return np.array([*positive, *(-x for x in positive), np.nan], dtype)


def gradient(f, *arrays, seed=None):
    """Gradients of f by all of the arrays, the densifying of rows refused."""
    leaves = [ts.parameter(a) for a in arrays]
    with ts.Tape("raise"):
        out = f(*leaves)
    grads = out.backward(seed=np.ones(out.shape) if seed is None else seed)
    return [grads[leaf] for leaf in leaves] if len(leaves) > 1 else grads[leaves[0]]


# -- the forward is NumPy's ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(-1,), (), (0, 3)], ids=["specials", "0-d", "zero size"])
@pytest.mark.parametrize("name", UNARY + BINARY)
def test_the_forward_is_numpys_to_the_bit(name, shape, dtype):
    x = specials(dtype)
    args = [x] if name in UNARY else [a.ravel() for a in np.meshgrid(x, x)]
    size = 0 if 0 in shape else 1 if shape == () else None
    args = [a[1 : 1 + size].reshape(shape) if size is not None else a for a in args]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*args)
        for got in (getattr(ops, name)(*map(ts.tensor, args)).data, getattr(ops, name)(*args)):
            assert got.dtype == expected.dtype and got.shape == expected.shape
            np.testing.assert_array_equal(got, expected)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


@pytest.mark.parametrize("dtype", DTYPES)
def test_clip_where_and_round_are_numpys(dtype):
    x = specials(dtype)
    np.testing.assert_array_equal(ops.clip(x, -0.7, 2), np.clip(x, -0.7, 2))
    np.testing.assert_array_equal(ops.clip(x, None, x[::-1]), np.clip(x, None, x[::-1]))
    np.testing.assert_array_equal(ops.clip(x, 0.1), np.clip(x, 0.1, None))
    np.testing.assert_array_equal(ops.where(x > 0, x, 0.0), np.where(x > 0, x, 0.0))
    np.testing.assert_array_equal(ops.round(x[:6], 2), np.round(x[:6], 2))
    assert ops.clip(x, -0.7, 2).dtype == ops.where(x > 0, x, 0.0).dtype == dtype


def test_operators_on_both_sides():
    x = ts.tensor([5.5, -5.5])
    for f in (lambda a: a % 2, lambda a: 2 % a, lambda a: a // 2, lambda a: 2 // a, lambda a: +a):
        np.testing.assert_array_equal(f(x).data, f(x.numpy()))
    for left in (np.array([7.0, 9.0]), np.float64(7.0)):
        for f in (lambda a, b: a % b, lambda a, b: a // b):
            assert type(f(left, x)) is ts.Tensor
            np.testing.assert_array_equal(f(left, x).data, f(left, x.numpy()))


# -- erf -------------------------------------------------------------------------------------------


def test_erf_is_the_error_function_to_the_last_digits():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-7, 7, 20_000), 10.0 ** rng.uniform(-300, 0, 2_000)])
    expected = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(ops.erf(x), expected, rtol=4e-16, atol=0)
    for dtype in (np.float32, np.float16):
        narrow = x[:20_000].astype(dtype)
        near = np.array([math.erf(v) for v in narrow.tolist()])
        got = ops.erf(narrow)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, near.astype(dtype), rtol=2 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize(
    ("x", "value"),  # computed with 30 digits
    [
        (1e-10, 1.1283791670955126e-10),
        (0.1, 0.11246291601828488),
        (0.5, 0.5204998778130465),
        (1.0, 0.8427007929497149),
        (2.0, 0.9953222650189527),
        (3.5, 0.9999992569016277),
        (5.5, 0.9999999999999926),
    ],
)
def test_erf_at_tabulated_points(x, value):
    np.testing.assert_allclose(ops.erf(x), value, rtol=2.3e-16, atol=0)
    assert float(ops.erf(-x)) == -float(ops.erf(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_erf_at_the_ends(dtype):
    x = np.array([-np.inf, np.finfo(dtype).min, -0.0, 0.0, np.finfo(dtype).max, np.inf, np.nan])
    got = ops.erf(x.astype(dtype))
    np.testing.assert_array_equal(got, np.array([-1, -1, -0.0, 0.0, 1, 1, np.nan], dtype))
    assert np.signbit(got[2]) and not np.signbit(got[3])


# -- far ends: saturated, without a warning (warnings are errors here) -----------------------------

FAR = [  # op, slope at -huge, slope at +huge
    (ops.tanh, 0.0, 0.0),
    (ops.arctan, 0.0, 0.0),
    (ops.arcsinh, 0.0, 0.0),
    (ops.sigmoid, 0.0, 0.0),
    (ops.log_sigmoid, 1.0, 0.0),
    (ops.softplus, 0.0, 1.0),
    (ops.relu, 0.0, 1.0),
    (ops.leaky_relu, 0.01, 1.0),
    (ops.elu, 0.0, 1.0),
    (ops.silu, 0.0, 1.0),
    (ops.erf, 0.0, 0.0),
    (ops.gelu, 0.0, 1.0),
    pytest.param(lambda x: ops.gelu(x, "tanh"), 0.0, 1.0, id="gelu tanh"),
    pytest.param(lambda x: ops.logaddexp(x, 0.0), 0.0, 1.0, id="logaddexp"),
    pytest.param(lambda x: ops.clip(x, -1.0, 1.0), 0.0, 0.0, id="clip"),
    pytest.param(lambda x: ops.hypot(x, 1.0), -1.0, 1.0, id="hypot"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("op", "low", "high"), FAR)
def test_slopes_at_the_far_ends(op, low, high, dtype):
    huge = np.finfo(dtype).max / 2
    for x in (huge, dtype(5e3)):  # 5e3² and e**5e3 overflow float16, e**5e3 all three
        got = gradient(op, np.array([-x, x], dtype))
        np.testing.assert_allclose(got, np.array([low, high], dtype), atol=3e-4)
        second = ts.grad(lambda v: ts.grad(lambda u: ops.sum(op(u)))(v).sum())
        assert np.isfinite(second(np.array([-x, x], dtype))).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("op", "low", "high"),
    [
        (ops.sigmoid, 0.0, 0.0),
        (ops.softplus, 0.0, 1.0),
        (ops.log_sigmoid, 1.0, 0.0),
        (ops.tanh, 0.0, 0.0),
        (ops.erf, 0.0, 0.0),
        (ops.relu, 0.0, 1.0),
        (ops.arctan, 0.0, 0.0),
    ],
)
def test_slopes_at_infinity(op, low, high, dtype):
    np.testing.assert_array_equal(gradient(op, np.array([-np.inf, np.inf], dtype)), [low, high])


def test_values_far_out():
    x = np.array([-1000.0, -40.0, 40.0, 1000.0])
    np.testing.assert_array_equal(ops.sigmoid(x), [0.0, math.exp(-40) / (1 + math.exp(-40)), 1, 1])
    np.testing.assert_array_equal(ops.softplus(x), [0.0, math.log1p(math.exp(-40)), 40.0, 1000.0])
    np.testing.assert_array_equal(ops.log_sigmoid(x), -ops.softplus(-x))
    np.testing.assert_array_equal(ops.log_sigmoid(x)[[0, 3]], [-1000.0, 0.0])
    np.testing.assert_allclose(ops.elu(x, 2.0), [-2.0, -2.0, 40.0, 1000.0])
    assert gradient(ops.arctan, np.array([1e8]))[0] == pytest.approx(1e-16, rel=1e-12)
    assert gradient(ops.arcsin, np.array([1 - 1e-12]))[0] == pytest.approx(7.07098e5, rel=1e-4)


def test_tiny_and_huge_legs():
    for scale in (1e-200, 1e200):
        gy, gx = gradient(ops.arctan2, np.array([3 * scale]), np.array([4 * scale]))
        np.testing.assert_allclose([gy[0] * scale, gx[0] * scale], [4 / 25, -3 / 25])
        np.testing.assert_allclose(
            gradient(ops.hypot, np.array([3 * scale]), np.array([4 * scale])), [[0.6], [0.8]]
        )


@pytest.mark.parametrize("scale", [2.0**15, 1.0, 2.0**-10])
@pytest.mark.parametrize("square", [ops.square, lambda x: x * x, lambda x: x**2])
def test_the_slope_of_a_square_is_in_range_wherever_it_ends_there(square, scale):
    """A float16 loss is scaled by 2**15, and twice that is no float16 number."""
    x = np.array([2.0**-10, -(2.0**-9), 0.0, 0.5], np.float16)
    once = gradient(lambda x: square(x).sum(), x, seed=scale)  # one number everywhere
    each = gradient(square, x, seed=np.full(4, scale, np.float16))
    for g in (once, each):
        np.testing.assert_array_equal(g, (2 * scale * x.astype(float)).astype(np.float16))


def test_a_product_with_itself_is_a_square_at_every_order():
    first = ts.grad(lambda x: (x * x).sum())
    second = ts.grad(lambda x: first(x).sum())
    third = ts.grad(lambda x: second(x).sum() + (x * 0).sum())
    x = np.array([0.5, -2.0, 0.0])
    for f, wanted in ((first, 2 * x), (second, [2, 2, 2]), (third, [0, 0, 0])):
        np.testing.assert_array_equal(f(x), wanted)


# -- activations against values computed elsewhere -------------------------------------------------


@pytest.mark.parametrize(
    ("op", "values", "slopes"),
    [
        (ops.gelu, [-0.15865525393145705, 0.0, 1.9544997361036416],
         [-0.08331547058768635, 0.5, 1.085231801078197]),
        (lambda x: ops.gelu(x, "tanh"), [-0.15880800939172324, 0.0, 1.954597694087775],
         [-0.08296408384578252, 0.5, 1.0860992566236183]),
        (ops.silu, [-0.2689414213699951, 0.0, 1.7615941559557649],
         [0.07232948812851325, 0.5, 1.0907842487848955]),
        (ops.elu, [-0.6321205588285577, 0.0, 2.0], [0.36787944117144233, 1.0, 1.0]),
        (ops.leaky_relu, [-0.01, 0.0, 2.0], [0.01, 0.01, 1.0]),
    ],
    ids=["gelu", "gelu tanh", "silu", "elu", "leaky_relu"],
)  # fmt: skip
def test_activations_have_their_known_values(op, values, slopes):
    x = np.array([-1.0, 0.0, 2.0])
    np.testing.assert_allclose(op(x), values, rtol=1e-14)
    np.testing.assert_array_equal(op(x.tolist()), op(x))
    np.testing.assert_allclose(gradient(op, x), slopes, rtol=1e-13)


def test_gelu_names_what_it_knows():
    with pytest.raises(errors.TinygradSparseError, match=r"gelu: expected approximate='none' or"):
        ops.gelu(np.ones(2), approximate="erf")


# -- special points --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_send_a_zero_cotangent_rather_than_none(dtype):
    W = ts.parameter(np.ones((5, 2), dtype))
    for op in (ops.sign, ops.floor, ops.ceil, ops.trunc, ops.round, lambda x: x // 2):
        with ts.Tape("raise") as tape:
            loss = op(W[[1, 3]]).sum()
        grads = tape.backward(loss)
        assert grads.touched_rows(W).tolist() == [1, 3]
        np.testing.assert_array_equal(grads[W].values, np.zeros((2, 2), dtype))
    seed = np.full(2, np.inf)
    np.testing.assert_array_equal(gradient(ops.floor, np.ones(2, dtype), seed=seed), [0.0, 0.0])


def test_remainders_count_whole_quotients():
    x, y = np.array([7.0, -7.0, 7.0, -7.0]), np.array([2.0, 2.0, -2.0, -2.0])
    for op in (ops.remainder, ops.fmod):
        gx, gy = gradient(op, x, y)
        np.testing.assert_array_equal(gx, 1.0)
        np.testing.assert_array_equal(op(x, y), x + gy * y)
    x, y = np.array([np.nextafter(3.0, 0.0)]), np.array([1e-16])  # x / y rounds up
    for op in (ops.remainder, ops.fmod):
        quotient = -gradient(op, x, y)[1]
        assert abs(quotient[0] * y[0] + op(x, y)[0] - x[0]) < 1e-15


def test_a_constant_exponent_takes_no_logarithm_and_no_zero_times_infinity():
    np.testing.assert_array_equal(gradient(lambda x: x**2, np.array([-2.0, 0.0])), [-4.0, 0.0])
    np.testing.assert_array_equal(gradient(lambda x: x**0, np.array([0.0, 3.0])), [0.0, 0.0])
    np.testing.assert_array_equal(gradient(lambda x: x**1, np.array([0.0, 3.0])), [1.0, 1.0])
    np.testing.assert_array_equal(gradient(lambda x: x**-1, np.array([2.0])), [-0.25])
    exponents = np.array([0.0, 1.0, 2.0, 0.5])
    at_zero = gradient(
        lambda x: ops.power(x, exponents), np.zeros(4), seed=np.array([1.0, 1, 1, 0])
    )
    np.testing.assert_array_equal(at_zero, [0.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    "root",
    [
        pytest.param(ops.sqrt, id="sqrt"),
        pytest.param(ops.cbrt, id="cbrt"),
        pytest.param(lambda x: x**0.5, id="power"),
        pytest.param(lambda x: ops.arccosh(x + 1), id="arccosh"),
        pytest.param(lambda x: ops.arcsin(x + 1), id="arcsin"),
    ],
)
def test_a_root_of_zero_sends_nothing_where_nothing_arrives(root):
    x = np.array([0.0, 0.0])
    guarded = gradient(lambda x: ops.maximum(root(x), 10.0), x)
    np.testing.assert_array_equal(guarded, [0.0, 0.0])


def test_the_checker_of_a_root_still_sees_the_slope_where_the_upstream_is_zero():
    def slope(x):  # the derivative by an upstream that happens to be 0: 1 / (2 √x)
        def pulled(u):
            return ts.grad(lambda v: ops.sum(ops.sqrt(v) * u))(x).sum()

        return ts.grad(pulled)(np.zeros(1))

    np.testing.assert_allclose(slope(np.array([4.0])), [0.25])


# -- selection -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(10_000,), (100, 100), (2, 5, 1000)], ids=str)
def test_selection_from_many_is_numpys_to_the_bit(shape, dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(dtype)
    x[..., :9] = specials(dtype)[[0, 7, 8, 9, 10, 17, 18, 19, 20]]  # zeros, infinities, NaN
    mask = rng.normal(size=shape) > 0
    for m in (mask, mask[..., :1], mask[..., ::-1]):
        for v in (x, x[..., ::-1], np.broadcast_to(x[..., :1], shape)):
            for args in ((m, v, 0.0), (m, 0.0, v)):
                expected, got = np.where(*args), ops.where(*args)
                assert got.dtype == dtype
                np.testing.assert_array_equal(got, expected)
                np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    same = ops.where(mask, x, -0.0)
    np.testing.assert_array_equal(np.signbit(same), np.signbit(np.where(mask, x, -0.0)))
    np.testing.assert_array_equal(ops.where(mask.astype(int), x, 0.0), np.where(mask, x, 0.0))


# -- clip ------------------------------------------------------------------------------------------


def test_clip_shares_out_the_whole_cotangent():
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    for low, high in ((-1.0, 1.0), (1.0, -1.0), (0.0, 0.0)):
        parts = gradient(ops.clip, x, np.full(5, low), np.full(5, high))
        np.testing.assert_array_equal(sum(parts), 1.0)
    np.testing.assert_array_equal(gradient(lambda x: ops.clip(x, -1, 1), x), [0, 1, 1, 1, 0])


def test_clip_takes_its_bounds_in_the_dtype_of_x():
    x = np.array([0.1, 0.3, 0.5], np.float16)
    bound = np.float64(0.3)  # between two float16 numbers
    assert ops.clip(x, bound, np.array([0.4])).dtype == np.float16
    np.testing.assert_array_equal(gradient(lambda x: ops.clip(x, bound, 0.4), x), [0, 1, 0])
    low = ts.parameter(np.array(0.3))
    with ts.Tape("raise"):
        out = ops.clip(ts.tensor(x), low)
    g = out.backward(seed=np.ones(3))[low]
    assert g.dtype == np.float64 and g == 1.0


def test_clip_has_numpys_other_arguments():
    x = np.arange(5, dtype=np.int16)
    np.testing.assert_array_equal(ops.clip(x, None, 3), [0, 1, 2, 3, 3])
    assert ops.clip(x, None, 3).dtype == ops.clip(x, 1, None).dtype == np.int16
    np.testing.assert_array_equal(ts.tensor([1.0, 5.0]).clip(min=2.0).data, [2.0, 5.0])
    np.testing.assert_array_equal(ops.clip([1, 2, 3], [2, 2, 2], max=2), [2, 2, 2])
