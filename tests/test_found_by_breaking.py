"""Wrong values and lost gradients that trying to break the library has found, each kind once."""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, nn, ops
from tinygrad_sparse.optim import SGD


def gradient(f, *arrays):
    """The gradients of f(*parameters).sum(), dense."""
    leaves = [ts.parameter(a) for a in arrays]
    with ts.Tape() as tape:
        loss = f(*leaves).sum()
    grads = tape.backward(loss).to_dense()
    return [grads[p].tolist() for p in leaves]


# -- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [[0, 0], []], ids=str)
def test_einsum_of_rows_along_an_axis_of_length_1(ids):
    assert gradient(lambda x: ops.einsum("ij->ji", x)[ids], np.ones((3, 1))) == [
        [[float(len(ids))]] * 3
    ]


# -- values that change under one's hands --------------------------------------------------------


@pytest.mark.parametrize(
    "cut",
    [
        lambda W: W[0].detach(),
        lambda W: W[0:2].detach(),
        lambda W: W.T.detach(),
        lambda W: W.reshape(-1).detach(),
        lambda W: W[[0]].detach(),
        lambda W: ts.tensor(W[0]),
        ts.tensor,
    ],
)
def test_what_was_cut_off_stays_as_it_was(cut):
    W = ts.parameter(np.ones((3, 2)))
    old = cut(W)
    with ts.Tape() as tape:
        loss = W.sum()
    SGD([W], lr=0.5).step(tape.backward(loss))
    assert set(old.numpy().ravel()) == {1.0}


def test_the_norm_of_recorded_gradients_is_not_lost():
    W = ts.parameter(np.ones((3, 2)))
    with ts.Tape() as tape:
        loss = (W**3).sum()
        grads = tape.backward(loss, create_graph=True)
        with pytest.raises(errors.TapeError, match=r"^GradStore.norm: expected a constant"):
            grads.norm()


def test_no_grad_that_is_left_late_does_not_bring_a_closed_tape_back():
    def values():
        with ts.no_grad():
            yield 1

    W = ts.parameter(np.ones(2))
    with ts.Tape():
        late = values()
        next(late)
    late.close()
    assert not (W * 2).requires_grad


def test_looking_at_a_recorded_gradient_without_recording_does_not_cut_it_off():
    W = ts.parameter(np.array([[1.0], [2.0]]))
    with ts.Tape() as tape:
        loss = (W[[0, 0]] ** 3).sum() + (W[[1]] ** 3).sum()
        g = tape.backward(loss, create_graph=True)[W]
        with ts.no_grad():
            g.coalesce(), g.norm(), g.values
        second = (g.coalesce().values ** 2).sum()
    # (6w²)² + (3v²)²
    assert tape.backward(second)[W].to_dense().ravel().tolist() == [144.0, 36.0 * 8]


def test_no_grad_decorates():
    W = ts.parameter(np.ones(2))
    with ts.Tape():
        assert not ts.no_grad()(lambda: W * 2)().requires_grad
        assert (W * 2).requires_grad


# -- numbers -------------------------------------------------------------------------------------


def test_means_of_integers_are_not_cut():
    x = np.array([1, 2])
    assert ops.segment_mean(x, [0, 0], 1).tolist() == [1.5]
    assert ops.segment_mean(ts.tensor(x), [0, 0], 1).numpy().tolist() == [1.5]
    assert ops.embedding_bag(np.array([[1], [2]]), [[0, 1]], mode="mean").tolist() == [[1.5]]


def test_losses_of_unsigned_integers_do_not_wrap():
    assert nn.mse(np.array([0], np.uint8), np.array([20], np.uint8)) == 400
    assert nn.l1(np.array([1, 2], np.uint8), np.array([2, 4], np.uint8)) == 1.5


@pytest.mark.parametrize("triangle", [ops.tril, ops.triu])
@pytest.mark.parametrize("dtype", [np.int32, np.bool_])
def test_triangles_keep_the_dtype(triangle, dtype):
    assert triangle(np.ones((2, 2), dtype)).dtype == dtype


@pytest.mark.parametrize(
    "f",
    [
        ops.relu,
        lambda x: ops.maximum(x, 0.0),
        lambda x: ops.minimum(0.0, x),
        ops.max,
        lambda x: ops.min(x, axis=0),
    ],
)
def test_a_nan_sends_its_gradient_down(f):
    ((first, _),) = gradient(f, np.array([np.nan, 1.0]))
    assert first != 0


def test_the_slope_of_elu_keeps_its_digits():
    x = np.array([-16.0], np.float32)
    assert gradient(ops.elu, x)[0][0] == pytest.approx(np.exp(-16.0), rel=1e-6)


# -- arrays that are none ------------------------------------------------------------------------

MASKED = np.ma.array([1.0, 1e20], mask=[0, 1])


@pytest.mark.parametrize(
    "use",
    [
        ts.parameter,
        ts.tensor,
        ops.mean,
        lambda a: ts.parameter(np.ones(2)) * a,
        lambda a: ops.index_add(np.zeros(2), [0, 1], a),
    ],
)
def test_what_a_mask_hides_is_not_computed_with(use):
    with pytest.raises(errors.DtypeError, match=r"an array without a mask"):
        use(MASKED)


def test_ids_under_a_mask_are_refused():
    with pytest.raises(errors.RowIndexError, match="integer ids"):
        ops.take(np.ones((3, 2)), np.ma.array([0, 1], mask=[0, 1]))


@pytest.mark.parametrize("dtype", [complex, object, str, np.longdouble])
def test_no_tensor_of_what_has_no_gradient(dtype):
    W = ts.parameter(np.ones(2))
    with pytest.raises(errors.DtypeError, match=r"^cast: expected a dtype of real numbers"):
        W.astype(dtype)
    with pytest.raises(errors.DtypeError):
        ts.IndexedSlices([0], np.ones(1).astype(complex), (2,))


def test_a_dtype_is_cast_to_in_the_byte_order_of_the_machine():
    assert ts.parameter(np.ones(2)).astype(">f4").dtype.isnative


# -- functions of functions ----------------------------------------------------------------------


def test_a_gradient_by_what_is_not_used_is_a_zero_tensor_inside_another():
    y = np.array([2.0, 3.0])
    assert ts.hvp(lambda x: (ts.tensor(y) ** 2).sum() + 0.0 * x.sum(), y, y).tolist() == [0, 0]
    inner = ts.grad(lambda x: ts.grad(lambda a: (ts.tensor(y) ** 2).sum() * 1.0)(x).sum())
    with pytest.raises(errors.ShapeError, match="scalar Tensor"):  # the inner one is a number
        ts.grad(lambda x: np.float64(2.0))(y)
    assert inner(y).tolist() == [0, 0]


@pytest.mark.parametrize("argnums", ["x", 1.0, None])
def test_argnums_are_whole_numbers(argnums):
    with pytest.raises(errors.ShapeError, match=r"^grad: expected positions of arguments"):
        ts.grad(lambda x, y: (x * y).sum(), argnums)
    assert ts.grad(lambda x, y: (x * y).sum(), np.int64(1))(np.ones(2), np.ones(2)).shape == (2,)


def test_jvp_takes_a_tangent_for_each_primal():
    with pytest.raises(errors.ShapeError, match=r"^jvp: expected a tangent for each primal"):
        ts.jvp(ops.tanh, (np.ones(2),), ())
    with pytest.raises(errors.ShapeError, match=r"^jvp: expected tuples"):
        ts.jvp(ops.tanh, 1.0, 1.0)
    assert ts.jvp(ops.tanh, ([0.0],), ([1.0],))[1].tolist() == [1.0]
    assert ts.hvp(lambda x: (x**3).sum(), np.ones(2), [1.0, 2.0]).tolist() == [6.0, 12.0]


def test_an_attribute_error_inside_a_rule_is_not_taken_for_a_missing_cotangent():
    @ts.primitive(rows=ts.elementwise, vjp=(lambda g, out, x: g.no_such_attribute,))
    def odd(xp, x):
        return x + 1.0

    with pytest.raises(AttributeError, match="no_such_attribute") as caught:
        gradient(odd, np.ones(2))
    assert "VJP of odd, argument 0" in caught.value.__notes__[0]
    with pytest.raises(AttributeError, match="no_such_attribute") as caught:
        gradient(lambda x: odd(x)[[0]], np.ones(2))
    assert "VJP of odd" in caught.value.__notes__[0]


# -- bags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [[[1], 2], ["12", "3"], [[0.5], [1]], [[True], [1]]], ids=str)
def test_bags_are_lists_of_ids(ids):
    with pytest.raises(errors.RowIndexError, match=r"^embedding_bag: expected bags of integer ids"):
        ops.embedding_bag(np.ones((3, 2)), ids)


def test_bags_may_have_ids_of_different_dtypes():
    ids = [np.array([1], np.uint64), np.array([2], np.int64), []]
    assert ops.embedding_bag(np.arange(3.0)[:, None], ids).ravel().tolist() == [1, 2, 0]


def test_offsets_do_not_count_from_the_end():
    with pytest.raises(errors.ShapeError, match="ascending offsets"):
        ops.embedding_bag(np.ones((3, 2)), [0, 1, 2], offsets=[0, -2])


# -- what people write out of habit --------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        (lambda: nn.ReLU, "write ops.relu"),
        (lambda: nn.softmax, r"write ts\.ops\.softmax"),
        (lambda: ops.cat, "write ops.concatenate"),
        (lambda: ts.relu, r"write ts\.ops\.relu"),
        (lambda: ts.Adam, r"write ts\.optim\.Adam"),
        (lambda: ts.parameter([1.0]).t, r"write x\.T"),
        (lambda: ts.parameter([1.0]).copy, r"x\.numpy\(\)"),
    ],
)
def test_a_name_from_elsewhere_says_what_to_write(use, hint):
    with pytest.raises(AttributeError, match=hint):
        use()


def test_a_name_that_nobody_has_is_missing_as_in_any_module():
    with pytest.raises(AttributeError, match=r"has no attribute 'spam'$"):
        ts.spam


def test_tensor_is_final():
    with pytest.raises(TypeError, match="final"):
        type("Sub", (ts.Tensor,), {})


def test_what_is_printed():
    model = nn.Sequential(nn.Linear(3, 2, seed=0))
    assert repr(model).splitlines() == [
        "Sequential of 8 numbers in 2 parameters",
        "  layers.0.weight  float32 (3, 2)",
        "  layers.0.bias    float32 (2,)",
    ]
    assert repr(SGD(model.parameters(), lr=0.5)).startswith("SGD(2 parameters, ")
    assert "lr=0.5" in repr(SGD(model.parameters(), lr=0.5))


def test_data_takes_the_dtype_of_the_layer_that_it_meets():
    layer = nn.Linear(2, 1, seed=0)
    assert layer(np.ones((1, 2))).dtype == np.float32
    assert layer([[1, 2]]).dtype == np.float32


def test_one_hot_targets_are_told_from_ids():
    with pytest.raises(errors.ShapeError, match=r"targets\.argmax\(-1\)"):
        nn.cross_entropy(np.ones((2, 3)), np.eye(3)[:2])


def test_comparing_shapes_that_do_not_fit_is_named():
    with pytest.raises(errors.ShapeError, match=r"^lt: expected shapes that fit together"):
        ts.parameter(np.ones(2)) < np.ones(3)
