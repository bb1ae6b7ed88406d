"""Word2vec: every model and loss against its definition, and the training loop."""

import itertools
import os
import signal

import numpy as np
import pytest
from toy_text import TOPICS, made_up_text

import tinygrad_sparse as ts
from examples.word2vec import losses
from examples.word2vec.corpus import split_sentences
from examples.word2vec.huffman import Tree
from examples.word2vec.inputs import Grams, Parts
from examples.word2vec.keyed_vectors import KeyedVectors
from examples.word2vec.models import LOSSES, MODELS, Model, Settings, cbow, skip_gram
from examples.word2vec.pairs import batches
from examples.word2vec.store import load, save
from examples.word2vec.train import Run, ahead, train, until_interrupted
from examples.word2vec.vocabulary import Vocabulary
from tinygrad_sparse.backend import threads

SENTENCES = list(split_sentences(made_up_text()))
VOCABULARY = Vocabulary.build(SENTENCES, 1)
TEXT = VOCABULARY.encode(SENTENCES)
READING = {"lines": False, "min_count": 1, "max_words": None, "text": TEXT.checksum()}
SMALL = {"dim": 8, "centres": 64, "shared": 4, "sample": 0, "window": 3}


def model_and_batch(**settings):
    """A model whose tables are full of numbers, in float64, and a batch."""
    s = Settings(**SMALL)._replace(**settings)
    rng = np.random.default_rng(0)
    first = Model(VOCABULARY, s)
    tables = tuple(rng.normal(size=p.shape) for p in first.parameters)
    model = Model(VOCABULARY, s, tables)
    made = batches(TEXT, np.ones(18), model.draw, window=s.window, centres=s.centres)
    return model, next(itertools.islice(made, 3, None))


def pairs_of(model, batch):
    """Every (hidden vector, its group, target word) by the definition."""
    S, L, n = batch.near.shape
    vectors = model.inputs.vectors()
    for s, i in itertools.product(range(S), range(L)):
        around = [batch.ids[s, j] for j in range(n) if batch.near[s, i, j]]
        if model.settings.model == "skipgram":
            yield from ((vectors[batch.centres[s, i]], s, word) for word in around)
        elif around:
            yield vectors[around].mean(0), s, batch.centres[s, i]


def softplus(x):
    return np.logaddexp(0, x)


@pytest.mark.parametrize("parts", [0, 30])
@pytest.mark.parametrize("kind", MODELS)
def test_shared_negatives_are_the_paper_with_its_expectation_over_the_span(kind, parts):
    model, batch = model_and_batch(model=kind, parts=parts, negatives=7)
    C = model.outputs.numpy()
    expected = sum(
        softplus(-h @ C[word]) + 7 * softplus(C[batch.negatives[s]] @ h).mean()
        for h, s, word in pairs_of(model, batch)
    )
    assert model.loss(batch).item() == pytest.approx(expected, rel=1e-6)  # weights are float32


@pytest.mark.parametrize("kind", MODELS)
def test_shared_negatives_of_small_ops_are_the_same(kind):
    model, batch = model_and_batch(model=kind)
    task = model.task(batch)
    C, k = model.outputs, batch.negatives.shape[1]
    near, far = (losses.scores(task, C, ids) for ids in (task.ids, batch.negatives))
    small = (task.near * ts.ops.softplus(-near)).sum()
    small = small + (task.sizes[:, :, None] * 5 / k * ts.ops.softplus(far)).sum()
    assert model.loss(batch).item() == pytest.approx(small.item(), rel=1e-6)


def test_the_two_spans_of_a_pair_look_at_the_same_random_words():
    model, batch = model_and_batch(shared=6)
    drawn = model.draw(np.random.default_rng(0))(batch._replace(ids=np.zeros((5, 1), np.int64)))
    assert drawn.shape == (5, 6)
    same = [(drawn[s] == drawn[s + 1]).all() for s in range(4)]
    assert same == [True, False, True, False]


@pytest.mark.parametrize("kind", MODELS)
def test_own_negatives_are_the_paper(kind):
    model, batch = model_and_batch(model=kind, loss="own", negatives=3)
    C = model.outputs.numpy()
    pairs = list(pairs_of(model, batch))
    assert batch.negatives.shape == (len(pairs), 3) == (model.pairs(batch), 3)
    expected = sum(
        softplus(-h @ C[word]) + softplus(C[negatives] @ h).sum()
        for (h, _, word), negatives in zip(pairs, batch.negatives, strict=True)
    )
    assert model.loss(batch).item() == pytest.approx(expected, rel=1e-7)  # cbow: 1/n is float32


@pytest.mark.parametrize("kind", MODELS)
def test_the_full_softmax_is_cross_entropy(kind):
    model, batch = model_and_batch(model=kind, loss="softmax")
    C = model.outputs.numpy()
    expected = sum(
        np.log(np.exp(C @ h).sum()) - C[word] @ h for h, _, word in pairs_of(model, batch)
    )
    assert model.loss(batch).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_the_hierarchical_softmax_is_a_distribution_over_words(kind):
    model, batch = model_and_batch(model=kind, loss="hierarchical")
    N = model.outputs.numpy()

    def log_p(h, word):
        nodes, signs, _ = model.tree.ways(np.array([word]))
        return -softplus(signs * (N[nodes] @ h)).sum()

    pairs = list(pairs_of(model, batch))
    expected = -sum(log_p(h, word) for h, _, word in pairs)
    assert model.loss(batch).item() == pytest.approx(expected, rel=1e-7)  # cbow: 1/n is float32
    assert sum(np.exp(log_p(pairs[0][0], w)) for w in range(18)) == pytest.approx(1)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", MODELS)
def test_gradients_are_right_and_rows_stay_rows(kind, loss):
    model, batch = model_and_batch(model=kind, loss=loss)
    with ts.Tape(densify="raise") as tape:
        value = model.loss(batch)
    grads = tape.backward(value)
    assert type(grads[model.inputs.table]) is ts.IndexedSlices
    assert (type(grads[model.outputs]) is ts.IndexedSlices) == (loss != "softmax")
    rng = np.random.default_rng(1)
    shifts = tuple(rng.normal(size=p.shape) for p in model.parameters)
    eps, moves = 1e-6, list(zip([p.numpy() for p in model.parameters], shifts, strict=True))
    moved = [
        Model(VOCABULARY, model.settings, tuple(t + sign * eps * v for t, v in moves))
        for sign in (1, -1)
    ]
    slope = (moved[0].loss(batch).item() - moved[1].loss(batch).item()) / (2 * eps)
    dense = [g if isinstance(g, np.ndarray) else g.to_dense() for _, g in grads.items()]
    mine = dict(zip(grads.get_ids(), dense, strict=True))
    total = sum((mine[p.id] * v).sum() for p, v in zip(model.parameters, shifts, strict=True))
    assert slope == pytest.approx(total, rel=1e-5)


def test_tasks_agree_on_who_is_predicted():
    model, batch = model_and_batch()
    for make in (skip_gram, cbow):
        task = make(model.inputs, batch)
        rows, words = task.pairs()
        assert len(rows) == len(words) == task.sizes.sum()
        assert task.flat().shape == (task.sizes.size, 8)


# ----------------------------------------------------------------------------- parts of words


def test_n_grams_know_where_a_word_begins_and_ends():
    assert Grams(3, 4, 100)("hen") == ["<he", "hen", "en>", "<hen", "hen>"]
    assert Grams(3, 6, 100)("a") == []  # "<a>" is the word itself
    assert Grams(3, 6, 100)("") == []


def test_a_word_is_the_mean_of_itself_and_its_n_grams():
    words, grams = ["hen", "hens", "a"], Grams(3, 4, 50)
    table = np.random.default_rng(0).normal(size=(53, 4))
    parts = Parts(table, words, grams)
    rows, starts = grams.bags(words)
    assert (rows < 50).all()
    for i in range(3):
        expected = np.vstack([table[i : i + 1], table[3 + rows[starts[i] : starts[i + 1]]]]).mean(0)
        np.testing.assert_allclose(parts.vectors()[i], expected, rtol=1e-12)
        made, places = parts(np.array([[2, i], [i, 2]]))
        np.testing.assert_allclose(made.numpy()[places[0, 1]], expected)


def test_unknown_words_are_near_words_of_their_parts():
    settings = Settings(**SMALL)._replace(parts=5000, epochs=20)
    model = Model(VOCABULARY, settings)
    train(model, VOCABULARY, TEXT, Run())
    grams, table = model.inputs.grams, model.inputs.table.numpy()[18:]
    kv = KeyedVectors(VOCABULARY.words, model.inputs.vectors(), grams, table)
    for i, word in enumerate(["doge", "greens", "golden"]):
        assert word not in kv
        near = [np.mean([kv.similarity(word, known) for known in topic]) for topic in TOPICS]
        assert np.argmax(near) == i


# -------------------------------------------------------------------------------- the tree


@pytest.mark.parametrize("counts", [[9, 5, 3, 1, 1], [1], [2, 1], list(range(40, 0, -1))], ids=len)
def test_huffman_s_tree_is_the_cheapest(counts):
    V, tree = len(counts), Tree(np.array(counts))
    lengths = np.diff(tree.starts)
    # a full binary tree, every way a different one
    assert V == 1 or (0.5**lengths).sum() == 1
    ways = {
        tuple(zip(*(a[tree.starts[i] : tree.starts[i + 1]].tolist()
                    for a in (tree.nodes, tree.signs)), strict=True))
        for i in range(V)
    }  # fmt: skip
    assert len(ways) == V
    assert all(way[0][0] == V - 2 for way in ways if way)  # the root comes first
    # its cost is the sum of all merged weights
    heap, cost = sorted(counts), 0
    while len(heap) > 1:
        both = heap[0] + heap[1]
        heap, cost = sorted([*heap[2:], both]), cost + both
    assert (lengths * counts).sum() == cost


# -------------------------------------------------------------------------------- training


def run(wanted=lambda: True, at=None, **settings):
    """A short training; returns model and run."""
    s = Settings(**SMALL)._replace(epochs=2, **settings)
    model, mine = at or (Model(VOCABULARY, s), Run())
    train(model, VOCABULARY, TEXT, mine, wanted=wanted)
    return model, mine


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", MODELS)
def test_every_model_learns_the_topics(kind, loss):
    _, mine = run(model=kind, loss=loss, lr=0.2)
    assert np.mean(mine.losses[-5:]) < 0.97 * np.mean(mine.losses[:5])
    assert mine.words == 2 * len(TEXT.ids)


def test_equal_seeds_repeat_to_the_bit():
    vectors = [run(seed=seed)[0].inputs.vectors().tobytes() for seed in (1, 1, 2)]
    assert vectors[0] == vectors[1] != vectors[2]


@pytest.mark.parametrize("settings", [{}, {"model": "cbow", "loss": "own", "parts": 20}], ids=str)
@pytest.mark.parametrize("steps", [1, 38, 57])
def test_stopped_and_resumed_is_the_same_to_the_bit(tmp_path, steps, settings):
    whole = tmp_path / "whole.npz"
    save(whole, *run(**settings)[:1], VOCABULARY, run(**settings)[1], READING)
    countdown = iter([True] * (steps - 1) + [False])
    model, mine = run(wanted=lambda: next(countdown), **settings)
    assert len(mine.losses) == steps
    path = tmp_path / "part.npz"
    save(path, model, VOCABULARY, mine, READING)
    saved = load(path)
    run(at=(saved.model, saved.run))
    save(path, saved.model, saved.vocabulary, saved.run, saved.reading)
    with np.load(path) as a, np.load(whole) as b:
        assert a.files == b.files
        assert all(a[name].tobytes() == b[name].tobytes() for name in a.files)


def test_items_made_ahead_keep_their_order_and_their_errors():
    assert list(ahead(iter(range(7)))) == list(range(7))
    assert list(ahead(iter([]))) == []

    def fails():
        yield 1
        raise KeyError("made ahead")

    items = ahead(fails())
    assert next(items) == 1
    with pytest.raises(KeyError, match="made ahead"):
        next(items)


@pytest.mark.parametrize("settings", [{}, {"model": "cbow"}], ids=str)
def test_the_number_of_threads_changes_nothing(settings, monkeypatch):
    monkeypatch.setattr(threads, "_cores", lambda: 3)  # as if there were so many
    monkeypatch.setattr(threads, "PAYS", 0)
    before, vectors = ts.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            ts.set_num_threads(number)
            vectors.append(run(centres=512, dim=32, **settings)[0].inputs.vectors().tobytes())
    finally:
        ts.set_num_threads(before)
    assert vectors[0] == vectors[1] == vectors[2]


@pytest.fixture
def interruptible():
    """Ctrl-C raises, also where the tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_asks_once_and_stops_dead_the_second_time(interruptible):
    with until_interrupted() as wanted:
        assert wanted()
        os.kill(os.getpid(), signal.SIGINT)
        assert not wanted()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there are no terminals to close")
@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_closed_terminal_asks_however_often_it_is_told(handler):
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with until_interrupted() as wanted:
            assert wanted()
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGHUP)
                assert wanted() == (handler == signal.SIG_IGN)  # as nohup says it
        assert signal.getsignal(signal.SIGHUP) == handler
    finally:
        signal.signal(signal.SIGHUP, before)
