"""Losses: known numbers, extremes, rows that stay apart, refusals."""

import re

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, nn, ops

HUGE = {np.float64: 1e300, np.float32: 1e38, np.float16: 6e4}
LOGITS = np.log([[1.0, 2.0, 1.0], [1.0, 1.0, 2.0], [4.0, 2.0, 2.0]])  # softmax: quarters, halves
LN2 = np.log(2)


def gradient(f, *arrays):
    leaves = [ts.parameter(np.asarray(a)) for a in arrays]
    with ts.Tape("raise"):
        out = f(*leaves)
    grads = out.backward(seed=np.ones(out.shape))
    return [grads[leaf] for leaf in leaves]


# -- classes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "each"),
    [
        ({}, [2 * LN2, LN2, LN2]),
        ({"weight": [3.0, 1.0, 5.0]}, [6 * LN2, 5 * LN2, 3 * LN2]),
        ({"ignore_index": 2}, [2 * LN2, 0.0, LN2]),
        # ε = 0.3: 0.7 of the loss, 0.1 of the sum over the classes, which is (2 + 1 + 2) log 2
        ({"label_smoothing": 0.3}, [1.9 * LN2, 1.2 * LN2, 1.2 * LN2]),
        # the sums of weighted losses: 6 + 1 + 10, 6 + 2 + 5, 3 + 2 + 10
        (
            {"label_smoothing": 0.3, "weight": [3.0, 1.0, 5.0]},
            [(4.2 + 1.7) * LN2, (3.5 + 1.3) * LN2, (2.1 + 1.5) * LN2],
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_cross_entropy_has_the_values_that_pytorch_has(options, each):
    targets = [0, 2, 0]
    weights = np.array(options.get("weight", [1.0, 1.0, 1.0]))[targets]
    weights = np.where(np.array(targets) == options.get("ignore_index"), 0.0, weights)
    for given in (LOGITS, ts.tensor(LOGITS)):
        loss = [
            np.asarray(nn.cross_entropy(given, targets, reduction, **options))
            for reduction in ("none", "sum", "mean")
        ]
        np.testing.assert_allclose(loss[0], each)
        np.testing.assert_allclose(loss[1], np.sum(each))
        np.testing.assert_allclose(loss[2], np.sum(each) / weights.sum())
    if "label_smoothing" not in options:
        log_probs = ops.log_softmax(LOGITS)
        np.testing.assert_allclose(nn.nll(log_probs, targets, "none", **options), each)


def test_ignored_targets_may_be_anything_and_all_of_them_make_a_loss_of_zero():
    for ignored in (-100, -1, 3, 2):
        targets = [ignored, 1, ignored]
        assert nn.cross_entropy(LOGITS, targets, ignore_index=ignored) == pytest.approx(2 * LN2)
        (g,) = gradient(
            lambda x, t=targets, i=ignored: nn.cross_entropy(x, t, ignore_index=i), LOGITS
        )
        np.testing.assert_array_equal(g[[0, 2]], 0.0)
        loss = nn.cross_entropy(LOGITS, [ignored] * 3, ignore_index=ignored)
        assert loss == 0.0
    assert nn.cross_entropy(np.zeros((0, 3)), []) == 0.0


def test_class_ids_have_any_rank_and_integer_dtype():
    x = LOGITS[None]
    for ids in (np.array([[0, 2, 0]]), np.array([[0, 2, 0]], np.uint8)):
        np.testing.assert_allclose(nn.cross_entropy(x, ids, "none"), [[2 * LN2, LN2, LN2]])


@pytest.mark.parametrize("loss", [nn.cross_entropy, nn.nll])
def test_a_negative_target_is_refused_unless_it_is_the_one_to_ignore(loss):
    with pytest.raises(errors.RowIndexError) as error:
        loss(LOGITS, [0, -1, 0])
    assert str(error.value) == (
        f"{loss.__name__}: expected ids in [0, 3), got -1 at position 1 (ids int64 (3,), scores "
        "(3, 3)). Hint: ignore_index=-1 leaves such targets out."
    )
    with pytest.raises(errors.RowIndexError, match=r"got -100 .* Hint: ignore_index=-100 "):
        loss(LOGITS, [0, -1, -100], ignore_index=-1)
    np.testing.assert_allclose(
        loss(LOGITS, [0, -1, 0], ignore_index=-1), loss(LOGITS[[0, 2]], [0, 0])
    )


def test_a_confident_loss_far_from_zero_keeps_its_digits():
    logits = np.array([[1000.0, 995.0]], np.float32)
    assert nn.cross_entropy(logits, [0]) == pytest.approx(np.log1p(np.exp(-5.0)), rel=1e-5)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_only_looked_up_rows_of_logits_get_a_gradient(reduction):
    table = ts.parameter(np.random.default_rng(0).normal(size=(9, 3)))
    with ts.Tape("raise"):
        losses = nn.cross_entropy(
            table * 2.0, [0, 1, 2] * 3, "none", weight=[1.0, 2.0, 3.0], label_smoothing=0.1,
            ignore_index=7,
        )  # fmt: skip
        loss = losses[[7, 2]].sum()
    assert loss.backward().touched_rows(table).tolist() == [2, 7]


# -- probabilities -------------------------------------------------------------------------------


def test_bce_with_logits_has_the_values_that_pytorch_has():
    x = np.array([0.0, np.log(3.0)])  # sigmoid: 1/2, 3/4
    t = np.array([1.0, 0.0])
    np.testing.assert_allclose(nn.bce_with_logits(x, t, "none"), [LN2, 2 * LN2])
    np.testing.assert_allclose(nn.bce_with_logits(x, t, "none", pos_weight=3.0), [3 * LN2, 2 * LN2])
    np.testing.assert_allclose(nn.bce_with_logits(x, t, weight=[2.0, 1.0]), 2 * LN2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_bce_is_stable_at_any_logit(dtype):
    x = np.array([1000.0, -1000.0, 1000.0, -1000.0], dtype)
    t = np.array([1, 0, 0, 1])
    for options in ({}, {"pos_weight": np.array(1.0)}):
        losses = nn.bce_with_logits(ts.tensor(x), t, "none", **options)
        assert losses.dtype == dtype
        np.testing.assert_array_equal(losses.data, [0.0, 0.0, 1000.0, 1000.0])
        (g,) = gradient(lambda x, o=options: nn.bce_with_logits(x, t, "sum", **o), x)
        np.testing.assert_array_equal(g, [0.0, 0.0, 1.0, -1.0])


def test_kl_div_of_halves_and_quarters():
    p, q = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), np.log([[0.25, 0.25, 0.5]] * 2)
    np.testing.assert_allclose(nn.kl_div(q, p, "none"), [LN2, 2 * LN2])
    np.testing.assert_allclose(nn.kl_div(q, p), 1.5 * LN2)
    logs = np.where(p > 0, np.log(np.where(p > 0, p, 1.0)), -np.inf)
    np.testing.assert_allclose(nn.kl_div(q, logs, "none", log_target=True), [LN2, 2 * LN2])


def test_kl_div_where_both_are_impossible():
    p, q = np.array([[1.0, 0.0]]), np.array([[0.0, -np.inf]])
    for targets, logs in ((p, False), (q, True)):
        g, _ = gradient(lambda q, t, o=logs: nn.kl_div(q, t, log_target=o), q, targets)
        np.testing.assert_array_equal(g, [[-1.0, 0.0]])


# -- differences, vectors, scores ----------------------------------------------------------------


def test_huber_is_a_parabola_and_then_two_lines():
    d = np.array([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
    zero = np.zeros(7)
    losses = nn.huber(d, zero, delta=2.0, reduction="none")
    np.testing.assert_array_equal(losses, [4.0, 2.0, 0.5, 0.0, 0.5, 2.0, 4.0])
    g, _ = gradient(lambda x, y: nn.huber(x, y, "sum", 2.0), d, zero)
    np.testing.assert_array_equal(g, np.clip(d, -2.0, 2.0))
    second = ts.grad(lambda x: ops.sum(ts.grad(lambda x: nn.huber(x, zero, "sum", 2.0))(x)))(d)
    np.testing.assert_array_equal(second[2:5], [1.0, 1.0, 1.0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_losses_of_huge_numbers_do_not_overflow_on_the_way(dtype):
    x = np.array([HUGE[dtype], 1.0, 0.0], dtype)
    zero = np.zeros(3, dtype)
    np.testing.assert_array_equal(
        nn.huber(x, zero, reduction="none"), x - np.array([0.5, 0.5, 0], dtype)
    )
    assert nn.l1(x[:1], zero[:1]) == x[0]
    np.testing.assert_allclose(nn.cosine_similarity(x, np.array([1, 0, 0], dtype)), 1.0)
    far = np.array([[HUGE[dtype] / 2, 0.0]], dtype)
    _, p, _ = gradient(lambda a, p, n: nn.triplet(a, p, n, 1.0), 0 * far, far, 0 * far)
    np.testing.assert_array_equal(p, [[1.0, 0.0]])


def test_losses_of_tiny_vectors_do_not_vanish_on_the_way():
    x, y = np.array([3e-200, 4e-200]), np.array([4e-200, 3e-200])
    assert nn.cosine_similarity(x, y) == pytest.approx(0.96)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_vectors_of_length_zero_have_gradient_zero(dtype):
    x, y = np.zeros((1, 2), dtype), np.array([[3.0, 4.0]], dtype)
    for pair in ((x, y), (y, x), (x, x)):
        assert nn.cosine_similarity(*pair) == 0.0
        for g in gradient(nn.cosine_similarity, *pair):
            np.testing.assert_array_equal(g, 0.0)
    for g in gradient(nn.triplet, y, y, y):
        np.testing.assert_array_equal(g, 0.0)


def test_triplet_pulls_and_pushes():
    a, p, n = np.zeros((1, 2)), np.array([[3.0, 4.0]]), np.array([[0.0, 5.5]])
    ga, gp, gn = gradient(lambda *x: nn.triplet(*x, margin=1.0), a, p, n)
    np.testing.assert_allclose(gp, [[0.6, 0.8]])
    np.testing.assert_allclose(gn, [[0.0, -1.0]])
    np.testing.assert_allclose(ga, -gp - gn)
    assert nn.triplet(a, p, n, margin=0.25) == 0.0


def test_rankings_and_hinges():
    x, y, order = np.array([1.0, 2.0]), np.array([3.0, 1.0]), np.array([1, -1])
    np.testing.assert_array_equal(nn.margin_ranking(x, y, order, 0.5, "none"), [2.5, 1.5])
    np.testing.assert_array_equal(nn.hinge(x, [-1, 1], reduction="none"), [2.0, 0.0])


# -- a sample of the classes ---------------------------------------------------------------------


def everything(rows, classes):
    """Every class as a negative of every row, drawn evenly."""
    return np.tile(np.arange(classes), (rows, 1)), np.zeros((rows, classes))


def test_sampled_softmax_over_every_class_is_cross_entropy():
    rng = np.random.default_rng(0)
    hidden, table, bias = rng.normal(size=(5, 3)), rng.normal(size=(7, 3)), rng.normal(size=7)
    targets = np.array([0, 6, 2, 2, 5])
    negatives, log_q = everything(5, 7)

    def sampled(hidden, table, bias):
        zero = np.zeros(5)
        return nn.sampled_softmax(hidden, table, targets, negatives, zero, log_q, bias=bias)

    def whole(hidden, table, bias):
        return nn.cross_entropy(hidden @ table.T + bias, targets)

    np.testing.assert_allclose(sampled(hidden, table, bias), whole(hidden, table, bias))
    for got, wanted in zip(
        gradient(sampled, hidden, table, bias), gradient(whole, hidden, table, bias), strict=True
    ):
        got = got.to_dense() if type(got) is ts.IndexedSlices else got
        np.testing.assert_allclose(got, wanted, atol=1e-15)


def test_sampled_softmax_takes_log_q_from_the_scores():
    hidden, table = np.zeros((1, 2)), np.zeros((4, 2))
    log_q = np.log([0.25]), np.log([0.5, 0.5])
    # e⁰/q: 4 for the target, 2 and 2 for the others
    loss = nn.sampled_softmax(hidden, table, [0], [1, 2], *log_q)
    assert loss == pytest.approx(LN2)
    loss = nn.sampled_softmax(hidden, table, [0], [1, 0], *log_q)  # the target is left out
    assert loss == pytest.approx(np.log(6 / 4))


def test_nce_asks_target_or_noise():
    hidden, table = np.zeros((1, 2)), np.zeros((4, 2))
    loss = nn.nce(hidden, table, [0], [1, 2], np.log([0.25]), np.log([0.5, 0.5]))
    # e⁰ against S·q = 0.5 for the target, 1 and 1 for the noise
    assert loss == pytest.approx(np.log(1.5) + LN2 + LN2)


@pytest.mark.parametrize("loss", [nn.sampled_softmax, nn.nce])
@pytest.mark.parametrize("negatives", [[3, 5, 3], [[3, 5, 3], [5, 5, 1]]], ids=["shared", "apart"])
def test_only_the_looked_up_classes_get_a_gradient(loss, negatives):
    rng = np.random.default_rng(0)
    hidden = ts.parameter(rng.normal(size=(2, 4)).astype(np.float32))
    table = ts.parameter(rng.normal(size=(1000, 4)).astype(np.float32))
    bias = ts.parameter(np.zeros(1000, np.float32))
    log_q = np.log([0.1, 0.1]), np.full(np.shape(negatives), -1.0)
    with ts.Tape("raise") as tape:
        value = loss(hidden, table, [999, 0], negatives, *log_q, bias=bias)
    assert value.dtype == np.float32  # float64 log q or not
    grads = tape.backward(value)
    expected = sorted({0, 999} | set(np.ravel(negatives).tolist()))
    for leaf in (table, bias):
        assert grads.touched_rows(leaf).tolist() == expected
    assert not tape.densified


# -- dtypes and refusals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: nn.mse(x, np.ones((2, 3))),
        lambda x: nn.l1(np.ones((2, 3)), x),
        lambda x: nn.huber(x, np.ones((2, 3), int)),
        lambda x: nn.hinge(x, np.ones((2, 3), int)),
        lambda x: nn.margin_ranking(x, np.ones((2, 3)), np.ones((2, 3), int)),
        lambda x: nn.bce_with_logits(
            x, np.ones((2, 3), int), weight=np.ones(3), pos_weight=np.ones(3)
        ),
        lambda x: nn.kl_div(x, np.ones((2, 3))),
        lambda x: nn.cross_entropy(x, [0, 1], weight=np.ones(3), label_smoothing=0.1),
        lambda x: nn.cosine_similarity(x, np.ones(3)),
    ],
)
def test_labels_and_targets_do_not_widen_a_loss(loss):
    assert loss(ts.tensor(np.zeros((2, 3), np.float32))).dtype == np.float32


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (
            lambda x: nn.cross_entropy(x, [0, 3]),
            errors.RowIndexError,
            "cross_entropy: expected ids in [0, 3), got 3 at position 1 "
            "(ids int64 (2,), scores (2, 3)).",
        ),
        (
            lambda x: nn.cross_entropy(x, [0.0, 1.0]),
            errors.RowIndexError,
            "cross_entropy: expected integer ids, got float64 (2,), scores (2, 3). "
            "Hint: ids.astype(int).",
        ),
        (
            lambda x: nn.nll(x, [0]),
            errors.ShapeError,
            "nll: expected targets (2,), got (1,).",
        ),
        (
            lambda x: nn.cross_entropy(x, [0, 1], weight=[1.0]),
            errors.ShapeError,
            "cross_entropy: expected weight (3,), got (1,).",
        ),
        (
            lambda x: nn.cross_entropy(x, [0, 1], label_smoothing=1.5),
            errors.TinygradSparseError,
            "cross_entropy: expected label_smoothing in [0, 1], got 1.5.",
        ),
        (
            lambda x: nn.mse(x, np.ones((2, 1))),
            errors.ShapeError,
            "mse: expected arrays of one shape, got x (2, 3), y (2, 1).",
        ),
        (
            lambda x: nn.huber(x, x, delta=0.0),
            errors.TinygradSparseError,
            "huber: expected delta > 0, got 0.0.",
        ),
        (
            lambda x: nn.sampled_softmax(x, np.ones((5, 4)), [0, 1], [2], [0.0] * 2, [0.0]),
            errors.ShapeError,
            "sampled_softmax: expected hidden (B, d) and table (C, d), got float64 (2, 3) and "
            "float64 (5, 4).",
        ),
        (
            lambda x: nn.nce(x, np.ones((5, 3)), [0], [2], [0.0], [0.0]),
            errors.ShapeError,
            "nce: expected targets (2,) and negatives (S,) or (2, S), got (1,) and (1,).",
        ),
        (
            lambda x: nn.nce(x, np.ones((5, 3)), [0, 1], [2], [0.0], [0.0]),
            errors.ShapeError,
            "nce: expected log q (2,) and (1,), got (1,) and (1,).",
        ),
        (
            lambda x: nn.nce(x, np.ones((5, 3)), [0, 1], [9], [0.0] * 2, [0.0]),
            errors.RowIndexError,
            "nce: expected ids in [0, 5), got 9 at position 0 (ids int64 (1,), table (5, 3)).",
        ),
    ],
)
def test_bad_input_is_named_and_nothing_is_recorded(call, kind, text):
    x = ts.parameter(np.ones((2, 3)))
    with ts.Tape() as tape:
        with pytest.raises(kind, match=f"^{re.escape(text)}$"):
            call(x)
        assert len(tape) == 0


ONES = np.ones((1, 3))


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("cross_entropy", [[0]]),
        ("nll", [[0]]),
        ("bce_with_logits", [ONES]),
        ("kl_div", [ONES]),
        ("mse", [ONES]),
        ("l1", [ONES]),
        ("huber", [ONES]),
        ("triplet", [ONES, ONES]),
        ("margin_ranking", [ONES, ONES]),
        ("hinge", [ONES]),
        ("sampled_softmax", [ONES, [0], [0], [0.0], [0.0]]),
        ("nce", [ONES, [0], [0], [0.0], [0.0]]),
    ],
)
def test_an_unknown_reduction_is_named_and_nothing_is_recorded(op, arguments):
    x = ts.parameter(ONES)
    text = f"{op}: expected reduction 'mean', 'sum' or 'none', got 'average'."
    with ts.Tape() as tape:
        with pytest.raises(errors.TinygradSparseError, match=f"^{re.escape(text)}$"):
            getattr(nn, op)(x, *arguments, reduction="average")
        assert len(tape) == 0
