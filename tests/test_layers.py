"""Layers: what they compute, what they keep, and when they do nothing."""

import re

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, nn, ops


def test_dropout_keeps_what_it_scales_and_its_gradient_has_the_same_zeros():
    x = ts.parameter(np.ones((200, 50)))
    with ts.Tape():
        y = nn.dropout(x, 0.25, np.random.default_rng(0))
        loss = y.sum()
    g = loss.backward()[x]
    np.testing.assert_array_equal(g, y.data)
    assert set(np.unique(g)) == {0.0, 1 / 0.75}
    assert (g == 0).mean() == pytest.approx(0.25, abs=0.02)
    again = nn.dropout(np.ones((200, 50)), 0.25, np.random.default_rng(0))
    np.testing.assert_array_equal(again, g)


def test_dropout_at_its_ends():
    rng = np.random.default_rng(0)
    x = np.array([1.0, np.inf])
    assert nn.dropout(x, 0.0, rng) is x
    np.testing.assert_array_equal(nn.dropout(x, 1.0, rng), [0.0, 0.0])


def test_dropped_out_rows_stay_apart():
    table = ts.parameter(np.ones((9, 3)))
    with ts.Tape("raise"):
        loss = nn.dropout(table, 0.5, np.random.default_rng(0))[[4, 4, 1]].sum()
    assert loss.backward().touched_rows(table).tolist() == [1, 4]


def test_dropout_module_does_nothing_after_eval_and_is_reproducible():
    model = nn.Sequential(nn.Dropout(0.5, seed=3))
    x = np.ones((4, 5), np.float32)
    first = model(x)
    assert first.dtype == np.float32
    np.testing.assert_array_equal(nn.Dropout(0.5, seed=3)(x), first)
    assert (model(x) != first).any()  # a new draw each time
    assert model.eval()(x) is x
    assert (model.train()(x) == 0).any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_layer_norm_makes_rows_of_mean_0_and_variance_1(dtype):
    x = (np.arange(12.0).reshape(3, 4) * 100).astype(dtype)  # squares that float16 does not have
    y = nn.layer_norm(x)
    assert y.dtype == dtype
    wanted = (np.arange(4) - 1.5) / np.sqrt(1.25)
    np.testing.assert_allclose(
        y, np.tile(wanted, (3, 1)), rtol=2e-3 if dtype == np.float16 else 1e-5
    )
    np.testing.assert_array_equal(nn.layer_norm(np.full((2, 3), 7.0, dtype)), 0.0)


def test_layer_norm_module():
    norm = nn.LayerNorm(4)
    assert [name for name, _ in norm.named_parameters()] == ["weight", "bias"]
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_array_equal(norm(x).data, nn.layer_norm(x))
    norm.load_state_dict({"weight": np.full(4, 2, np.float32), "bias": np.ones(4, np.float32)})
    np.testing.assert_allclose(norm(x).data, 2 * nn.layer_norm(x) + 1, rtol=1e-6)
    two = nn.LayerNorm((2, 3), affine=False)
    assert two.parameters() == []
    np.testing.assert_allclose(two(np.arange(12.0).reshape(2, 2, 3)).mean((1, 2)), 0.0, atol=1e-12)


def test_a_row_of_layer_norm_needs_no_other():
    table = ts.parameter(np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32))
    with ts.Tape("raise"):
        loss = (nn.LayerNorm(4)(table)[[5]] ** 3).sum()
    assert loss.backward().touched_rows(table).tolist() == [5]


def test_sequential_is_one_after_the_other():
    model = nn.Sequential(nn.Linear(3, 4, seed=0), ops.relu, nn.Linear(4, 2, seed=1))
    x = np.ones((5, 3), np.float32)
    np.testing.assert_array_equal(model(x).data, model[2](ops.relu(model[0](x))).data)
    assert len(model) == 3 and list(model)[1] is ops.relu
    assert [name for name, _ in model.named_parameters()] == [
        "layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias",
    ]  # fmt: skip


def test_one_hot():
    np.testing.assert_array_equal(ops.one_hot([[1, -1]], 3), [[[0, 1, 0], [0, 0, 1]]])
    assert ops.one_hot([], 3).shape == (0, 3)
    assert ops.one_hot(np.uint8(2), 3, np.float16).dtype == np.float16
    text = "one_hot: expected ids in [0, 3), got 3 at position 1 (ids int64 (2,), 3 classes)."
    with pytest.raises(errors.RowIndexError, match=f"^{re.escape(text)}$"):
        ops.one_hot([0, 3], 3)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x: nn.dropout(x, 1.5, np.random.default_rng(0)),
            "dropout: expected p in [0, 1], got 1.5.",
        ),
        (
            lambda x: nn.dropout(x, 0.5, 0),
            "dropout: expected a random generator, got 0. "
            "Hint: np.random.default_rng(seed) makes one.",
        ),
        (lambda x: nn.Dropout(-1.0), "Dropout: expected p in [0, 1], got -1.0."),
        (lambda x: nn.LayerNorm(4)(x), "LayerNorm: expected (*batch, 4), got (2, 3)."),
        (lambda x: nn.layer_norm(x, axis=2), "layer_norm: expected an axis in [-2, 2), got 2."),
    ],
)
def test_bad_input_is_named_and_nothing_is_recorded(call, text):
    x = ts.parameter(np.ones((2, 3)))
    with ts.Tape() as tape:
        with pytest.raises(errors.TinygradSparseError, match=f"^{re.escape(text)}$"):
            call(x)
        assert len(tape) == 0


class Drops(nn.Module):
    """A layer, dropout, and a generator of its own that two attributes share."""

    def __init__(self, make=np.random.PCG64):
        self.layer = nn.Linear(3, 4, seed=0, dtype=np.float64)
        self.drop = nn.Dropout(0.5, seed=1)
        self.noise = np.random.Generator(make(2))
        self.again = [self.noise]

    def __call__(self, x):
        return self.drop(self.layer(x)) + self.noise.normal(size=4)


def trained(model, steps):
    opt = ts.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        with ts.Tape() as tape:
            loss = (model(np.arange(3.0)) ** 2).sum()
        opt.step(tape.backward(loss))
    return model.state_dict()


BITS = ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"]


@pytest.mark.parametrize("bits", BITS)
def test_training_with_dropout_goes_on_bit_for_bit_from_a_state_dict(bits, tmp_path):
    make = getattr(np.random, bits)
    first = Drops(make)
    np.savez(tmp_path / "state.npz", **trained(first, 3))
    second = Drops(make)
    with np.load(tmp_path / "state.npz", allow_pickle=False) as state:
        second.load_state_dict(dict(state))
    wanted, got = trained(first, 5), trained(second, 5)
    assert list(wanted) == ["layer.weight", "layer.bias", "drop.rng", "noise"]
    for name, a in wanted.items():
        np.testing.assert_array_equal(got[name], a, err_msg=name, strict=True)


def test_a_state_without_generators_leaves_them_as_they_are():
    model = Drops()
    state = model.state_dict()
    before = state.pop("drop.rng"), state.pop("noise")
    state["layer.bias"] += 1.0
    model.load_state_dict(state)
    np.testing.assert_array_equal(model.layer.bias.data, 1.0)
    after = model.state_dict()
    np.testing.assert_array_equal([after["drop.rng"], after["noise"]], before)


@pytest.mark.parametrize("bits", BITS)
def test_what_no_generator_can_be_is_refused_before_anything_changes(bits):
    model = Drops(getattr(np.random, bits))
    state = model.state_dict()
    others = [Drops(getattr(np.random, other)).noise for other in BITS if other != bits]
    bad = [np.full_like(state["noise"], 2**64 - 1), state["noise"][:-1], state["noise"] * 1.0]
    bad += [nn.generators.words_of(other) for other in others]
    bad[0][0] = state["noise"][0]
    for words in bad:
        changed = state | {"layer.bias": np.ones(4), "noise": words}
        with pytest.raises(errors.CheckpointError, match=r"load_state_dict: expected noise"):
            model.load_state_dict(changed)
        for name, a in model.state_dict().items():
            np.testing.assert_array_equal(a, state[name])
