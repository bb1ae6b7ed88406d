"""Random graphs on this engine and on a naive one: values and gradients agree after any sequence.

One persistent Tape a run, on which everything happens: reuse, broadcasting, lookups of lookups,
values cut off, recording paused, several backward passes, gradients fed back into the graph.
"""

import math

import numpy as np
import reference as ref
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule

import tinygrad_sparse as ts
from tinygrad_sparse import ops
from tinygrad_sparse.slices import densify, is_sparse
from tinygrad_sparse.testing.strategies import row_indices

LARGE = 40  # elements: a larger result is not kept
FAR = 1e3  # nor is one that has grown so far that rounding would show

ONE = {
    "tanh": (ops.tanh, ref.tanh),
    "square": (lambda x: x * x, lambda x: ref.product(x, x)),
    "negative": (lambda x: -x, lambda x: ref.linear(np.negative, x)),
    "halve": (lambda x: 0.5 * x, lambda x: ref.linear(lambda v: 0.5 * v, x)),
    "exp of tanh": (lambda x: ops.exp(ops.tanh(x)), lambda x: ref.exp(ref.tanh(x))),
    "sigmoid": (ops.sigmoid, ref.sigmoid),
}
TWO = {
    "add": (lambda x, y: x + y, ref.add),
    "subtract": (lambda x, y: x - y, lambda x, y: ref.linear(np.subtract, x, y)),
    "multiply": (lambda x, y: x * y, ref.product),
    "divide": (
        lambda x, y: x / (1.0 + y * y),
        lambda x, y: ref.product(x, ref.reciprocal(ref.plus_one(ref.product(y, y)))),
    ),
}


class Graphs(RuleBasedStateMachine):
    """Pairs of a Tensor and a Jet: the same value on both engines."""

    pairs = Bundle("pairs")

    @initialize(target=pairs, seed=st.integers(0, 99), narrow=st.booleans())
    def leaves(self, seed, narrow):
        rng = np.random.default_rng(seed)
        values = [rng.integers(-8, 9, size=shape) / 8 for shape in [(3, 2), (2,), (1, 2)]]
        values[1] = values[1].astype(np.float32 if narrow else np.float64)
        self.made = []
        self.tolerance = 1e-3 if narrow else 1e-9
        self.rng = rng
        self.tape = ts.Tape("allow", persistent=True)
        self.tape.__enter__()
        self.n = sum(v.size for v in values)
        self.leaves_, self.starts, jets, start = [], [], [], 0
        for v in values:
            self.leaves_.append(ts.parameter(v))
            self.starts.append(start)
            jets.append(ref.leaf(v, start, self.n))
            start += v.size
        return multiple(*zip(self.leaves_, jets, strict=True))

    def keep(self, x, jet):
        """The pair as a target, once its value was compared; nothing if it grew too large."""
        assert x.shape == jet.shape
        self.close(x.data, jet.value)
        if x.size > LARGE or np.abs(jet.value).max(initial=0.0) > FAR:
            return multiple()
        self.made.append((x, jet))
        return multiple((x, jet))

    def close(self, got, wanted):
        scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=self.tolerance * scale)

    # -- ops -------------------------------------------------------------------------------------

    @rule(target=pairs, x=pairs, name=st.sampled_from([*ONE, "tanh", "square"]))
    def one(self, x, name):
        ours, theirs = ONE[name]
        return self.keep(ours(x[0]), theirs(x[1]))

    @rule(target=pairs, x=pairs, y=pairs, name=st.sampled_from([*TWO, "multiply"]))
    def two(self, x, y, name):
        (x, p), (y, q) = x, y
        # of the shorter shape only the last axes meet some
        pairs = zip(x.shape[::-1], y.shape[::-1], strict=False)
        if any(m != n and 1 not in (m, n) for m, n in pairs):
            y, q = ops.sum(y), ref.total(q)  # shapes that do not broadcast: then a scalar
        ours, theirs = TWO[name]
        return self.keep(ours(x, y), theirs(p, q))

    @rule(target=pairs, x=pairs, y=pairs)
    def matmul(self, x, y):
        (x, p), (y, q) = x, y
        if x.ndim != 2 or y.ndim != 2:
            return multiple()
        if x.shape[1] != y.shape[0]:
            y, q = y.T, ref.linear(np.transpose, q)
        if x.shape[1] != y.shape[0]:
            y, q = x.T, ref.linear(np.transpose, p)
        return self.keep(x @ y, ref.matmul(p, q))

    @rule(target=pairs, x=pairs, data=st.data(), times=st.integers(1, 2))
    def lookup(self, x, data, times):
        x, jet = x
        for _ in range(times if x.ndim else 0):
            ids = data.draw(row_indices(x.shape[0], max_length=5, rank=None if times == 1 else 1))
            at = ids.astype(np.int64)
            x, jet = x[ids], ref.linear(lambda v, at=at: v[at], jet)
        return self.keep(x, jet)

    @rule(target=pairs, x=pairs, data=st.data())
    def rows_and_elements(self, x, data):
        """One table looked up by rows and by elements: row-sparse gradients of two kinds meet."""
        x, jet = x
        if x.ndim < 2:
            return multiple()
        rows = data.draw(row_indices(x.shape[0], max_length=3)).astype(np.int64)
        elements = data.draw(row_indices(x.size, max_length=3)).astype(np.int64)
        y, z = x[rows], x.reshape(-1)[elements]
        p = ref.linear(lambda v: v[rows], jet)
        q = ref.linear(lambda v: v.ravel()[elements], jet)
        return self.keep(
            ops.sum(y * y) + ops.sum(z * z),
            ref.add(ref.total(ref.product(p, p)), ref.total(ref.product(q, q))),
        )

    @rule(target=pairs, x=pairs, part=st.slices(4))
    def cut(self, x, part):
        x, jet = x
        if not x.ndim:
            return multiple()
        return self.keep(x[part], ref.linear(lambda v: v[part], jet))

    @rule(target=pairs, x=pairs, data=st.data(), keepdims=st.booleans())
    def total(self, x, data, keepdims):
        x, jet = x
        axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
        return self.keep(ops.sum(x, axis, keepdims), ref.total(jet, axis, keepdims))

    @rule(target=pairs, x=pairs, turn=st.sampled_from(["transpose", "flatten", "column", "row"]))
    def turn(self, x, turn):
        x, jet = x
        ours, theirs = {
            "transpose": (lambda x: x.T, np.transpose),
            "flatten": (lambda x: x.reshape(-1), np.ravel),
            "column": (lambda x: x[..., None], lambda v: v[..., None]),
            "row": (lambda x: ops.expand_dims(x, 0), lambda v: v[None]),
        }[turn]
        return self.keep(ours(x), ref.linear(theirs, jet))

    @rule(target=pairs, x=pairs, y=pairs)
    def join(self, x, y):
        (x, p), (y, q) = x, y
        if not x.ndim or x.ndim != y.ndim or x.shape[1:] != y.shape[1:]:
            return multiple()
        joined = ref.linear(lambda v, w: np.concatenate([v, w]), p, q)
        return self.keep(ops.concatenate([x, y]), joined)

    @rule(target=pairs, x=pairs, y=pairs, seed=st.integers(0, 9))
    def choose(self, x, y, seed):
        (x, p), (y, q) = x, y
        if x.shape != y.shape:
            return multiple()
        mask = np.random.default_rng(seed).random(x.shape) < 0.5
        return self.keep(ops.where(mask, x, y), ref.linear(lambda v, w: np.where(mask, v, w), p, q))

    @rule(target=pairs, x=pairs, dtype=st.sampled_from([np.float32, np.float64]))
    def cast(self, x, dtype):
        x, jet = x
        if dtype == np.float32:
            self.made = []
        self.tolerance = 1e-3
        return self.keep(x.astype(dtype), jet)

    # -- cutting the graph -----------------------------------------------------------------------

    @rule(target=pairs, x=pairs, how=st.sampled_from(["detach", "no_grad", "data"]))
    def cut_off(self, x, how):
        x, jet = x
        if not x.requires_grad:
            return multiple()
        with ts.no_grad():
            y = {"detach": x.detach, "no_grad": lambda: x * 1.0, "data": lambda: ts.tensor(x.data)}[
                how
            ]()
        assert not y.requires_grad
        return self.keep(y, ref.constant(jet.value, self.n))

    # -- gradients -------------------------------------------------------------------------------

    @rule(x=pairs, sparse=st.booleans(), data=st.data())
    def backward(self, x, sparse, data):
        x, jet = x
        w, seed = self.weights(x.shape), None
        if sparse and x.ndim:
            ids = data.draw(row_indices(x.shape[0], max_length=4))
            rows = self.weights((len(ids), *x.shape[1:]))
            seed = ts.IndexedSlices(ids, rows.astype(x.dtype), x.shape)
            w = np.zeros(x.shape)
            np.add.at(w, ids.astype(np.int64), rows)
        self.compare(x, jet, w, seed)

    def weights(self, shape):
        return self.rng.integers(-4, 5, size=shape) / 4

    def compare(self, x, jet, w, seed=None):
        """Gradients of Σ w · x by every leaf, and the rows of those that are row-sparse."""
        if not x.requires_grad or any(x is p for p in self.leaves_):
            return  # a leaf is no result: backward refuses it
        grads = self.tape.backward(x, seed=w if seed is None else seed)
        wanted = ref.gradient(jet, w).value
        for p, block in zip(self.leaves_, self.blocks(wanted), strict=True):
            g = grads.get(p)
            if g is None:
                assert not block.any()
                continue
            assert g.dtype == p.dtype
            self.close(densify(g), block)
            if is_sparse(g):
                rows = grads.touched_rows(p)
                assert (np.diff(rows) > 0).all()
                flat = block.reshape(math.prod(p.shape[: g.lead]), math.prod(p.shape[g.lead :]))
                used = np.flatnonzero((np.abs(flat) > 0.01).any(axis=1))
                assert set(used) <= set(rows)

    def blocks(self, wanted):
        for p, start in zip(self.leaves_, self.starts, strict=True):
            yield wanted[start : start + p.size].reshape(p.shape)

    @rule(target=pairs, x=pairs, data=st.data())
    def gradient(self, x, data):
        """A gradient becomes a value of the graph: second order."""
        x, jet = x
        if jet.curve is None or not x.requires_grad:
            return multiple()
        w = self.weights(x.shape)
        loss = ops.sum(x * w)
        grads = self.tape.backward(loss, create_graph=True)
        which = data.draw(st.sampled_from([k for k, p in enumerate(self.leaves_) if p in grads]))
        p, start = self.leaves_[which], self.starts[which]
        wanted = ref.gradient(jet, w)
        block = ref.linear(lambda v: v[start : start + p.size].reshape(p.shape), wanted)
        g = densify(grads[p]) * 1.0
        self.compare(g, block, self.weights(p.shape))
        return self.keep(g, block)

    def teardown(self):
        try:
            # all paths at once, so that all kinds of cotangents meet at the leaves
            sum_, jet = ts.tensor(0.0), ref.constant(0.0, self.n)
            for x, p in self.made:
                w = self.weights(x.shape)
                weighed = ref.product(p, ref.constant(w, self.n))
                sum_, jet = sum_ + ops.sum(x * w), ref.add(jet, ref.total(weighed))
            self.compare(sum_, jet, np.array(1.0))
        finally:
            self.tape.__exit__(None, None, None)


TestGraphs = Graphs.TestCase
TestGraphs.settings = settings(
    max_examples=200,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
