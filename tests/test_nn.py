"""Modules and losses: the tree of parameters, its saved state, layers, and known values."""

import re

import numpy as np
import pytest
from strategies import FLOATS

import tinygrad_sparse as ts
from tinygrad_sparse import IndexedSlices, errors, nn, ops


def text(message):
    return f"^{re.escape(message)}$"


class Tree(nn.Module):
    """Every place in which a parameter may be found."""

    def __init__(self):
        self.second = nn.Linear(2, 3, seed=0)
        self.first = ts.parameter(np.zeros(2), name="own")
        self.layers = [nn.Linear(3, 3, bias=False, seed=1), (nn.Embedding(4, 2, seed=2),)]
        self.named = {"b": ts.parameter(np.ones(1)), "a": nn.Linear(1, 1, seed=3)}
        self.tied = self.second.weight
        self.constant = ts.tensor(np.ones(2))
        self.other = None, 3, "text", np.ones(2)


NAMES = [
    "second.weight", "second.bias", "first", "layers.0.weight", "layers.1.0.weight",
    "named.b", "named.a.weight", "named.a.bias",
]  # fmt: skip


# -- Module --------------------------------------------------------------------------------------


def test_parameters_are_found_once_in_order_of_assignment():
    tree = Tree()
    assert [name for name, _ in tree.named_parameters()] == NAMES
    assert tree.parameters() == [p for _, p in tree.named_parameters()]
    assert tree.parameters()[0] is tree.second.weight
    assert nn.Module().parameters() == []


def test_a_module_that_refers_back_to_its_owner_is_walked_once():
    parent, child = nn.Module(), nn.Module()
    parent.child, child.parent, child.w = child, parent, ts.parameter(np.ones(1))
    parent.again = child
    assert [name for name, _ in parent.named_parameters()] == ["child.w"]
    assert [name for name, _ in child.named_parameters()] == ["w"]
    parent.eval()
    assert not child.training


def test_two_parameters_under_one_name_are_refused():
    model = nn.Module()
    model.d = {"a.b": ts.parameter(np.ones(1)), "a": {"b": ts.parameter(np.ones(1))}}
    message = "Module: expected a name for each parameter, got 'd.a.b' twice."
    with pytest.raises(errors.TinygradSparseError, match=text(message)):
        model.state_dict()


def test_train_and_eval_reach_every_module_below():
    tree = Tree()
    modules = [tree, tree.second, tree.layers[0], tree.layers[1][0], tree.named["a"]]
    assert all(m.training for m in modules)
    assert tree.eval() is tree and not any(m.training for m in modules)
    assert tree.train() is tree and all(m.training for m in modules)
    assert tree.train(False) is tree and not any(m.training for m in modules)
    assert [name for name, _ in tree.named_parameters()] == NAMES


def test_to_keeps_what_is_there_already():
    tree = Tree()
    before = tree.parameters()
    assert tree.to("cpu") is tree and tree.parameters() == before
    with pytest.raises(errors.TinygradSparseError, match=r"^device: expected "):
        tree.to("tpu")


def test_a_module_without_a_call_says_so():
    with pytest.raises(TypeError, match=r"^Tree: a Module needs its own __call__$"):
        Tree()(1)


def test_a_missing_attribute_is_reported_as_python_does():
    class Model(nn.Module):
        @property
        def broken(self):
            return self.nothing

    with pytest.raises(AttributeError, match="'Model' object has no attribute 'nothing'"):
        Model().broken


def test_state_dict_round_trip(tmp_path):
    tree, other = Tree(), Tree()
    for i, p in enumerate(other.parameters()):
        p._overwrite(np.full(p.shape, i, p.dtype))
    state = other.state_dict()
    assert list(state) == NAMES and {type(a) for a in state.values()} == {np.ndarray}
    np.savez(tmp_path / "state.npz", **state)
    kept = tree.parameters()
    with np.load(tmp_path / "state.npz") as saved:
        tree.load_state_dict(saved)
    assert tree.parameters() == kept and tree.tied is tree.second.weight
    for name, p in tree.named_parameters():
        assert p.data.tobytes() == state[name].tobytes()
    state["first"][:] = 77
    assert (other.first.data == 2).all() and (tree.first.data == 2).all()


def test_loading_between_forward_and_backward_makes_backward_refuse():
    layer = nn.Linear(2, 2, seed=0)
    with ts.Tape() as tape:
        loss = layer(np.ones((1, 2), np.float32)).sum()
    layer.load_state_dict(layer.state_dict())
    with pytest.raises(errors.TapeError, match="as it was in the forward"):
        tape.backward(loss)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: None, "load_state_dict: expected arrays by name, got NoneType."),
        (lambda s: {"bias": s["bias"]},
         "load_state_dict: expected exactly the names ['bias', 'weight'], got missing ['weight'], "
         "unknown []."),
        (lambda s: {**s, "more": 1},
         "load_state_dict: expected exactly the names ['bias', 'weight'], got missing [], unknown "
         "['more']."),
        (lambda s: {**s, "bias": np.ones((1, 3), np.float32)},
         "load_state_dict: expected bias float32 (3,), got float32 (1, 3)."),
        (lambda s: {**s, "bias": np.ones(3)},
         "load_state_dict: expected bias float32 (3,), got float64 (3,)."),
        (lambda s: {**s, "bias": None},
         "load_state_dict: expected bias float32 (3,), got object ()."),
    ],
    ids=["not a dict", "missing", "unknown", "shape", "dtype", "object"],
)  # fmt: skip
def test_bad_state_is_refused_and_changes_nothing(spoil, message):
    layer = nn.Linear(2, 3, seed=0)
    before = {name: a.tobytes() for name, a in layer.state_dict().items()}
    good = {name: a + 1 for name, a in layer.state_dict().items()}
    with pytest.raises(errors.CheckpointError, match=text(message)):
        layer.load_state_dict(spoil(good))
    assert {name: a.tobytes() for name, a in layer.state_dict().items()} == before
    layer.load_state_dict(good)
    np.testing.assert_array_equal(layer.bias.data, 1.0)


# -- layers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (5,), (2, 5), (0,)])
def test_linear(batch):
    layer = nn.Linear(2, 3, seed=0, dtype=np.float64)
    layer.bias._overwrite(np.arange(3.0))
    x = np.random.default_rng(0).normal(size=(*batch, 2))
    with ts.Tape() as tape:
        y = layer(x)
    np.testing.assert_allclose(y.data, x @ layer.weight.numpy() + np.arange(3.0))
    grads = tape.backward(y, seed=np.ones(y.shape))
    rows = x.reshape(-1, 2)
    np.testing.assert_allclose(grads[layer.weight], rows.T @ np.ones((len(rows), 3)))
    np.testing.assert_allclose(grads[layer.bias], np.full(3, len(rows)))


def test_linear_starts_within_its_bound_and_from_its_seed():
    layer = nn.Linear(30, 20, seed=1)
    assert layer.weight.dtype == layer.bias.dtype == np.float32
    assert np.abs(layer.weight.data).max() <= (6 / 50) ** 0.5 and not layer.bias.data.any()
    assert layer.weight.data.tobytes() == nn.Linear(30, 20, seed=1).weight.data.tobytes()
    assert layer.weight.data.tobytes() != nn.Linear(30, 20, seed=2).weight.data.tobytes()
    assert nn.Linear(2, 3, bias=False).bias is None
    assert [n for n, _ in nn.Linear(2, 3, bias=False).named_parameters()] == ["weight"]


@pytest.mark.parametrize(
    "ids", [3, [0, 3, 3], [[0, 1], [3, 3]], [], np.zeros((2, 0), int)], ids=str
)
def test_embedding(ids):
    table = nn.Embedding(4, 2, seed=0)
    with ts.Tape(densify="raise") as tape:
        rows = table(ids)
        loss = (rows * 2).sum()
    np.testing.assert_array_equal(rows.data, table.weight.data[np.array(ids, int)])
    assert rows.shape == (*np.shape(ids), 2) and rows.dtype == np.float32
    g = tape.backward(loss)[table.weight]
    wanted = np.zeros((4, 2))
    np.add.at(wanted, np.array(ids, int), 2)
    assert type(g) is IndexedSlices and g.dtype == np.float32
    np.testing.assert_array_equal(g.to_dense(), wanted)


def test_embedding_starts_from_its_seed():
    table = nn.Embedding(2000, 4, std=0.5, seed=1, dtype=np.float16)
    assert table.weight.dtype == np.float16 and table.weight.name == "embedding.weight"
    assert abs(table.weight.data.astype(float).std() - 0.5) < 0.02
    same = nn.Embedding(2000, 4, std=0.5, seed=1, dtype=np.float16)
    assert same.weight.data.tobytes() == table.weight.data.tobytes()


# -- losses --------------------------------------------------------------------------------------


def value_and_gradient(loss, logits, *args, **options):
    x = ts.parameter(logits)
    with ts.Tape(densify="raise") as tape:
        out = loss(x, *args, **options)
    return out.data, tape.backward(out, seed=np.ones(out.shape))[x]


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropy_is_exact_where_softmax_then_log_is_not(dtype):
    value, g = value_and_gradient(nn.cross_entropy, np.array([[1000, 0]], dtype), [1])
    assert value == 1000.0 and value.dtype == g.dtype == dtype
    np.testing.assert_array_equal(g, [[1.0, -1.0]])
    value, g = value_and_gradient(nn.cross_entropy, np.array([[1000, 0]], dtype), [0])
    assert value == 0.0
    np.testing.assert_array_equal(g, [[0.0, 0.0]])


def test_a_class_that_is_ruled_out_costs_nothing():
    value, g = value_and_gradient(nn.cross_entropy, np.array([[0.0, -np.inf]]), [0])
    assert value == 0.0
    np.testing.assert_array_equal(g, [[0.0, 0.0]])


def test_cross_entropy_by_hand():
    logits = np.log([[1.0, 3.0], [1.0, 1.0], [3.0, 1.0]])
    each = -np.log([0.25, 0.5, 0.75])
    for reduction, wanted, scale in [
        ("none", each, 1.0), ("sum", each.sum(), 1.0), ("mean", each.mean(), 1 / 3),
    ]:  # fmt: skip
        value, g = value_and_gradient(nn.cross_entropy, logits, [0, 1, 0], reduction=reduction)
        np.testing.assert_allclose(value, wanted)
        slope = np.array([[-0.75, 0.75], [0.5, -0.5], [-0.25, 0.25]])
        np.testing.assert_allclose(g, slope * scale, rtol=1e-12)
    value, g = value_and_gradient(nn.cross_entropy, logits.reshape(1, 3, 2), [[0, 1, 0]])
    np.testing.assert_allclose(value, each.mean())
    value, _ = value_and_gradient(nn.cross_entropy, logits[0], 1)
    np.testing.assert_allclose(value, -np.log(0.75))
    assert nn.cross_entropy([[0.0, 0.0]], [0]) == np.log(2)


def test_float16_losses_of_a_large_batch_do_not_overflow_on_the_way():
    logits = np.zeros((3000, 2), np.float16)
    logits[:, 0] = 60
    for loss, target in [(nn.cross_entropy, np.ones(3000, int)), (nn.bce_with_logits, 0.0)]:
        value, g = value_and_gradient(loss, logits, target)  # the sum of 180,000 is no float16
        assert value.dtype == g.dtype == np.float16 and np.isfinite(g).all() and g.any()
        np.testing.assert_allclose(value, 60 if loss is nn.cross_entropy else 30.34, rtol=1e-3)


def test_rows_of_a_loss_keep_the_table_sparse():
    table = nn.Embedding(50, 3, seed=0)
    with ts.Tape(densify="raise") as tape:
        loss = nn.cross_entropy(table.weight, np.arange(50) % 3, reduction="none")[[7, 9, 7]].sum()
        loss = loss + nn.bce_with_logits(table.weight, 1.0, reduction="none")[[2]].sum()
    assert tape.backward(loss).touched_rows(table.weight).tolist() == [2, 7, 9]


@pytest.mark.parametrize("dtype", FLOATS)
def test_bce_with_logits_is_stable_and_keeps_the_dtype(dtype):
    logits = np.array([1000, -1000, 1000, -1000, 0], dtype)
    for targets in ([1, 0, 0, 1, 1], np.array([1, 0, 0, 1, 1], float), ts.tensor([1, 0, 0, 1, 1])):
        value, g = value_and_gradient(nn.bce_with_logits, logits, targets, reduction="none")
        assert value.dtype == g.dtype == dtype
        np.testing.assert_allclose(value, [0, 0, 1000, 1000, np.log(2)], rtol=1e-3)
        np.testing.assert_array_equal(g, [0, 0, 1, -1, -0.5])


def test_bce_with_logits_by_hand():
    logits, t = np.log([1.0, 3.0]), np.array([1.0, 0.25])  # probabilities 1/2 and 3/4
    each = [np.log(2), -0.25 * np.log(0.75) - 0.75 * np.log(0.25)]
    value, g = value_and_gradient(nn.bce_with_logits, logits, t)
    np.testing.assert_allclose(value, np.mean(each))
    np.testing.assert_allclose(g, [-0.25, 0.25])
    value, _ = value_and_gradient(nn.bce_with_logits, logits, t, reduction="sum")
    np.testing.assert_allclose(value, np.sum(each))
    assert nn.bce_with_logits([0.0], 1.0) == np.log(2)


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (lambda x: nn.cross_entropy(x, [0, 1, 3]), errors.RowIndexError,
         "cross_entropy: expected ids in [0, 2), got 3 at position 2 (ids int64 (3,), scores "
         "(3, 2))."),
        (lambda x: nn.cross_entropy(x, [0.0, 1.0, 1.0]), errors.RowIndexError,
         "cross_entropy: expected integer ids, got float64 (3,), scores (3, 2). Hint: "
         "ids.astype(int)."),
        (lambda x: nn.cross_entropy(x, [True, False, True]), errors.RowIndexError,
         "cross_entropy: expected integer ids, got bool (3,), scores (3, 2). Hint: "
         "np.flatnonzero(mask) gives the rows of a mask."),
        (lambda x: nn.cross_entropy(x, [[0], [1], [1]]), errors.ShapeError,
         "cross_entropy: expected targets (3,), got (3, 1)."),
        (lambda x: nn.cross_entropy(x, [0, 1]), errors.ShapeError,
         "cross_entropy: expected targets (3,), got (2,)."),
        (lambda x: nn.cross_entropy(x, [0, 1, 1], reduction="avg"), errors.TinygradSparseError,
         "cross_entropy: expected reduction 'mean', 'sum' or 'none', got 'avg'."),
        (lambda x: nn.cross_entropy(ops.sum(x.detach()), [0]), errors.ShapeError,
         "cross_entropy: expected scores (*batch, C), got float64 ()."),
        (lambda x: nn.bce_with_logits(x, np.ones((3, 3))), errors.ShapeError,
         "bce_with_logits: expected targets that broadcast to (3, 2), got (3, 3)."),
        (lambda x: nn.bce_with_logits(x, np.ones((4, 3, 2))), errors.ShapeError,
         "bce_with_logits: expected targets that broadcast to (3, 2), got (4, 3, 2)."),
        (lambda x: nn.bce_with_logits(x, ["yes", "no"]), errors.DtypeError,
         "bce_with_logits: expected real numbers, arrays or Tensors, got list (<U3)."),
        (lambda x: nn.bce_with_logits(x, 1.0, reduction=None), errors.TinygradSparseError,
         "bce_with_logits: expected reduction 'mean', 'sum' or 'none', got None."),
    ],
)  # fmt: skip
def test_bad_targets_are_named_and_nothing_is_recorded(loss, error, message):
    x = ts.parameter(np.ones((3, 2)))
    with ts.Tape() as tape:
        with pytest.raises(error, match=text(message)):
            loss(x)
        assert len(tape) == 0
