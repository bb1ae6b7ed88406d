"""Both programs with ``--device cuda`` on the stand-in for CuPy: what they learn on the CPU."""

import itertools
import signal

import numpy as np
import pytest
from scipy import sparse
from toy_text import made_up_text

import tinygrad_sparse as ts
from examples.soft_decision_tree import (
    SoftDecisionTreeClassifier,
    SoftDecisionTreeRegressor,
    command,
    load,
    save,
)
from examples.soft_decision_tree.base import CHOICES
from examples.word2vec import command as word2vec
from examples.word2vec import formats
from examples.word2vec.corpus import split_sentences
from examples.word2vec.models import LOSSES, MODELS, Model, Settings
from examples.word2vec.pairs import batches
from examples.word2vec.vocabulary import Vocabulary
from tinygrad_sparse import optim
from tinygrad_sparse.errors import DeviceError

pytestmark = pytest.mark.usefixtures("gpu")
SENTENCES = list(split_sentences(made_up_text()))
VOCABULARY = Vocabulary.build(SENTENCES, 1)
TEXT = VOCABULARY.encode(SENTENCES)
SMALL = Settings(dim=8, centres=64, shared=4, sample=0, window=3)


def steps(settings, device, count=4):
    """A model after some steps, and what it cost to read nothing: (launches, uploads, syncs)."""
    import standin

    rng = np.random.default_rng(0)
    shapes = [p.shape for p in Model(VOCABULARY, settings).parameters]
    tables = tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)
    model = Model(VOCABULARY, settings, tables, device)
    opt = optim.SGD(model.parameters, lr=0.05)
    made = batches(TEXT, np.ones(18), model.draw, window=settings.window, centres=settings.centres)
    costs = []
    for batch in itertools.islice(made, count):
        standin.counts.clear()
        with ts.Tape("raise") as tape:
            loss = model.loss(batch)
        opt.step(tape.backward(loss), clip_rows=2.0)
        counts = standin.counts
        costs.append((counts.launches, counts.uploads, counts.syncs))
    return model, costs


@pytest.mark.parametrize("parts", [0, 30])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", MODELS)
def test_every_model_of_word2vec_learns_as_on_the_cpu(kind, loss, parts):
    settings = SMALL._replace(model=kind, loss=loss, parts=parts)
    (here, _), (there, _) = (steps(settings, device) for device in ("cpu", "cuda"))
    for a, b in zip(here.parameters, there.parameters, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "cost"), [("skipgram", (101, 4, 0)), ("cbow", (114, 6, 0))])
def test_a_step_of_word2vec_has_a_fixed_number_of_launches_and_waits_for_nothing(kind, cost):
    _, costs = steps(SMALL._replace(model=kind), "cuda")
    assert set(costs) == {cost}  # docs/gpu.md tells it


@pytest.mark.parametrize(("kind", "cost"), [("skipgram", (81, 4, 0)), ("cbow", (94, 6, 0))])
def test_what_it_costs_with_kernels(launched, kind, cost):
    (here, _), (there, costs) = (
        steps(SMALL._replace(model=kind), device) for device in ("cpu", "cuda")
    )
    assert set(costs) == {cost}  # docs/gpu.md tells it
    assert {"sort_small", "update_runs", "update_rows"} <= set(launched)
    for a, b in zip(here.parameters, there.parameters, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-4, atol=1e-5)


def test_the_command_word2vec(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text(made_up_text())
    options = "--dim 8 --batch 64 --sample 0 --lr 0.02".split()
    vectors = []
    for device in ("cpu", "cuda"):
        path = str(tmp_path / f"{device}.npz")
        options = [*options, "--device", device, "--save", path]
        assert word2vec.main(["train", str(text), "--epochs", "2", *options]) == 0
        vectors.append(formats.read_arrays(path)["vectors"])
    np.testing.assert_allclose(vectors[1], vectors[0], rtol=1e-3, atol=1e-4)


def problem(classes=True):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4))
    X[rng.random(X.shape) < 0.3] = 0.0
    return X, (X[:, 0] > X[:, 1]) + 2 * (X[:, 2] > 0) if classes else X[:, 0] * X[:, 1]


def trees(kind, X, y, weights=None, **settings):
    for device in ("cpu", "cuda"):
        tree = kind(3, max_iter=3, batch_size=32, random_state=0, device=device, **settings)
        yield tree.fit(X, y, weights)


SETTINGS = [
    *({"leaves": a} for a in CHOICES["leaves"]),
    *({"smoothing": a, "leaf_form": b} for a in CHOICES["smoothing"] for b in CHOICES["leaf_form"]),
    {"learn_temperature": True, "early_stopping": True},
]


@pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_classifier_learns_as_on_the_cpu(settings, as_matrix):
    X, y = problem()
    weights = np.linspace(0.5, 1.5, len(y)) if settings.get("leaves") else None
    here, there = trees(SoftDecisionTreeClassifier, as_matrix(X), y, weights, **settings)
    assert there._model.device == "cuda"
    close = {"rtol": 1e-6, "atol": 1e-8}
    for name in ("gate_weights_", "gate_intercepts_", "leaf_values_", "loss_curve_"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), **close)
    for routing in ("soft", "hard", "likeliest"):
        wanted = here.predict_proba(as_matrix(X), routing)
        np.testing.assert_allclose(there.predict_proba(as_matrix(X), routing), wanted, **close)


@pytest.mark.parametrize("leaves", CHOICES["leaves"])
def test_a_regressor_learns_as_on_the_cpu(leaves):
    X, y = problem(classes=False)
    here, there = trees(SoftDecisionTreeRegressor, X, y, leaves=leaves)
    np.testing.assert_allclose(there.predict(X), here.predict(X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", [SoftDecisionTreeClassifier, SoftDecisionTreeRegressor])
@pytest.mark.parametrize("there", ["cpu", "cuda"])
@pytest.mark.parametrize("here", ["cpu", "cuda"])
def test_a_tree_of_one_device_goes_on_learning_on_another(tmp_path, here, there, kind):
    X, y = problem(kind is SoftDecisionTreeClassifier)
    tree = next(t for t in trees(kind, X, y) if t.device == here)
    save(tree, tmp_path / "tree.npz")
    again = load(tmp_path / "tree.npz", there)
    assert again.device == again._model.device == there
    assert load(tmp_path / "tree.npz").device == "cpu"
    for one in (tree, again, tree, again):
        one.partial_fit(X, y)
    close = {"rtol": 1e-6, "atol": 1e-8}
    np.testing.assert_allclose(again.predict(X), tree.predict(X), **close)
    np.testing.assert_allclose(again.gate_weights_, tree.gate_weights_, **close)
    with pytest.raises(DeviceError, match="expected 'cpu' or 'cuda', got 'tpu'"):
        load(tmp_path / "tree.npz", "tpu")


@pytest.mark.parametrize("parts", [[], ["--parts", "30"]], ids=["words", "parts"])
@pytest.mark.parametrize(("here", "there"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_run_of_word2vec_goes_on_on_another_device(
    tmp_path, capsys, monkeypatch, request, here, there, parts
):
    text = tmp_path / "text.txt"
    text.write_text(made_up_text())
    options = "--dim 8 --batch 64 --sample 0 --lr 0.02 --epochs 2".split() + parts
    step, count = optim.SGD.step, itertools.count()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup has it ignored
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def interrupted(*args, **more):
        if next(count) == 30:
            signal.raise_signal(signal.SIGINT)
        return step(*args, **more)

    whole, part = str(tmp_path / "whole.npz"), str(tmp_path / "part.npz")
    train = ["train", str(text), "--device"]
    assert word2vec.main([*train, "cpu", *options, "--save", whole]) == 0
    monkeypatch.setattr(optim.SGD, "step", interrupted)
    assert word2vec.main([*train, here, *options, "--save", part]) == 130
    monkeypatch.setattr(optim.SGD, "step", step)
    assert word2vec.main([*train, there, "--resume", part]) == 0
    wanted, got = formats.read_arrays(whole), formats.read_arrays(part)
    assert wanted.keys() == got.keys() and len(got["losses"]) > 31
    for name in ("vectors", "outputs", "losses"):
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-3, atol=1e-4)


def test_the_command_soft_decision_tree(tmp_path, capsys):
    said = []
    for device in ("cpu", "cuda"):
        options = ["--data", "iris", "--depth", "2", "--epochs", "3", "--device", device]
        assert command.main([*options, "--out", str(tmp_path / f"{device}.png")]) == 0
        said.append(capsys.readouterr().out.split("trained in")[1].split(":", 1)[1])
    assert said[0].replace("cpu", "cuda") == said[1]
