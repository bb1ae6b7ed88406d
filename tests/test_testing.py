"""The harness, tested on itself: what it must pass, what it must catch, and what it says."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
from cases import CASES

import tinygrad_sparse as ts
from tinygrad_sparse import errors, ops
from tinygrad_sparse.backend import numpy as numpy_adapter
from tinygrad_sparse.saved import LARGE
from tinygrad_sparse.testing import (
    LAWS,
    Case,
    GradientError,
    check_grads,
    check_op,
    check_vjp,
    count_bytes,
    count_ops,
    dense_twin,
    distinct,
    integers,
    no_densify,
    normal,
    planted_faults,
    recorded_ops,
)

RNG = np.random.default_rng(0)
X, Y, S = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 3)), RNG.normal(size=(3, 3))


def fails(kind, check, *args, **options):
    """The error of a check that must fail, and look like this."""
    with pytest.raises(GradientError) as error:
        check(*args, **options)
    assert error.value.kind == kind, str(error.value)
    return error.value


# -- planted faults ------------------------------------------------------------------------------


def first_cases():
    """For each op that the case table records, the first case that does: (case, its new ops)."""
    seen, first = set(), []
    for case in CASES:
        new = [op for op in recorded_ops(case) if op not in seen]
        seen.update(new)
        if new:
            first.append(pytest.param(case, new, id=" ".join(op.name for op in new)))
    return first


@pytest.mark.parametrize("case, planted", first_cases())
def test_every_planted_fault_is_seen(case, planted, record_property):
    faults = list(planted_faults(case, planted))
    missed = [str(fault) for fault in faults if fault.seen_by() is None]
    assert missed == []
    spared = set(planted) - {fault.op for fault in faults}
    assert not spared, "an op whose rule may add anything to the gradient: give it a case that sees"
    record_property("planted faults", len(faults))


def test_an_op_is_whole_again_after_a_fault():
    case = Case(ops.multiply, [normal(5, 3), normal(5, 3)])
    before = ops.multiply.op.vjp, ops.multiply.op.rows
    kinds = {fault.kind for fault in planted_faults(case) if fault.seen_by()}
    assert kinds >= {"0.1 % too much", "a flipped sign", "an entry dropped", "that of argument 1"}
    assert (ops.multiply.op.vjp, ops.multiply.op.rows) == before


def test_a_fault_that_changes_nothing_is_not_planted():
    kinds = [fault.kind for fault in planted_faults(Case(ops.add, [normal(5, 3), normal(5, 3)]))]
    always = ["0.1 % too much", "a flipped sign", "a term added", "an entry dropped"]
    assert kinds == [*always, "the sign lost"] * 2


# -- what wrong numbers look like ----------------------------------------------------------------

WRONG = [
    ("factor", np.tanh, lambda g, out, x: 1.001 * g * (1 - out**2), [X], "got = 1.001 × expected"),
    ("sign", np.tanh, lambda g, out, x: -g * (1 - out * out), [X], "got = -expected"),
    ("missing term", np.tanh, lambda g, out, x: g, [X], "got - expected is"),
    ("zero", np.tanh, lambda g, out, x: 0 * g, [X], "zero everywhere"),
    ("swapped", np.multiply, (lambda g, out, x, y: g * x, lambda g, out, x, y: g * y), [X, Y],
     "the gradient of argument 1"),
    ("transposed", lambda a: a @ X.T, lambda g, out, a: (g @ X).T, [S], "the last two axes"),
    ("factor", lambda x: x.mean(0), lambda g, out, x: g + 0 * x, [X],
     "got = 5 × expected everywhere; 5 is the length of axis 0 of the argument"),
    ("factor", lambda x: x.mean(), lambda g, out, x: g + 0 * x, [X], "15 is the size of the arg"),
    ("some entries", lambda x: x[[1, 3, 3]], lambda g, out, x: _assigned(g, x), [X],
     "the rows [3]; what arrives at one row from several ids adds up"),
    ("some entries", lambda x: x * x, lambda g, out, x: g * np.where(x == X[1, 2], x, 2 * x), [X],
     "0.5 × what it should be: the others are right, wrong are [1, 2]"),
    ("not a number", lambda x: x * x, lambda g, out, x: g * x * np.nan, [X], "in the rule"),
    ("kink", np.abs, lambda g, out, x: g * np.where(x >= 0, 1, -1), [np.array([0.0, 1.0])],
     "the slope is -1 on one side and 1 on the other"),
    ("edge", np.sqrt, lambda g, out, x: g, [np.array([0.0, 1.0])], "edge of the domain"),
    ("not linear", np.tanh, lambda g, out, x: abs(g) * (1 - out**2), [X], "size or sign"),
    ("not linear", np.tanh, lambda g, out, x: np.clip(g, -100, 100) * (1 - out**2), [X], "or sign"),
    ("unsettled", np.log, lambda g, out, x: g / x, [np.array([1e-5])], "choose eps"),
]  # fmt: skip


def _assigned(g, x):
    """The classic: assignment where addition is meant."""
    out = np.zeros_like(x)
    out[[1, 3, 3]] = g
    return out


@pytest.mark.parametrize(
    "kind, f, vjp, args, text", WRONG, ids=[f"{w[0]} {n}" for n, w in enumerate(WRONG)]
)
def test_what_it_looks_like(kind, f, vjp, args, text):
    error = fails(kind, check_vjp, f, vjp, args)
    assert text in str(error)
    assert error.argument == 0


def test_the_message_names_op_argument_index_got_and_expected():
    @ts.primitive(
        rows=ts.elementwise, vjp=(lambda g, out, x, y: g * y, lambda g, out, x, y: 2 * g * x)
    )
    def product(xp, x, y):
        return x * y

    error = fails("factor", check_grads, product, [np.array([[1.0, 3.0]]), np.array([[2.0, 5.0]])])
    assert (error.argument, error.index, error.got, error.expected) == (1, (0, 0), 2.0, 1.0)
    assert str(error) == (
        "product: gradient of argument 1 at [0, 0]: expected 1 by central differences, got 2 "
        "(float64 (1, 2); element [0, 0] of the result; wrong at 2 of 4 entries). "
        "Hint: it looks like a factor: got = 2 × expected everywhere; 2 is the length of axis 1 of "
        "the argument."
    )


def test_a_fault_of_the_second_order_alone():
    @ts.primitive(vjp=(lambda g, out, x: g * np.cos(getattr(x, "data", x)),))
    def sine(xp, x):
        return xp.sin(x)

    check_grads(sine, [X], order=1)
    assert "order 2" in str(fails("zero", check_grads, sine, [X]))


def test_a_large_argument_is_checked_along_a_direction_and_at_some_elements():
    x = RNG.normal(size=(60, 5))
    check_vjp(np.sin, lambda g, out, x: g * np.cos(x), [x])
    fails("factor", check_vjp, np.sin, lambda g, out, x: 1.001 * g * np.cos(x), [x])
    fails("factor", check_vjp, lambda x: (x**2).sum(), lambda g, out, x: 2.002 * g * x, [x])


# -- promises ------------------------------------------------------------------------------------


def writes_upstream(g, out, x):
    g *= 2
    return g * x


def writes_argument(g, out, x):
    slope = 2 * g * x
    x += 1e-9
    return slope


def needs_contiguous(g, out, x):
    return 2 * np.frombuffer(g.tobytes("A"), g.dtype).reshape(x.shape) * x


def lists_every_row(g, out, x):
    dense = np.zeros_like(x)
    np.add.at(dense, [1, 3, 3], g)
    return ts.IndexedSlices(np.arange(len(x)), dense, x.shape)


@pytest.mark.parametrize(
    "kind, f, vjp",
    [
        ("written to", lambda x: x * x, writes_upstream),
        ("written to", lambda x: x * x, writes_argument),
        ("strides", lambda x: x * x, needs_contiguous),
        ("not repeatable", lambda x: x * RNG.normal(), lambda g, out, x: g),
        ("not repeatable", lambda x: x + 0.0, lambda g, out, x: g * (1 + 1e-12 * RNG.normal())),
        ("zero upstream", lambda x: x * x, lambda g, out, x: 2 * g * x + 1e-11),
        ("shape", lambda x: X + x[:1], lambda g, out, x: g[None]),
        ("dtype", lambda x: x * x, lambda g, out, x: (2 * g * x).astype(np.float32)),
        ("untouched row", lambda x: x[[1, 3, 3]], lists_every_row),
        ("not finite", lambda x: x / 0.0, lambda g, out, x: g / 0.0),
    ],
    ids=lambda p: p if isinstance(p, str) else getattr(p, "__name__", ""),
)  # fmt: skip
def test_a_broken_promise_is_named(kind, f, vjp):
    with np.errstate(all="ignore"):
        fails(kind, check_vjp, f, vjp, [X])


def test_a_rule_that_writes_into_a_read_only_upstream_only_sometimes():
    def vjp(g, out, x):
        if g.strides == (0, 0):
            g *= 1
        return g + 0.0

    fails("written to", check_vjp, lambda x: x + 0.0, vjp, [X])


def test_a_rule_that_gives_the_same_buffer_again():
    buffer = np.zeros_like(X)
    vjp = (lambda g, out, x: np.multiply(2 * g, x, out=buffer),)
    fails("written to", check_vjp, np.square, vjp, [X])

    @ts.primitive(vjp=vjp)
    def square(xp, x):
        return xp.square(x)

    case = Case(square, [normal(5, 3)], rows="dense")
    fails("twice", next(law for law in LAWS if law.__name__ == "twice_is_double"), case)


# -- dtypes, methods, points ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_each_dtype_has_its_tolerance(dtype):
    x, w = X.astype(dtype), S.astype(dtype)
    check_grads(lambda x, w: ops.softmax(x @ w) * ops.exp(x), [x, w])
    off = {np.float64: 1e-5, np.float32: 2e-3, np.float16: 0.1}[dtype]

    @ts.primitive(vjp=(lambda g, out, x: g * (1 - out * out) * (1 + off),))
    def tanh(xp, x):
        return xp.tanh(x)

    fails("factor", check_grads, tanh, [x], order=1)


def test_a_complex_step_sees_what_differences_cannot():
    def vjp(g, out, x):
        return g * np.cos(x) * (1 + 1e-8)

    check_vjp(np.sin, vjp, [X])
    error = fails("factor", check_vjp, np.sin, vjp, [X], method="complex")
    assert "by a complex step" in str(error) and "1.00000001 × expected" in str(error)
    check_vjp(np.log, lambda g, out, x: g / x, [np.array([1e-5])], method="complex")
    check_grads(lambda x: ops.exp(x) * ops.sum(x, axis=0), [X], method="complex")
    fails("not analytic", check_grads, lambda x: (ops.abs(x), x), [X], method="complex")
    fails(
        "not analytic", check_vjp, np.abs, lambda g, out, x: g * np.sign(x), [X], method="complex"
    )
    with pytest.raises(errors.TinygradSparseError, match="check_vjp: expected a method"):
        check_vjp(np.sin, vjp, [X], method="forward")


@pytest.mark.parametrize(
    "f",
    [
        lambda x: 1e-8 * ops.tanh(x),
        lambda x: 1e8 * ops.tanh(x),
        lambda x: x - ops.mean(x),
        lambda x: ops.sum(x - ops.mean(x)),
        lambda x: ops.sum(x * 0.0),
        lambda x: x,
        lambda x: (x, ops.sum(x * x), [ops.sigmoid(x)]),
        lambda x: ts.tensor(np.ones(3)),
        lambda x: x[:0],
    ],
)
def test_rounding_is_not_taken_for_an_error(f):
    check_grads(f, [X])
    check_grads(f, [1e6 * X[:2]], order=1)


def test_a_small_scale_hides_nothing():
    fails(
        "factor",
        check_vjp,
        lambda x: 1e-8 * np.sin(x),
        lambda g, out, x: 1.001e-8 * g * np.cos(x),
        [X],
    )


def test_inputs_that_overlap_themselves_are_copied():
    x = np.broadcast_to(np.float64(1.5), (3, 2))
    check_grads(lambda x: x * x, [x])
    check_vjp(np.square, lambda g, out, x: 2 * g * x, [x])
    assert (x == 1.5).all()


def test_arguments_that_cannot_be_checked_are_refused():
    with pytest.raises(errors.DtypeError, match=r"check_grads: expected real arrays.*no float"):
        check_grads(lambda i: i, [np.arange(3)])
    with pytest.raises(errors.DtypeError, match=r"check_vjp: expected real.*complex128 \(2,\)"):
        check_vjp(np.sin, lambda g, out, x: g, [np.ones(2, complex)])
    with pytest.raises(errors.TapeError, match=r"f: expected a Tensor.*ndarray.*check_vjp"):

        def f(x):
            return x.data

        check_grads(f, [X])
    with pytest.raises(errors.TinygradSparseError, match="a cotangent for each of 2 float"):
        check_vjp(np.add, lambda g, out, x, y: g, [X, Y])
    with pytest.raises(errors.TinygradSparseError, match="for each of 2 arguments, got 1"):
        check_vjp(np.add, (lambda g, out, x, y: g,), [X, Y])


def test_arguments_without_a_vjp_are_left_alone():
    check_vjp(np.multiply, (lambda g, out, x, y: g * y, None), [X, Y])
    check_vjp(np.multiply, lambda g, out, x, y: (g * y, g * x), [X, Y])
    check_vjp(lambda x, n: x**n, (lambda g, out, x, n: n * g * x ** (n - 1), None), [X, 3])


def test_a_check_of_nothing_does_not_pass():
    message = "expected a float argument, and a VJP for it, to compare, got none"
    for vjps, args in [((None,), [X]), ((None, lambda g, out, x, n: g), [X, 3])]:
        with pytest.raises(errors.ArgumentError, match=message):
            check_vjp(lambda x, n=1: x * n, vjps, args)
    with pytest.raises(AssertionError, match=message):
        check_op(Case(lambda n: ts.tensor(n * 0.5), [integers(3, high=5)]))


def test_checking_inside_a_tape_records_nothing():
    with ts.Tape() as tape:
        check_grads(ops.tanh, [X])
    assert len(tape) == 0


# -- row-sparse gradients ------------------------------------------------------------------------


def test_lookups_of_a_large_table_at_both_orders():
    table = RNG.normal(size=(500, 3))
    check_grads(lambda w: w[[7, 7, -1]] * w[[0, 3, 3]], [table])
    check_grads(lambda w: ops.where(np.array([[1], [0]]), w[[1, 2]], 0.0), [table])


def test_a_row_of_a_large_result_is_read_although_its_gradient_is_zero():
    weights = np.array([[1.0], [0.0]])
    check_grads(lambda w: w[[1, 3]] * weights, [RNG.normal(size=(4, LARGE // 8))], order=1)


def test_a_row_that_was_lost_is_seen():
    def vjp(g, out, w):
        return ts.IndexedSlices([7, 9], g[:2], w.shape)

    error = fails(
        "some entries", check_vjp, lambda w: w[[7, 9, 400]], vjp, [RNG.normal(size=(500, 3))]
    )
    assert error.index is None or error.index[0] == 400


def test_the_dense_twin_has_the_same_gradients_and_shares_no_rows():
    table, ids = RNG.normal(size=(6, 2)), [4, 1, 4]

    def f(w):
        return (ops.tanh(w * 2.0)[ids] ** 2).sum() + (w[:3] ** 3).sum()

    sparse, dense = ts.grad(f)(table), ts.grad(dense_twin(f))(table)
    assert type(sparse) is ts.IndexedSlices and type(dense) is np.ndarray
    np.testing.assert_allclose(sparse.to_dense(), dense, rtol=1e-12)
    check_grads(dense_twin(f), [table])
    assert dense_twin(f)(ts.tensor(table)).item() == f(ts.tensor(table)).item()


def test_rows_that_were_summed_wrongly_are_seen_far_below_what_differences_see(monkeypatch):
    right = numpy_adapter.sum_duplicates

    def slightly_wrong(rows, values):
        rows, sums = right(rows, values)
        return rows, sums * (1 + 1e-9)

    monkeypatch.setattr(numpy_adapter, "sum_duplicates", slightly_wrong)
    fails("sparse", check_grads, lambda w: w[[4, 1, 4]] ** 2, [X], order=1)


def test_no_densify_refuses_on_any_tape_and_ends_with_its_block():
    w = ts.parameter(np.ones((5, 2)))

    def step():
        with ts.Tape("allow"):
            return (w - ops.mean(w, 0))[[1]].sum().backward()

    def tied():
        with ts.Tape("allow"):
            return (w[[1]] @ w.T).sum().backward()

    for f in (step, tied):
        with no_densify(), pytest.raises(errors.SparsityError, match=r"turned dense.*test_testing"):
            f()
        assert w in f()
    with no_densify(), ts.Tape() as tape:
        tape.backward((w[[1]] ** 2).sum())


# -- budgets -------------------------------------------------------------------------------------


def test_count_ops_counts_what_is_recorded():
    w = ts.parameter(np.ones((5, 2)))
    with ts.Tape():
        w * 2
        with count_ops() as counted:
            (w[[1]] * w[[2]]).sum()
            ts.tensor(np.ones(2)) * 2
            with ts.no_grad():
                w * 2
    assert counted == {"take": 2, "multiply": 1, "sum": 1}
    with ts.Tape() as tape, count_ops() as counted:
        tape.backward((w * w).sum())
    assert counted == {"square": 1, "sum": 1} and len(tape) == 2  # w * w is w squared
    with pytest.raises(errors.TapeError, match="count_ops: expected a recording Tape"):
        with count_ops():
            pass


def test_a_step_on_a_larger_table_allocates_the_same():
    peaks = []
    for size in (10_000, 10_000, 1_000_000):  # the first step loads what computes it
        w = ts.parameter(np.zeros((size, 4)))
        opt = ts.optim.SGD([w], lr=0.1)
        with count_bytes() as used:
            with ts.Tape("raise"):
                loss = (w[np.arange(1000)] ** 2).sum()
            opt.step(loss.backward())
        peaks.append(used.peak)
    assert 32_000 < peaks[1] < 320_000
    assert abs(peaks[2] - peaks[1]) < 4_000


def test_distinct_keeps_its_distance():
    x = np.sort(distinct(4, 3, gap=0.5)(np.random.default_rng(0)).ravel())
    assert (np.diff(x) > 0.499).all()


# -- strategies and plugin -----------------------------------------------------------------------


def test_strategies_say_which_extra_is_missing(monkeypatch):
    from tinygrad_sparse.testing import strategies

    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ImportError, match=r"pip install 'tinygrad_sparse\[test\]'"):
        importlib.reload(strategies)
    monkeypatch.undo()
    importlib.reload(strategies)


def test_the_harness_needs_neither_pytest_nor_hypothesis():
    code = (
        "import sys; sys.modules['pytest'] = sys.modules['hypothesis'] = None\n"
        "import numpy as np, tinygrad_sparse.testing as t\n"
        "t.check_vjp(np.sin, lambda g, out, x: g * np.cos(x), [np.ones(3)])\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_plugin_runs_laws_and_prints_one_line_each(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tinygrad_sparse.testing.pytest"]\n')
    (tmp_path / "test_mine.py").write_text(
        "from tinygrad_sparse import ops, primitive\n"
        "from tinygrad_sparse.testing import Case, normal\n"
        "@primitive(vjp=(lambda g, out, x: -g,))\n"
        "def wrong(xp, x): return x + 0\n"
        "CASES = [Case(ops.exp, [normal(5, 3)]), Case(wrong, [normal(5, 3)], rows='dense')]\n"
        "def test_law(case, law): law(case)\n"
    )
    without = [f"-pno:{plugin}" for plugin in ("cacheprovider", "hypothesispytest", "xdist")]
    command = [sys.executable, "-m", "pytest", "-q", *without, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line.split()[:4] for line in run.stdout.splitlines()]
    assert ["gradient", "1", "of", "2"] in lines, run.stdout
    assert ["repeatable", "2", "cases", "The"] in lines
    assert run.returncode == 1
