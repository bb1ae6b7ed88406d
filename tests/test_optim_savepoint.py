"""A savepoint: steps that are undone by rows, bit for bit, and what cannot be kept by rows."""

import copy

import numpy as np
import pytest
from stepping import store

import tinygrad_sparse as ts
from tinygrad_sparse import errors, optim
from tinygrad_sparse.optim import slots
from tinygrad_sparse.testing import count_bytes

V = 200
BY_ROWS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "row-wise": lambda p: optim.RowwiseAdagrad(p, lr=0.1),
    "Adam": lambda p: optim.Adam(p, lr=0.1, sparse="lazy"),
    "by row": lambda p: optim.Adam(p, lr=0.1, sparse="lazy", count="row"),
    "NAdam": lambda p: optim.NAdam(p, lr=0.1, sparse="lazy"),
    "master": lambda p: optim.Adam(p, lr=0.1, sparse="lazy", master=True),
}
WHOLE = {
    "exact": lambda p: optim.Adam(p, lr=0.1),
    "decayed": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "averaged": lambda p: optim.Adam(p, lr=0.1, average=0.5),
}


@pytest.fixture(params=["full", "by rows"])
def form(request, monkeypatch):
    """State as full tables, and by rows."""
    if request.param == "by rows":
        monkeypatch.setattr(slots, "COMPACT", 0)
    return (V, 20)


def step(opt, p, *rows):
    values = np.random.default_rng(sum(rows)).normal(size=(len(rows), *p.shape[1:]))
    opt.step(store(p, ts.IndexedSlices(list(rows), values.astype(p.dtype), p.shape)))


def all_of(opt, *params):
    """Every number, as bytes."""
    saved = opt.state_dict()
    arrays = [p.numpy() for p in params]
    arrays += [a for slots_of_one in saved["slots"] for a in slots_of_one]
    arrays += [a for key in ("rows", "counts") for a in saved[key] if a is not None]
    return [a.tobytes() for a in arrays], saved["steps"], saved["calls"], saved["memory"]


def undone(opt, rows, steps):
    with pytest.raises(ZeroDivisionError), opt.savepoint(rows):
        steps()
        raise ZeroDivisionError


@pytest.mark.parametrize("before", [[], [1, 3], [1, 3, 5, 1]], ids=str)
@pytest.mark.parametrize("make", BY_ROWS.values(), ids=BY_ROWS)
def test_steps_on_rows_that_were_kept_are_undone_to_the_bit(make, before, form):
    dtype = np.float16 if make is BY_ROWS["master"] else np.float64
    W = ts.parameter(np.random.default_rng(0).normal(size=form).astype(dtype))
    opt = make([W])
    for row in before:
        step(opt, W, row)
    W2, opt2 = copy.deepcopy((W, opt))
    was = all_of(opt, W)

    def steps():
        step(opt, W, 3, 7)
        step(opt, W, 7, 7, 1)
        assert all_of(opt, W) != was

    undone(opt, {W: [7, 1, 3, 3]}, steps)
    assert all_of(opt, W) == was
    for one, p in ((opt, W), (opt2, W2)):
        step(one, p, 8, 7)
        step(one, p, 3, 9)
    assert all_of(opt, W) == all_of(opt2, W2)


def test_steps_that_make_tables_of_rows_are_undone(form):
    W = ts.parameter(np.ones(form))
    opt = optim.Adam([W], lr=0.1, sparse="lazy")
    step(opt, W, 1, 3)
    was = all_of(opt, W)
    many = list(range(V // 2))

    def steps():
        step(opt, W, *many)
        opt.step(store(W))

    undone(opt, {W: many}, lambda: step(opt, W, *many))
    assert all_of(opt, W) == was
    undone(opt, None, steps)
    assert all_of(opt, W) == was


@pytest.mark.parametrize("make", [*BY_ROWS.values(), *WHOLE.values()], ids=[*BY_ROWS, *WHOLE])
def test_a_parameter_that_is_not_named_is_kept_whole(make, form):
    W, b = ts.parameter(np.ones(form)), ts.parameter(np.ones(3))
    opt = make([W, b])
    for row in (1, 3, 1):
        step(opt, W, row)
    was, average = all_of(opt, W, b), None
    if averaged := bool(opt.groups[0]["average"]):
        average = opt.averages(W).copy()

    def steps():
        step(opt, W, 3, 7)
        step(opt, W, 9)
        opt.step(store(b))
        opt.step(store(W))

    undone(opt, None, steps)
    assert all_of(opt, W, b) == was
    if averaged:
        np.testing.assert_array_equal(opt.averages(W), average)
    step(opt, W, 3, 7)
    assert all_of(opt, W, b)[0][0] != was[0][0]


def test_what_does_not_fail_stays():
    W = ts.parameter(np.ones((V, 2)))
    opt = optim.Adam([W], lr=0.1, sparse="lazy")
    with opt.savepoint({W: [1]}):
        step(opt, W, 1)
    assert (W.data[1] != 1).all() and opt.calls == 1


def test_other_settings_and_another_state_are_undone():
    W = ts.parameter(np.ones((V, 2)))
    opt = optim.SGD([W], lr=0.1)
    step(opt, W, 1)
    was, saved = all_of(opt, W), opt.state_dict()

    def steps():
        opt.load_state_dict(saved)
        step(opt, W, 1)
        opt.groups[0]["maximize"] = True
        step(opt, W, 2)

    undone(opt, {W: [1, 2]}, steps)
    opt.groups[0]["maximize"] = False
    assert all_of(opt, W) == was


def test_rows_that_were_not_named_share_no_place_with_later_ones(form):
    def after(in_block):
        W = ts.parameter(np.ones(form))
        opt = optim.Adam([W], lr=0.1, sparse="lazy")
        step(opt, W, 1, 3)
        undone(opt, {W: [7]}, lambda: [step(opt, W, *rows) for rows in in_block])
        for rows in ((80, 81), (50,), (60,), (80, 81), (50,)):
            step(opt, W, *rows)
        return W.data[[1, 3, 7, 80, 81]]

    wanted = after([])
    np.testing.assert_array_equal(after([(7, 50, 60)]), wanted)
    np.testing.assert_array_equal(after([(7, 50), tuple(range(50, 70))]), wanted)


def test_keeping_rows_costs_the_rows():
    W = ts.parameter(np.ones((500_000, 2)))
    opt = optim.Adam([W], lr=0.1, sparse="lazy")
    step(opt, W, 1, 3)
    with count_bytes() as used, opt.savepoint({W: [1, 3, 5]}):
        step(opt, W, 1, 5)
    assert used.peak < 100_000


def test_what_cannot_be_kept_is_named():
    W, b = ts.parameter(np.ones((V, 2)), name="W"), ts.parameter(np.ones(()))
    lazy = optim.Adam([W, b], sparse="lazy")
    for opt, rows, error, message in [
        (lazy, {ts.parameter(np.ones(2), name="other"): [0]}, errors.TapeError,
         "savepoint: expected parameters of this optimizer, got other"),
        (lazy, {W: [V]}, errors.RowIndexError, r"savepoint: expected ids in \[0, 200\), got 200"),
        (lazy, [W], errors.TapeError, "savepoint: expected a dict of rows, got list. Hint: opt"),
        (lazy, W, errors.TapeError, "savepoint: expected a dict of rows, got Tensor"),
        (lazy, {b: [0]}, errors.ShapeError, "savepoint: expected rows of a parameter with axes"),
        (optim.Adam([W]), {W: [0]}, errors.SparsityError, "rows of W .*Hint: .*sparse='lazy'"),
        (optim.SGD([W], lr=0.1, average=0.9), {W: [0]}, errors.SparsityError, "moves touched rows"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message), opt.savepoint(rows):
            raise AssertionError("the block is not entered")


@pytest.mark.parametrize("make", BY_ROWS.values(), ids=BY_ROWS)
def test_rows_on_a_device_are_put_back_there(gpu, make):
    def squares(*rows):
        with ts.Tape("raise") as tape:
            looked_up = W[list(rows)]
            loss = (looked_up * looked_up).sum()
        opt.step(tape.backward(loss))

    dtype = np.float16 if make is BY_ROWS["master"] else np.float32
    W = ts.parameter(np.ones((V, 20), dtype), device="cuda")
    opt = make([W])
    squares(1, 3)
    was = all_of(opt, W)
    undone(opt, {W: [1, 9]}, lambda: squares(1, 9, 1))
    assert all_of(opt, W) == was
    squares(1, 9, 1)
    assert all_of(opt, W) != was
