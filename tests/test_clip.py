"""Clipping works on coalesced rows and keeps them rows."""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import optim
from tinygrad_sparse.errors import ArgumentError, DtypeError, TinygradSparseError


@pytest.fixture
def store():
    """Row 3 of a table twice, [3, 4] + [3, 4], and a dense gradient [6, 8]."""
    W, b = ts.parameter(np.zeros((5, 2))), ts.parameter(np.zeros(2))
    grads = ts.GradStore()
    grads[W] = ts.IndexedSlices([3, 3], np.array([[3.0, 4.0], [3.0, 4.0]]), (5, 2))
    grads[b] = np.array([6.0, 8.0])
    return W, b, grads


def test_norm_sums_repeats_first(store):
    _, _, grads = store
    assert grads.norm() == pytest.approx(np.hypot(10, 10))
    assert grads.norm(1) == pytest.approx(28)
    assert grads.norm(np.inf) == 8


def test_norm_of_huge_and_tiny_gradients():
    b = ts.parameter(np.zeros(2))
    grads = ts.GradStore()
    for size in (1e-200, 1e200):
        grads[b] = np.full(2, size)
        assert grads.norm() == pytest.approx(size * 2**0.5)


@pytest.mark.parametrize("ord", [1, 2, 3, np.inf])
def test_norm_clip_scales_everything_by_one_factor(store, ord):
    W, b, grads = store
    clipped = optim.clip_grad_norm(grads, 1.0, ord)
    assert clipped.norm(ord) == pytest.approx(1.0)
    np.testing.assert_allclose(clipped[b] / clipped[W].coalesce().values[0], 1.0)
    assert isinstance(clipped[W], ts.IndexedSlices)
    assert optim.clip_grad_norm(grads, 1e6) is grads


def test_norm_clip_of_zero_and_of_nonsense():
    b = ts.parameter(np.zeros(2))
    grads = ts.GradStore()
    grads[b] = np.zeros(2)
    np.testing.assert_array_equal(optim.clip_grad_norm(grads, 1.0)[b], 0)
    grads[b] = np.array([np.inf, 0])
    with pytest.raises(TinygradSparseError, match="clip_grad_norm: expected a finite norm"):
        optim.clip_grad_norm(grads, 1.0)
    with pytest.raises(TinygradSparseError, match="expected a bound > 0, got 0"):
        optim.clip_grad_rows(grads, 0)


@pytest.mark.parametrize("wrong", ["fro", None, [2], 0, -1.0, np.nan], ids=repr)
def test_a_norm_of_no_order_is_refused(store, wrong):
    with pytest.raises(TinygradSparseError, match="norm: expected ord > 0, or inf, got"):
        optim.clip_grad_norm(store[2], 1.0, wrong)


def test_value_clip_sees_the_sum(store):
    W, b, grads = store
    clipped = optim.clip_grad_value(grads, 7.0)
    np.testing.assert_array_equal(clipped[W].indices, [3])
    np.testing.assert_array_equal(clipped[W].values, [[6, 7]])
    np.testing.assert_array_equal(clipped[b], [6, 7])


def test_row_clip_caps_long_rows_and_leaves_short_ones():
    W = ts.parameter(np.zeros((5, 2), np.float32))
    rows = np.array([[3, 4], [0.3, 0.4], [0, 0]], np.float32)
    grads = ts.GradStore()
    grads[W] = ts.IndexedSlices([4, 1, 0], rows, (5, 2))
    clipped = optim.clip_grad_rows(grads, 1.0)[W]
    assert clipped.dtype == np.float32
    np.testing.assert_allclose(clipped.to_dense()[[4, 1, 0]], [[0.6, 0.8], [0.3, 0.4], [0, 0]])


@pytest.mark.parametrize("bound", np.linspace(1, 2, 20))
def test_short_rows_beside_a_long_one_keep_their_bits(bound):
    rows = np.random.default_rng(0).uniform(-0.1, 0.1, (300, 16)).astype(np.float32)
    rows[7] = 9
    W = ts.parameter(np.zeros((300, 16), np.float32))
    grads = ts.GradStore()
    grads[W] = ts.IndexedSlices(np.arange(300), rows, W.shape)
    optim.SGD([W], lr=1.0).step(grads, clip_rows=bound)
    short = np.delete(np.arange(300), 7)
    for clipped in (optim.clip_grad_rows(grads, bound)[W].values, -W.data):
        np.testing.assert_array_equal(clipped[short], rows[short])
        assert np.linalg.norm(clipped[7]) == pytest.approx(bound)


@pytest.mark.parametrize(("dtype", "size"), [(np.float16, 300), (np.float32, 1e20)])
def test_rows_whose_squares_overflow_are_capped_not_lost(dtype, size):
    W = ts.parameter(np.zeros((5, 2), dtype))
    grads = ts.GradStore()
    grads[W] = ts.IndexedSlices([1], np.full((1, 2), size, dtype), (5, 2))
    np.testing.assert_allclose(
        optim.clip_grad_rows(grads, 1.0)[W].values, [[0.5**0.5, 0.5**0.5]], rtol=1e-3
    )
    assert grads[W].norm() == pytest.approx(size * 2**0.5, rel=1e-3)


def test_row_clip_of_a_vector_caps_each_number():
    b = ts.parameter(np.zeros(2))
    grads = ts.GradStore()
    grads[b] = np.array([3.0, -0.5])
    np.testing.assert_array_equal(optim.clip_grad_rows(grads, 1.0)[b], [1.0, -0.5])


def test_a_recorded_gradient_is_clipped_on_record():
    W = ts.parameter(np.array([[3.0, 4.0], [0.03, 0.04]]))
    with ts.Tape() as tape:
        grads = tape.backward((W[[0, 1]] ** 2).sum(), create_graph=True)
        clipped = optim.clip_grad_rows(grads, 1.0)[W]
        second = (clipped.values * np.array([[1.0, 0.0], [1.0, 0.0]])).sum()
    # row 0 is w / |w|, row 1 is 2w
    expected = [[16 / 125, -12 / 125], [2, 0]]
    np.testing.assert_allclose(tape.backward(second)[W].to_dense(), expected, rtol=1e-12)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 3), (0, 3), (4, 0)])
def test_rows_of_any_shape_are_clipped_by_the_definition(shape):
    g = np.random.default_rng(0).normal(size=shape)
    W = ts.parameter(np.zeros(shape))
    grads = ts.GradStore()
    grads[W] = g
    flat = g.reshape(len(g), -1) if g.size else g.reshape(len(g), 0)
    lengths = np.sqrt((flat**2).sum(1)).reshape((-1,) + (1,) * (g.ndim - 1))
    np.testing.assert_allclose(
        optim.clip_grad_rows(grads, 0.5)[W], g * np.minimum(1, 0.5 / np.maximum(lengths, 1e-9))
    )


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_row_clip_refuses_a_row_that_has_no_length(wrong):
    W = ts.parameter(np.zeros((5, 2)))
    grads = ts.GradStore()
    grads[W] = ts.IndexedSlices([1, 3], np.array([[1.0, 2.0], [wrong, 0.0]]), (5, 2))
    for store in (grads, grads.to_dense()):
        with pytest.raises(
            TinygradSparseError, match="clip_grad_rows: expected a finite norm, got"
        ):
            optim.clip_grad_rows(store, 1.0)


def test_float16_rows_that_are_longer_than_any_float16_number_are_capped():
    W = ts.parameter(np.zeros((5, 4), np.float16))
    grads = ts.GradStore()
    grads[W] = ts.IndexedSlices([1], np.full((1, 4), 6e4, np.float16), (5, 4))
    clipped = optim.clip_grad_rows(grads, 8.0)[W]
    assert clipped.dtype == np.float16
    np.testing.assert_allclose(clipped.values, 4.0, rtol=2e-3)


@pytest.mark.parametrize(
    "clip", [optim.clip_grad_norm, optim.clip_grad_value, optim.clip_grad_rows]
)
def test_bounds_are_numbers_above_zero(store, clip):
    _, b, grads = store
    wanted = clip(grads, 2.0)[b]
    for two in (2, np.float32(2), np.array(2)):
        np.testing.assert_array_equal(clip(grads, two)[b], wanted)
    for wrong in ("a", None, [1.0], 1j):
        with pytest.raises(DtypeError, match=f"{clip.__name__}: expected a number for the bound"):
            clip(grads, wrong)
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(TinygradSparseError, match=f"{clip.__name__}: expected a bound > 0"):
            clip(grads, wrong)


@pytest.mark.parametrize("ord", [1, 2, 3, np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_norm_clip_of_recorded_gradients_is_recorded(ord, dtype):
    """How the clipped gradient's dot product with a vector changes, beside differences of it."""
    rng = np.random.default_rng(0)
    start, bias, along = rng.normal(size=(4, 2)), rng.normal(size=2), rng.normal(size=(4, 2))

    def dot(at, kind):
        W, b = ts.parameter(at.astype(kind)), ts.parameter(bias.astype(kind))
        with ts.Tape(densify="allow") as tape:
            loss = (W[[1, 3, 1]] ** 3 * b).sum()
            grads = tape.backward(loss, create_graph=True)
            clipped = optim.clip_grad_norm(grads, 0.5, ord)
            with ts.no_grad():
                assert clipped.norm(ord) == pytest.approx(0.5, rel=1e-5)
            assert clipped[W].dtype == kind
            value = (clipped[W].to_dense() * along.astype(kind)).sum() + clipped[b].sum()
        return value.item(), tape.backward(value)[W]

    _, slope = dot(start, dtype)
    slope = slope.to_dense() if isinstance(slope, ts.IndexedSlices) else slope
    step = 1e-6
    for i, j in ((1, 0), (1, 1), (3, 0), (0, 0)):
        up, down = start.copy(), start.copy()
        up[i, j] += step
        down[i, j] -= step
        wanted = (dot(up, np.float64)[0] - dot(down, np.float64)[0]) / (2 * step)
        rtol = 1e-6 if dtype == np.float64 else 1e-4
        np.testing.assert_allclose(slope[i, j], wanted, rtol=rtol, atol=1e-6)


# -- rows shortened by the step itself -------------------------------------------------------------


def stepped(make, grads_of, clip_rows, **options):
    """A table after three steps: of gradients clipped before, or by the step."""
    rng = np.random.default_rng(0)
    W = ts.parameter(rng.normal(size=(300, 24)).astype(np.float32))
    opt = make(W)
    for _ in range(3):
        grads = ts.GradStore()
        grads[W] = grads_of(rng)
        if clip_rows:
            opt.step(grads, clip_rows=0.5, **options)
        else:
            opt.step(optim.clip_grad_rows(grads, 0.5), **options)
    return W.numpy()


def some_rows(rng, n=700):
    sizes = rng.choice([1e-3, 1.0], (n, 1))
    values = (rng.normal(size=(n, 24)) * sizes).astype(np.float32)
    return ts.IndexedSlices(rng.integers(0, 300, n), values, (300, 24))


@pytest.mark.parametrize(
    "grads_of",
    [
        some_rows,
        lambda rng: some_rows(rng, 5),
        lambda rng: some_rows(rng) * 1e-6,  # none is too long
        lambda rng: some_rows(rng) * 1e25,  # longer than what has a square
        lambda rng: some_rows(rng).to_dense(),
    ],
    ids=["many", "few", "short", "huge", "dense"],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda W: optim.SGD([W], lr=0.1),
        lambda W: optim.SGD([W], lr=0.1, momentum=0.9),
        lambda W: optim.SGD([W], lr=0.1, average=0.5),
        lambda W: optim.Adagrad([W], lr=0.1),
        lambda W: optim.RowwiseAdagrad([W], lr=0.1),
        lambda W: optim.Adam([W], lr=0.1, sparse="lazy", count="row"),
    ],
    ids=["sgd", "momentum", "average", "adagrad", "rowwise adagrad", "count by row"],
)
def test_a_step_that_clips_rows_is_a_step_by_clipped_rows(make, grads_of):
    got, wanted = (stepped(make, grads_of, clip_rows) for clip_rows in (True, False))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_a_step_that_clips_rows_looks_at_what_it_is_asked_to_look_at():
    got = stepped(lambda W: optim.SGD([W], lr=0.1), some_rows, True, error_if_nonfinite=True)
    np.testing.assert_array_equal(got, stepped(lambda W: optim.SGD([W], lr=0.1), some_rows, False))


def test_a_step_that_cannot_clip_changes_nothing():
    rng = np.random.default_rng(0)
    W, b = (ts.parameter(rng.normal(size=(300, 24)).astype(np.float32)) for _ in range(2))
    before, opt, grads = (W.numpy(), b.numpy()), optim.SGD([W, b], lr=0.1), ts.GradStore()
    grads[W], wrong = some_rows(rng), some_rows(rng)
    values = wrong.values.copy()
    values[7, 3] = np.nan
    grads[b] = ts.IndexedSlices(wrong.indices, values, wrong.shape)
    with pytest.raises(TinygradSparseError, match="clip_grad_rows: expected a finite norm"):
        opt.step(grads, clip_rows=0.5)
    with pytest.raises(TinygradSparseError, match="clip_rows: expected a bound > 0, got 0"):
        opt.step(grads, clip_rows=0)
    for now, old in zip((W, b), before, strict=True):
        np.testing.assert_array_equal(now.data, old)


def test_clipped_rows_are_those_that_a_lookup_by_several_axes_addressed():
    Q, R = (ts.parameter(np.zeros((4, 3, 2))) for _ in range(2))
    for table, clip in ((Q, True), (R, False)):
        opt = optim.Adagrad([table], lr=1.0)
        for ids in ((slice(None), [0, 1]), ([1, 1], [2, 0])):
            with ts.Tape() as tape:
                loss = (table[ids] * np.array([3.0, 4.0])).sum()
            grads = tape.backward(loss)
            if clip:
                opt.step(grads, clip_rows=1.0)
            else:
                opt.step(optim.clip_grad_rows(grads, 1.0))
    np.testing.assert_allclose(Q.data, R.data, rtol=1e-12)


@pytest.mark.parametrize(
    "dtype, bound, length",
    [("f2", 300, 1000), ("f4", 1e20, 1e25), ("f4", 1e-25, 1e-24), ("f8", 1e160, 1e161)],
)
@pytest.mark.parametrize("rows", [1, 400])
def test_rows_are_shortened_where_squares_leave_the_dtype(dtype, bound, length, rows):
    values = np.zeros((rows, 64), dtype)
    values[:, 0] = length
    W = ts.parameter(np.zeros((rows, 64), dtype))
    grads = ts.GradStore()
    grads[W] = ts.IndexedSlices(np.arange(rows), values, W.shape)
    shorter = optim.clip_grad_rows(grads, bound)[W].values
    np.testing.assert_allclose(shorter[:, 0], bound, rtol=2e-3 if dtype == "f2" else 1e-6)
    optim.SGD([W], lr=1.0).step(grads, clip_rows=bound)
    np.testing.assert_allclose(W.data[:, 0], -shorter[:, 0], rtol=1e-6)
    grads[W] = ts.IndexedSlices([0], np.full((1, 64), np.inf, dtype), W.shape)
    with pytest.raises(ArgumentError, match="finite norm"):
        optim.clip_grad_rows(grads, bound)


@pytest.mark.parametrize("bound", [0.02, 0.01])
@pytest.mark.parametrize("clip", [optim.clip_grad_norm, optim.clip_grad_rows], ids=["norm", "rows"])
def test_a_float16_gradient_is_as_long_as_the_bound_says(clip, bound):
    W = ts.parameter(np.zeros((2, 4), np.float16))
    grads = ts.GradStore()
    grads[W] = ts.IndexedSlices([1], np.full((1, 4), 3e4, np.float16), (2, 4))
    values = clip(grads, bound)[W].values
    assert values.dtype == np.float16
    np.testing.assert_allclose(values.astype(float), bound / 2, rtol=2e-3)
