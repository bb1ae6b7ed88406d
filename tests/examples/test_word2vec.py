"""Word2vec, part by part against slow and obvious versions, then the whole command."""

import itertools
import re

import numpy as np
import pytest

import tinygrad_sparse as ts
from examples.word2vec import command, corpus, pairs, show, train
from examples.word2vec.vocabulary import NegativeSampler, Text, Vocabulary, keep_probability


def made_up_text(seed: int = 0, sentences: int = 300) -> str:
    """Three topics of six words each; a sentence stays with its topic."""
    rng = np.random.default_rng(seed)
    topics = [
        ["cat", "dog", "cow", "hen", "pig", "goat"],
        ["red", "blue", "green", "pink", "brown", "grey"],
        ["iron", "gold", "zinc", "lead", "tin", "silver"],
    ]
    return " ".join(
        " ".join(rng.choice(topics[rng.integers(3)], size=8)) + "." for _ in range(sentences)
    )


# ------------------------------------------------------------------------------ corpus


def test_sentences_end_at_stops_and_blank_lines_only():
    text = "Call os.path.join! It's\nfine?  Yes.\n\nTitle\n\nE2E   done..."
    assert list(corpus.split_sentences(text)) == [
        ["call", "os", "path", "join"],
        ["it", "s", "fine"],
        ["yes"],
        ["title"],
        ["e", "e", "done"],
    ]


def test_an_endless_sentence_is_cut():
    lengths = [len(sentence) for sentence in corpus.split_sentences("word " * 2500)]
    assert lengths == [1000, 1000, 500]


@pytest.mark.parametrize("chunk", [100, 101, 157, 1 << 20])
def test_a_file_read_in_pieces_has_the_same_sentences(tmp_path, monkeypatch, chunk):
    text = made_up_text(sentences=40) + "\n \nNo stop. Ends os.path in Été\n\nlast words"
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(corpus, "CHUNK", chunk)
    assert list(corpus.read_text(path)) == list(corpus.split_sentences(text))


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_a_file_without_sentences_keeps_every_word(tmp_path, monkeypatch, chunk):
    path = tmp_path / "text.txt"
    path.write_text("these are words without any stop " * 20, encoding="utf-8")
    monkeypatch.setattr(corpus, "CHUNK", chunk)
    read = list(itertools.chain.from_iterable(corpus.read_text(path)))
    assert read == path.read_text(encoding="utf-8").split()


def test_bytes_that_are_not_utf8_are_left_out_and_reported_once(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("one née two. ".encode("latin-1") * 3 + "three née four".encode())
    with pytest.warns(UserWarning, match=r"latin\.txt: left out 3 bytes that are not UTF-8") as w:
        sentences = list(corpus.read_text(path))
    assert len(w) == 1
    assert sentences == 3 * [["one", "n", "e", "two"]] + [["three", "n", "e", "four"]]


def test_a_module_gives_its_docstrings_and_comments_without_running():
    source = (
        '"""Module."""\n# First\n#: second\nx = 1  # not a block\n\n# third\n'
        'raise SystemExit\ntry: pass\nexcept E:\n  def f():\n    "Inner."\n    class A: "Deep."\n'
    )
    assert list(corpus.docstrings(source)) == ["Module.", "Inner.", "Deep."]
    assert [block.split() for block in corpus.comment_blocks(source)] == [
        ["First", "second"],
        ["third"],
    ]
    assert list(corpus.docstrings("def (:")) == []


def test_help_topics_are_parsed_and_may_be_missing(tmp_path):
    topics = tmp_path / "topics.py"
    topics.write_text("topics = {'b': 'Second.', 'a': 'First.'}\n")
    assert corpus.help_topics(topics) == ["First.", "Second."]
    assert corpus.help_topics(tmp_path / "absent.py") == []


def test_tests_and_installed_packages_are_not_read(tmp_path):
    for name in ("b/x.py", "a.py", "test/no.py", "site-packages/no.py", "b/tests/no.py", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert corpus.source_files(tmp_path) == [tmp_path / "a.py", tmp_path / "b" / "x.py"]


def test_the_documentation_begins_with_prose():
    sentences = itertools.islice(corpus.python_docs(), 200)
    assert sum(map(len, sentences)) > 500


# -------------------------------------------------------------------------- vocabulary


def test_rare_words_are_dropped_and_empty_sentences_with_them():
    sentences = [["b", "a", "b"], ["once"], ["c", "once more", "a", "c"]]
    vocabulary = Vocabulary.build(sentences, min_count=2)
    assert vocabulary.words == ["a", "b", "c"]
    assert vocabulary.counts.tolist() == [2, 2, 2]
    text = vocabulary.encode(sentences)
    assert text.ids.tolist() == [1, 0, 1, 2, 0, 2]
    assert text.bounds.tolist() == [0, 3, 6]


def test_nothing_kept_is_an_empty_text():
    vocabulary = Vocabulary.build([["a"]], min_count=2)
    text = vocabulary.encode([["a"]])
    assert (len(text.ids), text.bounds.tolist()) == (0, [0])
    assert list(pairs.blocks(text)) == []


def test_frequent_words_are_thinned_by_the_published_formula():
    counts = np.array([98_000, 1_900, 100])
    share = counts / 100_000
    expected = np.sqrt(1e-3 / share) + 1e-3 / share
    np.testing.assert_allclose(keep_probability(counts, 1e-3), np.minimum(expected, 1))
    assert keep_probability(counts, 1e-3)[2] == 1
    assert (keep_probability(counts, 0) == 1).all()


def test_subsampling_keeps_that_share_of_each_word():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 3, 60_000)
    text = Text(ids, np.arange(0, 60_001, 20))
    keep = np.array([0.1, 0.5, 1.0])
    thinned = pairs.subsample(text, keep, rng)
    shares = np.bincount(thinned.ids) / np.bincount(ids)
    np.testing.assert_allclose(shares, keep, atol=0.02)
    assert thinned.bounds[-1] == len(thinned.ids)
    assert len(thinned.bounds) == len(text.bounds)


def test_negatives_follow_the_three_quarter_power():
    counts = np.array([10_000, 1_000, 100, 10])
    drawn = NegativeSampler(counts).draw(np.random.default_rng(0), (500, 400))
    assert drawn.shape == (500, 400)
    expected = counts**0.75 / (counts**0.75).sum()
    # Four standard deviations of a share of 200,000 draws.
    bound = 4 * np.sqrt(expected * (1 - expected) / drawn.size)
    assert (np.abs(np.bincount(drawn.ravel()) / drawn.size - expected) < bound).all()


# ------------------------------------------------------------------------------- pairs


def slow_windows(bounds: np.ndarray, reach: np.ndarray) -> list[tuple[int, int]]:
    """Every (centre, context) position, by the definition."""
    return [
        (i, j)
        for a, b in itertools.pairwise(bounds)
        for i in range(a, b)
        for j in range(a, b)
        if i != j and abs(i - j) <= reach[i]
    ]


@pytest.mark.parametrize("bounds", [[0, 9], [0, 1, 2, 5], [0, 3, 3, 4, 20], [0]], ids=str)
def test_windows_hold_all_pairs_in_reach_and_never_cross_a_sentence(bounds):
    reach = np.random.default_rng(0).integers(1, 5, bounds[-1])
    positions, inside = pairs.windows(np.array(bounds), reach)
    centres = np.nonzero(inside)[0]
    found = zip(centres.tolist(), positions[inside].tolist(), strict=True)
    assert sorted(found) == slow_windows(np.array(bounds), reach)


@pytest.mark.parametrize("size", [1, 5, 7, 1000])
def test_blocks_are_whole_sentences_in_order(size):
    text = Text(np.arange(20), np.array([0, 4, 5, 11, 12, 20]))
    pieces = list(pairs.blocks(text, size))
    assert np.concatenate([piece.ids for piece in pieces]).tolist() == list(range(20))
    lengths = [n for piece in pieces for n in np.diff(piece.bounds)]
    assert lengths == [4, 1, 6, 1, 8]
    assert all(piece.bounds[0] == 0 and piece.bounds[-1] == len(piece.ids) for piece in pieces)


def epoch(text: Text, seed: int, **shape: int) -> list[pairs.Batch]:
    """One epoch in which no word is thinned out."""
    words = int(text.ids.max()) + 1
    sampler = NegativeSampler(np.ones(words))
    rng = np.random.default_rng(seed)
    return list(pairs.batches(text, np.ones(words), sampler, rng, **shape))


def test_an_epoch_has_each_word_as_centre_once_with_contexts_of_its_sentence():
    # Every word of the text is different, so a pair of ids tells the pair of places.
    text = Text(np.arange(40), np.array([0, 3, 10, 11, 40]))
    made = epoch(text, seed=3, window=4, pairs=16, shared=6)
    centres = np.concatenate([batch.centres for batch in made])
    assert sorted(centres.tolist()) == [i for i in range(40) if i != 10]  # 10 stands alone
    sentence = np.repeat(np.arange(4), np.diff(text.bounds))
    for batch in made:
        b, m = batch.contexts.shape
        assert batch.centres.shape == (b,) and b * m <= 16 and batch.negatives.shape == (6,)
        distance = np.abs(batch.contexts - batch.centres[:, None])
        assert (sentence[batch.contexts] == sentence[batch.centres][:, None]).all()
        assert (distance >= 1).all() and (distance <= 4).all()
    assert sum(batch.words for batch in made) == 40


def test_windows_are_of_every_width_equally_often():
    text = Text(np.zeros(30_000, dtype=int), np.arange(0, 30_001, 1000))
    shapes = [batch.contexts.shape for batch in epoch(text, seed=0, window=3)]
    centres = np.bincount([m for _, m in shapes], weights=[b for b, _ in shapes])
    shares = centres[[2, 4, 6]] / 30_000
    np.testing.assert_allclose(shares, 1 / 3, atol=0.02)


def test_equal_seeds_make_equal_batches_and_other_seeds_others():
    sentences = list(corpus.split_sentences(made_up_text()))
    text = Vocabulary.build(sentences, 1).encode(sentences)
    first, again, other = (epoch(text, seed) for seed in (1, 1, 2))
    assert len(first) == len(again)
    for a, b in zip(first, again, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not all(np.array_equal(a.centres, b.centres) for a, b in zip(first, other, strict=False))


# ------------------------------------------------------------------------------- train


def small_run(seed: int) -> tuple[np.ndarray, list[float]]:
    """A minute text, learned in half a second."""
    sentences = list(corpus.split_sentences(made_up_text()))
    vocabulary = Vocabulary.build(sentences, 1)
    settings = train.Settings(dim=8, epochs=3, pairs=256, shared=8, sample=0, seed=seed)
    return train.train(vocabulary.encode(sentences), vocabulary.counts, settings)


def test_training_lowers_the_loss_and_repeats_to_the_bit():
    vectors, losses = small_run(seed=1)
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
    again, same_losses = small_run(seed=1)
    assert vectors.tobytes() == again.tobytes() and losses == same_losses
    assert small_run(seed=2)[0].tobytes() != vectors.tobytes()


def test_the_loss_is_that_of_the_paper_with_its_expectation_over_the_shared_words():
    rng = np.random.default_rng(0)
    W, C = rng.normal(size=(2, 9, 4))
    batch = pairs.Batch(np.array([1, 2, 1]), rng.integers(0, 9, (3, 2)), rng.integers(0, 9, 5), 3)
    expected = 0.0
    for i, contexts in zip(batch.centres, batch.contexts, strict=True):
        for c in contexts:
            expected += np.log1p(np.exp(-W[i] @ C[c]))
            expected += 7 * np.mean(np.log1p(np.exp(C[batch.negatives] @ W[i])))
    loss = train.skip_gram_loss(ts.parameter(W), ts.parameter(C), batch, negatives=7)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


# -------------------------------------------------------------------------------- show


def test_neighbours_are_by_angle_and_exclude_the_word_itself():
    unit = show.unit_rows(np.array([[1.0, 0], [5, 1], [0, 2], [-1, 0], [0, 0]]))
    nearest, cosines = show.neighbours(unit, 0, 2)
    assert nearest.tolist() == [1, 2]
    np.testing.assert_allclose(cosines, [5 / np.sqrt(26), 0])


def test_the_table_reports_words_it_does_not_know():
    vocabulary = Vocabulary.build([["cat", "dog", "cat"]], 1)
    table = show.neighbour_table(vocabulary, np.eye(2), ["cat", "unicorn"])
    assert table.splitlines() == ["    cat | dog 0.00", "unicorn | (not in the vocabulary)"]


def test_labels_are_spread_until_none_overlap():
    rng = np.random.default_rng(0)
    centres = np.concatenate([rng.normal(0, 40, (60, 2)), np.zeros((3, 2))])
    sizes = rng.uniform(10, 50, (63, 2))
    placed = show.spread(centres, sizes)
    overlap = (sizes[:, None] + sizes) / 2 - np.abs(placed[:, None] - placed)
    assert ((overlap > 0).all(axis=2) == np.eye(63, dtype=bool)).all()


# ----------------------------------------------------------------------------- command


def test_the_command_shows_and_saves_what_it_learned(tmp_path, capsys):
    text, picture, saved = (tmp_path / name for name in ("text.txt", "map.png", "vectors.npz"))
    text.write_text(made_up_text())
    options = f"--corpus {text} --out {picture} --save {saved} --dim 8 --epochs 10 --batch 256"
    assert command.main([*options.split(), "--sample", "0", "--words", "cat", "unicorn"]) == 0
    out = capsys.readouterr().out
    assert "2,400 words in 300 sentences; 18 different words" in out
    (line,) = (line for line in out.splitlines() if "cat |" in line)
    assert set(line.split("|")[1].split()[:10:2]) == {"dog", "cow", "hen", "pig", "goat"}
    assert "unicorn | (not in the vocabulary)" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    with np.load(saved) as arrays:
        assert arrays["words"].shape == (18,) and arrays["vectors"].shape == (18, 8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read .*: No such file or directory"),
        ("", "there is no word of the letters a to z in"),
        ("12 34", "there is no word of the letters a to z in"),
        ("cat. dog. " * 9, "no sentence has two words to learn from. Hint: "),
        ("only rare words here", "fewer than 2 words, .* occur 5 times or more. Hint: "),
    ],
)
def test_a_corpus_that_cannot_be_used_is_one_sentence(tmp_path, capsys, content, message):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_text(content)
    assert command.main(["--corpus", str(path), "--out", str(tmp_path / "map.png")]) == 2
    last_line = capsys.readouterr().err.splitlines()[-1]
    assert re.match(f"word2vec: error: {message}", last_line)


@pytest.mark.parametrize(
    "option", ["--dim 0", "--epochs x", "--lr nan", "--sample 2", "--seed -1"], ids=str
)
def test_an_option_out_of_range_names_its_range(capsys, option):
    with pytest.raises(SystemExit) as stop:
        command.main(option.split())
    assert stop.value.code == 2
    assert "number from" in capsys.readouterr().err
