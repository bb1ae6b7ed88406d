"""What the stand-in does is what CuPy does: the same tests on both, on the real one with a GPU.

``pytest -m gpu`` runs those that want a device; without one they are left out.
"""

import numpy as np
import pytest
from cases import CASES
from gpu_cases import on_gpu
from test_gpu_ops import check_values_and_gradients

import tinygrad_sparse as ts
from tinygrad_sparse import optim
from tinygrad_sparse.testing import check_op


@pytest.fixture(params=["standin", pytest.param("real", marks=pytest.mark.gpu)])
def cupy(request):
    if request.param == "standin":
        return request.getfixturevalue("gpu").cupy
    import cupy

    return cupy


@pytest.fixture
def x(cupy):
    return cupy.asarray(np.arange(12.0).reshape(4, 3))


LEAVING = {
    "np.asarray": lambda cupy, x: np.asarray(x),
    "an array on the host": lambda cupy, x: x + np.ones(3),
    "the other way round": lambda cupy, x: np.ones(3) + x,
    "a ufunc": lambda cupy, x: np.maximum(x, np.ones(3)),
    "lists": lambda cupy, x: cupy.add([1.0], [2.0]),
    "joined": lambda cupy, x: cupy.concatenate([x, np.ones((1, 3))]),
    "maxima from a number": lambda cupy, x: x.max(initial=0.0),
    "the item at a place": lambda cupy, x: x.item(0),
    "atomic products": lambda cupy, x: cupy.multiply.at(x, cupy.asarray([0]), 2.0),
}


@pytest.mark.parametrize("name", LEAVING)
def test_what_is_refused(cupy, x, name):
    # the last is what CuPy raises for loops that it has no atomic operation for
    with pytest.raises((TypeError, AttributeError, NotImplementedError)):
        LEAVING[name](cupy, x)


def test_ids_wrap(cupy, x):
    np.testing.assert_array_equal(x[cupy.asarray([5, -1])].get(), x.get()[[1, 3]])
    np.testing.assert_array_equal(x.take(cupy.asarray([-5, 6]), axis=0).get(), x.get()[[3, 2]])
    cupy.add.at(x, cupy.asarray([4, 4]), 1.0)
    np.testing.assert_array_equal(x.get()[0], [2.0, 3.0, 4.0])


def test_additions_at_one_place_add_up(cupy):
    for dtype in ("i4", "i8", "f4", "f8"):
        table = cupy.zeros((3, 2), dtype)
        cupy.add.at(table, cupy.asarray([1, 1, 2]), cupy.ones((3, 2), dtype))
        np.testing.assert_array_equal(table.get(), [[0, 0], [2, 2], [1, 1]])


def test_one_of_two_values_at_a_place_stays(cupy):
    table = cupy.zeros(3)
    table[cupy.asarray([1, 1])] = cupy.asarray([5.0, 7.0])
    assert table.get()[1] in (5.0, 7.0)


def test_ufuncs_of_numpy_are_handed_over(cupy, x):
    for y in (np.sqrt(x), np.float64(2) * x, np.maximum(x, 3.0), np.where(x > 1, x, 0.0)):
        assert type(y) is cupy.ndarray


def test_numbers_do_not_widen(cupy):
    x = cupy.ones(3, np.float32)
    assert (x * 2.0).dtype == cupy.where(x > 0, x, 0.0).dtype == np.float32
    assert (x.astype(np.float16) + 1).dtype == np.float16


def test_numbers_that_a_dtype_has_not_are_refused_even_in_comparisons(cupy):
    small = cupy.zeros(2, np.uint8)
    for f in (lambda: small >= 300, lambda: small != -1, lambda: cupy.less(small, 256)):
        with pytest.raises(OverflowError):
            f()


def test_what_arrays_know_of_themselves(cupy, x):
    assert x.base is None and x.view().base is x and x[1:].T.base is x
    assert not hasattr(x.flags, "writeable") and x.flags.c_contiguous
    assert x.sum().shape == () and type(x.sum()) is type(x)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_on_a_gpu(case, dtype):
    check_values_and_gradients(case, dtype)


# A case an op: laws take finite differences, and so most of all launches. Other cases are compared
# with NumPy above, where they keep them; on the stand-in all cases are asked.
OF_EACH_OP = {str(case).partition(":")[0]: case for case in reversed(CASES)}


@pytest.mark.gpu
@pytest.mark.parametrize("name", OF_EACH_OP)
def test_every_law_on_a_gpu(name):
    check_op(on_gpu(OF_EACH_OP[name]))


@pytest.mark.gpu
@pytest.mark.parametrize("make", [optim.SGD, optim.Adagrad, optim.Adam])
def test_steps_on_a_gpu(make):
    results, rng = [], np.random.default_rng(0)
    values, ids = rng.normal(size=(1000, 16)), rng.integers(0, 1000, (5, 256))
    for device in ("cpu", "cuda"):
        W = ts.parameter(values, device=device)
        opt = make([W], lr=0.1, sparse="lazy")
        for batch in ids:
            with ts.Tape() as tape:
                loss = (W[batch] ** 2).sum()
            opt.step(tape.backward(loss))
        results.append(W.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-9)
