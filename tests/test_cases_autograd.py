"""Faults reported in other libraries: gradient correctness and engine robustness, a row each.

The id is the row of the list that the values come from. Rows 89, 91: test_engine; 93, 95: the laws;
111, 113: test_tape.
"""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, nn, ops
from tinygrad_sparse.testing import check_grads, count_bytes

INF, NAN = np.inf, np.nan


def case(row, f, leaves, gradients, value=None, what=""):
    """f of parameters, and the gradient of its sum by each of them (and its value)."""
    id = f"autograd-{row}" + (f": {what}" if what else "")
    return pytest.param(f, leaves, gradients, value, id=id)


A = np.arange(6.0).reshape(2, 3)
T = np.arange(1.0, 5.0)
KEPT = np.flatnonzero([True, False, True])


CASES = [
    # -- broadcasting
    case(1, lambda a, b: a + b, [np.ones((2, 1)), np.ones((1, 3))], [[[3], [3]], [[2, 2, 2]]]),
    case(3, lambda x: x + x * np.ones(3), [2.0], [6.0]),
    case(5, lambda b: np.zeros((4, 0)) + b, [np.ones((4, 1))], [np.zeros((4, 1))]),
    case(7, lambda x: ops.broadcast_to(x, (4, 3)), [np.ones(3)], [[4, 4, 4]]),
    case(9, lambda x: ops.where([1, 0, 1], x, -1), [[2.0, 3, 4]], [[1, 0, 1]], [2, -1, 4]),
    case(9, lambda x: ops.where([1, 0, 1], -1, x), [[2.0, 3, 4]], [[0, 1, 0]], [-1, 3, -1],
         what="other branch"),
    case(11, lambda x: x - ops.mean(x), [[1.0, 2, 3, 4]], [[0, 0, 0, 0]]),
    # -- reductions
    case(13, lambda x: ops.mean(x**2, axis=0), [np.ones(5)], [np.full(5, 0.4)], 1.0),
    *[
        case(15, lambda x, axis=axis, keep=keep: ops.mean(x, axis=axis, keepdims=keep),
             [np.ones((2, 3, 4))], [np.full((2, 3, 4), 1 / n)],
             np.ones(shape if keep else [s for s, k in zip((2, 3, 4), shape, strict=True)
                                         if k != 1]),
             what=f"axis {axis}, keepdims {keep}")
        for axis, n, shape in [
            ((0, -1), 8, (1, 3, 1)), (None, 24, (1, 1, 1)), (1, 3, (2, 1, 4)), (-1, 4, (2, 3, 1)),
            ((1, 2), 12, (2, 1, 1)), ((-3, 1), 6, (1, 1, 4)), ((), 1, (2, 3, 4)),
        ]
        for keep in (False, True)
    ],
    case(25, ops.max, [[0.6, 0.6, 0.3]], [[0.5, 0.5, 0]], 0.6, what="max"),
    case(25, lambda x: ops.max(x, axis=1), [[[0.6, 0.6, 0.3]]], [[[0.5, 0.5, 0]]], [0.6],
         what="max by axis"),
    case(25, ops.min, [[0.6, 0.3, 0.3]], [[0, 0.5, 0.5]], 0.3, what="min"),
    case(25, ops.maximum, [1.0, 1.0], [0.5, 0.5], 1.0, what="maximum"),
    case(25, ops.minimum, [1.0, 1.0], [0.5, 0.5], 1.0, what="minimum"),
    case(27, ops.max, [np.ones(70_000, np.float16)], [np.full(70_000, 1.43e-5, np.float16)]),
    case(27, ops.mean, [np.ones(70_000, np.float16)], [np.full(70_000, 1.43e-5, np.float16)],
         what="mean"),
    # -- singular points and kinks
    case(31, lambda x: x / ops.sum(ops.abs(x)), [[0.0, 0.2]], [[5, 0]]),
    case(33, lambda x, y: ops.maximum(ops.sqrt(x * x + y * y), 1e-10), [0.0, 0.0], [0, 0], 1e-10),
    case(39, lambda y: np.array([0.0, 2.0]) ** y, [[1.0, 1.0]], [[0, 2 * np.log(2)]], [0, 2]),
    case(41, lambda x: x**2, [[-2.0]], [[-4]], [4]),
    case(41, lambda x: x ** ts.tensor([2.0]), [[-2.0]], [[-4]], [4], what="a constant Tensor"),
    # -- stability
    case(45, ops.logsumexp, [[-INF, -INF]], [[0, 0]], -INF),
    case(47, lambda x: ops.logsumexp(ops.where([True, False], x, -INF)), [[0.0, 100.0]], [[1, 0]],
         0.0),
    case(49, lambda x: ops.softmax(x + np.array([0, -INF, 0]))[0], [[0.0, 5.0, 0.0]],
         [[0.25, 0, -0.25]], 0.5),
    case(51, ops.sigmoid, [[-1000.0, 1000.0]], [[0, 0]], [0, 1]),
    case(53, lambda x: nn.cross_entropy(x, [1]), [[[1000.0, 0.0]]], [[[1, -1]]], 1000.0),
    case(53, lambda x: nn.cross_entropy(x, np.ones(100, int)),
         [np.tile(np.array([1000, 0], np.float16), (100, 1))],
         [np.tile(np.array([0.01, -0.01], np.float16), (100, 1))], 1000.0, what="float16"),
    # -- matmul
    case(55, lambda a, b: a @ b, [A, [1.0, 2, 3]], [[[1, 2, 3], [1, 2, 3]], [3, 5, 7]], [8, 26],
         what="2, 1"),
    case(55, lambda a, b: a @ b, [[1.0, 2], A], [[3, 12], [[1, 1, 1], [2, 2, 2]]], [6, 9, 12],
         what="1, 2"),
    case(55, lambda a, b: a @ b, [[1.0, 2], [3.0, 4]], [[3, 4], [1, 2]], 11.0, what="1, 1"),
    case(55, lambda a, b: a @ b, [[1.0, 2], A[None]], [[3, 12], [[[1, 1, 1], [2, 2, 2]]]],
         [[6, 9, 12]], what="1, 3"),
    case(55, lambda a, b: a @ b, [A[None], [1.0, 2, 3]], [[[[1, 2, 3], [1, 2, 3]]], [3, 5, 7]],
         [[8, 26]], what="3, 1"),
    case(57, lambda w: np.zeros((0, 5)) @ w, [np.ones((5, 2))], [np.zeros((5, 2))]),
    # -- indexing
    case(65, lambda x: x[[0, 0]], [[1.0]], [[2]], [1, 1]),
    case(67, lambda x: ops.sum(x[KEPT]) + ops.sum(x[KEPT]), [[1.0, 2, 3]], [[2, 0, 2]], 8.0,
         what="by the ids of a mask"),
    case(69, lambda x: x[3:1:2], [np.ones(5)], [np.zeros(5)], []),
    case(71, lambda x: x[::-1] * np.array([1.0, 2, 3]), [[1.0, 2, 3]], [[3, 2, 1]], [3, 4, 3]),
    case(71, lambda x: x * 2, [np.arange(4.0)[::-1]], [[2, 2, 2, 2]], [6, 4, 2, 0],
         what="imported"),
    case(73, lambda t, v: ops.where([1, 0, 0, 0], v, t * t), [T, 9.0], [[0, 4, 6, 8], 1],
         [9, 4, 9, 16], what="as a selection"),
    # -- joining
    case(79, lambda a, b: ops.concatenate([a, b]), [np.ones((2, 5)), np.ones((0, 5))],
         [np.ones((2, 5)), np.zeros((0, 5))]),
    case(81, lambda x: ops.concatenate([x, x], axis=1) @ np.array([[1.0], [2.0]]), [[[3.0]]],
         [[[3]]], [[9]]),
    case(83, lambda x: x[2:4], [np.arange(6.0)], [[0, 0, 1, 1, 0, 0]], what="as a slice"),
    # -- the graph
    case(99, lambda x: (x + np.ones((3, 3, 3))) ** 2, [np.ones((3, 3))], [np.full((3, 3), 12.0)]),
    # -- dtypes
    case(105, lambda x: ops.sum(x) / 65535, [np.ones(3, np.float32)],
         [np.full(3, np.float32(1 / 65535))], what="a count"),
    case(105, lambda x, y: x * y, [np.ones(3, np.float32), np.full(3, 2.0)],
         [np.full(3, 2, np.float32), np.ones(3)], what="mixed"),
    case(107, ops.sum, [np.array([1, 2, 3], ">f8")], [[1, 1, 1]], 6.0),
    case(107, lambda x: x * np.array([1, 2, 3], ">f4"), [np.ones(3)], [[1, 2, 3]], [1, 2, 3],
         what="an operand"),
]  # fmt: skip


@pytest.mark.parametrize(("f", "leaves", "gradients", "value"), CASES)
def test_value_and_gradients(f, leaves, gradients, value):
    parameters = [ts.parameter(a) for a in leaves]
    with ts.Tape() as tape:
        out = f(*parameters)
    if value is not None:
        np.testing.assert_allclose(out.data, value, rtol=1e-3 if out.dtype == np.float16 else 1e-12)
        assert out.shape == np.shape(value)
    grads = tape.backward(out, seed=np.ones(out.shape)).to_dense()
    for p, wanted in zip(parameters, gradients, strict=True):
        got = grads[p]
        assert type(got) is np.ndarray and got.shape == p.shape and got.dtype == p.dtype
        rtol = {2: 1e-2, 4: 1e-6, 8: 1e-12}[got.dtype.itemsize]
        np.testing.assert_allclose(got, np.array(wanted, p.dtype), rtol=rtol, atol=1e-15)


PROMISES = []


def promise(row, what=""):
    """Collects the function as a row of the table."""
    id = f"autograd-{row}" + (f": {what}" if what else "")
    return lambda f: PROMISES.append(pytest.param(f, id=id))


@pytest.mark.parametrize("check", PROMISES)
def test_promise(check):
    check()


@promise(75)
def repeated_assignment_is_refused_and_placing_adds():
    z, y = ts.parameter(np.zeros(2)), ts.parameter(np.ones(2))
    with ts.Tape() as tape:
        with pytest.raises(errors.TapeError, match=r"ops\.index_set"):
            z[[0, 0]] = y
        assert len(tape) == 0
        placed = ops.scatter_rows(y, [0, 0], 2)
    np.testing.assert_array_equal(placed.data, [2.0, 0.0])
    np.testing.assert_array_equal(tape.backward(placed, seed=np.ones(2))[y], [1.0, 1.0])


@promise(87)
def a_second_backward_is_refused_or_gives_the_same():
    x = ts.parameter(np.array(3.0))
    with ts.Tape() as tape:
        y = x * x * x
    assert tape.backward(y)[x] == 27.0
    with pytest.raises(errors.TapeError):
        tape.backward(y)
    with ts.Tape(persistent=True) as tape:
        y = x * x * x
    assert [tape.backward(y)[x].item() for _ in range(3)] == [27.0] * 3


@promise(97)
def no_way_around_the_check_for_changed_values():
    W = ts.parameter(np.ones((2, 3)))
    with ts.Tape() as tape:
        y = W * W
        loss = (y * y.T.T).sum()
    for view in (y.detach().data, y.T.data, W.data, W.T.data, y.reshape(-1).data):
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 9.0
    cut = W.detach()
    cut._data[...] = 9.0  # a parameter is copied, whoever writes to it
    np.testing.assert_array_equal(tape.backward(loss)[W], 4.0)


@promise(99, "printing")
def looking_at_a_value_changes_no_gradient():
    x = ts.parameter(np.ones((3, 3)))
    with ts.Tape() as tape:
        y = x
        for _ in range(3):
            y += 1.0
            assert repr(y) and float(y.sum().data) and y.shape and y.numpy() is not None
        loss = (y * y).sum()
    np.testing.assert_array_equal(tape.backward(loss)[x], 8.0)


@promise(101)
def a_seed_has_the_shape_of_the_loss():
    x = ts.parameter(np.ones((3, 1)))
    with ts.Tape(persistent=True) as tape:
        column, one = x * 2, (x * 2).sum(axis=0, keepdims=True)
    with pytest.raises(errors.ShapeError):
        tape.backward(column, seed=np.ones((1, 1)))
    with pytest.raises(errors.ShapeError):
        tape.backward(column)
    for seed in (None, np.ones((1, 1))):
        np.testing.assert_array_equal(tape.backward(one, seed=seed)[x], np.full((3, 1), 2.0))


@promise(103)
def numpy_on_the_left_gives_a_tensor():
    x = ts.parameter(np.ones(3))
    twos = [np.float64(2), np.float32(2), np.int64(2), np.array(2.0), np.full(3, 2.0), [2, 2, 2]]
    for two in twos:
        with ts.Tape(persistent=True) as tape:
            outs = [two * x, x * two, two + x, two - x, two / x, two**x, x**two]
            outs += [two @ x, x @ two] if np.shape(two) else []
        for out in outs:
            assert type(out) is ts.Tensor and out.requires_grad and out.dtype == np.float64
        np.testing.assert_array_equal(tape.backward(outs[0], seed=np.ones(3))[x], 2.0)
    for compared in (np.float64(2) > x, np.full(3, 2.0) >= x, x < np.float64(2), x != 2):
        assert type(compared) is np.ndarray and compared.dtype == bool and compared.all()
    with ts.Tape() as tape:
        y = np.ones(3) @ x
    np.testing.assert_array_equal(tape.backward(y)[x], 1.0)


@promise(105, "scalars")
def python_scalars_do_not_widen():
    for dtype in (np.float16, np.float32):
        x = ts.parameter(np.ones(3, dtype))
        for y in (x * 2.5, 2.5 - x, x / 3, x**2, 2**x, x + True, x * np.float16(2), -x):
            assert y.dtype == dtype


@promise(109)
def the_checker_is_right_for_an_input_that_overlaps_itself():
    check_grads(lambda x: x * x, [np.broadcast_to(np.float64(0.5), (3,))])
    with pytest.raises(AssertionError):
        wrong = ts.primitive(rows=ts.elementwise, vjp=(lambda g, out, x: g,))(lambda xp, x: x * x)
        check_grads(wrong, [np.broadcast_to(np.float64(0.7), (3,))], order=1)


@promise(115)
def backward_holds_a_few_arrays_whatever_the_length_of_the_chain():
    x = ts.parameter(np.ones(5000))
    with ts.Tape() as tape:
        y = x
        for _ in range(300):
            y = y * 1.0
    with count_bytes() as used:
        g = tape.backward(y, seed=np.ones(5000))[x]
    assert type(g) is np.ndarray
    assert used.peak < 8 * x.nbytes
