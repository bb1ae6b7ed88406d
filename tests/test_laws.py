"""Every law on every case; every op and every Tensor method has what it needs to be here."""

import sys

import numpy as np
import pytest
from cases import CASES

import tinygrad_sparse as ts
from tinygrad_sparse import backward, ops
from tinygrad_sparse.primitive import Primitive
from tinygrad_sparse.slices import is_sparse, rows_of
from tinygrad_sparse.testing import LAWS, Case, check_op, normal
from tinygrad_sparse.testing.laws import exact_rows, sparse_pull

PUBLIC_OPS = {getattr(ops, name) for name in ops.__all__}

# What a Tensor has that no gradient flows through.
NOT_DIFFERENTIABLE = {
    "assign", "backward", "data", "detach", "device", "dtype", "flush", "grad", "id", "item",
    "name", "nbytes", "ndim", "numpy", "requires_grad", "shape", "size", "to",
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


@pytest.fixture(scope="module")
def pulled():
    """By the ops of all cases: whether rows came out as rows, and whether any turned dense."""
    kept, dense = set(), set()
    pull = backward.pull

    def noting(op, g, out, args, wanted, static, densify):
        def noted(g):
            dense.add(op)
            return densify(g)

        cotangents = pull(op, g, out, args, wanted, static, noted)
        if is_sparse(g) and any(map(is_sparse, cotangents)):
            kept.add(op)
        return cotangents

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backward, "pull", noting)
        for case in CASES:
            sparse_pull(case)
    return kept, dense


def rules():
    """Every op of the package that has a row rule and a gradient, helpers of VJPs included."""
    modules = [m for name, m in sys.modules.items() if name.startswith("tinygrad_sparse.")]
    found = {getattr(f, "op", None) for module in modules for f in list(vars(module).values())}
    return {
        op
        for op in found
        if type(op) is Primitive and op.rows is not None and (op.variadic or any(op.vjp))
    }


def test_every_row_rule_has_a_case_in_which_rows_come_out_as_rows(pulled):
    kept, _ = pulled
    no_gradient_of_its_forward = {"with_gradient_times"}  # test_embedding
    assert {op.name for op in rules() - kept} == no_gradient_of_its_forward


def test_every_row_rule_says_when_it_turns_rows_dense_and_does_so_then_alone(pulled):
    _, dense = pulled
    claimed = {op for op in rules() if op.rows.dense != "never"}
    assert {op.name for op in dense - claimed} == set(), "dense, though declared never to be"
    assert {op.name for op in claimed - dense} == set(), "declared to turn dense: no case does"


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


def pieces(g, out, x):
    """The right cotangent of x * 2, with a row of zeros too many."""
    values = ops.concatenate([g.values * 2, g.values[:1] * 0.0])
    return rows_of(np.append(g.indices, g.indices[:1] * 0), values, g.shape, g.lead)


@pytest.mark.parametrize("rule", [lambda g, out, x: (g * 2).to_dense(), pieces])
def test_a_rule_with_right_numbers_and_too_many_rows_is_noticed(rule):
    @ts.primitive(
        rows=ts.reindexed(lambda g, out, x: rule(g, out, x)), vjp=(lambda g, out, x: g * 2,)
    )
    def doubled(xp, x):
        return x * 2

    case = Case(lambda x: doubled(x[::-1])[1:], [normal(5, 3)], name="doubled")
    check_op(case, [law for law in LAWS if law is not exact_rows])
    with pytest.raises(
        AssertionError, match="doubled: the row rule is wrong for argument 0, lead 1, one"
    ):
        exact_rows(case)


def test_cast_casts_the_cotangent_back_and_integers_end_the_path():
    x = ts.parameter(np.ones((2, 2), np.float32))
    with ts.Tape():
        loss = (x.astype(np.float64) * 3).sum()
        assert not x.astype(np.int64).requires_grad
    g = loss.backward()[x]
    assert g.dtype == np.float32
    np.testing.assert_array_equal(g, 3)
