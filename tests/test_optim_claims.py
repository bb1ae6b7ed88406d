"""What a rule of one's own declares: checked where it is declared, and where it first rests."""

import re

import numpy as np
import pytest
from stepping import store

import tinygrad_sparse as ts
from tinygrad_sparse import errors, optim

ROW = ts.IndexedSlices([1], np.ones((1, 2)), (9, 2))


def terms(hyper):
    return hyper["lr"], 1.0, 1e-8


def sgd(p, g, *, lr):
    return (p - lr * g,)


def heavy(p, g, m, *, lr):
    return p - lr * (0.9 * m + g), 0.9 * m + g


def writes_p(p, g, *, lr):
    p -= lr * g
    return (p,)


def writes_m(p, g, m, *, lr):
    m *= 0.9
    return p - lr * (m + g), m + g


def scales_g(p, g, *, lr):
    g *= lr
    return (p - g,)


def bare(p, g, *, lr):
    return p - lr * g


def bare_with_m(p, g, m, *, lr):
    return np.stack([p - lr * g, m])


UNUSABLE = {
    "writes to p": (
        writes_p, {"still": True},
        "rule writes_p: expected a formula that writes to no argument, got other values in p. "
        "Hint: write p = p - lr * g, not p -= lr * g.",
    ),
    "writes to a slot": (writes_m, {"slots": ("m",), "rest": optim.linear}, "other values in m."),
    "writes to g": (scales_g, {}, "rule scales_g: expected a formula that writes to no argument, "),
    "no tuple": (
        bare, {"still": True}, "rule bare: expected the answer (p,), got one ndarray. Hint: return "
    ),
    "no tuple, with a slot": (
        bare_with_m, {"slots": ("m",)}, "rule bare_with_m: expected the answer (p, m), got one nda",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lr", [0.1, 0.0])
@pytest.mark.parametrize("grad", [ROW, np.ones((9, 2))], ids=["rows", "dense"])
@pytest.mark.parametrize(("formula", "how", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_formula_that_no_step_can_use_is_refused_before_it_sees_the_table(
    formula, how, message, grad, lr
):
    W = ts.parameter(np.ones((9, 2)))
    opt = optim.Optimizer(optim.rule(**how)(formula), [W], lr=lr, sparse="lazy")
    for _ in range(2):
        with pytest.raises(errors.ArgumentError, match=re.escape(message)):
            opt.step(store(W, grad))
    assert (W.data == 1).all() and opt.state_bytes() == 0


def test_a_formula_for_rows_of_one_size_is_not_judged_on_others():
    mixing = np.eye(2)[::-1]

    @optim.rule(per_row=())
    def mixed(p, g, *, lr):
        return (p - lr * g @ mixing,)

    W, _ = step(mixed, grad=np.ones((9, 2)))
    np.testing.assert_array_equal(W.data, 0.9)


DECLARED = {
    "a slot that the formula lacks": (
        sgd, {"slots": ("m",)},
        "rule sgd: expected the arguments (p, g, m), then settings after a *, got (p, g). Hint: ",
    ),
    "a slot that is not declared": (heavy, {}, "rule heavy: expected the arguments (p, g), then"),
    "slots by other names": (heavy, {"slots": ("v",)}, "the arguments (p, g, v), then settings"),
    "still and a rest": (
        heavy, {"slots": ("m",), "still": True, "rest": optim.linear},
        "rule heavy: expected still=True or rest=, got both. Hint: ",
    ),
    "one a row that is no slot": (
        heavy, {"slots": ("m",), "per_row": ("h",)},
        "rule heavy: expected slots among ('m',) in per_row, got ['h'].",
    ),
    "squares that are no slot": (
        heavy, {"slots": ("m",), "squares": ("v",)}, "among ('m',) in squares, got ['v'].",
    ),
    "a start of no slot": (
        sgd, {"start": {"m": "zzz"}}, "rule sgd: expected slots among () in start, got ['m'].",
    ),
    "a quotient of no slots": (
        heavy, {"slots": ("m",), "rest": optim.quotient("m", "y", terms)},
        "quotient, for heavy: expected slots among ('m',), got 'y'.",
    ),
    "a direction of too many": (
        heavy, {"slots": ("m",), "rest": optim.along(lambda m, v: m)},
        "along, for heavy: expected a direction of the slots ('m',), got ",
    ),
    "a direction without length": (
        heavy, {"slots": ("m",), "rest": optim.along(lambda m: m - 1)},
        "along, for heavy: expected a direction that is not 0 where all slots are 1, got [0.].",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("formula", "how", "message"), DECLARED.values(), ids=DECLARED)
def test_a_declaration_that_does_not_fit_its_formula(formula, how, message):
    with pytest.raises(errors.ArgumentError, match=re.escape(message)):
        optim.rule(**how)(formula)


@pytest.mark.parametrize("settings", [{}, {"initial": 1.0}], ids=str)
def test_a_setting_that_is_missing_is_named_when_the_optimizer_is_made(settings):
    rule = optim.rule(slots=("m",), start={"m": "initial"})(heavy)
    missing = "initial" if not settings else "lr"
    settings = settings or {"lr": 0.1}
    with pytest.raises(
        errors.ArgumentError, match=rf"Optimizer: expected the settings \['{missing}"
    ):
        optim.Optimizer(rule, [ts.parameter(np.ones(2))], **settings)


def counting_down(memory, *, base, step, **_):
    return {"weight": base / step}, memory


def test_a_setting_that_prepare_asks_for_is_named_when_the_optimizer_is_made():
    @optim.rule(prepare=counting_down)
    def sgd(p, g, *, weight):
        return (p - weight * g,)

    W = ts.parameter(np.ones(2))
    with pytest.raises(errors.ArgumentError, match=r"Optimizer: expected the settings \['base'\]"):
        optim.Optimizer(sgd, [W])
    opt = optim.Optimizer(sgd, [W], base=0.5)
    opt.step(store(W))
    np.testing.assert_array_equal(W.data, 0.5)


def test_a_setting_that_neither_the_user_nor_prepare_gives_is_named_at_the_first_step():
    rule = optim.rule(prepare=counting_down)(sgd)
    with pytest.raises(
        errors.ArgumentError, match=r"rule sgd: expected the settings \['lr'\], got .*prepare"
    ):
        step(rule, grad=np.ones((9, 2)), base=1.0, without="lr")


def test_the_defaults_of_a_formula_are_settings():
    @optim.rule(rest=optim.linear)
    def decaying(p, g, *, lr, decay=0.5, step=7):
        return (p - lr * (g + decay * p),)

    W, opt = step(decaying, lr=1.0)
    assert opt.groups[0]["decay"] == 0.5
    np.testing.assert_array_equal(W.data[:2, 0], [0.5, -0.5])
    W, _ = step(decaying, lr=1.0, decay=0.25)
    np.testing.assert_array_equal(W.data[:2, 0], [0.75, -0.25])
    W, _ = step(lambda settings: decaying, lr=1.0)  # only a step knows the rule
    np.testing.assert_array_equal(W.data[:2, 0], [0.5, -0.5])
    with pytest.raises(errors.DtypeError, match="a number for lr, got None"):
        optim.Optimizer(optim.rule()(lambda p, g, *, lr=None: (p,)), [W])


NO_RULES = {
    "a name": ("adam", "Optimizer: expected a Rule, then parameters, got 'adam'. Hint: an opt"),
    "a class": (optim.Adam, "Optimizer: expected a Rule, then parameters, got Adam. Hint: an opt"),
    "a formula": (sgd, "a Rule, then parameters, got sgd. Hint: @optim.rule() above a formula"),
    "a function that picks none": (
        lambda settings: "adam", "a Rule, picked by a function of a group's settings, got 'adam'.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "message"), NO_RULES.values(), ids=NO_RULES)
def test_what_is_no_rule_is_refused(rule, message):
    with pytest.raises(errors.ArgumentError, match=re.escape(message)):
        optim.Optimizer(rule, [ts.parameter(np.ones(2))], lr=0.1)


def test_arguments_the_other_way_round_are_refused():
    with pytest.raises(errors.ArgumentError, match="a Rule, then parameters, got "):
        optim.Optimizer([ts.parameter(np.ones(2))], optim.rule()(sgd), lr=0.1)


def test_a_formula_is_declared_by_whole_rows_or_by_elements_not_both():
    def mine(p, g, h, *, lr):
        return p - lr * g, h + 1.0

    by_row = optim.rule(slots=("h",), per_row=("h",))(mine)
    assert optim.rule(slots=("h",), per_row=("h",), still=True)(mine).formula.whole_rows
    message = "rule mine: expected one kind of rows for a formula: per_row= in all its declarations"
    with pytest.raises(errors.ArgumentError, match=re.escape(message)):
        optim.rule(slots=("h",))(mine)
    assert by_row.formula.whole_rows


def test_a_declaration_without_parentheses_says_what_to_write():
    message = "rule: expected keywords, got 'sgd' where they go. Hint: write @optim.rule(), or "
    with pytest.raises(errors.ArgumentError, match=re.escape(message)):
        optim.rule(sgd)


def step(rule, sparse="exact", grad=None, without=None, **settings):
    W = ts.parameter(np.ones((9, 2)), name="W")
    settings = {"lr": 0.1, "sparse": sparse, **settings}
    settings.pop(without, None)
    opt = optim.Optimizer(rule, [W], **settings)
    opt.step(store(W, ROW if grad is None else grad))
    return W, opt


def cubic(p, g, m, *, lr):
    return p - lr * m**3, 0.9 * m + g


def affine(p, g, *, lr):
    return (p - lr * (g + 1.0),)


def clipped(p, g, m, *, lr):
    return p - lr * np.minimum(m, 0.1), 0.9 * m + g


def adam_like(p, g, m, v, *, lr):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - lr * m / (np.sqrt(v) + 1e-8), m, v


CLAIMS = {
    "still, and moves": (heavy, {"slots": ("m",), "still": True}, "as still=True says"),
    "linear, and not": (cubic, {"slots": ("m",), "rest": optim.linear}, "as its rest= says"),
    "linear, and affine": (affine, {"rest": optim.linear}, "affine to rest as its rest= says"),
    "linear, and clipped": (clipped, {"slots": ("m",), "rest": optim.linear}, "clipped to rest"),
    "along what it does not follow": (
        heavy, {"slots": ("m",), "rest": optim.along(lambda m: np.sign(m))}, "heavy to rest",
    ),
    "a quotient with other terms": (
        adam_like,
        {"slots": ("m", "v"), "rest": optim.quotient("m", "v", lambda h: (2 * h["lr"], 1.0, 0.1))},
        "adam_like to rest as its rest= says: p = ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lr", [0.1, 1e-6, 0.0])
@pytest.mark.parametrize(("formula", "how", "message"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_that_the_formula_does_not_keep_is_refused(formula, how, message, lr):
    rule = optim.rule(**how)(formula)
    for _ in range(2):
        with pytest.raises(errors.SparsityError, match=re.escape(message)):
            step(rule, lr=lr)
    step(rule, sparse="lazy")
    step(rule, grad=np.ones((9, 2)))


def test_a_direction_of_any_length_is_the_same_claim():
    """The formula says how far p moves, whatever the direction's own size."""
    tables = []
    for size in (1.0, 2.0, -0.5):

        @optim.rule(slots=("m",), rest=optim.along(lambda m, size=size: size * np.sign(m)))
        def lion(p, g, m, *, lr):
            return p - lr * np.sign(0.9 * m + 0.1 * g), 0.9 * m + 0.1 * g

        W, opt = step(lion)
        for _ in range(3):
            opt.step(store(W, ts.IndexedSlices([2], np.ones((1, 2)), (9, 2))))
        tables.append(W.data)
    np.testing.assert_allclose(tables[0][1], 1 - 0.4)
    np.testing.assert_allclose(tables[1], tables[0])
    np.testing.assert_allclose(tables[2], tables[0])


def test_a_claim_is_tried_once_and_not_at_every_step():
    calls = []

    @optim.rule(still=True)
    def counting(p, g, *, lr):
        calls.append(p.shape)
        return (p - lr * g,)

    step(counting)
    first = len(calls)
    for _ in range(3):
        step(counting)
    assert len(calls) == first + 3 and first > 4
