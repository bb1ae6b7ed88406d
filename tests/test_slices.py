"""IndexedSlices: its algebra is the dense algebra, for any ids, shapes and dtypes."""

import re

import numpy as np
import pytest
from hypothesis import given
from strategies import FLOATS, INTEGERS, floats, frozen, pairs, quick, slices, twin

import tinygrad_sparse as ts
from tinygrad_sparse import IndexedSlices, errors
from tinygrad_sparse.slices import accumulate


def text(message):
    return f"^{re.escape(message)}$"


def check(g, dense, dtype=None):
    """g stands for `dense`, keeps what it should keep, and says so."""
    assert type(g) is IndexedSlices
    assert (g.shape, g.ndim, g.size) == (dense.shape, dense.ndim, dense.size)
    assert g.indices.dtype == np.int64 and g.indices.shape == g.values.shape[:1]
    assert g.values.shape[1:] == g.shape[g.lead :]
    assert dtype is None or g.dtype == g.values.dtype == dtype
    np.testing.assert_array_equal(g.to_dense(), dense)


# -- the algebra ---------------------------------------------------------------------------------


@quick
@given(slices())
def test_one_operand(drawn):
    g, dense = drawn
    check(g, dense, g.dtype)
    check(-g, -dense, g.dtype)
    check(g * 2, dense * 2, g.dtype)
    check(-0.5 * g, dense * -0.5, g.dtype)
    check(g / 4, dense / 4, g.dtype)
    check(np.float16(2) * g, dense * 2, g.dtype)
    check(g * np.array(2, np.float16), dense * 2, g.dtype)
    check(g.astype(np.float64), dense, np.float64)
    np.testing.assert_allclose(g.norm(), np.linalg.norm(dense.ravel()), rtol=2e-3)
    assert g.norm().dtype == g.dtype


@quick
@given(pairs())
def test_two_operands(drawn):
    (a, x), (b, y) = drawn
    check(a + b, x + y, a.dtype)
    check(a - b, x - y, a.dtype)
    check(a + b - a, y, a.dtype)
    check(b - (a + b), -x, a.dtype)
    check(a + a, x + x, a.dtype)
    assert (a + b).lead == max(a.lead, b.lead)


@quick
@given(slices(), floats)
def test_a_dense_operand(drawn, dtype):
    g, dense = drawn
    other = frozen(np.arange(dense.size).reshape(dense.shape) % 7).astype(dtype)
    for total, wanted in [
        (g + other, dense + other),
        (other + g, dense + other),
        (g - other, dense - other),
        (other - g, other - dense),
    ]:
        assert type(total) is np.ndarray and total.dtype == np.result_type(g.dtype, dtype)
        np.testing.assert_array_equal(total, wanted)


@quick
@given(slices())
def test_coalesce(drawn):
    g, dense = drawn
    merged = g.coalesce()
    check(merged, dense, g.dtype)
    assert merged.indices.tolist() == sorted(set(g.indices.tolist()))
    assert merged.is_coalesced and merged.coalesce() is merged and merged.lead == g.lead
    assert g.is_coalesced == (g.indices.tolist() == merged.indices.tolist())


@quick
@given(pairs())
def test_on_tensors_the_algebra_is_the_same_and_recorded(drawn):
    (a, x), (b, y) = drawn
    p = ts.parameter(a.values)
    with ts.Tape() as tape:
        recorded = IndexedSlices(a.indices, p * 1.0, a.shape, a.lead)
        for other in (b, IndexedSlices(b.indices, ts.tensor(b.values), b.shape, b.lead)):
            for got, wanted in [(recorded + other, x + y), (other - recorded, y - x)]:
                assert type(got.values) is ts.Tensor and got.dtype == a.dtype
                np.testing.assert_array_equal(got.to_dense().data, wanted)
                np.testing.assert_array_equal(got.coalesce().to_dense().data, wanted)
        for dense in (y.astype(a.dtype), ts.tensor(y.astype(a.dtype))):
            assert type(recorded + dense) is ts.Tensor
            np.testing.assert_array_equal((recorded + dense).data, x + y)
        np.testing.assert_allclose(recorded.norm().item(), a.norm(), rtol=2e-3)
        loss = ((recorded + b).to_dense() * 2).sum()
    np.testing.assert_array_equal(tape.backward(loss)[p], np.full(p.shape, 2.0))


def test_a_dense_tensor_plus_slices_of_arrays():
    g = IndexedSlices([1], np.array([[2.0]]), (3, 1))
    total = g + ts.tensor(np.ones((3, 1)))
    assert type(total) is ts.Tensor
    np.testing.assert_array_equal(total.data, [[1.0], [3.0], [1.0]])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_ids_of_every_integer_dtype(dtype):
    values = np.arange(6.0).reshape(3, 2)
    ids = [4, 0, 4] if np.dtype(dtype).kind == "u" else [-1, 0, 4]
    check(IndexedSlices(np.array(ids, dtype), values, (5, 2)), twin(ids, values, (5, 2)))


@pytest.mark.parametrize("ids", [np.array([3, 9, 0, 9, 3])[::2], np.array([3, 0, 3], ">i8")])
def test_ids_of_any_layout(ids):
    check(IndexedSlices(ids, np.ones((3, 2)), (5, 2)), twin([3, 0, 3], np.ones((3, 2)), (5, 2)))


def test_ids_and_rows_that_are_not_there():
    check(IndexedSlices([], np.zeros((0, 2)), (5, 2)), np.zeros((5, 2)))
    check(IndexedSlices([], np.zeros((0, 2)), (0, 2)), np.zeros((0, 2)))
    check(IndexedSlices([1, 1], np.zeros((2, 0)), (3, 0)), np.zeros((3, 0)))
    assert IndexedSlices([], np.zeros((0, 2)), (5, 2)).norm() == 0.0


# -- precision and determinism -------------------------------------------------------------------


def test_finite_float16_parts_do_not_overflow_on_the_way():
    parts = np.array([[40000.0], [40000.0], [-40000.0], [-39008.0]], np.float16)
    g = IndexedSlices([2, 2, 2, 2], parts, (5, 1))
    for merged in (g.coalesce().values, g.to_dense()[[2]]):
        assert merged.dtype == np.float16
        assert merged.item() == 992.0
    one, two, three, four = (IndexedSlices([2], part[None], (5, 1)) for part in parts)
    assert (one + two + three + four).to_dense()[2] == 992.0


def test_many_small_float16_parts_are_all_counted():
    g = IndexedSlices(np.zeros(5000, int), np.ones((5000, 1), np.float16), (2, 1))
    assert g.coalesce().values.item() == 5000.0  # 2048 if each sum were rounded to float16


def test_the_norm_of_a_float16_row_is_in_range_where_its_square_is_not():
    g = IndexedSlices([0, 1], np.array([[300.0], [400.0]], np.float16), (4, 1))
    assert g.norm() == 500.0
    small = IndexedSlices([0], np.array([[1e-4]], np.float16), (4, 1))
    np.testing.assert_allclose(small.norm(), 1e-4, rtol=1e-3)


def test_the_slope_of_the_norm_at_zero_is_zero():
    p = ts.parameter(np.zeros((2, 3)))
    with ts.Tape() as tape:
        loss = IndexedSlices([4, 1], p * 1.0, (5, 3)).norm()
    np.testing.assert_array_equal(tape.backward(loss)[p], np.zeros((2, 3)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_coalesce_gives_the_same_bits_every_time(dtype):
    rng = np.random.default_rng(0)
    ids, values = rng.integers(0, 40, 3000), rng.normal(size=(3000, 3)).astype(dtype)
    first = IndexedSlices(ids, values, (40, 3)).coalesce()
    for _ in range(5):
        again = IndexedSlices(ids.copy(), values.copy(), (40, 3)).coalesce()
        assert again.values.tobytes() == first.values.tobytes()
        np.testing.assert_array_equal(again.indices, first.indices)


# -- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("add", [lambda a, b: accumulate(a, b, owned=True), lambda a, b: a + b])
def test_pending_rows_are_bounded_by_the_table(add):
    rng = np.random.default_rng(0)
    total, dense = IndexedSlices([], np.zeros((0, 2)), (7, 2)), np.zeros((7, 2))
    for _ in range(100):
        ids = rng.integers(0, 7, 3)
        values = rng.integers(-4, 5, (3, 2)).astype(float)
        total, dense = add(total, IndexedSlices(ids, values, (7, 2))), dense + twin(
            ids, values, (7, 2)
        )  # fmt: skip
        assert total.nbytes <= 2 * 7 * (8 + 16)
    check(total, dense)


def test_a_table_looked_up_a_thousand_times_holds_a_table_at_most():
    W = ts.parameter(np.ones((7, 2)))
    with ts.Tape(densify="raise") as tape:
        loss = ts.tensor(0.0)
        for i in range(1000):
            loss = loss + W[[i % 7]].sum()
    g = tape.backward(loss)[W]
    assert g.nbytes <= 2 * 7 * (8 + 16)
    assert g.to_dense()[:, 0].tolist() == [143.0] * 6 + [142.0]


def test_nbytes_counts_what_is_held():
    g = IndexedSlices([1, 1, 2], np.ones((3, 4), np.float32), (10**9, 4))
    assert g.nbytes == 3 * 8 + 3 * 4 * 4
    assert (g + g).nbytes == 2 * g.nbytes
    assert g.coalesce().nbytes == 2 * 8 + 2 * 4 * 4
    assert (g.size, g.shape) == (4 * 10**9, (10**9, 4))


@quick
@given(pairs())
def test_accumulate_writes_only_to_what_it_owns(drawn):
    (a, x), (b, y) = drawn
    check(accumulate(a, b, owned=False), x + y, a.dtype)
    check(a, x, a.dtype)
    total = a + b
    check(total.coalesce(), x + y)  # remembered, and must be forgotten
    total = accumulate(total, b, owned=True)
    check(total, x + 2 * y)
    check(total.coalesce(), x + 2 * y)


@quick
@given(pairs())
def test_nothing_writes_to_its_inputs(drawn):
    (a, _), (b, _) = drawn
    before = [(g.indices.copy(), g.values.copy()) for g in (a, b)]
    dense = frozen(a.to_dense())
    total = accumulate(a + b, a, owned=True)
    accumulate(accumulate(a + dense, b, owned=True), dense, owned=True)
    for f in (total.coalesce, a.coalesce, a.norm, a.to_dense, lambda: a - dense, lambda: a / 2):
        f()
    for g, (indices, values) in zip((a, b), before, strict=True):
        np.testing.assert_array_equal(g.indices, indices)
        np.testing.assert_array_equal(g.values, values)


def test_ids_are_kept_when_the_callers_array_changes():
    ids = np.array([1, 2])
    g = IndexedSlices(ids, np.ones((2, 1)), (4, 1))
    ids[:] = 77
    assert g.indices.tolist() == [1, 2]


# -- what it says --------------------------------------------------------------------------------


def test_repr():
    g = IndexedSlices([3, 3], np.ones((2, 4), np.float32), (10, 4))
    assert repr(g) == "IndexedSlices(2 rows of (10, 4) float32)"
    assert repr(g + g) == "IndexedSlices(4 rows of (10, 4) float32)"
    finer = IndexedSlices([39], np.ones(1), (10, 4), lead=2)
    assert repr(finer) == "IndexedSlices(1 rows of (10, 4) float64, lead=2)"


@pytest.mark.parametrize("convert", [np.asarray, np.sum, np.exp, lambda g: np.concatenate([g])])
def test_numpy_is_told_to_ask_for_the_dense_array_by_name(convert):
    g = IndexedSlices([3, 3], np.ones((2, 4)), (10, 4))
    with pytest.raises((errors.SparsityError, TypeError)):
        convert(g)
    message = (
        "np.asarray: expected a dense array, got IndexedSlices(2 rows of (10, 4) float64). Hint: "
        "write .to_dense() to build the whole table, or use .indices and .values."
    )
    with pytest.raises(errors.SparsityError, match=text(message)):
        np.asarray(g)


ONE = np.ones((1, 2))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: IndexedSlices([4], ONE, (4, 2)), errors.RowIndexError,
         "IndexedSlices: expected ids in [0, 4), got 4 at position 0 (ids int64 (1,), dense shape "
         "(4, 2))."),
        (lambda: IndexedSlices([-9], ONE, (4, 2), lead=2), errors.RowIndexError,
         "IndexedSlices: expected ids in [-8, 8), got -9 at position 0 (ids int64 (1,), dense "
         "shape (4, 2))."),
        (lambda: IndexedSlices([0.0], ONE, (4, 2)), errors.RowIndexError,
         "IndexedSlices: expected integer ids, got float64 (1,), dense shape (4, 2). Hint: "
         "ids.astype(int)."),
        (lambda: IndexedSlices([True], ONE, (4, 2)), errors.RowIndexError,
         "IndexedSlices: expected integer ids, got bool (1,), dense shape (4, 2). Hint: "
         "np.flatnonzero(mask) gives the rows of a mask."),
        (lambda: IndexedSlices([[0]], ONE[None], (4, 2)), errors.ShapeError,
         "IndexedSlices: expected indices (n,) and values (n, *(2,)), got indices (1, 1) and "
         "values (1, 1, 2)."),
        (lambda: IndexedSlices([0, 1], ONE, (4, 2)), errors.ShapeError,
         "IndexedSlices: expected indices (n,) and values (n, *(2,)), got indices (2,) and values "
         "(1, 2)."),
        (lambda: IndexedSlices([0], ONE, (4, 2), lead=3), errors.ShapeError,
         "IndexedSlices: expected 1 <= lead <= 2 for shape (4, 2), got 3."),
        (lambda: IndexedSlices([0], ONE, (4, 2), lead=0), errors.ShapeError,
         "IndexedSlices: expected 1 <= lead <= 2 for shape (4, 2), got 0."),
        (lambda: IndexedSlices([], ONE[:0], (-4, 2)), errors.ShapeError,
         "IndexedSlices: expected a shape: a tuple of sizes, got (-4, 2)."),
        (lambda: IndexedSlices([0], ONE, (4.5, 2)), errors.ShapeError,
         "IndexedSlices: expected a shape: a tuple of sizes, got (4.5, 2)."),
        (lambda: IndexedSlices([0], ONE, 4), errors.ShapeError,
         "IndexedSlices: expected indices (n,) and values (n, *()), got indices (1,) and values "
         "(1, 2)."),
        (lambda: IndexedSlices([0], ONE, (4, 2)) * ONE, errors.SparsityError,
         "IndexedSlices *: expected a real number, got float64 (1, 2). Hint: scale .values row by "
         "row, or write .to_dense()."),
        (lambda: IndexedSlices([0], ONE, (4, 2)) / IndexedSlices([0], ONE, (4, 2)),
         errors.SparsityError,
         "IndexedSlices /: expected a real number, got IndexedSlices(1 rows of (4, 2) float64). "
         "Hint: scale .values row by row, or write .to_dense()."),
        (lambda: IndexedSlices([0], ONE, (4, 2)) + IndexedSlices([0], ONE, (5, 2)),
         errors.ShapeError, "IndexedSlices +: expected shape (4, 2), got (5, 2)."),
        (lambda: IndexedSlices([0], ONE, (4, 2)) + np.ones((5, 2)), errors.ShapeError,
         "IndexedSlices +: expected a gradient of shape (4, 2), got float64 (5, 2)."),
        (lambda: IndexedSlices([0], ONE, (4, 2)) - 1.0, errors.ShapeError,
         "IndexedSlices +: expected a gradient of shape (4, 2), got -1.0."),
    ],
)  # fmt: skip
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=text(message)):
        make()
