"""Properties, over any shapes, dtypes and repeated ids: broadcasting, lookups, chains of ops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from strategies import FLOATS, floats, quick, row_ids, table_shapes, whole

import tinygrad_sparse as ts
from tinygrad_sparse import IndexedSlices, ops

# -- broadcasting --------------------------------------------------------------------------------

BINARY = {  # the op, and its slopes by x and by y
    "add": (ops.add, lambda x, y: (1.0, 1.0)),
    "subtract": (ops.subtract, lambda x, y: (1.0, -1.0)),
    "multiply": (ops.multiply, lambda x, y: (y, x)),
    "divide": (ops.divide, lambda x, y: (1 / y, -x / y**2)),
    "maximum": (ops.maximum, lambda x, y: (np.heaviside(x - y, 0.5), np.heaviside(y - x, 0.5))),
    "minimum": (ops.minimum, lambda x, y: (np.heaviside(y - x, 0.5), np.heaviside(x - y, 0.5))),
    "where": (lambda x, y: ops.where(x > y, x, y), lambda x, y: (x > y, x <= y)),
}
two_shapes = mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_dims=3, max_side=3)


def summed(full, shape):
    """Element by element: what each element of an array of `shape` went into."""
    total = np.zeros(shape)
    places = np.broadcast_to(np.arange(total.size).reshape(shape), full.shape)
    for place, value in zip(places.ravel(), full.ravel(), strict=True):
        total.reshape(-1)[place] += value
    return total


@pytest.mark.parametrize(("op", "slopes"), BINARY.values(), ids=BINARY)
@quick
@given(st.data())
def test_each_operand_gets_the_sum_over_where_it_was_stretched(op, slopes, data):
    shapes = data.draw(two_shapes)
    dtypes = [data.draw(floats) for _ in range(2)]
    powers_of_two = 2.0 ** whole(data.draw, shapes.input_shapes[1], low=-1, high=1)
    arrays = [whole(data.draw, shapes.input_shapes[0]), powers_of_two]
    x, y = (ts.parameter(a.astype(t)) for a, t in zip(arrays, dtypes, strict=True))
    g = whole(data.draw, shapes.result_shape)
    with ts.Tape() as tape:
        out = op(x, y)
    assert out.shape == shapes.result_shape and out.dtype == np.result_type(*dtypes)
    grads = tape.backward(out, seed=g)
    for p, slope in zip((x, y), slopes(*arrays), strict=True):
        got = grads[p]
        assert type(got) is np.ndarray and got.shape == p.shape and got.dtype == p.dtype
        full = np.broadcast_to(g * slope, shapes.result_shape)
        np.testing.assert_array_equal(got, summed(full, p.shape))


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_shared_row_counts_every_row_in_every_dtype(dtype):
    b = ts.parameter(np.zeros(3, dtype))
    with ts.Tape() as tape:
        y = np.ones((5000, 3), dtype) + b
    g = tape.backward(y, seed=np.broadcast_to(dtype(1), (5000, 3)))[b]
    np.testing.assert_array_equal(g, 5000.0)  # 2048 if summed in float16


# -- lookups -------------------------------------------------------------------------------------


@quick
@given(st.data())
def test_take_and_scatter_rows_are_transposes(data):
    shape = data.draw(table_shapes())
    ids = data.draw(row_ids(shape[0]))
    x, g = whole(data.draw, shape), whole(data.draw, (len(ids), *shape[1:]))
    placed = ops.scatter_rows(g, ids, shape[0])
    assert placed.shape == shape
    assert (ops.take(x, ids) * g).sum() == (x * placed).sum()
    X, G = ts.parameter(x), ts.parameter(g)
    with ts.Tape(densify="raise", persistent=True) as tape:
        taken = (ops.take(X, ids) * G).sum()
        scattered = (X * ops.scatter_rows(G, ids, shape[0])).sum()
    first, second = tape.backward(taken), tape.backward(scattered)
    assert type(first[X]) is IndexedSlices
    for grads in (first, second):
        dense = grads.to_dense()
        np.testing.assert_array_equal(dense[X], placed)
        np.testing.assert_array_equal(dense[G], ops.take(x, ids))


@quick
@given(st.data())
def test_a_lookup_touches_the_rows_looked_up_whatever_the_rank_of_ids(data):
    shape, dtype = data.draw(table_shapes()), data.draw(floats)
    ids = np.array(data.draw(row_ids(shape[0])), int)
    if ids.size % 2 == 0:
        ids = ids.reshape(data.draw(st.sampled_from([(2, -1), (-1, 2), (1, -1, 2), (-1,)])))
    W = ts.parameter(whole(data.draw, shape, dtype))
    with ts.Tape(densify="raise") as tape:
        rows = W[ids]
    assert rows.shape == (*ids.shape, *shape[1:]) and rows.dtype == dtype
    np.testing.assert_array_equal(rows.data, W.data[ids])
    seed = whole(data.draw, rows.shape)
    grads = tape.backward(rows, seed=seed)
    wanted = np.zeros(shape)
    np.add.at(wanted, ids, seed)
    assert grads.touched_rows(W).tolist() == np.unique(ids % shape[0]).tolist()
    assert grads[W].dtype == dtype
    np.testing.assert_array_equal(grads[W].to_dense(), wanted)


# -- chains --------------------------------------------------------------------------------------

V = 4
C = np.array([0.5, -2.0])
COLUMN = np.array([[1.0], [0.5], [-1.0], [2.0]])

# x is (V, 2); T a second table, P a matrix, b a row: parameters too
LOCAL = {
    "tanh": lambda x, T, P, b: ops.tanh(x),
    "exp": lambda x, T, P, b: ops.exp(-x * x),
    "sigmoid": lambda x, T, P, b: ops.sigmoid(x),
    "softplus": lambda x, T, P, b: ops.softplus(-x),
    "square": lambda x, T, P, b: x * x * 0.25,
    "power": lambda x, T, P, b: (x * x + 1.0) ** 0.5,
    "by a constant row": lambda x, T, P, b: x * C,
    "by a constant column": lambda x, T, P, b: COLUMN * x,
    "plus a row": lambda x, T, P, b: b - x,
    "by a table": lambda x, T, P, b: x * T,
    "largest": lambda x, T, P, b: ops.maximum(x, T),
    "where": lambda x, T, P, b: ops.where(COLUMN > 0, x, T),
    "matmul": lambda x, T, P, b: x @ P,
    "softmax": lambda x, T, P, b: ops.softmax(x),
    "log_softmax": lambda x, T, P, b: ops.log_softmax(x),
    "minus its mean": lambda x, T, P, b: x - ops.mean(x, -1, True),
    "by its max": lambda x, T, P, b: x * ops.max(x, axis=1)[:, None],
    "logsumexp": lambda x, T, P, b: ops.logsumexp(x, -1, keepdims=True) + b,
    "columns": lambda x, T, P, b: x[:, ::-1],
    "joined": lambda x, T, P, b: ops.concatenate([x, T], axis=1)[:, 1:3],
    "stacked": lambda x, T, P, b: ops.stack([x, T], axis=1).sum(1),
    "turned": lambda x, T, P, b: ops.swapaxes(x[:, None], 1, 2)[..., 0],
}
MOVING = {
    "reversed": lambda x, T, P, b: x[::-1],
    "taken": lambda x, T, P, b: x[[2, 0, 0, 3]],
    "shifted": lambda x, T, P, b: ops.concatenate([x[1:], x[:1] * T[1]]),
    "doubled": lambda x, T, P, b: ops.concatenate([T, x])[2:6],
    "reshaped": lambda x, T, P, b: ops.tanh(x.reshape(2, 2, 2)).reshape(V, 2),
    "turned in front": lambda x, T, P, b: x.reshape(2, 2, 2).transpose(1, 0, 2).reshape(V, 2),
}


def pulled(chain, seed_of):
    """Gradients by name of the chain's result, seeded by `seed_of(y)`; refuses to densify."""
    rng = np.random.default_rng(0)
    shapes = {"x": (V, 2), "T": (V, 2), "P": (2, 2), "b": (2,)}
    x, *others = (ts.parameter(rng.normal(size=s), name=name) for name, s in shapes.items())
    with ts.Tape(densify="raise") as tape:
        y = x
        for f in chain:
            y = f(y, *others)
        y, seed = seed_of(y)
    return {p.name: g for p, g in tape.backward(y, seed=seed).items()}


def check_chain(names, table, ids):
    """The lookup's gradient equals the dense one, and no table was made dense on the way."""
    chain = [table[name] for name in names]
    g = np.random.default_rng(1).normal(size=(len(ids), 2))
    sparse = pulled(chain, lambda y: (y[ids], g))
    dense = pulled(chain, lambda y: (y * 1.0, IndexedSlices(ids, g, (V, 2)).to_dense()))
    assert list(sparse) == list(dense)
    for name, got in sparse.items():
        if name in ("x", "T"):
            assert type(got) is IndexedSlices, name
            got = got.to_dense()
        wanted = dense[name] if type(dense[name]) is np.ndarray else dense[name].to_dense()
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12, err_msg=name)
    return {name: sparse[name].coalesce().indices.tolist() for name in sparse if name in "xT"}


ids_of_V = row_ids(V).filter(len)


@quick
@given(st.lists(st.sampled_from(sorted(LOCAL)), min_size=1, max_size=5), ids_of_V)
def test_a_chain_of_row_local_ops_before_a_lookup_touches_the_rows_looked_up(names, ids):
    for rows in check_chain(names, LOCAL, ids).values():
        assert rows == sorted({i % V for i in ids})


@quick
@given(
    st.lists(st.sampled_from(sorted(LOCAL | MOVING)), max_size=4),
    st.sampled_from(sorted(MOVING)),
    ids_of_V,
)
def test_a_chain_that_moves_rows_keeps_the_table_sparse(names, moving, ids):
    check_chain([*names, moving], LOCAL | MOVING, ids)


@pytest.mark.parametrize("ids", [[2, -1, 2], []], ids=["repeated", "none"])
@pytest.mark.parametrize("name", sorted(LOCAL))
def test_each_row_local_op_alone(name, ids):
    for rows in check_chain([name], LOCAL, ids).values():
        assert rows == sorted({i % V for i in ids})
