"""Optimizers beside others who set the same parameters, and copies of both."""

import copy

import numpy as np
import pytest
import stepping

import tinygrad_sparse as ts
from tinygrad_sparse import errors, optim
from tinygrad_sparse.optim import slots
from tinygrad_sparse.tensor import pending_of

V = 6
MAKE = {
    "SGD": lambda p, **how: optim.SGD(p, lr=0.1, momentum=0.9, **how),
    "Adam": lambda p, **how: optim.Adam(p, lr=0.1, **how),
    "Adam, averaged": lambda p, **how: optim.Adam(p, lr=0.1, average=0.5, **how),
    "Adam, lazy by row": lambda p, **how: optim.Adam(p, sparse="lazy", count="row", **how),
    "NAdam": lambda p, **how: optim.NAdam(p, lr=0.1, **how),
}
every_kind = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


@pytest.fixture(params=["full", "by rows"])
def form(request, monkeypatch):
    """State as full tables, and by rows."""
    if request.param == "by rows":
        monkeypatch.setattr(slots, "COMPACT", 0)
        return (200, 20)
    return (V, 2)


def store(p, *rows, dense=False):
    g = ts.IndexedSlices(list(rows), np.ones((len(rows), *p.shape[1:]), p.dtype), p.shape)
    return stepping.store(p, g.to_dense() if dense else g)


# -- copies --------------------------------------------------------------------------------------


@every_kind
def test_a_copy_of_parameters_and_optimizer_trains_alike_and_apart(make, form):
    W = ts.parameter(np.ones(form))
    opt = make([W])
    for rows in ([1], [3], [1]):
        opt.step(store(W, *rows))
    W2, opt2 = copy.deepcopy((W, opt))
    before = W2.numpy()
    opt.step(store(W, 1, 2))
    np.testing.assert_array_equal(W2.data, before)
    opt2.step(store(W2, 1, 2))
    assert (W2.data[2] != before[2]).all()
    opt.step(store(W, 3))
    opt2.step(store(W2, 3))
    np.testing.assert_allclose(W2.data, W.data, rtol=1e-15, atol=0)
    np.testing.assert_allclose(opt2.averages(W2), opt.averages(W), rtol=1e-15, atol=0)
    assert opt2.groups[0]["params"] == [W2] and opt2.calls == opt.calls
    opt2.lr = 0.5
    assert opt.lr != 0.5


def test_a_model_and_what_trains_it_are_copied_with_their_schedules():
    class Trainer:
        def __init__(self):
            self.model = ts.nn.Linear(2, 1)
            self.rate = optim.Plateau(0.1, patience=0)
            self.opt = optim.SGD(self.model.parameters(), lr=self.rate)

    one = Trainer()
    two = copy.deepcopy(one)
    assert two.opt.lr is two.rate and two.opt.lr is not one.rate
    assert two.opt.groups[0]["params"] == two.model.parameters()
    with ts.Tape() as tape:
        loss = two.model(np.ones((3, 2))).sum()
    before = one.model.weight.numpy(), two.model.weight.numpy()
    two.opt.step(tape.backward(loss))
    np.testing.assert_array_equal(one.model.weight.data, before[0])
    np.testing.assert_allclose(two.model.weight.data, before[1] - 0.3)


def test_an_optimizer_is_not_copied_without_its_parameters():
    W = ts.parameter(np.ones((V, 2)), name="W")
    opt = optim.SGD([W], lr=0.1)
    message = (
        r"deepcopy of SGD: expected copied parameters, got W \(6, 2\), which was not copied "
        r"before. Hint: copy.deepcopy\(\(model, opt\)\) copies both"
    )
    for what in (opt, (opt, W)):
        with pytest.raises(errors.TapeError, match=message):
            copy.deepcopy(what)
    with pytest.raises(TypeError, match=r"SGD: expected copies that share nothing, got copy.copy"):
        copy.copy(opt)


# -- averages, and others who set values -----------------------------------------------------------


def by_hand(W):
    W.assign(np.full(W.shape, 3.0))


def a_row_by_hand(W):
    W.assign(np.full((1, *W.shape[1:]), 3.0), [4])


def a_state_dict(W):
    model = ts.nn.Sequential()
    model.table = W
    model.load_state_dict({"table": np.ones(W.shape)})


def another_optimizer(W):
    optim.SGD([W], lr=0.5).step(store(W, 0, 4))


def another_with_elements(W):
    g = ts.IndexedSlices([1, 8], np.ones((2, *W.shape[2:])), W.shape, lead=2)
    grads = ts.GradStore()
    grads[W] = g
    optim.SGD([W], lr=0.5).step(grads)


@pytest.mark.parametrize(
    "change", [by_hand, a_row_by_hand, a_state_dict, another_optimizer, another_with_elements]
)
@pytest.mark.parametrize("meaning", ["exact", "lazy"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "Adam, averaged"])
def test_an_average_sees_what_others_set_when_they_set_it(form, name, meaning, change):
    W, D = ts.parameter(np.zeros(form)), ts.parameter(np.zeros(form))
    how = {"average": 0.5} if name != "Adam, averaged" else {}
    opt, plain = MAKE[name]([W], sparse=meaning, **how), MAKE[name]([D], sparse=meaning)
    mean = D.numpy()

    def steps(n, row):
        nonlocal mean
        for _ in range(n):
            opt.step(store(W, row))
            plain.step(store(D, row))
            mean = 0.5 * mean + 0.5 * D.data

    for n, row in ((1, 0), (3, 1), (2, 0)):
        steps(n, row)
        change(W)
        change(D)
    np.testing.assert_allclose(opt.averages(W), mean, rtol=1e-9, atol=1e-12)
    steps(5, 2)
    np.testing.assert_allclose(opt.averages(W), mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(W.data, D.data, rtol=1e-9, atol=1e-12)
    assert abs(opt.averages(W)[4]).max() > 0 or change is another_with_elements


def test_averages_of_rows_never_touched_go_where_a_model_was_loaded():
    model = ts.nn.Embedding(V, 2)
    model.load_state_dict({"weight": np.zeros((V, 2), model.weight.dtype)})
    opt = optim.SGD([model.weight], lr=0.0, average=0.5)
    opt.step(store(model.weight, 0))
    model.load_state_dict({"weight": np.ones((V, 2), model.weight.dtype)})
    for _ in range(40):
        opt.step(store(model.weight, 0))
    np.testing.assert_allclose(opt.averages(model.weight), 1.0, rtol=1e-6)


def test_a_checkpoint_is_loaded_in_either_order(form):
    """Values that are set before the first step after a load are the checkpoint's own."""
    W = ts.parameter(np.ones(form))
    opt = optim.SGD([W], lr=0.1, average=0.5)
    opt.step(store(W, 0))
    saved, weights = opt.state_dict(), W.numpy()
    again = optim.SGD([X := ts.parameter(np.zeros(form))], lr=0.1, average=0.5)
    again.load_state_dict(saved)
    X.assign(weights)
    np.testing.assert_array_equal(again.averages(X), opt.averages(W))


CHANGES = {
    "its own step": lambda opt, W: opt.step(store(W, 1)),
    "another optimizer's": lambda opt, W: optim.SGD([W], lr=0.1).step(store(W, 1)),
    "a dense one": lambda opt, W: optim.Adam([W], lr=0.1).step(store(W, 1, dense=True)),
    "by hand": lambda opt, W: W.assign(W.numpy()),
    "a block within": lambda opt, W: opt.averaged().__enter__(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("make", [MAKE["SGD"], MAKE["Adam"]], ids=["SGD", "Adam"])
def test_what_the_end_of_averaged_would_undo_is_refused(make, change):
    W = ts.parameter(np.ones((V, 2)), name="W")
    opt = make([W], average=0.5)
    opt.step(store(W, 1))
    values, means = W.numpy(), opt.averages(W)
    with opt.averaged():
        with pytest.raises(errors.TapeError, match=r"^averaged: expected "):
            change(opt, W)
        np.testing.assert_array_equal(W.data, means)
    np.testing.assert_array_equal(W.data, values)
    opt.step(store(W, 1))
    with opt.averaged():
        np.testing.assert_array_equal(W.data, opt.averages(W))


# -- setting values --------------------------------------------------------------------------------


def test_assign_takes_arrays_lists_tensors_and_either_order_of_bytes():
    W = ts.parameter(np.zeros((2, 2), np.float32))
    for values in (
        [[1, 2], [3, 4]],
        np.ones((2, 2), ">f4"),
        ts.tensor(np.ones((2, 2), np.float32)),
    ):
        W.assign(values)
        np.testing.assert_array_equal(W.data, np.asarray(values))
        assert W.dtype == np.float32
    view = W.data
    W.assign(np.array([[5, 6]], np.float32), [-1])
    np.testing.assert_array_equal(view, [[1, 1], [5, 6]])
    number = ts.parameter(1.0)
    number.assign(2.0)
    assert number.item() == 2.0


def test_rows_that_are_assigned_take_the_missed_steps_first_and_the_others_wait():
    W = ts.parameter(np.zeros((V, 2)))
    opt = optim.SGD([W], lr=0.1, momentum=0.9)
    opt.step(store(W, 1, 2))
    opt.step(store(W, 0))
    W.assign(np.ones((1, 2)), [1])
    assert pending_of(W) is not None
    np.testing.assert_allclose(W.data[[1, 2]], [[1, 1], [-0.19, -0.19]])
    opt.step(store(W, 0))
    np.testing.assert_allclose(W.data[1], 1 - 0.1 * 0.9**2)


def test_a_backward_that_needs_values_that_were_assigned_refuses():
    W = ts.parameter(np.ones((V, 2)))
    with ts.Tape() as tape:
        loss = (W[[1]] ** 2).sum()
    W.assign(np.zeros((1, 2)), [3])
    with pytest.raises(errors.TapeError):
        tape.backward(loss)


def test_master_copies_of_rows_that_nobody_set_keep_what_float16_rounds_away():
    start = np.ones((V, 2), np.float16)
    W, alone = ts.parameter(start), ts.parameter(start)
    opt, other = (optim.SGD([p], lr=1e-4, master=True) for p in (W, alone))
    for i in range(30):
        opt.step(store(W, 1))
        other.step(store(alone, 1))
        W.assign(np.full((1, 2), i, np.float16), [3])
    assert (W.data[1] < 1).all()
    np.testing.assert_array_equal(W.data[1], alone.data[1])
    opt.step(store(W, 3))
    np.testing.assert_array_equal(W.data[3], np.float16(29 - 1e-4))


def test_what_is_set_by_hand_beside_master_copies_that_rest_without_moving_stays():
    """RMSprop's p does not move at rest, so nobody settles before the value is set."""
    W = ts.parameter(np.ones((6, 2), np.float16))
    opt = optim.RMSprop([W], lr=1e-3, master=True)
    for row in (1, 2):
        opt.step(store(W, row))
    W.assign(np.full((6, 2), 3.0, np.float16))
    opt.step(store(W, 1))
    assert (abs(W.data.astype(float) - 3) < 0.1).all()
