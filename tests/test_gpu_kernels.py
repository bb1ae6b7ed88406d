"""The CuPy adapter on its CUDA kernels: the stand-in's arrays, the texts built by g++.

Everything between a user's step and a kernel is tested so: which arrays fit, what each launch is
given, what comes back. See cuda_machines for how a text runs on the CPU; kernels go through their
threads forward or backward, as chance will have it.
"""

import math

import numpy as np
import pytest
import standin
import test_cuda_formulas
import test_gpu_ops
import test_gpu_optim
from cases import CASES
from gpu_cases import on_gpu
from test_gpu_optim import OPTIMIZERS, batches, counted, d, table, trained

import tinygrad_sparse as ts
from tinygrad_sparse import backend, optim
from tinygrad_sparse.backend import numpy as reference
from tinygrad_sparse.backend.cuda import plans
from tinygrad_sparse.optim.clip import RowCap
from tinygrad_sparse.slices import IndexedSlices
from tinygrad_sparse.testing.laws import ANY_ORDER

pytestmark = pytest.mark.usefixtures("launched")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_moves_rows_as_on_numpy(launched, name, dtype):
    (here, mine), (there, theirs) = (
        trained(OPTIMIZERS[name], device, dtype, sparse="lazy") for device in ("cpu", "cuda")
    )
    close = {"rtol": 1e-10, "atol": 0} if dtype == "float64" else {"rtol": 2e-5, "atol": 1e-6}
    np.testing.assert_allclose(there.numpy(), here.numpy(), **close)
    for a, b in zip(mine.state_dict()["slots"], theirs.state_dict()["slots"], strict=True):
        for slot, other in zip(a, b, strict=True):
            np.testing.assert_allclose(other, slot, **close)
    assert {"take_rows", "sort_small"} < set(launched)
    assert {"update_runs", "update_rows"} & set(launched)


def test_the_same_steps_give_the_same_bits():
    first, again = (trained(optim.Adam, "cuda", "float32", lr=0.1, sparse="lazy")[0] for _ in "ab")
    assert first.numpy().tobytes() == again.numpy().tobytes()


@pytest.mark.parametrize(("more", "launches"), [({}, 13), ({"clip_rows": 0.5}, 34)])
@pytest.mark.parametrize("name", ["sgd", "adam", "rowwise"])
def test_what_a_step_costs(gpu, launched, name, more, launches):
    W = ts.parameter(table("float32"), device="cuda")
    opt = OPTIMIZERS[name]([W], sparse="lazy")
    counted(gpu, W, opt, batches()[0], **more)
    launched.clear()
    costs = {counted(gpu, W, opt, ids, **more) for ids in batches()}
    launches += name == "rowwise" and not more  # a formula that sums over rows comes after the sums
    assert costs == {(launches, 1, 0)}  # docs/gpu.md tells it
    last = ["update_rows"] if more or name == "rowwise" else []
    assert launched == ["take_rows", "sort_small", "update_runs", "update_ends", *last] * 6


OTHERS = {
    "float16": ("float16", {}, {}),
    "float16, a copy in float32": ("float16", {"master": True}, {}),
    "a number for each row": ("float32", {"count": "row"}, {}),
    "rows shortened": ("float32", {}, {"clip_rows": 0.5}),
    "an average": ("float32", {"average": 0.9}, {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_more_than_a_formula_is_computed_by_kernels_too(launched, name):
    dtype, settings, more = OTHERS[name]
    results = []
    for device in ("cpu", "cuda"):
        W = ts.parameter(table(dtype), device=device)
        opt = optim.Adam([W], lr=0.1, sparse="lazy", **settings)
        for ids in batches():
            with ts.Tape("raise") as tape:
                loss = (W[ids] ** 2).sum()
            opt.step(tape.backward(loss), **more)
        results.append(W.numpy())
    tolerance = 2e-2 if dtype == "float16" else 1e-4
    np.testing.assert_allclose(results[1], results[0], tolerance, tolerance)
    assert {"sort_small", "update_runs", "update_rows"} <= set(launched)


@pytest.mark.parametrize("n", [1, 40, 5000])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_repeats_are_summed_with_one_wait(gpu, launched, dtype, n):
    rng = np.random.default_rng(n)
    ids, values = rng.integers(0, 300, n), rng.normal(size=(n, 2, 3)).astype(dtype)
    wanted = IndexedSlices(ids, values, (300, 2, 3)).coalesce()
    g = IndexedSlices(ids, gpu.cupy.asarray(values), (300, 2, 3))
    gpu.counts.clear()
    got = g.coalesce()
    assert gpu.counts.syncs == 1 and launched[-1].startswith("update_")
    np.testing.assert_array_equal(got.indices.get(), wanted.indices)
    close = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(got.values.get(), wanted.values, close, close)
    assert got.dtype == dtype and got.is_coalesced and got.coalesce() is got


@pytest.mark.parametrize("cap", [None, RowCap(0.5)], ids=["as they are", "shortened"])
@pytest.mark.parametrize("formula", ["adam", "rowwise_adagrad"])
def test_slots_may_have_their_rows_elsewhere(gpu, formula, cap):
    rule = getattr(optim.rules, formula)
    hyper = test_cuda_formulas.settings_of(rule.formula)
    rows, places = np.array([7, 3, 7, 30]), np.array([1, 0, 1, 3])
    alone = rule is optim.rules.rowwise_adagrad
    slots = [np.full((4, 1) if alone else (4, d), 0.5) for _ in rule.slots]
    given = [table(), *slots]
    wanted, mine = [a.copy() for a in given], [gpu.cupy.asarray(a) for a in given]
    for adapter, (p, *own), there in (
        (reference, wanted, np.asarray),
        (backend.adapter_for("cuda"), mine, gpu.cupy.asarray),
    ):
        g = there(table()[:4])
        adapter.plan_update(rule.formula, there(rows), g, p, own, hyper, there(places), cap)()
    for a, b in zip(mine, wanted, strict=True):
        np.testing.assert_allclose(a.get(), b, rtol=1e-12)


@pytest.mark.parametrize(
    "unprinted",
    [
        lambda p, g, *, lr: (p - math.sqrt(lr) * g,),
        lambda p, g, *, lr: (p - {0.5: 0.1}[lr] * g,),
        lambda p, g, *, lr: (p - np.floor((g > 0) * 3) * lr,),
    ],
    ids=["a function of Python's", "a table of settings", "a function of integers"],
)
def test_a_formula_that_cannot_be_printed_is_computed_by_cupy(gpu, launched, unprinted):
    adapter = standin._adapter[0]
    p, g = gpu.cupy.asarray(table()), gpu.cupy.asarray(table()[:4])
    rows = np.array([3, 1, 3, 0])
    adapter.plan_update(unprinted, gpu.cupy.asarray(rows), g, p, [], {"lr": 0.5})()
    wanted = table()
    reference.plan_update(unprinted, rows, table()[:4], wanted, [], {"lr": 0.5})()
    np.testing.assert_allclose(p.get(), wanted, rtol=1e-12)
    there = gpu.cupy.asarray(rows), g, p, [], {"lr": 0.5}
    assert adapter.launching.plan_update(unprinted, *there) is None
    assert launched == ["sort_small", "update_runs"], "a kernel for the sums alone"


def test_an_array_that_is_no_number_for_each_row_is_broadcast_as_on_numpy(gpu):
    adapter = standin._adapter[0]

    def scaled(p, g, *, scale):
        return (p - scale * g,)

    g, scale, results = table()[:d], np.linspace(1, 2, d), []
    for of, there in ((reference, np.asarray), (adapter, gpu.cupy.asarray)):
        given = there(g), there(table()), [], {"scale": there(scale)}
        results.append(of.update_rows(scaled, there(np.arange(d)), *given)[0])
    np.testing.assert_array_equal(results[1].get(), results[0])


def test_rows_too_long_for_a_grid_are_moved_by_cupy(gpu, launched):
    adapter, one = standin._adapter[0], gpu.cupy.asarray(np.array([1]))
    long = np.ones((2, plans.LONGEST + 1), np.float32)
    p, g = gpu.cupy.asarray(long), gpu.cupy.asarray(long[:1])
    taken = adapter.take_rows(p, one)
    adapter.plan_update(optim.rules.sgd.formula, one, g, p, [], {"lr": 0.5})()
    rows, sums = adapter.sum_duplicates(one, g, 2)
    assert taken.get()[0, -1] == 1.0 and p.get()[:, -1].tolist() == [1.0, 0.5]
    assert rows.get().tolist() == [1] and sums.get()[0, -1] == 1.0 and not launched


def test_a_step_that_cannot_be_compiled_writes_nothing(monkeypatch):
    W = ts.parameter(table("float32"), device="cuda")
    opt = optim.SGD([W], lr=0.1)
    launching = standin._adapter[0].launching
    with ts.Tape() as tape:
        loss = (W[[1, 1, 2, 3, 4, 5]] ** 2).sum()
    grads = tape.backward(loss)

    def fails(kernel):
        if kernel.entry == "update_ends":
            raise RuntimeError("no room")
        return compiled(kernel)

    compiled = launching.compiled
    monkeypatch.setattr(launching, "compiled", fails)
    with pytest.raises(RuntimeError, match="no room"):
        opt.step(grads)
    np.testing.assert_array_equal(W.numpy(), table("float32"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_those_of_numpy(case):
    test_gpu_ops.check_values_and_gradients(case, "float64")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_come_in_an_order_of_their_own(case):
    for law in ANY_ORDER:
        law(on_gpu(case))


def test_what_a_step_reads_is_from_before_it():
    test_gpu_optim.test_what_a_formula_answers_is_from_before_the_step()
    test_gpu_optim.test_a_gradient_that_is_a_parameters_values_is_read_before_the_step_changes_them()


def test_a_model_trains_as_on_numpy():
    test_gpu_optim.test_a_model_trains_as_on_numpy_once_it_was_moved()
