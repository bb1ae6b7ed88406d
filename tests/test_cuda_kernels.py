"""Lookups, sorting, sums of repeats, bags: the CUDA texts against the NumPy adapter.

The texts run on the CPU: see cuda_machines.py. Each is run twice, with the first threads first and
with the last ones first; results must have the same bits.
"""

import cuda_machines
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tinygrad_sparse as ts
from tinygrad_sparse.backend import numpy as reference
from tinygrad_sparse.backend.cuda import bytes_moved, plans
from tinygrad_sparse.errors import ArgumentError

machine = cuda_machines.machine
law = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def both_ways(machine, make):
    """A plan's answer, the same whichever thread goes first; `make` builds the plan."""
    results = [machine.run(make(), order) for order in (0, 1)]
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b, "a race")
    return results[0]


@st.composite
def ids_of(draw, sizes=(0, 1, 2, 31, 32, 33, 1000, 4096, 4097, 9000)):
    """Ids and the number of rows: no repeats, many, one row alone; on both sides of a block."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    V = draw(st.sampled_from([1, 2, 100, 256, 257, 70_000]))
    n = draw(st.sampled_from(sizes))
    kind = draw(st.sampled_from(["random", "sorted", "one", "frequent", "falling"]))
    ids = rng.integers(0, V, n)
    if kind == "one":
        ids[:] = V - 1
    elif kind == "frequent":
        ids[rng.random(n) < 0.8] = V // 2
    elif kind in ("sorted", "falling"):
        ids = np.sort(ids)[:: 1 if kind == "sorted" else -1]
    return ids.astype(draw(st.sampled_from(["i4", "i8"]))), V


@law
@given(ids_of(), st.sampled_from([1, 3, 4, 8, 130]), st.sampled_from(["f4", "f8"]))
def test_take_rows(machine, problem, d, dtype):
    ids, V = problem
    V = min(V, 257)
    ids = ids % V
    table, given_ids = (
        machine.array(np.random.default_rng(0).normal(size=(V, d)).astype(dtype)),
        ids,
    )

    def make():
        nonlocal out
        out = machine.empty((len(ids), d), dtype)
        return plans.take_rows(machine.memory, table, machine.array(given_ids), out)

    out = None
    for order in (0, 1):
        machine.run(make(), order)
        np.testing.assert_array_equal(out, table[ids])


def test_a_lookup_outside_of_the_table_reads_nothing_and_is_told(machine):
    table, ids = machine.array(np.ones((10, 8), "f4")), machine.array(np.arange(100) % 10)
    ids[[40, 70, 71]] = 10, -1, 2**40
    for order in (0, 1):
        out, bad = machine.empty((100, 8), "f4"), machine.array(np.array([100], np.int32))
        machine.run(plans.take_rows(machine.memory, table, ids, out, bad), order)
        assert bad[0] == 40
        np.testing.assert_array_equal(np.delete(out, [40, 70, 71], 0), 1.0)
        np.testing.assert_array_equal(out[[40, 70, 71]], 0.0)


def test_ids_are_checked_and_counted_from_the_start(machine):
    ids = np.array([0, -1, 9, -10, 5])
    bad = machine.array(np.array([len(ids)], np.int32))
    checked = machine.run(plans.check_ids(machine.memory, machine.array(ids), 10, bad))
    assert checked.dtype == np.int32 and checked.tolist() == [0, 9, 9, 0, 5] and bad[0] == 5
    ids[[2, 4]] = 10, -11
    machine.run(plans.check_ids(machine.memory, machine.array(ids), 10, bad))
    assert bad[0] == 2
    wide = machine.run(
        plans.check_ids(machine.memory, machine.array(np.array([-1])), 2**31 + 1, bad)
    )
    assert wide.dtype == np.int64 and wide.tolist() == [2**31]


# -- repeats ---------------------------------------------------------------------------------------


@law
@given(ids_of())
def test_group(machine, problem):
    ids, V = problem
    given_ids = machine.array(ids)
    runs = both_ways(machine, lambda: trimmed(plans.group(machine.memory, given_ids, V)))
    order = np.argsort(ids, kind="stable")
    unique, first, run = np.unique(ids, return_index=True, return_inverse=True)
    wanted = ids[order], order, unique, run[order], first, [len(unique)]
    for got, want in zip(runs, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(given_ids, ids)


def trimmed(plan):
    """The same plan, whose answer holds what is written alone."""
    keys, order, unique, run, members, count = yield from plan
    return keys, order, unique[: count[0]], run, members[: count[0]], count


@pytest.mark.parametrize("n", [50, 5000])
@pytest.mark.parametrize("top", [2**31, 2**31 + 1, 2**53, 2**62])
def test_ids_of_any_size(machine, n, top):
    known = np.array([0, 5, top - 7, top - 1])
    ids = machine.array(np.random.default_rng(0).choice(known, n))
    runs = both_ways(machine, lambda: trimmed(plans.group(machine.memory, ids, top)))
    np.testing.assert_array_equal(runs[2], known)
    assert runs[0].dtype == (np.int32 if top <= 2**31 else np.int64)
    np.testing.assert_array_equal(runs[1], np.argsort(ids, kind="stable"))


@law
@given(ids_of(), st.sampled_from([1, 3, 8, 130]), st.sampled_from(["f4", "f8"]))
def test_coalesce(machine, problem, d, dtype):
    ids, V = problem
    values = np.random.default_rng(1).normal(size=(len(ids), d)).astype(dtype)
    given_ids, given_values = machine.array(ids), machine.array(values)

    def make():
        runs, sums = yield from plans.coalesce(machine.memory, given_ids, given_values, V)
        return runs.unique[: runs.count[0]], sums[: runs.count[0]]

    rows, sums = both_ways(machine, make)
    wanted_rows, wanted = reference.sum_duplicates(ids, values)
    np.testing.assert_array_equal(rows, wanted_rows)
    size = np.sqrt(np.bincount(ids).max(initial=1))  # of a sum of so many
    tolerance = {"f4": 1e-6, "f8": 2e-15}[dtype] * size * 4
    np.testing.assert_allclose(sums, wanted, tolerance, tolerance)
    if len(rows) == len(ids):
        np.testing.assert_array_equal(sums, wanted)


def test_a_frequent_row_is_summed_to_float32s_precision(machine):
    n = 40_000
    values = machine.array(np.full((n, 1), 0.1, np.float32))
    ids = machine.array(np.zeros(n, np.int32))
    runs, sums = machine.run(plans.coalesce(machine.memory, ids, values, 1))
    assert runs.count[0] == 1 and sums[0, 0] == pytest.approx(n / 10, rel=1e-6)


def test_what_is_added_to_nothing_keeps_its_bits(machine):
    """0.0 + -0.0 is 0.0, and what a formula makes of the sign of a gradient another number."""
    values = machine.array(np.array([[-0.0], [0.0], [-0.0], [-0.0]], np.float32))
    ids = machine.array(np.array([0, 1, 1, 2]))
    _, sums = machine.run(plans.coalesce(machine.memory, ids, values, 3))
    assert np.signbit(sums[:3, 0]).tolist() == [True, False, True]


def test_members_of_a_run_are_added_in_order(machine):
    """1e8 + 1 - 1e8 is 0 in float32, and 1 in another order."""
    values = machine.array(np.array([[1e8], [1.0], [-1e8], [7.0]], np.float32))
    for ids, wanted in (([3, 3, 3, 0], 0.0), ([3, 0, 3, 0], 0.0)):
        given_ids = machine.array(np.array(ids))
        _, sums = machine.run(plans.coalesce(machine.memory, given_ids, values, 4))
        assert sums[1, 0] == wanted


# -- bags ------------------------------------------------------------------------------------------


@law
@given(ids_of(sizes=(0, 1, 50, 1000)), st.sampled_from([1, 6, 8]), st.booleans())
def test_embedding_bag(machine, problem, d, weighted):
    ids, V = problem
    rng = np.random.default_rng(len(ids))
    table = rng.normal(size=(V, d)).astype("f4")
    cuts = np.sort(rng.integers(0, len(ids) + 1, 12))
    starts = np.concatenate([[0], cuts, [len(ids)]])
    weights = rng.normal(size=len(ids)).astype("f4") if weighted else None
    given = [None if a is None else machine.array(a) for a in (table, ids, starts, weights)]
    # Beside sums in float64, for NumPy's of float32 add one number after the other. The kernel does
    # so with 64, then with the 16 sums of 1,000 numbers: each addition, and the product with a
    # weight, may be off by half a unit of what it has so far.
    exact = [None if a is None else a.astype("f8") for a in (table, weights)]
    wanted = reference.embedding_bag(exact[0], ids, starts, exact[1])
    sizes = [None if a is None else np.abs(a) for a in exact]
    bound = (64 + 16 + 1) * 2.0**-24 * reference.embedding_bag(sizes[0], ids, starts, sizes[1])
    for order in (0, 1):
        out = machine.empty(wanted.shape, "f4")
        machine.run(plans.embedding_bag(machine.memory, *given, out), order)
        np.testing.assert_array_less(np.abs(out - wanted), bound + 1e-37)


# -- plans -----------------------------------------------------------------------------------------


def shapes(launches):
    return [(launch.kernel, launch.grid, launch.block) for launch in launches]


@pytest.mark.parametrize("n", [100, 6000])
def test_launches_depend_on_shapes_alone(machine, n):
    """So a CUDA graph that holds them is right for other ids of as many."""
    rng, seen = np.random.default_rng(0), []
    sgd = ts.optim.rules.sgd.formula
    for ids in (rng.integers(0, 500, n), np.zeros(n, np.int64), np.arange(n) % 500):
        table, values = machine.array(np.ones((500, 8), "f4")), machine.array(np.ones((n, 8), "f4"))
        machine.run(
            plans.update(machine.memory, sgd, machine.array(ids), values, table, [], {"lr": 0.1})
        )
        seen.append(shapes(machine.launches))
    assert seen[0] == seen[1] == seen[2]
    # one sort, or narrowing and three launches for each of two bytes of ids; then tiles and ends
    assert len(seen[0]) == (3 if n == 100 else 1 + 6 + 2)


def test_rows_that_are_not_16_bytes_apart_move_number_by_number(machine):
    whole = machine.array(np.arange(8 * 9 + 1, dtype="f4"))
    for table in (whole[:-1].reshape(9, 8), whole[1:].reshape(9, 8), whole[:63].reshape(9, 7)):
        ids, out = machine.array(np.array([8, 0, 3])), machine.empty((3, table.shape[1]), "f4")
        machine.run(plans.take_rows(machine.memory, table, ids, out))
        np.testing.assert_array_equal(out, table[[8, 0, 3]])
        wide = "#define VEC 4" in machine.launches[0].kernel.text
        assert wide == (table.ctypes.data % 16 == 0 and table.shape[1] == 8)


def test_what_a_kernel_would_misread_is_refused(machine):
    """It gets addresses, and could not know."""
    table, ids = machine.array(np.ones((9, 8), "f4")), machine.array(np.arange(9))
    wide, out = machine.array(np.ones((9, 8))), machine.empty((9, 8), "f4")
    sgd, memory = ts.optim.rules.sgd.formula, machine.memory
    for plan, said in (
        (plans.take_rows(memory, table, ids.astype("u1"), out), "int64 in one piece, got uint8"),
        (plans.take_rows(memory, table, ids, wide), "float32 in one piece, got float64"),
        (plans.take_rows(memory, table[:, ::2], ids, out[:, :4]), "(9, 4), not in one piece"),
        (plans.group(memory, ids[::2], 9), "group: expected arrays of int64 in one piece"),
        (plans.coalesce(memory, ids, wide.astype(int), 9), "expected float32 or float64"),
        (plans.update(memory, sgd, ids, wide, table, [], {"lr": 0.1}), "update: expected arrays"),
        (plans.update(memory, sgd, ids, out, table, [wide], {"lr": 0.1}), "got float64 (9, 8)"),
    ):
        with pytest.raises(ArgumentError) as error:
            list(plan)
        assert said in str(error.value)


def test_arrays_of_other_shapes_are_refused(machine):
    ids, rows = machine.array(np.arange(9)), machine.array(np.ones((9, 8), "f4"))
    few, narrow = machine.array(np.ones((4, 8), "f4")), machine.array(np.ones((9, 2), "f4"))
    starts, weights = machine.array(np.array([0, 3, 9])), machine.array(np.ones(4, "f4"))
    column, flat = machine.array(np.ones((9, 1), "f4")), machine.array(np.ones(9, "f4"))
    memory, sgd, moved = machine.memory, ts.optim.rules.sgd.formula, ts.optim.rules.rmsprop.formula
    lr, moves = {"lr": 0.1}, {"lr": 0.1, "alpha": 0.9, "eps": 1e-8}
    for plan, said in (
        (plans.take_rows(memory, rows, ids, few), "take_rows: expected an array of shape (4,)"),
        (plans.take_rows(memory, narrow, ids, rows), "shape (9, 8), got (9, 2)"),
        (plans.embedding_bag(memory, rows, ids, starts, None, few), "shape (5,), got (3,)"),
        (plans.embedding_bag(memory, rows, ids, starts, weights, few[:2]), "(9,), got (4,)"),
        (plans.coalesce(memory, ids, few, 9), "coalesce: expected an array of shape (9, 8)"),
        (plans.coalesce(memory, ids, rows, 9, narrow), "shape (9, 8), got (9, 2)"),
        (plans.update(memory, sgd, ids, few, rows, [], lr), "update: expected an array of shape"),
        (plans.update(memory, sgd, None, few, rows, [], lr), "shape (9, 8), got (4, 8)"),
        (plans.update(memory, sgd, ids, rows, rows, [], lr, starts), "shape (9,), got (3,)"),
        (plans.update(memory, moved, ids, rows, rows, [narrow], moves), "(9, 8), got (9, 2)"),
        (plans.update(memory, moved, ids, rows, rows, [few], moves), "(9, 8), got (4, 8)"),
        (plans.update(memory, sgd, None, rows, rows, [], {"lr": flat[:8]}), "(9,), got (8,)"),
        (plans.update(memory, sgd, ids, rows, rows, [], {"lr": column}), "may repeat"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError) as error:
            list(plan)
        assert said in str(error.value)


class Many:
    """As many ids as a plan is told, without the memory for them."""

    dtype, flags = np.dtype(np.int32), np.zeros(1).flags

    def __init__(self, n):
        self.shape = (n,)

    def __len__(self):
        return self.shape[0]


def test_more_than_a_grid_can_count_is_refused(machine):
    with pytest.raises(ArgumentError, match="sort: expected at most 2147475456 ids"):
        list(plans.sort(machine.memory, Many(2**31 - 100), 9))
    table, ids = machine.array(np.ones((1, plans.LONGEST + 1), "f4")), machine.array(np.array([0]))
    with pytest.raises(ArgumentError, match="rows of at most 2097120 numbers, got 2097121"):
        list(plans.take_rows(machine.memory, table, ids, np.empty_like(table)))


def test_tiles_grow_with_the_number_of_ids():
    assert [plans.tile_of(n) for n in (1, 8192, 40_000, 70_000, 10**6, 10**9)] == [
        4,
        4,
        4,
        8,
        32,
        32,
    ]


# -- bytes -----------------------------------------------------------------------------------------


def test_floors_of_bytes():
    """Counted by hand for float32: 12kd + kb for SGD, 28kd + kb for Adam, 8kd + kb to look up."""
    k, d, b = 1000, 128, 8
    assert bytes_moved("update unique", k, k, d) == 12 * k * d + k * b
    assert bytes_moved("update unique", k, k, d, 3, 3) == 28 * k * d + k * b
    assert bytes_moved("lookup", k, k, d) == 8 * k * d + k * b
    assert bytes_moved("lookup", k, 1, d) == 4 * k * d + k * b + 4 * d
    assert bytes_moved("sort", k, k, d, V=256) == k * (8 + 12 + 8 - 4)
    summed = bytes_moved("update", 3 * k, k, d, V=256) - bytes_moved("sort", 3 * k, k, d, V=256)
    assert summed == 3 * k * (4 * d + 8) + 8 * k * d
    with pytest.raises(ArgumentError, match="bytes_moved: expected one of"):
        bytes_moved("dense", k, k, d)
