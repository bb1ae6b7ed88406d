"""Every law on every rule: one table, against optimizers written plainly elsewhere."""

from typing import NamedTuple

import numpy as np
import pytest
import reference_optim as reference
from stepping import store

import tinygrad_sparse as ts
from tinygrad_sparse import errors, optim, testing
from tinygrad_sparse.optim import rules


class Row(NamedTuple):
    """An optimizer with settings, and the rule that these ask for."""

    name: str
    rule: str
    settings: dict

    def __str__(self):
        rest = ", ".join(f"{k}={v}" for k, v in self.settings.items() if k != "lr")
        return f"{self.name}({rest})"

    def make(self, *params, **common):
        return getattr(optim, self.name)(list(params), **self.settings, **common)

    def reference(self, start):
        return getattr(reference, self.name)(np.asarray(start, np.float64))

    @property
    def closed(self):
        """Whether exact takes row-sparse gradients."""
        rule = getattr(rules, self.rule)
        return rule.still or rule.rest is not None


TABLE = [
    Row("SGD", "sgd", {"lr": 0.1}),
    Row("SGD", "sgd_decay", {"lr": 0.02, "weight_decay": 0.1}),
    Row("SGD", "momentum", {"lr": 0.01, "momentum": 0.9}),
    Row("SGD", "momentum", {"lr": 0.01, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.1}),
    Row("SGD", "momentum", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    Row("Adagrad", "adagrad", {"lr": 0.1, "initial": 0.1, "lr_decay": 0.01}),
    Row("Adagrad", "adagrad_decay", {"lr": 0.1, "weight_decay": 0.1}),
    Row("RowwiseAdagrad", "rowwise_adagrad", {"lr": 0.1}),
    Row("RMSprop", "rmsprop", {"lr": 0.01}),
    Row("RMSprop", "rmsprop_momentum", {"lr": 0.01, "momentum": 0.9}),
    Row("RMSprop", "rmsprop_centered", {"lr": 0.01, "alpha": 0.9, "eps": 0.1, "centered": True}),
    Row(
        "RMSprop",
        "rmsprop_centered_momentum",
        {"lr": 0.01, "momentum": 0.9, "eps": 0.1, "centered": True},
    ),
    Row("Adadelta", "adadelta", {"lr": 1.0}),
    Row("FTRL", "ftrl", {"lr": 0.1, "l1": 0.1, "l2": 0.1}),
    Row("Adam", "adam", {"lr": 0.01}),
    Row("Adam", "adam", {"lr": 0.01, "eps": 1e-2, "betas": (0.9, 0.95)}),
    Row("Adam", "adam", {"lr": 0.01, "eps": 1.0}),
    Row("Adam", "adam_l2", {"lr": 0.01, "weight_decay": 0.1}),
    Row("Adam", "amsgrad", {"lr": 0.01, "amsgrad": True}),
    Row("Adam", "amsgrad_l2", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    Row("AdamW", "adamw", {"lr": 0.01, "weight_decay": 0.1}),
    Row("AdamW", "amsgrad", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    Row("NAdam", "nadam", {"lr": 0.01, "weight_decay": 0.1}),
]
every_row = pytest.mark.parametrize("row", TABLE, ids=str)
closed_rows = pytest.mark.parametrize("row", [r for r in TABLE if r.closed], ids=str)
V, D = 30, 3


def slices(rng, dtype, shape=(V, D), n=4, lead=1):
    size = int(np.prod(shape[:lead]))
    values = rng.normal(size=(n, *shape[lead:])).astype(dtype)
    return ts.IndexedSlices(rng.integers(0, size, n), values, shape, lead)


def test_the_table_has_every_optimizer_and_every_rule():
    made = {name for name in optim.__all__ if isinstance(getattr(optim, name), type)}
    assert {row.name for row in TABLE} == made - {"Optimizer", "Plateau", "Rule"}
    declared = {name for name, f in vars(rules).items() if isinstance(f, optim.Rule)}
    assert {row.rule for row in TABLE} == declared
    for row in TABLE:
        assert row.make(ts.parameter(np.ones(2))).rule is getattr(rules, row.rule), row


@every_row
def test_the_public_laws_hold(row):
    testing.check_rule(getattr(optim, row.name), **row.settings)


@every_row
def test_dense_steps_are_the_references(row):
    rng = np.random.default_rng(0)
    start = rng.normal(size=(V, D))
    W, plain = ts.parameter(start), row.reference(start)
    opt = row.make(W)
    for _ in range(30):
        g = rng.normal(size=(V, D))
        opt.step(store(W, g))
        plain.step(g, **row.settings)
    np.testing.assert_allclose(W.data, plain.p, rtol=1e-10, atol=1e-12)


@every_row
def test_no_state_is_kept_that_the_settings_have_no_use_for(row):
    rng = np.random.default_rng(0)
    W, plain = ts.parameter(np.ones((V, D))), row.reference(np.ones((V, D)))
    opt = row.make(W)
    for _ in range(2):
        g = rng.normal(size=(V, D))
        opt.step(store(W, g))
        plain.step(g, **row.settings)
    each = W.nbytes // D if row.name == "RowwiseAdagrad" else W.nbytes
    assert opt.state_bytes() == each * len(plain.kept)
    assert all(slot.any() for slot in opt.state_dict()["slots"][0])


@pytest.mark.parametrize("dtype, rtol", [(np.float64, 1e-10), (np.float32, 1e-5)])
@closed_rows
def test_exact_is_the_dense_run(row, dtype, rtol):
    """200 steps, random rows with repeats, changing rates, reads in between; the reference in f64.

    The second half touches one row a step, so that gaps get long.
    """
    rng = np.random.default_rng(1)
    start = rng.normal(size=(V, D)).astype(dtype)
    W, plain = ts.parameter(start), row.reference(start)
    opt = row.make(W)
    for t in range(200):
        settings = {**row.settings, "lr": row.settings["lr"] * (1 + 0.5 * np.sin(t / 9))}
        opt.lr = settings["lr"]
        scale = float(10.0 ** rng.integers(-6, 1))  # small gradients: there Adam's eps counts
        g = slices(rng, dtype, n=6 if t < 100 else 1) * scale
        opt.step(store(W, g))
        plain.step(g.to_dense().astype(np.float64), **settings)
        if t % 7 == 3:
            ids = rng.integers(0, V, 5)
            np.testing.assert_allclose(W[ids].data, plain.p[ids], rtol, rtol * 0.1)
        if t in (120, 121, 199):
            np.testing.assert_allclose(W.data, plain.p, rtol, rtol * 0.1)


@every_row
def test_exact_without_a_closed_form_is_refused_and_changes_nothing(row):
    W = ts.parameter(np.ones((V, D)))
    opt = row.make(W)
    g = slices(np.random.default_rng(0), np.float64)
    if row.closed:
        opt.step(store(W, g))
        return
    with pytest.raises(errors.SparsityError, match="lazy"):
        opt.step(store(W, g))
    assert (W.data == 1).all() and opt.state_bytes() == 0


@pytest.mark.parametrize("row", [r for r in TABLE if not getattr(rules, r.rule).still], ids=str)
def test_what_is_not_still_moves(row):
    rng = np.random.default_rng(0)
    W = ts.parameter(rng.normal(size=(V, D)))
    opt = row.make(W)
    for _ in range(3):
        opt.step(store(W, rng.normal(size=(V, D))))
    before, slots = W.numpy(), opt.state_dict()["slots"][0]
    opt.step(store(W, np.zeros((V, D))))
    after = [W.data, *opt.state_dict()["slots"][0]]
    pairs = zip(after, [before, *slots], strict=True)
    assert any((now != was).any() for now, was in pairs)


@pytest.mark.parametrize("meaning", ["exact", "lazy"])
@closed_rows
def test_gradients_of_no_rows_and_tables_of_no_size(row, meaning):
    rng = np.random.default_rng(0)
    start = rng.normal(size=(V, D))
    W, plain = ts.parameter(start), row.reference(start)
    opt = row.make(W, sparse=meaning)
    none = ts.IndexedSlices([], np.empty((0, D)), (V, D))
    first = ts.IndexedSlices([4], np.ones((1, D)), (V, D))
    for g in (none, first, none):
        opt.step(store(W, g))
        plain.step(g.to_dense(), **row.settings)
    others = slice(None) if meaning == "exact" else [4]
    if meaning == "exact" or row.rule in ("sgd", "adagrad", "rowwise_adagrad"):
        np.testing.assert_allclose(W.data[others], plain.p[others], rtol=1e-12)
    for shape, ids in (((0, 3), []), ((4, 0), [1, 1])):
        E = ts.parameter(np.empty(shape))
        tiny = row.make(E, sparse=meaning)
        for _ in range(2):
            g = ts.IndexedSlices(ids, np.empty((len(ids), shape[1])), shape)
            with np.errstate(all="ignore"):
                tiny.step(store(E, g))
                tiny.step(store(E, np.empty(shape)))
        assert E.data.shape == shape


@closed_rows
def test_finer_rows_and_coarser_ones_mix(row):
    rng = np.random.default_rng(2)
    shape = (5, 4, 2)
    start = rng.normal(size=shape)
    W, plain = ts.parameter(start), row.reference(start)
    opt = row.make(W)
    for t in range(40):
        g = slices(rng, np.float64, shape, n=2, lead=1 + (t > 10 and t % 3 == 0))
        opt.step(store(W, g))
        plain.step(g.to_dense(), **row.settings)
        if t % 10 == 5:
            np.testing.assert_allclose(W[[1, 3]].data, plain.p[[1, 3]], rtol=1e-10)
    np.testing.assert_allclose(W.data, plain.p, rtol=1e-10, atol=1e-12)


@closed_rows
def test_dense_gradients_among_sparse_ones(row):
    rng = np.random.default_rng(3)
    start = rng.normal(size=(V, D))
    W, plain = ts.parameter(start), row.reference(start)
    opt = row.make(W)
    for t in range(40):
        g = slices(rng, np.float64)
        if t in (0, 20, 21):
            g = g.to_dense() + 0.1
        opt.step(store(W, g))
        plain.step(g if t in (0, 20, 21) else g.to_dense(), **row.settings)
    np.testing.assert_allclose(W.data, plain.p, rtol=1e-10, atol=1e-12)


@closed_rows
def test_maximize_goes_the_other_way(row):
    rng = np.random.default_rng(4)
    start = rng.normal(size=(V, D))
    W, E = ts.parameter(start), ts.parameter(start)
    up, down = row.make(W, maximize=True), row.make(E)
    for _ in range(5):
        g = slices(rng, np.float64)
        up.step(store(W, g))
        down.step(store(E, -g))
    np.testing.assert_array_equal(W.data, E.data)


@pytest.mark.parametrize("meaning", ["exact", "lazy"])
@closed_rows
def test_training_goes_on_bit_for_bit_from_a_state_dict(row, meaning):
    rng = np.random.default_rng(5)
    start = rng.normal(size=(V, D)).astype(np.float32)
    W = ts.parameter(start)
    opt = row.make(W, sparse=meaning)
    gs = [slices(rng, np.float32) for _ in range(40)]
    for g in gs[:20]:
        opt.step(store(W, g))
    state = opt.state_dict()  # before the parameter is saved: the order must not matter
    E = ts.parameter(W.numpy())
    again = row.make(E, sparse=meaning)
    again.load_state_dict(state)
    for g in gs[20:]:
        opt.step(store(W, g))
        again.step(store(E, g))
        np.testing.assert_array_equal(W[[0, 3]].data, E[[0, 3]].data)
    np.testing.assert_array_equal(W.data, E.data)


@every_row
def test_a_step_that_would_write_infinities_writes_nothing(row):
    rng = np.random.default_rng(6)
    W, b = ts.parameter(rng.normal(size=(V, D))), ts.parameter(np.ones(2))
    opt = row.make(b, W, sparse="lazy")
    opt.step(store(W, slices(rng, np.float64)))
    before, slots = W.numpy(), opt.state_dict()["slots"]
    bad = slices(rng, np.float64)
    bad.values[0, 0] = np.nan
    grads = store(W, bad)
    grads[b] = np.ones(2)
    with pytest.raises(errors.TinygradSparseError, match="step: expected finite values"):
        opt.step(grads, error_if_nonfinite=True)
    np.testing.assert_array_equal(W.data, before)
    np.testing.assert_array_equal(b.data, 1)
    for was, now in zip(slots[1], opt.state_dict()["slots"][1], strict=True):
        np.testing.assert_array_equal(was, now)
    assert opt.state_dict()["steps"] == [0, 1]


def test_one_number_a_row_stays_one_number_a_row_whoever_looks_up_parts_of_it():
    W, D = ts.parameter(np.ones((5, 4))), ts.parameter(np.ones((5, 4)))
    rows, dense = optim.RowwiseAdagrad([W], lr=0.1), optim.RowwiseAdagrad([D], lr=0.1)
    for i, j in (([0, 0, 3], [1, 2, 0]), ([3], [3])):
        for p, opt in ((W, rows), (D, dense)):
            with ts.Tape(densify="raise") as tape:
                loss = (p[i, j] ** 2).sum()
            grads = tape.backward(loss)
            opt.step(grads if opt is rows else grads.to_dense())
    np.testing.assert_allclose(W.data, D.data, rtol=1e-15, atol=0)
    assert rows.state_bytes() == dense.state_bytes() == 5 * 8
