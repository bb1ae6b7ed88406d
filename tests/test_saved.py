"""What a tape keeps: the elements that rules read, and of other large arrays the shape alone."""

import sys

import numpy as np
import pytest
from cases import CASES

import tinygrad_sparse as ts
from tinygrad_sparse import ops, saved
from tinygrad_sparse.slices import IndexedSlices, densify
from tinygrad_sparse.testing import count_bytes

PRIMITIVE = sys.modules["tinygrad_sparse.primitive"]  # by its name in the package: the function
OUT = saved.OUT


def gradients(case, sparse):
    """First gradients of a case and, dense, those of the sum of their squares."""
    leaves = [ts.parameter(a) if a.dtype.kind == "f" else a for a in case.draw()]
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"), ts.Tape("allow") as tape:
        out = case(*leaves)
        if type(out) is not ts.Tensor or not out.requires_grad:
            return []
        if sparse:
            if not out.ndim or not out.shape[0]:
                return []
            rows = rng.integers(0, out.shape[0], 2)
            seed = IndexedSlices(rows, rng.normal(size=(2, *out.shape[1:])), out.shape)
            return [densify(g) for _, g in tape.backward(out, seed).items()]
        first = tape.backward(out, rng.normal(size=out.shape), create_graph=True)
        found = [densify(g) for _, g in first.items()]
        if case.order == 1 or not any(type(g) is ts.Tensor and g.requires_grad for g in found):
            return [g.data if type(g) is ts.Tensor else g for g in found]
        second = tape.backward(sum((g * g).sum() for g in found))
        return [g.data for g in found] + [densify(g) for _, g in second.items()]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_a_tape_that_keeps_all(case, sparse, monkeypatch):
    monkeypatch.setattr(PRIMITIVE, "LARGE", np.inf)
    wanted = gradients(case, sparse)
    monkeypatch.setattr(PRIMITIVE, "LARGE", 0)
    monkeypatch.setattr(saved, "FILL", np.nan)
    for a, b in zip(gradients(case, sparse), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("op, numbers", [
    (ops.add, (OUT, 0, 1)), (ops.multiply, (OUT,)), (ops.exp, (0,)), (ops.sum, (OUT, 0)),
    (ops.max, ()), (ops.matmul, (OUT,)), (ops.stack, ()),
])  # fmt: skip
def test_what_rules_do_not_read_is_seen_in_their_code(op, numbers):
    assert op.op.unread == numbers


@pytest.mark.parametrize("rule", [
    lambda g, out, x: [out * v for v in (g,)],
    lambda g, out, x: (lambda: g * out)(),
    lambda g, *values: g * values[0],
    np.multiply,
])  # fmt: skip
def test_what_cannot_be_seen_counts_as_read(rule):
    assert OUT not in saved.unread((rule,), None, 1)


def test_a_sum_of_squares_keeps_the_rows_once():
    x = ts.parameter(np.ones((1000, 1000)))
    with count_bytes() as used, ts.Tape() as tape:
        y = x * 2.0
        loss = (y * y).sum()
    assert used.kept < 1.1 * x.nbytes, "the doubled numbers, not their squares"
    np.testing.assert_array_equal(tape.backward(loss)[x], 8.0)
