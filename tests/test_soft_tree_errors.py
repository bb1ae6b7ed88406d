"""The parts of soft trees refuse what they cannot take, each by its name."""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors
from tinygrad_sparse.nn.soft_tree import (
    PathPenalty,
    SoftTree,
    SparseRows,
    depth_of,
    gate_logits,
    leaf_update,
    leaves_of,
    log_arrivals,
    log_likelihood,
)

W = np.ones((5, 2))
IDS, ONES, NODES = np.array([0, 1]), np.ones(2), np.zeros((2, 7))
TEXT = np.array(["a", "b"])
Shape, Dtype, Argument = errors.ShapeError, errors.DtypeError, errors.ArgumentError
Row = errors.RowIndexError

BAD_ROWS = [
    ((IDS, [-1, 3], ONES, 2), Row, r"SparseRows: expected columns in \[0, 5\), got -1"),
    (([-1, 0], IDS, ONES, 2), Row, r"SparseRows: expected rows in \[0, 2\), got -1"),
    ((IDS, [9, 3], ONES, 2), Row, "SparseRows: expected ids in .*9 at position 0 .*among columns"),
    (([0, 5], IDS, ONES, 2), Row, "SparseRows: expected ids in .*5 at position 1 .*among rows"),
    ((IDS, [1.0, 3.0], ONES, 2), Row, "SparseRows: expected integer ids, got float64"),
    (([0.0, 1.0], IDS, ONES, 2), Row, "SparseRows: expected integer ids, got float64"),
    ((IDS, IDS, np.ones(3), 2), Shape, r"SparseRows: expected .*\(k,\).*got float64 \(3,\)"),
    ((IDS, IDS, np.ones((2, 1)), 2), Shape, r"SparseRows: expected .*got float64 \(2, 1\)"),
    ((IDS, IDS, TEXT, 2), Dtype, "SparseRows: expected real numbers"),
    ((IDS, IDS, ONES, 2.0), Shape, "SparseRows: expected a whole number of rows"),
    ((IDS, IDS, ONES, -2), Shape, "SparseRows: expected a whole number of rows"),
]


@pytest.mark.parametrize(("given", "error", "message"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_matrix_of_non_zeros_that_cannot_be(given, error, message):
    with pytest.raises(error, match=message):
        SparseRows(*given) @ W


@pytest.mark.parametrize("weight", [W[0], W[None], 1.0], ids=["1-d", "3-d", "number"])
def test_a_weight_that_is_no_table(weight):
    with pytest.raises(Shape, match=r"SparseRows: expected .*a weight \(D, m\), got"):
        SparseRows(IDS, IDS, ONES, 2) @ weight


def test_lists_are_arrays():
    assert (SparseRows([0, 1], [1, 3], [1.0, 2.0], 2) @ W.tolist()).tolist() == [[1, 1], [2, 2]]
    assert leaves_of([0.0, -1.0, -2.0]).tolist() == [-1, -2]
    assert log_likelihood([[0.0]], [[-1.0]]).tolist() == [-1]
    assert PathPenalty(2, 1.0)(NODES, [0.0, 0.0]) == PathPenalty(2, 1.0)(NODES)


Q = ts.parameter(np.ones((3, 2)))
ROW = ts.IndexedSlices([0], np.ones((1, 2)), (5, 2))
BAD = {
    "temperature": [
        (lambda v=v: SoftTree(4, 2, inverse_temperature=v), Argument,
         "SoftTree: expected inverse_temperature, a number that float32 holds, got ")
        for v in (np.nan, np.inf, 1e300, "a", None, [1.0, 2.0], True)
    ],
    "std": [
        (lambda v=v: SoftTree(4, 2, std=v), Argument, "SoftTree: expected std, a number >= 0, got ")
        for v in (np.nan, -1.0, "a")
    ],
    "seed": [
        (lambda v=v: SoftTree(4, 2, seed=v), Argument, "SoftTree: expected seed, .* got ")
        for v in (-1, "a", 1.5)
    ],
    "dtype": [
        (lambda v=v: SoftTree(4, 2, dtype=v), Dtype, "SoftTree: expected dtype float16, .* got ")
        for v in (int, "q8", str)
    ],
    "features": [
        (lambda v=v: SoftTree(v, 2), Argument, "SoftTree: expected D >= 1 features, got ")
        for v in (4.0, "a", True, -3)
    ],
    "gates": [
        (lambda v=v: depth_of(v), Shape, "soft tree: expected a whole number of gates, got ")
        for v in (3.0, "a", None)
    ],
    "logits": [
        (lambda v=v: log_arrivals(v), Dtype, "log_arrivals: expected real numbers")
        for v in (np.array(["a"]), np.array([1j]))
    ],
    "gate logits": [
        (lambda v=v: gate_logits(np.ones((2, 5)), *v), error, f"{op}: expected ")
        for v, error, op in [
            ((W.T, 0.0, 1.0), Shape, "matmul"),
            ((W.astype(object), 0.0, 1.0), Dtype, "matmul"),
            ((W, None, 1.0), Dtype, "add"),
            ((W, 0.0, TEXT), Dtype, "multiply"),
        ]
    ],
    "nodes": [
        (lambda v=v: leaves_of(v), Shape, "expected .*(log-arrivals|gates)")
        for v in (np.float64(1.0), np.ones((2, 4)), np.ones(5))
    ],
    "likelihood": [
        (lambda v=v: log_likelihood(*v), error, "log_likelihood: expected ")
        for v, error in [
            ((np.float64(1.0), np.float64(1.0)), Shape),
            ((np.ones((3, 4)), np.ones((2, 4))), Shape),
            ((TEXT, TEXT), Dtype),
        ]
    ],
    "leaf update": [
        (lambda v=v: leaf_update(*v), error, "leaf_update: expected ")
        for v, error in [((Q, ROW), Shape), ((Q, None), Shape), (("a", ROW), Dtype)]
    ],
    "penalty": [
        (lambda v=v: PathPenalty(2, **v), Argument, "PathPenalty: expected ")
        for v in [
            {"weight": np.nan}, {"weight": "a"}, {"weight": 1.0, "decay": "a"},
            {"weight": 1.0, "decay": None}, {"weight": 1.0, "window": "no"},
        ]
    ],
    "penalized": [
        (lambda v=v: PathPenalty(2, 1.0)(*v), error, "PathPenalty: expected ")
        for v, error in [
            (([[1.0]],), Shape),
            ((NODES[:0],), Shape),
            ((NODES, np.zeros(3)), Shape),
            ((NODES, np.zeros((2, 1))), Shape),
            ((NODES, TEXT), Dtype),
        ]
    ],
}  # fmt: skip
EACH = [
    pytest.param(*one, id=f"{name} {i}") for name, of in BAD.items() for i, one in enumerate(of)
]


@pytest.mark.parametrize(("call", "error", "message"), EACH)
def test_what_cannot_be_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_sample_weights_leave_the_penalty_its_dtype():
    penalty = PathPenalty(2, 1.0)
    nodes = log_arrivals(np.ones((2, 3), np.float32))
    for _ in range(2):
        assert penalty(nodes, np.log([0.5, 2.0])).dtype == np.float32
    assert penalty.past.dtype == np.float32
