"""The laws of every op on the stand-in for a GPU: the same functions, on arrays of a device."""

import pytest
from cases import CASES
from gpu_cases import on_gpu

import tinygrad_sparse as ts
from tinygrad_sparse import ops
from tinygrad_sparse.testing import LAWS, Case, check_op, normal
from tinygrad_sparse.testing.laws import ANY_ORDER

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_law(case):
    """All cases, leads and dtypes: nothing is thinned out, but for `ANY_ORDER`, which says why.

    That one holds for the kernels, so test_gpu_kernels has it.
    """
    check_op(on_gpu(case), [law for law in LAWS if law not in ANY_ORDER])


@pytest.mark.parametrize("name", [law.__name__ for law in LAWS])
def test_a_law_computes_on_the_device(gpu, name):
    law = next(law for law in LAWS if law.__name__ == name)
    here = Case(ops.exp, [normal(6, 3)], commutes=(0,))
    there = on_gpu(here)
    for case in (here, there):
        gpu.counts.clear()
        law(case)
        assert (gpu.counts.launches > 0) == (case is there)


FAULTS = {
    "values": (lambda x: x * x, lambda g, out, x: g * x, "gradient"),
    "rows": (lambda x: x - x.mean(0), lambda g, out, x: g - ops.mean(g, 0), "sparse_pull"),
    "upstream": (lambda x: x * 2, lambda g, out, x: doubled_in_place(g), "any_upstream"),
    "zero": (lambda x: x * 2, lambda g, out, x: g * 2 + 1, "gradient"),
}


def doubled_in_place(g):
    g *= 2
    return g


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen_on_the_device_too(name):
    forward, vjp, law = FAULTS[name]
    op = ts.primitive(rows=ts.elementwise, vjp=(vjp,))(lambda xp, x: forward(x))
    case = Case(op, [normal(5, 3)])
    for one in (case, on_gpu(case)):
        with pytest.raises(AssertionError, match=f"^{law}: "):
            check_op(one)
