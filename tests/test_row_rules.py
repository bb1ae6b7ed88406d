"""Rows that several axes address: what keeps them rows where an op holds larger ones apart only."""

import math

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import ops
from tinygrad_sparse.slices import coarser, finer
from tinygrad_sparse.testing import check_grads, count_bytes


def random_slices(shape, lead, n=7, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, math.prod(shape[:lead]), n)
    return ts.IndexedSlices(ids, rng.normal(size=(n, *shape[lead:])), shape, lead)


@pytest.mark.parametrize("lead", [1, 2, 3])
@pytest.mark.parametrize(
    "to", [(24,), (4, 6), (6, 4), (3, 8), (2, 3, 4), (4, 3, 2), (1, 24), (24, 1), (2, 2, 3, 2)]
)
def test_reshaped_slices_are_the_reshaped_gradient(lead, to):
    g = random_slices((2, 3, 4), lead)
    moved = g.reshape(to)
    np.testing.assert_allclose(moved.to_dense(), g.to_dense().reshape(to))
    assert moved.values.size == g.values.size


def test_slices_without_rows_reshape_too():
    g = ts.IndexedSlices([], np.zeros((0, 4)), (0, 4))
    assert g.reshape((4, 0)).to_dense().shape == (4, 0)
    assert random_slices((1, 1), 2).reshape(()).shape == ()


@pytest.mark.parametrize("lead", [2, 3])
def test_coarser_rows_hold_what_the_touched_rows_of_that_size_hold(lead):
    g = random_slices((5, 3, 2), lead)
    rows = coarser(g, 1)
    np.testing.assert_allclose(rows.to_dense(), g.to_dense())
    assert rows.indices.tolist() == np.unique(g.indices // math.prod(g.shape[1:lead])).tolist()
    assert coarser(finer(rows, lead), 1).to_dense().tolist() == rows.to_dense().tolist()


def test_no_rows_stay_no_rows():
    g = ts.IndexedSlices([], np.zeros((0, 2)), (5, 3, 2), lead=2)
    assert coarser(g, 1).values.shape == (0, 3, 2)
    assert coarser(ts.IndexedSlices([], np.zeros(0), (5, 0), lead=2), 1).to_dense().size == 0


def test_rows_of_no_elements_join_a_dense_gradient():
    W = ts.parameter(np.ones((5, 0)))
    with ts.Tape() as tape:
        loss = W[[1, 1]].sum() + (W * 2.0).sum()
    assert tape.backward(loss)[W].shape == (5, 0)


def test_elements_of_a_few_rows_become_these_rows_and_no_others():
    W = ts.parameter(np.random.default_rng(0).normal(size=(1000, 8)))
    with ts.Tape(densify="raise") as tape:
        loss = ops.log_softmax(W)[[7, 999, 7], [0, 3, 1]].sum()
    g = tape.backward(loss)[W]
    assert g.indices.tolist() == [7, 999]
    assert g.values.shape == (2, 8)
    assert not tape.densified
    check_grads(lambda w: ops.log_softmax(w)[[2, 4, 2], [0, 3, 1]], [W.numpy()[:5]])


def test_elements_of_every_row_are_dense_without_a_word():
    x = ts.parameter(np.random.default_rng(0).normal(size=(5, 3)))
    with ts.Tape(densify="raise") as tape:
        picked = ops.log_softmax(x * 2.0)[np.arange(5), [0, 2, 1, 1, 0]]
        loss = (picked * picked).sum()
    g = tape.backward(loss)[x]
    assert type(g) is np.ndarray
    assert not tape.densified


def test_an_operand_stretched_along_a_row_axis_is_found_by_the_other_axes():
    rng = np.random.default_rng(0)
    shapes = {"x": (100, 1, 4), "y": (1, 50, 4), "z": (50, 1)}
    leaves = {name: ts.parameter(rng.normal(size=shape)) for name, shape in shapes.items()}
    x, y, z = leaves.values()
    with ts.Tape(densify="raise") as tape:
        loss = (x * y + z)[[3, 3, 99], [7, 0, 7]].sum()
    grads = tape.backward(loss)
    for leaf, lead, ids in ((x, 2, [3, 99]), (y, 2, [0, 7]), (z, 1, [0, 7])):
        g = grads[leaf].coalesce()
        assert (g.lead, g.indices.tolist()) == (lead, ids)
    check_grads(
        lambda x, y, z: (x * y + z)[[1, 1, 2], [0, 2, 1]],
        [rng.normal(size=s) for s in ((3, 1, 2), (1, 4, 2), (4, 1))],
    )


def test_an_op_that_holds_no_rows_apart_is_still_refused_at_every_lead():
    x = ts.parameter(np.ones((5, 3)))
    with ts.Tape(densify="raise") as tape:
        loss = ops.softmax(x, axis=0)[[1], [2]].sum()
    with pytest.raises(ts.errors.SparsityError, match="softmax"):
        tape.backward(loss)


def elements(y):
    """Two elements of one row of a result (n, d), as a gradient at lead=2 has them."""
    return y[[7, 7], [0, 3]].sum()


@pytest.mark.parametrize(
    "f",
    [
        lambda W, ids: ops.segment_sum(W[ids], ids, 1000),
        lambda W, ids: ops.segment_mean(W[ids], ids, 1000),
        lambda W, ids: ops.segment_max(W[ids], ids, 1000),
        lambda W, ids: ops.scatter_rows(W[ids], ids, 1000),
        lambda W, ids: ops.embedding(W, ids, padding_idx=0),
        lambda W, ids: ops.embedding_bag(W, ids[:, None], padding_idx=0),
        lambda W, ids: ops.embedding_bag(W, ids[:, None], mode="max", padding_idx=0),
    ],
)
def test_elements_of_a_reduction_by_id_reach_the_rows_in_it_and_nothing_of_their_number(f):
    n = 10_000
    W = ts.parameter(np.random.default_rng(0).normal(size=(n, 8)))
    ids = np.full(n, 999)
    ids[[2, 7]] = 7, 7
    with ts.Tape(densify="raise") as tape:
        loss = elements(f(W, ids))
    with count_bytes() as used:
        grads = tape.backward(loss)
    assert grads.touched_rows(W, lead=1).tolist() == [7]
    assert used.peak < n * 8 * 8 / 2  # in n: which places hold the id, and no more
    check_grads(lambda w: elements(f(w, np.array([0, 1, 7, 3, 0, 5, 7, 7]))), [W.numpy()[:8]])


def test_a_mean_of_tables_that_is_looked_up_is_rows_of_each_table():
    tables = ts.parameter(np.random.default_rng(0).normal(size=(3, 1000, 4)))
    for reduce in (ops.sum, ops.mean, ops.max, ops.std, ops.logsumexp):
        with ts.Tape(densify="raise") as tape:
            loss = reduce(tables, 0)[[7, 999, 7]].sum()
        grads = tape.backward(loss)
        assert grads[tables].lead == 2 and not tape.densified
        which, rows = np.unravel_index(grads.touched_rows(tables), (3, 1000))
        assert which.tolist() == [0, 0, 1, 1, 2, 2] and rows.tolist() == [7, 999] * 3
    with ts.Tape(densify="raise") as tape:  # of all columns: nothing to keep apart
        loss = (tables.sum(0).sum(0)[[0, 1, 2, 3]] ** 2).sum()
    assert type(tape.backward(loss)[tables]) is np.ndarray and not tape.densified
