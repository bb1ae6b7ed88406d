"""Word2vec: the whole command."""

import gzip
import os
import re
import signal

import numpy as np
import pytest
from toy_text import TOPICS, made_up_text

from examples.word2vec import command, evaluation, formats, train
from examples.word2vec.models import LOSSES
from examples.word2vec.options import FLAGS

SMALL = "--dim 8 --batch 64 --sample 0 --epochs 10 --lr 0.2".split()


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.gz"
    with gzip.open(path, "wt") as file:
        file.write(made_up_text())
    return str(path)


@pytest.fixture
def saved(tmp_path, text, capsys):
    path = str(tmp_path / "run.npz")
    assert command.main(["train", text, "--save", path, *SMALL]) == 0
    capsys.readouterr()
    return path


def test_train_shows_and_draws_what_it_learned(tmp_path, text, capsys):
    picture = tmp_path / "map.png"
    options = ["--plot", str(picture), "--words", "cat", "unicorn"]
    assert command.main(["train", text, *options, *SMALL]) == 0
    out = capsys.readouterr().out
    assert "2,400 words in 300 sentences; 18 different words" in out
    (line,) = (line for line in out.splitlines() if "cat |" in line)
    assert set(line.split("|")[1].split()[:10:2]) == set(TOPICS[0]) - {"cat"}
    assert "unicorn | (not in the vocabulary)" in out
    for path in (picture, tmp_path / "map-loss.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_ctrl_c_saves_and_resume_ends_with_the_same_bytes(
    tmp_path, text, saved, capsys, monkeypatch, request, name
):
    path = tmp_path / "part.npz"
    steps = iter(range(10_000))
    number = getattr(signal, name)
    # whoever started the tests under nohup has it ignored, and so would the run
    before = signal.signal(number, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(number, before))

    def interrupting(*args, **options):
        """The optimizer, and in its hundredth step, in epoch 3, Ctrl-C."""
        if next(steps) == 99:
            signal.raise_signal(number)
        return step(*args, **options)

    step = train.optim.SGD.step
    monkeypatch.setattr(train.optim.SGD, "step", interrupting)
    assert command.main(["train", text, "--save", str(path), *SMALL]) == 130
    again = f"python -m examples.word2vec train {text} --resume {path}"
    assert f"interrupted; go on with: {again}\n" in capsys.readouterr().err
    assert command.main(["neighbours", str(path), "cat"]) == 0  # usable as it is
    assert len(formats.read_arrays(path)["losses"]) == 100
    assert command.main(["train", text, "--resume", str(path)]) == 0
    whole, resumed = formats.read_arrays(saved), formats.read_arrays(path)
    assert whole.keys() == resumed.keys()
    assert all(whole[name].tobytes() == resumed[name].tobytes() for name in whole)


def test_killed_between_epochs_there_is_a_file_to_go_on_from(tmp_path, text, monkeypatch):
    path = tmp_path / "part.npz"
    steps = iter(range(10_000))

    def dying(*args, **options):
        if next(steps) == 99:
            raise MemoryError
        return step(*args, **options)

    step = train.optim.SGD.step
    monkeypatch.setattr(train.optim.SGD, "step", dying)
    assert command.main(["train", text, "--save", str(path), *SMALL]) == 2
    assert len(formats.read_arrays(path)["losses"]) == 76  # two epochs of 38


def test_another_text_is_no_way_to_go_on(tmp_path, saved, capsys):
    other = tmp_path / "other.txt"
    other.write_text(made_up_text(seed=1))
    assert command.main(["train", str(other), "--resume", saved]) == 2
    assert "is a run on another text than" in capsys.readouterr().err


def test_the_same_words_in_another_order_are_another_text(tmp_path, saved, text, capsys):
    with gzip.open(text, "rt") as file:
        sentences = file.read().split(". ")
    other = tmp_path / "other.txt"
    other.write_text(". ".join(reversed(sentences)))
    assert command.main(["train", str(other), "--resume", saved]) == 2
    assert "Hint: name the text of that run" in capsys.readouterr().err


def test_a_run_whose_counts_were_pruned_goes_on(tmp_path, text, monkeypatch):
    path = str(tmp_path / "run.npz")
    build = command.Vocabulary.build
    monkeypatch.setattr(command.Vocabulary, "build", lambda *args: build(*args, room=10))
    options = [*SMALL, "--min-count", "1"]
    assert command.main(["train", text, "--save", path, *options]) == 0
    assert command.main(["train", text, "--resume", path]) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + " cat dog unheard unheard.",
        lambda text: text + " cat dog red blue." * 50,
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("cat", "dog", 1),
        lambda text: ". ".join(reversed(text.split(". "))),
        lambda text: "",
    ],
    ids=["grows", "grows much", "shrinks", "changes", "is reordered", "is emptied"],
)
def test_a_corpus_that_changes_while_it_is_read_is_refused(tmp_path, capsys, monkeypatch, change):
    path, saved = tmp_path / "text", tmp_path / "run.npz"
    path.write_text(made_up_text())
    build = command.Vocabulary.build

    def then_change(*args):
        vocabulary = build(*args)
        path.write_text(change(path.read_text()))
        return vocabulary

    monkeypatch.setattr(command.Vocabulary, "build", then_change)
    assert command.main(["train", str(path), "--save", str(saved), *SMALL]) == 2
    assert "changed while it was read. Hint: train on a copy" in capsys.readouterr().err
    assert not saved.exists()


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert command.main(["train", str(tmp_path / "pipe"), *SMALL]) == 2
    assert "neither a file nor a folder. Hint: a text is read twice" in capsys.readouterr().err


def test_a_disk_that_is_full_at_the_end_of_an_epoch_costs_no_run(tmp_path, text, monkeypatch):
    path = tmp_path / "run.npz"
    saves = iter(range(100))

    def full(*args):
        if next(saves) == 0:
            raise OSError(28, "No space left on device")
        save(*args)

    save = command.store.save
    monkeypatch.setattr(command.store, "save", full)
    with pytest.warns(UserWarning, match="could not save .*, going on: .* No space left"):
        assert command.main(["train", text, "--save", str(path), *SMALL]) == 0
    assert path.exists()


@pytest.mark.parametrize(
    "options, message",
    [
        ("--sample 1e-30", "every word was thinned out"),
        ("--parts 50 --shortest 7 --longest 3", "n-grams from the shortest to the longest"),
        ("--max-words 1", "Hint: raise --max-words"),
    ],
)
def test_settings_that_leave_nothing_to_learn_say_so(text, capsys, options, message):
    assert command.main(["train", text, *options.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, message",
    [
        ("train {text} --shortest 3", "--shortest does nothing without --parts"),
        ("train {text} --longest 3", "--longest does nothing without --parts"),
        ("train {text} --parts 0 --longest 3", "--longest does nothing without --parts"),
        ("train {text} --loss own --shared 3", "--shared does nothing with --loss own"),
        ("train {text} --loss softmax --shared 3", "--shared does nothing with --loss softmax"),
        ("train {text} --loss softmax --negatives 3", "--negatives does nothing with --loss"),
        ("train {text} --loss hierarchical --negatives 3", "--negatives does nothing with --loss"),
        ("train {text} --resume {run} --shortest 3", "--shortest does nothing without --parts"),
        ("train --lines", "--lines does nothing without a text"),
        ("evaluate {run} --pairs {text} --among 9", "--among does nothing without --analogies"),
    ],
)
def test_what_does_nothing_is_not_taken(saved, text, capsys, options, message):
    assert command.main(options.format(text=text, run=saved).split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "model, loss, parts", [*(("skipgram", loss, 0) for loss in LOSSES), ("cbow", "shared", 50)]
)
def test_every_option_that_is_taken_changes_the_vectors(tmp_path, text, model, loss, parts):
    def vectors(name, value):
        said = f"--model {model} --loss {loss} --parts {parts}".split()
        said += [] if name is None else [FLAGS[name], value]
        path = tmp_path / "run.npz"
        if command.main(["train", text, "--save", str(path), *SMALL[:4], *said]) != 0:
            return None
        return formats.read_arrays(path)["vectors"].tobytes()

    usual = vectors(None, "")
    others = {"min_count": "134", "max_words": "9", "sample": "1e-2", "dim": "7", "window": "2",
              "negatives": "2", "shared": "3", "shortest": "4", "longest": "4", "epochs": "2",
              "centres": "100", "lr": "0.3", "clip": "1e-3", "seed": "5"}  # fmt: skip
    made = {name: vectors(name, value) for name, value in others.items()}
    refused = {name for name, found in made.items() if found is None}
    assert refused == {
        *(["shared"] if loss != "shared" else []),
        *(["negatives"] if loss in ("hierarchical", "softmax") else []),
        *(["shortest", "longest"] if not parts else []),
    }
    assert usual not in made.values()


MAGIC = {"png": b"\x89PNG", "PNG": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml", "jpg": b"\xff\xd8"}


@pytest.mark.parametrize("ending", MAGIC)
def test_a_picture_is_what_its_name_says(tmp_path, saved, capsys, ending):
    out = tmp_path / f"map.{ending}"
    assert command.main(["plot", saved, "--out", str(out), "--method", "pca"]) == 0
    for path in (out, tmp_path / f"map-loss.{ending}"):
        assert path.read_bytes().startswith(MAGIC[ending])


@pytest.mark.parametrize("name", ["map", "map.txt", "map.npz", ".png"])
def test_a_picture_of_no_kind_is_refused_before_the_work(tmp_path, saved, text, capsys, name):
    out = str(tmp_path / name)
    for arguments in (["plot", saved, "--out", out], ["train", text, "--plot", out]):
        assert command.main(arguments) == 2
        output = capsys.readouterr()
        assert "expected .png, .pdf, .svg" in output.err
        assert output.out == ""


def test_a_test_set_in_another_encoding_is_refused_with_its_place(tmp_path, saved, capsys):
    path = tmp_path / "set"
    path.write_bytes("cat\tdog\t1\nnée\tdog\t2\n".encode("latin-1"))
    for kind in ("--pairs", "--analogies"):
        path.write_bytes(b": s\ncat dog red blue\ncat \xe9 red blue\n" if kind[2] == "a" else
                         b"cat\tdog\t1\ncat\tred\t2\n\xe9\tdog\t2\n")  # fmt: skip
        assert command.main(["evaluate", saved, kind, str(path)]) == 2
        assert f"{path}, line 3: expected UTF-8, got b'" in capsys.readouterr().err


def test_words_that_each_stand_alone_once_thinned_out_teach_nothing(tmp_path, capsys):
    path = tmp_path / "text"
    path.write_text("a b. " * 100)
    assert command.main(["train", str(path), "--epochs", "1"]) == 2
    assert "every word was thinned out. Hint: raise --sample" in capsys.readouterr().err


def test_a_run_at_its_end_says_so(saved, text, capsys):
    assert command.main(["train", text, "--resume", saved]) == 0
    assert f"{saved} had come to the end of its 10 epochs before" in capsys.readouterr().out


def test_words_in_signs_that_the_font_lacks_are_a_map_and_one_warning(tmp_path):
    path = tmp_path / "text"
    path.write_text("你好 世界 再见 $x$ $\\foo$\n" * 50)
    options = ["--lines", "--plot", str(tmp_path / "map.png"), *SMALL]
    with pytest.warns(UserWarning, match="the font has no picture of . signs") as told:
        assert command.main(["train", str(path), *options]) == 0
    assert len(told) == 1


def test_words_that_say_nothing_by_themselves_are_words(tmp_path):
    path = tmp_path / "text"
    path.write_text("1 2 3 4\n" * 20)
    assert command.main(["train", str(path), "--lines", *SMALL]) == 0


def test_a_run_asked_to_go_on_from_an_array_is_refused(tmp_path, text, capsys):
    np.save(tmp_path / "x.npy", np.ones(3))
    assert command.main(["train", text, "--resume", str(tmp_path / "x.npy")]) == 2
    assert "x.npy: expected an .npz file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "said, held", [(["--epochs", "9"], "--epochs 10"), (["--lines"], "no --lines")]
)
def test_a_run_that_goes_on_keeps_its_options(saved, text, capsys, said, held):
    assert command.main(["train", text, "--resume", saved, *said]) == 2
    assert f"is a run with {held}" in capsys.readouterr().err


def test_questions_are_answered(saved, capsys):
    assert command.main(["neighbours", saved, "cat", "gold", "--count", "2"]) == 0
    cat, gold = capsys.readouterr().out.splitlines()
    assert len(cat.split("|")[1].split()) == len(gold.split("|")[1].split()) == 4
    assert command.main(["analogy", saved, "cat", "dog", "gold", "--count", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_test_sets_are_scored(tmp_path, saved, capsys):
    pairs, questions = tmp_path / "pairs.tsv", tmp_path / "questions.txt"
    pairs.write_text("cat\tdog\t9\ncat\tgold\t1\ncat\tred\t2\ncat\tunicorn\t3\n")
    questions.write_text(": topics\ncat dog red blue\ncat dog x y\n")
    options = ["--pairs", str(pairs), "--analogies", str(questions)]
    assert command.main(["evaluate", saved, *options]) == 0
    out = capsys.readouterr().out
    assert "on 3 of 4 pairs" in out and "not in the vocabulary: unicorn" in out
    assert "1 asked, 2 in the file" in out


@pytest.mark.parametrize("kind", ["text", "binary", "npz"])
def test_exported_vectors_are_those_of_the_run(tmp_path, saved, capsys, kind):
    out = tmp_path / "vectors"
    assert command.main(["export", saved, str(out), "--format", kind]) == 0
    vectors = formats.load(out).vectors
    np.testing.assert_array_equal(vectors, formats.read_arrays(saved)["vectors"])
    assert command.main(["neighbours", str(out), "cat"]) == 0


@pytest.mark.parametrize(
    "name, kind", [("v.npz", "npz"), ("v.txt", "text"), ("v.vec", "text"), ("v.bin", "binary")]
)
def test_a_name_says_which_format_is_exported(tmp_path, saved, name, kind):
    out = tmp_path / name
    assert command.main(["export", saved, str(out)]) == 0
    with open(out, "rb") as file:
        assert formats.kind_of(file) == kind


@pytest.mark.parametrize("name", ["v.npy", "v.csv", "v", "v.npz.gz"])
def test_an_ending_of_no_format_is_refused(tmp_path, saved, capsys, name):
    assert command.main(["export", saved, str(tmp_path / name)]) == 2
    assert "expected .npz, .txt, .vec, .bin. Hint: v" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_words_that_are_all_unknown_are_an_error(saved, capsys):
    assert command.main(["neighbours", saved, "zebra", "yak"]) == 2
    assert "'zebra' is not in the vocabulary" in capsys.readouterr().err
    assert command.main(["neighbours", saved, "CAT"]) == 2
    assert "Hint: prose is learned in lower case: 'cat'" in capsys.readouterr().err
    assert command.main(["neighbours", saved, "zebra", "cat", "Dog"]) == 0
    out = capsys.readouterr().out
    assert "zebra | (not in the vocabulary)" in out and "Dog | (not in the vocabulary; dog" in out


def test_who_does_not_save_hears_that_ctrl_c_will_not_either(tmp_path, text, capsys):
    for more in ([], ["--save", str(tmp_path / "run.npz")]):
        assert command.main(["train", text, *SMALL, *more]) == 0
        assert ("Ctrl-C would save nothing: --save" in capsys.readouterr().out) == (not more)


def test_pictures_are_drawn_from_a_file(tmp_path, saved, capsys):
    out = tmp_path / "map.png"
    assert command.main(["plot", saved, "--out", str(out), "--method", "pca"]) == 0
    assert capsys.readouterr().out.split() == [str(out), str(tmp_path / "map-loss.png")]
    assert command.main(["plot", saved, "--out", str(out), "--words", "cat"]) == 2


def test_words_are_known_by_their_parts_after_training_too(text, capsys):
    words = ["--words", "doge", "x"]
    assert command.main(["train", text, "--parts", "5000", *SMALL, *words]) == 0
    doge, x = capsys.readouterr().out.splitlines()[-2:]
    assert len(doge.split("|")[1].split()) == 14
    assert x.endswith("| (not in the vocabulary)")


def test_words_made_of_parts_have_vectors_for_unknown_words(tmp_path, text, capsys):
    path = str(tmp_path / "run.npz")
    assert command.main(["train", text, "--save", path, "--parts", "100", *SMALL]) == 0
    assert command.main(["analogy", path, "cat", "dogs", "cats"]) == 0
    capsys.readouterr()
    assert command.main(["neighbours", path, "catsy"]) == 0
    assert "not in the vocabulary" not in capsys.readouterr().out
    kv = command.store.load_vectors(path)
    # A row that was trained comes before n-grams of another spelling.
    assert evaluation.with_vectors(kv, ["Cat", "catsy", "?"]) == ["cat", "catsy", None]
    questions = tmp_path / "questions.txt"
    questions.write_text(": topics\ncat dog catsy dogsy\n")
    assert command.main(["evaluate", path, "--analogies", str(questions)]) == 0
    assert "0 asked, 1 in the file" in capsys.readouterr().out
    assert command.main(["train", text, "--resume", path]) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ".*text.txt: No such file or directory"),
        ("", "fewer than 2 words occur 5 times or more in .*text.txt. Hint: "),
        ("12 34", "fewer than 2 words"),
        ("cat. dog. " * 9, "no sentence has two words to learn from. Hint: "),
    ],
)
def test_a_corpus_that_cannot_be_used_is_one_sentence(tmp_path, capsys, content, message):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_text(content)
    assert command.main(["train", str(path)]) == 2
    last_line = capsys.readouterr().err.splitlines()[-1]
    assert re.match(f"word2vec: error: {message}", last_line)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("neighbours {dir}/none.npz cat", "No such file or directory"),
        ("neighbours {dir}/odd cat", "expected a first line"),
        ("train {dir}/text --resume {dir}/odd", "expected an .npz file"),
        ("train {dir}/text --resume {dir}/vectors.npz", "expected a file that train wrote"),
        ("train {dir}/text --save {dir}", "cannot write a file"),
        ("train {dir}/text --save {dir}/no/run.npz", "there is no folder {dir}/no"),
        ("evaluate {dir}/vectors.npz --analogies {dir}/empty", "empty: expected lines of four w"),
        ("evaluate {dir}/vectors.npz", "nothing to evaluate by"),
        ("analogy {dir}/vectors.npz a b x", "'x' is not in the vocabulary"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path, capsys, arguments, message):
    (tmp_path / "odd").write_text("something else")
    (tmp_path / "empty").touch()
    np.savez(tmp_path / "vectors.npz", words=np.array(["a", "b"]), vectors=np.eye(2))
    assert command.main(arguments.format(dir=tmp_path).split()) == 2
    assert message.format(dir=tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        "train {dir}/d.txt --save {dir}/d.txt",
        "train {dir}/d.txt --save {dir}/sub/../d.txt",
        "train {dir}/d.txt --save {dir}/q.npz --plot {dir}/q.npz",
        "train {dir}/d.txt --save {dir}/q-loss.png --plot {dir}/q.png",
        "train {dir}/d-loss.txt --plot {dir}/d.txt",
        "train {dir}/d.txt --resume {dir}/run.npz --save {dir}/q.npz --plot {dir}/run.npz",
        "train {dir} --save {dir}/sub/q.npz",
        "export {dir}/run.npz {dir}/run.npz",
        "plot {dir}/run.npz --out {dir}/run.npz",
        "plot {dir}/run-loss.npz --out {dir}/run.npz",
    ],
)
def test_nothing_that_is_read_is_overwritten(tmp_path, capsys, arguments):
    (tmp_path / "sub").mkdir()
    for name in ("d.txt", "d-loss.txt"):
        (tmp_path / name).write_text(made_up_text())
    for name in ("run.npz", "run-loss.npz"):
        np.savez(tmp_path / name, words=np.array(["aa", "bb"]), vectors=np.eye(2))
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    assert command.main(arguments.format(dir=tmp_path).split()) == 2
    assert re.search("would (overwrite|be read as a part of)", capsys.readouterr().err)
    assert before == {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}


@pytest.mark.parametrize(
    "option", ["--dim 0", "--epochs x", "--lr nan", "--sample 2", "--seed -1"], ids=str
)
def test_an_option_out_of_range_names_its_range(capsys, option):
    with pytest.raises(SystemExit) as stop:
        command.main(["train", *option.split()])
    assert stop.value.code == 2
    assert "number from" in capsys.readouterr().err


@pytest.mark.parametrize("name", command.COMMANDS)
def test_help_says_what_there_is(capsys, name):
    with pytest.raises(SystemExit) as stop:
        command.main([name, "--help"])
    assert stop.value.code == 0
    assert f"usage: python -m examples.word2vec {name}" in capsys.readouterr().out
