"""Every law on every case; every op has cases; every planted fault is seen."""

import numpy as np
import pytest
from cases import CASES

import tinygrad_sparse as ts
from tinygrad_sparse import ops
from tinygrad_sparse.testing import LAWS, Case, check_grads, normal


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_law(law, case):
    law(case)


def test_every_op_has_cases():
    tried = {case.function for case in CASES}
    named = {str(case) for case in CASES}
    missing = [
        name
        for name in ops.__all__
        if getattr(ops, name) not in tried and not any(f": {name}" in n for n in named)
    ]
    assert missing == ["cast", "argmax", "argmin"], (
        "their dtype differs: they have tests of their own"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda g, out, x: 1.001 * g * (1 - out * out),
        lambda g, out, x: -g * (1 - out * out),
        lambda g, out, x: g,
    ],
    ids=["0.1 %", "sign", "dropped term"],
)
def test_the_checker_sees_a_planted_fault(wrong):
    @ts.primitive(rows=ts.elementwise, vjp=(wrong,))
    def faulty(xp, x):
        return xp.tanh(x)

    with pytest.raises(AssertionError, match=r"faulty: gradient of argument 0"):
        check_grads(faulty, [np.random.default_rng(0).normal(size=(5, 3))], order=1)


def test_the_law_sees_a_wrong_row_rule():
    @ts.primitive(rows=ts.rowwise("r"), vjp=(lambda g, out, x: g - ops.mean(g, 0),))
    def centred(xp, x):
        return x - xp.mean(x, axis=0)

    case = Case(centred, [normal(5, 3)], commutes=(0,))
    sparse_pull = next(law for law in LAWS if law.__name__ == "sparse_pull")
    with pytest.raises(AssertionError):
        sparse_pull(case)


def test_cast_casts_the_cotangent_back_and_integers_end_the_path():
    x = ts.parameter(np.ones((2, 2), np.float32))
    with ts.Tape():
        loss = (x.astype(np.float64) * 3).sum()
        assert not x.astype(np.int64).requires_grad
    g = loss.backward()[x]
    assert g.dtype == np.float32
    np.testing.assert_array_equal(g, 3)
