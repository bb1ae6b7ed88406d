"""Embeddings, bags of them, and ids by hashing: what the laws cannot see."""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, nn, ops

TABLE = np.arange(10.0).reshape(5, 2) + 1


def gradient(f, table=TABLE):
    with ts.Tape("raise"):
        W = ts.parameter(table)
        return f(W).sum().backward()[W]


@pytest.mark.parametrize("n", [3, 768, 769, 5000])
def test_the_padding_id_gives_zeros_and_is_in_no_gradient(n):
    ids = np.resize([2, 0, 3], n)
    values = ops.embedding(TABLE, ids, padding_idx=2)
    np.testing.assert_array_equal(values[ids == 2], 0)
    np.testing.assert_array_equal(values[ids != 2], TABLE[ids[ids != 2]])
    g = gradient(lambda W: ops.embedding(W, ids, padding_idx=2))
    assert set(g.indices) == {0, 3}
    np.testing.assert_array_equal(
        g.to_dense()[:, 0], np.bincount(ids, minlength=5) * (1, 1, 0, 1, 1)
    )


def test_padding_from_the_end_and_nothing_but_padding():
    assert not len(gradient(lambda W: ops.embedding(W, [4, -1], padding_idx=-1)).indices)


def test_a_layer_takes_no_negative_id_but_the_one_that_pads():
    for make, ids in ((nn.Embedding, [3, -1, 0]), (nn.EmbeddingBag, [[3], [], [-1, 0]])):
        name = make.__name__
        with pytest.raises(errors.RowIndexError) as error:
            make(5, 2, padding_idx=0)(ids)
        assert str(error.value) == (
            f"{name}: expected ids in [0, 5), got -1 at position 1 (ids int64 (3,), table (5, 2)). "
            f"Hint: if -1 pads, give it a row: {name}(6, 2, padding_idx=-1), and -1 for it."
        )
        layer = make(6, 2, padding_idx=-1, seed=0)
        with ts.Tape("raise"):
            out = layer(ids)
            g = out.sum().backward()[layer.weight].coalesce()
        assert g.indices.tolist() == [0, 3]
        with pytest.raises(errors.RowIndexError, match="got -2 at position"):
            layer([[-2], [-1]])
        for seeds in ([1, -1], np.array([-1], np.int8)):
            np.testing.assert_array_equal(ops.embedding(TABLE, seeds)[-1], TABLE[-1])  # NumPy's


def test_the_layer_starts_its_padding_row_at_zero():
    layer = nn.Embedding(5, 2, padding_idx=3, seed=0)
    np.testing.assert_array_equal(layer.weight.data[3], 0)
    with ts.Tape("raise"):
        g = layer([[3, 1], [1, 3]]).sum().backward()[layer.weight]
    np.testing.assert_array_equal(g.coalesce().indices, [1])


def test_rows_that_are_too_long_are_scaled_down_and_the_table_is_left_alone():
    layer = nn.Embedding(5, 2, max_norm=5.0, dtype=np.float64)
    layer.load_state_dict({"weight": TABLE})
    out = layer([0, 4]).numpy()
    np.testing.assert_array_equal(out[0], TABLE[0])
    np.testing.assert_allclose(np.linalg.norm(out[1]), 5.0)
    np.testing.assert_array_equal(layer.weight.data, TABLE)
    ts.testing.check_grads(
        lambda W: (
            ops.take(W, [0, 4, 4])
            * (5.0 / ops.maximum(ops.vector_norm(ops.take(W, [0, 4, 4]), -1, True), 5.0))
        ),
        [TABLE],
    )


def test_gradients_by_inverse_frequency():
    layer = nn.Embedding(5, 1, scale_grad_by_freq=True, seed=0)
    with ts.Tape("raise"):
        g = layer([[1, 1], [3, 1]]).sum().backward()[layer.weight]
    np.testing.assert_allclose(g.to_dense().ravel(), [0, 1, 0, 1, 0], rtol=1e-6)


@pytest.mark.parametrize(
    "mode, expected", [("sum", [8, 0, 3]), ("mean", [4, 0, 3]), ("max", [7, 0, 3])]
)
def test_bags_in_three_forms(mode, expected):
    column = TABLE[:, :1]
    ragged = ops.embedding_bag(column, [[0, 3], [], [1]], mode=mode)
    offsets = ops.embedding_bag(column, np.array([0, 3, 1]), [0, 2, 2], mode=mode)
    padded = ops.embedding_bag(column, [[0, 3], [4, 4], [1, 4]], mode=mode, padding_idx=4)
    for got in (ragged, offsets, padded):
        np.testing.assert_array_equal(got.ravel(), expected)


def test_the_gradient_of_a_bag_has_its_ids_alone():
    g = gradient(lambda W: ops.embedding_bag(W, [[0, 3, 3], []], mode="mean"))
    np.testing.assert_array_equal(g.coalesce().indices, [0, 3])
    np.testing.assert_allclose(g.to_dense()[:, 0], [1 / 3, 0, 0, 2 / 3, 0])
    g = gradient(lambda W: ops.embedding_bag(W, [[0, 3, 1]], mode="max"))
    np.testing.assert_array_equal(g.to_dense()[:, 0], [0, 0, 0, 1, 0])


def test_weights_get_a_gradient_in_their_own_shape():
    with ts.Tape("raise"):
        w = ts.parameter(np.array([[2.0, 0.5], [1.0, -1.0]]))
        grads = ops.embedding_bag(TABLE, [[0, 3], [1, 1]], weights=w).sum().backward()
    np.testing.assert_array_equal(grads[w], TABLE.sum(1)[[[0, 3], [1, 1]]])


@pytest.mark.parametrize("optimizer", [ts.optim.SGD, ts.optim.Adagrad])
def test_no_bags_and_empty_bags_train(optimizer):
    layer = nn.EmbeddingBag(5, 2, seed=0)
    before = layer.weight.numpy()
    opt = optimizer(layer.parameters(), lr=0.1)
    for ids in ([[], []], []):
        with ts.Tape("raise") as tape:
            loss = layer(ids).sum()
        opt.step(tape.backward(loss))
    np.testing.assert_array_equal(layer.weight.data, before)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: ops.embedding_bag(TABLE, [[0, 5]]), errors.RowIndexError,
         "embedding_bag: expected ids in [0, 5), got 5 at position (0, 1) (ids int64 (1, 2), table "
         "(5, 2))."),
        (lambda: ops.embedding_bag(1.0, [[0]]), errors.ShapeError,
         "embedding_bag: expected a table (V, d), got float64 ()."),
        (lambda: ops.embedding(1.0, [0], padding_idx=0), errors.ShapeError,
         "embedding: expected a table (V, d), got float64 ()."),
        (lambda: ops.embedding_bag(TABLE, [[0]], weights=[["a"]]), errors.DtypeError,
         "embedding_bag: expected a real weight for each id, got a bag of them that is <U1 (1,)."),
        (lambda: ops.embedding_bag(TABLE, [[0, 1]], weights=[[None, 1.0]]), errors.DtypeError,
         "embedding_bag: expected a real weight for each id, got a bag of them that is object "
         "(2,)."),
        (lambda: ops.embedding_bag(TABLE, [[0], [1]], weights=[[1.0], 2.0]), errors.DtypeError,
         "embedding_bag: expected a real weight for each id, got a bag of them that is float64 "
         "()."),
        (lambda: ops.embedding_bag(TABLE, [0, 1]), errors.ShapeError,
         "embedding_bag: expected ids (b, m), or a list of lists, got int64 (2,). Hint: with ids "
         "(n,), say where each bag begins: offsets=[0, ...]."),
        (lambda: ops.embedding_bag(TABLE, [0, 1], [1]), errors.ShapeError,
         "embedding_bag: expected ids (n,) and ascending offsets (b,) that begin with 0, got ids "
         "(2,) and offsets [1]."),
        (lambda: ops.embedding_bag(TABLE, [[0]], mode="min"), errors.TinygradSparseError,
         "embedding_bag: expected a mode of ('sum', 'mean', 'max'), got 'min'."),
        (lambda: ops.embedding_bag(TABLE, [[0]], mode="max", weights=[[1.0]]),
         errors.TinygradSparseError,
         "embedding_bag: expected weights with mode='sum' only, got 'max'."),
        (lambda: ops.embedding_bag(TABLE, [[0, 1]], weights=[1.0]), errors.ShapeError,
         "embedding_bag: expected a weight for each of 2 ids, got float64 (1,)."),
        (lambda: ops.embedding(TABLE, [0], padding_idx=7), errors.RowIndexError,
         "padding_idx: expected ids in [0, 5), got 7 at position 0 (ids int64 ())."),
        (lambda: nn.hash_ids([0.5], 10), errors.DtypeError,
         "hash_ids: expected integers or strings, got float64."),
        (lambda: nn.hash_ids([1], 0), errors.ShapeError, "hash_ids: expected size >= 1, got 0."),
    ],
)  # fmt: skip
def test_bad_input(wrong, error, message):
    with pytest.raises(error) as info:
        wrong()
    assert str(info.value) == message


def test_hashed_ids_are_stable_spread_and_differ_by_seed():
    words = np.array(["red", "green", "", "red"])
    np.testing.assert_array_equal(nn.hash_ids(words, 1000), nn.hash_ids(words.astype("U40"), 1000))
    assert nn.hash_ids(np.array([3], np.int8), 10**6) == nn.hash_ids([3], 10**6)
    counts = np.bincount(nn.hash_ids(np.arange(64_000), 64), minlength=64)
    assert counts.min() > 850 and counts.max() < 1150
    a, b = (nn.hash_ids(np.arange(1000), 1000, seed=s) for s in (0, 1))
    assert (a == b).mean() < 0.01
    assert nn.hash_ids(np.zeros((2, 0), int), 5).shape == (2, 0)
