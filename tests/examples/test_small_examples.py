"""The one-file examples learn what they claim to, on less."""

from itertools import pairwise

import numpy as np
import pytest

from examples import glove, q_learning, tied_language_model, two_tower
from examples.word2vec.vocabulary import Text

BLOCK = 5  # words of one topic follow each other; V = 4 topics of 5 words


@pytest.fixture(scope="module")
def text():
    rng = np.random.default_rng(0)
    topics = rng.integers(0, 4, 800)
    ids = (topics[:, None] * BLOCK + rng.integers(0, BLOCK, (800, 12))).ravel()
    return Text(ids, np.arange(801) * 12)


def test_glove_counts_by_distance():
    i, j, count = glove.cooccurrences(Text(np.array([0, 1, 1, 0]), np.array([0, 3, 4])), window=2)
    found = {(a, b): c for a, b, c in zip(i.tolist(), j.tolist(), count.tolist(), strict=True)}
    assert found == {(0, 1): 1.5, (1, 0): 1.5, (1, 1): 2.0}


@pytest.mark.parametrize("bounds", [[0, 9], [0, 1, 2, 5], [0, 3, 3, 4, 20], [0, 1]], ids=str)
def test_glove_sees_all_pairs_in_reach_and_never_crosses_a_sentence(bounds):
    i, j, count = glove.cooccurrences(Text(np.arange(bounds[-1]), np.array(bounds)), window=3)
    assert list(zip(i.tolist(), j.tolist(), count.tolist(), strict=True)) == [
        (i, j, 1.0 / abs(i - j))
        for a, b in pairwise(bounds)
        for i in range(a, b)
        for j in range(a, b)
        if 0 < abs(i - j) <= 3
    ]


def test_glove_learns_topics(text):
    vectors, losses = glove.train(text, 20, d=8, steps=200, batch=256)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    same = np.arange(20)[:, None] // BLOCK == np.arange(20) // BLOCK
    cosines = unit @ unit.T
    assert cosines[same].mean() > cosines[~same].mean() + 0.5
    assert np.mean(losses[-20:]) < 0.2 * np.mean(losses[:5])


def test_the_tied_model_beats_frequency_and_records_one_dense_buffer(text):
    tied, unigram, tape = tied_language_model.train(text, 20, d=8, steps=150, batch=64)
    assert tied < 0.5 * unigram
    (record,) = tape.densified
    assert record.shape == (20, 8)
    assert "tied_language_model.py" in record.where


def test_q_learning_finds_the_shortest_way():
    taken = q_learning.path(q_learning.train(steps=1500))
    assert len(taken) == 14
    assert taken[-1] == q_learning.GOAL


def test_two_towers_meet():
    rng = np.random.default_rng(0)
    where = rng.integers(0, 30, 900)
    texts = [[f"w{10 * m + rng.integers(10)}" for _ in range(6)] for m in where]
    texts[0] = []
    found, popular = two_tower.train(texts, where, 30, d=8, steps=150)
    assert found > 0.9
    assert popular < 0.5
