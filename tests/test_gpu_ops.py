"""Every case of every op on the stand-in for a GPU: values, gradients and rows are NumPy's.

Without a GPU this shows that no op leaves the device, mixes devices or goes by what CuPy does
differently. See `standin` for what it cannot show.
"""

import math
import zlib
from dataclasses import replace
from types import FunctionType

import numpy as np
import pytest
from cases import CASES

import tinygrad_sparse as ts
from tinygrad_sparse import ops
from tinygrad_sparse.errors import DeviceError
from tinygrad_sparse.nn.soft_tree import SparseRows
from tinygrad_sparse.slices import IndexedSlices, densify, is_sparse
from tinygrad_sparse.tensor import unwrap
from tinygrad_sparse.testing.laws import ROW_SETS

pytestmark = pytest.mark.usefixtures("gpu")
each_case = pytest.mark.parametrize("case", CASES, ids=str)


def host(x):
    """A value on the host: an array, a Tensor, or IndexedSlices made dense."""
    x = unwrap(densify(x))
    return x.get() if type(x).__module__ == "cupy" else np.asarray(x)


def moved(x, device):
    """What a case has beside parameters, on the device: arrays, rows by their values."""
    if isinstance(x, SparseRows):
        return x._replace(values=moved(x.values, device))
    return ts.tensor(x, device=device)._data if isinstance(x, np.ndarray) else x


def with_all_on(case, device):
    """The case with the arrays that its function and its static arguments hold on the device."""
    f, static = case.function, {k: moved(v, device) for k, v in case.static.items()}
    if f.__name__ == "<lambda>":
        names = {n: moved(f.__globals__[n], device) for n in f.__code__.co_names if n.isupper()}
        f = FunctionType(f.__code__, {**f.__globals__, **names}, closure=f.__closure__)
    return replace(case, function=f, static=static)


def run(case, arrays, device, densify="allow"):
    """The tape, the parameters and the result.

    Row ids are on the host: they are uploaded. Where a case has other data there, which is an
    error, all that it has is moved.
    """
    leaves = {
        k: ts.parameter(a, device=device) for k, a in enumerate(arrays) if a.dtype.kind == "f"
    }
    for again in (False, True):
        with ts.Tape(densify, persistent=True) as tape:
            try:
                return tape, leaves, case(*[leaves.get(k, a) for k, a in enumerate(arrays)])
            except DeviceError:
                if again:
                    raise
        case, arrays = with_all_on(case, device), [moved(a, device) for a in arrays]
    raise AssertionError


def seeds(case, shape, dtype):
    """A dense cotangent, and rows that each number of axes addresses."""
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    yield rng.normal(size=shape).astype(dtype)
    for lead in range(1, len(shape) + 1):
        size = math.prod(shape[:lead])
        for chosen in ROW_SETS.values():
            rows = [r % size for r in chosen] if size else []
            values = rng.normal(size=(len(rows), *shape[lead:])).astype(dtype)
            yield IndexedSlices(rows, values, shape, lead)


def on_device(seed):
    if is_sparse(seed):
        values = ts.tensor(seed.values, device="cuda")._data
        return IndexedSlices(seed.indices, values, seed.shape, seed.lead)
    return ts.tensor(seed, device="cuda")


def close(got, wanted, context):
    assert got.dtype == wanted.dtype, context
    tolerance = {2: 2e-2, 4: 1e-5, 8: 1e-10}[wanted.dtype.itemsize]
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
    np.testing.assert_allclose(
        got.astype(float), wanted.astype(float), tolerance, tolerance * largest, err_msg=context
    )


def check_values_and_gradients(case, dtype):
    arrays = case.draw(dtype=dtype)
    here, mine, out = run(case, arrays, "cpu")
    there, theirs, same = run(case, arrays, "cuda")
    assert same.device == "cuda", "a result on the host"
    close(host(same), host(out), str(case))
    for seed in seeds(case, out.shape, out.dtype):
        wanted, got = here.backward(out, seed), there.backward(same, on_device(seed))
        assert {p.name for p in got} == {p.name for p in wanted} or len(got) == len(wanted)
        for k, p in mine.items():
            if p in wanted:
                a, b = wanted[p], got[theirs[k]]
                context = f"{case}, argument {k}, seed {seed!r:.60}"
                assert is_sparse(a) == is_sparse(b), f"{context}: {a!r} became {b!r}"
                if is_sparse(a):
                    rows, others = a.coalesce().indices, b.coalesce().indices
                    assert type(others).__module__ == "cupy" and b.lead == a.lead, context
                    np.testing.assert_array_equal(others.get(), rows, err_msg=context)
                close(host(b), host(a), context)
    assert len(there.densified) == len(here.densified)


def check_second_order(case):
    arrays = case.draw()
    results = []
    for device in ("cpu", "cuda"):
        tape, leaves, out = run(case, arrays, device)
        with tape:
            seed = np.linspace(0.5, 1.5, out.size).reshape(out.shape)
            first = tape.backward(out, ts.tensor(seed, device=device), create_graph=True)
            total = None
            for p in leaves.values():
                if p in first:
                    g = densify(first[p])
                    v = np.cos(np.arange(g.size)).reshape(g.shape)
                    part = ops.sum(g * ts.tensor(v, device=device))
                    total = part if total is None else total + part
            if total is None or not total.requires_grad:
                return
            second = tape.backward(total)
        results.append({k: second.get(p) for k, p in leaves.items()})
    for k, wanted in results[0].items():
        got = results[1][k]
        assert (got is None) == (wanted is None) and is_sparse(got) == is_sparse(wanted)
        if wanted is not None:
            close(host(got), host(wanted), f"{case}, argument {k}")


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@each_case
def test_values_and_gradients_are_those_of_numpy(case, dtype):
    check_values_and_gradients(case, dtype)


@each_case
def test_second_order_is_that_of_numpy(case):
    check_second_order(case)
