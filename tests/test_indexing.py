"""Any index that NumPy takes gives what NumPy gives, and rows of what it picked as gradient."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tinygrad_sparse as ts
from tinygrad_sparse import errors, ops
from tinygrad_sparse.testing import check_grads

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@st.composite
def arrays_of_ids(draw, size, together):
    """Ids for an axis, of a shape that broadcasts to `together`; any integer dtype, or a list."""
    own = draw(st.integers(0, len(together)))
    shape = [draw(st.sampled_from([1, n])) for n in together[len(together) - own :]]
    low = draw(st.sampled_from([0, -size]))
    flat = draw(st.lists(st.integers(low, size - 1), min_size=math.prod(shape),
                         max_size=math.prod(shape)))  # fmt: skip
    dtype = draw(st.sampled_from([np.int64, np.int32, np.int8]))
    ids = np.array(flat, dtype).reshape(shape)
    return ids.tolist() if shape and draw(st.booleans()) else ids


@st.composite
def indices(draw, shape):
    """An index for an array of `shape`, of every kind."""
    together = draw(st.sampled_from([(), (1,), (2,), (3, 2), (0,)]))
    parts, axis = [], 0
    dots = draw(st.integers(-1, len(shape)))  # the axis before which an ellipsis stands, if any
    while axis < len(shape):
        if draw(st.integers(0, 5)) == 0:
            parts.append(None)
        if dots == axis:
            parts.append(...)
            dots = -1
            axis += draw(st.integers(0, len(shape) - axis))
            rest = len(shape) - axis
            if not rest:
                break
        n = shape[axis]
        kind = draw(st.sampled_from(["int", "slice", "slice", "ids", "ids", "mask", "stop"]))
        if kind == "int":
            parts.append(
                draw(st.sampled_from([int, np.int32, np.array]))(draw(st.integers(-n, n - 1)))
            )
        elif kind == "slice":
            bound = st.none() | st.integers(-n - 1, n + 1)
            step = draw(st.none() | st.integers(-3, 3).filter(bool))
            parts.append(slice(draw(bound), draw(bound), step))
        elif kind == "ids":
            parts.append(draw(arrays_of_ids(n, together)))
        elif kind == "mask":
            axes = draw(st.integers(0, min(2, len(shape) - axis)))
            of = shape[axis : axis + axes]
            flat = draw(st.lists(st.booleans(), min_size=math.prod(of), max_size=math.prod(of)))
            parts.append(np.array(flat, bool).reshape(of))
            axis += axes - 1
        elif any(part is ... for part in parts):  # nothing behind an ellipsis may be left out
            parts.append(slice(None))
        else:
            break
        axis += 1
    return parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


@st.composite
def arrays_and_indices(draw):
    """An array and an index that NumPy takes for it."""
    shape = draw(SHAPES)
    x = np.arange(math.prod(shape), dtype=float).reshape(shape)
    index = draw(indices(shape))
    try:
        x[index]
    except IndexError:  # masks with another number of true places, say
        index = draw(st.integers(0, shape[0] - 1))
    return x, index


def picks(index):
    """True if an array or a mask picks something: then the gradient is rows, whatever else."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(np.ndim(p) > 0 or isinstance(p, bool | np.bool_) for p in parts
               if not isinstance(p, slice) and p is not None and p is not ...)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(arrays_and_indices(), st.integers(0, 9))
@example((np.arange(60.0).reshape(3, 4, 5), (slice(None), [0, 1], ..., [0, 1])), 0)
@example((np.arange(60.0).reshape(3, 4, 5), (0, slice(None), [0, 1])), 0)
@example((np.arange(60.0).reshape(3, 4, 5), ([0, 1], slice(None), 2)), 0)
@example((np.arange(60.0).reshape(3, 4, 5), (slice(None), 2, None, [0, 1])), 0)
@example((np.arange(12.0).reshape(3, 4), (True, [0, 2])), 0)
@example((np.arange(12.0).reshape(3, 4), (slice(None), [], ...)), 0)
@example((np.arange(12.0).reshape(3, 4), np.zeros((3, 4), bool)), 0)
@example((np.arange(3.0), (np.bool_(False), ..., None)), 0)
def test_any_index_gives_what_numpy_gives(case, seed):
    x, index = case
    rng = np.random.default_rng(seed)
    W = ts.parameter(x)
    with ts.Tape(densify="raise", persistent=True) as tape:
        out = W[index] * 1.0
    wanted = x[index]
    np.testing.assert_array_equal(out.data, wanted)

    seed = rng.normal(size=wanted.shape)
    dense = np.zeros_like(x)
    np.add.at(dense, index, seed)
    g = tape.backward(out, seed=seed)[W]
    assert type(g) is ts.IndexedSlices or not picks(index)
    np.testing.assert_allclose(to_dense(g), dense)

    for lead in range(1, out.ndim + 1):
        rows = math.prod(out.shape[:lead])
        ids = rng.integers(0, rows, 3 if rows else 0)
        some = ts.IndexedSlices(
            ids, rng.normal(size=(len(ids), *out.shape[lead:])), out.shape, lead
        )
        dense = np.zeros_like(x)
        np.add.at(dense, index, some.to_dense())
        g = tape.backward(out, seed=some)[W]
        assert type(g) is ts.IndexedSlices
        np.testing.assert_allclose(g.to_dense(), dense)


@settings(max_examples=150, deadline=None)
@given(arrays_and_indices(), st.integers(0, 9))
@example((np.array(3.0), ()), 0)
@example((np.array(3.0), (None, ...)), 0)
@example((np.array(3.0), True), 0)
@example((np.arange(12.0).reshape(3, 4), (..., None)), 0)
def test_index_add_and_index_set_are_assignment_to_items(case, seed):
    x, index = case
    rng = np.random.default_rng(seed)
    values, upstream = rng.normal(size=x[index].shape), rng.normal(size=x.shape)
    added = x.copy()
    np.add.at(added, index, values)
    check_assignment(ops.index_add, x, index, values, upstream, added, upstream)
    places = np.arange(x.size).reshape(x.shape)[index]
    if len(np.unique(places)) < places.size:
        with pytest.raises(errors.RowIndexError, match="index_set: expected each place once"):
            ops.index_set(x, index, values)
        values = np.array(7.0)  # one value for all contradicts nothing
    replaced, kept = x.copy(), upstream.copy()
    replaced[index], kept[index] = values, 0.0
    check_assignment(ops.index_set, x, index, values, upstream, replaced, kept)


def check_assignment(op, x, index, values, upstream, wanted, to_x):
    W, v = ts.parameter(x), ts.parameter(values)
    with ts.Tape(densify="raise") as tape:
        out = op(W, index, v)
    np.testing.assert_allclose(out.data, wanted)
    grads = tape.backward(out, seed=upstream)
    np.testing.assert_allclose(to_dense(grads[W]), to_x)
    at = upstream[index] if values.ndim or not x.ndim else upstream[to_x != upstream].sum()
    if op is ops.index_set or values.ndim or not x.ndim:
        np.testing.assert_allclose(to_dense(grads[v]), np.reshape(at, values.shape))


def to_dense(g):
    return g.to_dense() if type(g) is ts.IndexedSlices else g


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.data())
def test_take_and_take_along_axis_give_what_numpy_gives(shape, data):
    x = np.arange(math.prod(shape), dtype=float).reshape(shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = shape[axis]
    ids = np.asarray(data.draw(arrays_of_ids(n, (3, 2))))
    np.testing.assert_array_equal(ops.take(x, ids, axis), np.take(x, ids, axis))
    along = [data.draw(st.sampled_from([1, m])) for m in shape]
    along[axis] = data.draw(st.integers(0, 3))
    ids = np.random.default_rng(0).integers(-n, n, along)
    W = ts.parameter(x)
    with ts.Tape(densify="raise") as tape:
        out = ops.take_along_axis(W, ids, axis) * 1.0
    np.testing.assert_array_equal(out.data, np.take_along_axis(x, ids, axis))
    seed = np.random.default_rng(1).normal(size=out.shape)
    g = tape.backward(out, seed=seed)[W]
    assert type(g) is ts.IndexedSlices
    grid = [
        a if k != axis % len(shape) else ids % n
        for k, a in enumerate(np.indices(shape, sparse=True))
    ]
    dense = np.zeros_like(x)
    np.add.at(dense, tuple(grid), seed)
    np.testing.assert_allclose(g.to_dense(), dense)


# -- how much a gradient holds -------------------------------------------------------------------

V, D = 1000, 16
LOOKUPS = {
    "W[s, a]": (lambda W: W[[3, 999], [0, 15]], 2, 2),
    "W[:, columns]": (lambda W: W[:, [4, 2]], 2, 2 * V),
    "W[ids, column]": (lambda W: W[[3, 999], 5], 2, 2),
    "W[:, column]": (lambda W: W[:, 5], 2, V),
    "W[ids, columns]": (lambda W: W[[3, 999], 1:], 1, 2 * D),
    "W[ids, narrow]": (lambda W: W[[3, 999], 1:2], 2, 2),
    "W[a:b]": (lambda W: W[10:12], 1, 2 * D),
    "W[::-400]": (lambda W: W[::-400], 1, 3 * D),
    "W[mask]": (lambda W: W[np.arange(V) % 500 == 0], 1, 2 * D),
    "W[mask of elements]": (lambda W: W[np.arange(V * D).reshape(V, D) % 8000 == 0], 2, 2),
    "W[ids][ids]": (lambda W: W[np.arange(0, V, 10)][[7, 3, 7]], 1, 3 * D),
    "W[ids][:, columns]": (lambda W: W[[3, 999]][:, [1, 1, 2]], 2, 6),
    "take_along_axis": (lambda W: ops.take_along_axis(W[[3, 999]], [[1], [2]]), 2, 2),
    "W.T[columns]": (lambda W: W.T[[4, 2]], 2, 2 * V),
    "W.T[:, ids]": (lambda W: W.T[:, [4, 2]], 2, 2 * D),
    "flat": (lambda W: W.reshape(-1)[[5, 15999]], 2, 2),
    "blocks": (lambda W: W.reshape(10, 100, D)[[1], [99]], 1, D),
    "leading axes": (lambda W: W.reshape(10, 100, D).transpose(1, 0, 2)[[99]], 1, 10 * D),
    "rolled": (lambda W: ops.roll(W, 3, 0)[[0, 1]], 1, 2 * D),
    "flipped": (lambda W: ops.flip(W)[[0, 1]], 1, 2 * D),
    "concatenated": (lambda W: ops.concatenate([W, W * 2.0])[[0, V + 1]], 1, 2 * D),
    "stacked": (lambda W: ops.stack([W, W * 2.0], 1)[[4, 4], [0, 1]], 1, 2 * D),
    "split": (lambda W: ops.split(W, 4)[2][[1, 7]], 1, 2 * D),
    "repeated": (lambda W: ops.repeat(W, 3, 0)[[1, 2]], 1, 2 * D),
    "tiled": (lambda W: ops.tile(W, (2, 1))[[1, V + 1]], 1, 2 * D),
    "padded": (lambda W: ops.pad(W, ((2, 0), (0, 1)))[[0, 2]], 1, D),
    "edges": (lambda W: ops.pad(W, ((2, 0), (0, 0)), "edge")[[0, 2]], 1, 2 * D),
    "sorted rows": (lambda W: ops.sort(W)[[3, 999]], 1, 2 * D),
    "sorted columns": (lambda W: ops.sort(W, 0)[[3, 999]], 2, 2 * D),
    "topk": (lambda W: ops.topk(W[[3, 999]], 2)[0], 2, 4),
    "replaced": (lambda W: ops.index_set(W, [3], 0.0)[[3, 999]], 1, D),
    "added to": (lambda W: ops.index_add(W, [3], 1.0)[[3, 999]], 1, 2 * D),
    "summed": (lambda W: ops.segment_sum(W, np.arange(V) // 4, 250)[[7]], 1, 4 * D),
    "meant": (lambda W: ops.segment_mean(W, np.arange(V) % 250, 250)[[7, 9]], 1, 8 * D),
    "largest": (lambda W: ops.segment_max(W, np.arange(V) // 4, 250)[[7]], 1, 4 * D),
}  # fmt: skip


@pytest.mark.parametrize(("f", "lead", "size"), LOOKUPS.values(), ids=LOOKUPS.keys())
def test_the_gradient_holds_what_was_looked_up(f, lead, size):
    W = ts.parameter(np.random.default_rng(0).normal(size=(V, D)))
    with ts.Tape(densify="raise") as tape:
        y = f(W * 1.0)
        loss = (y * y).sum()
    g = tape.backward(loss)[W]
    assert type(g) is ts.IndexedSlices
    assert (g.lead, g.values.size) == (lead, size)
    assert not tape.densified
    D2 = ts.parameter(W.data)
    with ts.Tape(densify="allow") as tape:
        y = f(D2 * 1.0)
    dense = tape.backward(y, seed=2 * y.data)[D2]
    np.testing.assert_allclose(g.to_dense(), to_dense(dense))


def test_a_cut_within_rows_is_held_as_zeros_unless_most_is_left_out():
    W = ts.parameter(np.ones((5, 9)))
    with ts.Tape(densify="raise"):
        assert type((W[:, 1:] * 2.0).sum().backward()[W]) is np.ndarray
    with ts.Tape(densify="raise"):
        assert type((W[::-1] * 2.0).sum().backward()[W]) is np.ndarray
    with ts.Tape(densify="raise"):
        assert (W[:, 3:4] * 2.0).sum().backward()[W].values.size == 5


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("order", [1, 2])
def test_a_lookup_of_a_lookup_keeps_its_dtype_at_any_order(dtype, order):
    Q = np.ones((6, 4), dtype)
    s, a = np.array([5, 1, 5]), np.array([0, 3, 0])

    def f(q):
        picked = q[[0, 5, 1, 1]][:, 1:][[1, 3, 1], [2, 0, 2]] + q[s, a]
        return (picked * picked * picked).sum()

    def slope(q):
        g = ts.grad(f)(q)
        return (g.to_dense() * g.to_dense()).sum()

    g = ts.grad(f if order == 1 else slope)(Q)
    assert type(g) is ts.IndexedSlices
    assert g.dtype == dtype


def test_order_2_through_an_index_on_two_axes():
    check_grads(
        lambda q: q[[4, 1, 4], [0, 2, 0]] ** 3, [np.random.default_rng(0).normal(size=(5, 3))]
    )


# -- what is refused -----------------------------------------------------------------------------

BAD = {
    "out of range": (lambda W: W[5], r"getitem: expected ids in \[0, 5\), got 5"),
    "below": (lambda W: W[-6], r"getitem: expected ids in \[-5, 5\), got -6"),
    "inner": (lambda W: W[[0, 1], [1, 3]],
              r"getitem: expected ids in \[0, 3\), got 3 at position 1 .*axis 1 of \(5, 3\)"),
    "float ids": (lambda W: W[np.array([1.0])], r"take: expected integer ids, got float64 \(1,\)"),
    "a float": (lambda W: W[1.0], r"getitem: expected integer ids, got float64 \(\)"),
    "inner floats": (lambda W: W[:, [1.0]], r"getitem: expected integer ids, got float64"),
    "a word": (lambda W: W["a"], r"getitem: expected integer ids"),
    "ragged": (lambda W: W[[[0], [1, 2]]], r"getitem: expected an array of ids, got the ragged"),
    "mask": (lambda W: W[np.ones(4, bool)],
             r"getitem: expected a mask of shape \(5,\), got \(4,\) for an array \(5, 3\)"),
    "mask of two axes": (lambda W: W[np.ones((5, 2), bool)], r"expected a mask of shape \(5, 3\)"),
    "mask of three": (lambda W: W[np.ones((5, 3, 1), bool)], r"at most 2 indices"),
    "too many": (lambda W: W[0, 0, 0], r"getitem: expected at most 2 indices .*got 3 indices"),
    "two ellipses": (lambda W: W[..., ...], r"one ellipsis .* and 2 ellipses"),
    "arrays apart": (lambda W: W[[0, 1], [0, 1, 2]],
                     r"index arrays that broadcast together, got shapes \(2,\), \(3,\)"),
    "take": (lambda W: ops.take(W, [0, 7], 1),
             r"take: expected ids in \[0, 3\), got 7 at position 1 .*axis 1 of \(5, 3\)"),
    "take a mask": (lambda W: ops.take(W, W.data[:, 0] > 0), r"take: expected integer ids, got b"),
    "take_along_axis": (lambda W: ops.take_along_axis(W, [[3]]), r"take_along_axis: expected ids"),
    "index_add": (lambda W: ops.index_add(W, 9, 1.0), r"index_add: expected ids in \[0, 5\), got"),
    "index_set": (lambda W: ops.index_set(W, ([0, 1, 0], [2, 2, 2]), np.arange(3.0)),
                  r"index_set: expected each place once, or one .* place \(0, 2\).*index_add"),
    "segment_sum": (lambda W: ops.segment_sum(W, [0, 1, 2, 3, -9], 4),
                    r"segment_sum: expected ids in \[-4, 4\), got -9 at position 4"),
}  # fmt: skip


@pytest.mark.parametrize(("f", "text"), BAD.values(), ids=BAD.keys())
def test_a_bad_index_is_named_and_nothing_is_recorded(f, text):
    W = ts.parameter(np.ones((5, 3)))
    with ts.Tape() as tape:
        with pytest.raises(errors.RowIndexError, match=text):
            f(W)
        assert len(tape) == 0


UNFIT = {
    "take_along_axis": (lambda W: ops.take_along_axis(W, [1]), r"of 2 axes that fit \(5, 3\)"),
    "and axes": (lambda W: ops.take_along_axis(W, np.zeros((4, 1), int)), r"got \(4, 1\)"),
    "index_add": (lambda W: ops.index_add(W, [0, 1], np.ones(2)),
                  r"index_add: expected values that broadcast to \(2, 3\), got \(2,\)"),
    "split": (lambda W: ops.split(W, 2), r"expected a number of parts that divides 5, got 2"),
    "stack": (lambda W: ops.stack([W, W[1:]]), r"stack: expected arrays of one shape"),
    "concatenate": (lambda W: ops.concatenate([W, W[:, 1:]]), r"concatenate: expected shapes that"),
    "no arrays": (lambda W: ops.concatenate([]), r"concatenate: expected arrays"),
    "tile": (lambda W: ops.tile(W, -1), r"tile: expected whole numbers of times"),
    "repeat": (lambda W: ops.repeat(W, [1, 2], 0), r"repeat: expected one whole number, or 5"),
    "pad": (lambda W: ops.pad(W, -1), r"pad: expected whole numbers of places"),
    "roll": (lambda W: ops.roll(W, 0.5, 0), r"roll: expected a whole number of places"),
    "moveaxis": (lambda W: ops.moveaxis(W, 0, (0, 1)), r"moveaxis: expected as many destinations"),
    "topk": (lambda W: ops.topk(W, 4), r"topk: expected a whole number k in \[0, 3\], got 4"),
    "segments": (lambda W: ops.segment_sum(W, [0, 1], 2), r"x \(\*n, \*row\) and ids \(\*n\)"),
    "one axis": (lambda W: ops.stack([W], None), r"stack: expected one axis, got None"),
    "axis": (lambda W: ops.sort(W, 2), r"sort: expected an axis in \[-2, 2\)"),
}  # fmt: skip


@pytest.mark.parametrize(("f", "text"), UNFIT.values(), ids=UNFIT.keys())
def test_shapes_that_do_not_fit_are_named(f, text):
    with pytest.raises(errors.ShapeError, match=text):
        f(ts.parameter(np.ones((5, 3))))


def test_values_of_another_kind_are_not_cut_to_fit():
    with pytest.raises(errors.DtypeError, match="index_set: expected values that fit"):
        ops.index_set(np.arange(3), 0, 0.5)


def test_assignment_to_an_item_names_what_to_write():
    W = ts.parameter(np.ones((5, 3)))
    with pytest.raises(errors.TapeError, match=r"ops\.index_set.*ops\.index_add"):
        W[0] = 1.0


def test_the_callers_id_array_may_be_filled_anew_before_backward():
    W, ids = ts.parameter(np.ones((5, 2))), np.array([1, 3])
    for look_up in (
        lambda: W[ids],
        lambda: W[ids, 0],
        lambda: ops.segment_sum(W[:2], ids, 5) * W,
        lambda: ops.index_add(W[:4] * W[:4], ids, 1.0),
    ):
        ids[:] = [1, 3]
        with ts.Tape() as tape:
            loss = look_up().sum()
        wanted = to_dense(tape.backward(loss)[W])
        with ts.Tape() as tape:
            loss = look_up().sum()
        ids[:] = 0
        np.testing.assert_array_equal(to_dense(tape.backward(loss)[W]), wanted)


def test_a_look_up_in_a_view_does_not_copy_the_table():
    view = ops.broadcast_to(ts.tensor([[[1.0, 2.0]]]), (10**6, 10**6, 2))  # 16 TB, were it copied
    assert view[[7, 10**6 - 1], [3, 2]].data.tolist() == [[1, 2], [1, 2]]
    assert view.reshape(10**12, 2)[[59_000_001]].data.tolist() == [[1, 2]]
    W = ts.tensor(np.arange(24.0).reshape(3, 4, 2))
    assert W.T[[1], [3], [2]].item() == W.T[1][[3]][0, 2].item() == W[2, 3, 1].item()
