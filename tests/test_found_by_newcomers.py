"""What readers of the README alone ran into: silent no-ops, and errors without a way on."""

import re

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, nn, ops, optim, testing
from tinygrad_sparse.testing import Case, check_op, normal


def gradients(W, ids=(1,)):
    with ts.Tape() as tape:
        loss = (W[list(ids)] ** 2).sum()
    return tape.backward(loss)


def test_a_step_that_finds_none_of_its_parameters_says_so_until_one_was_stepped():
    W, other = ts.parameter(np.ones((4, 2)), name="W"), ts.parameter(np.ones(2), name="other")
    opt = optim.SGD([other], lr=0.1)
    message = r"step: expected gradients of SGD's other \(2,\), got W \(4, 2\)\. Hint: "
    with pytest.warns(UserWarning, match=message) as told:
        opt.step(gradients(W))
    assert told[0].filename == __file__
    opt.step(ts.GradStore())
    with ts.Tape() as tape:
        loss = other.sum()
    opt.step(tape.backward(loss))
    opt.step(gradients(W))  # a batch that does not use it


def test_a_parameter_of_a_module_is_not_replaced_by_what_no_optimizer_trains():
    model = nn.Linear(2, 2, seed=0)
    weight, message = model.weight, r"Linear: expected a parameter or None as weight, .*\.assign\("
    with ts.Tape():
        tracked = model.weight - 0.1
    for value in (np.ones((2, 2)), [[1.0]], 3.0, model.weight - 0.1, tracked, weight.detach()):
        with pytest.raises(errors.TapeError, match=message):
            model.weight = value
    assert model.weight is weight
    model.weight.assign(np.ones((2, 2), np.float32))
    model.bias, model.weight = None, ts.parameter(np.ones((2, 2)))
    assert len(model.parameters()) == 1
    vars(model).update(weight=weight.detach())  # where that is meant
    assert not model.parameters()


@pytest.mark.parametrize(
    "use",
    [
        lambda g: g == 0,
        lambda g: g != np.zeros((4, 2)),
        lambda g: g == g.coalesce(),
        lambda g: g[1],
        lambda g: g.sum(),
        lambda g: g.numpy(),
    ],
)
def test_rows_that_are_used_as_an_array_say_what_they_are(use):
    W = ts.parameter(np.ones((4, 2)))
    g = gradients(W, [1, 1])[W]
    with pytest.raises((TypeError, AttributeError), match=r"g\.indices and g\.values have the ro"):
        use(g)
    assert g in [None, "x", g] and len({g, g}) == 1 and not hasattr(g, "sum")


def test_a_lost_parameter_is_told_where_it_shows():
    W = ts.parameter(np.ones((4, 2)))
    g = gradients(W)[W]
    W -= 0.1 * g.to_dense()
    with ts.Tape() as tape:
        loss = (W**2).sum()
    for f in (loss.backward, lambda: tape.backward(loss), lambda: optim.SGD([W], lr=0.1)):
        with pytest.raises(errors.TapeError, match=r"a parameter lost\? .* W\.assign\(values\)"):
            f()


def test_a_state_with_other_settings_says_which_are_missing_and_unknown():
    def made(kind=optim.SGD, **settings):
        return kind([ts.parameter(np.ones(2))], **settings)

    scheduled, constant = made(lr=optim.cosine(0.1, 9)), made(lr=0.1)
    with pytest.raises(errors.CheckpointError, match=r"without \['lr'\], which was a schedule th"):
        constant.load_state_dict(scheduled.state_dict())
    other = r"got \['eps', .*\] missing, \['momentum', .*\] unknown"
    with pytest.raises(errors.CheckpointError, match=other):
        made(optim.Adagrad, lr=0.1).load_state_dict(constant.state_dict())


@ts.primitive(
    rows=ts.rowwise("r"), vjp=(lambda g, out, x: ops.flip(ops.cumsum(ops.flip(g, 0), 0), 0),)
)
def running(xp, x):
    """Sums of all rows up to each: no row by row op, whatever it says."""
    return xp.cumsum(x, axis=0)


@ts.primitive(rows=ts.elementwise, vjp=(lambda g, out, x: g[:2],))
def shortened(xp, x):
    """Twice x, with a gradient of another shape."""
    return x * 2


def test_check_op_says_first_what_is_wrong():
    with pytest.raises(AssertionError, match="the row rule of running is wrong for argument 0"):
        check_op(Case(running, [normal(5, 3)]))
    with pytest.raises(
        AssertionError, match=r"^ShapeError: VJP of shortened, argument 0: expected"
    ):
        check_op(Case(shortened, [normal(5, 3)]))


X = np.ones(3)
CALLS = {
    "targets first": (lambda: nn.cross_entropy(np.array([0, 1]), np.ones((2, 3))),
                      "are they the wrong way round? cross_entropy(scores, ids)"),
    "text ids": (lambda: nn.Embedding(4, 2)(["a"]), "nn.hash_ids(keys, V) makes ids of text."),
    "an integer": (lambda: ts.grad(lambda x: x * x)(3), "Hint: write 3.0 for 3."),
    "no list": (lambda: testing.check_grads(lambda x: (x * x).sum(), X), "check_grads(..., [x])"),
    "no list of arrays": (lambda: testing.check_vjp(np.sin, lambda g, out, x: g * np.cos(x), X),
                          "check_vjp: expected a list of arguments, got ndarray."),
    "a vjp without out": (lambda: testing.check_vjp(np.sin, lambda g, x: g * np.cos(x), [X]),
                          "check_vjp: expected a vjp that takes (g, out, argument 0), got <lam"),
    "a vjp of a list": (lambda: testing.check_vjp(np.sin, [lambda g, x: g * np.cos(x)], [X]),
                        "check_vjp: expected a vjp that takes (g, out, argument 0), got <lam"),
    "beta1": (lambda: optim.Adam([ts.parameter(X)], lr=0.1, beta1=0.9),
              "Adam(..., betas=(0.9, 0.999)) sets both"),
    "a list of layers": (lambda: nn.Sequential([nn.Linear(2, 2), ops.relu]),
                         "Sequential(*layers) of a list"),
    "a class for a layer": (lambda: nn.Sequential(nn.Linear), "got the class Linear. Hint: Seq"),
    "forward": (lambda: nn.Linear(2, 2).forward(X), "write model(x)"),
    "an optimizer made": (lambda: testing.check_rule(optim.Adam([ts.parameter(X)])),
                          "check_rule: expected a Rule, or what makes an optimizer, got Adam"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_an_error_says_how_to_go_on(name):
    call, message = CALLS[name]
    with pytest.raises(Exception, match=re.escape(message)):
        call()


@pytest.mark.parametrize("value", [None, "abc", 1j])
def test_what_has_no_float_is_not_told_to_be_cast(value):
    with pytest.raises(errors.DtypeError) as error:
        ts.parameter(value)
    assert "Hint" not in str(error.value)


def test_a_file_of_another_shape_is_named_and_not_what_lies_beside_it(tmp_path):
    W = ts.parameter_file(tmp_path / "w.npy", (30, 2))
    with pytest.raises(errors.CheckpointError, match=r"float32 \(31, 2\) in \S*w\.npy, as"):
        ts.parameter_file(tmp_path / "w.npy", (31, 2))
    assert W.shape == (30, 2)
