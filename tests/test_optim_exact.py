"""sparse="exact" in a training run: reads, long gaps, several optimizers, state by rows."""

import gc
import threading
import weakref
from functools import partial

import numpy as np
import pytest
import reference_optim as reference
from stepping import store

import tinygrad_sparse as ts
from tinygrad_sparse import errors, optim
from tinygrad_sparse.optim import history, slots, state


def one_row(row, V, value=1.0, d=2, dtype=np.float64):
    return ts.IndexedSlices([row], np.full((1, d), value, dtype), (V, d))


MOVING = {
    "momentum": (lambda p: optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1),
                 reference.SGD, {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}),
    "Adam": (lambda p: optim.Adam(p, lr=0.01), reference.Adam, {"lr": 0.01}),
    "AdamW": (lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.1),
              reference.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
}  # fmt: skip
moving = pytest.mark.parametrize("make, plain, settings", MOVING.values(), ids=MOVING)


@moving
def test_a_training_loop_reads_what_a_dense_run_reads(make, plain, settings):
    rng = np.random.default_rng(0)
    start = rng.normal(size=(40, 2))
    W, dense = ts.parameter(start), plain(start)
    opt = make([W])
    for _ in range(60):
        ids = rng.integers(0, 40, 5)
        with ts.Tape(densify="raise") as tape:
            loss = (W[ids] ** 3).sum() + (W[3:5] * W[[7]]).sum()
        plainly = ts.parameter(dense.p)
        with ts.Tape() as again:
            other = (plainly[ids] ** 3).sum() + (plainly[3:5] * plainly[[7]]).sum()
        np.testing.assert_allclose(loss.item(), other.item(), rtol=1e-10)
        opt.step(tape.backward(loss))
        dense.step(again.backward(other).to_dense()[plainly], **settings)
    np.testing.assert_allclose(W.data, dense.p, rtol=1e-10)


@moving
def test_the_step_visits_the_touched_rows_and_reading_settles_once(make, plain, settings):
    W = ts.parameter(np.ones((1000, 2)))
    opt = make([W])
    opt.step(store(W, one_row(3, 1000)))
    opt.step(store(W, one_row(5, 1000)))
    raw = W._array().copy()
    assert (np.delete(raw, [3, 5], axis=0) == 1).all(), "rows at rest were walked"
    once, twice = W.numpy(), W.numpy()
    np.testing.assert_array_equal(once, twice)
    assert (once[3] != raw[3]).all()
    opt.flush()
    np.testing.assert_array_equal(W.data, once)


@moving
def test_very_long_gaps(make, plain, settings):
    """A row that waits for 3000 steps: powers underflow, blocks of history close."""
    W, dense = ts.parameter(np.ones((3, 2))), plain(np.ones((3, 2)))
    opt = make([W])
    for t in range(3001):
        g = one_row(0 if t == 0 else 1, 3, 0.5 + t % 3)
        opt.step(store(W, g))
        dense.step(g.to_dense(), **settings)
    np.testing.assert_allclose(W.data, dense.p, rtol=1e-10)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.99), (0.9, 0.5), (0.99, 0.999), (0, 0.9)])
@pytest.mark.parametrize("eps", [1e-8, 1e-3, 10.0])
@pytest.mark.parametrize("dtype, rtol", [(np.float64, 1e-11), (np.float32, 3e-6)])
def test_adam_at_rest_for_any_eps_beside_the_gradients(betas, eps, dtype, rtol):
    """The path of p alone, far from p's own rounding: start at 0, sizes from 1e-10 to 1e3."""
    sizes = 10.0 ** np.arange(-10, 4)
    start = np.zeros((400, len(sizes)), dtype)
    W, dense = ts.parameter(start), reference.Adam(start.astype(np.float64))
    settings = {"lr": 1e-2, "betas": betas, "eps": eps}
    opt = optim.Adam([W], **settings)
    rng = np.random.default_rng(0)
    for _ in range(150):
        g = ts.IndexedSlices(
            rng.integers(0, 400, 2), (rng.normal(size=(2, 1)) * sizes).astype(dtype), start.shape
        )
        opt.step(store(W, g))
        dense.step(g.to_dense().astype(np.float64), **settings)
    scale = abs(dense.p).max(0)  # of each column: some sizes barely move p
    assert (abs(W.data - dense.p) <= rtol * scale + 1e-40).all()


def test_settings_may_change_on_the_way():
    rng = np.random.default_rng(1)
    start = rng.normal(size=(20, 2))
    W, dense = ts.parameter(start), reference.SGD(start)
    opt = optim.SGD([W], lr=0.1)
    dense.kept["b"] = np.zeros_like(start)
    plans = [{"momentum": 0.0}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"nesterov": True}]
    settings = {"lr": 0.1}
    for plan in [*plans, {"weight_decay": 0.0}]:
        settings |= plan
        opt.groups[0].update(plan)
        for _ in range(20):
            g = ts.IndexedSlices(rng.integers(0, 20, 2), rng.normal(size=(2, 2)), (20, 2))
            opt.step(store(W, g))
            dense.step(g.to_dense(), **settings)
    np.testing.assert_allclose(W.data, dense.p, rtol=1e-10)


def test_from_lazy_to_exact_and_back():
    W = ts.parameter(np.ones((10, 2)))
    opt = optim.Adam([W], lr=0.1, sparse="lazy")
    opt.step(store(W, one_row(1, 10)))
    lazy = W.numpy()
    opt.groups[0]["sparse"] = "exact"
    opt.step(store(W, one_row(2, 10)))
    assert (W.data[1] < lazy[1]).all(), "row 1 has momentum: exact moves it"
    opt.groups[0]["sparse"] = "lazy"
    exact = W.numpy()
    opt.step(store(W, one_row(2, 10)))
    np.testing.assert_array_equal(W.data[1], exact[1])


@pytest.mark.parametrize("second", [lambda p: optim.Adam(p, lr=0.02), lambda p: optim.SGD(p, 0.1)])
def test_two_optimizers_on_one_parameter_take_turns(second):
    rng = np.random.default_rng(2)
    start = rng.normal(size=(12, 2))
    W, dense = ts.parameter(start), ts.parameter(start)
    ours, theirs = [optim.Adam([W]), second([W])], [optim.Adam([dense]), second([dense])]
    for t in range(40):
        g = ts.IndexedSlices(rng.integers(0, 12, 2), rng.normal(size=(2, 2)), (12, 2))
        turn = (t // 3) % 2
        ours[turn].step(store(W, g))
        theirs[turn].step(store(dense, g.to_dense()))
    np.testing.assert_allclose(W.data, dense.data, rtol=1e-10)


def test_a_parameter_set_by_hand_takes_the_missed_steps_first():
    W, dense = ts.parameter(np.ones((4, 2))), ts.parameter(np.ones((4, 2)))
    opt, plain = optim.Adam([W], lr=0.1), optim.Adam([dense], lr=0.1)
    for row in (0, 1, 1):
        opt.step(store(W, one_row(row, 4)))
        plain.step(store(dense, one_row(row, 4).to_dense()))
    for p in (W, dense):
        p._overwrite(np.full((4, 2), 5.0))
    np.testing.assert_array_equal(W.data, 5.0)
    opt.step(store(W, one_row(2, 4)))
    plain.step(store(dense, one_row(2, 4).to_dense()))
    np.testing.assert_allclose(W.data, dense.data, rtol=1e-12)


def test_an_optimizer_that_is_gone_has_left_nothing_undone_and_no_cycle():
    W, dense = ts.parameter(np.ones((4, 2))), ts.parameter(np.ones((4, 2)))
    opt, plain = optim.Adam([W]), optim.Adam([dense])
    for row in (0, 1, 2):
        opt.step(store(W, one_row(row, 4)))
        plain.step(store(dense, one_row(row, 4).to_dense()))
    gone, held = weakref.ref(opt), weakref.ref(W)
    gc.disable()
    try:
        del opt
        assert gone() is None
        np.testing.assert_allclose(W.data, dense.data, rtol=1e-12)
        opt = optim.Adam([W])
        opt.step(store(W, one_row(1, 4)))
        del opt, W
        assert held() is None
    finally:
        gc.enable()


def test_threads_that_read_at_once_settle_once():
    rng = np.random.default_rng(3)
    W, dense = ts.parameter(np.ones((2000, 2))), ts.parameter(np.ones((2000, 2)))
    opt, plain = optim.Adam([W]), optim.Adam([dense])
    for _ in range(5):
        g = ts.IndexedSlices(rng.integers(0, 2000, 900), rng.normal(size=(900, 2)), (2000, 2))
        opt.step(store(W, g))
        plain.step(store(dense, g.to_dense()))
    readers = [threading.Thread(target=lambda i=i: W[i::7].data.sum()) for i in range(7)]
    readers += [threading.Thread(target=W.numpy) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    np.testing.assert_allclose(W.data, dense.data, rtol=1e-12)


@pytest.mark.parametrize("make", [optim.Adam, optim.AdamW, optim.NAdam])
@pytest.mark.parametrize(("eps", "beta2"), [(0.0, 0.999), (0.0, 0.0), (1e-8, 0.0)])
def test_settings_without_a_finite_step_at_rest_are_refused(make, eps, beta2):
    W = ts.parameter(np.ones((4, 2)))
    opt = make([W], eps=eps, betas=(0.9, beta2))
    with pytest.raises(errors.SparsityError, match="eps > 0"):
        opt.step(store(W, one_row(1, 4)))
    np.testing.assert_array_equal(W.data, 1)


# -- state by rows -------------------------------------------------------------------------------


@pytest.fixture
def compact(monkeypatch):
    """Tables of any size keep state for the rows touched only."""
    monkeypatch.setattr(slots, "COMPACT", 0)


@pytest.mark.parametrize("name, settings", [
    ("SGD", {"lr": 0.01, "momentum": 0.9}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "initial": 0.5}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9}),
    ("Adam", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
])  # fmt: skip
def test_state_by_rows_is_the_same_training(compact, name, settings):
    rng = np.random.default_rng(4)
    start = rng.normal(size=(5000, 4))
    W, dense = ts.parameter(start), getattr(reference, name)(start)
    opt = getattr(optim, name)([W], **settings)
    for t in range(60):
        ids = rng.integers(0, 60 if t < 40 else 5000, 30)
        g = ts.IndexedSlices(ids, rng.normal(size=(30, 4)), (5000, 4))
        opt.step(store(W, g))
        dense.step(g.to_dense(), **settings)
        if t == 20:
            np.testing.assert_allclose(W[2900:3100].data, dense.p[2900:3100], rtol=1e-10)
        if t in (30, 45):
            np.testing.assert_allclose(W.data, dense.p, rtol=1e-10, atol=1e-13)
        if t == 35:
            saved, weights = opt.state_dict(), W.numpy()
            W = ts.parameter(weights)
            opt = getattr(optim, name)([W], **settings)
            opt.load_state_dict(saved)
            again = opt.state_dict()
            for old, new in zip(saved["slots"][0], again["slots"][0], strict=True):
                np.testing.assert_array_equal(old, new)
    np.testing.assert_allclose(W.data, dense.p, rtol=1e-10, atol=1e-13)


def test_state_by_rows_becomes_full_tables_when_those_are_no_larger(compact):
    W = ts.parameter(np.ones((4000, 4)))
    opt = optim.Adam([W], sparse="lazy")
    opt.step(store(W, ts.IndexedSlices(np.arange(100), np.ones((100, 4)), (4000, 4))))
    few = opt.state_bytes()
    opt.step(store(W, ts.IndexedSlices(np.arange(3000), np.ones((3000, 4)), (4000, 4))))
    assert few < 2 * W.nbytes / 2 < opt.state_bytes() == 2 * W.nbytes
    m = opt.state_dict()["slots"][0][0]
    assert (m[:100] > m[100:3000].max()).all() and (m[3000:] == 0).all()


@pytest.mark.parametrize(
    "make",
    [
        optim.Adam,
        optim.AdamW,
        lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=1e-4),
    ],
    ids=["Adam", "AdamW", "SGD"],
)
def test_one_percent_of_ten_million_rows(make):
    """Under 5 % of the full tables, also where rows that were never touched have a velocity.

    The table itself is untouched memory but for its rows.
    """
    V, d = 10_000_000, 64
    W = ts.parameter(np.zeros((1, d), np.float32))
    W._data = np.zeros((V, d), np.float32)
    opt = make([W])
    ids = np.random.default_rng(0).permutation(V // 100) * 100
    for part in np.split(ids, 10):
        values = np.ones((len(part), d), np.float32)
        opt.step(store(W, ts.IndexedSlices(part, values, (V, d))))
    assert opt.state_bytes() < 0.05 * len(opt.rule.slots) * W.nbytes


def test_a_long_history_starts_anew_and_stays_small(monkeypatch):
    rng = np.random.default_rng(5)
    W, dense = ts.parameter(np.ones((50, 2))), reference.AdamW(np.ones((50, 2)))
    opt = optim.AdamW([W], weight_decay=0.1)
    monkeypatch.setattr(state.State, "outgrown", lambda self: self.history.nbytes > 2**17)
    sizes = []
    for _ in range(1200):
        g = ts.IndexedSlices(rng.integers(0, 50, 1), rng.normal(size=(1, 2)), (50, 2))
        opt.step(store(W, g))
        dense.step(g.to_dense(), weight_decay=0.1)
        sizes.append(opt.state_bytes())
    assert max(sizes) < 2**19 and max(np.diff(sizes)) > 0 > min(np.diff(sizes))
    np.testing.assert_allclose(W.data, dense.p, rtol=1e-9)


def test_history_answers_for_every_step_and_any_number_of_rows():
    """Composed block by block it is what composing step by step gives."""
    adam = optim.rules.adam.rest(optim.rules.adam, np.dtype(np.float64))
    log = history.History(adam, 5)
    carries = []
    for step in range(6, 6 + 3 * history.BLOCK + 7):
        hyper = {"lr": 0.1 / step, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "step": step}
        carry, kept = adam.one(hyper)
        log.push(carry, kept)
        carries.append(carry)
    total = adam.same()[:, None]
    wanted = [total]
    for carry in reversed(carries):
        total = adam.chain(carry[:, None], total)
        wanted.append(total)
    wanted = np.concatenate(wanted[::-1], axis=1)
    steps = np.arange(5, log.now + 1)
    np.testing.assert_allclose(log.since(steps), wanted, rtol=1e-11)
    many = np.repeat(steps[::-2], 3)
    factors, columns = log.factors(many)
    assert len(factors[0]) == len(steps[::-2])
    np.testing.assert_array_equal(factors[:, columns], adam.factors(log.since(many)))


# -- float16, counts by row, schedules -----------------------------------------------------------


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_master_weights_keep_what_float16_would_round_away(name):
    """1e-4 of a step of 1 is below float16's resolution."""
    settings = {"lr": 1e-4, "momentum": 0.5} if name == "SGD" else {"lr": 1e-4}
    W, plain = ts.parameter(np.ones((6, 2), np.float16)), getattr(reference, name)(np.ones((6, 2)))
    stuck = ts.parameter(np.ones((6, 2), np.float16))
    opt = getattr(optim, name)([W], master=True, **settings)
    bare = getattr(optim, name)([stuck], **settings)
    for _ in range(50):
        g = one_row(1, 6, dtype=np.float16)
        opt.step(store(W, g))
        bare.step(store(stuck, g))
        plain.step(g.to_dense().astype(np.float64), **settings)
    np.testing.assert_array_equal(W.data, plain.p.astype(np.float16))
    assert (W.data[1] < 1).all()
    W._overwrite(np.full((6, 2), 3, np.float16))
    for row in (2, 1):
        opt.step(store(W, one_row(row, 6, 0.0, dtype=np.float16)))
    assert (abs(W.data.astype(float) - 3) < 0.01).all(), "set by hand: that is what counts"


def test_float16_gradients_are_squared_in_float32():
    W = ts.parameter(np.zeros((3, 2), np.float16))
    opt = optim.Adam([W], lr=0.1)
    opt.step(store(W, one_row(1, 3, 1000.0, dtype=np.float16)))
    np.testing.assert_allclose(W.data[1].astype(float), -0.1, rtol=1e-3)


def test_counts_by_row_correct_the_bias_of_each_row():
    W = ts.parameter(np.zeros((5, 2)))
    opt = optim.Adam([W], lr=0.1, sparse="lazy", count="row")
    for _ in range(9):
        opt.step(store(W, one_row(0, 5)))
    opt.step(store(W, one_row(1, 5)))
    np.testing.assert_allclose(W.data[1], -0.1, rtol=1e-6)  # as a first step is
    saved = opt.state_dict()
    assert saved["counts"][0].tolist() == [9, 1, 0, 0, 0]
    again = optim.Adam([W], lr=0.1, sparse="lazy", count="row")
    again.load_state_dict(saved)
    again.step(store(W, one_row(1, 5)))
    np.testing.assert_allclose(W.data[1], -0.2, rtol=1e-6)
    with pytest.raises(errors.SparsityError, match="count='all' with sparse='exact'"):
        optim.Adam([W], count="row")


@pytest.mark.parametrize("V", [40, 300_000])  # slots as full tables, and by rows touched
def test_counts_by_row_of_more_rows_than_a_block(monkeypatch, V):
    rng = np.random.default_rng(0)
    batches = [(rng.integers(0, 40, 30), rng.normal(size=(30, 2))) for _ in range(4)]
    results = []
    for block in (2**18, 64):
        monkeypatch.setattr("tinygrad_sparse.backend.numpy.BLOCK", block)
        W = ts.parameter(np.ones((V, 2)))
        opt = optim.Adam([W], sparse="lazy", count="row")
        for ids, values in batches:
            opt.step(store(W, ts.IndexedSlices(ids, values, (V, 2))))
        results.append(W.numpy()[:40])
    np.testing.assert_array_equal(*results)


def test_a_setting_may_be_a_schedule():
    W, dense = ts.parameter(np.ones((4, 2))), reference.SGD(np.ones((4, 2)))
    lr, momentum = optim.cosine(0.1, 20), optim.linear_decay(0.9, 20, 0.5)
    opt = optim.SGD([W], lr=lr, momentum=momentum)
    for t in range(1, 12):
        opt.step(store(W, one_row(t % 3, 4)))
        dense.step(one_row(t % 3, 4).to_dense(), lr=lr(t), momentum=momentum(t))
    again = optim.SGD([W], lr=lr, momentum=momentum)
    again.load_state_dict(opt.state_dict())
    assert again.calls == 11
    again.step(store(W, one_row(1, 4)))
    dense.step(one_row(1, 4).to_dense(), lr=lr(12), momentum=momentum(12))
    np.testing.assert_allclose(W.data, dense.p, rtol=1e-12)


# -- averages ------------------------------------------------------------------------------------


@optim.rule(slots=("m",), rest=optim.along(lambda m: np.sign(m)))
def lion(p, g, m, *, lr, beta1, beta2, weight_decay):
    move = np.sign(beta1 * m + (1.0 - beta1) * g)
    return p - lr * (move + weight_decay * p), beta2 * m + (1.0 - beta2) * g


LION = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1}
AVERAGED = {
    "SGD": lambda p, **how: optim.SGD([p], lr=0.1, **how),
    "momentum": lambda p, **how: optim.SGD([p], lr=0.01, momentum=0.9, weight_decay=0.1, **how),
    "Adagrad": lambda p, **how: optim.Adagrad([p], lr=0.1, **how),
    "RMSprop": lambda p, **how: optim.RMSprop([p], lr=0.01, **how),
    "Adam": lambda p, **how: optim.Adam([p], lr=0.01, **how),
    "replayed": lambda p, **how: optim.Adam([p], lr=0.01, betas=(0.9, 0.6), eps=0.1, **how),
    "AdamW": lambda p, **how: optim.AdamW([p], lr=0.01, weight_decay=0.1, **how),
    "Lion": lambda p, **how: optim.Optimizer(lion, [p], **LION, **how),
}


@pytest.mark.parametrize("meaning", ["exact", "lazy"])
@pytest.mark.parametrize("rows_only", [False, True], ids=["full", "by rows"])
@pytest.mark.parametrize("make", AVERAGED.values(), ids=AVERAGED)
def test_an_average_is_the_average_of_what_a_walk_would_see(monkeypatch, make, rows_only, meaning):
    monkeypatch.setattr(slots, "COMPACT", 0 if rows_only else 2**30)
    rng = np.random.default_rng(6)
    V = 400 if rows_only else 20
    W = ts.parameter(rng.normal(size=(V, 4)))
    watched = ts.parameter(W.numpy())
    opt, other = make(W, average=0.9, sparse=meaning), make(watched, sparse=meaning)
    mean = W.numpy()
    for t in range(160):
        ids = rng.integers(0, V, 2)
        g = ts.IndexedSlices(ids, rng.normal(size=(2, 4)), (V, 4))
        if t == 50 and not rows_only:
            g = g.to_dense()
        opt.step(store(W, g))
        other.step(store(watched, g))
        mean = 0.9 * mean + 0.1 * watched.numpy()
        if t % 40 == 7:
            np.testing.assert_allclose(opt.averages(W), mean, rtol=1e-9, atol=1e-12)
        if t == 100:
            saved = opt.state_dict()
            opt = make(W, average=0.9, sparse=meaning)
            opt.load_state_dict(saved)
    np.testing.assert_allclose(opt.averages(W), mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(W.data, watched.data, rtol=1e-10, atol=1e-13)
    before = W.numpy()
    with opt.averaged():
        np.testing.assert_allclose(W.data, mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(W.data, before)


def test_lion_of_the_documentation_is_exact():
    rng = np.random.default_rng(7)
    start = rng.normal(size=(20, 2))
    W, dense = ts.parameter(start), reference.Lion(start)
    opt = optim.Optimizer(lion, [W], **LION)
    for _ in range(200):
        g = ts.IndexedSlices(rng.integers(0, 20, 2), rng.normal(size=(2, 2)), (20, 2))
        opt.step(store(W, g))
        dense.step(g.to_dense(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    np.testing.assert_allclose(W.data, dense.p, rtol=1e-10)


# -- optimizers that share a table, and rows that wait while nothing moves ----------------------


def beside_dense(dtype, steps, *makers):
    """Rows of a table that several optimizers step in turn, or that is set, by rows and dense."""
    tables = []
    for dense in (False, True):
        W = ts.parameter(np.ones((3, 1), dtype))
        optimizers = [make([W]) for make in makers]
        for number, row in steps:
            if number is None:
                W.assign(np.full((3, 1), row, dtype))
                continue
            g = ts.IndexedSlices([row], np.ones((1, 1), dtype), (3, 1))
            optimizers[number].step(store(W, g.to_dense() if dense else g))
        tables.append(W.numpy())
        averages = [o.averages(W) for o in optimizers if o.groups[0]["average"]]
        tables[-1] = np.concatenate([tables[-1], *averages])
    return tables


def warming_up(calls):
    return 0.0 if calls < 3 else 1.0


MOMENTUM = partial(optim.SGD, lr=1.0, momentum=0.9)
WARMING = partial(optim.SGD, lr=warming_up, momentum=0.9)


@pytest.mark.parametrize("dtype, steps, makers", [
    ("f2", [(0, 0), (0, 1), (0, 1), (1, 1), (1, 0)],
     [MOMENTUM, partial(optim.SGD, lr=0.1, master=True)]),
    ("f8", [(0, 0), (0, 1), (0, 1), (1, 1)], [MOMENTUM, partial(optim.SGD, lr=0.1, average=0.5)]),
    ("f2", [(0, 0), (0, 1), (None, 8), (0, 0)], [partial(WARMING, master=True)]),
    ("f8", [(0, 0), (0, 1), (None, 9), (0, 2)], [partial(WARMING, weight_decay=0.5)]),
    ("f8", [(0, 0), (0, 1), (1, 0), (0, 2)],
     [partial(WARMING, weight_decay=0.5), partial(optim.SGD, lr=1.0)]),
    ("f8", [(0, 0), (1, 1), (0, 1), (0, 1), (1, 1), (0, 2), (1, 2), (1, 0)],
     [MOMENTUM, partial(optim.SGD, lr=0.1, average=0.5)]),
], ids=["master", "average", "set, master", "set, decay", "moved by another",
        "average of moving"])  # fmt: skip
def test_who_copies_rows_or_sets_them_finds_them_up_to_date(dtype, steps, makers):
    rows, dense = beside_dense(dtype, steps, *makers)
    np.testing.assert_allclose(rows, dense, rtol=2e-3 if dtype == "f2" else 1e-12)


@pytest.mark.parametrize("name", ["AdamW", "NAdam"])
@pytest.mark.parametrize("decay", [0.99, 1.0, 1.5, 1.9])
def test_decay_that_turns_the_sign(name, decay):
    """lr · weight_decay above 1: what a row missed is no mean any more, and is replayed."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(6, 5))
    settings = {"lr": 1.0, "eps": 1e-3, "weight_decay": decay}
    tables = [ts.parameter(start), ts.parameter(start)]
    optimizers = [getattr(optim, name)([W], **settings) for W in tables]
    for _ in range(40):
        g = ts.IndexedSlices(rng.integers(0, 6, 1), rng.normal(size=(1, 5)) * 1e-3, (6, 5))
        for W, opt, one in zip(tables, optimizers, (g, g.to_dense()), strict=True):
            opt.step(store(W, one))
    np.testing.assert_allclose(tables[0].data, tables[1].data, rtol=1e-9, atol=1e-12)
