"""Formulas printed as C compute what NumPy computes: no formula is written twice.

The kernels are the CUDA texts themselves, built for the CPU: see cuda_machines.py.
"""

import functools
import math

import cuda_machines
import numpy as np
import pytest

from tinygrad_sparse import optim
from tinygrad_sparse.backend import numpy as reference
from tinygrad_sparse.backend.cuda import plans
from tinygrad_sparse.backend.cuda.formula import generate
from tinygrad_sparse.backend.cuda.symbols import FormulaError
from tinygrad_sparse.errors import ArgumentError, ShapeError
from tinygrad_sparse.optim import rules
from tinygrad_sparse.optim.rule import Rule

machine = cuda_machines.machine


@optim.rule(slots=("m",), rest=optim.along(lambda m: np.sign(m)))
def lion(p, g, m, *, lr, beta1, beta2, weight_decay):
    """The one of docs/add-an-optimizer.md."""
    move = np.sign(beta1 * m + (1.0 - beta1) * g)
    return p - lr * (move + weight_decay * p), beta2 * m + (1.0 - beta2) * g


RULES = {name: rule for name, rule in vars(rules).items() if isinstance(rule, Rule)}
RULES["lion"] = lion
INEXACT = {"rowwise_adagrad"}  # a sum over a row, in another order than NumPy's
TOLERANCE = {"f4": 1e-4, "f8": 1e-12}


def settings_of(formula, step=3):
    names = formula.__code__.co_varnames[formula.__code__.co_argcount :]
    names = names[: formula.__code__.co_kwonlyargcount]
    hyper = {name: 0.1 + 0.05 * k for k, name in enumerate(names)}
    if "step" in hyper:
        hyper["step"] = step
    return hyper


def both(machine, formula, ids, values, table, slots, hyper, places=None, order=0, **more):
    """(what the NumPy adapter makes of the arrays, what the kernels make of them)."""
    wanted = [np.array(a) for a in (table, *slots)]
    rows = ... if ids is None else ids
    with np.errstate(all="ignore"):
        reference.plan_update(formula, rows, values, wanted[0], wanted[1:], hyper, places)()
    got = [machine.array(a) for a in (table, *slots)]
    given = [None if a is None else machine.array(a) for a in (ids, values, places)]
    plan = plans.update(
        machine.memory, formula, given[0], given[1], got[0], got[1:], hyper, given[2], **more
    )
    machine.run(plan, order)
    return wanted, got


def problem(rule, dtype, n, V=40, row=(8,), seed=0, distinct=False):
    rng = np.random.default_rng(seed)
    table = rng.uniform(0.5, 2.0, (V, *row)).astype(dtype)
    slots = [
        rng.uniform(0.5, 2.0, (V, *(1,) * len(row)) if name in rule.per_row else table.shape)
        for name in rule.slots
    ]
    ids = rng.permutation(V)[:n] if distinct else rng.integers(0, V, n)
    values = rng.normal(size=(n, *row)).astype(dtype)
    return ids, values, table, [s.astype(dtype) for s in slots]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", RULES)
def test_every_rule(machine, name, dtype):
    rule = RULES[name]
    hyper = settings_of(rule.formula)
    for n, distinct in ((1, True), (30, True), (300, False)):
        problem_ = problem(rule, dtype, n, distinct=distinct)
        wanted, got = both(machine, rule.formula, *problem_, hyper)
        _, backwards = both(machine, rule.formula, *problem_, hyper, order=1)
        for a, b, c in zip(wanted, got, backwards, strict=True):
            np.testing.assert_array_equal(b, c, "a race")
            if distinct and name not in INEXACT:
                np.testing.assert_array_equal(b, a)  # NumPy's bits
            else:
                np.testing.assert_allclose(b, a, TOLERANCE[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["adam", "rowwise_adagrad"])
@pytest.mark.parametrize("row", [(1,), (5,), (2, 3), (8,), (300,), ()])
def test_rows_of_any_shape(machine, name, row):
    rule = RULES[name]
    for n in (0, 1, 100):
        problem_ = problem(rule, "f8", n, row=row)
        wanted, got = both(machine, rule.formula, *problem_, settings_of(rule.formula))
        for a, b in zip(wanted, got, strict=True):
            np.testing.assert_allclose(b, a, 1e-12)


@pytest.mark.parametrize("name", ["adagrad", "rowwise_adagrad"])
@pytest.mark.parametrize("ids", ["repeated", "distinct", "all"])
def test_slots_may_have_the_rows_elsewhere_and_all_rows_may_change(machine, name, ids):
    rule = RULES[name]
    n = 40 if ids == "all" else 30
    rows, values, table, slots = problem(rule, "f4", n, distinct=ids != "repeated")
    hyper = settings_of(rule.formula)
    if ids == "all":
        wanted, got = both(machine, rule.formula, None, values, table, slots, hyper)
    else:
        places = np.random.default_rng(1).permutation(len(table))[rows]
        wanted, got = both(
            machine,
            rule.formula,
            rows,
            values,
            table,
            slots,
            hyper,
            places,
            repeats=ids == "repeated",
        )
    for a, b in zip(wanted, got, strict=True):
        np.testing.assert_allclose(b, a, 1e-5)


def test_settings_may_lie_on_the_device(machine):
    """Then a captured graph sees the numbers of each step."""
    rule = RULES["adam"]
    ids, values, table, slots = problem(rule, "f4", 100)
    numbers = machine.array(np.zeros(16))
    for step in (1, 2):
        hyper = settings_of(rule.formula, step)
        fresh = plans.numbers_of(rule.formula, hyper, table, slots)
        numbers[: len(fresh)] = fresh
        wanted, got = both(machine, rule.formula, ids, values, table, slots, hyper, numbers=numbers)
        for a, b in zip(wanted, got, strict=True):
            np.testing.assert_allclose(b, a, 1e-5)
        texts = {launch.kernel.text for launch in machine.launches}
        if step == 1:
            first = texts
    assert texts == first


def rested(p, g, m, *, kept, moved, decay):
    """What the closed forms of rows at rest are made of."""
    return kept * p - moved * m / (np.sqrt(np.abs(m)) + 1.0), decay * m


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("columns", ["f4", "f8"])
def test_every_row_may_have_numbers_of_its_own(machine, dtype, columns):
    rng = np.random.default_rng(0)
    table, m = rng.normal(size=(2, 40, 8)).astype(dtype)
    hyper = {
        name: machine.array(rng.random((40, 1)).astype(columns))
        for name in ("kept", "moved", "decay")
    }
    wanted, got = both(machine, rested, None, table, table, [m], hyper)
    for a, b in zip(wanted, got, strict=True):
        last = np.finfo(dtype).eps  # NumPy's answer may be float64: it is rounded once, in writing
        np.testing.assert_allclose(b, a.astype(dtype), last, last)


def test_a_setting_may_have_a_number_for_each_row(machine):
    """As with ``count="row"``: float64 columns, and NumPy's promotion with them."""
    rule = RULES["adam"]
    ids, values, table, slots = problem(rule, "f4", 30, distinct=True)
    hyper = settings_of(rule.formula)
    hyper["step"] = machine.array(np.arange(1.0, 31.0).reshape(30, 1))
    wanted, got = both(
        machine, rule.formula, np.sort(ids), values, table, slots, hyper, repeats=False
    )
    for a, b in zip(wanted, got, strict=True):
        np.testing.assert_allclose(b, a, 2e-7)


# -- what a formula may say ------------------------------------------------------------------------


def choices(p, g, m, *, lr, nesterov, cap):
    m = np.where(np.abs(g) > cap, np.sign(g) * cap, g) + 0.5 * m
    step = 2 * m if nesterov else m
    return p - lr * np.maximum(step, -1.0) ** 2, np.minimum(m, 1)


def functions(p, g, *, lr):
    far = np.exp(-np.abs(np.tanh(g))) * np.log1p(np.square(g)) + np.expm1(g) / np.cosh(g)
    return (p - lr * np.copysign(far, g) * np.hypot(g, 1.0) + np.cbrt(g) - g**3 + 2.0**g,)


def truths(p, g, *, lr):
    near = (g > -0.5) & ~(g >= 0.5) | np.isnan(g)
    return (np.where(near, p, p - lr * np.clip(g, -1.0, 1.0)) + near,)


def strong(p, g, *, lr):
    """np.sqrt of a plain number is a float64 of NumPy's own, which widens."""
    return (p - np.sqrt(lr) * g * np.float64(1.1),)


def weak(p, g, *, lr):
    return (
        p * (1 - lr) - lr * g / 3 + 0 * np.zeros_like(g) + (g > 0) * 2 - np.ones_like(p) * True,
    )


def literals(p, g, *, lr):
    return (np.where(g > 1.0, np.inf, np.where(g < -1.0, np.nan, -0.1)) - lr * p,)


def methods(p, g, *, lr):
    return (p.clip(-1.0, None).astype(np.float64) - lr * g.astype(np.float64),)


def of_settings(p, g, *, lr, n):
    best = max(lr, 0.5) if n > 2 else -lr
    return (p - best * g * (n // 2) - abs(-lr) % 0.3 + n**2 * 1e-3,)


def signed(p, g, *, lr):
    """Zeros that are equal, and are not the same."""
    return (p + g * np.copysign(1.0, lr * 0.0) - g * np.copysign(1.0, lr * -0.0),)


def forgetting(p, g, m, v, *, lr):
    """Slots that get one number all over, or are chosen by a setting."""
    ones = np.ones_like((g > 0) * 2) * np.ones_like(m)
    return p - lr * ones * g, np.zeros_like(m), np.where(lr > 0, 0.5, v)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("formula", "hyper"),
    [
        (signed, {"lr": 0.1}),
        (forgetting, {"lr": 0.1}),
        (forgetting, {"lr": -0.1}),
        (choices, {"lr": 0.1, "nesterov": True, "cap": 0.5}),
        (choices, {"lr": 0.1, "nesterov": False, "cap": 1}),
        (functions, {"lr": 0.1}),
        (truths, {"lr": 0.1}),
        (strong, {"lr": 0.1}),
        (weak, {"lr": 0.1}),
        (literals, {"lr": 0.1}),
        (methods, {"lr": 0.1}),
        (of_settings, {"lr": 0.1, "n": 3}),
        (of_settings, {"lr": 0.1, "n": 1}),
    ],
)
def test_any_elementwise_formula_gives_numpys_numbers(machine, formula, hyper, dtype):
    rng = np.random.default_rng(0)
    count = formula.__code__.co_argcount - 1
    table, *slots = rng.normal(size=(count, 50, 8)).astype(dtype)
    values = rng.normal(size=(50, 8)).astype(dtype)
    values[0, :4] = [np.nan, np.inf, -np.inf, 0.0]
    table[1, :2] = np.nan, -0.0
    wanted, got = both(machine, formula, None, values, table, slots, hyper)
    for a, b in zip(wanted, got, strict=True):
        last = 4 * np.finfo(dtype).eps  # of terms near 1; libm and NumPy round exp differently
        np.testing.assert_allclose(b, a, last, last)


def centred(p, g, h, *, lr, eps):
    """Two sums, one after the other, and a slot of one number a row."""
    g = g - g.mean(axis=1, keepdims=True)
    h = h + np.sum(g * g, axis=-1, keepdims=True)
    return p - lr * g / np.sqrt(h + eps), h


def clipped(p, g, *, lr, most):
    norm = np.sqrt((g * g).sum(axis=1, keepdims=True))
    return (p - lr * g * np.minimum(1.0, most / np.maximum(norm, 1e-30)),)


@pytest.mark.parametrize("d", [1, 31, 32, 100])
def test_formulas_that_sum_over_rows(machine, d):
    rng = np.random.default_rng(0)
    table, values = rng.normal(size=(2, 40, d))
    h, ids = rng.uniform(size=(40, 1)), rng.integers(0, 40, 40)
    for formula, slots, hyper in (
        (centred, [h], {"lr": 0.1, "eps": 1e-3}), (clipped, [], {"lr": 0.1, "most": 0.5}),
    ):  # fmt: skip
        for rows in (ids, None):
            wanted, got = both(machine, formula, rows, values, table, slots, hyper)
            for a, b in zip(wanted, got, strict=True):
                np.testing.assert_allclose(b, a, 1e-12, 1e-12)


# -- what is made once, and what is refused --------------------------------------------------------


def test_one_text_for_each_way_through_a_formula():
    def text(**hyper):
        given = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": False, **hyper}
        return generate(RULES["momentum"].formula, given, "f4", (8,), (False,))[0].text

    plain = text(weight_decay=0.0, step=5)
    assert text(weight_decay=0.0, step=6, lr=0.5) is plain
    assert text(weight_decay=0.1, step=5) is not plain
    assert text(weight_decay=0.2, step=50) is text(weight_decay=0.1, step=5)
    assert text(weight_decay=0.0, step=1) is plain
    assert text(weight_decay=0.0, step=5, nesterov=True) is not plain


def test_what_a_branch_keeps_from_being_computed_is_not():
    """A known text is looked for by repeating its arithmetic, which may have no meaning here."""

    def rooted(p, g, *, lr):
        root = 0.0
        if lr > 0.0:
            root = lr**0.5
            if root > 2.0:  # no order has the complex root of a negative number
                root = 2.0
        return (p - root * g,)

    made = [generate(rooted, {"lr": lr}, "f4") for lr in (0.25, -0.25, 0.25, 9.0)]
    assert [[float(x) for x in numbers] for _, numbers in made] == [[0.5], [], [0.5], []]
    assert made[0][0] is made[2][0]


def test_a_text_is_for_the_settings_that_were_given():
    def defaulted(p, g, *, lr, eps=1.0):
        return (p - lr * g - eps,)

    given = [{"lr": 0.1}, {"lr": 0.1, "eps": 2.0}, {"lr": 0.2}]
    numbers = [generate(defaulted, hyper, "f8")[1] for hyper in given]
    assert numbers == [[0.1], [0.1, 2.0], [0.2]]


def test_a_text_is_for_numbers_of_the_types_that_came_out():
    def scaled(p, g, *, n):
        return (np.where(g > 0, 2**n, 1) * p,)

    texts = [generate(scaled, {"n": n}, "f4")[0].text for n in (3, -3, 4)]
    assert ["const long long v" in text for text in texts] == [True, False, True]


def test_a_row_may_be_one_number_whatever_its_shape(machine):
    def summed(p, g, *, lr):
        return (lr * g.sum(axis=tuple(range(1, g.ndim)), keepdims=True),)

    for row in ((), (1,), (1, 1)):
        table, values = np.random.default_rng(0).normal(size=(2, 6, *row))
        wanted, got = both(machine, summed, None, values, table, [], {"lr": 0.1})
        np.testing.assert_array_equal(got[0], wanted[0])


def test_a_formula_may_be_any_function():
    partial = functools.partial(twice_as_far, 2.0)
    assert "// partial, printed" in generate(partial, {"lr": 0.1}, "f4")[0].text


def twice_as_far(times, p, g, *, lr):
    return [p - times * lr * g]


def test_the_host_computes_what_belongs_to_a_step():
    adam = RULES["adam"].formula
    formula, numbers = generate(adam, settings_of(adam), "f4", (8,), (False, False))
    assert "pow" not in formula.text and formula.text.count("sqrtf") == 1
    assert "// c4 = (lr / (1.0 - (beta1 ** step)))" in formula.text
    assert all(type(x) is np.float32 for x in numbers)
    assert "double" not in formula.text


def test_equal_expressions_are_computed_once():
    def twice(p, g, *, lr):
        return (p - lr * np.exp(g) * np.exp(g),)

    assert generate(twice, {"lr": 0.1}, "f8")[0].text.count("exp(") == 1


def test_what_no_rule_changes_is_neither_read_nor_written():
    def idle(p, g, v, mean, b, *, lr):
        v, b = v + g * g, b + g / np.sqrt(v + g * g)
        return p - lr * b, v, mean, b

    text = generate(idle, {"lr": 0.1}, "f4", (8,), (False,) * 3)[0].text
    for name, changes in (("p", True), ("s0", True), ("s1", False), ("s2", True)):
        assert (f"load({name}at)" in text) == (f"store({name}at," in text) == changes


HINT = "np.sqrt(x) or x ** 0.5 in place of math.sqrt(x)"
REFUSED = [
    (lambda p, g, *, lr: (p - lr * np.linalg.norm(g),), "got np.norm"),
    (lambda p, g, *, lr: (p - lr * np.cumsum(g),), "got np.cumsum"),
    (lambda p, g, *, lr: (p - lr * np.spacing(g),), "got np.spacing"),
    (lambda p, g, *, lr: (p - np.add(p, g, where=False),), "got np.add, where="),
    (lambda p, g, *, lr: (p - np.maximum.accumulate(g),), "got np.maximum.accumulate"),
    (lambda p, g, *, lr: (p - lr * g.std(),), "got .std"),
    (lambda p, g, *, lr: (p - lr * g.sum(),), "got a sum over axis=None, keepdims=False"),
    (lambda p, g, *, lr: (p - lr * g[0],), "got an index"),
    (lambda p, g, *, lr: (p if g > 0 else p - g,), "got a branch on an element"),
    (lambda p, g, *, lr: (p - math.exp(g),), "got an element as a plain number"),
    (
        lambda p, g, *, lr: (p - math.sqrt(lr) * g,),
        f"the setting lr as a fixed number. Hint: {HINT}",
    ),
    (lambda p, g, *, lr: (p - g * np.array([1.0, 2.0]),), "got an operand"),
    (lambda p, g, *, lr: (p - g * 1j,), "got an operand 1j"),
    (lambda p, g, *, lr: (p - (lr - 1) ** 0.5 * g,), "got ((lr - 1) ** 0.5), which is (5.8"),
    (lambda p, g, *, lr: (p - lr * np.ones(8) * g,), "got (lr * array(["),
    # An array of this step's lr would be the next steps' too.
    (lambda p, g, *, lr: (p - (np.where(lr > 0, lr, 1) <= lr) * g,), "got the setting (lr > 0) as"),
    (lambda p, g, *, lr: (p - np.array([g, g]).sum(axis=0),), "got an element as a plain number"),
    (lambda p, g, *, lr: (p - round(lr, 1) * g,), "got TypeError: type Setting doesn't define"),
    (lambda p, g, *, lr: (p - {0.1: 2.0}[lr] * g,), "got TypeError: unhashable type"),
    (lambda p, g, *, lr: (p - lr * g.shape[0],), "got TypeError: unsupported operand"),
    (lambda p, g, *, lr: (p - g.sum(axis=2, keepdims=True),), "got AxisError: axis 2 is out of"),
    (lambda p, g, *, lr: (p - np.floor((g > 0) * 2),), "got np.floor of int64"),
    (lambda p, g, *, lr: (p - ((g > 0) * 2) ** 3,), "got np.power of int64, int64"),
    (lambda p, g, *, lr: (p - np.where(g > 0, np.float16(2), 1),), "got np.where in float16"),
    (lambda p, g, *, lr: (p - np.reciprocal((g > 0) * 2),), "got np.reciprocal of int64"),
    (lambda p, g, *, lr: (p - g * 10**400,), "got OverflowError"),
]


@pytest.mark.parametrize(("formula", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_has_no_meaning_in_c_is_named(formula, said):
    with pytest.raises(FormulaError, match="expected NumPy's elementwise functions") as error:
        generate(formula, {"lr": 0.1}, "f4", (8,))
    assert said in str(error.value)


def test_a_sum_over_all_rows_is_refused_where_a_row_is_a_number():
    """It would be a sum over nothing: each row is one thread's."""
    with pytest.raises(FormulaError, match="got a sum over axis=None"):
        generate(lambda p, g: (p - g.sum(keepdims=True),), {}, "f4", ())


@pytest.mark.parametrize("dtype", ["i4", "f2"])
def test_numbers_of_rows_in_other_dtypes_are_refused(dtype):
    with pytest.raises(FormulaError, match="got the setting c, an array of"):
        generate(lambda p, g, *, c: (p - c * g,), {"c": np.ones((3, 1), dtype)}, "f4")


def test_a_setting_that_no_float_holds_is_refused():
    with pytest.raises(FormulaError, match="got a setting that float32 does not hold"):
        generate(lambda p, g, *, n: (p - n * g,), {"n": 10**400}, "f4")


def test_a_setting_as_an_array_of_numpys_is_told_as_what_it_is():
    with pytest.raises(FormulaError, match="got the setting lr as a fixed number"):
        generate(lambda p, g, *, lr: (p - np.array(lr) * g,), {"lr": 0.1}, "f4")


@pytest.mark.parametrize("new", [None, "a", np.ones(1)], ids=["None", "text", "array"])
def test_results_that_are_no_numbers_are_refused(new):
    with pytest.raises(FormulaError, match="got an operand"):
        generate(lambda p, g: (new,), {}, "f4")


def test_results_of_another_number_are_refused():
    for formula, said in (
        (lambda p, g: p - g, "expected a tuple of 1 results"),
        (lambda p, g: (p, g), "got 2 results"),
        (lambda p, g: ((g * g).sum(axis=1, keepdims=True),), "got one number a row"),
    ):
        with pytest.raises(ShapeError) as error:
            generate(formula, {}, "f4", (8,))
        assert said in str(error.value)


def test_tables_of_other_dtypes_are_refused(machine):
    table = np.ones((3, 4), np.float16)
    with pytest.raises(ArgumentError, match="a kernel: expected float32 or float64, got float16"):
        machine.run(plans.update(machine.memory, choices, None, table, table, [], {}))
