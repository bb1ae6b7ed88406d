"""Products, einsum, square matrices and convolutions: NumPy's values, rows that stay, refusals."""

import re

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, ops
from tinygrad_sparse.testing import check_grads


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def says(text):
    """The whole text of an error."""
    return f"^{re.escape(text)}$"


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "options"),
    [
        ("dot", [normal(3), normal(3, seed=1)], {}),
        ("dot", [normal(2, 5, 3), normal(4, 3, 2)], {}),
        ("dot", [2.0, normal(3, 2)], {}),
        ("inner", [normal(2, 3), normal(4, 5, 3)], {}),
        ("inner", [normal(3), 2.0], {}),
        ("vdot", [normal(2, 3), normal(3, 2)], {}),
        ("outer", [normal(2, 3), normal(4)], {}),
        ("kron", [normal(2, 3), normal(3, 2)], {}),
        ("kron", [normal(2), normal(3, 2, 2)], {}),
        ("kron", [normal(), normal(3)], {}),
        ("tensordot", [normal(2, 3, 4), normal(3, 4, 5)], {}),
        ("tensordot", [normal(2, 3, 4), normal(4, 2)], {"axes": ([0, 2], [1, 0])}),
        ("tensordot", [normal(2, 3), normal(3, 2)], {"axes": (-1, 0)}),
        ("tensordot", [normal(2, 3), normal(4)], {"axes": 0}),
        ("trace", [normal(3, 4)], {"offset": -1}),
        ("trace", [normal(3, 4, 3)], {"axis1": 2, "axis2": 0}),
        ("diagonal", [normal(3, 4, 5)], {"offset": 2, "axis1": -1, "axis2": 0}),
        ("diagonal", [normal(3, 4)], {"offset": -7}),
        ("diag", [normal(3)], {"k": 2}),
        ("diag", [normal(3, 4)], {"k": 1}),
        ("tril", [normal(2, 3, 4)], {"k": 1}),
        ("triu", [normal(3, 4)], {"k": -1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_are_numpys(name, args, options):
    wanted = getattr(np, name)(*args, **options)
    for given in (args, [ts.tensor(a) for a in args]):
        got = getattr(ops, name)(*given, **options)
        np.testing.assert_allclose(got.data if given is not args else got, wanted)


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ba", [(2, 3)]),
        ("Ab,bA", [(2, 3), (3, 2)]),
        (" i j , j k -> k i ", [(2, 3), (3, 4)]),
        ("...ij,...jk", [(5, 2, 3), (3, 4)]),
        ("i...,...j->ij...", [(2, 5), (5, 3)]),
        ("...,...", [(4, 1), (3,)]),
        ("i,->i", [(3,), ()]),
        ("", [()]),
        ("ij,kl->", [(2, 3), (4, 5)]),
        ("ij,jk->k", [(2, 3), (3, 4)]),
        ("ij,jk,kl,m->m", [(2, 3), (3, 4), (4, 1), (2,)]),
        ("ij,jk,ik->", [(1, 3), (3, 4), (2, 4)]),
        ("bij,kbj->bik", [(6, 9, 8), (7, 6, 8)]),
        ("ij,kj->ki", [(20, 9), (30, 9)]),
    ],
)
def test_einsum_is_numpys(subscripts, shapes):
    arrays = [normal(*shape, seed=k) for k, shape in enumerate(shapes)]
    np.testing.assert_allclose(ops.einsum(subscripts, *arrays), np.einsum(subscripts, *arrays))
    check_grads(lambda *xs: ops.einsum(subscripts, *xs), arrays, order=1)


def test_lists_and_numbers_are_operands_and_numbers_do_not_widen():
    x = ts.tensor(np.ones(3, np.float32))
    assert ops.einsum("i,->i", x, 2.0).dtype == ops.dot(2.0, x).dtype == np.float32
    assert ops.tensordot([[1.0, 2.0]], [[3.0], [4.0]], 1).tolist() == [[11.0]]
    assert ops.solve([[2.0]], [3.0]).tolist() == [1.5]


def test_float16_products_are_summed_in_float32():
    ones = np.ones(5000, np.float16)
    for got in (
        ops.einsum("i,i->", ones, ones),
        ops.einsum("ij,jk->ik", np.ones((1, 5000), np.float16), np.ones((5000, 1), np.float16)),
        ops.conv1d(ones.reshape(1, 1, -1), ones.reshape(1, 1, -1)),
    ):
        assert got.dtype == np.float16
        assert got.item() == 5000.0


# -- square matrices -----------------------------------------------------------------------------


def test_square_matrices_have_numpys_values():
    x, b = normal(4, 3, 3), normal(4, 3, 2)
    np.testing.assert_allclose(ops.solve(x, b), np.linalg.solve(x, b))
    np.testing.assert_allclose(ops.solve(x, b[0, :, 0]), np.linalg.solve(x, b[0, :, 0]))
    np.testing.assert_allclose(ops.inv(x), np.linalg.inv(x))
    np.testing.assert_allclose(ops.det(x), np.linalg.det(x))
    for ours, theirs in zip(ops.slogdet(x), np.linalg.slogdet(x), strict=True):
        np.testing.assert_allclose(ours, theirs)
    square = x @ x.swapaxes(-1, -2)
    np.testing.assert_allclose(ops.cholesky(square), np.linalg.cholesky(square))


def test_det_at_singular_matrices_has_the_cofactors_as_gradient():
    g = ts.grad(ops.det)
    x = np.array([[1.0, 2.0], [2.0, 4.0]])
    np.testing.assert_allclose(g(x), [[4.0, -2.0], [-2.0, 1.0]], atol=1e-15)
    np.testing.assert_array_equal(g(np.zeros((3, 3))), np.zeros((3, 3)))  # rank n - 2 and less
    np.testing.assert_array_equal(g(np.zeros((1, 1))), [[1.0]])


def test_det_has_a_third_derivative_where_there_is_an_inverse():
    check_grads(ops.det, [normal(3, 3)], order=3)

    def third(x):
        return ts.grad(lambda x: ops.sum(ts.grad(lambda x: ops.sum(ts.grad(ops.det)(x) ** 2))(x)))(
            x
        )

    assert np.isfinite(third(normal(3, 3))).all()
    with pytest.raises(
        np.linalg.LinAlgError, match=r"^inv: expected matrices that have an inverse"
    ):
        third(np.ones((2, 2)))


def test_the_gradient_of_cholesky_is_symmetric():
    x = np.array([[4.0, 2.0], [2.0, 5.0]])
    w = ts.parameter(x)
    with ts.Tape():
        loss = ops.cholesky(w)[1, 0]  # l₁₀ = x₁₀ / √x₀₀
    np.testing.assert_allclose(loss.backward()[w], [[-0.125, 0.25], [0.25, 0.0]])


def test_slogdet_of_a_singular_matrix():
    x = np.stack([np.eye(2), np.ones((2, 2))])
    w = ts.parameter(x)
    with ts.Tape():
        sign, logabsdet = ops.slogdet(w)
        kept = ops.where(np.array([True, False]), logabsdet, 0.0).sum()
        everything = logabsdet.sum()
    np.testing.assert_array_equal(sign.data, [1.0, 0.0])
    np.testing.assert_array_equal(logabsdet.data, [0.0, -np.inf])
    assert not sign.requires_grad
    assert everything.data == -np.inf
    # a matrix that was left out does not need an inverse
    np.testing.assert_array_equal(kept.backward()[w], [np.eye(2), np.zeros((2, 2))])
    with ts.Tape():
        everything = ops.slogdet(w).logabsdet.sum()
    with pytest.raises(errors.LinAlgError):
        everything.backward()


HINT = "Hint: add a small multiple of the identity, x + c * np.eye(n)."
NO_INVERSE = "expected matrices that have an inverse, got a singular one"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda t: ops.inv(t(np.ones((2, 2)))), f"inv: {NO_INVERSE} (float64 (2, 2)). {HINT}"),
        (
            lambda t: ops.inv(t(np.stack([np.eye(2), np.ones((2, 2))]))),
            f"inv: {NO_INVERSE} at position 1 (float64 (2, 2, 2)). {HINT}",
        ),
        (
            lambda t: ops.solve(t(np.zeros((2, 3, 1, 1))), np.ones(1)),
            f"solve: {NO_INVERSE} at position (0, 0) (float64 (2, 3, 1, 1)). {HINT}",
        ),
        (
            lambda t: ops.cholesky(t(np.diag([1.0, -2.0]))),
            "cholesky: expected positive definite matrices, got one with an eigenvalue of -2 "
            f"(float64 (2, 2)). {HINT}",
        ),
    ],
    ids=["inv", "a stack", "solve", "cholesky"],
)
@pytest.mark.parametrize("track", [np.asarray, ts.tensor, ts.parameter])
def test_a_matrix_without_inverse_or_factor_is_named(call, text, track):
    with ts.Tape() as tape:
        with pytest.raises(errors.LinAlgError, match=says(text)) as error:
            call(track)
        assert len(tape) == 0
    assert isinstance(error.value, np.linalg.LinAlgError)
    assert isinstance(error.value, errors.TinygradSparseError)


# -- rows that stay apart ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda w: ops.einsum("vd,kd->vk", w, normal(3, 4)),
        lambda w: ops.einsum("vd,vd->v", w, w),
        lambda w: ops.tensordot(w, normal(4, 2), 1),
        lambda w: ops.outer(w[:, 0], normal(3)),
        lambda w: ops.triu(ops.reshape(w, (6, 2, 2))),
        lambda w: ops.trace(ops.reshape(w, (6, 2, 2)), axis1=1, axis2=2),
        lambda w: ops.diagonal(w),
        lambda w: ops.einsum("ii->i", ops.reshape(w, (6, 4))[:4]),
        lambda w: ops.inv(ops.reshape(w, (6, 2, 2))),
        lambda w: ops.det(ops.reshape(w, (6, 2, 2))),
        lambda w: ops.conv1d(ops.reshape(w, (6, 2, 2)), normal(4, 1, 2), padding=1, groups=2),
    ],
)
def test_what_was_not_looked_up_gets_no_gradient(f):
    w = ts.parameter(normal(6, 4))
    with ts.Tape("raise"):
        loss = (f(w)[[3, 1, 3]] ** 2).sum()
    g = loss.backward()[w]
    assert type(g) is ts.IndexedSlices
    assert set(np.flatnonzero(g.to_dense().any(1))) <= {1, 3}
    assert len(np.unique(g.indices)) <= 2 * 4  # rows, or single elements of them
    check_grads(lambda w: f(w)[[3, 1, 3]], [w.numpy()], order=1)


# -- refusals ------------------------------------------------------------------------------------

X = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x: ops.einsum("ij,jk->ik", x, np.ones((2, 3))),
            "einsum: expected one length for each label, got 2 and 3 for 'j' "
            "('ij,jk->ik', (2, 3), (2, 3)).",
        ),
        (
            lambda x: ops.einsum("ii", x),
            "einsum: expected one length for each label, got 3 and 2 for 'i' ('ii', (2, 3)).",
        ),
        (
            lambda x: ops.einsum("i1->i", x),
            "einsum: expected letters, ',' between operands, '...' and one '->', got 'i1->i'.",
        ),
        (
            lambda x: ops.einsum("ij,jk", x),
            "einsum: expected an operand for each term of 'ij,jk', got 1 for 2.",
        ),
        (
            lambda x: ops.einsum("ij"),
            "einsum: expected an operand for each term of 'ij', got 0 for 1.",
        ),
        (
            lambda x: ops.einsum("i", x),
            "einsum: expected an axis for each label of 'i', got shape (2, 3) (operand 0).",
        ),
        (
            lambda x: ops.einsum("ij->k", x),
            "einsum: expected output labels that occur in an operand, each once, got 'ij->k'.",
        ),
        (
            lambda x: ops.einsum("...j->j", x),
            "einsum: expected '...' in the output, for the axes it stands for, got '...j->j'.",
        ),
        (
            lambda x: ops.tensordot(x, X, 1),
            "tensordot: expected axes of equal length, got float64 (2, 3) along (1,) and "
            "float64 (2, 3) along (0,).",
        ),
        (
            lambda x: ops.tensordot(x, X, (0, 1, 2)),
            "tensordot: expected axes: a number, or a pair of axes, got (0, 1, 2).",
        ),
        (
            lambda x: ops.vdot(x, np.ones(5)),
            "vdot: expected arrays of one size, got float64 (2, 3) and float64 (5,).",
        ),
        (
            lambda x: ops.diagonal(x, axis1=0, axis2=-2),
            "diagonal: expected each axis once, got (0, -2).",
        ),
        (
            lambda x: ops.tril(np.ones(3)),
            "tril: expected matrices, (*batch, n, m), got float64 (3,).",
        ),
        (
            lambda x: ops.det(x),
            "det: expected square matrices, (*batch, n, n), got float64 (2, 3).",
        ),
        (
            lambda x: ops.solve(np.eye(3), x),
            "solve: expected (*batch, n, n) and (*batch, n, k) or (n,), got float64 (3, 3) and "
            "float64 (2, 3).",
        ),
        (
            lambda x: ops.solve(np.ones((2, 2, 2)), np.ones((3, 2, 1))),
            "solve: expected (*batch, n, n) and (*batch, n, k) or (n,), got float64 (2, 2, 2) and "
            "float64 (3, 2, 1).",
        ),
        (
            lambda x: ops.conv1d(x, np.ones((1, 1, 2))),
            "conv1d: expected x (N, C, L) and w (O, C / groups, K), got float64 (2, 3) and "
            "float64 (1, 1, 2).",
        ),
        (
            lambda x: ops.conv2d(np.ones((1, 3, 4, 4)), np.ones((2, 1, 2, 2)), groups=2),
            "conv2d: expected x (N, C, H, W) and w (O, C / groups, KH, KW), C and O multiples of "
            "groups, got float64 (1, 3, 4, 4) and float64 (2, 1, 2, 2), groups 2.",
        ),
        (
            lambda x: ops.conv1d(
                np.ones((1, 1, 3)), np.ones((1, 1, 3)), dilation=2, padding=(0, 1)
            ),
            "conv1d: expected windows that fit into (4,), the padded input, got (5,) from "
            "float64 (1, 1, 3) and float64 (1, 1, 3).",
        ),
        (
            lambda x: ops.conv1d(np.ones((1, 1, 3)), np.ones((1, 1, 3)), stride=0),
            "conv1d: expected stride as a whole number >= 1, or 1 of them, got 0.",
        ),
        (
            lambda x: ops.conv2d(np.ones((1, 1, 3, 3)), np.ones((1, 1, 3, 3)), 2, "same"),
            "conv2d: expected padding 'valid', or 'same' with stride 1, or numbers, got 'same' "
            "with stride (2, 2).",
        ),
    ],
)
def test_bad_input_is_named_and_nothing_is_recorded(call, text):
    x = ts.parameter(X)
    with ts.Tape() as tape:
        with pytest.raises(errors.ShapeError, match=says(text)):
            call(x)
        assert len(tape) == 0


def test_operands_before_the_subscripts_are_named():
    text = (
        "einsum: expected a string of subscripts, then the operands, got ndarray. "
        "Hint: einsum('ij,jk->ik', x, y)."
    )
    with pytest.raises(errors.DtypeError, match=says(text)):
        ops.einsum(X, [0, 1])
