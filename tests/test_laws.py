"""Every law on every case; every op and every Tensor method has what it needs to be here."""

import sys

import numpy as np
import pytest
from cases import CASES

import tinygrad_sparse as ts
from tinygrad_sparse import ops
from tinygrad_sparse.testing import LAWS, Case, check_op, normal

PUBLIC_OPS = {getattr(ops, name) for name in ops.__all__}

# What a Tensor has that no gradient flows through.
NOT_DIFFERENTIABLE = {
    "backward", "data", "detach", "device", "dtype", "grad", "id", "item", "name", "nbytes", "ndim",
    "numpy", "requires_grad", "shape", "size", "to",
}  # fmt: skip


def test_law(case, law):
    law(case)


def ops_called(case):
    """The public ops that a case calls, as objects: its function, or what its lambda calls."""
    function = getattr(case.function, "func", case.function)  # of a partial
    if function in PUBLIC_OPS:
        return {function}
    codes = {f.__code__: f for f in PUBLIC_OPS if getattr(f, "op", None) is None}
    primitives = {f.op: f for f in PUBLIC_OPS if getattr(f, "op", None) is not None}
    inside = function.__code__
    found = set()

    def note(frame, event, arg):
        if event == "call" and frame.f_back is not None and frame.f_back.f_code is inside:
            found.add(codes.get(frame.f_code) or primitives.get(frame.f_locals.get("op")))

    xs = [ts.parameter(a) if a.dtype.kind == "f" else a for a in case.draw()]
    sys.setprofile(note)
    try:
        case(*xs)
    finally:
        sys.setprofile(None)
    return found - {None}


def test_every_public_op_has_cases():
    without = PUBLIC_OPS - set().union(*map(ops_called, CASES))
    own_tests = {ops.cast, ops.argmax, ops.argmin}
    assert without <= own_tests, "these alone change the dtype, so they have tests of their own"


def test_the_search_for_ops_itself():
    assert ops_called(Case(ops.exp, [normal(2)])) == {ops.exp}
    assert ops_called(Case(lambda x: ops.stack([x, x])[0] * x, [normal(2)])) == {
        ops.stack,
        ops.getitem,
        ops.multiply,
    }


def is_op(attribute):
    """True for what was declared by @primitive or @composite."""
    f = attribute.fget if isinstance(attribute, property) else attribute
    return getattr(f, "kinks", None) is not None


def test_every_tensor_method_is_an_op_or_listed_as_having_no_gradient():
    names = {name for name in dir(ts.Tensor) if not name.startswith("_")}
    unlisted = {name for name in names - NOT_DIFFERENTIABLE if not is_op(getattr(ts.Tensor, name))}
    assert unlisted == set(), "make it an op, or say in NOT_DIFFERENTIABLE that it has no gradient"
    stale = {
        name for name in NOT_DIFFERENTIABLE if name not in names or is_op(vars(ts.Tensor)[name])
    }
    assert stale == set()


def test_every_law_says_what_it_is():
    for law in LAWS:
        first = law.__doc__.splitlines()[0]
        assert first.endswith("."), law
    assert len({law.__name__ for law in LAWS}) == len(LAWS)


def test_check_op_names_the_law_that_is_broken():
    @ts.primitive(rows=ts.rowwise("r"), vjp=(lambda g, out, x: g - ops.mean(g, 0),))
    def centred(xp, x):
        return x - xp.mean(x, axis=0)

    with pytest.raises(AssertionError, match=r"^sparse_pull: [\s\S]*centred"):
        check_op(Case(centred, [normal(5, 3)]))
    with pytest.raises(AssertionError, match=r"^rows_commute: [\s\S]*centred"):
        check_op(
            Case(centred, [normal(5, 3)], commutes=(0,)),
            [law for law in LAWS if law.__name__ == "rows_commute"],
        )


def test_cast_casts_the_cotangent_back_and_integers_end_the_path():
    x = ts.parameter(np.ones((2, 2), np.float32))
    with ts.Tape():
        loss = (x.astype(np.float64) * 3).sum()
        assert not x.astype(np.int64).requires_grad
    g = loss.backward()[x]
    assert g.dtype == np.float32
    np.testing.assert_array_equal(g, 3)
