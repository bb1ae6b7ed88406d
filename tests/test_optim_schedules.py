"""Schedules: the values they take, the settings they refuse, and what is saved of them."""

import re

import numpy as np
import pytest
from stepping import store

import tinygrad_sparse as ts
from tinygrad_sparse import errors, optim


def table():
    return ts.parameter(np.ones((5, 2)), name="W")


def test_schedules():
    assert [optim.constant(0.3)(t) for t in (1, 99)] == [0.3, 0.3]
    np.testing.assert_allclose(
        [optim.exponential(1.0, 0.5)(t) for t in (1, 2, 4)], [1.0, 0.5, 0.125]
    )
    lr = optim.one_cycle(1.0, 100)
    values = [lr(t) for t in range(1, 101)]
    assert (
        values[0] == pytest.approx(0.04) and max(values) == 1.0 == values[30] and values[-1] < 1e-3
    )
    assert all(np.diff(values[:31]) > 0) and all(np.diff(values[30:]) < 0)


def test_plateau_waits_cuts_and_is_saved():
    lr = optim.Plateau(1.0, factor=0.5, patience=2, least=0.2)
    opt = optim.SGD([ts.parameter(np.ones(1))], lr=lr)
    for loss in (5.0, 4.0, 4.0, 4.0):
        lr.update(loss)
    assert lr(1) == 1.0
    other = optim.Plateau(1.0, factor=0.5, patience=2, least=0.2)
    other.load_state_dict(lr.state_dict())
    for one in (lr, other):
        one.update(4.0)
        assert one(1) == 0.5
        for _ in range(20):
            one.update(4.0)
        assert one(1) == 0.2
    p = opt.groups[0]["params"][0]
    opt.step(store(p, np.ones(1)))
    np.testing.assert_allclose(p.data, 0.8)


def test_one_cycle_ends_where_it_says():
    lr = optim.one_cycle(1.0, 10, rise=0.5, start=0.1, end=0.01)
    assert [lr(t) for t in (1, 6)] == [pytest.approx(0.1), 1.0]
    assert lr(11) == lr(99) == pytest.approx(0.01)
    assert optim.one_cycle(1.0, 10)(11) == pytest.approx(1 / 25e4)


SCHEDULES = {
    "every": (lambda: optim.step_decay(1.0, every=0), "step_decay: expected every > 0, got 0."),
    "steps": (lambda: optim.cosine(1.0, 0), "cosine: expected steps > 0, got 0."),
    "a rise of 5": (lambda: optim.one_cycle(1.0, 9, rise=5), "one_cycle: expected 0 <= rise <= 1"),
    "a rise below 0": (lambda: optim.one_cycle(1.0, 9, rise=-1), "expected 0 <= rise <= 1, got -1"),
    "a factor that grows": (lambda: optim.Plateau(1.0, factor=3), "Plateau: expected 0 < factor"),
    "no patience": (lambda: optim.Plateau(1.0, patience=-1), "expected patience >= 0, got -1."),
    "no value": (lambda: optim.Plateau(np.nan), "Plateau: expected a finite value, got nan."),
    "a threshold": (lambda: optim.Plateau(1.0, threshold=np.nan), "expected 0 <= threshold < 1"),
    "no least": (lambda: optim.Plateau(1.0, least=None), "expected a finite least, got None."),
    "steps that are text": (lambda: optim.cosine(0.1, "100"), "expected steps > 0, got '100'."),
    "steps of nothing": (
        lambda: optim.one_cycle(0.1, None),
        "one_cycle: expected steps > 0, got N",
    ),
    "every of text": (
        lambda: optim.step_decay(0.1, "2"),
        "step_decay: expected every > 0, got '2'",
    ),
    "patience of text": (lambda: optim.Plateau(0.1, patience="3"), "patience >= 0, got '3'."),
    "a value of text": (
        lambda: optim.linear_decay("0.1", 9),
        "linear_decay: expected a finite val",
    ),
    "a factor of text": (lambda: optim.exponential(0.1, "1"), "expected a finite factor, got '1'."),
    "an end of text": (lambda: optim.cosine(0.1, 9, end="0"), "cosine: expected a finite end, got"),
    "a start": (
        lambda: optim.one_cycle(0.1, 9, start="0"),
        "one_cycle: expected a finite start, g",
    ),
    "constant": (lambda: optim.constant(np.nan), "constant: expected a finite value, got nan."),
    "a value that no float is": (
        lambda: optim.Plateau(10**400),
        "expected a finite value, got 1000",
    ),
    "then nothing": (
        lambda: optim.warm_up(2, None),
        "warm_up: expected a schedule or a finite num",
    ),
    "a measure of text": (
        lambda: optim.Plateau(1.0).update("1"),
        "Plateau.update: expected a numb",
    ),
    "a measure of none": (lambda: optim.Plateau(1.0).update(None), "expected a number, got None."),
}


@pytest.mark.parametrize(("make", "message"), SCHEDULES.values(), ids=SCHEDULES)
def test_schedules_that_make_no_sense_are_refused(make, message):
    with pytest.raises(errors.ArgumentError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("kind", [np.float32, np.array, np.int64], ids=str)
def test_numbers_of_numpys_make_schedules(kind):
    assert optim.linear_decay(kind(2), kind(4))(3) == optim.warm_up(kind(2), kind(1))(2) == 1.0
    lr = optim.Plateau(kind(1), patience=kind(0), factor=0.5)
    for measure in (ts.tensor(np.array(3.0)), kind(4)):
        lr.update(measure)
    assert lr(1) == 0.5


@pytest.mark.parametrize("factor", [10.0, np.float64(10.0), 10])
def test_a_rate_that_outgrows_floats_is_refused_by_the_step_that_asks_for_it(factor):
    for schedule in (optim.exponential(1.0, factor), optim.step_decay(1.0, 1, factor)):
        assert schedule(3) == 100.0 and schedule(400) == np.inf
        W = table()
        opt = optim.SGD([W], lr=schedule)
        opt.calls = 399
        with pytest.raises(errors.ArgumentError, match="SGD: expected lr >= 0, got inf"):
            opt.step(store(W, np.ones((5, 2))))


def test_a_measure_that_is_nan_is_no_better_and_is_not_the_best():
    lr = optim.Plateau(1.0, factor=0.5, patience=1)
    for loss in (np.nan, 3.0, np.nan, 2.0):
        lr.update(loss)
    assert (lr.value, lr.best, lr.waited) == (1.0, 2.0, 0)
    for loss in (np.nan, np.inf):
        lr.update(loss)
    assert (lr.value, lr.best) == (0.5, 2.0)


def test_plateau_of_a_measure_that_should_grow_by_a_part():
    lr = optim.Plateau(1.0, factor=0.5, patience=0, threshold=0.1, larger=True)
    for measure, value in ((1.0, 1.0), (2.0, 1.0), (2.1, 0.5), (2.3, 0.5), (2.3, 0.25)):
        lr.update(measure)
        assert lr(1) == value
    low = optim.Plateau(0.1, patience=0, least=0.2)
    low.update(1.0)
    low.update(1.0)
    assert low(1) == 0.1, "a cut never raises"


@pytest.mark.parametrize(
    "state",
    [
        {"value": 1},
        None,
        {"value": "1", "best": 1.0, "waited": 0},
        {"value": 1.0, "best": np.nan, "waited": 0},
        {"value": np.inf, "best": 1.0, "waited": 0},
        {"value": 1.0, "best": 1.0, "waited": -1},
    ],
    ids=str,
)
def test_what_no_plateau_remembers_is_refused(state):
    lr = optim.Plateau(0.5)
    with pytest.raises(errors.CheckpointError, match="Plateau: expected numbers value, best, wa"):
        lr.load_state_dict(state)
    W = table()
    opt = optim.SGD([W], lr=lr, momentum=0.5)
    saved = opt.state_dict()
    saved["groups"][0] |= {"lr": state, "momentum": 0.25}
    if state is not None:
        with pytest.raises(errors.CheckpointError):
            opt.load_state_dict(saved)
        assert opt.groups[0]["momentum"] == 0.5
    assert lr.state_dict() == {"value": 0.5, "best": np.inf, "waited": 0}


def test_a_plateaus_rate_is_saved_with_the_optimizer():
    def run(W, opt, losses):
        for loss in losses:
            opt.step(store(W, np.full((5, 2), 0.3)))
            opt.lr.update(loss)

    W = table()
    opt = optim.SGD([W], lr=optim.Plateau(0.7, factor=0.3, patience=0), momentum=0.9)
    run(W, opt, [3.0, 3.0, 2.0])
    saved, weights = opt.state_dict(), W.numpy()
    E, held = ts.parameter(weights), optim.Plateau(0.7, factor=0.3, patience=0)
    again = optim.SGD([E], lr=held, momentum=0.9)
    again.load_state_dict(saved)
    assert again.lr is held and held(1) == opt.lr(1) < 0.7
    for p, one in ((W, opt), (E, again)):
        run(p, one, [2.0, 1.0, 1.0])
    assert W.data.tobytes() == E.data.tobytes()
    assert again.state_dict()["groups"] == opt.state_dict()["groups"]
    with pytest.raises(errors.CheckpointError, match=r"a number for lr, got \{'value'"):
        optim.SGD([E], lr=0.1, momentum=0.9).load_state_dict(saved)


def test_a_state_that_was_saved_under_a_number_leaves_a_plateau_alone():
    W = table()
    saved = optim.SGD([W], lr=0.1).state_dict()
    opt = optim.SGD([W], lr=optim.Plateau(0.5))
    opt.load_state_dict(saved)
    assert opt.lr(1) == 0.5


SHOWN = {
    "constant(0.1)": optim.constant(0.1),
    "step_decay(0.1, 3, 0.1)": optim.step_decay(0.1, every=3),
    "exponential(0.1, 0.5)": optim.exponential(0.1, 0.5),
    "linear_decay(0.1, 9, 0.0)": optim.linear_decay(0.1, 9),
    "warm_up(3, cosine(0.1, 9, 0.0))": optim.warm_up(3, optim.cosine(0.1, 9)),
    "one_cycle(1.0, 9, rise=0.3, start=0.04, end=4e-06)": optim.one_cycle(1.0, 9),
    "Plateau(0.1, factor=0.1, patience=10, threshold=0.0001, least=0.0, larger=True)": (
        optim.Plateau(0.1, larger=True)
    ),
}


@pytest.mark.parametrize(("text", "schedule"), SHOWN.items(), ids=SHOWN)
def test_a_schedule_shows_how_it_was_made(text, schedule):
    assert repr(schedule) == text
    assert f"lr={text}" in repr(optim.SGD([table()], lr=schedule))
