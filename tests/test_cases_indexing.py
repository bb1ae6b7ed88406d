"""Faults of other libraries in indexing, joining and lookups, with what is right. Each test's name
has the number of its row in the table it comes from: F and G of the autograd cases, and the sparse
cases that concern lookups."""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, ops
from tinygrad_sparse.testing import check_grads


def gradients(f, *arrays, densify="raise"):
    """The gradients of f's sum, as dense arrays."""
    leaves = [ts.parameter(np.asarray(a, float)) for a in arrays]
    with ts.Tape(densify=densify) as tape:
        loss = ops.sum(f(*leaves))
    store = tape.backward(loss).to_dense()
    return [store[p] for p in leaves]


def equal(got, *wanted):
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(g, w)


# -- indexing, slicing, assignment, views --------------------------------------------------------


def test_autograd_65_a_repeated_index_adds_up():
    equal(gradients(lambda x: x[[0, 0]], [1.0]), [2.0])


def test_autograd_67_two_uses_of_a_mask_add_up():
    mask = np.array([True, False, True])
    equal(gradients(lambda x: ops.sum(x[mask]) + ops.sum(x[mask]), [1.0, 2.0, 3.0]), [2, 0, 2])


def test_autograd_69_an_empty_strided_slice_gives_zeros():
    equal(gradients(lambda x: x[3:1:2], np.ones(5)), np.zeros(5))


def test_autograd_71_negative_strides():
    weights = np.array([1.0, 2.0, 3.0])
    equal(gradients(lambda x: x[::-1] * weights, [1.0, 2.0, 3.0]), [3, 2, 1])
    np.testing.assert_array_equal(ts.parameter(weights[::-1]).data, [3, 2, 1])


def test_autograd_73_what_is_overwritten_loses_its_gradient():
    got = gradients(lambda t, v: ops.index_set(t * t, 0, v), [1.0, 2.0, 3.0, 4.0], 9.0)
    equal(got, [0, 4, 6, 8], 1.0)


def test_autograd_75_assignment_to_one_place_twice_is_refused():
    with pytest.raises(errors.RowIndexError, match="index_set: expected each place once"):
        ops.index_set(np.zeros(2), [0, 0], [1.0, 2.0])
    equal(gradients(lambda v: ops.index_set(np.zeros(2), [0, 0], v), 3.0), 1.0)


def test_autograd_77_topk_sends_the_gradient_to_what_it_returned():
    equal(gradients(lambda x: ops.topk(x, 2)[0], [1.0, 2.0, 6.0, 4.0, 5.0]), [0, 0, 1, 0, 1])


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_autograd_77_ties_come_in_an_order_that_k_does_not_change(k):
    values, ids = ops.topk(np.array([2.0, 5.0, 2.0, 5.0]), k)
    assert ids.tolist() == [1, 3, 0, 2][:k]
    assert values.tolist() == [5.0, 5.0, 2.0, 2.0][:k]


# -- join, split, repeat, pad --------------------------------------------------------------------


def test_autograd_79_a_tail_of_no_rows():
    got = gradients(lambda x, y: ops.concatenate([x, y]), np.ones((2, 5)), np.ones((0, 5)))
    equal(got, np.ones((2, 5)), np.ones((0, 5)))


def test_autograd_81_an_array_joined_with_itself():
    w = np.array([[1.0], [2.0]])
    equal(gradients(lambda x: ops.concatenate([x, x], axis=1) @ w, [[3.0]]), [[3.0]])


@pytest.mark.parametrize("split", [ops.split, ops.array_split])
def test_autograd_83_a_piece_that_is_not_used_gives_zeros(split):
    equal(gradients(lambda x: split(x, 3)[1], np.arange(6.0)), [0, 0, 1, 1, 0, 0])


def test_autograd_85_blocks_and_interleaved():
    w = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    # a b a b a b, then a a a b b b, then a b b b
    equal(gradients(lambda x: ops.tile(x, 3) * w, [1.0, 1.0]), [1 + 3 + 5, 2 + 4 + 6])
    equal(gradients(lambda x: ops.repeat(x, 3) * w, [1.0, 1.0]), [1 + 2 + 3, 4 + 5 + 6])
    equal(gradients(lambda x: ops.repeat(x, [1, 3]) * w[:4], [1.0, 1.0]), [1, 2 + 3 + 4])
    counts = np.array([0.0, 1.0, 2.0])
    equal(gradients(lambda x: ops.tile(x, 3) * ops.repeat(counts, 2), [1.0, 1.0]), [3, 3])


# -- lookups -------------------------------------------------------------------------------------


def test_sparse_1_contributions_to_one_row_add_up():
    T = ts.parameter(np.zeros((3, 1)))
    with ts.Tape() as tape:
        out = ops.take(T, [0, 0])
    g = tape.backward(out, seed=np.array([[0.25], [0.5]]))[T]
    np.testing.assert_array_equal(g.to_dense(), [[0.75], [0], [0]])


def test_sparse_3_a_second_backward_finds_nothing_of_the_first():
    T = ts.parameter(np.ones((8, 2)))
    with ts.Tape(persistent=True) as tape:
        loss = ops.take(T, [7, 1, 3]).sum()
    first = tape.backward(loss)
    total = first + tape.backward(loss)
    assert total.touched_rows(T).tolist() == [1, 3, 7]
    assert (total[T].coalesce().values == 2).all()
    assert (first[T].values == 1).all()


def test_sparse_5_one_lookup_doubled_is_two_lookups():
    ids = np.array([4, 1, 4])
    (once,) = gradients(lambda T: ops.take(T, ids) * 2, np.ones((5, 2)))
    (twice,) = gradients(lambda T: ops.take(T, ids) + ops.take(T, ids), np.ones((5, 2)))
    np.testing.assert_array_equal(once, twice)


def test_sparse_7_all_ids_the_same():
    equal(gradients(lambda T: T[np.zeros(32, int)], np.ones((2, 1))), [[32], [0]])


@pytest.mark.parametrize("ids", [[5], [-6], 5, [[0, 5]]], ids=str)
def test_sparse_11_an_id_out_of_range_is_an_error(ids):
    with pytest.raises(errors.RowIndexError, match=r"expected ids in \[-?\d, 5\)"):
        ops.take(np.ones((5, 2)), ids)


def test_sparse_15_a_negative_id_counts_from_the_end_everywhere():
    x = np.arange(5.0)
    assert ops.take(x, [-1]) == 4
    assert ops.getitem(x, [-1]) == ops.getitem(x, -1) == 4
    assert ops.take_along_axis(x, [-1]) == 4
    assert ops.scatter_rows(x, [-1] * 5, 3)[2] == 10
    assert ops.segment_sum(x, [-1] * 5, 3)[2] == 10
    assert ops.segment_max(x, [-1] * 5, 3)[2] == 4
    assert ops.index_add(x, [-1], 1.0)[4] == ops.index_set(x, [-1], 5.0)[4] == 5


def test_sparse_27_an_index_of_no_elements():
    x = np.ones((6, 3, 2))
    ids = np.zeros((6, 0, 2), int)
    equal(gradients(lambda x: ops.take_along_axis(x, ids, 1), x), np.zeros_like(x))
    equal(gradients(lambda x: x[[]], x), np.zeros_like(x))
    equal(gradients(lambda x: x[:, np.zeros((0, 4), int)], x), np.zeros_like(x))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.uint64])
def test_sparse_29_ids_of_every_integer_dtype(dtype):
    ids = np.array([[2, 0], [2, 1]], dtype)
    equal(gradients(lambda T: T[ids], np.ones((4, 1))), [[1], [1], [2], [0]])
    equal(gradients(lambda T: T[:, ids], np.ones((1, 4))), [[1, 1, 2, 0]])


@pytest.mark.parametrize("look_up", [ops.take, ops.getitem], ids=["take", "getitem"])
def test_sparse_31_float_ids_are_an_error(look_up):
    with pytest.raises(errors.RowIndexError, match=r"integer ids, got float32 \(1,\).*astype"):
        look_up(np.ones((5, 2)), np.array([16777217], np.float32))


def test_sparse_33_ids_of_any_strides():
    ids = np.array([[3, 1, 0], [2, 1, 3]])
    T = np.arange(8.0).reshape(4, 2)
    for some in (ids.T, ids[:, ::2], ids[::-1]):
        dense = np.zeros_like(T)
        np.add.at(dense, some, 1.0)
        equal(gradients(lambda W, some=some: W[some], T), dense)


def test_sparse_35_ids_of_rank_2_coalesce_to_one_row_each():
    T = ts.parameter(np.ones((5, 2)))
    with ts.Tape() as tape:
        loss = T[[[4, 1], [4, 4]]].sum()
    g = tape.backward(loss)[T].coalesce()
    assert g.indices.tolist() == [1, 4]
    assert g.values.tolist() == [[1, 1], [3, 3]]


@pytest.mark.parametrize(
    "look_up",
    [
        lambda T: T[[3, 1]],
        lambda T: T[np.array([3, 1])],
        lambda T: T[ts.tensor([3, 1])],
        lambda T: ops.take(T, [3, 1]),
        lambda T: T.take([3, 1]),
        lambda T: T[[3, 1], :],
        lambda T: T[np.array([False, True, False, True, False])],
        lambda T: T[1:4:2],
        lambda T: ops.stack([T[3], T[1]]),
        lambda T: ops.concatenate([T[3:4], T[1:2]]),
    ],
    ids=["list", "array", "tensor", "take", "method", "colon", "mask", "slice", "stack", "join"],
)
def test_sparse_37_and_43_every_way_to_look_up_two_rows_gives_two_rows(look_up):
    T = ts.parameter(np.ones((5, 2)))
    with ts.Tape("raise") as tape:
        loss = (look_up(T) ** 2).sum()
    grads = tape.backward(loss)
    assert type(grads[T]) is ts.IndexedSlices
    assert grads.touched_rows(T).tolist() == [1, 3]


def test_sparse_41_a_lookup_in_a_product():
    rng = np.random.default_rng(0)
    T, W = ts.parameter(rng.normal(size=(9, 4))), ts.parameter(rng.normal(size=(4, 3)))
    with ts.Tape("raise") as tape:
        loss = (ops.take(T @ W, [7, 2]) ** 2).sum()
    assert tape.backward(loss).touched_rows(T).tolist() == [2, 7]
    check_grads(lambda t, w: ops.take(t @ w, [7, 2]), [T.numpy(), W.numpy()])


@pytest.mark.parametrize("n", [768, 769, 5000])
def test_sparse_93_many_repeated_ids_are_summed_right(n):
    ids = np.random.default_rng(0).integers(0, 50, n)
    (g,) = gradients(lambda T: T[ids], np.ones((50, 3)))
    np.testing.assert_array_equal(g, np.repeat(np.bincount(ids, minlength=50), 3).reshape(50, 3))


def test_sparse_95_and_97_ids_stay_whole_numbers_in_the_largest_tables():
    last, far, shape = 2**40 - 1, 59_000_001, (2**40, 3)
    g = ts.IndexedSlices([last, far], np.ones((2, 3)), shape)
    assert g.reshape((2**20, 2**20, 3)).indices.tolist() == [last, far]
    assert g.reshape((3 * 2**40,)).indices.tolist()[::3] == [3 * last, 3 * far]
    x = ts.parameter([[1.0, 2.0, 3.0]])
    with ts.Tape("raise") as tape:
        table = ops.broadcast_to(x, shape)  # a view: no memory of its own
        loss = (table[[last, far]] + table.T[:, [last]].T).sum()
    assert tape.backward(loss)[x].to_dense().tolist() == [[4.0, 4.0, 4.0]]


def test_sparse_105_a_penalty_on_the_gradient_of_a_lookup():
    rng = np.random.default_rng(0)

    def penalty(T):
        g = ts.grad(lambda t: (t[[3, 1, 3], [0, 1, 0]] ** 3).sum())(T).coalesce().values
        return (g * g).sum()

    check_grads(penalty, [rng.normal(size=(5, 2))], order=1)
