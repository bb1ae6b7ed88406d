"""The hypothesis strategies draw what they say, and ops keep their word on it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tinygrad_sparse as ts
from tinygrad_sparse import ops
from tinygrad_sparse.testing import strategies

bounded = settings(max_examples=60, derandomize=True, deadline=None, database=None)


def drawn(strategy):
    """What a fixed run of draws looks like."""
    seen = []

    @settings(bounded, max_examples=150)
    @given(strategy)
    def collect(value):
        seen.append(value)

    collect()
    return seen


def test_row_indices_repeat_wrap_and_vanish():
    seen = drawn(strategies.row_indices(5, rank=None))
    assert {ids.ndim for ids in seen} == {0, 1, 2}
    assert len({ids.dtype for ids in seen}) == len(strategies.INTEGERS)
    assert any(ids.size == 0 for ids in seen) and any((ids < 0).any() for ids in seen)
    assert any(len(set(ids.ravel().tolist())) < ids.size for ids in seen)
    assert all((ids >= -5).all() and (ids < 5).all() for ids in seen)
    assert all(ids.dtype.itemsize > 1 for ids in drawn(strategies.row_indices(1000)))
    assert all(ids.size == 0 for ids in drawn(strategies.row_indices(0)))


def test_indexed_slices_of_every_lead():
    seen = drawn(strategies.indexed_slices())
    assert {g.lead for g in seen} == {1, 2, 3}
    assert any(len(g.indices) > len(set(g.indices.tolist())) for g in seen)
    assert any(not len(g.indices) for g in seen)


def test_axes_are_what_numpy_takes():
    seen = drawn(strategies.axes(3))
    assert None in seen and () in seen and any(isinstance(a, int) and a < 0 for a in seen)
    assert any(isinstance(a, tuple) and len(a) == 3 for a in seen)


def test_tensors_are_tracked_or_not():
    assert {x.requires_grad for x in drawn(strategies.tensors())} == {True, False}
    assert {x.requires_grad for x in drawn(strategies.tensors((2,), np.float32, tracked=True))} == {
        True
    }


@bounded
@given(strategies.indexed_slices(dtype=np.float64))
def test_coalescing_changes_nothing(g):
    naive = np.zeros(g.shape)
    rows = naive.reshape(-1, *g.shape[g.lead :]) if naive.size else np.zeros((0,))
    for i, v in zip(g.indices, g.values, strict=True):
        if naive.size:
            rows[i] += v
    np.testing.assert_array_equal(g.to_dense(), naive)
    np.testing.assert_array_equal(g.coalesce().to_dense(), naive)
    assert g.coalesce().is_coalesced


@bounded
@given(strategies.broadcastable_pairs())
def test_products_of_whatever_broadcasts(pair):
    x, y = map(ts.parameter, pair)
    with ts.Tape():
        loss = (x * y).sum()
    grads = loss.backward()
    both = np.broadcast_arrays(x.data, y.data)
    for p, other in ((x, both[1]), (y, both[0])):
        extra = tuple(range(other.ndim - p.ndim))
        summed = other.sum(axis=extra)
        stretched = tuple(a for a, n in enumerate(p.shape) if n != summed.shape[a])
        np.testing.assert_array_equal(grads[p], summed.sum(axis=stretched, keepdims=True))


@bounded
@given(st.data())
def test_sums_and_lookups_are_numpys(data):
    x = data.draw(strategies.arrays(strategies.shapes(min_dims=1), np.float64))
    axis = data.draw(strategies.axes(x.ndim))
    np.testing.assert_array_equal(ops.sum(ts.tensor(x), axis).data, x.sum(axis))
    ids = data.draw(strategies.row_indices(len(x), rank=None))
    np.testing.assert_array_equal(ts.tensor(x)[ids].data, x[ids.astype(np.int64)])
