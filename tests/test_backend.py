"""The numba adapter computes what the NumPy adapter computes: a law for each function."""

import mmap
import os
import platform
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tinygrad_sparse as ts
from tinygrad_sparse.backend import numpy as reference
from tinygrad_sparse.backend import threads
from tinygrad_sparse.errors import ShapeError, TinygradSparseError
from tinygrad_sparse.optim import rest, rules
from tinygrad_sparse.optim.history import History
from tinygrad_sparse.optim.optimizer import Optimizer
from tinygrad_sparse.optim.rule import Rule, rule

RULES = {name: rule for name, rule in vars(rules).items() if isinstance(rule, Rule)}
EXACT = {"sgd", "adagrad", "adam"}  # formulas of +, -, *, / and sqrt: the same bits


@pytest.fixture(scope="module")
def compiled():
    pytest.importorskip("numba", reason="numba is not installed: the NumPy adapter is alone")
    from tinygrad_sparse.backend import numba

    return numba


law = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def lookups(draw, dtypes=("f2", "f4", "f8")):
    """A table, ids of its rows and values for them: on both sides of every threshold."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from(dtypes))
    V = draw(st.sampled_from([1, 3, 100, 5000]))  # many repeats ... none
    n = draw(st.sampled_from([0, 1, 2, 127, 128, 129, 1000]))
    row = draw(st.sampled_from([(), (1,), (2, 3), (16,), (33,), (300,)]))
    ids = rng.integers(0, V, n)
    order = draw(st.sampled_from(["random", "sorted", "strided"]))
    ids = np.sort(ids) if order == "sorted" else np.repeat(ids, 2)[::2] if n else ids
    table = rng.uniform(0.5, 2.0, (V, *row)).astype(dtype)
    values = rng.normal(size=(n, *row)).astype(dtype)
    if draw(st.booleans()):
        values = np.broadcast_to(values.reshape(-1)[:1].sum(), values.shape).astype(dtype)
    return table, ids, values


def assert_close(got, wanted, context=None, near=None):
    """As near as rounding lets them be, and, where `near` is what `wanted` becomes if the last
    digits of the input change, by eight times that."""
    tolerance = {"f2": 2e-3, "f4": 1e-5, "f8": 1e-13}[wanted.dtype.str[1:]]
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    got, wanted = got.astype(float), wanted.astype(float)
    if near is not None:
        with np.errstate(invalid="ignore"):  # float16 overflows, in both
            moves = 8 * np.abs(near.astype(float) - wanted)
            ill = np.isfinite(moves) & (moves > tolerance * (30 + np.abs(wanted)))
            assert (np.abs(got - wanted)[ill] <= moves[ill]).all(), context
        got = np.where(ill, wanted, got)
    np.testing.assert_allclose(got, wanted, tolerance, tolerance * 30, err_msg=str(context))


@law
@given(lookups(dtypes=("f2", "f4", "f8", "i8", "u1")), st.sampled_from([1, 2]), st.booleans())
def test_take_rows(compiled, lookup, lead, far):
    table, ids, _ = lookup
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "FAR", 0 if far else compiled.FAR)
        for rows in (ids, ids.reshape(1, -1), ids.reshape(-1, 1)):
            got = compiled.take_rows(table, rows)
            np.testing.assert_array_equal(got, table[rows])
            assert got.flags.writeable and got.dtype == table.dtype
        if table.ndim > lead:
            flat = ids * int(np.prod(table.shape[1:lead]))
            got = compiled.take_rows(table, flat, lead)
            np.testing.assert_array_equal(got, table.reshape(-1, *table.shape[lead:])[flat])
        np.testing.assert_array_equal(compiled.take_rows(table[::-1], ids), table[::-1][ids])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "?"])
@pytest.mark.parametrize("given", [(), (1,), (1, 1), (3,), (2, 1), (0,)])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0, 3), (4, 2, 3), (2, 0), (-1,)])
def test_broadcast_to_is_numpys(given, shape, dtype):
    x = np.ones((*given, 2), dtype)[..., 0]
    try:
        wanted = np.broadcast_to(x, shape)
    except ValueError:
        with pytest.raises(ValueError):
            reference.broadcast_to(x, shape)
        return
    got = reference.broadcast_to(x, shape)
    np.testing.assert_array_equal(got, wanted, strict=True)
    assert not got.flags.writeable and (not got.size or np.shares_memory(got, x))


@law
@given(lookups())
def test_sum_duplicates(compiled, lookup):
    _, ids, values = lookup
    rows, sums = compiled.sum_duplicates(ids, values)
    wanted_rows, wanted = reference.sum_duplicates(ids, values)
    assert rows.dtype == np.int64
    np.testing.assert_array_equal(rows, wanted_rows)
    assert_close(sums, wanted)
    if len(rows) == len(ids):
        np.testing.assert_array_equal(sums, wanted)


@law
@given(lookups())
def test_scatters(compiled, lookup):
    table, ids, values = lookup
    got, wanted = table.copy(), table.copy()
    assert compiled.scatter_add_rows(got, ids, values) is got
    assert_close(got, reference.scatter_add_rows(wanted, ids, values))
    size = len(table) + 3
    wanted = reference.scatter_rows(ids, values, size)
    assert_close(compiled.scatter_rows(ids, values, size), wanted)


@law
@given(lookups(), st.sampled_from(["sum", "mean", "weights"]), st.integers(0, 20))
def test_embedding_bag(compiled, lookup, mode, bags):
    table, ids, _ = lookup
    cuts = np.sort(np.random.default_rng(bags).integers(0, len(ids) + 1, bags))
    starts = np.concatenate([[0], cuts, [len(ids)]])
    weights = np.linspace(-1, 1, len(ids)).astype(table.dtype) if mode == "weights" else None
    got = compiled.embedding_bag(table, ids, starts, weights, mode == "mean")
    assert_close(got, reference.embedding_bag(table, ids, starts, weights, mode == "mean"))


@st.composite
def groups(draw):
    """Two tables, ids of their rows by the group, and weights, some of them 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from(["f2", "f4", "f8"]))
    S, m, n = (draw(st.integers(0, size)) for size in (5, 18, 43))
    d = draw(st.sampled_from([0, 1, 3, 4, 8, 31, 64, 100, 133]))
    x, y = (rng.normal(size=(V, d)).astype(dtype) for V in (7, 500))
    w = (rng.normal(size=(S, m, n)) * (rng.random((S, m, n)) < 0.6)).astype(dtype)
    return x, y, rng.integers(0, 7, (S, m)), rng.integers(0, 500, (S, n)), w


@law
@given(groups())
def test_products_of_looked_up_rows(compiled, group):
    x, y, rows, columns, w = group
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "PRODUCTS", 0)  # kernels for small ones too
        near = np.abs(x).max(initial=0) * np.abs(y).max(initial=0) * x.shape[1]
        got, wanted = (a.row_products(x, y, rows, columns) for a in (compiled, reference))
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, 0, near * 2 * np.finfo(x.dtype).eps)
        turned = np.ascontiguousarray(w.swapaxes(1, 2)).swapaxes(1, 2)
        near = np.abs(w).sum(-1).max(initial=0) * np.abs(y).max(initial=0)
        wanted = reference.weighted_rows(w, y, columns)
        for weights in (w, turned):
            got = compiled.weighted_rows(weights, y, columns)
            assert got.dtype == wanted.dtype and got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, 0, near * 4 * np.finfo(x.dtype).eps)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_of_zero_leaves_out_what_is_not_finite(compiled, monkeypatch, dtype, bad):
    monkeypatch.setattr(compiled, "PRODUCTS", 0)
    w = np.array([[[1, 0, 2], [0, 0, 0]], [[1, 2, 3], [0, -1, 1]]], dtype)
    y = np.array([[1, 2], [3, bad], [4, 5], [7, 8]], dtype)
    ids = np.array([[0, 1, 2], [3, 1, 0]])
    wanted = [[[9, 12], [0, 0]], [[16, bad], [-2, -bad]]]
    for adapter in (compiled, reference):
        np.testing.assert_array_equal(adapter.weighted_rows(w, y, ids), np.array(wanted, dtype))


@pytest.mark.filterwarnings("ignore:invalid value")  # inf - inf, in both
@pytest.mark.parametrize("name", ["logistic_loss", "logistic_slope"])
@pytest.mark.parametrize("size", [1.0, 20.0, 1e4, np.inf, np.nan])
def test_the_logistic_loss(compiled, name, size):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(50, 43)) * size).astype("f4")
    y, w = rng.integers(0, 2, x.shape).astype("f4"), rng.normal(size=x.shape).astype("f4")
    got = getattr(compiled, name)(x, y, w)
    wanted = getattr(reference, name)(*(a.astype("f8") for a in (x, y, w)))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, 1e-6, 1e-6 * min(size, 1e4))
    for odd in (y[0], y.astype("f8"), y[:, ::-1]):  # what the kernel is not for
        np.testing.assert_array_equal(
            getattr(compiled, name)(x, odd, w), getattr(reference, name)(x, odd, w)
        )


@pytest.mark.parametrize("name", RULES)
@law
@given(lookup=lookups(), dense=st.booleans(), step=st.integers(1, 1000))
def test_every_optimizer_formula(compiled, name, lookup, dense, step):
    rule, (table, ids, values) = RULES[name], lookup
    slots = [np.abs(table[::-1]) * (1 + k) for k in range(len(rule.slots))]
    hyper = {key: 0.1 + 0.05 * k for k, key in enumerate(compiled.keywords(rule.formula))}
    if "step" in hyper:
        hyper["step"] = step
    if dense:
        rows, values = ..., np.resize(values, table.shape) if values.size else table
    else:
        rows = ids
    results = []
    moved = values * (1 + 4 * np.finfo(values.dtype).eps)
    for adapter, given_values in (
        (compiled, values), (reference, values), (reference, moved.astype(values.dtype)),
    ):  # fmt: skip
        arrays = [np.ascontiguousarray(a).copy() for a in (table, *slots)]
        before = [a.copy() for a in arrays]
        with np.errstate(all="ignore"):  # float16 squares overflow, in both
            write = adapter.plan_update(
                rule.formula, rows, given_values, arrays[0], arrays[1:], hyper
            )
        for a, b in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(a, b, err_msg="planned, not written")
        with np.errstate(all="ignore"):  # they are cast here
            write()
        results.append(arrays)
    repeats = rows is not ... and len(np.unique(ids)) < len(ids)
    for got, wanted, near in zip(*results, strict=True):
        if name in EXACT and not repeats:
            np.testing.assert_array_equal(got, wanted)
        else:
            assert_close(got, wanted, name, near)


@pytest.mark.parametrize("name", ["adagrad", "adam"])
@law
@given(lookup=lookups())
def test_slots_may_have_the_rows_elsewhere(compiled, name, lookup):
    rule, (table, ids, values) = RULES[name], lookup
    slots = [np.abs(table) + k for k in range(len(rule.slots))]
    place = np.random.default_rng(len(ids)).permutation(len(table))  # of each row in the slots
    hyper = dict.fromkeys(compiled.keywords(rule.formula), 0.5)
    straight, moved = table.copy(), table.copy()
    wanted, got = [s.copy() for s in slots], [np.empty_like(s) for s in slots]
    for a, b in zip(got, slots, strict=True):
        a[place] = b
    for adapter in (compiled, reference):
        with np.errstate(all="ignore"):  # float16 squares overflow
            args = rule.formula, ids, values
            adapter.plan_update(*args, straight, wanted, hyper)()
            adapter.plan_update(*args, moved, got, hyper, place[ids])()
        np.testing.assert_array_equal(moved, straight)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a[place], b)


@law
@given(lookups(dtypes=("f4", "f8")), st.sampled_from(sorted(EXACT)), st.booleans())
def test_update_rows_answers_and_writes_nothing(compiled, lookup, name, dense):
    rule, (table, ids, values) = RULES[name], lookup
    rows, first = np.unique(ids, return_index=True)
    rows, g = (..., table[::-1].copy()) if dense else (rows, values[first])
    arrays = [np.abs(table) + k for k in range(1 + len(rule.slots))]
    before = [a.copy() for a in arrays]
    hyper = dict.fromkeys(compiled.keywords(rule.formula), 0.5)
    args = rule.formula, rows, g, arrays[0], arrays[1:], hyper
    for got, wanted in zip(compiled.update_rows(*args), reference.update_rows(*args), strict=True):
        np.testing.assert_array_equal(got, wanted)
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shape", [(3000, 16), (4096 * 5,), (9999,), (1500, 7), (64, 128)])
def test_a_dense_update_is_cut_into_blocks_that_fit(compiled, shape):
    rng = np.random.default_rng(0)
    table, g = rng.normal(size=(2, *shape)).astype(np.float32)
    wanted = table - np.float32(0.5) * g
    compiled.plan_update(RULES["sgd"].formula, ..., g, table, [], {"lr": 0.5})()
    np.testing.assert_array_equal(table, wanted)


@pytest.mark.parametrize("name", sorted(EXACT))
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_these_formulas_are_compiled(compiled, name, dtype):
    rule, n = RULES[name], 200
    arrays = [np.ones((n, 16), dtype) for _ in range(1 + len(rule.slots))]
    hyper = dict.fromkeys(compiled.keywords(rule.formula), 0.5)
    g = np.ones((n, 16), dtype)
    compiled.plan_update(rule.formula, np.arange(n), g, arrays[0], arrays[1:], hyper)
    assert compiled._loops[rule.formula][np.dtype(dtype), len(arrays)] is not None


# -- rows at rest ----------------------------------------------------------------------------------


@law
@given(
    lookups(), st.integers(1, 9), st.booleans(), st.booleans(), st.integers(0, 2**32),
)  # fmt: skip
def test_late_rows_are_found_once(compiled, lookup, now, all_rows, compact, seed):
    table, ids, _ = lookup
    rng = np.random.default_rng(seed)
    ids = np.resize(ids, 20 * len(ids))  # on both sides of the threshold
    stamps = rng.integers(0, 10, len(table)).astype(np.int32)
    index = None
    if compact:
        index = rng.permutation(len(table)).astype(np.int32) + 1
        index[rng.random(len(table)) < 0.3] = 0
    before, results = stamps.copy(), []
    for adapter in (compiled, reference):
        rows, places, last = adapter.late_rows(ids, index, stamps, now, all_rows)
        np.testing.assert_array_equal(stamps, before)
        np.testing.assert_array_equal(last, stamps[places])
        order = np.argsort(rows)
        results.append((rows[order], places[order]))
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(got, wanted)
    for row in np.unique(ids):
        place = row if index is None else index[row] - 1
        late = place >= 0 and stamps[place] < now and (all_rows or stamps[place] > 0)
        assert (row in results[0][0]) == late


@pytest.mark.parametrize("rows", [[3] * 3000 + [500], [-1] * 3000])
def test_late_rows_reach_no_other_memory(compiled, rows):
    stamps = np.zeros(500, np.int32)
    if rows[-1] < 0:
        wanted = reference.late_rows(np.array(rows), None, stamps, 1, True)
        got = compiled.late_rows(np.array(rows), None, stamps, 1, True)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
    else:
        with pytest.raises(IndexError):
            compiled.late_rows(np.array(rows), None, stamps, 1, True)
    assert not stamps.any()


def sign(m):
    return np.sign(m)


@rule(slots=("m",), rest=rest.along(sign))
def lion(p, g, m, *, lr, beta1, beta2):
    return p - lr * np.sign(beta1 * m + (1.0 - beta1) * g), beta2 * m + (1.0 - beta2) * g


RESTING = {
    "lion": (lion, {"lr": 0.1, "beta1": 0.9, "beta2": 0.99}),
    "momentum": (rules.momentum, {"lr": 0.1, "momentum": 0.9, "dampening": 0.0,
                                  "nesterov": False, "weight_decay": 0.1}),
    "rmsprop": (rules.rmsprop_centered_momentum,
                {"lr": 0.1, "alpha": 0.9, "eps": 1e-8, "momentum": 0.9}),
    "adam": (rules.adam, {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}),
    "adamw": (rules.adamw, {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-3,
                            "weight_decay": 0.1}),
    "amsgrad": (rules.amsgrad, {"lr": 0.1, "beta1": 0.9, "beta2": 0.9, "eps": 10.0,
                                "weight_decay": 0.0}),
    "unsure": (rules.adam, {"lr": 0.1, "beta1": 0.9, "beta2": 0.6, "eps": 0.1}),
}  # fmt: skip


def rested(name, dtype, average, steps=20):
    """A kind of rest and what it has to say of some steps."""
    rule, hyper = RESTING[name]
    log = History(rule.rest(rule, dtype, average), 0)
    for step in range(1, steps + 1):
        own = {"step": step} if "step" in rule.settings else {}
        log.push(*log.rest.one({**hyper, **own}, 0.9))
    return log.rest, log


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("name", RESTING)
@law
@given(lookup=lookups(), seed=st.integers(0, 2**32))
def test_rows_at_rest(compiled, name, average, lookup, seed):
    """Both adapters move the same rows to the same numbers, and leave the same ones."""
    table, ids, _ = lookup
    rng = np.random.default_rng(seed)
    wide = np.promote_types(table.dtype, np.float32)
    kind, log = rested(name, wide, average)
    slots = [np.abs(table).astype(wide) + k for k in range(len(RESTING[name][0].slots) + average)]
    for slot in slots:  # what has no momentum, and squares that underflowed
        slot[rng.random(slot.shape) < rng.choice([0.0, 0.01])] = 0.0
        slot *= rng.choice([1.0, 1e-8])
    rows, place = np.unique(ids), rng.permutation(len(table))
    factors, columns = log.factors(rng.integers(0, 21, len(rows))) if len(rows) else (None, None)
    for formula, sure in kind.formulas(factors) if len(rows) else ():
        results = []
        for adapter in (compiled, reference):
            arrays = [a.copy() for a in (table, *slots)]
            left = adapter.settle_rows(
                formula, sure, rows, place[rows], factors, columns, arrays[0], arrays[1:]
            )
            for at, new, old in zip(
                [rows, *[place[rows]] * len(slots)], arrays, (table, *slots), strict=True
            ):
                still = np.ones(len(table), bool)
                still[np.delete(at, left)] = False
                np.testing.assert_array_equal(new[still], old[still])
            results.append((left, arrays))
        (got_left, got), (wanted_left, wanted) = results
        np.testing.assert_array_equal(got_left, wanted_left)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", RESTING)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_these_rests_are_compiled(compiled, name, dtype):
    kind, log = rested(name, np.dtype(dtype), False)
    arrays = [np.ones((200, 16), dtype) for _ in range(1 + len(RESTING[name][0].slots))]
    factors, columns = log.factors(np.arange(200) % 20)
    for formula, sure in kind.formulas(factors):
        every = np.arange(200)
        compiled.settle_rows(formula, sure, every, every, factors, columns, arrays[0], arrays[1:])
        key = sure, np.dtype(dtype), len(arrays), len(factors)
        assert compiled._loops[formula][key] is not None


# -- formulas: what is compiled, and what is left to NumPy -----------------------------------------

FACTOR = 3.0


def with_a_global(p, g, *, lr):
    return (p - FACTOR * lr * g,)


def with_choices(p, g, m, *, lr, nesterov, cap):
    m = np.where(np.abs(g) > cap, np.sign(g) * cap, g) + 0.5 * m
    step = 2 * m if nesterov else m
    return p - lr * np.maximum(step, -1.0) ** 2, np.minimum(m, 1)


def with_a_helper(p, g, *, lr):
    return (p - lr * sign(g),)


def refuses(x):
    if np.size(x) > 10**9:
        raise ValueError
    return x


def with_a_helper_that_may_fail(p, g, *, lr):
    return (p - lr * refuses(g),)


def again(x, times=2):
    return again(x, times - 1) if times else x


def with_a_helper_that_calls_itself(p, g, *, lr):
    return (p - lr * again(g),)


def over_the_row(p, g, *, lr):
    return (p - lr * g / np.sqrt((g * g).mean(axis=-1, keepdims=True)),)


def different_for_numbers(p, g, *, lr):
    return (p - lr * g * len(np.shape(g)),)


@pytest.mark.parametrize(
    ("formula", "hyper", "is_compiled"),
    [
        (with_a_global, {"lr": 0.1}, True),
        (with_choices, {"lr": 0.1, "nesterov": True, "cap": 0.5}, True),
        (with_choices, {"cap": 0.5, "nesterov": False, "lr": 1}, True),
        (lambda p, g, *, lr: (p - lr * np.exp(-np.tanh(g)) * np.log1p(np.square(g)),), {"lr": 0.1},
         True),
        (with_a_helper, {"lr": 0.1}, True),
        (with_a_helper_that_may_fail, {"lr": 0.1}, False),
        (with_a_helper_that_calls_itself, {"lr": 0.1}, False),
        (over_the_row, {"lr": 0.1}, False),
        (different_for_numbers, {"lr": 0.1}, False),
        (lambda p, g, *, lr: (p - lr * g,), {"lr": np.float64(0.1)}, False),
        (lambda p, g, **hyper: (p - hyper["lr"] * g,), {"lr": 0.1}, False),
    ],
    ids=["global", "choices", "order", "functions", "helper", "failing", "recursive", "row",
         "numbers", "array scalar", "kwargs"],
)  # fmt: skip
def test_any_formula_gives_numpys_numbers(compiled, formula, hyper, is_compiled):
    rng = np.random.default_rng(0)
    ids, g = rng.permutation(300), rng.normal(size=(300, 9)).astype(np.float32)
    n = formula.__code__.co_argcount - 1
    start = [rng.normal(size=(300, 9)).astype(np.float32) for _ in range(n)]
    got, wanted = ([a.copy() for a in start] for _ in range(2))
    compiled.plan_update(formula, ids, g, got[0], got[1:], hyper)()
    reference.plan_update(formula, ids, g, wanted[0], wanted[1:], hyper)()
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    loops = compiled._loops.get(formula, {})
    assert any(loop is not None for loop in loops.values()) == is_compiled


def test_a_digest_follows_what_a_formula_computes(compiled, monkeypatch):
    from tinygrad_sparse.backend.formulas import Unstable, digest

    def scaled(c):
        return lambda p, g, *, lr: (p - c * lr * g,)

    assert digest(scaled(2.0)) == digest(scaled(2.0)) != digest(scaled(3.0))
    before = digest(with_a_global)
    monkeypatch.setitem(with_a_global.__globals__, "FACTOR", 4.0)
    assert digest(with_a_global) != before
    monkeypatch.setitem(with_a_global.__globals__, "FACTOR", np.ones(1))
    with pytest.raises(Unstable):
        digest(with_a_global)


def test_a_failing_formula_leaves_every_parameter_as_it_was():
    W, U = (ts.parameter(np.ones((300, 4), np.float32)) for _ in range(2))

    def choosy(p, g, *, lr):
        if lr > 1:
            raise ArithmeticError("too fast")
        return (p - lr * g,)

    groups = [{"params": [W], "lr": 0.1}, {"params": [U], "lr": 2.0}]
    opt = Optimizer(rule(still=True)(choosy), groups, lr=0.1)
    with ts.Tape() as tape:
        loss = (W[np.arange(300)] * U[np.arange(300)]).sum()
    with pytest.raises(ArithmeticError, match="too fast"):
        opt.step(tape.backward(loss))
    np.testing.assert_array_equal(W.data, 1.0)


@pytest.mark.parametrize("d", [4, 40], ids=["small", "large"])
def test_a_formula_that_fails_for_one_parameter_changes_none(d):
    @rule(still=True)
    def faulty(p, g, *, lr):
        return (p - 0.1 * g,) if lr < 1 else (p, g)

    W, U = (ts.parameter(np.ones((300, d), np.float32)) for _ in range(2))
    opt = Optimizer(faulty, [{"params": [W], "lr": 0.1}, {"params": [U], "lr": 2.0}], lr=0.1)
    with ts.Tape() as tape:
        loss = (W[np.arange(300)] * U[np.arange(300)]).sum()
    with pytest.raises(ShapeError, match=r"faulty: expected 1 arrays of shapes \[\(300, 40?\)\]"):
        opt.step(tape.backward(loss))
    np.testing.assert_array_equal(W.data, 1.0)


@pytest.mark.parametrize("d", [4, 40], ids=["small", "large"])
def test_a_slot_of_another_shape_is_refused_before_anything_is_written(d):
    @rule(slots=("h",), still=True)
    def faulty(p, g, h, *, lr):
        return p - lr * g, (h + g * g).mean(axis=1, keepdims=True)

    W = ts.parameter(np.ones((300, d), np.float32))
    with ts.Tape() as tape:
        loss = W[np.arange(300)].sum()
    with pytest.raises(ShapeError, match="faulty: expected 2 arrays of shapes"):
        Optimizer(faulty, [W], lr=0.1).step(tape.backward(loss))
    np.testing.assert_array_equal(W.data, 1.0)


@rule(slots=("here", "there"), still=True)
def remembering(p, g, here, there, *, lr):
    """It answers what it was given, at other places."""
    return p - lr * g, there, p


@pytest.mark.parametrize("d", [4, 40], ids=["small", "large"])
def test_what_a_formula_answers_is_from_before_the_step(d):
    W = ts.parameter(np.ones((300, d), np.float32))
    opt = Optimizer(remembering, [W], lr=0.5)
    for _ in range(2):
        with ts.Tape() as tape:
            loss = W.sum()
        opt.step(tape.backward(loss))
    slots = opt.state_dict()["slots"][0]
    assert [a.flat[0] for a in (W.data, *slots)] == [0.0, 1.0, 0.5]


@pytest.mark.parametrize("d", [4, 40], ids=["small", "large"])
def test_a_gradient_that_is_a_parameters_values_is_read_before_the_step_changes_them(d):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 300, d)).astype(np.float32)
    A, B, order = ts.parameter(a), ts.parameter(b), rng.permutation(300)
    grads = ts.GradStore()
    grads[A] = ts.IndexedSlices(order, A.data, a.shape)
    grads[B] = A.data
    ts.optim.SGD([A, B], lr=0.5).step(grads)
    np.testing.assert_array_equal(A.data[order], a[order] - np.float32(0.5) * a)
    np.testing.assert_array_equal(B.data, b - np.float32(0.5) * a)


def test_ids_that_were_changed_after_the_check_reach_no_other_memory(compiled):
    ids, table = np.arange(300), np.ones((300, 40), np.float32)
    ids[7] = 300
    with pytest.raises(IndexError):
        compiled.scatter_add_rows(table, ids, np.ones_like(table))
    np.testing.assert_array_equal(table, 1.0)


@pytest.mark.parametrize("V", [1, 2, 3])
def test_a_table_of_fewer_elements_than_a_formula_is_tried_on(compiled, V):
    def fresh(p, g, *, lr):  # not compiled for any other table before
        return (p - lr * g,)

    ids, values = np.arange(400) % V, np.ones((400, 16), np.float32)
    tables = [np.ones((V, 16), np.float32) for _ in range(2)]
    for adapter, table in zip((compiled, reference), tables, strict=True):
        adapter.plan_update(fresh, ids, values, table, [], {"lr": 0.5})()
    np.testing.assert_array_equal(*tables)


# -- sums --------------------------------------------------------------------------------------


def test_a_frequent_row_is_summed_to_float32s_precision(compiled):
    values = np.full((200_000, 1), 0.1, np.float32)
    _, sums = compiled.sum_duplicates(np.zeros(len(values), np.int64), values)
    assert sums.item() == pytest.approx(20_000, rel=1e-6)


@pytest.mark.parametrize("width", [3, 16, 300])
def test_repeats_of_any_number_beside_each_other(compiled, width):
    """Short runs are summed in one sweep, between long ones and alone, and keep a zero's sign."""
    repeats = np.array([2, 3, 1, 200, 64, 65, 2, 1, 1, 300, 5, 1, 2] * 9)
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(len(repeats)), repeats))
    values = np.random.default_rng(1).standard_normal((len(ids), width), np.float32)
    values[np.isin(ids, [0, 2])] = -0.0
    rows, sums = compiled.sum_duplicates(ids, values)
    assert (rows == np.arange(len(repeats))).all()
    assert np.signbit(sums[[0, 2]]).all()
    for row, total in enumerate(sums):
        members = values[ids == row]
        if len(members) <= 64:
            wanted = members[0]
            for member in members[1:]:
                wanted = wanted + member
            assert total.tobytes() == wanted.tobytes()
        else:
            np.testing.assert_allclose(total, members.sum(0, np.float64), 1e-4, 1e-4)


def test_float16_parts_may_not_overflow_on_the_way(compiled):
    values = np.repeat(np.array([[40_000], [40_000], [-40_000], [-39_008]], np.float16), 9, 1)
    values = np.tile(values, (100, 1))
    ids = np.repeat(np.arange(100), 4)
    _, sums = compiled.sum_duplicates(ids, values)
    np.testing.assert_array_equal(sums, 992)


@pytest.mark.parametrize("top", [2**31, 2**53, 2**62])
def test_ids_of_any_size(compiled, top):
    rng = np.random.default_rng(0)
    known = np.array([0, 5, top - 1, top, top + 7])
    ids, values = rng.choice(known, 500), rng.normal(size=(500, 20))
    for adapter in (compiled, reference):
        rows, sums = adapter.sum_duplicates(ids, values)
        np.testing.assert_array_equal(rows, known)
        for row, total in zip(rows, sums, strict=True):
            np.testing.assert_allclose(total, values[ids == row].sum(0), 1e-11)


# -- threads -----------------------------------------------------------------------------------


@pytest.fixture
def two_threads(monkeypatch):
    """Every kernel is shared out, on any machine."""
    monkeypatch.setattr(threads, "PAYS", 0)
    monkeypatch.setattr(threads, "_pool", None)
    monkeypatch.setattr(threads, "_threads", 2)
    yield
    threads._pool.shutdown()


def step_on_a_table(adapter, seed):
    rng = np.random.default_rng(seed)
    table, slot = rng.normal(size=(2, 500, 33)).astype(np.float32)
    ids, g = rng.integers(0, 500, 3000), rng.normal(size=(3000, 33)).astype(np.float32)
    hyper = {"lr": 0.1, "lr_decay": 0.0, "eps": 1e-8, "step": 1}
    adapter.plan_update(RULES["adagrad"].formula, ids, g, table, [slot * slot], hyper)()
    kind, log = rested("momentum", np.dtype(np.float32), False)
    rows, places, last = adapter.late_rows(ids, None, rng.integers(0, 20, 500, np.int32), 15, True)
    factors, columns = log.factors(last)
    ((formula, sure),) = kind.formulas(factors)
    adapter.settle_rows(formula, sure, rows, places, factors, columns, table, [slot])
    return [adapter.take_rows(table, ids), *adapter.sum_duplicates(ids, g), table, slot]


def test_results_do_not_depend_on_the_number_of_threads(compiled, two_threads, monkeypatch):
    shared = step_on_a_table(compiled, 0)
    assert threads._pool is not None
    monkeypatch.setattr(threads, "_threads", 1)
    for a, b in zip(shared, step_on_a_table(compiled, 0), strict=True):
        np.testing.assert_array_equal(a, b)


def test_several_threads_may_call_at_once(compiled, two_threads):
    wanted = [step_on_a_table(compiled, seed) for seed in range(4)]
    got: dict[int, list] = {}

    def work(seed):
        for _ in range(5):
            got[seed] = step_on_a_table(compiled, seed)

    callers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for seed in range(4):
        for a, b in zip(got[seed], wanted[seed], strict=True):
            np.testing.assert_array_equal(a, b)


def test_all_parts_run_once_and_an_error_comes_out(two_threads):
    done = []
    threads.split(lambda start, stop: done.extend(range(start, stop)), (), 1000, 1)
    assert sorted(done) == list(range(1000))

    def fail(start, stop):
        raise ZeroDivisionError

    for _ in range(2):  # and what it held is given back
        with pytest.raises(ZeroDivisionError):
            threads.split(fail, (), 10, 1)


def test_the_number_of_threads():
    before = ts.get_num_threads()
    try:
        ts.set_num_threads(1)
        assert ts.get_num_threads() == 1
        ts.set_num_threads(10**6)
        assert ts.get_num_threads() <= os.cpu_count()
        for bad in (0, -1, 1.5):
            with pytest.raises(TinygradSparseError, match=r"set_num_threads: expected .* >= 1"):
                ts.set_num_threads(bad)
    finally:
        ts.set_num_threads(before)


# -- which adapter -----------------------------------------------------------------------------

STEP = """
import numpy as np, tinygrad_sparse as ts
W = ts.parameter(np.ones((1000, 16), np.float32))
with ts.Tape() as tape:
    loss = (W[np.arange(500)] ** 2).sum()
ts.optim.SGD([W], lr=0.25).step(tape.backward(loss))
assert (W.data[:500] == 0.5).all()
"""


def run(code, **variables):
    """A fresh Python that runs `code`; gives back what it printed."""
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True
    )
    return done.stdout + done.stderr[-500:]


NAME = "from tinygrad_sparse import backend; print(backend.adapter_for('cpu').__name__)"


def test_numba_is_imported_when_there_is_work_for_it(compiled):
    here = "; import sys; print('numba' in sys.modules)"
    assert run(NAME + here, TINYGRAD_SPARSE_BACKEND="auto").split() == [
        "tinygrad_sparse.backend.numba",
        "False",
    ]
    assert run(STEP + here[2:], TINYGRAD_SPARSE_BACKEND="numba") == "True\n"


def test_numba_can_be_switched_off():
    assert run(NAME, TINYGRAD_SPARSE_BACKEND="numpy") == "tinygrad_sparse.backend.numpy\n"
    here = "import sys; print('numba' in sys.modules)"
    assert run(STEP + here, TINYGRAD_SPARSE_BACKEND="numpy") == "False\n"
    said = run("import tinygrad_sparse", TINYGRAD_SPARSE_BACKEND="fast")
    assert "TINYGRAD_SPARSE_BACKEND: expected auto, numpy or numba, got 'fast'." in said


def test_a_numba_that_does_not_work_is_said_once_and_left_out(compiled, tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs an older NumPy')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    show = "import warnings; warnings.simplefilter('always')\n"
    for why, variables in {
        "Numba needs an older NumPy": {"PYTHONPATH": path},
        "NUMBA_DISABLE_JIT is set": {"NUMBA_DISABLE_JIT": "1"},
    }.items():
        said = run(show + STEP, TINYGRAD_SPARSE_BACKEND="auto", **variables)
        assert said.count(f"numba cannot be used, NumPy computes instead: {why}") == 1
        assert "Error" not in said


FAULTS = """
import resource
import numpy as np, tinygrad_sparse as ts
W = ts.parameter(np.ones((10_000, 16), np.float32))
ids = np.arange(65_536) % 10_000
def step():
    with ts.Tape() as tape:
        rows = W[ids]
        loss = (rows * rows).sum()
    tape.backward(loss)
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's malloc")
def test_a_step_asks_the_system_for_no_memory_that_the_one_before_it_had():
    pages = 4 * 65_536 * 16 // mmap.PAGESIZE  # of the rows of one lookup
    assert int(run(FAULTS, TINYGRAD_SPARSE_BACKEND="numpy")) < pages
    defaults = {"MALLOC_MMAP_THRESHOLD_": str(2**17), "MALLOC_TRIM_THRESHOLD_": str(2**17)}
    assert int(run(FAULTS, TINYGRAD_SPARSE_BACKEND="numpy", **defaults)) > 8 * pages


def test_compiled_loops_are_found_again_by_the_next_process(compiled, tmp_path):
    count = "from tinygrad_sparse.backend.formulas import update\nhits = update.stats.cache_hits\n"
    count += "print(sum(hits.values()), sum(update.stats.cache_misses.values()))"
    variables = {"NUMBA_CACHE_DIR": str(tmp_path), "TINYGRAD_SPARSE_BACKEND": "numba"}
    assert run(STEP + count, **variables) == "0 1\n"
    assert run(STEP + count, **variables) == "1 0\n"


def test_a_kernel_is_compiled_anew_when_what_it_uses_was_changed(compiled, tmp_path):
    package = Path(ts.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("*cache*"))
    code = f"""import sys; sys.path[0] = {str(tmp_path)!r}
import numpy as np
from tinygrad_sparse.backend import products
products.kernel('row_products', np.dtype('f4'))
print(*products.row_products.stats.cache_hits.values())"""
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    assert [run(code, **variables) for _ in range(2)] == ["\n", "1\n"]
    for helpers in ("vectors.py", "elements.py", "compiled.py"):
        with open(tmp_path / package.name / "backend" / helpers, "a") as file:
            file.write("# another\n")
        assert run(code, **variables) == "\n"
