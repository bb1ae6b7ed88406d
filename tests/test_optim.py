"""Optimizers: values by hand, groups, state and errors. The laws are in test_optim_rules.py."""

import copy
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import FLOATS, floats, quick, row_ids, whole

import tinygrad_sparse as ts
from tinygrad_sparse import GradStore, IndexedSlices, errors, optim

MAKE = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "Adam": lambda p: optim.Adam(p, lr=0.1, sparse="lazy"),
}
every_rule = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


def text(message):
    return f"^{re.escape(message)}$"


def store(*pairs):
    grads = GradStore()
    for p, g in pairs:
        grads[p] = g
    return grads


def snapshot(opt):
    """Everything an optimizer could change, as bytes."""
    state = opt.state_dict()
    slots = [[s.tobytes() for s in one] for one in state["slots"]]
    data = [p.data.tobytes() for group in opt.groups for p in group["params"]]
    return state["groups"], state["steps"], slots, data


# -- laws ----------------------------------------------------------------------------------------


@every_rule
@quick
@given(st.data())
def test_rows_step_as_the_formula_says_and_no_others(make, data):
    """A reference that runs the formula on the whole table and keeps the touched rows."""
    dtype, lead = data.draw(floats), data.draw(st.integers(1, 2))
    start = whole(data.draw, (3, 2, 2), dtype)
    W = ts.parameter(start)
    opt = make([W])
    wide = np.promote_types(dtype, np.float32)
    p, slots = start.astype(wide), [np.zeros(start.shape, wide) for _ in opt.rule.slots]
    for step in range(1, 4):
        size = 3 if lead == 1 else 6
        ids = data.draw(row_ids(size))
        values = whole(data.draw, (len(ids), *start.shape[lead:]), dtype)
        g = IndexedSlices(ids, values, start.shape, lead)
        opt.step(store((W, g)))
        touched = np.zeros((3, 2, 2), bool)
        touched.reshape((size, -1))[ids] = True
        hyper, _ = opt.rule.hyper(opt.groups[0], step, {})
        new = opt.rule.formula(p, g.to_dense().astype(wide), *slots, **hyper)
        p, *slots = (
            np.where(touched, a, b) for a, b in zip(new, (p, *slots), strict=True)
        )  # fmt: skip
        p = p.astype(dtype).astype(wide)
        np.testing.assert_array_equal(W.data, p.astype(dtype))
    for ours, wanted in zip(opt.state_dict()["slots"][0], slots, strict=True):
        np.testing.assert_array_equal(ours, wanted)


@every_rule
@pytest.mark.parametrize("number", [np.float64, np.float32, np.array], ids=str)
def test_a_rate_of_numpys_is_a_plain_number(make, number):
    """It neither widens float32 rows nor keeps their formula from being compiled."""
    g = IndexedSlices(np.arange(300) % 200, np.full((300, 16), 0.3, np.float32), (200, 16))
    tables = []
    for lr in (0.25, number(0.25), lambda step: number(0.25)):
        W = ts.parameter(np.ones((200, 16), np.float32))
        opt = make([W])
        opt.lr = lr
        for _ in range(3):
            opt.step(store((W, g)))
        tables.append(W.data)
    np.testing.assert_array_equal(tables[1], tables[0])
    np.testing.assert_array_equal(tables[2], tables[0])


def test_adam_is_not_still():
    p = ts.parameter(np.ones(3))
    opt = optim.Adam([p])
    opt.step(store((p, np.ones(3))))
    before = p.numpy()
    opt.step(store((p, np.zeros(3))))
    assert not opt.rule.still and (p.data < before).all()


def test_only_parameters_with_a_gradient_are_visited():
    visited = []

    @optim.rule(slots=("count",))
    def counting(p, g, count, *, lr):
        visited.append(p.shape)
        return p - lr * g, count + 1

    parameters = [ts.parameter(np.ones(i + 1)) for i in range(100)]
    others = ts.parameter(np.ones(7))
    opt = optim.Optimizer(counting, parameters, lr=1.0)
    assert opt.state_bytes() == 0
    opt.step(store(*((p, np.ones(p.shape)) for p in (parameters[70], parameters[3], others))))
    tried, *visited[:] = visited  # a formula is tried before its first step
    assert len(tried) == 2 and visited == [(4,), (71,)]
    assert opt.state_bytes() == 8 * (4 + 71)
    assert [i for i, p in enumerate(parameters) if (p.data != 1).any()] == [3, 70]
    assert (others.data == 1).all()
    opt.step(GradStore())
    assert len(visited) == 2


@every_rule
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_dtype_is_kept_and_float16_keeps_wide_state(make, dtype):
    W, b = ts.parameter(np.ones((5, 2), dtype)), ts.parameter(np.ones((), dtype))
    opt = make([W, b])
    for _ in range(3):
        with ts.Tape() as tape:
            loss = (W[[1, 3, 1]] * b).sum()
        opt.step(tape.backward(loss))
    assert W.dtype == b.dtype == dtype
    assert (W.data[[1, 3]] < 0.99).all() and b.item() < 0.99 and (W.data[[0, 2, 4]] == 1).all()
    for slots in opt.state_dict()["slots"]:
        assert {s.dtype for s in slots} <= {np.promote_types(dtype, np.float32)}


@every_rule
def test_a_step_writes_into_the_table_it_has(make):
    W = ts.parameter(np.ones((5, 2)))
    view = W.data
    make([W]).step(store((W, IndexedSlices([3], np.ones((1, 2)), (5, 2)))))
    assert (view[3] < 1).all() and np.shares_memory(view, W.data)


@every_rule
def test_gradients_that_are_tensors_step_too_inside_their_block(make):
    W, D = ts.parameter(np.ones((5, 2))), ts.parameter(np.ones((5, 2)))
    opt, plain = make([W]), make([D])
    with ts.Tape() as tape:
        opt.step(tape.backward((W[[1, 3]] ** 2).sum(), create_graph=True))
    with ts.Tape() as tape:
        loss = (D[[1, 3]] ** 2).sum()
    plain.step(tape.backward(loss))
    np.testing.assert_array_equal(W.data, D.data)


# -- values by hand ------------------------------------------------------------------------------


def two_steps(opt, p):
    for g in (0.5, -2.0):
        opt.step(store((p, np.array(g))))
        yield p.item()


def test_sgd_by_hand():
    p = ts.parameter(np.array(1.0))
    np.testing.assert_allclose([*two_steps(optim.SGD([p], lr=0.1), p)], [0.95, 1.15], rtol=1e-15)


def test_adagrad_by_hand():
    p = ts.parameter(np.array(1.0))
    # h = 0.25 then 4.25
    wanted = [1 - 0.1 * 0.5 / 0.5, 0.9 + 0.1 * 2.0 / 4.25**0.5]
    got = [*two_steps(optim.Adagrad([p], lr=0.1, eps=0.0), p)]
    np.testing.assert_allclose(got, wanted, rtol=1e-15)
    p = ts.parameter(np.array(1.0))
    got = [*two_steps(optim.Adagrad([p], lr=0.1, eps=0.5), p)]
    wanted = [0.95, 0.95 + 0.1 * 2.0 / (4.25**0.5 + 0.5)]
    np.testing.assert_allclose(got, wanted, rtol=1e-15)


def test_adam_by_hand():
    p = ts.parameter(np.array(1.0))
    got = [*two_steps(optim.Adam([p], lr=0.1, betas=(0.9, 0.99), eps=1e-3), p)]
    # m = 0.05, v = 0.0025: m̂ = 0.5, v̂ = 0.25
    first = 1 - 0.1 * 0.5 / (0.5 + 1e-3)
    # m = 0.045 - 0.2, v = 0.002475 + 0.04
    m, v = -0.155 / (1 - 0.9**2), 0.042475 / (1 - 0.99**2)
    np.testing.assert_allclose(got, [first, first - 0.1 * m / (v**0.5 + 1e-3)], rtol=1e-13)


# -- groups --------------------------------------------------------------------------------------


def test_groups_have_settings_of_their_own():
    a, b, c = (ts.parameter(np.ones(1)) for _ in range(3))
    opt = optim.SGD([{"params": [a, b], "lr": 0.5}, {"params": c}], lr=0.25)
    grads = store(*((p, np.ones(1)) for p in (a, b, c)))
    opt.step(grads)
    assert (a.item(), b.item(), c.item()) == (0.5, 0.5, 0.75)
    assert opt.lr == 0.5
    opt.lr = 1.0
    opt.step(grads)
    assert (a.item(), b.item(), c.item()) == (-0.5, -0.5, -0.25)
    opt.groups[1]["lr"] = 0.0
    opt.step(grads)
    assert (a.item(), b.item(), c.item()) == (-1.5, -1.5, -0.25)


def test_groups_after_one_with_rows_are_stepped_too():
    W, b = ts.parameter(np.ones((5, 2))), ts.parameter(np.ones(2))
    opt = optim.Adam([{"params": [W], "sparse": "lazy"}, {"params": [b]}], lr=0.1)
    with ts.Tape() as tape:
        loss = (W[[1]] * b).sum()
    opt.step(tape.backward(loss))
    assert (W.data[1] < 1).all() and (b.data < 1).all()


# -- state ---------------------------------------------------------------------------------------


def train(opt, W, b, steps, seed):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        with ts.Tape(densify="raise") as tape:
            loss = ((W[rng.integers(0, 9, 4)] * 1.5 + b) ** 2).sum()
        opt.step(tape.backward(loss))


@every_rule
@pytest.mark.parametrize("dtype", FLOATS)
def test_training_goes_on_bit_for_bit_after_a_round_trip(make, dtype):
    start = np.random.default_rng(0).normal(size=(9, 2)).astype(dtype)
    W, b = ts.parameter(start), ts.parameter(np.zeros(2, dtype))
    opt = make([{"params": [W]}, {"params": [b], "lr": 0.01}])
    train(opt, W, b, 3, seed=1)
    saved, weights = opt.state_dict(), (W.numpy(), b.numpy())
    kept = copy.deepcopy(saved)
    train(opt, W, b, 3, seed=2)
    W2, b2 = map(ts.parameter, weights)
    again = make([{"params": [W2]}, {"params": [b2]}])
    again.load_state_dict(saved)
    assert again.state_bytes() == opt.state_bytes()
    train(again, W2, b2, 3, seed=2)
    assert W2.data.tobytes() == W.data.tobytes() and b2.data.tobytes() == b.data.tobytes()
    # what was saved is a copy: neither training wrote to it
    assert saved["groups"] == kept["groups"] and saved["steps"] == kept["steps"]
    for ours, theirs in zip(saved["slots"], kept["slots"], strict=True):
        assert [s.tobytes() for s in ours] == [s.tobytes() for s in theirs]


def test_parameters_that_were_never_stepped_have_no_state_to_load():
    a, b = ts.parameter(np.ones(1)), ts.parameter(np.ones(1))
    opt = optim.Adagrad([a, b])
    opt.step(store((b, np.ones(1))))
    again = optim.Adagrad([a, b])
    again.load_state_dict(opt.state_dict())
    assert again.state_dict()["steps"] == [0, 1] and again.state_bytes() == 8


BAD_STATES = {
    "not a dict": (
        lambda s: None,
        "Adam: expected groups, calls, rules, steps, slots, rows, leads, counts, memory, got "
        "NoneType.",
    ),
    "a key missing": (
        lambda s: {k: s[k] for k in ("groups", "steps")},
        "Adam: expected groups, calls, rules, steps, slots, rows, leads, counts, memory, got "
        "['groups', 'steps'].",
    ),
    "a group more": (
        lambda s: {**s, "groups": s["groups"] * 2},
        "Adam: expected 1 groups and 2 parameters, got 2 groups, 2 rules, 2 steps, 2 slots, "
        "2 rows, 2 leads, 2 counts, 2 memory.",
    ),
    "slots missing": (
        lambda s: {**s, "slots": []},
        "Adam: expected 1 groups and 2 parameters, got 1 groups, 2 rules, 2 steps, 0 slots, "
        "2 rows, 2 leads, 2 counts, 2 memory.",
    ),
    "another rule's settings": (
        lambda s: {**s, "groups": [{"lr": 0.1}]},
        "Adam: expected a state that Adam saved, with the settings ['amsgrad', 'average', 'beta1', "
        "'beta2', 'count', 'eps', 'lr', 'master', 'maximize', 'sparse', 'weight_decay'], got one "
        "of the rule 'adam', with ['lr']. Hint: load it into the optimizer that saved it, with the "
        "settings it had.",
    ),
    "settings of nothing": (
        lambda s: {**s, "groups": [None]},
        "Adam: expected the settings ['amsgrad', 'average', 'beta1', 'beta2', 'count', 'eps', "
        "'lr', 'master', 'maximize', 'sparse', 'weight_decay'], got None.",
    ),
    "parameters as a setting": (
        lambda s: {**s, "groups": [{**s["groups"][0], "params": []}]},
        None,
    ),
    "a setting that is no number": (
        lambda s: {**s, "groups": [{**s["groups"][0], "lr": "fast"}]},
        "Adam: expected a number for lr, got 'fast'.",
    ),
    "a setting that is not known": (
        lambda s: {**s, "groups": [{**s["groups"][0], "sparse": "maybe"}]},
        "Adam: expected sparse='exact' or 'lazy', got 'maybe'.",
    ),
    "a negative step": (
        lambda s: {**s, "steps": [-1, 0]},
        "Adam: expected a step count of W, got -1.",
    ),
    "a step that is no number": (
        lambda s: {**s, "steps": ["2", 0]},
        "Adam: expected a step count of W, got '2'.",
    ),
    "another shape": (
        lambda s: {**s, "slots": [[np.zeros((2, 5)), np.zeros((2, 5))], []]},
        "Adam: expected slots float64 (5, 2), float64 (5, 2) for W, step 2, got "
        "float64 (2, 5), float64 (2, 5).",
    ),
    "another dtype": (
        lambda s: {**s, "slots": [[np.zeros((5, 2), np.float32)] * 2, []]},
        "Adam: expected slots float64 (5, 2), float64 (5, 2) for W, step 2, got "
        "float32 (5, 2), float32 (5, 2).",
    ),
    "a slot too few": (
        lambda s: {**s, "slots": [s["slots"][0][:1], []]},
        "Adam: expected slots float64 (5, 2), float64 (5, 2) for W, step 2, got float64 (5, 2).",
    ),
    "steps without slots": (
        lambda s: {**s, "slots": [[], []]},
        "Adam: expected slots float64 (5, 2), float64 (5, 2) for W, step 2, got none.",
    ),
    "numbers for lists": (
        lambda s: {**s, "slots": [3, []]},
        "Adam: expected lists, got ['list', 'list', 'list', 'list', 'list', 'list', 'list', "
        "'list', 'int', 'list'].",
    ),
    "objects for slots": (lambda s: {**s, "slots": [[None, {}], []]}, None),
}


@pytest.mark.parametrize("spoil, message", BAD_STATES.values(), ids=BAD_STATES)
def test_bad_state_is_refused_and_changes_nothing(spoil, message):
    W, b = ts.parameter(np.ones((5, 2)), name="W"), ts.parameter(np.ones(2), name="b")
    opt = optim.Adam([W, b], sparse="lazy")
    for _ in range(2):
        opt.step(store((W, IndexedSlices([1], np.ones((1, 2)), (5, 2)))))
    before, good = snapshot(opt), opt.state_dict()
    with pytest.raises(errors.CheckpointError, match=text(message) if message else "Adam: "):
        opt.load_state_dict(spoil(good))
    assert snapshot(opt) == before
    opt.load_state_dict(good)
    assert snapshot(opt) == before


# -- all or nothing ------------------------------------------------------------------------------


def test_exact_adam_with_coupled_decay_takes_no_rows_and_says_what_to_write():
    W = ts.parameter(np.ones((5, 2)), name="W")
    message = (
        "Adam(sparse='exact'): expected a dense gradient, since adam_l2 has no closed form for "
        "rows at rest, got a row-sparse one for W (5, 2). Hint: sparse='lazy' moves the touched "
        "rows only; grads.to_dense() pays for all rows."
    )
    with pytest.raises(errors.SparsityError, match=text(message)):
        opt = optim.Adam([W], weight_decay=0.1)
        opt.step(store((W, IndexedSlices([1], np.ones((1, 2)), (5, 2)))))


def test_an_error_in_the_middle_of_a_step_changes_nothing():
    b, W = ts.parameter(np.ones(2)), ts.parameter(np.ones((5, 2)))
    opt = optim.Adam([b, W], weight_decay=0.1)
    dense = store((b, np.ones(2)), (W, np.ones((5, 2))))
    opt.step(dense)
    before = snapshot(opt)
    for _ in range(2):
        with pytest.raises(errors.SparsityError):
            opt.step(store((b, np.ones(2)), (W, IndexedSlices([1], np.ones((1, 2)), (5, 2)))))
        assert snapshot(opt) == before
    opt.step(dense)
    assert opt.state_dict()["steps"] == [2, 2]


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda p, m: 1 / 0, ZeroDivisionError),
        (lambda p, m: (p,), errors.ShapeError),
        (lambda p, m: (p, m, m), errors.ShapeError),
        (lambda p, m: (p[:1], m), errors.ShapeError),
        (lambda p, m: (p.sum(), m), errors.ShapeError),
    ],
    ids=["raises", "too few", "too many", "fewer rows", "another shape"],
)
@pytest.mark.parametrize(
    ("dtype", "settings"),
    [("f8", {}), ("f4", {"average": 0.5}), ("f2", {}), ("f2", {"master": True, "average": 0.5})],
    ids=str,
)
def test_a_formula_that_fails_for_one_parameter_changes_none(spoil, error, dtype, settings):
    @optim.rule(slots=("m",), still=False)
    def faulty(p, g, m, *, lr):
        return spoil(p, m) if len(p) == 3 else (p - lr * g, m + g)

    parameters = [ts.parameter(np.ones(n, dtype)) for n in (2, 3, 4)]
    opt = optim.Optimizer(faulty, parameters, lr=1.0, **settings)
    before = snapshot(opt)
    with pytest.raises(error):
        opt.step(store(*((p, np.ones(p.shape, dtype)) for p in parameters)))
    assert snapshot(opt) == before and opt.state_bytes() == 0
    opt.step(store((parameters[2], np.ones(4, dtype))))
    assert (parameters[2].data == 0).all()
