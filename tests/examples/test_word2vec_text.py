"""Word2vec: from a text to batches, part by part against slow and obvious versions."""

import bz2
import gzip
import itertools
import lzma
import os

import numpy as np
import pytest
from toy_text import made_up_text

from examples.program import InputError
from examples.word2vec import corpus, pairs, python_docs
from examples.word2vec.vocabulary import Draws, NegativeSampler, Text, Vocabulary, keep_probability

# ------------------------------------------------------------------------------ corpus


def test_sentences_end_at_stops_and_blank_lines_only():
    text = "Call os.path.join! It's\nfine?  Yes.\n\nTitle\n\nE2E  ÉTÉ done..."
    assert list(corpus.split_sentences(text)) == [
        ["call", "os", "path", "join"],
        ["it", "s", "fine"],
        ["yes"],
        ["title"],
        ["e", "e", "été", "done"],
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
    assert sentences == 3 * [["one", "n", "e", "two"]] + [["three", "née", "four"]]


@pytest.mark.parametrize("unit", ["prose", "lines"])
def test_packed_files_and_folders_have_the_same_sentences(tmp_path, unit):
    lines = unit == "lines"
    text = made_up_text(sentences=40).replace(". ", "\n" if lines else ". ")
    plain = tmp_path / "plain.txt"
    plain.write_text(text)
    expected = list(corpus.read_text(plain, lines))
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    with gzip.open(folder / "a.gz", "wt") as file:
        file.write(text)
    with bz2.open(folder / "sub" / "b.bz2", "wt") as file:
        file.write(text)
    with lzma.open(folder / "sub" / "c.XZ", "wt") as file:
        file.write(text)
    (folder / ".hidden").write_text("not this")
    assert list(corpus.read_text(folder / "a.gz", lines)) == expected
    assert list(corpus.read_text(folder, lines)) == 3 * expected


def test_what_is_no_file_in_a_folder_is_told(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("one two")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "b.txt").write_text("not this")
    (tmp_path / "to_file").symlink_to(tmp_path / "sub" / "a.txt")
    assert list(corpus.read_text(tmp_path)) == 2 * [["one", "two"]]
    (tmp_path / "to_folder").symlink_to(tmp_path)
    (tmp_path / "to_nothing").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "sub" / "pipe")
    with pytest.warns(UserWarning, match=r"left out .*sub/pipe and 2 more: neither files nor fold"):
        assert list(corpus.read_text(tmp_path)) == 2 * [["one", "two"]]


def test_a_folder_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    def scandir(path):
        if str(path) == str(tmp_path / "closed"):  # chmod does not close it to who is root
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    scan = os.scandir
    (tmp_path / "a.txt").write_text("one two")
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError, match="closed"):
        list(corpus.read_text(tmp_path))


@pytest.mark.parametrize("lines", [False, True])
def test_a_mark_of_byte_order_is_no_part_of_a_word(tmp_path, lines):
    path = tmp_path / "text"
    path.write_bytes("one two. three".encode("utf-8-sig"))
    assert next(corpus.read_text(path, lines))[0] == "one"
    assert sum(map(len, corpus.read_text(path, lines))) == 3


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        made_up_text().encode("utf-16"),
        made_up_text().encode("utf-16-be"),
        "Ещё один текст.".encode("koi8-r") * 9,
        np.random.default_rng(0).bytes(5000),
        bytes(5000),
    ],
    ids=["utf-16", "utf-16-be", "koi8-r", "random", "zeros"],
)
def test_what_is_no_text_is_refused(tmp_path, content, lines):
    path = tmp_path / "text"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"/text: expected text in UTF-8; \d+% of what.*Hint: unp"):
        list(corpus.read_text(path, lines))


def test_windows_lines_are_lines(tmp_path):
    text = "One two\nthree. Four\n\nfive six. Seven"
    for name, end in (("unix", "\n"), ("windows", "\r\n")):
        (tmp_path / name).write_bytes(text.replace("\n", end).encode())
    for lines in (False, True):
        unix, windows = (list(corpus.read_text(tmp_path / n, lines)) for n in ("unix", "windows"))
        assert unix == windows


def test_a_line_is_a_sentence_whose_words_are_taken_as_they_are(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("New_York is . big\n\n3 Cats\n")
    assert list(corpus.read_text(path, lines=True)) == [
        ["New_York", "is", ".", "big"],
        ["3", "Cats"],
    ]


@pytest.mark.parametrize("name", ["text.gz", "text.bz2", "text.xz"])
def test_a_damaged_archive_is_an_os_error(tmp_path, name):
    path = tmp_path / name
    opener = {"text.gz": gzip.open, "text.bz2": bz2.open, "text.xz": lzma.open}[name]
    with opener(path, "wt") as file:
        file.write(made_up_text())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(OSError, match=f"damaged.*{name}"):
        list(corpus.read_text(path))


def test_text_without_blanks_does_not_fill_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("x" * 1000)
    monkeypatch.setattr(corpus, "CHUNK", 10)
    monkeypatch.setattr(corpus, "LONGEST", 100)
    read = list(itertools.chain.from_iterable(corpus.read_text(path)))
    assert "".join(read) == "x" * 1000
    assert max(map(len, read)) <= 120


def test_a_module_gives_its_docstrings_and_comments_without_running():
    source = (
        '"""Module."""\n# First\n#: second\nx = 1  # not a block\n\n# third\n'
        'raise SystemExit\ntry: pass\nexcept E:\n  def f():\n    "Inner."\n    class A: "Deep."\n'
    )
    assert list(python_docs.docstrings(source)) == ["Module.", "Inner.", "Deep."]
    assert [block.split() for block in python_docs.comment_blocks(source)] == [
        ["First", "second"],
        ["third"],
    ]
    assert list(python_docs.docstrings("def (:")) == []


def test_help_topics_are_parsed_and_may_be_missing(tmp_path):
    topics = tmp_path / "topics.py"
    topics.write_text("topics = {'b': 'Second.', 'a': 'First.'}\n")
    assert python_docs.help_topics(topics) == ["First.", "Second."]
    assert python_docs.help_topics(tmp_path / "absent.py") == []


def test_tests_and_installed_packages_are_not_read(tmp_path):
    for name in ("b/x.py", "a.py", "test/no.py", "site-packages/no.py", "b/tests/no.py", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert python_docs.source_files(tmp_path) == [tmp_path / "a.py", tmp_path / "b" / "x.py"]


def test_the_documentation_begins_with_prose():
    sentences = itertools.islice(python_docs.python_docs(), 200)
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
    assert list(pairs.blocks(text, 9)) == []
    assert list(batches(text, keep=np.ones(1))) == []


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
    drawn = Draws(NegativeSampler(counts), np.random.default_rng(0)).take((500, 400))
    assert drawn.shape == (500, 400)
    expected = counts**0.75 / (counts**0.75).sum()
    # Four standard deviations of a share of 200,000 draws.
    bound = 4 * np.sqrt(expected * (1 - expected) / drawn.size)
    assert (np.abs(np.bincount(drawn.ravel()) / drawn.size - expected) < bound).all()


@pytest.mark.parametrize("counts", [[7], [3, 2, 1], [10**9, *[1] * 500], range(999, 0, -1)])
def test_a_draw_is_the_word_whose_share_a_number_lies_in(counts):
    counts = np.array(counts)
    shares = np.cumsum(counts**0.75)
    drawn = NegativeSampler(counts).draw(np.random.default_rng(5), 20_000)
    numbers = np.random.default_rng(5).random(20_000)
    expected = np.searchsorted(shares / shares[-1], numbers, side="right")
    assert drawn.tolist() == expected.tolist()


def test_only_the_most_frequent_words_are_kept():
    sentences = [["a"] * 3 + ["b"] * 5 + ["c"] * 5 + ["d"]]
    assert Vocabulary.build(sentences, 1, max_size=2).words == ["b", "c"]


def test_counting_in_little_room_finds_the_frequent_words():
    rng = np.random.default_rng(0)
    # 2 frequent words, and 3,000 that occur once
    sentences = [["often", "more", "more", f"w{i}"] for i in rng.permutation(3000)]
    vocabulary = Vocabulary.build(sentences, 50, room=100)
    assert vocabulary.words == ["more", "often"]
    assert vocabulary.counts[0] > 5900
    assert vocabulary.counts[1] > 2900


def test_a_long_text_is_the_same_from_its_file(monkeypatch):
    sentences = list(corpus.split_sentences(made_up_text()))
    vocabulary = Vocabulary.build(sentences, 1)
    whole = vocabulary.encode(sentences)
    monkeypatch.setattr("examples.word2vec.vocabulary.PART", 100)
    stored = vocabulary.encode(sentences)
    assert isinstance(stored.ids, np.memmap)
    assert all(np.array_equal(a, b) for a, b in zip(whole, stored, strict=True))


def test_draws_are_handed_out_without_a_gap(monkeypatch):
    monkeypatch.setattr("examples.word2vec.vocabulary.POOL", 10)
    sampler = NegativeSampler(np.ones(1000))
    draws = Draws(sampler, np.random.default_rng(0))
    parts = [draws.take(shape).ravel() for shape in [(3,), (2, 2), (0, 5), (3, 1)]]
    assert np.concatenate(parts).tolist() == sampler.draw(np.random.default_rng(0), 10).tolist()
    assert draws.take((7, 5)).shape == (7, 5)  # more than it draws at a time


# ------------------------------------------------------------------------------- pairs


def slow_pairs(bounds: np.ndarray, reach: np.ndarray) -> list[tuple[int, int]]:
    """Every (centre, context) position, by the definition."""
    return [
        (i, j)
        for a, b in itertools.pairwise(bounds)
        for i in range(a, b)
        for j in range(a, b)
        if i != j and abs(i - j) <= reach[i]
    ]


@pytest.mark.parametrize("bounds", [[0, 9], [0, 1, 2, 5], [0, 3, 3, 4, 20], [0]], ids=str)
def test_reaches_end_with_the_sentence(bounds):
    reach = np.random.default_rng(0).integers(1, 5, bounds[-1])
    left, right = pairs.reaches(np.array(bounds), reach)
    found = [
        (i, j) for i in range(bounds[-1]) for j in range(i - left[i], i + right[i] + 1) if i != j
    ]
    assert found == slow_pairs(np.array(bounds), reach)


@pytest.mark.parametrize("size", [1, 5, 7, 1000])
def test_blocks_are_whole_sentences_in_order(size):
    text = Text(np.arange(20), np.array([0, 4, 5, 11, 12, 20]))
    pieces = [pairs.part_of(text, *block) for block in pairs.blocks(text, size)]
    assert np.concatenate([piece.ids for piece in pieces]).tolist() == list(range(20))
    lengths = [n for piece in pieces for n in np.diff(piece.bounds)]
    assert lengths == [4, 1, 6, 1, 8]
    assert all(piece.bounds[0] == 0 and piece.bounds[-1] == len(piece.ids) for piece in pieces)


def batches(text: Text, keep: np.ndarray | None = None, **options) -> list[pairs.Batch]:
    """A run in which no word is thinned out."""
    words = int(text.ids.max(initial=0)) + 1
    sampler = NegativeSampler(np.ones(words))
    draw = lambda rng: lambda batch: sampler.draw(rng, len(batch.ids) * 6).reshape(-1, 6)
    return list(pairs.batches(text, np.ones(words) if keep is None else keep, draw, **options))


def test_an_epoch_has_each_word_as_centre_once_with_contexts_of_its_sentence():
    # Every word of the text is different, so a pair of ids tells the pair of places.
    text = Text(np.arange(40), np.array([0, 3, 10, 11, 40]))
    made = batches(text, seed=3, window=4, centres=16)
    assert len(made) == 3
    sentence = np.repeat(np.arange(4), np.diff(text.bounds))
    seen = []
    for batch in made:
        s, i, j = np.nonzero(batch.near)
        centre, context = batch.centres[s, i], batch.ids[s, j]
        assert batch.negatives.shape == (len(batch.ids), 6)
        assert (batch.near.sum(2) == batch.sizes).all()
        assert (sentence[centre] == sentence[context]).all()
        assert (np.abs(centre - context) >= 1).all() and (np.abs(centre - context) <= 4).all()
        seen += batch.centres[batch.sizes > 0].tolist()
        # each side is seen as far as one reach, or to the end of the sentence
        for c in np.unique(centre):
            mine = context[centre == c] - c
            inner = mine[(mine != mine.min()) | (mine != mine.max())]
            assert len(np.unique(inner)) == len(inner)
    assert sorted(seen) == [i for i in range(40) if i != 10]  # 10 stands alone
    assert sum(batch.words for batch in made) == 40


def test_windows_are_of_every_width_equally_often():
    text = Text(np.zeros(30_000, dtype=int), np.arange(0, 30_001, 1000))
    sizes = np.concatenate([b.sizes.ravel() for b in batches(text, window=3)]).astype(int)
    shares = np.bincount(sizes)[[2, 4, 6]] / 30_000
    np.testing.assert_allclose(shares, 1 / 3, atol=0.02)


def equal(a: pairs.Batch, b: pairs.Batch) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_equal_seeds_make_equal_batches_and_other_seeds_and_epochs_others():
    sentences = list(corpus.split_sentences(made_up_text()))
    text = Vocabulary.build(sentences, 1).encode(sentences)
    first, again, other = (batches(text, seed=seed, epochs=2, centres=64) for seed in (1, 1, 2))
    assert all(map(equal, first, again))
    assert not any(map(equal, first, other))
    half = len(first) // 2
    assert not any(map(equal, first[:half], first[half:]))


@pytest.mark.parametrize("done", [1, 7, 20, 37, 58])
def test_a_run_taken_up_at_any_batch_goes_on_as_it_would_have(monkeypatch, done):
    monkeypatch.setattr(pairs, "BLOCK", 500)
    sentences = list(corpus.split_sentences(made_up_text()))
    text = Vocabulary.build(sentences, 1).encode(sentences)
    whole = batches(text, epochs=2, centres=64)
    rest = batches(text, epochs=2, centres=64, start=whole[done - 1].after)
    assert len(rest) == len(whole) - done
    assert all(map(equal, whole[done:], rest))


def test_what_no_array_of_words_can_hold_is_no_word(tmp_path):
    path = tmp_path / "text"
    path.write_text(f"cats cats\0 {'x' * 1000} dog\n")
    with pytest.warns(UserWarning, match="left out words of more than 200 characters"):
        assert list(corpus.read_text(path, lines=True)) == [["cats", "cats", "dog"]]


def test_a_folder_without_files_is_told(tmp_path):
    (tmp_path / ".hidden").touch()
    with pytest.raises(InputError, match="is a folder with no files in it"):
        list(corpus.read_text(tmp_path))
