"""Word2vec: asking vectors questions, files of vectors, scores and pictures."""

import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.program import whole_file
from examples.word2vec import evaluation, formats, plots
from examples.word2vec.formats import FormatError
from examples.word2vec.keyed_vectors import KeyedVectors, UnknownWordError, top, unit_rows

RNG = np.random.default_rng(0)
KV = KeyedVectors([f"w{i}é" for i in range(40)], RNG.normal(size=(40, 5)))


def cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


# -------------------------------------------------------------------------------- questions


def test_most_similar_is_by_angle_and_never_the_question():
    ranked = KV.most_similar(["w1é", "w2é"], ["w3é"], topn=40)
    a, b, c = (v / np.linalg.norm(v) for v in KV[["w1é", "w2é", "w3é"]])
    expected = {w: cosine(v, a + b - c) for w, v in zip(KV.words, KV.vectors, strict=True)}
    for asked in ("w1é", "w2é", "w3é"):
        del expected[asked]
    assert [w for w, _ in ranked] == sorted(expected, key=expected.get, reverse=True)
    assert dict(ranked) == pytest.approx(expected, abs=1e-6)
    assert KV.most_similar("w1é", topn=3) == KV.most_similar(["w1é"], topn=3)
    few = KV.most_similar("w1é", among=10)
    assert len(few) == 9 and {w for w, _ in few} <= set(KV.words[:10])


def test_many_questions_at_once_have_the_same_answers(monkeypatch):
    monkeypatch.setattr("examples.word2vec.keyed_vectors.AT_ONCE", 3 * 40)
    many = KV.neighbours(KV.words, 4)
    for word, ranked in zip(KV.words, many, strict=True):
        alone = KV.most_similar(word, topn=4)
        assert [w for w, _ in ranked] == [w for w, _ in alone]
        assert dict(ranked) == pytest.approx(dict(alone), abs=1e-6)
    assert KV.neighbours([]) == []


def test_words_are_looked_up_alone_and_together():
    assert "w7é" in KV and "w7" not in KV and len(KV) == 40
    np.testing.assert_array_equal(KV["w7é"], KV.vectors[7])
    np.testing.assert_array_equal(KV[["w7é", "w1é"]], KV.vectors[[7, 1]])
    assert KV.similarity("w7é", "w1é") == pytest.approx(cosine(*KV[["w7é", "w1é"]]), abs=1e-6)


@pytest.mark.parametrize(
    "ask",
    [
        lambda kv: kv["x"],
        lambda kv: kv[["w1é", "x"]],
        lambda kv: kv.most_similar(["w1é"], ["x"]),
        lambda kv: kv.similarity("x", "w1é"),
        lambda kv: kv.doesnt_match(["w1é", "x"]),
    ],
)
def test_an_unknown_word_is_named(ask):
    with pytest.raises(UnknownWordError, match="'x' is not in the vocabulary"):
        ask(KV)


def test_no_words_are_no_question():
    with pytest.raises(ValueError, match="at least one word"):
        KV.most_similar()
    with pytest.raises(ValueError, match="at least one word"):
        KV.doesnt_match([])


def test_the_odd_one_out():
    kv = KeyedVectors(["a", "b", "c"], [[1, 0], [3, 0.5], [-1, 4]])
    assert kv.doesnt_match(["a", "b", "c"]) == "c"


def test_a_row_of_zeros_is_near_nothing():
    np.testing.assert_allclose(unit_rows(np.array([[3.0, 4], [0, 0]])), [[0.6, 0.8], [0, 0]])


@pytest.mark.parametrize("size", [1e-40, 1e-30, 1, 1e30, 1e38])
def test_a_row_of_any_size_has_a_direction(size):
    rows = np.array([[3, 4]], np.float32) * np.float32(size / 4)
    np.testing.assert_allclose(unit_rows(rows), [[0.6, 0.8]], rtol=1e-4)
    assert unit_rows(RNG.normal(size=(5, 3)).astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("count", [0, 1, 3, 7, 9])
def test_top_is_a_sort_cut_short(count):
    values = np.array([1.0, 5, 3, 5, -np.inf, 2, 5])
    assert top(values, count).tolist() == np.argsort(-values, kind="stable")[:count].tolist()


@pytest.mark.parametrize("words", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_words_and_rows_must_fit(words):
    with pytest.raises(ValueError, match="expected a row for each"):
        KeyedVectors(words, np.zeros((2, 3)))


# ------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("kind", formats.WRITERS)
def test_what_was_written_is_read_to_the_bit(tmp_path, kind):
    path = tmp_path / "vectors"
    formats.save(KV, path, kind)
    read = formats.load(path)
    assert read.words == KV.words
    assert read.vectors.tobytes() == KV.vectors.tobytes()
    assert [p.name for p in tmp_path.iterdir()] == ["vectors"]


def test_a_file_appears_whole_with_its_usual_rights_or_not_at_all(tmp_path):
    path = tmp_path / "v"
    (tmp_path / "v.partial").write_text("another program's")
    with whole_file(path) as first:
        first.write(b"first")
        with whole_file(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    with pytest.raises(ValueError, match="in the middle"), whole_file(path) as file:
        file.write(b"third")
        raise ValueError("in the middle")
    assert path.read_bytes() == b"first"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v", "v.partial"]
    assert path.stat().st_mode == (tmp_path / "v.partial").stat().st_mode


def test_the_formats_are_those_of_word2vec(tmp_path):
    kv = KeyedVectors(["a", "é"], np.array([[0.5, -2], [1e-9, 3]], np.float32))
    formats.save(kv, tmp_path / "t", "text")
    assert (tmp_path / "t").read_text() == "2 2\na 0.5 -2.0\né 1e-09 3.0\n"
    formats.save(kv, tmp_path / "b", "binary")
    a, b = (row.astype("<f4").tobytes() for row in kv.vectors)
    assert (tmp_path / "b").read_bytes() == b"2 2\na " + a + b"\n\xc3\xa9 " + b + b"\n"
    # the original program ends vectors with a newline, others do not
    (tmp_path / "b").write_bytes(b"2 2\na " + a + b"\xc3\xa9 " + b)
    assert formats.load(tmp_path / "b").words == ["a", "é"]


def test_gensim_reads_ours_and_we_read_gensim_s(tmp_path):
    gensim = pytest.importorskip(
        "gensim", reason="gensim, a peer that no extra has, is not installed"
    )
    for kind in ("text", "binary"):
        path, binary = str(tmp_path / kind), kind == "binary"
        formats.save(KV, path, kind)
        theirs = gensim.models.KeyedVectors.load_word2vec_format(path, binary=binary)
        theirs.save_word2vec_format(path, binary=binary)
        ours = formats.load(path)
        for kv in (theirs, ours):
            ranked = kv.most_similar(["w1é", "w2é"], ["w3é"], topn=9)
            expected = KV.most_similar(["w1é", "w2é"], ["w3é"], topn=9)
            assert [w for w, _ in ranked] == [w for w, _ in expected]
            assert dict(ranked) == pytest.approx(dict(expected), abs=1e-6)


F4 = np.array([1, 2], "<f4").tobytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a first line"),
        (b"words and vectors\n", "expected a first line"),
        (b"-2 3\n", "expected a first line"),
        (b"2 0\na\nb\n", "expected 2 vectors of 0 numbers"),
        (b"9000000000 100\na 1 2\n", "more than 21 bytes can hold"),
        (b"3 2\na 1 2\n", "more than 10 bytes can hold"),
        (b"2 2\na 1.5 2.5\n\n", "line 3: expected a word and 2 numbers, got 1 fields"),
        (b"2 2\na 1 2\nb 1\n", "line 3: expected a word and 2 numbers, got 2 fields"),
        (b"2 2\na 1 2\nb 1 2 3\n", "line 3: expected a word and 2 numbers, got 4 fields"),
        (b"2 2\na 1 2\nb 1 x\n", "line 3: expected 2 numbers, got could not convert"),
        (b"2 2\na 1 2\nb 1 nan\n", "expected finite numbers, got others for 'b'"),
        (b"2 2\na 1 2\na 1 2\n", "expected each word once, got 'a' twice"),
        (b"1 2\na 1 2\nb 1 2\n", "expected the end after 1 vectors, got b'b 1 2'"),
        (b"2 2\na 1 2\n\xff 1 2\n", "line 3: expected a word in UTF-8"),
        (b"2 2\na " + F4 + b"\nb " + F4[:5], "more than|word 2 of 2: expected 2 numbers, but the"),
        (b"2 2\na " + F4 + b"\nbbbbbbbbbbbbb", "word 2 of 2: expected a word and a blank"),
        (b"1 2\na " + F4 + b"\nmore", "expected the end after 1 vectors, got b'more'"),
        (b"2 2\na 1 x\nb 1 2\n", "line 2: expected 2 numbers, got could not convert"),
        (b"2 2\na 1\nb 1 2\n", "line 2: expected a word and 2 numbers, got 2 fields"),
        (b"2 2\na 1 2 3x\nb 1 2\n", "line 2: expected a word and 2 numbers, got 4 fields"),
        (b"2 2\nnew york\nb 1 2\n", "line 2: expected a word and 2 numbers, got 2 fields"),
        (b"PK\x03\x04 and no more", "expected an .npz file of plain arrays"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(tmp_path, content, message):
    path = tmp_path / "vectors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as error:
        formats.load(path)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"vectors": np.zeros((2, 2))}, "expected arrays words"),
        ({"words": np.array(["a"]), "vectors": np.zeros((2, 2))}, "expected a row a word"),
        ({"words": np.array([1, 2]), "vectors": np.zeros((2, 2))}, "expected arrays words"),
        ({"words": np.array([None]), "vectors": np.zeros((1, 2))}, "plain arrays"),
    ],
)
def test_an_npz_of_other_things_is_refused(tmp_path, arrays, message):
    path = tmp_path / "vectors.npz"
    np.savez(path, **arrays)
    with pytest.raises(FormatError, match=message):
        formats.load(path)


KINDS = ["text", "binary", "npz"]
# Letters that files of text or arrays take for something else, and any other.
LETTERS = st.sampled_from(" \t\n\r\0\x0b\x1c\x85\xa0\u2003\ufeff\ud800é1.-eN") | st.characters()
WORDS = st.lists(st.text(LETTERS, max_size=5), unique=True, max_size=4)


@pytest.mark.parametrize("kind", KINDS)
@given(words=WORDS, d=st.integers(0, 3), data=st.data())
def test_a_file_is_read_back_as_it_was_or_is_not_written(tmp_path_factory, kind, words, d, data):
    path = tmp_path_factory.mktemp("v") / "v"
    path.write_text("of before")
    bits = data.draw(st.binary(min_size=4 * len(words) * d, max_size=4 * len(words) * d))
    kv = KeyedVectors(words, np.frombuffer(bits, "<f4").reshape(len(words), d))
    try:
        formats.save(kv, path, kind)
    except FormatError:
        assert path.read_text() == "of before"
        odd = any(word.split() != [word] or not word.isprintable() for word in words)
        # what is usual is never refused
        text = "\ufffd" not in bits.decode(errors="replace")
        assert odd or d < 2 or text or not np.isfinite(kv.vectors).all()
    else:
        read = formats.load(path)
        assert read.words == kv.words
        assert read.vectors.shape == kv.vectors.shape
        assert read.vectors.tobytes() == kv.vectors.tobytes()
    assert [p.name for p in path.parent.iterdir()] == ["v"]


@pytest.mark.parametrize(
    ("kind", "word", "why"),
    [
        *((kind, word, "with a blank, or none") for kind in KINDS[:2]
          for word in ["new york", "", "a\n", "a\u2003b"]),
        *((kind, "x" * 10_001, "of more than 10,000 bytes") for kind in KINDS[:2]),
        *((kind, "é" * 5_001, "of more than 10,000 bytes") for kind in KINDS[:2]),
        *((kind, "a\ud800", "that is not UTF-8") for kind in KINDS[:2]),
        ("npz", "cats\0", "that ends in NUL"),
    ],
)  # fmt: skip
def test_a_word_that_would_not_be_read_back_is_not_written(tmp_path, kind, word, why):
    kv = KeyedVectors(["fine", word], np.ones((2, 2)))
    with pytest.raises(FormatError, match=f"cannot hold a word {why}: '{word[:1]}"):
        formats.save(kv, tmp_path / "v", kind)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_word_is_read_back(tmp_path, kind):
    words = ["x" * 10_000, "y" * 10_000]
    formats.save(KeyedVectors(words, np.ones((2, 2))), tmp_path / "v", kind)
    assert formats.load(tmp_path / "v").words == words


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_numbers_that_would_not_be_read_back_are_not_written(tmp_path, kind, value):
    with np.errstate(over="ignore"):
        kv = KeyedVectors(["a", "b"], np.array([[1, 2], [3, value]]))
    with pytest.raises(FormatError, match="expected finite numbers, got others for 'b'"):
        formats.save(kv, tmp_path / "v", kind)
    assert not list(tmp_path.iterdir())


def test_digits_by_chance_are_not_taken_for_text(tmp_path):
    kv = KeyedVectors(["a"], np.frombuffer(b"1234", "<f4").reshape(1, 1))
    with pytest.raises(FormatError, match=r"begins with 'a' .* looks like another. Hint: npz"):
        formats.save(kv, tmp_path / "v", "binary")


@pytest.mark.parametrize("first", [b"\n", b"1\n", b"1 2\n", b" \n", b"\n1 2 3 4\n"])
def test_newlines_in_numbers_do_not_make_text_of_them(tmp_path, first):
    bits = np.frombuffer((first + b"\0\0\xff\x3f" * 4)[: 4 * 4], "<f4")
    kv = KeyedVectors(["a", "b"], np.array([bits, np.ones(4)]))
    formats.save(kv, tmp_path / "v", "binary")
    read = formats.load(tmp_path / "v")
    assert read.vectors.tobytes() == kv.vectors.tobytes()


# ----------------------------------------------------------------------------------- scores


def test_word_pairs_are_scored_by_rank_and_unknown_ones_reported(tmp_path):
    kv = KeyedVectors(["a", "b", "c", "d"], [[1, 0], [1, 0.1], [1, 1], [0, 1]])
    path = tmp_path / "pairs.tsv"
    path.write_text("# comment\nword1\tword2\tmean\n\nA\tb\t9.5\na\tc\t5\na\td\t1\na\tx\t7\n")
    score = evaluation.word_pairs(kv, path)
    assert score == (pytest.approx(1), 3, 4, ["x"])
    path.write_text("a,b,1\na,c,5\na,d,9\n")
    assert evaluation.word_pairs(kv, path).rho == pytest.approx(-1)
    path.write_text("a\tb\t1\na\tx\t2\n")
    assert np.isnan(evaluation.word_pairs(kv, path).rho)


def test_analogies_are_scored_by_section(tmp_path):
    words = ["man", "woman", "king", "queen", "far"]
    kv = KeyedVectors(words, [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [-1, -1, -1]])
    path = tmp_path / "questions.txt"
    path.write_text(
        ": family\nMan Woman King Queen\nman king woman queen\nking man far queen\n"
        ": other\nman woman x queen\n: none\n"
    )
    assert evaluation.analogies(kv, path) == [("family", 2, 3, 3), ("other", 0, 0, 1),
                                              ("none", 0, 0, 0)]  # fmt: skip
    assert evaluation.analogies(kv, path, among=4)[0] == ("family", 2, 2, 3)


@pytest.mark.parametrize(
    ("score", "text", "message"),
    [
        (evaluation.word_pairs, "a\tb\t1\na b\n", "line 2: expected two words and a number"),
        (evaluation.analogies, "a b c d\n", "line 1: expected four words under a heading"),
        (evaluation.analogies, ": s\na b c\n", "line 2: expected four words"),
    ],
)
def test_a_malformed_test_set_is_refused_with_the_line(tmp_path, score, text, message):
    path = tmp_path / "set.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        score(KV, path)


# ---------------------------------------------------------------------------------- pictures


def test_the_table_reports_words_it_does_not_know():
    kv = KeyedVectors(["cat", "dog"], np.eye(2))
    table = plots.neighbour_table(kv, ["cat", "unicorn"])
    assert table.splitlines() == ["    cat | dog 0.00", "unicorn | (not in the vocabulary)"]
    assert plots.neighbour_table(kv, ["unicorn"]) == "unicorn | (not in the vocabulary)"


def test_labels_are_spread_until_none_overlap():
    rng = np.random.default_rng(0)
    centres = np.concatenate([rng.normal(0, 40, (60, 2)), np.zeros((3, 2))])
    sizes = rng.uniform(10, 50, (63, 2))
    placed = plots.spread(centres, sizes)
    overlap = (sizes[:, None] + sizes) / 2 - np.abs(placed[:, None] - placed)
    assert ((overlap > 0).all(axis=2) == np.eye(63, dtype=bool)).all()


@pytest.mark.parametrize("method", ["t-sne", "pca"])
def test_a_map_is_a_picture(tmp_path, method):
    words = ["the", "copper", "silver", "purple", "orange"]
    kv = KeyedVectors(words, RNG.normal(size=(5, 4)))
    plots.draw_map(kv, tmp_path / "map.png", method=method)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="at least 2 words"):
        plots.draw_map(kv, io.BytesIO(), ["copper"])


@pytest.mark.parametrize("steps", [1, 7, 1000])
def test_the_loss_is_a_picture(tmp_path, steps):
    plots.draw_loss(RNG.uniform(1, 2, steps), tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("content", ["cat dog 9\ncat cow 1\n", "", "a\tb\tscore\n"])
def test_a_file_without_a_judged_pair_is_refused(tmp_path, content):
    path = tmp_path / "pairs"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"expected (lines of )?two words and a number"):
        evaluation.word_pairs(KeyedVectors(["cat", "dog"], np.eye(2)), path)


def test_a_judgement_that_is_no_number_is_refused(tmp_path):
    path = tmp_path / "pairs"
    path.write_text("a\tb\tscore\ncat\tdog\tnan\n")
    with pytest.raises(ValueError, match="line 2: expected two words and a number"):
        evaluation.word_pairs(KeyedVectors(["cat", "dog"], np.eye(2)), path)


def test_no_words_have_no_vectors():
    assert KeyedVectors(["cat", "dog"], np.eye(2))[[]].shape == (0, 2)


def test_vectors_show_what_they_are_of():
    kv = KeyedVectors(list("abcd"), np.zeros((4, 3)))
    assert repr(kv) == "KeyedVectors(4 of 3 numbers: 'a', 'b', 'c', ...)"
    assert repr(KeyedVectors(["a"], np.zeros((1, 2)))) == "KeyedVectors(1 of 2 numbers: 'a')"
