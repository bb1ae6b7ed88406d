"""Soft decision trees: leaves against the dense formulas, estimators, reading, storing, command."""

import gzip
import pickle
import re
from copy import deepcopy

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import tinygrad_sparse as ts
from examples.soft_decision_tree import (
    SoftDecisionTreeClassifier,
    SoftDecisionTreeRegressor,
    agreement,
    command,
    data,
    export_text,
    load,
    path_of,
    plot,
    plot_path,
    plot_tree,
    save,
)
from examples.soft_decision_tree.counts import SMALL, SMOOTHING, Counts, EpochCounts
from examples.soft_decision_tree.leaves import CountedLeaves, GaussianLeaves, GradientLeaves
from examples.soft_decision_tree.model import Data, Model
from examples.soft_decision_tree.reading import summed_up
from tinygrad_sparse.errors import CheckpointError
from tinygrad_sparse.nn.soft_tree import leaves_of, log_arrivals
from tinygrad_sparse.testing import count_bytes

B, C, L = 12, 5, 8


def batch(seed: int, B: int = B, C: int = C, L: int = L) -> tuple[np.ndarray, np.ndarray]:
    """Log-arrivals of some examples and their labels."""
    rng = np.random.default_rng(seed)
    return leaves_of(log_arrivals(2 * rng.normal(size=(B, L - 1)))), rng.integers(0, C, B)


def teach(leaves, log_leaves, targets, weights=None):
    """One step without gradients."""
    weights = np.ones(len(targets)) if weights is None else weights
    with ts.Tape("raise") as tape:
        loss = (leaves.losses(log_leaves, targets) * weights).sum() / weights.sum()
    leaves.update(tape.backward(loss), weights.sum())
    return loss.item()


def dense_U(log_leaves, log_q, labels, weights, root=0.0):
    """The original's formula: exp(logsumexp over i) of (B, C) arrays, one leaf after the other.

    `root` is where the logarithm of the root's arrival starts: 0, or the original's 1.
    """
    log_p = logsumexp(log_leaves + log_q[labels], axis=1)
    chosen = np.full((len(labels), len(log_q)), -np.inf)
    chosen[np.arange(len(labels)), labels] = np.log(weights)
    U = np.zeros_like(log_q)
    with np.errstate(divide="ignore"):
        for leaf in range(log_q.shape[1]):
            log_r = root + log_leaves[:, leaf, None] + log_q[:, leaf] - log_p[:, None] + chosen
            U[:, leaf] = np.exp(logsumexp(log_r, axis=0))
    return U


# ---------------------------------------------------------------------------------- leaves


@pytest.mark.parametrize("form", ["normalised", "softmax"])
@pytest.mark.parametrize("smoothing", sorted(SMOOTHING))
def test_counted_leaves_follow_the_dense_formulas_of_both_smoothings(smoothing, form):
    leaves = CountedLeaves(C, L, smoothing=smoothing, form=form)
    theta, steps, n = np.ones((C, L)), 0, 4
    for epoch in range(3):
        leaves.begin_epoch(n, stream=False)
        start = theta.copy()
        for k in range(n):
            log_leaves, labels = batch(seed=10 * epoch + k)
            weights = np.random.default_rng(k).uniform(0.5, 2, B)
            normaliser = np.log(theta.sum(axis=0)) if form == "normalised" else None
            log_q = (
                np.log(theta) - normaliser
                if form == "normalised"
                else theta - logsumexp(theta, axis=0)
            )
            np.testing.assert_allclose(leaves.values(), np.exp(log_q).T, rtol=1e-11, atol=1e-25)
            U = dense_U(log_leaves, log_q, labels, weights)
            steps += 1
            if smoothing == "epoch":
                theta = np.maximum(theta - start / n, 0) + U
            else:
                theta = (1 - max(1 / steps, 1 / n)) * theta + U
            theta = np.maximum(theta, 1e-30)
            teach(leaves, log_leaves, labels, weights)
            np.testing.assert_allclose(leaves.counts.data(), theta, rtol=1e-11, atol=1e-15)
            shares = leaves.counts.log_shares(np.arange(C)).data
            np.testing.assert_allclose(shares, np.log(theta / theta.sum(axis=0)), atol=1e-11)


def test_the_update_equals_the_dense_formula_at_the_size_of_the_report():
    log_leaves, labels = batch(0, B=64, C=200, L=512)
    leaves = CountedLeaves(200, 512)
    log_q = np.log(leaves.values().T)
    teach(leaves, log_leaves, labels)
    U = dense_U(log_leaves, log_q, labels, np.ones(64))
    np.testing.assert_allclose(leaves.counts.data(), U, atol=1e-12)


def test_a_root_that_arrives_with_e_counts_everything_e_times():
    # In log space an example arrives at the root with log 1 = 0. The original starts from 1 there,
    # as without logarithms: its updates, and what leaves remember, are e times too large. Here the
    # constant cancels, for responsibilities come from a quotient.
    log_leaves, labels = batch(0)
    log_q = np.log(CountedLeaves(C, L).values().T)
    right, original = (dense_U(log_leaves, log_q, labels, np.ones(B), root) for root in (0.0, 1.0))
    assert right.sum() == pytest.approx(B)
    assert original.sum() == pytest.approx(np.e * B)
    for shift in (0.0, 1.0):
        leaves = CountedLeaves(C, L)
        teach(leaves, log_leaves + shift, labels)
        np.testing.assert_allclose(leaves.counts.data(), right, atol=1e-12)


@pytest.mark.parametrize("smoothing", sorted(SMOOTHING))
def test_full_batch_steps_with_fixed_gates_never_lower_the_likelihood(smoothing):
    log_leaves, labels = batch(3, B=60)
    leaves = CountedLeaves(C, L, smoothing=smoothing)
    losses = []
    for _ in range(40):
        leaves.begin_epoch(1, stream=False)
        losses.append(teach(leaves, log_leaves, labels))
    assert (np.diff(losses) <= 1e-12).all()
    assert losses[-1] < losses[1] < losses[0]


@pytest.mark.parametrize("smoothing", sorted(SMOOTHING))
def test_untouched_classes_decay_by_a_number_not_in_memory(smoothing):
    leaves = CountedLeaves(C, L, smoothing=smoothing)
    leaves.begin_epoch(10, stream=False)
    for seed in range(3):
        log_leaves, labels = batch(seed)
        teach(leaves, log_leaves, labels % 2)
    before = leaves.counts.state_dict()
    theta = leaves.counts.data()
    log_leaves, labels = batch(9)
    teach(leaves, log_leaves, labels % 2)
    for name, table in leaves.counts.state_dict().items():
        np.testing.assert_array_equal(table[2:], before[name][2:])
    assert not np.array_equal(leaves.counts.data()[:2], theta[:2])
    decay = leaves.counts.data()[2:] / theta[2:]
    np.testing.assert_allclose(decay, decay[0, 0])
    assert decay[0, 0] < 1


def test_a_scale_that_became_small_is_multiplied_in():
    leaves = CountedLeaves(C, L)
    leaves.begin_epoch(2, stream=False)
    for seed in range(60):
        log_leaves, labels = batch(seed)
        teach(leaves, log_leaves, labels)
        assert leaves.counts.scale >= SMALL
    shares = np.exp(leaves.counts.log_shares(np.arange(C)).data)
    np.testing.assert_allclose(shares.T, leaves.values(), rtol=1e-12)
    np.testing.assert_allclose(leaves.values().sum(axis=1), 1)


def test_a_step_allocates_nothing_of_the_size_of_the_table_or_of_batch_times_classes():
    many = 100_000  # the table is 6.4 MB here, and (B, C) would be 9.6 MB
    leaves = CountedLeaves(many, L)
    leaves.begin_epoch(100, stream=False)
    log_leaves, labels = batch(0, C=many)
    for _ in range(3):
        teach(leaves, log_leaves, labels)
    with count_bytes() as used:
        teach(leaves, log_leaves, labels)
    assert used.peak < 100_000


@pytest.mark.parametrize("smoothing", sorted(SMOOTHING))
def test_classes_never_seen_cost_no_warning_and_can_come_later(smoothing):
    leaves = CountedLeaves(C, L, smoothing=smoothing, dtype=np.float32)
    log_leaves, labels = batch(0)
    for epoch in range(3):
        leaves.begin_epoch(1, stream=False)
        teach(leaves, log_leaves.astype(np.float32), labels % 2 if epoch < 2 else labels)
    values = leaves.values()
    assert values.dtype == np.float32 and np.isfinite(values).all()
    np.testing.assert_allclose(values.sum(axis=1), 1, rtol=1e-5)
    assert values[:, labels].min() > 0


def test_gaussian_leaves_take_the_steps_of_expectation_maximisation():
    rng = np.random.default_rng(0)
    y = rng.normal(size=B)
    log_leaves, _ = batch(0)
    leaves = GaussianLeaves(L)
    mean, variance = np.zeros(L), np.ones(L)
    losses = []
    for _ in range(20):
        density = -0.5 * ((y[:, None] - mean) ** 2 / variance + np.log(2 * np.pi * variance))
        log_r = log_leaves + density
        r = np.exp(log_r - logsumexp(log_r, axis=1, keepdims=True))
        mean = r.T @ y / r.sum(axis=0)
        variance = np.maximum(r.T @ y**2 / r.sum(axis=0) - mean**2, 1e-3)
        leaves.begin_epoch(1, stream=False)
        losses.append(teach(leaves, log_leaves, y))
        np.testing.assert_allclose(leaves.mean.data, mean, rtol=1e-9)
        np.testing.assert_allclose(np.exp(2 * leaves.log_sigma.data), variance, rtol=1e-8)
    assert (np.diff(losses) <= 1e-9).all()


def test_gradient_leaves_are_distributions_with_the_right_gradient():
    rng = np.random.RandomState(0)
    leaves = GradientLeaves(C, L, rng, np.float64)
    log_leaves, labels = batch(0)
    np.testing.assert_allclose(leaves.values().sum(axis=1), 1)
    logits = leaves.logits.numpy()

    def losses(theta, arrivals):
        vars(leaves).update(logits=theta)
        return leaves.losses(arrivals, labels)

    ts.testing.check_grads(losses, [logits, log_leaves])


def test_counts_go_on_from_their_arrays():
    for kind in SMOOTHING.values():
        first, second = kind(np.ones((C, L))), kind(np.ones((C, L)))
        first.begin_epoch(5, stream=False)
        U = ts.IndexedSlices([1, 3], np.random.default_rng(0).random((2, L)), (C, L))
        for _ in range(3):
            first.add(U)
        second.load(first.arrays())
        second.batches = first.batches
        for counts in (first, second):
            counts.add(U)
        np.testing.assert_array_equal(first.data(), second.data())
        shares = [counts.log_shares(np.arange(C)).data for counts in (first, second)]
        np.testing.assert_allclose(*shares, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("kind", [Counts, EpochCounts])
def test_a_stream_is_remembered_longer_than_its_parts(kind):
    counts = kind(np.ones((C, L)))
    for part in range(4):
        counts.begin_epoch(1, stream=True)
        counts.add(ts.IndexedSlices([part], np.ones((1, L)), (C, L)))
    assert (counts.data()[:4] > 0.05).all()


# ------------------------------------------------------------------------------ estimators

# Small, so that the suite takes seconds; the defaults pass too. Skips are scikit-learn's own: two
# checks need pandas, one needs SCIPY_ARRAY_API=1. With both, all pass.
FAST = {"depth": 3, "max_iter": 30}
CHECKED = [
    SoftDecisionTreeClassifier(**FAST),
    SoftDecisionTreeClassifier(leaves="gradient", **FAST),
    SoftDecisionTreeRegressor(**FAST),
    SoftDecisionTreeRegressor(leaves="derivative_free", **FAST),
]


@parametrize_with_checks(CHECKED)
def test_scikit_learn_estimator_checks(estimator, check):
    check(estimator)  # no check is declared to fail


def iris(dtype=np.float64):
    X, y = load_iris(return_X_y=True)
    return ((X - X.mean(axis=0)) / X.std(axis=0)).astype(dtype), y


def waves(n: int = 300):
    X = np.random.default_rng(0).uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2


WAYS = [
    {"leaves": "gradient"},
    {"smoothing": "exponential"},
    {"smoothing": "epoch"},
    {"leaf_form": "softmax"},
    {"smoothing": "epoch", "leaf_form": "softmax"},
    {"learn_temperature": True, "inverse_temperature": 2.0},
    {"penalty": 0.0},
    {"penalty_window": False, "batch_size": 32},
    {"schedule": "constant"},
]


@pytest.mark.parametrize(
    ("way", "dtype"), [({}, np.float64), *((way, np.float32) for way in WAYS)], ids=str
)
def test_each_way_to_learn_learns(way, dtype):
    X, y = iris(dtype)
    names = np.array(["a", "b", "c"])[y]
    settings = {"depth": 3, "random_state": 0, "max_iter": 50, "batch_size": 75}
    tree = SoftDecisionTreeClassifier(**(settings | way)).fit(X, names)
    probabilities = tree.predict_proba(X)
    assert tree.score(X, names) > 0.93
    assert probabilities.dtype == dtype
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert tree.loss_curve_[-1] < 0.5 * tree.loss_curve_[0]
    assert tree.leaf_values_.shape == (8, 3)


@pytest.mark.parametrize(
    "way", [{}, *({"leaves": "derivative_free", "smoothing": s} for s in SMOOTHING)], ids=str
)
def test_regression(way):
    X, y = waves()
    tree = SoftDecisionTreeRegressor(depth=4, random_state=0, max_iter=60, **way)
    assert tree.fit(X, 1000 + 50 * y).score(X, 1000 + 50 * y) > 0.6
    X, y = make_regression(200, 5, random_state=0)
    assert tree.fit(X, y).score(X, y) > 0.75


def test_sparse_and_dense_features_predict_alike_and_both_learn():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((300, 50)) < 0.2, rng.random((300, 50)), 0)
    y = (X[:, 0] + X[:, 1] > X[:, 2] + X[:, 3]).astype(int)
    settings = {"depth": 3, "random_state": 0, "max_iter": 30}
    tree = SoftDecisionTreeClassifier(**settings).fit(sparse.coo_array(X), y)
    assert min(tree.score(X, y), SoftDecisionTreeClassifier(**settings).fit(X, y).score(X, y)) > 0.9
    for form in (sparse.csr_matrix, sparse.csc_array):
        for routing in ("soft", "hard", "likeliest"):
            np.testing.assert_allclose(
                tree.predict_proba(form(X), routing), tree.predict_proba(X, routing), atol=1e-12
            )


def test_a_sparse_step_moves_the_weights_of_the_features_it_saw():
    X = sparse.csr_array(
        (np.ones(3), (np.array([0, 0, 1]), np.array([7, 99_999, 7]))), shape=(2, 100_000)
    )
    tree = SoftDecisionTreeClassifier(depth=2, random_state=0, max_iter=1).fit(X, [0, 1])
    # A first step starts from leaves that say the same, so that no gate has a reason to move.
    before = tree.gate_weights_.copy()
    tree.partial_fit(X, [0, 1])
    moved = np.flatnonzero((tree.gate_weights_ != before).any(axis=0))
    assert moved.tolist() == [7, 99_999]


@pytest.mark.parametrize("unit", [1 / 256, 16.0])
def test_the_unit_that_features_share_does_not_matter(unit):
    X, y = iris()
    trees = [SoftDecisionTreeClassifier(depth=3, random_state=0, max_iter=20) for _ in range(2)]
    here = trees[0].fit(X, y).predict_proba(X)
    there = trees[1].fit(X * unit, y).predict_proba(X * unit)
    np.testing.assert_array_equal(here, there)  # to the bit, for these units are powers of two


def test_weights_of_examples_and_classes():
    X, y = iris()
    settings = {"depth": 3, "random_state": 0, "max_iter": 30, "batch_size": 1000}
    by_class = SoftDecisionTreeClassifier(class_weight={0: 1, 1: 3, 2: 2}, **settings).fit(X, y)
    by_example = SoftDecisionTreeClassifier(**settings).fit(X, y, np.array([1, 3, 2])[y])
    np.testing.assert_allclose(by_class.predict_proba(X), by_example.predict_proba(X))
    unbalanced = np.r_[0:50, 50:60]
    tree = SoftDecisionTreeClassifier(class_weight="balanced", **settings)
    assert tree.fit(X[unbalanced], y[unbalanced]).score(X[:100], y[:100]) > 0.95
    with pytest.raises(ValueError, match="at least one non-zero"):
        tree.fit(X, y, np.zeros(150))
    with pytest.raises(ValueError, match="expected a positive weight, got only zeros"):
        tree.set_params(class_weight={0: 0.0, 1: 0.0, 2: 0.0}).fit(X, y)


def test_partial_fit_streams_and_knows_its_classes():
    X, y = iris()
    order = np.random.default_rng(0).permutation(150)
    tree = SoftDecisionTreeClassifier(depth=3, random_state=0)
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        tree.partial_fit(X, y)
    tree.partial_fit(X[:3], y[:3], classes=[0, 1, 2])
    for _ in range(20):
        for part in np.array_split(order, 5):
            tree.partial_fit(X[part], y[part])
    assert tree.score(X, y) > 0.93
    with pytest.raises(ValueError, match=r"expected the classes \[0 1 2\], got also \[7\]"):
        tree.partial_fit(X, np.where(y == 2, 7, y))
    with pytest.raises(ValueError, match="as before"):
        tree.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="class_weight: expected None or a dict"):
        SoftDecisionTreeClassifier(class_weight="balanced").partial_fit(X, y, classes=[0, 1, 2])
    numbers = SoftDecisionTreeRegressor(depth=3, random_state=0)
    X, y = waves()
    for _ in range(60):
        numbers.partial_fit(X, y)
    assert numbers.score(X, y) > 0.5


def test_warm_start_goes_on():
    X, y = iris()
    tree = SoftDecisionTreeClassifier(depth=3, random_state=0, max_iter=5, warm_start=True)
    once = tree.fit(X, y).loss_curve_[-1]
    tree.fit(X, y)
    assert tree.n_iter_ == 10 and len(tree.loss_curve_) == 10
    assert tree.loss_curve_[5] < once
    tree.set_params(warm_start=False).fit(X, y)
    assert tree.n_iter_ == 5


def test_early_stopping_keeps_the_best_epoch(monkeypatch):
    X, y = iris()
    y = np.where(np.random.default_rng(0).random(150) < 0.3, (y + 1) % 3, y)  # something to overfit
    tree = SoftDecisionTreeClassifier(
        depth=5, random_state=1, max_iter=200, early_stopping=True, validation_fraction=0.3,
        n_iter_no_change=5, batch_size=16,
    ).fit(X, y)  # fmt: skip
    scores = tree.validation_scores_
    assert tree.n_iter_ == len(scores) < 200
    assert int(np.argmax(scores)) == len(scores) - 1 - 5
    # The part held out is drawn first of all from the seed, after the model.
    with monkeypatch.context() as patch:
        held = []
        kept = SoftDecisionTreeClassifier._score
        patch.setattr(
            SoftDecisionTreeClassifier, "_score", lambda self, part: (held.append(part), 0.0)[1]
        )
        clone(tree).set_params(max_iter=1).fit(X, y)
    part = held[0]
    ratio = np.bincount(part.targets) / np.bincount(np.searchsorted(tree.classes_, y))
    np.testing.assert_allclose(ratio, 0.3, atol=0.02)  # each class in its proportion
    assert kept(tree, part) == max(scores) > scores[-1]
    assert tree.score(part.x, tree.classes_[part.targets]) == max(scores)
    regressor = SoftDecisionTreeRegressor(
        depth=3, random_state=0, early_stopping=True, max_iter=30
    ).fit(*waves())
    assert len(regressor.validation_scores_) == regressor.n_iter_


def test_equal_seeds_grow_equal_trees_and_other_seeds_others():
    X, y = iris()
    grown = [
        SoftDecisionTreeClassifier(depth=3, random_state=s, max_iter=5, batch_size=32).fit(X, y)
        for s in (1, 1, 2)
    ]
    first, again, other = (tree.predict_proba(X) for tree in grown)
    assert first.tobytes() == again.tobytes() != other.tobytes()


def test_depth_0_and_depth_12():
    X, y = iris(np.float32)
    stump = SoftDecisionTreeClassifier(depth=0, batch_size=150, max_iter=5).fit(X, y)
    np.testing.assert_allclose(stump.predict_proba(X), 1 / 3, rtol=1e-5)
    deep = SoftDecisionTreeClassifier(depth=12, random_state=0, max_iter=8).fit(X, y)
    assert np.isfinite(deep.predict_proba(X)).all() and deep.score(X, y) > 0.9


def test_the_bar_is_shown_when_asked_for(capsys):
    X, y = iris()
    SoftDecisionTreeClassifier(depth=2, max_iter=3, random_state=0, verbose=True).fit(X, y)
    assert "epoch 3, loss" in capsys.readouterr().err
    SoftDecisionTreeClassifier(depth=2, max_iter=3, random_state=0).fit(X, y)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("leaves", "magic", r"leaves: expected one of \('derivative_free', 'gradient'\)"),
        ("leaf_form", "x", "leaf_form: expected one of"),
        ("depth", -1, "depth: expected a whole number from 0 to 24, got -1"),
        ("batch_size", 1.5, "batch_size: expected a whole number from 1, got 1.5"),
        ("learning_rate", 0, "learning_rate: expected a number > 0, got 0"),
        ("validation_fraction", 1.0, r"validation_fraction: expected a share in \(0, 1\)"),
        ("penalty", -1.0, "penalty: expected a number >= 0, got -1.0"),
        ("penalty", None, "penalty: expected a number >= 0, got None"),
        ("penalty", "a", "penalty: expected a number >= 0, got 'a'"),
        ("penalty", 1e300, "penalty: expected a number that float32 holds"),
        ("inverse_temperature", 1e300, "inverse_temperature: expected a number that float32"),
        ("learning_rate", 1e39, "learning_rate: expected a number that float32 holds"),
        ("learning_rate", "x", "learning_rate: expected a number > 0, got 'x'"),
        ("learning_rate", [1], r"learning_rate: expected a number > 0, got \[1\]"),
        ("depth", True, "depth: expected a whole number from 0 to 24, got True"),
        ("depth", 70, "depth: expected a whole number from 0 to 24, got 70"),
        ("depth", 10**400, "depth: expected a whole number from 0 to 24, got 1000"),
        ("tol", float("nan"), "tol: expected a number >= 0, got nan"),
        ("tol", "x", "tol: expected a number >= 0, got 'x'"),
        ("leaves", np.array(["gradient"] * 2), r"leaves: expected one of .*, got array\("),
        ("smoothing", None, "smoothing: expected one of .*, got None"),
        ("device", ["cpu"], r"device: expected one of .*, got \['cpu'\]"),
        ("learn_temperature", "no", "learn_temperature: expected True or False, got 'no'"),
        ("penalty_window", 1, "penalty_window: expected True or False, got 1"),
        ("early_stopping", "no", "early_stopping: expected True or False, got 'no'"),
        ("warm_start", np.zeros(2), r"warm_start: expected True or False, got array\("),
        ("verbose", "no", "verbose: expected True, False or a whole number, got 'no'"),
        ("random_state", "a", "random_state: expected None, a whole number from 0 .*, got 'a'"),
        ("random_state", -1, "random_state: expected None, a whole number from 0 .*, got -1"),
        ("random_state", 2**32, "random_state: expected None, a whole number from 0 .*, got 42"),
        ("class_weight", {0: "a"}, "class_weight: expected None, .*, got {0: 'a'}"),
        ("class_weight", {0: -1.0}, "class_weight: expected None, .*, got {0: -1.0}"),
        ("class_weight", "heavy", "class_weight: expected None, 'balanced' .*, got 'heavy'"),
        ("class_weight", [1, 2, 3], r"class_weight: expected None, .*, got \[1, 2, 3\]"),
    ],
)
def test_a_setting_out_of_range_is_named_before_anything_is_computed(setting, value, message):
    X, y = iris(np.float32)
    tree = SoftDecisionTreeClassifier(**{setting: value})
    by_dtype = "float32" in message
    for learn in (tree.fit, lambda X, y: tree.partial_fit(X, y, classes=[0, 1, 2])):
        with pytest.raises(ValueError, match=message):
            learn(X, y)
        if not by_dtype:
            with pytest.raises(ValueError, match=message):
                learn("no examples", y)
    assert not hasattr(tree, "classes_")


@pytest.mark.parametrize(("n", "share"), [(1, 0.1), (5, 0.999)])
def test_a_part_held_out_leaves_something_to_learn_from(n, share):
    X, y = waves(n)
    tree = SoftDecisionTreeRegressor(early_stopping=True, validation_fraction=share)
    with pytest.raises(ValueError, match=f"validation_fraction: expected .* of {n} examples"):
        tree.fit(X, y)
    tree.set_params(early_stopping=False, depth=1, max_iter=1).fit(X, y)


@pytest.mark.parametrize("routing", [np.array(["soft", "hard"]), ["hard"], None], ids=str)
def test_a_routing_that_is_no_text_is_refused(grown, routing):
    tree, X, _ = grown
    with pytest.raises(ValueError, match="routing: expected one of"):
        tree.predict(X, routing)


@pytest.mark.parametrize("leaves", ["derivative_free", "gradient"])
def test_the_dtype_of_indices_does_not_matter(leaves):
    rng = np.random.default_rng(0)
    X = sparse.csr_array(np.where(rng.random((200, 300)) < 0.1, rng.random((200, 300)), 0))
    y = rng.integers(0, 40, 200)
    trees = []
    for dtype in (np.int32, np.int64):
        x = X.copy()
        x.indices, x.indptr = X.indices.astype(dtype), X.indptr.astype(dtype)
        tree = SoftDecisionTreeClassifier(depth=4, max_iter=3, random_state=0, leaves=leaves)
        trees.append(tree.fit(x, y).partial_fit(x, y))
        assert x.indices.dtype == dtype
        for routing in ("soft", "hard"):
            there = tree.predict_proba(x, routing)
            assert there.tobytes() == tree.predict_proba(X, routing).tobytes()
    one, other = (tree._model.arrays() for tree in trees)
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name


def test_what_a_warm_start_began_with_may_be_the_best():
    X, y = iris()
    settings = {"depth": 3, "random_state": 0, "batch_size": 16, "max_iter": 20}
    stops = {"early_stopping": True, "n_iter_no_change": 3, "validation_fraction": 0.3}
    tree = SoftDecisionTreeClassifier(warm_start=True, **settings, **stops).fit(X, y)
    before, best = tree.predict_proba(X), max(tree.validation_scores_)
    done = tree.n_iter_
    tree.set_params(learning_rate=1e3).fit(X, y)  # far too fast: each epoch is worse
    assert max(tree.validation_scores_[done:]) < best
    assert tree.n_iter_ == done + 3
    np.testing.assert_array_equal(tree.predict_proba(X), before)


LATER = [
    {"inverse_temperature": 9.0},
    {"depth": 2},
    {"leaves": "gradient"},
    {"smoothing": "epoch"},
    {"leaf_form": "softmax"},
    {"penalty": 0.0},
    {"penalty_decay": 0.9},
    {"penalty_window": False},
    {"learn_temperature": True},
]


@pytest.mark.parametrize("later", LATER, ids=str)
def test_settings_given_after_a_fit_wait_for_the_next(tmp_path, later):
    X, y = iris()
    tree = SoftDecisionTreeClassifier(depth=3, random_state=0, max_iter=3, warm_start=True)
    before, text = tree.fit(X, y).predict_proba(X), export_text(tree)
    tree.set_params(**later)
    save(tree, tmp_path / "tree.npz")
    for copy in (
        tree,
        deepcopy(tree),
        pickle.loads(pickle.dumps(tree)),
        load(tmp_path / "tree.npz"),
    ):
        assert copy.get_params() == tree.get_params()
        np.testing.assert_array_equal(copy.predict_proba(X), before)
        assert export_text(copy) == text and text.count("says") == 8
        assert len([a for a in plot_tree(copy).axes if a.get_title().startswith("leaf")]) == 8
        (name, value), *_ = later.items()
        with pytest.raises(ValueError, match=f"{name}: expected .*built with.*, got {value!r}"):
            copy.fit(X, y)
        with pytest.raises(ValueError, match=f"{name}: expected .*built with"):
            copy.partial_fit(X, y)
    fresh = clone(tree).set_params(warm_start=False).fit(X, y)
    again = tree.set_params(warm_start=False).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), fresh.predict_proba(X))


def bad_fits(warm):
    X, y = iris()
    weights = np.ones(150)
    yield "X: expected float64 features whose length", {}, (X * 1e300, y)
    yield r"class_weight: expected \[0 1 2\], got also \[7\]", {"class_weight": {7: 1.0}}, (X, y)
    for bad in (-1.0, np.nan, np.inf):
        yield "class_weight: expected None", {"class_weight": {0: bad, 1: 1.0, 2: 1.0}}, (X, y)
    yield "sample_weight: expected a sum", {}, (X, y, weights * 1e307)
    yield "Negative values in data passed to `sample_weight`", {}, (X, y, -weights)
    first = "X has 2 features" if warm else "Unknown label type: continuous"
    yield first, {}, (X[:, :2], np.zeros(150) + 0.5)


@pytest.mark.parametrize("warm", [False, True])
def test_a_fit_that_fails_leaves_the_tree_as_it_was(warm):
    X, y = iris()
    tree = SoftDecisionTreeClassifier(depth=3, random_state=0, max_iter=3, warm_start=warm)
    tree.fit(X, y)
    before, further = tree.predict_proba(X), deepcopy(tree)
    settings = tree.get_params()
    for message, given, examples in bad_fits(warm):
        with pytest.raises(ValueError, match=message):
            tree.set_params(**given).fit(*examples)
        tree.set_params(**settings)
        assert tree.n_features_in_ == 4 and tree.classes_.tolist() == [0, 1, 2]
        assert tree.n_iter_ == 3 == len(tree.loss_curve_)
        np.testing.assert_array_equal(tree.predict_proba(X), before)
    for each in (tree, further):
        each.fit(X, y)
    np.testing.assert_allclose(tree.predict_proba(X), further.predict_proba(X), rtol=1e-9)


def test_training_that_fails_halfway_is_undone(monkeypatch):
    X, y = waves()
    tree = SoftDecisionTreeRegressor(depth=3, random_state=0, max_iter=3, warm_start=True)
    before, further = tree.fit(X, y).predict(X), deepcopy(tree)
    with pytest.raises(ValueError, match=r"fit: expected a finite loss, got inf. Hint: lower"):
        tree.fit(X, np.r_[y[:-1], 1e200])  # known in the last batch of the first epoch, or sooner
    with pytest.raises(ValueError, match="expected steps that float64 holds"):
        clone(tree).set_params(learning_rate=1e308).fit(X * 1e-9, y)
    step, steps = Model.step, []

    def stopped(model, batch):
        if len(steps) == 4:
            raise KeyboardInterrupt
        steps.append(step(model, batch))
        return steps[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Model, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            tree.fit(X, y)
    np.testing.assert_array_equal(tree.predict(X), before)
    np.testing.assert_array_equal(tree.fit(X, y).predict(X), further.fit(X, y).predict(X))
    assert tree.n_iter_ == 6 == len(tree.loss_curve_)


def test_a_fit_that_fails_draws_nothing_from_a_generator():
    X, y = iris()
    rng = np.random.RandomState(0)
    tree = SoftDecisionTreeClassifier(depth=2, max_iter=2, random_state=rng, learning_rate=1e308)
    with pytest.raises(ValueError, match="expected steps that float64 holds"):
        tree.fit(X * 1e-9, y)
    assert rng.randint(2**31) == np.random.RandomState(0).randint(2**31)


@pytest.mark.parametrize(
    ("dtype", "unit"), [(np.float32, 1e30), (np.float32, 1e-30), (np.float64, 1e200)]
)
def test_features_whose_squares_are_no_numbers_are_refused(dtype, unit):
    X, y = iris(dtype)
    X *= dtype(unit)
    for tree in (SoftDecisionTreeClassifier(), SoftDecisionTreeRegressor()):
        for x in (X, sparse.csr_array(X)):
            with pytest.raises(ValueError, match=r"X: expected float\d\d features whose length"):
                tree.fit(x, y)


@pytest.mark.parametrize("leaves", ["gradient", "derivative_free"])
def test_numbers_of_any_size_are_learned(tmp_path, leaves):
    X, y = waves()
    for dtype, unit in ((np.float64, 1e300), (np.float32, 1e300), (np.float64, 1e-200)):
        tree = SoftDecisionTreeRegressor(depth=3, random_state=0, max_iter=20, leaves=leaves)
        tree.fit(X.astype(dtype), y * unit)
        guesses = tree.predict(X.astype(dtype))
        np.testing.assert_array_less(np.mean((guesses / unit - y) ** 2), 0.6 * y.var())
        save(tree, tmp_path / "tree.npz")
        np.testing.assert_array_equal(load(tmp_path / "tree.npz").predict(X.astype(dtype)), guesses)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([], "classes: expected labels"),
        ([[0, 1, 2], [0, 1, 2]], "should be a 1d array"),
        ([0, 1, np.nan], "classes: expected labels"),
    ],
    ids=["none", "2-d", "nan"],
)
def test_classes_that_are_none_are_refused(classes, message):
    X, y = iris()
    tree = SoftDecisionTreeClassifier()
    with pytest.raises(ValueError, match=message):
        tree.partial_fit(X, y, classes=classes)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        tree.predict(X)


# ------------------------------------------------------------------- routing and reading


@pytest.fixture(scope="module")
def grown():
    X, y = iris()
    return SoftDecisionTreeClassifier(depth=3, random_state=0).fit(X, y), X, y


def test_a_hard_walk_turns_at_one_half(grown):
    tree, X, _ = grown
    leaves = tree.apply(X, "hard")
    for x, leaf in zip(X[::10], leaves[::10], strict=True):
        n = 0
        for _ in range(3):
            n = 2 * n + 1 + (tree.gate_weights_[n] @ x + tree.gate_intercepts_[n] > 0)
        assert leaf == n - 7
    np.testing.assert_array_equal(tree.predict_proba(X, "hard"), tree.leaf_values_[leaves])


def test_the_likeliest_leaf_has_the_largest_arrival(grown):
    tree, X, _ = grown
    arrivals = tree.arrivals(X)
    np.testing.assert_array_equal(tree.apply(X), arrivals[:, 7:].argmax(axis=1))
    np.testing.assert_allclose(arrivals[:, 7:] @ tree.leaf_values_, tree.predict_proba(X))
    wanted = r"routing: expected one of \('soft', 'hard', 'likeliest'\), got 'best'"
    with pytest.raises(ValueError, match=wanted):
        tree.predict(X, routing="best")
    wanted = r"routing: expected one of \('hard', 'likeliest'\), got 'soft'"
    with pytest.raises(ValueError, match=wanted):
        tree.apply(X, "soft")


def test_hard_and_soft_agree_where_gates_are_sure(grown):
    tree, X, y = grown
    assert 0.9 < agreement(tree, X) <= 1
    sharp = SoftDecisionTreeClassifier(depth=3, random_state=0, inverse_temperature=50.0).fit(X, y)
    assert agreement(sharp, X) >= agreement(tree, X)
    X, y = waves()
    numbers = SoftDecisionTreeRegressor(depth=3, random_state=0).fit(X, y)
    hard, soft = numbers.predict(X, routing="hard"), numbers.predict(X)
    rest = np.sum((hard - soft) ** 2) / np.sum((soft - soft.mean()) ** 2)
    assert agreement(numbers, X) == pytest.approx(1 - rest)
    assert abs(1 - rest - np.corrcoef(hard, soft)[0, 1] ** 2) > 0.01  # a correlation sees no scale


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_what_is_said_of_many_examples_takes_the_memory_of_some(form):
    rng = np.random.default_rng(0)
    n, many = 20_000, 500  # (n, C) would be 80 MB, (n, nodes) 10 MB
    X, y = rng.normal(size=(n, 4)), np.arange(n) % many
    X = form(np.where(rng.random(X.shape) < 0.5, X, 0.0))
    tree = SoftDecisionTreeClassifier(depth=5, max_iter=1, random_state=0).fit(X[:1000], y[:1000])
    assert len(tree.classes_) == many
    with count_bytes() as used:
        for routing in ("soft", "hard", "likeliest"):
            tree.predict(X, routing)
        tree.score(X, y)
        agreement(tree, X)
        tree._score(Data(X, y, np.ones(n)))
        export_text(tree, X=X)
    assert used.peak < 10_000_000
    with count_bytes() as used:
        probabilities = tree.predict_proba(X)
    assert used.peak < probabilities.nbytes + 5_000_000
    few = np.r_[:50, n - 50 : n]
    np.testing.assert_allclose(probabilities[few], tree.predict_proba(X[few]), rtol=1e-9)
    np.testing.assert_array_equal(tree.predict(X), probabilities.argmax(axis=1))
    np.testing.assert_allclose(tree._mean_arrivals(X), tree.arrivals(X).mean(axis=0))


@pytest.mark.parametrize("routing", ["likeliest", "hard"])
def test_the_way_of_an_example_multiplies_up_to_its_arrival(grown, routing):
    tree, X, _ = grown
    path = path_of(tree, X[70], routing)
    assert next(step.node for step in path.steps) == 0
    chance = np.prod([step.probability for step in path.steps])
    np.testing.assert_allclose(chance, path.steps[-1].arrival)
    np.testing.assert_allclose(chance, tree.arrivals(X[70:71])[0, 7 + path.leaf])
    assert path.leaf == tree.apply(X[70:71], routing)[0]
    if routing == "hard":
        assert all(step.probability >= 0.5 for step in path.steps)
    assert path_of(tree, sparse.csr_array(X[70:71]), routing).leaf == path.leaf


def test_the_tree_as_text(grown):
    tree, X, _y = grown
    names = ["sepal length", "sepal width", "petal length", "petal width"]
    text = export_text(tree, feature_names=names, class_names=["se", "ve", "vi"], X=X, terms=2)
    lines = text.splitlines()
    assert len(lines) == 15
    assert re.fullmatch(
        r"gate 0: right if [+-][\d.]+( [+-][\d.]+ (se|pe)[\w ]+){2}\.\.\. > 0", lines[0]
    )
    assert sum("leaf" in line for line in lines) == 8
    shares = [int(n) for n in re.findall(r"(?:left|right) (\d+) %", text)]
    assert len(shares) == 14
    assert any("se (1.00)" in line for line in lines)
    short = export_text(tree, max_depth=1)
    assert [line.split(":")[0] for line in short.splitlines()] == [
        "gate 0",
        "|--- left",
        "|--- right",
    ]
    assert "below gate 2" in short
    with pytest.raises(ValueError, match="expected 4 names, got 1"):
        export_text(tree, feature_names=["x"])
    regressor = SoftDecisionTreeRegressor(depth=1, random_state=0).fit(*waves())
    assert re.search(r"leaf 1 says -?[\d.e-]+$", export_text(regressor))


def test_a_picture_of_the_tree_has_each_gate_and_leaf(grown, tmp_path):
    tree, X, _y = grown
    figure = plot_tree(tree, X=X, example=X[0])
    titles = [axes.get_title() for axes in figure.axes]
    assert [t for t in titles if t.startswith("gate")] == [f"gate {n}" for n in range(7)]
    assert [t for t in titles if t.startswith("leaf")] == [f"leaf {n}" for n in range(8)]
    figure.savefig(tmp_path / "tree.png")
    assert (tmp_path / "tree.png").read_bytes().startswith(b"\x89PNG")
    sub = plot_tree(tree, image_shape=(2, 2), root=2, levels=1, example=X[0])
    titles = [axes.get_title() for axes in sub.axes]
    assert [t for t in titles if t] == ["gate 2", "below gate 5", "below gate 6", "the example"]
    gate = sub.axes[1].get_images()[0]
    np.testing.assert_allclose(gate.get_array(), tree.gate_weights_[2].reshape(2, 2))
    assert gate.norm.vmin == -gate.norm.vmax
    for shape in (None, (2, 2)):
        way = plot_path(tree, X[0], image_shape=shape)
        titles = [axes.get_title() for axes in way.axes if axes.get_title()]
        assert len(titles) == 5 and "arrives with" in titles[-1]


def test_an_example_is_a_row_dense_or_sparse(grown):
    tree, X, _ = grown
    for x in (X[0], X[:1], X[0].tolist(), sparse.csr_array(X[:1]), sparse.coo_matrix(X[:1])):
        assert path_of(tree, x).steps == path_of(tree, X[0]).steps
        for figure in (
            plot_tree(tree, example=x, image_shape=(2, 2)),
            plot_path(tree, x, image_shape=(2, 2)),
            plot_path(tree, x),
        ):
            assert "the example" in [axes.get_title() for axes in figure.axes]


def test_a_path_shows_what_each_gate_saw_of_the_example(grown):
    tree, X, _ = grown
    x = X[70]
    path = path_of(tree, x)
    axes = plot_path(tree, x, image_shape=(2, 2)).axes[5:]  # below weights: weights times pixels
    assert not axes[0].get_images() and len(axes) == 5
    for one, step in zip(axes[1:-1], path.steps, strict=True):
        wanted = (tree.gate_weights_[step.node] * x).reshape(2, 2)
        np.testing.assert_allclose(one.get_images()[0].get_array(), wanted)
    for one, step in zip(plot_path(tree, x).axes[1:-1], path.steps, strict=True):
        widths = sorted(bar.get_width() for bar in one.patches)
        np.testing.assert_allclose(widths, sorted(tree.gate_weights_[step.node] * x))


def test_below_a_gate_leaves_weigh_as_much_as_arrives_at_them(grown):
    tree, X, _ = grown
    load = tree.arrivals(X).mean(axis=0)
    leaves = load[11:13]
    wanted = leaves @ tree.leaf_values_[4:6] / leaves.sum()
    np.testing.assert_allclose(summed_up(tree, 5, load), wanted)
    assert np.abs(summed_up(tree, 5, None) - wanted).max() > 0.01
    np.testing.assert_allclose(summed_up(tree, 5, None), tree.leaf_values_[4:6].mean(axis=0))


def test_what_cannot_be_shown_is_said(grown):
    tree, X, _ = grown
    few = {"class_names": ["a"]}
    for show in (export_text, plot_tree):
        with pytest.raises(ValueError, match="class_names: expected 3 names, got 1"):
            show(tree, **few)
        with pytest.raises(NotFittedError, match="not fitted yet"):
            show(SoftDecisionTreeClassifier())
    for show in (path_of, plot_path):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            show(SoftDecisionTreeClassifier(), X[0])
    for name, show in (("levels", plot_tree), ("max_depth", export_text), ("terms", export_text)):
        for bad in (-1, True, "a", 1.0):
            with pytest.raises(ValueError, match=f"{name}: expected a whole number from 0, got "):
                show(tree, **{name: bad})


def test_what_cannot_be_drawn_is_said_before_a_figure_is_made(grown, monkeypatch):
    tree, X, _ = grown
    monkeypatch.setattr(plot, "Figure", None)
    for root in (7, -1, True, "a", 1.0):
        with pytest.raises(ValueError, match=r"root: expected a gate in \[0, 7\), got "):
            plot_tree(tree, root=root)
    shows = (plot_tree, export_text, lambda tree, **given: plot_path(tree, X[0], **given))
    for show in shows:
        for shape in ((3, 2), (4,), 4, "ab", (2.0, 2.0), (-2, -2), (1, 2, 2)):
            wanted = r"image_shape: expected \(rows, columns\) of 4 features, got "
            with pytest.raises(ValueError, match=wanted):
                show(tree, image_shape=shape)
        with pytest.raises(ValueError, match="feature_names: expected 4 names, got 1"):
            show(tree, feature_names=["a"])
        with pytest.raises(ValueError, match="class_names: expected 3 names, got 1"):
            show(tree, class_names=["a"])
    for bad in (X[0, :3], X[:2]):
        with pytest.raises(ValueError, match="features"):
            plot_tree(tree, example=bad)


def test_features_of_an_image_are_pixels(grown):
    tree, _, _ = grown
    first = export_text(tree, image_shape=(2, 2)).splitlines()[0]
    found = re.findall(r"pixel \((\d), (\d)\)", first)
    weights = np.argsort(-np.abs(tree.gate_weights_[0]))[:3]
    assert [(int(r), int(c)) for r, c in found] == [(i // 2, i % 2) for i in weights]
    assert "x0" in export_text(tree) and "pixel" not in export_text(tree)
    named = export_text(tree, image_shape=(2, 2), feature_names=list("abcd"))
    assert "pixel" not in named


def test_pictures_of_regression_and_of_many_classes(tmp_path):
    def leaves(figure):
        figure.savefig(tmp_path / "tree.png")  # which lays it all out
        assert (tmp_path / "tree.png").read_bytes().startswith(b"\x89PNG")
        return [a.texts[0].get_text() for a in figure.axes if a.get_title().startswith("leaf")]

    X, y = waves()
    numbers = SoftDecisionTreeRegressor(depth=2, random_state=0).fit(X, y)
    assert leaves(plot_tree(numbers, X=X)) == [f"{v:.4g}" for v in numbers.leaf_values_[:, 0]]
    many = SoftDecisionTreeClassifier(depth=2, random_state=0, max_iter=2)
    told = leaves(plot_tree(many.fit(X, np.arange(300) % 40)))
    for text, values in zip(told, many.leaf_values_, strict=True):
        assert text.startswith(f"{values.argmax()} ({values.max():.2f})")
    stump = SoftDecisionTreeClassifier(depth=0, random_state=0, max_iter=2).fit(*iris())
    with pytest.raises(ValueError, match="class_names: expected None of a regressor"):
        plot_tree(numbers, class_names=["a"])
    (text,) = leaves(plot_tree(stump))
    assert re.fullmatch(r"\d \(0\.3\d\)", text)


# ---------------------------------------------------------------------------------- store


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_saved_tree_predicts_and_goes_on_learning_alike(tmp_path, way):
    X, y = iris()
    names = np.array(["a", "b", "c"], dtype=object)[y]
    settings = {"depth": 3, "random_state": 0, "max_iter": 5, "batch_size": 32, "warm_start": True}
    tree = SoftDecisionTreeClassifier(**(settings | way)).fit(X, names)
    save(tree, tmp_path / "tree.npz")
    loaded = load(tmp_path / "tree.npz")
    assert loaded.get_params() == tree.get_params()
    assert loaded.predict(X).dtype == tree.predict(X).dtype
    np.testing.assert_array_equal(loaded.predict_proba(X), tree.predict_proba(X))
    further = [each.fit(X, names).predict_proba(X) for each in (tree, loaded)]
    np.testing.assert_allclose(*further, rtol=1e-9)
    assert loaded.n_iter_ == 10
    assert [p.name for p in tmp_path.iterdir()] == ["tree.npz"]


@pytest.mark.parametrize("dtype", ["<U5", "int32", "float64", "bool"])
def test_names_are_saved_as_what_they_were(tmp_path, dtype):
    X, y = iris()
    tree = SoftDecisionTreeClassifier(depth=1, max_iter=1, random_state=0)
    tree.fit(X, (y % 2).astype(dtype))
    tree.feature_names_in_ = np.array(["a", "b", "c", "d"], object)  # as of a data frame
    save(tree, tmp_path / "tree.npz")
    again = load(tmp_path / "tree.npz")
    assert again.classes_.dtype == tree.classes_.dtype == np.dtype(dtype)
    assert again.classes_.tolist() == tree.classes_.tolist()
    assert again.feature_names_in_.dtype == object
    names = np.array(["one", "two"], dtype=object)[y % 2]
    save(tree.fit(X, names), tmp_path / "tree.npz")
    assert load(tmp_path / "tree.npz").predict(X).dtype == object


def test_a_regressor_is_saved_with_its_unit(tmp_path):
    X, y = waves()
    tree = SoftDecisionTreeRegressor(depth=3, random_state=0, max_iter=5).fit(X, 100 * y + 7)
    save(tree, tmp_path / "tree.npz")
    np.testing.assert_array_equal(load(tmp_path / "tree.npz").predict(X), tree.predict(X))
    copy = pickle.loads(pickle.dumps(tree))
    np.testing.assert_array_equal(copy.predict(X), tree.predict(X))


def test_what_json_cannot_hold_is_refused(tmp_path):
    X, y = iris()
    tree = SoftDecisionTreeClassifier(depth=1, max_iter=1, class_weight={0: 1.0, 1: 2, 2: 1})
    with pytest.raises(CheckpointError, match="expected a fitted tree"):
        save(tree, tmp_path / "tree.npz")
    save(tree.fit(X, y), tmp_path / "tree.npz")
    assert load(tmp_path / "tree.npz").class_weight == {0: 1.0, 1: 2, 2: 1}
    tree.set_params(random_state=np.random.RandomState(0))
    with pytest.raises(CheckpointError, match="random_state as text or a number"):
        save(tree, tmp_path / "other.npz")
    assert not (tmp_path / "other.npz").exists()


def test_a_file_of_another_kind_is_refused_and_runs_nothing(tmp_path):
    path = tmp_path / "tree.npz"
    with pytest.raises(FileNotFoundError, match=r"tree\.npz"):
        load(path)
    path.write_bytes(b"not a zip file")
    with pytest.raises(CheckpointError, match=r"load: expected a file that save wrote"):
        load(path)
    np.savez(path, header=np.array({"format": "soft decision tree 1"}, dtype=object))
    with pytest.raises(CheckpointError, match="pickle"):
        load(path)
    X, y = iris()
    save(SoftDecisionTreeClassifier(depth=1, max_iter=1).fit(X, y), path)
    with np.load(path) as file:
        arrays = dict(file)
    text = arrays["header"].tobytes().decode()
    for old, new, message in [
        ("soft decision tree 3", "soft decision tree 9", "soft decision tree 9"),
        ('"objects": []', '"objects": ["classes_"]', "classes_ is none that save wrote"),
        ('"objects": []', '"objects": "none"', "objects is none that save wrote"),
        ("SoftDecisionTreeClassifier", "BaseEstimator", "KeyError: 'BaseEstimator'"),
        ('"built": {"depth": 1', '"built": {"depth": 2', "a header of a larger tree"),
        ('"built": {"depth": 1', '"built": {"depth": 23', "a header of a larger tree"),
        ('"has_gauss": 0', '"has_gauss": Infinity', "cannot convert float infinity"),
        ('"n_iter_": 1', '"n_iter_": "1"', "n_iter_ is none that save wrote"),
        ('"n_features_in_": 4', '"n_features_in_": 5', "n_features_in_ is none that save wrote"),
        ('"n_iter_"', '"fit"', "fitted is none that save wrote"),
        ('"max_iter"', '"maximal"', "unexpected keyword argument 'maximal'"),
    ]:
        assert old in text
        changed = np.frombuffer(text.replace(old, new).encode(), np.uint8)
        np.savez(path, **(arrays | {"header": changed}))
        with pytest.raises(CheckpointError, match=message):
            load(path)
    for name, array, message in [
        ("random.key", arrays["random.key"][:5], "random is none that save wrote"),
        ("random.pos", np.array(10**6), "random is none that save wrote"),
        ("model.size", np.array(["a", "b"]), "expected a size of two numbers > 0"),
        ("model.penalty.past", np.zeros((2, 7)), r"expected penalty.past \(2, 1\), got \(2, 7\)"),
        ("model.leaves.scale", np.array(np.nan), "expected 0 < scale <= 1, got nan"),
        ("model.leaves.counts", np.ones(3), r"unknown arrays \['leaves.counts'\]"),
        ("model.leaves.table", np.full((3, 2), np.nan), "leaves.table: expected numbers"),
        ("model.tree.weight", np.zeros((4, 3)), "a header of a larger tree"),
        ("model.tree.bias", None, r"missing \['bias'\]"),
        ("classes_", np.array([2, 1, 0]), "classes_: expected each class once, in order"),
        ("other", np.zeros(1), "arrays is none that save wrote"),
    ]:
        changed = {k: a for k, a in (arrays | {name: array}).items() if a is not None}
        np.savez(path, **changed)
        with pytest.raises(CheckpointError, match=message):
            load(path)


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_a_damaged_file_is_refused_whatever_the_damage(tmp_path):
    path = tmp_path / "tree.npz"
    save(SoftDecisionTreeClassifier(depth=1, max_iter=1, random_state=0).fit(*iris()), path)
    whole = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"load: expected a file that save wrote"):
        load(path)
    rng = np.random.default_rng(0)
    refused = 0
    for at in rng.integers(0, len(whole), 300):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:  # a bit that says when the file was made, say, does no harm
            load(path)
        except CheckpointError:
            refused += 1
    assert refused > 200
    for end in range(0, len(whole), 211):
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError, match="load: expected a file that save wrote"):
            load(path)


# ------------------------------------------------------------------------- data, command


def test_every_bundled_set_is_split_and_scaled():
    for name in data.BUNDLED:
        s = data.read(name, seed=1)
        assert len(s.X) == len(s.y) and len(s.X_test) == len(s.y_test)
        assert set(s.y_test) <= set(s.y) and np.abs(s.X).max() < 30
        if name != "digits":  # the test has no say in the scale
            np.testing.assert_allclose(s.X.mean(0, np.float64), 0, atol=1e-5)
            np.testing.assert_allclose(s.X.std(0, np.float64), 1, rtol=1e-4)
    assert data.read("digits").image_shape == (8, 8)
    assert data.read("wine").feature_names[0] == "alcohol"


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    raw = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)


def test_a_folder_of_idx_files(tmp_path):
    rng = np.random.default_rng(0)
    for part, n in (("train", 20), ("t10k", 6)):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (n, 4, 3)))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", np.arange(n) % 2)
    s = data.read(str(tmp_path))
    assert s.X.shape == (20, 12) and s.X_test.shape == (6, 12) and s.image_shape == (4, 3)
    assert s.X.dtype == np.float32 and 0.9 < s.X.max() <= 1
    assert s.class_names is None
    labels = np.r_[data.FASHION, np.arange(10)]
    write_idx(tmp_path / "train-labels-idx1-ubyte", labels)
    assert data.read(str(tmp_path)).class_names[9] == "boot"
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x07abc")
    with pytest.raises(ValueError, match="expected 7 bytes after the header, got 3"):
        data.read(str(tmp_path))
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ValueError, match="expected a file t10k-labels-idx1-ubyte"):
        data.read(str(tmp_path))


def test_glosses_become_sparse_rows_and_hypernyms_classes(tmp_path):
    lines = ["  1 This software and database is being provided"]
    for i in range(12):
        lines.append(
            f"{i:08d} 05 n 01 thing_{i} 0 001 @ {98 + i % 2:08d} n 0000 | a red cat{'s' * i}"
        )
    lines.append("00000099 03 n 01 big_one 0 000 | no parent")
    lines.append("00000050 03 n 01 rare 0 001 @ 00000097 n 0000 | alone")
    path = tmp_path / "data.noun"
    path.write_text("\n".join(lines))
    s = data.read(str(path), members=3)
    assert sparse.issparse(s.X) and s.X.shape[0] + s.X_test.shape[0] == 12
    assert s.feature_names == ["a", "red"]
    assert s.class_names == ["00000098", "big one"]
    np.testing.assert_allclose((s.X.multiply(s.X)).sum(axis=1), 1, rtol=1e-6)


def test_arrays_of_ones_own(tmp_path):
    X, y = iris()
    np.savez(tmp_path / "mine.npz", X=X, y=y)
    assert data.read(str(tmp_path / "mine.npz")).X.shape == (112, 4)
    np.savez(tmp_path / "mine.npz", data=X)
    with pytest.raises(ValueError, match="expected arrays X and y"):
        data.read(str(tmp_path / "mine.npz"))


def test_the_command_trains_tells_draws_and_saves(tmp_path, capsys):
    picture, saved = tmp_path / "tree.png", tmp_path / "tree.npz"
    options = f"--data iris --depth 2 --epochs 60 --out {picture} --save {saved}"
    assert command.main(options.split()) == 0
    out = capsys.readouterr().out
    assert "112 examples to learn from, 4 features, 3 classes; 38 to test with" in out
    right = float(re.search(r"([\d.]+)% of the test examples right", out)[1])
    assert right > 85
    assert "gate 0: right if" in out and "petal" in out and "says" in out
    for path in (picture, tmp_path / "tree-path.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    assert load(saved).classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("absent", r"absent: expected one of digits, .*, a folder of IDX files"),
        ("absent.npz", r"cannot read absent.npz: No such file or directory"),
    ],
)
def test_data_that_cannot_be_read_is_one_sentence(tmp_path, capsys, source, message):
    assert command.main(["--data", source, "--out", str(tmp_path / "x.png")]) == 2
    assert re.match(f"soft_decision_tree: error: {message}", capsys.readouterr().err)


def test_a_place_that_cannot_be_written_is_said_before_the_training(tmp_path, capsys):
    assert command.main(["--out", str(tmp_path / "no" / "x.png")]) == 2
    assert "cannot write a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    ["--save {dir}/mine.npz", "--out {dir}/mine.npz", "--save {dir}/x-path.png --out {dir}/x.png"],
)
def test_nothing_that_is_read_or_written_is_overwritten(tmp_path, capsys, options):
    X, y = iris()
    np.savez(tmp_path / "mine.npz", X=X, y=y)
    options = f"--data {{dir}}/mine.npz --out {{dir}}/y.png {options}".format(dir=tmp_path)
    assert command.main(options.split()) == 2
    assert "would overwrite" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("option", ["--depth 15", "--epochs x", "--lr 0", "--seed -1"], ids=str)
def test_an_option_out_of_range_names_its_range(capsys, option):
    with pytest.raises(SystemExit) as stop:
        command.main(option.split())
    assert stop.value.code == 2
    assert "number from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--out x.doc", r"cannot draw x.doc: expected .png, .*Hint: x.png"),
        ("--leaves gradient --smoothing epoch", "--smoothing does nothing with --leaves gradient"),
        ("--leaves gradient --leaf-form softmax", "--leaf-form does nothing with --leaves grad"),
        ("--members 3", "--members does nothing with --data digits. Hint: leave it out"),
    ],
)
def test_what_would_do_nothing_is_refused_before_the_training(capsys, options, message):
    assert command.main(options.split()) == 2
    assert re.match(f"soft_decision_tree: error: {message}", capsys.readouterr().err)


def test_pictures_are_of_the_kind_that_their_names_say(tmp_path):
    out = tmp_path / "tree.svg"
    assert command.main(f"--data iris --depth 1 --epochs 1 --out {out}".split()) == 0
    for path in (out, tmp_path / "tree-path.svg"):
        assert path.read_bytes().startswith(b"<?xml")
    assert len(list(tmp_path.iterdir())) == 2


def test_examples_of_other_shapes_are_refused(tmp_path):
    for shape, n in (((3, 2), 2), ((3,), 3), ((0, 2), 0)):
        np.savez(tmp_path / "mine.npz", X=np.zeros(shape), y=np.zeros(n))
        with pytest.raises(ValueError, match=r"expected X \(n, features\) and y \(n,\) of 2 ex"):
            data.read(str(tmp_path / "mine.npz"))
    path = tmp_path / "data.noun"
    path.write_text("no synset\n")
    with pytest.raises(ValueError, match=r"expected a line of data\.noun, got 'no synset"):
        data.read(str(path))
    path.write_text("00000050 03 n 01 rare 0 001 @ 00000097 n 0000 | alone\n")
    with pytest.raises(ValueError, match="expected a class of 5 members or more, got none"):
        data.read(str(path))
    for part, size in (("train", (4, 3)), ("t10k", (3, 4))):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", np.zeros((6, *size)))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", np.arange(6) % 2)
    with pytest.raises(ValueError, match=r"all of one size, and as many labels, got \(6, 3, 4\)"):
        data.read(str(tmp_path))


def test_it_fits_into_a_pipeline():
    X, y = load_iris(return_X_y=True)
    tree = make_pipeline(StandardScaler(), SoftDecisionTreeClassifier(depth=3, random_state=0))
    assert tree.fit(X, y).score(X, y) > 0.93


# -------------------------------------------------------------------------------- streams


STREAMS = [
    (SoftDecisionTreeClassifier, {"smoothing": "exponential"}),
    (SoftDecisionTreeClassifier, {"smoothing": "epoch"}),
    (SoftDecisionTreeClassifier, {"leaf_form": "softmax"}),
    (SoftDecisionTreeClassifier, {"leaves": "gradient"}),
    (SoftDecisionTreeRegressor, {"leaves": "gradient", "learn_temperature": True}),
    (SoftDecisionTreeRegressor, {"leaves": "derivative_free"}),
    (SoftDecisionTreeRegressor, {"leaves": "derivative_free", "smoothing": "epoch"}),
]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(("kind", "way"), STREAMS, ids=str)
def test_a_stream_that_fails_halfway_is_undone_to_the_bit(monkeypatch, kind, way, form):
    X, y = iris()
    X = form(np.where(np.abs(X) < 0.5, 0.0, X))
    parts = [(X[i : i + 30], y[i : i + 30]) for i in range(0, 150, 30)]
    told = {"classes": [0, 1, 2]} if kind is SoftDecisionTreeClassifier else {}
    trees = [kind(depth=3, random_state=0, batch_size=8, **way) for _ in range(2)]
    for tree in trees:
        tree.partial_fit(X[::10], y[::10], **told).partial_fit(*parts[0])
    step, steps = Model.step, []

    def stopped(model, batch):
        steps.append(step(model, batch))
        if len(steps) == 3:
            raise KeyboardInterrupt
        return steps[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Model, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            trees[0].partial_fit(*parts[1])
    for _ in range(30):  # 360 batches: the start of an epoch of 100 moves on the way
        for part in parts[2:]:
            one, other = (tree.partial_fit(*part)._model.arrays() for tree in trees)
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name


def test_a_part_that_multiplies_the_decay_in_is_undone():
    X, y = iris()
    for smoothing in SMOOTHING:
        tree = SoftDecisionTreeClassifier(
            depth=2, random_state=0, batch_size=1, smoothing=smoothing
        )
        tree.partial_fit(X, y, classes=[0, 1, 2])
        before = tree._model.arrays()
        with pytest.raises(ZeroDivisionError), tree._model.savepoint(Data(X, y, y), 1600, True):
            tree._model.leaves.begin_epoch(1600, stream=True)
            for k in range(1600):
                tree._model.step(Data(X[k % 150 :][:1], y[k % 150 :][:1], np.ones(1)))
            raise ZeroDivisionError
        for name, array in tree._model.arrays().items():
            assert array.tobytes() == before[name].tobytes(), name


def test_a_part_of_a_stream_costs_its_own_rows():
    rng = np.random.default_rng(0)
    many = 50_000  # features: the tree's weights and what Adam has for them are 8.4 MB
    X = sparse.csr_array(sparse.random_array((8, many), density=5 / many, rng=rng, format="csr"))
    tree = SoftDecisionTreeClassifier(depth=3, random_state=0)
    tree.partial_fit(X, np.arange(8), classes=np.arange(1000)).partial_fit(X, np.arange(8))
    with count_bytes() as used:
        tree.partial_fit(X, np.arange(8))
    assert used.peak < 1_000_000


def test_a_number_that_cannot_be_learned_from_is_undone():
    X, y = waves()
    tree = SoftDecisionTreeRegressor(depth=3, random_state=0, batch_size=32)
    before, further = tree.partial_fit(X, y).predict(X), deepcopy(tree)
    with pytest.raises(ValueError, match="expected a finite loss"):
        tree.partial_fit(X, np.r_[y[:-1], 1e200])
    np.testing.assert_array_equal(tree.predict(X), before)
    again, wanted = tree.partial_fit(X, y), further.partial_fit(X, y)
    np.testing.assert_array_equal(again.predict(X), wanted.predict(X))


# --------------------------------------------- weights, targets, parts and files at their edges


def test_weights_that_are_lost_beside_the_floor_of_counts_are_refused():
    X, y = iris()
    tree = SoftDecisionTreeClassifier(depth=2, max_iter=2)
    with pytest.raises(ValueError, match="sample_weight: expected a mean of at least 1e-20"):
        tree.fit(X, y, sample_weight=np.full(len(y), 1e-31))


def test_a_warm_start_holds_the_same_examples_out(monkeypatch):
    X, y = iris()
    parts = []
    score = SoftDecisionTreeClassifier._score

    def noted(tree, part):
        parts.append(part.x.tobytes())
        return score(tree, part)

    monkeypatch.setattr(SoftDecisionTreeClassifier, "_score", noted)
    tree = SoftDecisionTreeClassifier(
        depth=2, max_iter=2, early_stopping=True, warm_start=True, random_state=0
    )
    tree.fit(X, y).fit(X, y)
    assert len(parts) >= 4 and len(set(parts)) == 1


def test_one_example_held_out_has_a_score():
    X, y = waves()
    tree = SoftDecisionTreeRegressor(depth=2, max_iter=3, early_stopping=True, random_state=0)
    tree.fit(X[:9], y[:9])
    assert np.isfinite(tree.validation_scores_).all()


def test_a_saved_tree_has_no_device(tmp_path):
    X, y = iris()
    tree = SoftDecisionTreeClassifier(depth=2, max_iter=2, random_state=0).fit(X, y)
    tree._built = tree._built._replace(device="cuda")  # as if it had been trained there
    save(tree, tmp_path / "tree.npz")
    again = load(tmp_path / "tree.npz")
    assert again._built.device == again._model.device == "cpu"
    again.partial_fit(X, y)


def test_leaves_that_no_example_reaches_have_a_mean():
    X, y = iris()
    X = X.astype(np.float32)
    tree = SoftDecisionTreeClassifier(depth=4, max_iter=2, random_state=0).fit(X, y)
    tree._model.tree.bias.assign(np.full(15, 1e4, np.float32))  # all go right
    for max_depth in (None, 2):
        text = export_text(tree, X=X, max_depth=max_depth)
        assert "left 0 %" in text and "nan" not in text
        told = np.array(re.findall(r"\((\d\.\d+)\)", text), float)
        assert len(told) >= 4 and (told > 0).all()


def test_class_weights_on_a_part_without_a_class_are_those_of_the_others():
    X, y = iris()
    tree = SoftDecisionTreeClassifier(depth=2, class_weight={0: 1.0, 1: 3.0}, random_state=0)
    tree.partial_fit(X, y, classes=[0, 1, 2])
    some = y != 1
    tree.partial_fit(X[some], y[some])
    with pytest.raises(ValueError, match=r"class_weight: expected .*, got also \[7\]"):
        tree.set_params(class_weight={7: 1.0}).partial_fit(X, y)


def test_balanced_weights_count_no_example_of_weight_0():
    X, y = iris()
    absent = np.where(np.arange(len(y)) % 3 == 0, 0.0, 1.0)
    absent[y == 1] = np.where(np.arange((y == 1).sum()) % 5, 0.0, 1.0)
    kept = absent > 0
    trees = [
        SoftDecisionTreeClassifier(depth=2, max_iter=5, class_weight="balanced", random_state=0)
        for _ in range(2)
    ]
    trees[0].fit(X, y, sample_weight=absent)
    trees[1].fit(X[kept], y[kept])
    np.testing.assert_allclose(trees[0].predict_proba(X), trees[1].predict_proba(X), rtol=1e-9)


def test_an_absent_target_has_no_say_in_the_unit():
    X, y = waves()
    X, y = np.r_[X, X[:1]], np.r_[y * 1e-3, 1e300]
    weights = np.r_[np.ones(len(y) - 1), 0.0]
    tree = SoftDecisionTreeRegressor(depth=3, max_iter=5, random_state=0).fit(X, y, weights)
    alone = SoftDecisionTreeRegressor(depth=3, max_iter=5, random_state=0).fit(X[:-1], y[:-1])
    np.testing.assert_allclose(tree.predict(X), alone.predict(X), rtol=1e-9)


def test_zeros_that_are_stored_are_zeros():
    X, y = iris()
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    lean = sparse.csr_matrix(X)
    full = sparse.csr_matrix(np.ones_like(X))
    full.data = X.ravel().copy()
    trees = [
        SoftDecisionTreeClassifier(depth=2, max_iter=5, random_state=0).fit(x, y)
        for x in (lean, full)
    ]
    assert full.nnz > lean.nnz
    np.testing.assert_array_equal(*(tree.predict_proba(X) for tree in trees))


def test_a_stream_of_few_examples_of_many_classes_needs_no_warning():
    X = np.random.default_rng(0).normal(size=(30, 2))
    tree = SoftDecisionTreeClassifier(depth=2, random_state=0)
    for _ in range(2):
        tree.partial_fit(X, np.arange(30), classes=np.arange(30))
        tree.partial_fit(X, np.arange(30))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.npz", b"PK\3\4 and no more", "x.npz: "),
        ("nan.npz", None, "contains NaN"),
    ],
)
def test_examples_that_cannot_be_used_are_one_sentence(tmp_path, capsys, name, content, message):
    path = tmp_path / name
    if content is None:
        X, y = iris()
        np.savez(path, X=np.where(X > 2, np.nan, X), y=y)
    else:
        path.write_bytes(content)
    assert command.main(["--data", str(path), "--out", str(tmp_path / "t.png")]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("content", [b"\0", gzip.compress(b"\0\0\x08\1" * 99, mtime=0)[:-9]])
def test_a_file_of_images_that_was_cut_short_is_refused(tmp_path, content):
    path = tmp_path / ("x.gz" if len(content) > 1 else "x")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x(.gz)?: (expected an IDX file|the compressed file is)"):
        data.idx(path)


def test_a_leaf_of_many_classes_says_its_likeliest():
    X = np.random.default_rng(0).normal(size=(1000, 2))
    y = np.repeat(np.arange(500), 2)
    tree = SoftDecisionTreeClassifier(depth=1, max_iter=1, random_state=0).fit(X, y)
    assert re.search(r"leaf 0 says \d+ \(0.0\d+\)", export_text(tree))


def test_a_pipeline_is_told_to_give_its_tree(grown, tmp_path):
    pipeline = make_pipeline(grown[0])
    message = r"a soft decision tree, got Pipeline\. Hint: pipeline\[-1\]"
    for use in (
        lambda: save(pipeline, tmp_path / "tree.npz"),
        lambda: export_text(pipeline),
        lambda: plot_tree(pipeline),
    ):
        with pytest.raises(TypeError, match=message):
            use()
