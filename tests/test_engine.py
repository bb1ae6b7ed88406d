"""What the engine promises beyond any one op: depth, freeing, sparsity, refusals."""

import gc
import weakref

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, ops, optim
from tinygrad_sparse.testing import check_grads, count_bytes


@pytest.mark.parametrize("collect", [True, False], ids=["collector on", "collector off"])
def test_a_chain_of_100_000_ops_runs_backward_and_is_dropped_without(collect):
    x = ts.parameter(np.array(1.0))

    def chain():
        with ts.Tape() as tape:
            y = x
            for _ in range(100_000):
                y = y * 1.0
        return y, weakref.ref(tape)

    if not collect:
        gc.disable()
    try:
        y, tape = chain()
        assert y.backward()[x] == 1.0
        y, tape = chain()
        del y
        assert tape() is None
    finally:
        gc.enable()


def test_coalesced_slices_are_freed_without_the_collector():
    gc.disable()
    try:
        for ids in ([0, 2], [2, 0, 2]):
            g = ts.IndexedSlices(ids, np.ones((len(ids), 2)), (4, 2))
            values = weakref.ref(g.coalesce().values)
            del g
            assert values() is None
    finally:
        gc.enable()


def test_2_to_the_60_paths():
    x = ts.parameter(np.array(1.0))
    with ts.Tape():
        y = x
        for _ in range(60):
            y = y + y
    assert y.backward()[x] == 2.0**60


def test_a_table_changed_before_the_lookup_keeps_a_sparse_gradient():
    rng = np.random.default_rng(0)
    W, P = ts.parameter(rng.normal(size=(9, 4))), ts.parameter(rng.normal(size=(4, 3)))
    c, ids = rng.normal(size=(9, 1)), [7, 1, 7]
    with ts.Tape(densify="raise") as tape:
        loss = (ops.tanh(W * c)[ids] ** 2).sum() + ((W @ P)[ids] ** 2).sum()
    grads = tape.backward(loss)
    assert type(grads[W]) is ts.IndexedSlices
    assert grads.touched_rows(W).tolist() == [1, 7]
    assert grads[P].shape == (4, 3)
    check_grads(lambda w: ops.tanh(w * c)[ids], [W.numpy()])
    check_grads(lambda w, p: (w @ p)[ids], [W.numpy(), P.numpy()])


def test_grad_of_grad_and_no_perturbation_confusion():
    assert ts.grad(ts.grad(lambda x: x**3))(np.array(2.0)) == 12.0
    assert ts.grad(lambda x: x * ts.grad(lambda y: x + y)(x))(np.array(3.0)) == 1.0


def test_tied_weights_end_in_one_dense_buffer():
    W = ts.parameter(np.random.default_rng(0).normal(size=(6, 3)))
    with ts.Tape(densify="raise") as tape:
        loss = (W[[1, 4]] @ W.T).sum()
    g = tape.backward(loss)[W]
    assert type(g) is np.ndarray
    assert len(tape.densified) == 1
    check_grads(lambda w: w[[1, 4]] @ w.T, [W.numpy()])


def test_densifying_is_refused_with_the_users_line():
    W = ts.parameter(np.ones((5, 2)))
    with ts.Tape(densify="raise") as tape:
        loss = (W - ops.mean(W, 0))[[1]].sum() + ops.transpose(W)[[0]].sum()
        loss = loss + ops.softmax(ops.exp(W), axis=0)[[1]].sum()
    with pytest.raises(errors.SparsityError, match=r"softmax: expected.*test_engine\.py:\d+"):
        tape.backward(loss)


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([5], r"take: expected ids in \[0, 5\), got 5 at position 0"),
        ([-6], r"take: expected ids in \[-5, 5\), got -6"),
        ([1.0], r"take: expected integer ids, got float64"),
        ([True, False], r"getitem: expected a mask of shape \(5,\), got \(2,\)"),
        (np.array([2**63], np.uint64), r"take: expected ids in"),
    ],
)
def test_bad_ids_are_named_and_nothing_is_recorded(ids, text):
    W = ts.parameter(np.ones((5, 2)))
    with ts.Tape() as tape:
        with pytest.raises(errors.RowIndexError, match=text):
            W[ids]
        assert len(tape) == 0


def test_bad_calls_are_named():
    W = ts.parameter(np.ones((5, 2)))
    with pytest.raises(errors.TapeError, match="computed while no Tape was recording"):
        (W * 2).sum().backward()
    with ts.Tape() as tape:
        y = W * 2
        loss = y.sum()
    with pytest.raises(errors.ShapeError, match="a scalar loss"):
        tape.backward(y)
    with pytest.raises(errors.ShapeError, match=r"a seed of shape \(5, 2\)"):
        tape.backward(y, seed=np.ones((5, 1)))
    grads = tape.backward(loss)
    with pytest.raises(errors.TapeError, match="has not been used"):
        tape.backward(loss)
    with pytest.raises(errors.ShapeError, match=r"GradStore: expected a gradient of shape"):
        grads[W] = np.ones((2, 5))
    for bad in (np.arange(3), np.ones(3, complex)):
        with pytest.raises(errors.DtypeError, match="parameter: expected a float array"):
            ts.parameter(bad)
    with pytest.raises(errors.ShapeError, match=r"add: expected shapes that fit together"):
        W + np.ones(3)
    with pytest.raises(TypeError, match=r"ops\.exp"):
        np.exp(W)


def test_a_parameter_changed_after_the_forward_makes_backward_refuse():
    W = ts.parameter(np.ones((5, 2)), name="W")
    with ts.Tape(persistent=True) as tape:
        loss = (W[[1]] ** 2).sum()
    optim.SGD([W], lr=0.1).step(tape.backward(loss))
    with pytest.raises(errors.TapeError, match="W"):
        tape.backward(loss)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, lr=0.1),
        lambda p: optim.Adagrad(p, lr=0.1),
        lambda p: optim.Adam(p, lr=0.1, sparse="lazy"),
    ],
    ids=["SGD", "Adagrad", "Adam"],
)
def test_a_row_step_is_the_dense_step_on_those_rows(make):
    start = np.random.default_rng(0).normal(size=(6, 3))
    W, D = ts.parameter(start), ts.parameter(start)
    rows, dense = make([W]), make([D])
    for _ in range(4):  # the same rows each time: then even Adam's untouched rows have no history
        with ts.Tape() as tape:
            loss = (W[[4, 1, 4]] ** 3).sum()
        rows.step(tape.backward(loss))
        with ts.Tape() as tape:
            loss = (D[[4, 1, 4]] ** 3).sum()
        dense.step(tape.backward(loss).to_dense())
    np.testing.assert_allclose(W.data, D.data, rtol=1e-12)
    np.testing.assert_array_equal(W.data[[0, 2, 3, 5]], start[[0, 2, 3, 5]])
    state = rows.state_dict()
    again = make([W])
    again.load_state_dict(state)
    assert again.state_bytes() == rows.state_bytes()


def test_a_step_holds_at_most_six_times_the_rows_that_it_looks_up():
    k, d = 4096, 64
    rng = np.random.default_rng(0)
    for V in (10_000, 200_000):
        W = ts.parameter(np.zeros((V, d), np.float32))
        opt = optim.SGD([W], lr=0.1)
        for _ in range(3):
            ids = rng.integers(0, V, k)
            with count_bytes() as used:
                with ts.Tape(densify="raise") as tape:
                    rows = W[ids]
                    loss = (rows * rows).sum()
                opt.step(tape.backward(loss))
        assert used.peak <= 6 * k * d * 4


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "f2"])
def test_a_parameters_dtype_is_numpys_own_object(dtype):
    W = ts.parameter(np.ones((2, 2), dtype))
    assert W.dtype is np.dtype(np.dtype(dtype).type)  # the reverse loop compares with `is`
    np.testing.assert_array_equal(W.data, 1.0)


def test_two_contributions_are_added_in_the_first_ones_buffer():
    x, a, b = ts.parameter(np.ones((1000, 1000))), np.full((1000, 1000), 2.0), np.ones((1000, 1000))
    with ts.Tape() as tape:
        loss = (x * a + x * b).sum()
    with count_bytes() as used:
        grads = tape.backward(loss)
    assert used.peak < 2.5 * x.nbytes, "no third array for their sum"
    np.testing.assert_array_equal(grads[x], 3.0)


KEPT = np.full((2, 3), 5.0)


@pytest.mark.parametrize("rule", [
    lambda g, out, x: KEPT,
    lambda g, out, x: KEPT[:],
    lambda g, out, x: KEPT.T.reshape(2, 3, order="F"),
    lambda g, out, x: out,
    lambda g, out, x: x,
    lambda g, out, x: g,
])  # fmt: skip
def test_what_a_rule_answers_with_is_not_added_to_if_somebody_else_holds_it(rule):
    @ts.primitive(vjp=(rule,))
    def same(xp, x):
        return x + 0.0

    x, held = ts.parameter(np.full((2, 3), 5.0)), np.full((2, 3), 5.0)
    with ts.Tape(persistent=True) as tape:
        later = x * 2.0  # recorded first, so it is the second to contribute
        loss = same(x) * 2.0 + later
        seed = np.full((2, 3), 2.5)
    first, again = (tape.backward(loss, seed)[x] for _ in range(2))
    np.testing.assert_array_equal(first, 10.0)
    np.testing.assert_array_equal(again, 10.0)
    for array in (KEPT, x.data, seed * 2, held):
        np.testing.assert_array_equal(array, 5.0)


def test_an_answer_shared_by_two_arguments_is_not_added_to():
    x, y = ts.parameter(np.ones(3)), ts.parameter(np.ones(3))
    with ts.Tape() as tape:
        u, v = x * 2.0, y * 3.0
        t = u * 5.0
        loss = t + (u + v)  # one array is the cotangent of u and of v, then t adds to that of u
    grads = tape.backward(loss, np.ones(3))
    np.testing.assert_array_equal(grads[x], 12.0)
    np.testing.assert_array_equal(grads[y], 3.0)
