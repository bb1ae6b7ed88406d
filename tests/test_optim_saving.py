"""What an optimizer saved and what may be loaded: nothing but what a run could have saved."""

import numpy as np
import pytest
from stepping import store

import tinygrad_sparse as ts
from tinygrad_sparse import errors, optim
from tinygrad_sparse.optim import rules, slots

V = 5


def trained(make=optim.NAdam, **settings):
    W = ts.parameter(np.ones((V, 2)), name="W")
    opt = make([W], **settings)
    for _ in range(2):
        opt.step(store(W, ts.IndexedSlices([1, 3], np.ones((2, 2)), (V, 2))))
    return W, opt


LAZY = {"sparse": "lazy", "count": "row"}
SPOILT = {
    "too many steps": (optim.NAdam, {}, {"steps": [2**40]}, "a step count of W"),
    "a step that is a truth": (optim.NAdam, {}, {"steps": [True]}, "a step count of W, got True"),
    "too many calls": (optim.NAdam, {}, {"calls": 2**40}, "a number of calls"),
    "calls that are a truth": (optim.NAdam, {}, {"calls": True}, "a number of calls, got True"),
    "a lead that is a truth": (optim.NAdam, {}, {"leads": [True]}, "rows of W's first axes"),
    "no memory": (optim.NAdam, {}, {"memory": [None]}, r"\['product'\] in the memory of W"),
    "another memory": (optim.NAdam, {}, {"memory": [{"sum": 1.0}]}, r"numbers \['product'\] in"),
    "memory that is no number": (optim.NAdam, {}, {"memory": [{"product": "1"}]}, "in the memory"),
    "memory that is NaN": (optim.NAdam, {}, {"memory": [{"product": np.nan}]}, "finite numbers"),
    "memory to divide by": (
        optim.NAdam, {"momentum_decay": 0.0}, {"memory": [{"product": 1 / 0.45}]}, "in the memory"
    ),
    "memory of a rule without": (optim.Adam, {}, {"memory": [{"a": 1.0}]}, r"numbers \[\] in the"),
    "counts that nobody asked for": (
        optim.Adam, {"sparse": "lazy"}, {"counts": [np.zeros(V, np.int32)]}, "no counts by row"
    ),
    "counts below zero": (
        optim.Adam, LAZY, {"counts": [np.full(V, -1, np.int32)]}, "counts of W in 0 ... 2, got -1"
    ),
    "more counts than steps": (
        optim.Adam, LAZY, {"counts": [np.full(V, 3, np.int32)]}, "counts of W in 0 ... 2, got 3"
    ),
    "a square below zero": (
        optim.Adam, {}, {"slots": [[np.zeros((V, 2)), np.full((V, 2), -1.0)]]},
        "v of W with no element < 0, got -1.0",
    ),
    "another rule": (
        optim.Adam, {}, {"rules": ["adamw"]},
        "Adam: expected state of the rule 'adam' for W, got that of 'adamw'. Hint: load it into",
    ),
    "ragged slots": (
        optim.Adam, {}, {"slots": [[[[1.0, 2.0], [3.0]], np.zeros((V, 2))]]}, "arrays for W, got "
    ),
    "ragged rows": (optim.Adam, {}, {"rows": [[[1], [2, 3]]]}, "Adam: expected arrays for W, got "),
    "ragged counts": (optim.Adam, LAZY, {"counts": [[[1], [2, 3]]]}, "expected arrays for W, got "),
    "rows cut smaller than what has one number a row": (
        optim.RowwiseAdagrad, {}, {"leads": [2], "slots": [[np.zeros((10, 1))]]}, "rows of W's"
    ),
}  # fmt: skip


@pytest.mark.parametrize("key, value", [("rules", "sgd"), ("rows", np.arange(2)), ("slots", [1])])
def test_nothing_is_kept_of_a_parameter_that_was_never_stepped(key, value):
    opt = optim.SGD([ts.parameter(np.ones(2), name="W")], lr=0.1)
    with pytest.raises(errors.CheckpointError, match=f"nothing kept for W, step 0, got {key}"):
        opt.load_state_dict({**opt.state_dict(), key: [value]})


@pytest.mark.parametrize(("make", "settings", "spoil", "message"), SPOILT.values(), ids=SPOILT)
def test_what_no_run_saved_is_refused_before_anything_changes(make, settings, spoil, message):
    W, opt = trained(make, **settings)
    good = opt.state_dict()
    before = repr(good), W.data.tobytes()
    with pytest.raises(errors.CheckpointError, match=message):
        opt.load_state_dict({**good, **spoil})
    assert (repr(opt.state_dict()), W.data.tobytes()) == before
    opt.load_state_dict(good)
    assert repr(opt.state_dict()) == before[0]


def test_the_state_of_adam_is_not_that_of_adamw():
    _, opt = trained(optim.Adam)
    _, other = trained(optim.AdamW)
    with pytest.raises(errors.CheckpointError, match="of the rule 'adamw' for W, got that of 'ada"):
        other.load_state_dict(opt.state_dict())


def test_another_optimizers_state_names_its_rule_and_ours():
    _, adam = trained(optim.Adam)
    _, sgd = trained(optim.SGD, lr=0.1)
    with pytest.raises(
        errors.CheckpointError,
        match=r"SGD: expected a state that SGD saved, with the settings \['average', .*\], got one "
        r"of the rule 'adam', with \['sparse', .*'beta2'\]. Hint: load it into the optimizer that",
    ):
        sgd.load_state_dict(adam.state_dict())
    fresh = optim.Adam([ts.parameter(np.ones((V, 2)))])  # no rule has seen its parameter
    with pytest.raises(errors.CheckpointError, match=r"SGD: expected the settings \['average'"):
        sgd.load_state_dict(fresh.state_dict())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_other_order_of_bytes_is_the_same_numbers(dtype):
    W = ts.parameter(np.ones((V, 2), dtype))
    opt = optim.Adam([W], **LAZY)
    opt.step(store(W, ts.IndexedSlices([1], np.ones((1, 2), dtype), (V, 2))))
    saved = opt.state_dict()

    def swapped(a):
        return a.astype(a.dtype.newbyteorder(">"))

    foreign = {
        **saved,
        "slots": [[swapped(a) for a in saved["slots"][0]]],
        "counts": [swapped(saved["counts"][0])],
    }
    opt.load_state_dict(foreign)
    assert repr(opt.state_dict()) == repr(saved)
    model = ts.nn.Linear(2, 2)
    model.load_state_dict({name: swapped(a) for name, a in model.state_dict().items()})


@pytest.mark.parametrize("change", [{"momentum": 0.9}, {"master": True}, {"average": 0.5}], ids=str)
def test_settings_that_changed_since_the_last_step_are_saved_with_a_state_for_them(change):
    W, opt = trained(optim.SGD, lr=0.1)
    opt.groups[0].update(change)
    saved, weights = opt.state_dict(), W.numpy()
    again = optim.SGD([V2 := ts.parameter(weights)], lr=0.1)
    again.load_state_dict(saved)
    for p, one in ((W, opt), (V2, again)):
        for ids in ([1], [2], [1]):
            one.step(store(p, ts.IndexedSlices(ids, np.ones((1, 2)), (V, 2))))
    assert W.data.tobytes() == V2.data.tobytes()
    if "average" in change:
        assert opt.averages(W).tobytes() == again.averages(V2).tobytes()


def test_a_rate_that_is_an_array_is_saved_as_the_number_that_it_was():
    rate = np.array(0.1)
    _, opt = trained(optim.SGD, lr=rate, nesterov=np.False_)
    saved = opt.state_dict()["groups"][0]
    rate[...] = 9.0
    assert saved["lr"] == 0.1 and saved["sparse"] == "exact" and saved["nesterov"] is False


def test_counts_by_row_that_are_not_asked_for_any_more_are_not_saved():
    _, opt = trained(optim.Adam, **LAZY)
    opt.groups[0]["count"] = "all"
    opt.load_state_dict(opt.state_dict())
    assert opt.state_dict()["counts"] == [None]


def test_a_schedule_picks_the_rule_by_the_steps_that_were_saved():
    def momentum(step):
        return 0.0 if step <= 2 else 0.9

    W, opt = trained(optim.SGD, lr=0.1, momentum=momentum)
    opt.step(store(W, np.ones((V, 2))))
    saved = opt.state_dict()
    again = optim.SGD([ts.parameter(W.data)], lr=0.1, momentum=momentum)
    again.load_state_dict(saved)
    assert repr(again.state_dict()) == repr(saved)


RULES = {name: rule for name, rule in vars(rules).items() if isinstance(rule, optim.Rule)}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_squares_are_never_negative(rule):
    rng = np.random.default_rng(0)
    assert {s for s in rule.slots if s[:6] == "square" or s in ("v", "v_max", "n")} == {
        *rule.squares
    }
    p, *slots = np.ones(50), *(np.zeros(50) for _ in rule.slots)
    for step in range(1, 6):
        hyper = dict.fromkeys(rule.settings, 0.5) | (
            {"step": step} if "step" in rule.settings else {}
        )
        p, *slots = rule.formula(p, rng.normal(size=50), *slots, **hyper)
        for name, slot in zip(rule.slots, slots, strict=True):
            assert name not in rule.squares or (slot >= 0).all()


@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("model_first", [True, False])
def test_state_of_few_rows_goes_on_where_full_tables_are_kept(monkeypatch, average, model_first):
    """As from a file to memory, or to a GPU: rows without state start as they would have."""

    def table():
        return ts.parameter(np.random.default_rng(0).normal(size=(4000, 4)))

    def slices(*ids):
        return ts.IndexedSlices(ids, np.ones((len(ids), 4)), (4000, 4))

    monkeypatch.setattr(slots, "COMPACT", 0)
    W = table()
    opt = optim.Adam([W], lr=0.1, average=average)
    opt.step(store(W, slices(1, 5)))
    saved, weights = opt.state_dict(), W.numpy() + 1.0
    assert saved["rows"][0].tolist() == [1, 5]
    W.assign(weights)
    found = []
    for full in (False, True):
        monkeypatch.setattr(slots, "COMPACT", 2**20 if full else 0)
        E = table()
        again = optim.Adam([E], lr=0.1, average=average)
        if model_first:
            E.assign(weights)
        again.load_state_dict(saved)
        if not model_first:
            E.assign(weights)
        again.step(store(E, slices(1, 7)))
        found.append([E.numpy(), again.averages(E) if average else None])
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_a_schedule_is_not_asked_for_a_step_that_may_never_come():
    rates = [0.1, 0.2]
    W, opt = trained(optim.SGD, lr=lambda t: rates[t - 1])
    again = optim.SGD([ts.parameter(W.numpy())], lr=lambda t: rates[t - 1])
    again.load_state_dict(opt.state_dict())
    assert again.calls == 2


@pytest.mark.parametrize("master", [False, True])
def test_what_float16_cannot_hold_is_refused_before_it_is_written(master):
    W = ts.parameter(np.full((3, 2), 65000, np.float16), name="W")
    opt = optim.SGD([W], lr=1.0, master=master)
    g = ts.IndexedSlices([1], np.full((1, 2), -1000, np.float16), (3, 2))
    with pytest.raises(errors.TinygradSparseError, match="2 others in the new p of W"):
        opt.step(store(W, g), error_if_nonfinite=True)
    assert (W.data == 65000).all()


def test_a_refused_step_under_other_settings_keeps_the_state_of_before():
    W, opt = trained(optim.SGD, lr=0.1, momentum=0.9)
    before = opt.state_dict()["slots"]
    opt.groups[0]["momentum"] = 0.0
    with pytest.raises(errors.TinygradSparseError, match="finite values"):
        opt.step(store(W, np.full((V, 2), np.nan)), error_if_nonfinite=True)
    opt.groups[0]["momentum"] = 0.9
    assert repr(opt.state_dict()["slots"]) == repr(before)


@pytest.mark.parametrize("change", [{}, {"momentum": 0.9}], ids=["same", "another rule"])
def test_rows_without_state_are_saved_as_p_is_then(monkeypatch, change):
    monkeypatch.setattr(slots, "COMPACT", 0)
    W = ts.parameter(np.zeros((4000, 64)))
    opt = optim.SGD([W], lr=0.1, average=0.5)
    opt.step(store(W, ts.IndexedSlices([1], np.ones((1, 64)), (4000, 64))))
    saved = opt.state_dict()
    monkeypatch.setattr(slots, "COMPACT", 2**40)  # full tables
    E = ts.parameter(np.zeros((4000, 64)))
    again = optim.SGD([E], lr=0.1, average=0.5)
    again.load_state_dict(saved)
    E.assign(np.full((4000, 64), 3.0))
    again.groups[0].update(change)
    means = again.state_dict()["slots"][0][-1]
    assert (means[2:] == 3).all()
