"""The parts of soft trees: invariants, underflow and saturation, the penalty, the leaf update."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tinygrad_sparse as ts
from tinygrad_sparse import errors, ops
from tinygrad_sparse.nn.soft_tree import (
    PathPenalty,
    SoftTree,
    SparseRows,
    leaf_update,
    leaves_of,
    log_arrivals,
    log_likelihood,
)

LOGITS = hnp.arrays(
    np.float64,
    st.integers(0, 4).flatmap(lambda h: st.tuples(st.integers(1, 5), st.just(2**h - 1))),
    elements=st.floats(-1e4, 1e4),
)


def slow_arrivals(z):
    """By the definition: from each node to the root."""
    nodes = 2 * z.shape[1] + 1
    out = np.ones((len(z), nodes))
    for n in range(nodes):
        below = n
        while below:
            parent = (below - 1) // 2
            right = 1 / (1 + np.exp(-z[:, parent]))
            out[:, n] *= right if below % 2 == 0 else 1 - right
            below = parent
    return out


def test_arrivals_are_the_products_along_the_paths():
    z = np.random.default_rng(0).normal(size=(6, 15))
    np.testing.assert_allclose(np.exp(log_arrivals(z)), slow_arrivals(z), rtol=1e-12)


@given(LOGITS)
def test_at_each_level_an_example_arrives_somewhere(z):
    log_nodes = log_arrivals(z)
    total = ops.logsumexp(leaves_of(log_nodes), -1)
    np.testing.assert_allclose(total, 0, atol=1e-9)
    for n in range(z.shape[1]):
        children = ops.logsumexp(log_nodes[:, 2 * n + 1 : 2 * n + 3], -1)
        np.testing.assert_allclose(children, log_nodes[:, n], atol=1e-9)


@given(LOGITS)
def test_saturated_gates_keep_gradients_finite(z):
    leaf = ts.parameter(z)
    labels = np.arange(len(z)) % 3
    table = np.log(np.random.default_rng(0).dirichlet([1.0] * 3, z.shape[1] + 1).T)
    with ts.Tape("raise"):
        log_leaves = leaves_of(log_arrivals(leaf))
        loss = -log_likelihood(log_leaves, table[labels]).sum()
    assert np.isfinite(loss.item())
    g = loss.backward()[leaf] if z.size else z
    assert np.isfinite(g).all() and (np.abs(g) <= 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_depth_12_does_not_underflow(dtype):
    z = (400 * np.random.default_rng(0).normal(size=(8, 2**12 - 1))).astype(dtype)
    with np.errstate(under="ignore"):
        products = np.exp(leaves_of(log_arrivals(z)))
    assert (products == 0).any(), "no logit is extreme enough for this to test anything"
    leaf = ts.parameter(z)
    with ts.Tape("raise"):
        log_leaves = leaves_of(log_arrivals(leaf))
        # Every example has a label that only its least likely leaf explains.
        worst = log_leaves.data.argmin(axis=1)
        log_q = np.full(log_leaves.shape, -np.inf, dtype)
        log_q[np.arange(8), worst] = 0
        loss = -log_likelihood(log_leaves, log_q).sum()
    assert loss.dtype == dtype and 100 < loss.item() < np.inf
    g = loss.backward()[leaf]
    # A gate on the way is pushed by the probability of its other side; all others are left alone.
    wanted, likely = np.zeros_like(z), ops.sigmoid(z)
    for i, leaf in enumerate(worst):
        node = z.shape[1] + int(leaf)
        while node:
            parent = (node - 1) // 2
            wanted[i, parent] = likely[i, parent] - (node % 2 == 0)
            node = parent
    np.testing.assert_allclose(g, wanted, rtol=1e-5, atol=1e-6)
    assert np.abs(wanted).sum() > 8


def test_what_is_no_tree_is_refused():
    for z in (np.zeros((3, 4)), np.float64(1.0)):
        with pytest.raises(errors.ShapeError, match=r"expected .*gates"):
            log_arrivals(z)
    with pytest.raises(errors.TinygradSparseError, match="weight >= 0 and 0 < decay <= 1"):
        PathPenalty(3, -1.0)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8])
def test_whole_numbers_are_logits_like_any_others(dtype):
    z = np.array([[1, 0, 3], [2, 1, 5]], dtype)
    np.testing.assert_array_equal(log_arrivals(z), log_arrivals(z.astype(float)))
    np.testing.assert_array_equal(log_arrivals(ts.tensor(z)).data, log_arrivals(z.astype(float)))


@pytest.mark.parametrize(
    "depth", [-1, 70, 10**400, 2.0, True], ids=["-1", "70", "huge", "2.0", "True"]
)
def test_a_depth_that_no_tree_has_is_refused(depth):
    for make in (lambda: SoftTree(3, depth), lambda: PathPenalty(depth, 1.0)):
        with pytest.raises(errors.ArgumentError, match="depth, a whole number from 0 to 24, got"):
            make()


def test_parts_of_other_sizes_are_refused():
    with pytest.raises(errors.ArgumentError, match="SoftTree: expected D >= 1 features, got 0"):
        SoftTree(0, 2)
    nodes = log_arrivals(np.zeros((4, 3)))
    for depth, some in ((3, nodes), (2, nodes[0])):
        with pytest.raises(errors.ShapeError, match=r"PathPenalty: expected log_nodes \(B, "):
            PathPenalty(depth, 1.0)(some)
    with pytest.raises(errors.ShapeError, match=r"log_likelihood: expected two .* of equal L"):
        log_likelihood(leaves_of(nodes), np.zeros((4, 1)))


# ----------------------------------------------------------------------------- leaf update


def slow_update(arrivals, Q, labels):
    """U[c, l] by its definition, example by example."""
    U = np.zeros_like(Q)
    for a, c in zip(arrivals, labels, strict=True):
        U[c] += a * Q[c] / (a @ Q[c])
    return U


@settings(max_examples=50)
@given(st.integers(1, 9), st.integers(1, 8), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_the_leaf_update_is_table_times_gradient(B, C, depth, seed):
    rng = np.random.default_rng(seed)
    Q = rng.dirichlet(np.ones(C), 2**depth).T
    log_leaves = leaves_of(log_arrivals(rng.normal(size=(B, 2**depth - 1))))
    labels = rng.integers(0, C, B)
    table = ts.parameter(Q)
    with ts.Tape("raise"):
        fit = log_likelihood(log_leaves, ops.log(table[labels])).sum()
    U = leaf_update(table, fit.backward()[table])
    assert U.indices.tolist() == sorted(set(labels.tolist())), "absent classes get no row"
    np.testing.assert_allclose(
        U.to_dense(), slow_update(np.exp(log_leaves), Q, labels), rtol=1e-10, atol=1e-15
    )
    assert U.values.sum() == pytest.approx(B, rel=1e-12)
    by_class = np.bincount(labels, minlength=C)
    np.testing.assert_allclose(U.to_dense().sum(axis=1), by_class, rtol=1e-12)


def test_responsibilities_of_each_example_sum_to_1():
    rng = np.random.default_rng(0)
    log_leaves = leaves_of(log_arrivals(rng.normal(size=(6, 7))))
    rows = ts.parameter(rng.dirichlet(np.ones(8), 6))
    with ts.Tape("raise"):
        fit = log_likelihood(log_leaves, ops.log(rows)).sum()
    responsibilities = rows.data * fit.backward()[rows]
    assert (responsibilities >= 0).all()
    np.testing.assert_allclose(responsibilities.sum(axis=1), 1, rtol=1e-12)


def test_the_leaf_update_wants_a_looked_up_table():
    Q = ts.parameter(np.ones((3, 4)))
    with pytest.raises(errors.ShapeError, match="leaf_update: expected the gradient of a table"):
        leaf_update(Q, np.ones((3, 4)))


def test_elements_that_were_looked_up_are_parts_of_rows():
    Q = ts.parameter(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    with ts.Tape("raise"):
        loss = (Q[[2, 0, 2], [1, 1, 1]] * np.array([1.0, 10.0, 100.0])).sum()
    g = loss.backward()[Q]
    assert g.lead == 2, "the gradient is of elements, or this tests nothing"
    U = leaf_update(Q, g)
    assert U.indices.tolist() == [0, 2]
    np.testing.assert_array_equal(U.values, [[0, 20], [0, 606]])


# --------------------------------------------------------------------------------- penalty


def shares(z, weights):
    """α of each gate, as the paper writes it: weighted by arrival."""
    arrivals = slow_arrivals(z)[:, : z.shape[1]] * weights[:, None]
    right = arrivals / (1 + np.exp(-z))
    return right.sum(axis=0), arrivals.sum(axis=0)


def paper(alpha, weight, decay):
    depth = np.floor(np.log2(np.arange(len(alpha)) + 1))
    return -weight * np.sum(decay**depth * 0.5 * (np.log(alpha) + np.log(1 - alpha)))


@pytest.mark.parametrize("decay", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_penalty_is_that_of_the_paper(decay, weighted):
    rng = np.random.default_rng(1)
    z, weights = rng.normal(size=(9, 7)), rng.uniform(0.5, 3, 9)
    penalty = PathPenalty(3, 0.3, decay=decay, window=False)
    got = penalty(log_arrivals(z), np.log(weights) if weighted else None)
    right, all_ = shares(z, weights if weighted else np.ones(9))
    assert got == pytest.approx(paper(right / all_, 0.3, decay), rel=1e-12)


def test_with_halving_it_is_the_mean_log_share_of_the_leaves():
    z = np.random.default_rng(2).normal(size=(9, 15))
    share = np.exp(leaves_of(log_arrivals(z))).mean(axis=0)
    got = PathPenalty(4, 0.7, window=False)(log_arrivals(z))
    assert got == pytest.approx(0.7 * np.mean(-np.log(share)), rel=1e-12)


def test_a_gate_remembers_2_to_the_depth_batches():
    rng = np.random.default_rng(3)
    batches = rng.normal(size=(4, 6, 7))
    penalty, sums = PathPenalty(3, 0.3), np.zeros((2, 7))
    memory = 1 - 0.5 ** np.floor(np.log2(np.arange(7) + 1))
    for z in batches:
        sums = memory * sums + shares(z, np.ones(6))
        got = penalty(log_arrivals(z))
        assert got == pytest.approx(paper(sums[0] / sums[1], 0.3, 0.5), rel=1e-12)


def test_the_past_is_a_constant():
    rng = np.random.default_rng(4)
    first, z = rng.normal(size=(2, 6, 3))
    penalty = PathPenalty(2, 0.3)
    penalty(log_arrivals(first))
    past = penalty.past

    def again(x):
        penalty.past = past
        return penalty(log_arrivals(x))

    ts.testing.check_grads(again, [z])


def test_one_sided_gates_cost_more_and_no_weight_costs_nothing():
    even, odd = np.zeros((4, 3)), np.full((4, 3), 30.0)
    penalty = PathPenalty(2, 1.0, window=False)
    assert penalty(log_arrivals(even)) == pytest.approx(2 * np.log(2))
    assert 10 < penalty(log_arrivals(odd)) < np.inf
    assert PathPenalty(2, 0.0)(log_arrivals(odd)) == 0
    assert PathPenalty(0, 1.0)(log_arrivals(np.zeros((4, 0)))) == 0


# ----------------------------------------------------------------------------------- gates


def test_sparse_rows_are_the_matrix_and_touch_only_their_columns():
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((5, 40)) < 0.1, rng.normal(size=(5, 40)), 0)
    dense[2] = 0
    rows, columns = np.nonzero(dense)
    x = SparseRows(rows, columns, dense[rows, columns], 5)
    tree = SoftTree(40, 3, learn_temperature=True, seed=0, dtype=np.float64)
    with ts.Tape("raise"):
        out = tree(x)
        grads = (out * out).sum().backward()
    np.testing.assert_allclose(out.data, tree(dense).data, rtol=1e-12)
    assert grads.touched_rows(tree.weight).tolist() == np.unique(columns).tolist()
    with ts.Tape("raise"):
        wanted = (tree(dense) ** 2).sum().backward()
    np.testing.assert_allclose(grads[tree.weight].to_dense(), wanted[tree.weight], rtol=1e-10)
    np.testing.assert_allclose(x @ tree.weight.data, dense @ tree.weight.data, rtol=1e-12)


def test_a_temperature_is_trained_only_if_asked_for():
    names = [name for name, _ in SoftTree(4, 2).named_parameters()]
    assert names == ["weight", "bias"]
    learned = SoftTree(4, 2, inverse_temperature=3.0, learn_temperature=True, seed=0)
    fixed = SoftTree(4, 2, inverse_temperature=3.0, seed=0)
    assert [name for name, _ in learned.named_parameters()] == ["weight", "bias", "beta"]
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_array_equal(learned(x).data, fixed(x).data)
    sharper = np.exp(fixed(x).data[:, 1:3]).max(axis=1)
    softer = np.exp(SoftTree(4, 2, seed=0)(x).data[:, 1:3]).max(axis=1)
    assert (sharper > softer).all()


def test_a_temperature_that_is_not_trained_is_saved_and_checked():
    sharp, dull = (SoftTree(4, 2, inverse_temperature=b, seed=0) for b in (3.0, 1.0))
    state = sharp.state_dict()
    np.testing.assert_array_equal(state["beta"], np.full(3, 3.0, np.float32))
    SoftTree(4, 2, inverse_temperature=3.0).load_state_dict(state)
    before = dull.state_dict()
    with pytest.raises(errors.CheckpointError, match=r"expected beta \[1. 1. 1.\] as here"):
        dull.load_state_dict(state | {"bias": np.ones(3, np.float32)})
    np.testing.assert_array_equal(dull.bias.data, before["bias"])
    both = ts.nn.Sequential(sharp, dull)
    assert [name for name in both.state_dict() if "beta" in name] == [
        "layers.0.beta",
        "layers.1.beta",
    ]
    assert [name for name, _ in both.named_parameters() if "beta" in name] == []
