"""Settings of optimizers: their names, their ranges, and when both are looked at."""

import re
from fractions import Fraction

import numpy as np
import pytest
from stepping import store

import tinygrad_sparse as ts
from tinygrad_sparse import errors, optim


def table():
    return ts.parameter(np.ones((5, 2)), name="W")


NAMES = {
    "a near one": (
        lambda W: optim.Adam([W], lr=0.1, weight_deacy=0.1),
        "Adam: expected settings among ['amsgrad', 'average', 'beta1', 'beta2', 'count', 'eps', "
        "'lr', 'master', 'maximize', 'sparse', 'weight_decay'], got 'weight_deacy'. "
        "Hint: write weight_decay.",
    ),
    "a common one": (
        lambda W: optim.RowwiseAdagrad([W], averge=0.9),
        "got 'averge'. Hint: write average.",
    ),
    "nothing near": (lambda W: optim.SGD([W], lr=0.1, zzz=1), "got 'zzz'."),
    "another optimizer's": (lambda W: optim.SGD([W], lr=0.1, amsgrad=True), "got 'amsgrad'."),
    "NAdam's": (lambda W: optim.NAdam([W], momentum_decy=0.1), "Hint: write momentum_decay."),
    "a rule's": (
        lambda W: optim.Optimizer(optim.SGD([W], 0.1).rule, [W], lr=0.1, lrr=1),
        "got 'lrr'. Hint: write lr.",
    ),
    "half of betas": (
        lambda W: optim.Adam([W], beta1=0.5),
        "Adam: expected betas=(beta1, beta2), got beta1=0.5. Hint: Adam(..., betas=(0.9, 0.999)) "
        "sets both.",
    ),
    "one beta": (lambda W: optim.AdamW([W], betas=(0.9,)), "got betas=(0.9,)."),
    "a number for betas": (lambda W: optim.NAdam([W], betas=0.9), "got betas=0.9."),
    "betas in a group": (
        lambda W: optim.Adam([{"params": [W], "betas": (0.1, 0.2, 0.3)}]),
        "got betas=(0.1, 0.2, 0.3).",
    ),
}


@pytest.mark.parametrize(("make", "message"), NAMES.values(), ids=NAMES)
def test_a_setting_that_there_is_not(make, message):
    with pytest.raises(errors.ArgumentError, match=f"{re.escape(message)}$"):
        make(table())


def test_a_subclass_and_a_function_that_picks_rules_name_their_settings():
    class Mine(optim.SGD):
        def __init__(self, params, lr, nearness=1.0, **common):
            super().__init__(params, lr / nearness, **common)

    W = table()
    assert Mine([W], 0.1, nearness=2.0, average=0.5).lr == 0.05
    with pytest.raises(errors.ArgumentError, match=r"Mine: .*got 'averge'"):
        Mine([W], 0.1, averge=0.5)
    sgd = optim.SGD([W], 0.1).rule
    chosen = optim.Optimizer(lambda settings: sgd, [W], lr=0.1, fast=True)  # only it can know
    chosen.step(store(W))


def test_the_rule_is_that_of_the_settings_as_they_are_now():
    opt = optim.SGD([table()], lr=0.1)
    assert opt.rule.slots == ()
    opt.groups[0]["momentum"] = 0.9
    assert opt.rule.slots == optim.SGD([table()], lr=0.1, momentum=0.9).rule.slots != ()


@pytest.mark.parametrize("spoil", [lambda g: g.update(momentun=0.9), lambda g: g.pop("momentum")])
def test_a_group_that_was_written_to_is_looked_at_before_the_step(spoil):
    W = table()
    opt = optim.SGD([W], lr=0.1, momentum=0.5)
    opt.step(store(W))
    before = W.numpy()
    spoil(opt.groups[0])
    with pytest.raises(errors.ArgumentError, match=r"SGD: expected (the )?settings .*momentu"):
        opt.step(store(W))
    np.testing.assert_array_equal(W.data, before)
    assert opt.calls == 1


RANGES = {
    "lr": (optim.SGD, "lr", [-1.0, np.inf, np.nan, np.float32(-1), 10**400], "lr >= 0"),
    "lr of FTRL": (optim.FTRL, "lr", [0.0], "lr > 0"),
    "momentum": (optim.SGD, "momentum", [1.0, -0.1, np.nan], "0 <= momentum < 1"),
    "dampening": (optim.SGD, "dampening", [np.nan, np.inf], "a finite dampening"),
    "weight_decay": (optim.Adam, "weight_decay", [-0.1, np.nan, np.inf], "weight_decay >= 0"),
    "beta1": (optim.Adam, "beta1", [1.0, -0.1, np.nan, np.array(1.5)], "0 <= beta1 < 1"),
    "beta2": (optim.AdamW, "beta2", [1.0, -0.1, np.nan], "0 <= beta2 < 1"),
    "eps": (optim.Adam, "eps", [-1e-8, np.nan], "eps >= 0"),
    "average": (optim.Adam, "average", [1.0, -0.5, np.nan], "0 <= average < 1"),
    "rho": (optim.Adadelta, "rho", [1.0, -0.5], "0 <= rho < 1"),
    "alpha": (optim.RMSprop, "alpha", [1.0, -0.5], "0 <= alpha < 1"),
    "initial": (optim.Adagrad, "initial", [-1.0], "initial >= 0"),
    "lr_decay": (optim.Adagrad, "lr_decay", [-1.0], "lr_decay >= 0"),
    "momentum_decay": (optim.NAdam, "momentum_decay", [-1.0], "momentum_decay >= 0"),
    "l1": (optim.FTRL, "l1", [-1.0, np.nan], "l1 >= 0"),
}
RANGE_CASES = [
    pytest.param(make, key, value, text, id=f"{name}={str(value)[:9]}")
    for name, (make, key, values, text) in RANGES.items()
    for value in values
]


def given(key, value):
    """A constructor's arguments that set `key`."""
    if key in ("beta1", "beta2"):
        return {"betas": (value, 0.9) if key == "beta1" else (0.9, value)}
    return {key: value}


@pytest.mark.parametrize(("make", "key", "value", "expected"), RANGE_CASES)
def test_a_value_out_of_range_is_refused_however_it_gets_there(make, key, value, expected):
    W = table()
    error = pytest.raises(errors.ArgumentError, match=f"^{make.__name__}: expected {expected}, got")
    rest = {} if key == "lr" else {"lr": 0.1}
    with error:
        make([W], **rest, **given(key, value))
    with error:
        make([{"params": [W], **given(key, value)}], lr=0.1)
    opt = make([W], lr=0.1)
    opt.step(store(W))
    before, settings = W.numpy(), dict(opt.groups[0])
    for wrong in (value, lambda step: value):  # set between steps; what a schedule answers
        opt.groups[0][key] = wrong
        with error:
            opt.step(store(W))
        with error:
            opt.step(store(W))
        opt.groups[0].update(settings)
    saved = opt.state_dict()
    saved["groups"][0][key] = value
    with pytest.raises(errors.CheckpointError, match=expected):
        opt.load_state_dict(saved)
    np.testing.assert_array_equal(W.data, before)
    assert opt.calls == 1 and opt.groups[0] == settings
    opt.step(store(W))


def test_a_rate_out_of_range_cannot_be_set():
    opt = optim.SGD([table()], lr=0.1)
    with pytest.raises(errors.ArgumentError, match=r"SGD: expected lr >= 0, got -1.0. Hint: maxim"):
        opt.lr = -1.0
    assert opt.lr == 0.1


def test_groups_are_written_to_and_added_not_exchanged():
    opt = optim.SGD([table()], lr=0.1)
    group = opt.groups[0]
    with pytest.raises(TypeError):
        opt.groups[0] = {**group, "lr": 0.0}
    with pytest.raises(AttributeError):
        opt.groups.append({**group, "params": [table()]})
    message = (
        "SGD.groups stays what it is: opt.groups[i][name] = value sets a setting, "
        "opt.add_group(...) adds parameters."
    )
    with pytest.raises(AttributeError, match=f"^{re.escape(message)}$"):
        opt.groups = [group]
    opt.groups[0]["lr"] = 0.5
    opt.add_group({"params": [table()]})
    assert [group["lr"] for group in opt.groups] == [0.5, 0.1] and opt.lr == 0.5
    opt.load_state_dict(opt.state_dict())


def test_a_rule_without_a_rate_has_no_lr():
    @optim.rule(still=True)
    def halved(p, g, *, part):
        return (p - part * g,)

    opt = optim.Optimizer(halved, [W := table()], part=0.5)
    message = "Optimizer has no .lr: its settings are ['part'], in opt.groups[0]."
    for touch in (lambda: opt.lr, lambda: setattr(opt, "lr", 0.1)):
        with pytest.raises(AttributeError, match=f"^{re.escape(message)}$"):
            touch()
    assert not hasattr(opt, "lr")
    opt.step(store(W))
    np.testing.assert_array_equal(W.data, 0.5)


def test_all_groups_are_looked_at_before_any_parameter_moves():
    a, b = table(), table()
    opt = optim.SGD([{"params": [a]}, {"params": [b]}], lr=0.1, momentum=0.5)
    opt.groups[1]["lr"] = lambda step: -1.0
    grads = store(a)
    grads[b] = np.ones((5, 2))
    with pytest.raises(errors.ArgumentError):
        opt.step(grads)
    np.testing.assert_array_equal(a.data, 1)
    assert opt.state_bytes() == 0


def test_a_number_that_was_written_to_is_looked_at_again():
    W = table()
    rate = np.array(0.1)
    opt = optim.SGD([W], lr=rate)
    opt.step(store(W))
    rate[...] = 0.5
    opt.step(store(W))
    np.testing.assert_allclose(W.data, 1 - 0.1 - 0.5)
    rate[...] = -1
    with pytest.raises(errors.ArgumentError):
        opt.step(store(W))


def test_nadam_counts_all_steps_whoever_asks_otherwise():
    W = table()
    rows = {"sparse": "lazy", "count": "row"}
    message = (
        "NAdam: expected count='all', got 'row'. Hint: nadam keeps numbers of the whole "
        "parameter's steps."
    )
    with pytest.raises(errors.SparsityError, match=f"^{re.escape(message)}$"):
        optim.NAdam([W], **rows)
    for opt in (optim.NAdam([W]), optim.NAdam([{"params": [W], **rows}])):
        opt.groups[0].update(rows)
        with pytest.raises(errors.SparsityError, match=f"^{re.escape(message)}$"):
            opt.step(store(W))
    np.testing.assert_array_equal(W.data, 1)


@pytest.mark.parametrize(
    ("make", "hint"), [(optim.RMSprop, "eps > 0"), (optim.Adam, "eps > 0 and beta2 > 0")]
)
def test_what_moves_rows_at_rest_without_end_names_settings_that_there_are(make, hint):
    W = table()
    with pytest.raises(errors.SparsityError, match=f"by a finite amount, got .* Hint: {hint}.$"):
        make([W], eps=0.0).step(store(W, ts.IndexedSlices([1], np.ones((1, 2)), (5, 2))))


def test_nesterov_wants_momentum():
    W = table()
    with pytest.raises(errors.ArgumentError, match="SGD: expected a momentum with nesterov=True"):
        optim.SGD([W], lr=0.1, nesterov=True)
    opt = optim.SGD([W], lr=0.1, nesterov=True, momentum=lambda step: 0.0 if step < 2 else 0.5)
    opt.step(store(W))
    opt.step(store(W))
    opt.groups[0]["momentum"] = 0.0
    with pytest.raises(errors.ArgumentError, match="nesterov"):
        opt.step(store(W))


@pytest.mark.parametrize(
    "number", [np.float32(0.5), np.array(0.5), Fraction(1, 2), np.float16(0.5)]
)
def test_numbers_of_other_kinds_are_numbers(number):
    W = ts.parameter(np.ones((5, 2), np.float32))
    opt = optim.SGD([W], lr=number, momentum=number, nesterov=np.True_)
    opt.step(store(W))
    assert W.dtype == np.float32
    np.testing.assert_array_equal(W.data, 0.25)


@pytest.mark.parametrize("wrong", ["0.1", None, 1j, [0.1], np.ones(2)], ids=repr)
def test_what_is_no_number_is_refused_at_the_step_too(wrong):
    W = table()
    opt = optim.SGD([W], lr=0.1)
    opt.groups[0]["lr"] = wrong
    with pytest.raises(errors.DtypeError, match="SGD: expected a number for lr, got"):
        opt.step(store(W))


@pytest.mark.parametrize("momentum, nesterov", [(0.9, False), (0.9, True)])
def test_steps_counted_by_row_are_each_rows_own_run(momentum, nesterov):
    """A row's first step is undamped, whenever it comes."""
    settings = {"lr": 0.1, "momentum": momentum, "nesterov": nesterov}
    settings |= {} if nesterov else {"dampening": 0.5}
    W = ts.parameter(np.ones((3, 2)))
    opt = optim.SGD([W], sparse="lazy", count="row", **settings)
    for ids in ([0], [0, 1], [0, 1]):
        opt.step(store(W, ts.IndexedSlices(ids, np.ones((len(ids), 2)), (3, 2))))
    for row, steps in ((0, 3), (1, 2)):
        one = ts.parameter(np.ones(2))
        alone = optim.SGD([one], **settings)
        for _ in range(steps):
            alone.step(store(one, np.ones(2)))
        np.testing.assert_allclose(W.data[row], one.data, rtol=1e-14)


def test_there_is_no_average_where_none_was_asked_for():
    W = ts.parameter(np.ones(2), name="W")
    opt = optim.SGD([W], lr=0.1)
    with pytest.raises(errors.ArgumentError, match="averages: expected a group with an average"):
        opt.averages(W)
    with pytest.raises(errors.ArgumentError, match=r"averaged: .* Hint: SGD\(.*, average=0.999\)"):
        opt.averaged().__enter__()
    with pytest.raises(errors.TapeError, match=r"averages: .* this optimizer, got ndarray"):
        opt.averages(np.ones(2))
