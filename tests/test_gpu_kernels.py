"""The CuPy adapter on its CUDA kernels: the stand-in's arrays, the texts built by g++.

Everything between a user's step and a kernel is tested so: which arrays fit, what each launch is
given, what comes back. See cuda_machines for how a text runs on the CPU; kernels go through their
threads forward or backward, as chance will have it.
"""

import math
import shutil

import cuda_machines
import numpy as np
import pytest
import standin
import test_gpu_ops
import test_gpu_optim
from cases import CASES
from gpu_cases import on_gpu
from test_gpu_optim import OPTIMIZERS, batches, counted, table, trained

import tinygrad_sparse as ts
from tinygrad_sparse import optim
from tinygrad_sparse.backend import numpy as reference
from tinygrad_sparse.testing.laws import ANY_ORDER

if shutil.which("g++") is None:
    pytest.skip("g++ is not installed: no kernel can run on the CPU", allow_module_level=True)


@pytest.fixture(autouse=True)
def launched(gpu, request):
    """Names of the kernels that ran."""
    machine, names = cuda_machines.Cpu(request.config.cache.mkdir("cuda_on_cpu")), []
    run = machine.launch
    machine.launch = lambda one: (names.append(one.kernel.entry), run(one))[1]
    with standin.kernels(machine):
        yield names


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


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_what_a_step_costs(gpu, launched, name):
    W = ts.parameter(table("float32"), device="cuda")
    opt = OPTIMIZERS[name]([W], sparse="lazy")
    counted(gpu, W, opt, batches()[0])
    launched.clear()
    costs = {counted(gpu, W, opt, ids) for ids in batches()}
    assert costs == {(20, 1, 0)}  # docs/gpu.md tells it
    assert launched == ["take_rows", "sort_small", "update_runs", "update_ends"] * 6


OTHERS = {
    "float16": lambda W: (W.astype("float16"), {}, {}),
    "a number for each row": lambda W: (W, {"count": "row"}, {}),
    "rows shortened": lambda W: (W, {}, {"clip_rows": 0.5}),
    "an average": lambda W: (W, {"average": 0.9}, {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_no_kernel_fits_is_computed_by_cupy(launched, name):
    values, settings, more = OTHERS[name](table("float32"))
    results = []
    for device in ("cpu", "cuda"):
        W = ts.parameter(values, device=device)
        opt = optim.Adam([W], lr=0.1, sparse="lazy", **settings)
        for ids in batches():
            with ts.Tape("raise") as tape:
                loss = (W[ids] ** 2).sum()
            opt.step(tape.backward(loss), **more)
        results.append(W.numpy())
    tolerance = 2e-2 if values.dtype == np.float16 else 1e-4
    np.testing.assert_allclose(results[1], results[0], tolerance, tolerance)


def test_a_formula_that_cannot_be_printed_is_computed_by_cupy(gpu, launched):
    adapter = standin._adapter[0]

    def rooted(p, g, *, lr):
        return (p - math.sqrt(lr) * g,)

    p, g = gpu.cupy.asarray(table()), gpu.cupy.asarray(table()[:4])
    rows = np.array([3, 1, 3, 0])
    adapter.plan_update(rooted, gpu.cupy.asarray(rows), g, p, [], {"lr": 0.5})()
    wanted = table()
    reference.plan_update(rooted, rows, table()[:4], wanted, [], {"lr": 0.5})()
    np.testing.assert_allclose(p.get(), wanted, rtol=1e-12)
    there = gpu.cupy.asarray(rows), g, p, [], {"lr": 0.5}
    assert adapter.launching.plan_update(rooted, *there) is None
    assert launched == ["sort_small", "update_runs"], "a kernel for the sums alone"


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


def test_a_model_trains_as_on_numpy():
    test_gpu_optim.test_a_model_trains_as_on_numpy_once_it_was_moved()
