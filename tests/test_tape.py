"""Tape: who records, who is freed, what was made dense, and what survives a failure."""

import contextlib
import gc
import re
import threading
import warnings
import weakref

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import DensifyWarning, IndexedSlices, errors, ops, tape


def text(message):
    return f"^{re.escape(message)}$"


def in_thread(f):
    """What f gives, or raises, in another thread."""
    result = []

    def run():
        try:
            result.append(f())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return result[0]


@pytest.fixture
def W():
    return ts.parameter(np.ones((5, 2)), name="W")


# -- what is recorded ----------------------------------------------------------------------------


def test_repr_and_len(W):
    t = ts.Tape()
    assert repr(t) == "Tape(0 ops; 0 parameters; closed)" and len(t) == 0 and t
    with t:
        assert repr(t) == "Tape(0 ops; 0 parameters; recording)"
        loss = (W * 2 * 3 + 1).sum()
        assert len(t) == 4
    assert repr(t) == "Tape(4 ops: multiply 2, add 1, sum 1; 1 parameters; closed)"
    t.backward(loss)
    assert repr(t) == "Tape(4 ops; 1 parameters; spent)" and len(t) == 4


def test_only_what_involves_a_parameter_inside_a_block_is_recorded(W):
    before = W * 2
    with ts.Tape() as t:
        ts.tensor(np.ones(2)) * 3
        np.ones(2) * 3
        W.detach() * 2
        assert not (W > 1).any()
        ops.exp(np.ones(3))
        assert len(t) == 0
        assert not (before * 2).requires_grad and not before.requires_grad
        assert (W * 2).requires_grad
    assert len(t) == 1
    assert not (W * 2).requires_grad and len(t) == 1


def test_no_grad_nests_and_ends_where_it_began(W):
    pause = ts.no_grad()
    with ts.Tape() as t:
        with pause:
            assert not (W * 2).requires_grad
            with pause, ts.no_grad():
                W * 2
            assert not (W * 2).requires_grad
            with ts.Tape() as inner:
                assert (W * 2).requires_grad
            assert not (W * 2).requires_grad
        assert (W * 2).requires_grad
        with pytest.raises(ZeroDivisionError), pause:
            raise ZeroDivisionError
        assert (W * 2).requires_grad
    assert (len(t), len(inner)) == (2, 1)


def test_an_error_in_the_block_leaves_recording_off(W):
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), ts.Tape():
            W * 2
            raise error
        assert not (W * 2).requires_grad
    with ts.Tape() as t:
        loss = (W * 2).sum()
    np.testing.assert_array_equal(t.backward(loss)[W], 2.0)


def test_a_block_inside_a_block_is_refused_and_the_outer_one_goes_on(W):
    message = (
        "Tape: expected no other Tape recording on this thread, got a Tape block inside another. "
        "Hint: ts.grad composes with itself and with a Tape; backward(create_graph=True) gives "
        "gradients of gradients; ts.no_grad() allows an unrelated Tape inside."
    )
    with ts.Tape() as outer:
        for inner in (ts.Tape(), outer):
            with pytest.raises(errors.TapeError, match=text(message)), inner:
                pass
        loss = (W * 2).sum()
    assert len(outer) == 2
    np.testing.assert_array_equal(outer.backward(loss)[W], 2.0)


# -- threads -------------------------------------------------------------------------------------


def test_a_tape_records_on_its_own_thread_only(W):
    with ts.Tape() as t:
        assert not in_thread(lambda: (W * 2).requires_grad)
        assert len(t) == 0

        def elsewhere():
            with ts.Tape() as other:
                loss = (W[[1, 1]] * 3).sum()
            return other.backward(loss)[W].to_dense()[1].tolist()

        assert in_thread(elsewhere) == [6.0, 6.0]
        assert (W * 2).requires_grad and len(t) == 1


def test_no_grad_is_per_thread_both_ways(W):
    def records():
        with ts.Tape():
            return (W * 2).requires_grad

    with ts.no_grad():
        assert in_thread(records)
    started, done = threading.Event(), threading.Event()

    def pausing():
        with ts.no_grad():
            started.set()
            done.wait(10)

    thread = threading.Thread(target=pausing)
    thread.start()
    started.wait(10)
    with ts.Tape():
        assert (W * 2).requires_grad
    done.set()
    thread.join()


def test_threads_train_as_one_does_alone(W):
    def gradient(seed):
        ids = np.random.default_rng(seed).integers(0, 5, 6)
        with ts.Tape() as t:
            loss = (ops.tanh(W[ids]) ** 2).sum()
        return t.backward(loss)[W].to_dense().tobytes()

    alone = [gradient(seed) for seed in range(8)]
    together = [None] * 8

    def work(seed):
        for _ in range(20):
            together[seed] = gradient(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


# -- what is freed -------------------------------------------------------------------------------


def test_a_step_leaves_nothing_for_the_collector(W):
    b = ts.parameter(np.zeros(2))
    opt = ts.optim.Adagrad([W, b])

    def step():
        with ts.Tape() as t:
            rows = W[[1, 3, 1]]
            loss = ops.logsumexp(ops.concatenate([rows, rows * 2]) + b)
        opt.step(2 * t.backward(loss))
        with ts.Tape() as t:
            grads = t.backward((W[[1]] ** 2).sum(), create_graph=True)
            loss = (grads[W].coalesce().values ** 2).sum()
            opt.step(t.backward(loss))
        ts.grad(ts.grad(lambda x: x**3))(np.array(2.0))
        with contextlib.suppress(errors.ShapeError):
            W + np.ones(3)

    step()
    gc.collect()
    gc.disable()
    try:
        step()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_what_backward_has_used_dies_before_the_tape(W):
    with ts.Tape() as t:
        y = ops.exp(W)
        loss = y.sum()
    saved = weakref.ref(y._data)
    del y
    assert saved() is not None
    t.backward(loss)
    assert saved() is None


def test_what_the_loss_does_not_depend_on_dies_too(W):
    with ts.Tape() as t:
        aside = ops.exp(W)
        loss = (W * 2).sum()
    saved = weakref.ref(aside._data)
    del aside
    t.backward(loss)
    assert saved() is None and len(t) == 3


def test_saved_values_die_while_backward_goes_on(W):
    alive = []

    @ts.primitive(
        rows=ts.elementwise, vjp=(lambda g, out, x: alive.append(later() is not None) or g,)
    )
    def early(xp, x):
        return x + 0

    with ts.Tape() as t:
        y = ops.exp(early(W))
        loss = (y * y).sum()
    later = weakref.ref(y._data)
    del y
    t.backward(loss)
    assert alive == [False]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_rule_that_raises_keeps_nothing_alive(W, persistent):
    @ts.primitive(rows=ts.elementwise, vjp=(lambda g, out, x: 1 / 0,))
    def faulty(xp, x):
        return x + 1

    def run():
        t = ts.Tape(persistent=persistent)
        with t:
            loss = faulty(W * 2).sum()
        with pytest.raises(ZeroDivisionError):
            t.backward(loss)
        return weakref.ref(loss), weakref.ref(t)

    gc.disable()
    try:
        loss, t = run()
        assert loss() is None and t() is None
    finally:
        gc.enable()
    assert not (W * 2).requires_grad


def test_a_rule_that_raises_says_which_one_it_was(W):
    @ts.primitive(rows=ts.elementwise, vjp=(lambda g, out, x: 1 / 0,))
    def faulty(xp, x):
        return x + 1

    with ts.Tape() as t:
        loss = faulty(W).sum()
    with pytest.raises(ZeroDivisionError) as error:
        t.backward(loss)
    assert error.value.__notes__ == [
        "in the VJP of faulty, argument 0; its arguments: float64 (5, 2)"
    ]


# -- backward once, again, and on gradients --------------------------------------------------------


def test_a_persistent_tape_gives_the_same_again(W):
    with ts.Tape(persistent=True) as t:
        y = ops.tanh(W[[1, 3]])
        loss, other = (y * y).sum(), y.sum()
    first, second = t.backward(loss), t.backward(loss)
    np.testing.assert_array_equal(first[W].to_dense(), second[W].to_dense())
    assert t.backward(other).touched_rows(W).tolist() == [1, 3]
    with t:
        assert (other * 2).requires_grad


def test_a_spent_tape_records_no_more(W):
    with ts.Tape() as t:
        loss = (W * 2).sum()
    t.backward(loss)
    message = (
        "Tape: expected a Tape that has not been used, got one whose saved values an earlier "
        "backward freed. Hint: make one Tape a step, or Tape(persistent=True), or "
        "backward(create_graph=True)."
    )
    with pytest.raises(errors.TapeError, match=text(message)), t:
        pass
    assert not (W * 2).requires_grad


def test_create_graph_records_gradients(W):
    with ts.Tape() as t:
        loss = (W[[1, 3]] ** 3).sum()
        g = t.backward(loss, create_graph=True)[W]
        assert type(g) is IndexedSlices and type(g.values) is ts.Tensor and g.values.requires_grad
        penalty = (g.coalesce().values ** 2).sum()
        second = t.backward(penalty)[W]
    # (3w²)² has the slope 36 w³
    np.testing.assert_array_equal(second.to_dense()[:, 0], [0, 36, 0, 36, 0])


def test_create_graph_with_a_seed_of_rows(W):
    seed = IndexedSlices([4, 0], np.ones((2, 2)), (5, 2))
    with ts.Tape(densify="raise") as t:
        for y in (W + 1, W * W):
            g = t.backward(y, seed=seed, create_graph=True)[W]
            assert type(g) is IndexedSlices and type(g.values) is ts.Tensor
        second = t.backward((g.coalesce().values ** 2).sum())[W]
    np.testing.assert_array_equal(second.to_dense()[:, 0], [8, 0, 0, 0, 8])  # of (2w)²


def test_create_graph_belongs_inside_the_block(W):
    with ts.Tape() as t:
        loss = (W * W).sum()
    message = (
        "backward: expected create_graph=True inside the Tape's block, got a call after it. Hint: "
        "indent the call into the with block, and compute with the gradients there."
    )
    with pytest.raises(errors.TapeError, match=text(message)):
        t.backward(loss, create_graph=True)
    np.testing.assert_array_equal(t.backward(loss)[W], 2.0)


def test_loss_backward_is_the_tapes_inside_the_block_and_after(W):
    with ts.Tape():
        inside = (W[[1]] * 2).sum().backward()
    with ts.Tape():
        loss = (W[[1]] * 2).sum()
    for grads in (inside, loss.backward()):
        np.testing.assert_array_equal(grads[W].to_dense()[1], 2.0)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_is_a_scalar_and_a_seed_has_its_shape(shape):
    x = ts.parameter(np.full(shape, 3.0))
    with ts.Tape(persistent=True) as t:
        y = x * x
    assert t.backward(y)[x].shape == shape and t.backward(y)[x].item() == 6.0
    assert t.backward(y, seed=np.full(shape, 2.0))[x].item() == 12.0


# -- what was changed in between -----------------------------------------------------------------


def test_ids_may_be_refilled_after_the_lookup(W):
    ids = np.array([1, 3])
    with ts.Tape() as t:
        loss = W[ids].sum()
        ids[:] = 0
    assert t.backward(loss).touched_rows(W).tolist() == [1, 3]


USES = {
    "multiply": lambda W, b: W * b,
    "matmul": lambda W, b: b @ W.T,
}


def refilled(debug, use, batch=lambda b: b, **kwargs):
    """The gradient of W where three batches are filled into one array."""
    W, b, total = ts.parameter(np.ones((5, 2))), np.empty(2), 0.0
    with ts.Tape(debug=debug, **kwargs) as tape:
        for k in range(3):
            b[:] = k
            total = total + use(W, batch(b)).sum()
    return tape.backward(total)[W]


@pytest.mark.parametrize("name", ["multiply", "matmul"])
def test_debug_tells_of_an_array_that_was_written_to_before_backward(name):
    right = 3.0 * np.ones((5, 2))
    assert np.array_equal(refilled(False, USES[name], np.copy), right)
    assert np.array_equal(refilled(True, USES[name], np.copy), right)
    assert np.array_equal(refilled(True, USES[name], ts.tensor), right)
    wrong = (
        rf"^backward of {name}: expected argument [01], float64 \(2,\), as it was in the forward, "
        r"got 2\.0 at \[0\], 1\.0 before, at .*test_tape\.py:\d+\. Hint: .*ts\.tensor\(x\)"
    )
    for kwargs in ({}, {"persistent": True}, {"profile": True}):
        with pytest.raises(errors.TapeError, match=wrong):
            refilled(True, USES[name], **kwargs)


def test_debug_sees_masks_layers_and_views_and_no_change_where_none_matters():
    mask, x = np.array([True, False]), np.ones((4, 2), np.float32)
    layer, W = ts.nn.Linear(2, 2, seed=0), ts.parameter(np.ones(2))
    for use, write in (
        (lambda: ops.where(mask, W, 0.0), lambda: mask.fill(True)),
        (lambda: layer(x), lambda: x.fill(7.0)),
        (lambda: layer(x[::2]), lambda: x.fill(8.0)),
    ):
        with ts.Tape(debug=True) as tape:
            loss = use().sum()
        write()
        with pytest.raises(errors.TapeError, match="as it was in the forward"):
            tape.backward(loss)
    nan = np.array([np.nan, 1.0])
    with ts.Tape(debug=True) as tape:
        loss = (W * nan + x[0]).sum()
        unused = W * x[1]
    x.fill(9.0)  # a sum's rule does not read it, and the loss does not depend on the other
    assert np.array_equal(tape.backward(loss)[W], nan, equal_nan=True)
    assert unused.shape == (2,)


def test_debug_goes_with_gradients_of_gradients():
    W = ts.parameter(np.full(2, 3.0))
    with ts.Tape(debug=True) as tape:
        slope = tape.backward((W**3 * np.ones(2)).sum(), create_graph=True)[W]
        curved = (slope * slope).sum()
    assert np.array_equal(tape.backward(curved)[W], 2 * 27.0 * 18.0 * np.ones(2))


def test_values_cannot_be_changed_by_accident(W):
    with ts.Tape() as t:
        y = W * 1.0
        loss = (y * y).sum()
        for view in (y.data, y.T.data, y.detach().data, np.asarray(y.detach()), W.data):
            with pytest.raises(ValueError, match="read-only"):
                view[0] = 9.0
        for copy in (y.numpy(), W.numpy(), np.from_dlpack(y.detach())):
            copy[0] = 9.0
    np.testing.assert_array_equal(t.backward(loss)[W], 2.0)


# -- densify -------------------------------------------------------------------------------------

BIG = 2**21 + 1  # float64 rows of one: a little more than 16 MiB


def turns_dense(x, i=0):
    """A row of the running sums: they need every row above."""
    return ops.cumsum(x, 0)[[i]].sum()


HERE = turns_dense.__code__.co_firstlineno + 2


def test_the_ledger_names_op_shape_bytes_and_the_users_line(W):
    with ts.Tape("allow") as t:
        loss = turns_dense(W) + W[[1]].sum()
    g = t.backward(loss)[W]
    assert t.densified == [
        ("cumsum", (5, 2), 80, f"{__file__}:{HERE}"),
        ("cumsum, added to a dense gradient", (5, 2), 80, f"{__file__}:{HERE}"),
    ]
    assert t.densified[0].op == "cumsum" and t.densified[0].nbytes == 80
    np.testing.assert_array_equal(g[:, 0], [1, 1, 0, 0, 0])


def test_raise_says_what_to_do_and_leaves_the_parameter_alone(W):
    with ts.Tape("raise") as t:
        loss = turns_dense(W)
    message = (
        "cumsum: expected an op that keeps rows apart, got a row-sparse gradient (5, 2), which "
        f"would become 80 dense bytes at {__file__}:{HERE}. Hint: look the rows up before this op, "
        "f(W[ids]) instead of f(W)[ids], or give the op a row rule; Tape(densify='allow') accepts "
        "the cost."
    )
    with pytest.raises(errors.SparsityError, match=text(message)):
        t.backward(loss)
    assert [record.op for record in t.densified] == ["cumsum"]


def test_a_custom_op_without_a_row_rule_is_named_with_its_line(W):
    @ts.primitive(vjp=(lambda g, out, x: g,))
    def unary(xp, x):
        return x + 0

    @ts.primitive(rows=ts.rowwise("rs", when=lambda *_, **__: False), vjp=(lambda g, *_: g,) * 2)
    def binary(xp, x, y):
        return x + y

    with ts.Tape("allow") as t:
        loss = unary(W)[[1]].sum()
        line = line_of_last_op()
        loss = loss + binary(W, W)[[1]].sum()
    t.backward(loss)
    assert [(d.op, d.where) for d in t.densified[:2]] == [
        ("binary", f"{__file__}:{line + 1}"),
        ("unary", f"{__file__}:{line - 1}"),
    ]


def line_of_last_op():
    return tape.sys._getframe(1).f_lineno


def test_a_package_whose_name_begins_like_ours_is_a_user(W):
    space = {"__name__": "tinygrad_sparse_extras", "ops": ops}
    exec(
        compile("\n\ndef f(x):\n    return ops.cumsum(x, 0)[[0]].sum()", "extras.py", "exec"), space
    )
    with ts.Tape("allow") as t:
        loss = space["f"](W)
    t.backward(loss)
    assert t.densified[0].where == "extras.py:4"


def test_a_large_one_warns_once_a_line_whatever_the_number_of_steps(monkeypatch):
    monkeypatch.setattr(tape, "_warned", set())
    x = ts.parameter(np.zeros((BIG, 1)))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            with ts.Tape() as t:
                loss = turns_dense(x)
            t.backward(loss)
            assert len(t.densified) == 1
    assert len(seen) == 1
    (warning,) = seen
    assert warning.category is DensifyWarning
    assert (warning.filename, warning.lineno) == (__file__, HERE)
    assert str(warning.message) == (
        f"cumsum: expected an op that keeps rows apart, got a row-sparse gradient ({BIG}, 1), "
        f"which would become {8 * BIG:,} dense bytes at {__file__}:{HERE}. Hint: look the rows up "
        "before this op, f(W[ids]) instead of f(W)[ids], or give the op a row rule; "
        "Tape(densify='allow') accepts the cost."
    )


def test_a_small_one_and_an_allowed_one_are_only_noted(W, monkeypatch):
    monkeypatch.setattr(tape, "_warned", set())
    small = ts.parameter(np.zeros((BIG - 1, 1)))  # exactly 16 MiB
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x, mode in [(W, "warn"), (small, "warn"), (small, "allow")]:
            with ts.Tape(mode) as t:
                loss = turns_dense(x)
            t.backward(loss)
            assert len(t.densified) == 1
    assert tape._warned == set()
