"""GradStore: a mapping from parameters to gradients, that stays sparse under its own algebra."""

import copy
import pickle
import re

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import GradStore, IndexedSlices, errors, ops


def text(message):
    return f"^{re.escape(message)}$"


@pytest.fixture
def W():
    return ts.parameter(np.ones((6, 2), np.float32), name="W")


@pytest.fixture
def b():
    return ts.parameter(np.zeros(2, np.float32), name="b")


def backward(W, b, ids=(4, 1, 4)):
    """d/dW of Σ 3·W[ids] + b: 3 at each id, and the number of ids for b."""
    with ts.Tape(densify="raise") as tape:
        loss = (3 * W[list(ids)] + b).sum()
    return tape.backward(loss)


# -- the mapping ---------------------------------------------------------------------------------


def test_mapping(W, b):
    c = ts.parameter(np.ones(2, np.float32), name="c")
    grads = backward(W, b)
    assert len(grads) == 2 and W in grads and b in grads and c not in grads
    assert list(grads) == [W, b]
    assert [p.name for p, _ in grads.items()] == ["W", "b"]
    assert grads.get(b) is grads[b] and grads.get(c) is None and grads.get(c, 7) == 7
    assert grads.get_by_id(b.id) is grads[b] and grads.parameter(b.id) is b
    np.testing.assert_array_equal(grads.pop(b), [3.0, 3.0])
    assert b not in grads and len(grads) == 1 and grads.pop(b, 7) == 7
    grads[c] = np.full(2, 5.0, np.float32)
    np.testing.assert_array_equal(grads[c], 5.0)
    grads[c] = np.zeros(2, np.float32)
    np.testing.assert_array_equal(grads[c], 0.0)
    assert len(GradStore()) == 0 and list(GradStore()) == []


def test_ids_are_ascending_and_only_of_parameters_with_a_gradient():
    parameters = [ts.parameter(np.ones(1)) for _ in range(20)]
    used = [parameters[i] for i in (13, 2, 17, 5)]
    with ts.Tape() as tape:
        loss = sum((p * 2 for p in used), ts.tensor(np.zeros(1)))
    grads = tape.backward(loss)
    assert grads.get_ids() == sorted(p.id for p in used)
    assert [grads.parameter(id) for id in grads.get_ids()] == [
        parameters[i] for i in (2, 5, 13, 17)
    ]
    assert list((grads * 2 + grads).to_dense()) == list(grads)


def test_it_holds_parameters_only(W, b):
    with ts.Tape() as tape:
        rows = W[[1, 2]]
        grads = tape.backward((rows * ts.tensor(np.ones(2, np.float32))).sum())
    assert list(grads) == [W]
    message = (
        f"GradStore: expected a parameter that the loss depends on, got {rows.name} (2, 2), which "
        "is not a parameter. Hint: grads.get(p) gives None instead; .detach(), .data and no_grad "
        "cut the path."
    )
    with pytest.raises(errors.MissingGradientError, match=text(message)):
        grads[rows]


# -- the algebra ---------------------------------------------------------------------------------


def test_scaling_keeps_rows_and_dtype(W, b):
    grads = backward(W, b)
    for scaled in (
        2 * grads, grads * 2, grads / 0.5, np.float64(2) * grads, grads * np.float64(2),
        grads * np.array(2), grads / np.float64(0.5), np.int64(2) * grads,
    ):  # fmt: skip
        assert type(scaled) is GradStore and type(scaled[W]) is IndexedSlices
        assert scaled[W].dtype == scaled[b].dtype == np.float32
        assert scaled.touched_rows(W).tolist() == [1, 4]
        np.testing.assert_array_equal(scaled[W].to_dense()[[1, 4]], [[6, 6], [12, 12]])
        np.testing.assert_array_equal(scaled[b], [6, 6])
    np.testing.assert_array_equal(grads[b], [3, 3])


def test_addition_accumulates_micro_batches(W, b):
    c = ts.parameter(np.ones(2, np.float32), name="c")
    one, two = backward(W, b, [4, 1]), backward(W, c, [4, 5])
    total = one + two
    assert list(total) == [W, b, c]
    assert type(total[W]) is IndexedSlices and total.touched_rows(W).tolist() == [1, 4, 5]
    np.testing.assert_array_equal(total[W].to_dense()[:, 0], [0, 3, 0, 0, 6, 3])
    np.testing.assert_array_equal(total[b], [2, 2])
    assert one.touched_rows(W).tolist() == [1, 4] and list(one) == [W, b]


def test_dense_and_sparse_gradients_of_one_parameter_add_up_to_one_dense_one(W, b):
    one, two = backward(W, b), backward(W, b).to_dense()
    for total in (one + two, two + one):
        assert type(total[W]) is np.ndarray and total.touched_rows(W) is None
        np.testing.assert_array_equal(total[W][:, 0], [0, 6, 0, 0, 12, 0])


def test_gradients_that_are_tensors_keep_their_record(W, b):
    with ts.Tape() as tape:
        loss = (W[[4, 1, 4]] ** 2).sum()
        grads = tape.backward(loss, create_graph=True)
        total = grads * 2 + grads.to_dense() / 2
        again = tape.backward((total[W] ** 2).sum())
    # rows 1 and 4 have gradients 2.5 · 2w and 2.5 · 4w: the slopes of their squares by w = 1
    np.testing.assert_array_equal(again[W].to_dense()[:, 0], [0, 50, 0, 0, 200, 0])


def test_norm_sums_repeats_first_and_in_double(W, b):
    grads = backward(W, b)
    assert grads.norm() == np.sqrt(2 * (3**2 + 6**2) + 2 * 3**2)
    assert grads.to_dense().norm() == grads.norm()
    assert GradStore().norm() == 0.0
    h = ts.parameter(np.ones(2, np.float16))
    grads[h] = np.array([300, 400], np.float16)
    assert grads.norm() == pytest.approx(np.sqrt(108 + 500**2), rel=1e-15)


def test_nbytes_counts_rows_not_tables(W, b):
    grads = backward(W, b)
    assert grads.nbytes == 3 * 8 + 3 * 2 * 4 + 2 * 4
    assert grads.to_dense().nbytes == 6 * 2 * 4 + 2 * 4
    assert GradStore().nbytes == 0


def test_to_dense(W, b):
    grads = backward(W, b)
    dense = grads.to_dense()
    assert type(dense[W]) is np.ndarray and type(grads[W]) is IndexedSlices
    np.testing.assert_array_equal(dense[W], grads[W].to_dense())
    np.testing.assert_array_equal(dense[b], grads[b])


def test_touched_rows(W, b):
    grads = backward(W, b, [5, 0, 5, -1, 2])
    rows = grads.touched_rows(W)
    assert rows.dtype == np.int64 and rows.tolist() == [0, 2, 5]
    assert not rows.flags.writeable
    assert grads.touched_rows(b) is None
    with pytest.raises(errors.MissingGradientError):
        grads.touched_rows(ts.parameter(np.ones(2)))


def test_touched_rows_of_several_axes():
    Q = ts.parameter(np.zeros((5, 3, 2)))
    with ts.Tape("raise"):
        grads = Q[[4, 1, 4], [0, 2, 1]].sum().backward()
    assert grads[Q].lead == 2
    for rows, expected in (
        (grads.touched_rows(Q), [5, 12, 13]),
        (grads.touched_rows(Q, lead=2), [5, 12, 13]),
        (grads.touched_rows(Q, lead=1), [1, 4]),
        (grads.touched_rows(Q, lead=3), [10, 11, 24, 25, 26, 27]),
    ):
        assert rows.tolist() == expected and rows.dtype == np.int64
        assert not rows.flags.writeable
    dense = grads[Q].to_dense()
    for lead in (1, 2, 3):
        flat = dense.reshape((*Q.shape[:lead], -1)).any(-1)
        places = np.unravel_index(grads.touched_rows(Q, lead), Q.shape[:lead])
        np.testing.assert_array_equal(places, np.nonzero(flat))
    assert grads.to_dense().touched_rows(Q, lead=1) is None
    with pytest.raises(errors.ShapeError, match=r"^touched_rows: expected 1 <= lead <= 3, got 4"):
        grads.touched_rows(Q, lead=4)


def test_rows_with_a_zero_gradient_are_touched(W):
    with ts.Tape() as tape:
        loss = (W[[3]] * 0).sum() + W[[]].sum()
    assert tape.backward(loss).touched_rows(W).tolist() == [3]


# -- sums and copies -----------------------------------------------------------------------------


def test_sum_of_a_list_is_accumulation(W, b):
    stores = [backward(W, b, ids) for ids in ([4, 1], [1, 5], [2])]
    total = sum(stores)
    assert total.touched_rows(W).tolist() == [1, 2, 4, 5] and type(total[W]) is IndexedSlices
    wanted = stores[0] + stores[1] + stores[2]
    np.testing.assert_array_equal(total[W].to_dense(), wanted[W].to_dense())
    np.testing.assert_array_equal(total[b], wanted[b])
    assert stores[0].touched_rows(W).tolist() == [1, 4]
    assert sum([stores[0]]) is not stores[0]
    for wrong in (1, 0.0, None):
        with pytest.raises(TypeError):
            wrong + stores[0]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_is_a_store_of_its_own_for_the_same_parameters(W, b, duplicate):
    grads = backward(W, b)
    other = duplicate(grads)
    np.testing.assert_array_equal(other[W].to_dense(), grads[W].to_dense())
    other.pop(W)
    other[b] = np.full(2, 7, np.float32)
    assert W in grads and grads[b].tolist() == [3.0, 3.0]
    ts.optim.SGD([W], lr=1.0).step(duplicate(grads))
    assert W.data[1, 0] == -2.0


def test_pickle_is_refused(W, b):
    with pytest.raises(TypeError, match="GradStore: pickle is not supported; save the arrays"):
        pickle.dumps(backward(W, b))


# -- nobody can write to what it holds -----------------------------------------------------------


def arrays_of(grads):
    for _, g in grads.items():
        yield from [g] if type(g) is np.ndarray else [g.values, g.coalesce().values]


def test_reads_cannot_be_written_to(W, b):
    grads = backward(W, b, [4, 1])
    assigned = GradStore()
    assigned[W] = IndexedSlices([1], np.ones((1, 2), np.float32), (6, 2))
    assigned[b] = np.ones(2, np.float32)
    for store in (grads, 2 * grads, grads + grads, grads.to_dense(), assigned, assigned + grads):
        assert not any(a.flags.writeable for a in arrays_of(store)), store
    with pytest.raises(ValueError, match="read-only"):
        grads[b][0] = 1.0


def test_a_seed_that_changes_afterwards_changes_no_gradient(W):
    sparse = IndexedSlices([4], np.ones((1, 2), np.float32), (6, 2))
    for seed, array in [(sparse, sparse.values), (dense := np.ones((6, 2), np.float32), dense)]:
        with ts.Tape() as tape:
            y = W + 1
        grads = tape.backward(y, seed=seed)
        array[:] = 99
        assert grads.to_dense()[W].max() == 1.0


# -- what it says --------------------------------------------------------------------------------


def test_a_missing_gradient_says_where_the_path_broke(W, b):
    c = ts.parameter(np.ones(2, np.float32), name="c")
    with ts.Tape() as tape:
        ops.tanh(b * 2)
        loss = (W[[1]] + c.detach()).sum()
    grads = tape.backward(loss)
    hint = " Hint: grads.get(p) gives None instead; .detach(), .data and no_grad cut the path."
    for p, why in [
        (b, "b (2,): it went into multiply, whose result the loss does not depend on"),
        (c, "c (2,), which no op of this Tape used as a tracked tensor"),
    ]:
        message = f"GradStore: expected a parameter that the loss depends on, got {why}.{hint}"
        for ask in (grads.__getitem__, grads.pop, grads.touched_rows, (2 * grads).__getitem__):
            with pytest.raises(errors.MissingGradientError, match=text(message)):
                ask(p)
        assert grads.get(p) is None
    with pytest.raises(KeyError, match=f"got id {b.id}: it went into multiply"):
        grads.get_by_id(b.id)
    with pytest.raises(KeyError, match="got id 0, which no op"):
        grads.parameter(0)


@pytest.mark.parametrize("key", ["W", 3, None, np.ones(2)], ids=str)
def test_a_key_that_is_no_tensor_is_named(W, b, key):
    grads = backward(W, b)
    message = text(f"GradStore: expected a parameter as key, got {key!r}.")
    for use in (
        lambda: grads[key],
        lambda: grads.get(key),
        lambda: grads.pop(key, None),
        lambda: key in grads,
        lambda: grads.__setitem__(key, np.ones(2)),
    ):
        with pytest.raises(errors.TapeError, match=message):
            use()
    assert len(grads) == 2


@pytest.mark.parametrize(
    ("g", "error", "message"),
    [
        (np.ones((2, 6), np.float32), errors.ShapeError,
         "GradStore: expected a gradient of shape (6, 2) for W, got float32 (2, 6)."),
        (np.ones((6, 2)), errors.DtypeError,
         "GradStore: expected a gradient of float32 for W, got float64."),
        (IndexedSlices([0], np.ones((1, 3), np.float32), (6, 3)), errors.ShapeError,
         "GradStore: expected a gradient of shape (6, 2) for W, got float32 (6, 3)."),
        (IndexedSlices([0], np.ones((1, 2), np.float16), (6, 2)), errors.DtypeError,
         "GradStore: expected a gradient of float32 for W, got float16."),
        (3.0, errors.ShapeError,
         "GradStore: expected a gradient of shape (6, 2) for W, got 3.0."),
        (None, errors.ShapeError,
         "GradStore: expected a gradient of shape (6, 2) for W, got None."),
    ],
    ids=["shape", "dtype", "rows' shape", "rows' dtype", "number", "None"],
)  # fmt: skip
def test_a_wrong_gradient_is_named_and_not_kept(W, b, g, error, message):
    grads = backward(W, b)
    before = grads[W]
    with pytest.raises(error, match=text(message)):
        grads[W] = g
    assert grads[W] is before


def test_only_parameters_can_be_assigned(W, b):
    grads, constant = backward(W, b), ts.tensor(np.ones(2))
    message = f"GradStore: expected a parameter as key, got {constant.name} (2,)."
    with pytest.raises(errors.TapeError, match=text(message)):
        grads[constant] = np.ones(2)


@pytest.mark.parametrize("factor", ["2", 1j, np.ones(2), None, ts.tensor(np.ones(2))], ids=str)
def test_only_numbers_scale(W, b, factor):
    error = errors.SparsityError if hasattr(factor, "shape") else errors.DtypeError
    with pytest.raises(error, match=r"^GradStore \*: expected a real number, got "):
        backward(W, b) * factor
    with pytest.raises(error, match=r"^GradStore /: expected a real number, got "):
        backward(W, b) / factor


def test_only_stores_add(W, b):
    grads = backward(W, b)
    for other in (1.0, None, "b"):
        with pytest.raises(TypeError, match="unsupported operand"):
            grads + other


def test_repr(W, b):
    grads = backward(W, b)
    assert repr(grads) == "GradStore(W: IndexedSlices(3 rows of (6, 2) float32), b: float32 (2,))"
    many = GradStore()
    for i in range(9):
        many[ts.parameter(np.ones(1), name=f"p{i}")] = np.ones(1)
    assert repr(many).endswith("p7: float64 (1,), ...)")
