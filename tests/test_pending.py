"""Rows that wait for an optimizer: who reads them settles them, and only those."""

import copy

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import ops


class Owed:
    """Adds one to each row once, when it is first read."""

    lasting, below = False, None

    def __init__(self, array):
        self.array = array
        self.owed = np.ones(len(array), bool)
        self.asked = []

    def settle(self, rows):
        rows = np.arange(len(self.array))[rows].reshape(-1)
        self.asked.append(sorted(set(rows.tolist())))
        rows = np.unique(rows)[self.owed[np.unique(rows)]]
        self.array[rows] += 1
        self.owed[rows] = False


@pytest.fixture
def table():
    W = ts.parameter(np.zeros((6, 2)), name="W")
    W._leave(Owed(W._data))
    return W, W._pending


@pytest.mark.parametrize(
    "look",
    [lambda W: (W.shape, W.ndim, W.size, W.nbytes, W.dtype, W.device, len(W), W.id, W.name)],
)
def test_shapes_settle_nothing(table, look):
    W, pending = table
    assert look(W)[:3] == ((6, 2), 2, 12)
    assert pending.asked == []


@pytest.mark.parametrize(
    ("read", "rows"),
    [
        (lambda W: W[[4, 1, 4]], [1, 4]),
        (lambda W: ops.take(W, np.array([[-1], [0]])), [0, 5]),
        (lambda W: W[2:5, 0], [2, 3, 4]),
        (lambda W: W[-1], [5]),
        (lambda W: W[[3], 1], [3]),
        (lambda W: W[:, 1], [0, 1, 2, 3, 4, 5]),
        (lambda W: W @ np.ones((2, 3)) - 1, [0, 1, 2, 3, 4, 5]),
        (lambda W: W + np.zeros(2), [0, 1, 2, 3, 4, 5]),
        (lambda W: W.data, [0, 1, 2, 3, 4, 5]),
        (lambda W: W.numpy(), [0, 1, 2, 3, 4, 5]),
        (lambda W: np.asarray(W), [0, 1, 2, 3, 4, 5]),
        (lambda W: W.detach().data, [0, 1, 2, 3, 4, 5]),
        (lambda W: copy.deepcopy(W).data, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_read_settles_the_rows_it_reads(table, read, rows):
    W, pending = table
    np.testing.assert_array_equal(np.asarray(ts.tensor(read(W)).data), 1)
    assert pending.asked == [rows]
    np.testing.assert_array_equal(W.data, 1)
    asked = len(pending.asked)
    np.testing.assert_array_equal(W.data, 1)
    assert len(pending.asked) == asked, "nothing is pending any more: reading is free"


def test_a_lookup_of_pending_rows_is_recorded_as_one_of_the_parameter(table):
    W, pending = table
    with ts.Tape(densify="raise") as tape:
        loss = (W[[4, 1, 4]] ** 2).sum()
        inner = tape.backward(loss, create_graph=True)
        twice = (inner[W].values ** 2).sum()
    grads = tape.backward(twice)
    assert grads.get_ids() == [W.id] and list(grads) == [W]
    assert grads.touched_rows(W).tolist() == [1, 4]
    assert pending.asked == [[1, 4]]


def test_a_value_set_by_hand_comes_after_what_was_pending(table):
    W, pending = table
    W._overwrite(np.full((6, 2), 7.0))
    np.testing.assert_array_equal(W.data, 7)
    assert not pending.owed.any()


def test_a_tensor_without_values_is_no_endless_loop():
    with pytest.raises(AttributeError, match="no attribute"):
        object.__new__(ts.Tensor).data
