"""Word2vec: files of runs, whole and damaged in every way."""

import json

import numpy as np
import pytest
from toy_text import made_up_text

from examples.word2vec import command, formats, store
from examples.word2vec.corpus import split_sentences
from examples.word2vec.formats import FormatError
from examples.word2vec.models import LOSSES, MODELS, Model, Settings
from examples.word2vec.train import Run, train
from examples.word2vec.vocabulary import Vocabulary

SENTENCES = list(split_sentences(made_up_text(sentences=50)))
VOCABULARY = Vocabulary.build(SENTENCES, 1)
TEXT = VOCABULARY.encode(SENTENCES)
READING = {"lines": False, "min_count": 1, "max_words": None, "text": TEXT.checksum()}
PARTS = 20


def saved(path, **settings):
    """A run of one epoch in a file."""
    model = Model(VOCABULARY, Settings(dim=4, sample=0, epochs=1, **settings))
    train(model, VOCABULARY, TEXT, run := Run())
    store.save(path, model, VOCABULARY, run, READING)
    return model, run


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.npz"
    saved(path, parts=PARTS)
    return formats.read_arrays(path)


@pytest.mark.parametrize("parts", [0, PARTS])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", MODELS)
def test_a_run_of_any_kind_is_read_back(tmp_path, kind, loss, parts):
    path = tmp_path / "run.npz"
    model, run = saved(path, model=kind, loss=loss, parts=parts)
    read = store.load(path)
    assert read.model.settings == model.settings
    assert (read.vocabulary.words, read.reading) == (VOCABULARY.words, READING)
    assert (read.run.place, read.run.words, read.run.losses) == (run.place, run.words, run.losses)
    for mine, other in zip(model.parameters, read.model.parameters, strict=True):
        assert mine.numpy().tobytes() == other.numpy().tobytes()
    kv, losses = store.load_shown(path)
    assert kv.vectors.tobytes() == model.inputs.vectors().tobytes()
    assert losses.tolist() == run.losses
    assert kv.has_vector("doge") == (parts > 0)


def with_value(value):
    def damage(array):
        array = array.copy()
        array.flat[-1] = value
        return array

    return damage


DAMAGES = {
    "missing": lambda a: None,
    "short": lambda a: a[:-1],
    "long": lambda a: np.concatenate([a, a[-1:]]),
    "of none": lambda a: a[:0],
    "of one axis more": lambda a: a[None],
    "of one axis less": lambda a: a.ravel() if a.ndim > 1 else a[0],
    "turned": lambda a: a.T if a.ndim > 1 else a[:, None],
    "without columns": lambda a: a[:, :0] if a.ndim > 1 else a[:3],
    "of bytes": lambda a: np.frombuffer(a.tobytes(), np.int8),
    "of text": lambda a: a.astype("S3") if a.dtype.kind == "U" else a.astype(str),
    "of objects": lambda a: np.array(a, object),
    "of halves": lambda a: np.zeros(a.shape, np.float16),
    "of doubles": lambda a: np.zeros(a.shape, np.complex128),
    "of truths": lambda a: np.zeros(a.shape, bool),
    "of dates": lambda a: np.zeros(a.shape, "M8[s]"),
    "of records": lambda a: np.zeros(a.shape, "i4,f4"),
}
VALUES = {
    **{f"{name} that are {value}": (name, value)
       for name in ("vectors", "outputs", "losses", "inputs") for value in (np.nan, np.inf)},
    "counts that are 0": ("counts", 0),
    "counts that are negative": ("counts", -1),
    "counts that rise": ("counts", 10**6),
    "words given twice": ("words", VOCABULARY.words[0]),
}  # fmt: skip


def refused(path, damaged, capsys):
    """Whether both readers and the command refuse a file of these arrays, by its name."""
    np.savez(path, **{name: array for name, array in damaged.items() if array is not None})
    for read in (store.load, store.load_vectors):
        with pytest.raises(FormatError, match="expected") as error:
            read(path)
        assert str(error.value).startswith(f"{path}: ")
    text = path.with_name("text")
    text.write_text(made_up_text(sentences=50))
    for arguments in (["train", str(text), "--resume"], ["neighbours"]):
        assert command.main([*arguments, str(path), *["cat"][: len(arguments) == 1]]) == 2
        assert f"word2vec: error: {path}: expected" in capsys.readouterr().err


NAMES = ["words", "vectors", "counts", "outputs", "losses", "inputs"]


ANY_NUMBER = {("losses", damage) for damage in ("short", "long", "of none", "without columns")}


@pytest.mark.parametrize(
    ("name", "damage"),
    [(name, damage) for name in NAMES for damage in DAMAGES if (name, damage) not in ANY_NUMBER],
)
def test_a_damaged_array_is_refused(tmp_path, arrays, capsys, name, damage):
    refused(tmp_path / "run.npz", arrays | {name: DAMAGES[damage](arrays[name])}, capsys)


@pytest.mark.parametrize("value", VALUES)
def test_an_array_with_a_wrong_value_is_refused(tmp_path, arrays, capsys, value):
    name, number = VALUES[value]
    refused(tmp_path / "run.npz", arrays | {name: with_value(number)(arrays[name])}, capsys)


def test_an_array_too_many_is_refused(tmp_path, arrays, capsys):
    refused(tmp_path / "run.npz", arrays | {"more": np.zeros(3)}, capsys)


def in_header(header, place, value):
    """The header with another value at a place, or without it."""
    copy = json.loads(json.dumps(header))
    within = copy
    for name in place[:-1]:
        within = within[name]
    if value is None:
        del within[place[-1]]
    else:
        within[place[-1]] = json.loads(value)
    return np.frombuffer(json.dumps(copy).encode(), np.uint8)


PLACES = [
    *((name,) for name in ("format", "settings", "place", "words", "reading")),
    *(("settings", name) for name in Settings._fields),
    *(("reading", name) for name in READING),
    *(("place", i) for i in range(3)),
]
WRONG = [
    None,
    "null",
    "-1",
    "1e400",
    "NaN",
    "2.5",
    '"x"',
    "[]",
    "{}",
    "[1]",
    "true",
    "1" + 30 * "0",
]
# What might have been so: a run is not told from another by looking.
MAY_BE = {
    (("reading", "max_words"), "null"),
    (("reading", "lines"), "true"),
    (("settings", "lr"), "2.5"),
    (("settings", "clip"), "2.5"),
    (("settings", "lr"), "1" + 30 * "0"),
    (("settings", "clip"), "1" + 30 * "0"),
}


@pytest.mark.parametrize(
    ("place", "value"),
    [(place, value) for place in PLACES for value in WRONG if (place, value) not in MAY_BE],
    ids=str,
)
def test_a_damaged_header_is_refused(tmp_path, arrays, capsys, place, value):
    header = json.loads(arrays["header"].tobytes())
    refused(tmp_path / "run.npz", arrays | {"header": in_header(header, place, value)}, capsys)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 99_999], ids=repr)
def test_a_header_that_is_none_is_refused(tmp_path, arrays, capsys, raw):
    refused(tmp_path / "run.npz", arrays | {"header": np.frombuffer(raw, np.uint8)}, capsys)


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.str_])
def test_a_header_of_another_type_is_refused(tmp_path, arrays, capsys, kind):
    refused(tmp_path / "run.npz", arrays | {"header": arrays["header"].astype(kind)}, capsys)


def test_a_run_that_could_not_be_read_back_is_not_saved(tmp_path):
    vocabulary = Vocabulary.of(["cats", "cats\0"], [2, 1])
    model = Model(vocabulary, Settings(dim=2))
    with pytest.raises(FormatError, match="cannot hold a word that ends in NUL"):
        store.save(tmp_path / "run.npz", model, vocabulary, Run(), READING)
    assert not list(tmp_path.iterdir())
