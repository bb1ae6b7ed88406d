"""Faults reported in other libraries: sparse gradients and sparse optimizers, a row each.

The id is the row of the list. Row 41: test_engine.
"""

import hashlib
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import GradStore, IndexedSlices, backend, errors, nn, ops, optim
from tinygrad_sparse.testing import check_grads, count_bytes, dense_twin

ROWS = []


def row(number, what=""):
    """Collects the function as a row of the table."""
    id = f"sparse-{number}" + (f": {what}" if what else "")
    return lambda f: ROWS.append(pytest.param(f, id=id))


@pytest.mark.parametrize("check", ROWS)
def test_row(check):
    check()


def table(V=8, d=2, dtype=np.float64):
    return ts.parameter(np.arange(V * d, dtype=dtype).reshape(V, d) / (V * d), name="T")


def gradient(T, f, seed=None):
    """d f(T) / dT, with nothing made dense on the way."""
    with ts.Tape(densify="raise") as tape:
        y = f(T)
    return tape.backward(y, seed=np.ones(y.shape) if seed is None else seed)[T]


# -- repeated ids, several lookups ---------------------------------------------------------------


@row(1)
def repeated_ids_add_up():
    T = ts.parameter(np.zeros((3, 1)))
    g = gradient(T, lambda T: ops.take(T, [0, 0]), np.array([[0.2], [0.3]]))
    assert type(g) is IndexedSlices
    np.testing.assert_array_equal(g.to_dense(), [[0.5], [0.0], [0.0]])


@row(3)
def two_backwards_over_the_same_ids_add_up():
    T = table()
    g = gradient(T, lambda T: ops.take(T, [7, 1, 3]).sum())
    total = g + gradient(T, lambda T: ops.take(T, [7, 1, 3]).sum())
    np.testing.assert_array_equal(total.to_dense()[[7, 1, 3]], 2.0)
    np.testing.assert_array_equal(g.to_dense()[[7, 1, 3]], 1.0)


@row(5)
def one_lookup_or_two_give_equal_gradients():
    T, ids = table(), [3, 1, 3]
    one = gradient(T, lambda T: ops.take(T, ids) * 2).coalesce()
    two = gradient(T, lambda T: ops.take(T, ids) + ops.take(T, ids)).coalesce()
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_array_equal(one.values, two.values)


@row(7)
def one_id_32_times():
    g = gradient(table(), lambda T: ops.take(T, np.zeros(32, int)))
    np.testing.assert_array_equal(g.coalesce().values, [[32.0, 32.0]])


@row(9)
def a_gradient_by_inverse_frequency_is_divided_by_its_own_count():
    layer = nn.Embedding(5, 1, scale_grad_by_freq=True, seed=0)
    with ts.Tape(densify="raise") as tape:
        bag = layer([1, 1, 3]).sum()
    g = tape.backward(bag)[layer.weight].coalesce()
    assert g.indices.tolist() == [1, 3] and g.values.ravel().tolist() == [1.0, 1.0]


# -- negative ids, and ids out of range ----------------------------------------------------------


@row(11)
def an_id_of_v_is_an_error():
    for T in (table(), ts.tensor(np.ones((8, 2))), np.ones((8, 2))):
        with pytest.raises(errors.RowIndexError, match=r"^take: expected ids in \[0, 8\), got 8 "):
            ops.take(T, [8])


@row(13)
def forward_and_reverse_mode_refuse_the_same_ids():
    T = table().numpy()
    texts = set()
    for run in (
        lambda f: ts.jvp(f, (T,), (np.ones_like(T),)),
        lambda f: ts.grad(f)(T),
        lambda f: f(T),
    ):
        with pytest.raises(errors.RowIndexError) as error:
            run(lambda T: ops.take(T, [8]).sum())
        texts.add(str(error.value))
    assert len(texts) == 1
    g = ts.grad(lambda T: (ops.take(T, [7, -1]) ** 2).sum())(T)
    _, tangent = ts.jvp(lambda T: (ops.take(T, [7, -1]) ** 2).sum(), (T,), (np.ones_like(T),))
    np.testing.assert_allclose(tangent, g.to_dense().sum())


@row(15)
def a_negative_id_counts_from_the_end_in_every_op():
    T = table()
    for f in (lambda T: ops.take(T, [-1]), lambda T: T[[-1]], lambda T: T[[-1], :]):
        assert gradient(T, f).indices.tolist() == [7]
        np.testing.assert_array_equal(f(T).data, T.data[[-1]])
    assert IndexedSlices([-1], np.ones((1, 2)), (8, 2)).indices.tolist() == [7]
    np.testing.assert_array_equal(ops.scatter_rows(np.ones((1, 2)), [-1], 8)[7], 1.0)
    np.testing.assert_array_equal(ops.segment_sum(np.ones((1, 2)), [-1], 8)[7], 1.0)
    np.testing.assert_array_equal(ops.embedding_bag(T, [[-1]]).data, T.data[[-1]])
    for f in (
        lambda: ops.take(T, [-9]),
        lambda: T[[-9]],
        lambda: IndexedSlices([-9], np.ones((1, 2)), (8, 2)),
        lambda: ops.scatter_rows(np.ones((1, 2)), [-9], 8),
        # a layer or a loss is given data, where -1 pads
        lambda: nn.Embedding(8, 2)([-1]),
        lambda: nn.EmbeddingBag(8, 2)([[-1]]),
        lambda: nn.cross_entropy(T, [-1] * 8),
    ):
        with pytest.raises(errors.RowIndexError, match="expected ids in"):
            f()


@row(17)
def ids_are_checked_alike_with_and_without_a_gradient():
    values = np.ones((8, 2))
    for bad in ([8], [-9], [0.0], [True], ["0"]):
        texts = set()
        for T in (ts.parameter(values), ts.tensor(values), values):
            with pytest.raises(errors.RowIndexError) as error:
                ops.take(T, bad)
            texts.add(str(error.value))
        assert len(texts) == 1


# -- padding, and nothing looked up --------------------------------------------------------------


@row(19)
def the_padding_row_is_not_trained():
    layer = nn.Embedding(5, 2, padding_idx=0, seed=0)
    layer.load_state_dict({"weight": np.ones((5, 2), np.float32)})  # not even by a table of ours
    opt = optim.SGD([layer.weight], lr=1.0)
    with ts.Tape(densify="raise") as tape:
        loss = layer([0, 2]).sum()
    grads = tape.backward(loss)
    assert grads.touched_rows(layer.weight).tolist() == [2]
    opt.step(grads)
    np.testing.assert_array_equal(layer.weight.data[:, 0], [1, 1, 0, 1, 1])


@row(21)
def the_padding_row_is_not_trained_for_any_number_of_ids():
    for n in (768, 769, 5000):
        ids = np.resize([0, 2, 3], n)
        for lookup in (
            lambda T, ids=ids: ops.embedding(T, ids, padding_idx=0),
            lambda T, ids=ids: ops.embedding_bag(T, ids[None], padding_idx=0),
        ):
            g = gradient(table(), lookup).coalesce()
            assert g.indices.tolist() == [2, 3]
            np.testing.assert_array_equal(g.values[:, 0], np.bincount(ids)[[2, 3]])


@row(23)
def the_numeric_gradient_of_the_padding_row_is_the_analytic_one():
    check_grads(lambda T: ops.embedding(T, [0, 2, 0], padding_idx=0), [table().numpy()])
    for mode in ("sum", "mean"):
        check_grads(
            lambda T, mode=mode: ops.embedding_bag(T, [[0, 2], [0, 0]], mode=mode, padding_idx=0),
            [table().numpy()],
        )


@row(25)
def adam_takes_a_gradient_without_rows():
    T = table()
    before = T.numpy()
    g = gradient(T, lambda T: ops.take(T, []))
    assert g.values.shape == (0, 2) and g.coalesce().values.shape == (0, 2)
    grads = GradStore()
    grads[T] = g
    for opt in (optim.Adam([T], sparse="lazy"), optim.Adagrad([T]), optim.SGD([T], lr=1.0)):
        opt.step(grads)
        np.testing.assert_array_equal(T.data, before)


@row(27)
def ids_of_shape_6_0_2():
    T = table()
    with ts.Tape(densify="raise") as tape:
        y = T[np.zeros((6, 0, 2), int)]
    assert y.shape == (6, 0, 2, 2)
    g = tape.backward(y, seed=np.zeros(y.shape))[T]
    assert g.values.shape == (0, 2)
    np.testing.assert_array_equal(g.to_dense(), np.zeros((8, 2)))


# -- dtypes, ranks and layouts of ids ------------------------------------------------------------


@row(29)
def every_integer_dtype_and_no_other():
    T = table()
    for code in "bBhHiIlLqQ":
        ids = np.array([5, 0, 5], code)
        g = gradient(T, lambda T, ids=ids: ops.take(T, ids))
        assert g.indices.dtype == np.int64 and g.indices.tolist() == [5, 0, 5]
    for code in "efd?FD":
        with pytest.raises(errors.RowIndexError, match="expected integer ids"):
            ops.take(T, np.array([1, 0], code))


@row(31)
def large_ids_take_no_path_through_floats():
    with pytest.raises(errors.RowIndexError):
        IndexedSlices(np.array([16777217], np.float32), np.ones((1, 1)), (2**25, 1))
    g = IndexedSlices([16777217, 16777216, 16777217], np.ones((3, 1)), (2**25, 1))
    assert g.coalesce().indices.tolist() == [16777216, 16777217]
    assert g.coalesce().values.ravel().tolist() == [1.0, 2.0]


@row(33)
def ids_of_any_strides():
    T, ids = table(), np.arange(8).reshape(2, 4)
    for some in (ids.T, ids[:, ::2], ids[::-1, ::-1], np.broadcast_to(ids[:1], (3, 4))):
        g = gradient(T, lambda T, some=some: T[some])
        assert g.indices.tolist() == some.ravel().tolist()


@row(35)
def ids_of_rank_2_coalesce():
    T = table()
    g = gradient(T, lambda T: T[[[3, 1], [1, 3]]] * 1.0).coalesce()
    assert g.indices.shape == (2,) and g.indices.tolist() == [1, 3]
    np.testing.assert_array_equal(g.values, np.full((2, 2), 2.0))
    with ts.Tape(densify="raise") as tape:  # the recorded sum of repeats, too
        grads = tape.backward((T[[[3, 1], [1, 3]]] ** 2).sum(), create_graph=True)
        again = tape.backward((grads[T].coalesce().values ** 2).sum())
    np.testing.assert_allclose(again[T].to_dense()[[1, 3]], 32 * T.data[[1, 3]])


# -- sparsity that is lost, or does not compose --------------------------------------------------


@row(37)
def the_gradient_is_indexed_slices():
    T = table()
    for f in (lambda T: T[[1]], lambda T: ops.take(T, 1), lambda T: T[1], lambda T: T[1:3],
              lambda T: T[:, 0][[2]], lambda T: ops.tanh(T)[[1]] * 2):  # fmt: skip
        assert type(gradient(T, f)) is IndexedSlices


def bytes_of_a_step(V, make):
    """Most bytes held at once by a step on a (V, 4) table, after one that sets up its state."""
    T = ts.parameter(np.zeros((V, 4), np.float32))
    opt = make([T])

    def step():
        with ts.Tape(densify="raise") as tape:
            loss = (T[[1, 5, 1]] ** 2).sum()
        opt.step(tape.backward(loss))

    step()
    with count_bytes() as used:
        step()
    return used.peak


@row(39)
def a_step_allocates_as_much_for_a_large_table_as_for_a_small_one():
    for make in (
        lambda p: optim.SGD(p, lr=0.1),
        lambda p: optim.Adagrad(p, lr=0.1),
        lambda p: optim.Adam(p, lr=0.1, sparse="lazy"),
    ):
        small, large = bytes_of_a_step(100, make), bytes_of_a_step(100_000, make)
        assert large < small + 10_000 < 100_000


@row(43)
def indexing_and_take_are_the_same():
    T = table()
    one, two = (gradient(T, f) for f in (lambda T: T[[5, 1]], lambda T: ops.take(T, [5, 1])))
    assert type(one) is type(two) is IndexedSlices and one.indices.tolist() == [5, 1]
    np.testing.assert_array_equal(one.to_dense(), two.to_dense())


@row(45)
def rows_pass_through_an_inner_function_and_its_gradient():
    values = table().numpy()

    def inner(w):
        return (w[[1, 3, 1]] ** 2).sum()

    g = ts.grad(inner)(values)
    assert type(g) is IndexedSlices and g.coalesce().indices.tolist() == [1, 3]
    T = ts.parameter(values)
    with ts.Tape(densify="raise") as tape:
        g = ts.grad(inner)(T)
        assert type(g) is IndexedSlices
        loss = (g.coalesce().values ** 2).sum()
    grads = tape.backward(loss)
    assert grads.touched_rows(T).tolist() == [1, 3]  # (4w)² and (2w)²
    np.testing.assert_allclose(grads[T].to_dense()[[1, 3]], values[[1, 3]] * [[32.0], [8.0]])


@row(47)
def sizes_mean_what_they_mean_for_the_dense_twin():
    g = gradient(table(), lambda T: T[[1, 1]])
    dense = g.to_dense()
    assert (g.shape, g.ndim, g.size, g.dtype) == (dense.shape, dense.ndim, dense.size, dense.dtype)
    assert g.nbytes == 2 * 8 + 2 * 2 * 8  # what it holds, not what the twin holds


# -- clipping ------------------------------------------------------------------------------------


def mixed():
    """A gradient of rows, one of them twice, and a dense one: [3, 4] twice at row 3, and [6, 8]."""
    T, b = table(), ts.parameter(np.zeros(2))
    with ts.Tape(densify="raise") as tape:
        loss = (T[[3, 3]] * np.array([3.0, 4.0])).sum() + (b * np.array([6.0, 8.0])).sum()
    return T, b, tape.backward(loss)


CLIPS = (
    lambda grads: optim.clip_grad_norm(grads, 1.0),
    lambda grads: optim.clip_grad_value(grads, 1.0),
    lambda grads: optim.clip_grad_rows(grads, 1.0),
)


@row(49)
def every_clip_works_on_an_embedding_and_sums_repeats_first():
    T, _, grads = mixed()
    for clip in CLIPS:
        twin = clip(grads.to_dense())
        np.testing.assert_allclose(clip(grads).to_dense()[T], twin[T], rtol=1e-12)


@row(51)
def norms_of_every_order_see_rows_and_dense_gradients_together():
    T, b, grads = mixed()
    flat = np.array([6.0, 8.0, 6.0, 8.0])
    for ord in (1, 2, 3, np.inf):
        norm = np.linalg.norm(flat, ord)
        np.testing.assert_allclose(grads.norm(ord), norm)
        clipped = optim.clip_grad_norm(grads, 1.0, ord)
        np.testing.assert_allclose(clipped.norm(ord), 1.0)
        np.testing.assert_allclose(clipped[T].coalesce().values, [flat[:2] / norm])
        np.testing.assert_allclose(clipped[b], flat[2:] / norm)


@row(53)
def a_clipped_gradient_is_still_rows():
    T, _, grads = mixed()
    for clip in CLIPS:
        assert type(clip(grads)[T]) is IndexedSlices
        assert clip(grads).touched_rows(T).tolist() == [3]


@row(55)
def a_gradient_of_zeros_is_clipped_to_zeros():
    T, b, grads = mixed()
    for clip in CLIPS:
        zero = clip(grads * 0.0)
        np.testing.assert_array_equal(zero[T].to_dense(), 0.0)
        np.testing.assert_array_equal(zero[b], 0.0)


# -- what optimizers mean ------------------------------------------------------------------------


@row(57, "lazy")
def rows_that_are_not_looked_up_stay_under_lazy_adam():
    T = table()
    start = T.numpy()
    opt = optim.Adam([T], lr=0.1, sparse="lazy")
    for ids in ([1, 2], [1], [1]):
        with ts.Tape() as tape:
            loss = T[ids].sum()
        opt.step(tape.backward(loss))
        if ids == [1, 2]:
            second = T.numpy()[2]
    np.testing.assert_array_equal(T.data[[0, 3, 4, 5, 6, 7]], start[[0, 3, 4, 5, 6, 7]])
    np.testing.assert_array_equal(T.data[2], second)


def stepped(make, gradients, dense=False):
    """A table after a step for each of these (ids, values), all rows of it read."""
    T = table()
    opt = make([T])
    for ids, values in gradients:
        grads = GradStore()
        grads[T] = IndexedSlices(ids, np.asarray(values, float), (8, 2))
        opt.step(grads.to_dense() if dense else grads)
    return T.numpy()


THREE = [([1, 2], np.ones((2, 2))), ([1], np.ones((1, 2))), ([1], -np.ones((1, 2)))]


@row(57, "exact")
def rows_that_are_not_looked_up_keep_moving_under_exact_adam():
    def make(params):
        return optim.Adam(params, lr=0.1)

    start, after_one, after = table().numpy(), stepped(make, THREE[:1]), stepped(make, THREE)
    assert (after[2] < after_one[2]).all()  # its average of gradients is not zero yet
    np.testing.assert_array_equal(after[[0, 3, 4, 5, 6, 7]], start[[0, 3, 4, 5, 6, 7]])
    np.testing.assert_allclose(after, stepped(make, THREE, dense=True), rtol=1e-13)


@row(59)
def exact_is_the_standard_rule_on_sparse_gradients_and_lazy_is_another():
    rng = np.random.default_rng(0)
    many = [(rng.integers(0, 8, 3), rng.normal(size=(3, 2))) for _ in range(50)]
    for rule, settings in (
        (optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (optim.SGD, {"lr": 0.1, "weight_decay": 0.1}),
        (optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
        (optim.RMSprop, {"lr": 0.01}),
        (optim.Adadelta, {"lr": 1.0}),
    ):
        exact, dense, lazy = (
            stepped(lambda p, m=m, rule=rule, s=settings: rule(p, sparse=m, **s), many, d)
            for m, d in (("exact", False), ("exact", True), ("lazy", False))
        )
        np.testing.assert_allclose(exact, dense, rtol=1e-12, err_msg=rule.__name__)
        assert np.abs(lazy - dense).max() > 1e-6, rule.__name__


@row(61)
def decay_of_a_row_at_rest_is_that_of_every_step_and_lazy_has_none():
    start, k = table().numpy(), 100
    each = [([1], np.zeros((1, 2)))] * k
    for make in (optim.SGD, optim.AdamW):
        settings = {"lr": 0.1, "weight_decay": 0.05}
        exact = stepped(lambda p, make=make, s=settings: make(p, **s), each)
        np.testing.assert_allclose(exact, start * (1 - 0.1 * 0.05) ** k, rtol=1e-12)
        lazy = stepped(lambda p, make=make, s=settings: make(p, sparse="lazy", **s), each)
        np.testing.assert_array_equal(lazy[2:], start[2:])
        np.testing.assert_allclose(lazy[1], exact[1], rtol=1e-12)


@row(63)
def a_parameter_has_a_decay_of_its_own():
    for sparse in ("exact", "lazy"):
        T, U = table(), table()
        opt = optim.SGD(
            [{"params": [T], "weight_decay": 0.5}, {"params": [U]}], lr=0.1, sparse=sparse
        )
        start = T.numpy()
        with ts.Tape(densify="raise") as tape:
            loss = T[[3]].sum() + U[[3]].sum()
        opt.step(tape.backward(loss))
        np.testing.assert_allclose(T.data[3], start[3] - 0.1 * (1 + 0.5 * start[3]))
        np.testing.assert_allclose(U.data[3], start[3] - 0.1)


@row(65)
def a_group_after_the_one_with_rows_is_stepped():
    T, b = table(), ts.parameter(np.ones(2))
    for make in (optim.SGD, optim.Adagrad):
        before = b.numpy(), T.numpy()
        with ts.Tape() as tape:
            loss = (T[[1]] * 2 + b).sum()
        make([{"params": [T]}, {"params": [b]}], lr=0.1).step(tape.backward(loss))
        assert (b.data < before[0]).all() and (T.data[1] < before[1][1]).all()


@row(67)
def adagrad_sums_squares_of_the_raw_coalesced_gradient():
    T = table()
    p, h = T.numpy(), np.zeros((8, 2))
    opt = optim.Adagrad([T], lr=0.3, eps=1e-8)
    rng = np.random.default_rng(0)
    for _ in range(5):
        ids, c = rng.integers(0, 8, 6), rng.normal(size=(6, 2))
        with ts.Tape(densify="raise") as tape:
            loss = (T[ids] * c).sum()
        opt.step(tape.backward(loss))
        g = np.zeros((8, 2))
        np.add.at(g, ids, c)
        h += g * g
        p -= 0.3 * g / (np.sqrt(h) + 1e-8)
    np.testing.assert_allclose(T.data, p, rtol=1e-12)
    np.testing.assert_allclose(opt.state_dict()["slots"][0][0], h, rtol=1e-12)


@row(69)
def decay_is_added_after_the_clip_in_every_mode():
    p = table().numpy()[3]
    wanted = p - 0.5 * (0.1 + 0.1 * p)
    for sparse in ("exact", "lazy"):
        for dense in (False, True):
            T = table()
            grads = GradStore()
            grads[T] = IndexedSlices([3], np.full((1, 2), 7.0), (8, 2))
            grads = optim.clip_grad_value(grads.to_dense() if dense else grads, 0.1)
            optim.SGD([T], lr=0.5, weight_decay=0.1, sparse=sparse).step(grads)
            np.testing.assert_allclose(T.data[3], wanted, rtol=1e-13)


# -- accumulation, and what optimizers keep ------------------------------------------------------


@row(71)
def four_micro_batches_are_one_batch():
    T, b = table(), ts.parameter(np.zeros(2))
    ids = np.random.default_rng(0).integers(0, 8, 16)

    def grads_of(ids):
        with ts.Tape(densify="raise") as tape:
            loss = ((T[ids] + b) ** 2).sum()
        return tape.backward(loss)

    whole = grads_of(ids)
    first, *others = map(grads_of, ids.reshape(4, 4))
    total = first
    for one in others:
        total = total + one
    assert type(total[T]) is IndexedSlices
    for p in (T, b):
        np.testing.assert_allclose(total.to_dense()[p], whole.to_dense()[p], rtol=1e-12)


@row(73)
def a_hundred_micro_batches_of_a_large_table_need_no_table():
    T = ts.parameter(np.zeros((10**6, 2), np.float16))
    total = GradStore()
    with count_bytes() as used:
        for i in range(100):
            with ts.Tape(densify="raise") as tape:
                loss = T[[i, i + 1, 10**6 - 1]].sum()
            total = total + tape.backward(loss)
        rows = total.touched_rows(T)
    assert len(rows) == 102 and total.nbytes <= 100 * 3 * (8 + 4)
    assert used.peak < 10**6


@row(75)
def scaling_keeps_ids_and_shape():
    g = gradient(table(), lambda T: T[[5, 1, 5]])
    for scaled in (g * 2, 2 * g, np.float64(2) * g):
        assert type(scaled) is IndexedSlices and scaled.shape == g.shape
        assert scaled.indices.tolist() == [5, 1, 5]
        np.testing.assert_array_equal(scaled.to_dense(), g.to_dense() * 2)


@row(77)
def a_rowwise_rule_keeps_one_number_a_row():
    V, d = 1000, 64
    sizes = {}
    for make in (optim.RowwiseAdagrad, optim.Adagrad):
        T = ts.parameter(np.zeros((V, d), np.float32))
        grads = GradStore()
        grads[T] = IndexedSlices(np.arange(V), np.ones((V, d), np.float32), (V, d))
        opt = make([T], lr=0.1)
        opt.step(grads)
        sizes[make] = opt.state_bytes()
    assert sizes[optim.RowwiseAdagrad] == 4 * V and sizes[optim.Adagrad] == 4 * V * d


@row(79)
def training_goes_on_bit_for_bit_with_the_count_of_each_row():
    rng = np.random.default_rng(0)
    batches = [(rng.integers(0, 8, 3), rng.normal(size=(3, 2))) for _ in range(12)]
    for settings in ({"sparse": "lazy", "count": "row"}, {"sparse": "exact"}):

        def run(opt, T, part):
            for ids, values in part:
                grads = GradStore()
                grads[T] = IndexedSlices(ids, values, (8, 2))
                opt.step(grads)

        T = table()
        opt = optim.Adam([T], lr=0.1, **settings)
        run(opt, T, batches[:6])
        saved, again = opt.state_dict(), ts.parameter(T.numpy())
        run(opt, T, batches[6:])
        other = optim.Adam([again], lr=0.5, **settings)
        other.load_state_dict(saved)
        run(other, again, batches[6:])
        assert again.numpy().tobytes() == T.numpy().tobytes()


@row(81)
def a_step_updates_the_table_in_place_and_returns_nothing():
    T = table()
    view = T.data
    grads = GradStore()
    grads[T] = IndexedSlices([3], np.ones((1, 2)), (8, 2))
    assert optim.SGD([T], lr=1.0).step(grads) is None
    assert np.shares_memory(view, T.data) and (view[3] < 0).all()


# -- precision and determinism -------------------------------------------------------------------


@row(83)
def finite_parts_that_sum_to_infinity_are_seen_after_coalescing():
    g = IndexedSlices([3, 3], np.array([[40000], [40000]], np.float16), (8, 1))
    assert np.isfinite(g.values).all()
    with np.errstate(over="ignore"):
        assert np.isinf(g.coalesce().values).all() and np.isinf(g.norm())
    T = ts.parameter(np.zeros((8, 1), np.float16))
    grads = GradStore()
    grads[T] = IndexedSlices([3, 3, 3], np.array([[4e4], [4e4], [-4e4]], np.float16), (8, 1))
    assert grads.norm() == 40000.0


@row(85)
def the_same_bits_ten_times():
    rng = np.random.default_rng(0)
    values, ids = rng.normal(size=(50, 3)).astype(np.float32), rng.integers(0, 50, 500)
    c = rng.normal(size=(500, 3)).astype(np.float32)
    hashes = set()
    for _ in range(10):
        T = ts.parameter(values)
        opt = optim.Adagrad([T], lr=0.1)
        for _ in range(2):
            with ts.Tape() as tape:
                loss = (ops.tanh(T[ids]) * c).sum()
            opt.step(tape.backward(loss))
        hashes.add(hashlib.sha256(T.data.tobytes()).hexdigest())
    assert len(hashes) == 1


@row(87)
def bags_of_every_mode_have_the_gradient_of_their_dense_twin():
    T = np.random.default_rng(0).normal(size=(8, 2))
    bags = [[3, 1, 3], [], [7], [0, 1]]
    seed = np.random.default_rng(1).normal(size=(4, 2))
    for mode in ops.bag.MODES:

        def f(T, mode=mode):
            return (ops.embedding_bag(T, bags, mode=mode) * seed).sum()

        sparse, dense = ts.grad(f)(T), ts.grad(dense_twin(f))(T)
        assert type(sparse) is IndexedSlices and type(dense) is np.ndarray
        np.testing.assert_allclose(sparse.to_dense(), dense, rtol=1e-12, err_msg=mode)


# -- speed and size ------------------------------------------------------------------------------


@row(89)
def ids_that_are_sorted_and_unique_are_not_sorted_again():
    g = IndexedSlices([1, 4, 6], np.ones((3, 2)), (8, 2))
    assert g.coalesce() is g and g.is_coalesced


@row(91)
def ids_are_validated_at_the_lookup_only():
    T = table()
    checked = []

    def counted(check):
        return lambda *args: checked.append(args) or check(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinygrad_sparse.ops.rows.row_ids", counted(backend.row_ids))
        patch.setattr("tinygrad_sparse.ops.rows.are_row_ids", counted(backend.are_row_ids))
        patch.setattr("tinygrad_sparse.slices.row_ids", counted(backend.row_ids))
        with ts.Tape(persistent=True) as tape:
            loss = (ops.tanh(T)[np.array([1, 3, 1])] ** 2).sum()
        assert len(checked) == 1
        for _ in range(100):
            tape.backward(loss).touched_rows(T)
    assert len(checked) == 1


@row(95)
def rows_beyond_2_to_the_31_are_addressed_right():
    V = 2**40
    g = IndexedSlices([V - 1, 2**33 + 1], np.ones((2, 3, 2)), (V, 3, 2))
    finer = g + IndexedSlices([3 * (V - 1) + 2], np.ones((1, 2)), (V, 3, 2), lead=2)
    rows = [3 * (2**33 + 1) + i for i in range(3)] + [3 * (V - 1) + i for i in range(3)]
    assert finer.coalesce().indices.tolist() == rows
    assert finer.coalesce().values[:, 0].tolist() == [1, 1, 1, 1, 1, 2]
    assert g.size == 6 * V and g.nbytes == 2 * 8 + 2 * 6 * 8
    with pytest.raises(errors.RowIndexError):
        IndexedSlices([V], np.ones((1, 3, 2)), (V, 3, 2))


@row(97)
def ids_near_59_million_keep_their_rows():
    ids = 59_000_000 + np.array([3, 1, 2, 1], np.int32)
    g = IndexedSlices(ids, np.arange(4.0)[:, None], (60_000_000, 1)).coalesce()
    assert (g.indices - 59_000_000).tolist() == [1, 2, 3]
    assert g.values.ravel().tolist() == [4.0, 2.0, 0.0]
    assert (g + g).coalesce().indices.tolist() == g.indices.tolist()


# -- one table, used in two ways or by two threads -----------------------------------------------


@row(99)
def a_table_of_more_than_2_GiB_is_saved_and_loaded():
    class Model(nn.Module):
        def __init__(self, table):
            self.table = ts.parameter(table)

    model = Model(np.zeros((2**23 + 1, 64), np.float32))
    assert model.table.nbytes > 2**31
    model.table.assign(np.ones((1, 64), np.float32), rows=[-1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.npz")
        np.savez(path, **model.state_dict())
        model.table.assign(np.zeros((1, 64), np.float32), rows=[-1])
        with np.load(path) as saved:
            model.load_state_dict(saved)
    assert model.table[[0, -1]].sum().item() == 64


@row(101)
def a_tied_table_gets_one_dense_gradient_of_its_own_size():
    T = ts.parameter(np.random.default_rng(0).normal(size=(400, 8)))
    ids = np.arange(0, 400, 2)
    with ts.Tape(densify="raise") as tape:
        loss = (ops.take(T, ids) @ T.T).sum()
    grads = tape.backward(loss)
    assert type(grads[T]) is np.ndarray and grads.nbytes == T.nbytes
    wanted = np.tile(T.data[ids].sum(0), (400, 1))
    wanted[ids] += T.data.sum(0)
    np.testing.assert_allclose(grads[T], wanted, rtol=1e-9)


@row(103)
def threads_that_step_one_table_take_turns():
    g = IndexedSlices(np.arange(0, 2000, 2), np.ones((1000, 4)), (2000, 4))
    each, threads = 25, 4

    def run(opt, T, times):
        grads = GradStore()
        grads[T] = g
        for _ in range(times):
            opt.step(grads)
            T[:5].numpy()
            T.numpy()

    switch = sys.getswitchinterval()
    for make in (
        lambda p: optim.SGD(p, lr=1.0),
        lambda p: optim.Adagrad(p, lr=0.1),
        lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.1),
        lambda p: optim.Adam(p, lr=0.1, sparse="lazy", count="row"),
    ):
        T, alone = (ts.parameter(np.ones((2000, 4))) for _ in range(2))
        opt, other = make([T]), make([alone])
        workers = [threading.Thread(target=run, args=(opt, T, each)) for _ in range(threads)]
        sys.setswitchinterval(1e-6)
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        finally:
            sys.setswitchinterval(switch)
        run(other, alone, each * threads)
        assert opt.calls == other.calls
        np.testing.assert_allclose(T.data, alone.data, rtol=1e-12)


# -- second order --------------------------------------------------------------------------------


@row(105)
def a_gradient_penalty_through_a_lookup_is_the_one_through_the_dense_table():
    values = table().numpy()

    def penalty(lookup):
        T = ts.parameter(values)
        with ts.Tape(densify="allow") as tape:
            g = tape.backward((ops.tanh(lookup(T)) ** 2).sum(), create_graph=True)[T]
            squares = g.norm() ** 2 if type(g) is IndexedSlices else (g * g).sum()
            return tape.backward(squares).to_dense()[T], type(g)

    onehot = np.eye(8)[[3, 1, 3]]
    sparse, kind = penalty(lambda T: T[[3, 1, 3]])
    dense, other = penalty(lambda T: onehot @ T)
    assert kind is IndexedSlices and other is ts.Tensor
    np.testing.assert_allclose(sparse, dense, rtol=1e-10, atol=1e-14)
    assert np.abs(sparse).max() > 0.1
