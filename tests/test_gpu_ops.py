"""Every case of every op on the stand-in for a GPU: values, gradients and rows are NumPy's.

Without a GPU this shows that no op leaves the device, mixes devices or goes by what CuPy does
differently. See `standin` for what it cannot show.
"""

import math
import zlib

import numpy as np
import pytest
from cases import CASES
from gpu_cases import on_gpu

import tinygrad_sparse as ts
from tinygrad_sparse.slices import IndexedSlices, is_sparse
from tinygrad_sparse.testing.laws import ROW_SETS
from tinygrad_sparse.testing.places import dense, home

pytestmark = pytest.mark.usefixtures("gpu")


def run(case, dtype):
    """The tape, the parameters and the result."""
    arrays = case.draw(dtype=dtype)
    leaves = {k: ts.parameter(a) for k, a in enumerate(arrays) if a.dtype.kind == "f"}
    with ts.Tape("allow", persistent=True) as tape:
        return tape, leaves, case(*[leaves.get(k, a) for k, a in enumerate(arrays)])


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
    here, mine, out = run(case, dtype)
    there, theirs, same = run(on_gpu(case), dtype)
    assert same.device == "cuda", "a result on the host"
    close(home(same), home(out), str(case))
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
                close(dense(b), dense(a), context)
    assert len(there.densified) == len(here.densified)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_those_of_numpy(case, dtype):
    check_values_and_gradients(case, dtype)
