"""What each subcommand does; their options are in `options`."""

import argparse
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tinygrad_sparse as ts
from tinygrad_sparse.errors import DeviceError

from ..program import INTERRUPTED, InputError, check_can_draw, check_can_write, exit_code
from . import evaluation, formats, store
from .corpus import Sentences, read_text
from .evaluation import AMONG
from .formats import FormatError
from .keyed_vectors import KeyedVectors, UnknownWordError
from .models import Model, Settings
from .options import DEFAULTS, PROGRAM, READING, as_said, check_effect, parser, said
from .plots import WORDS, draw_loss, draw_map, neighbour_table, telling_words
from .python_docs import python_docs
from .train import Run, train, until_interrupted
from .vocabulary import Text, Vocabulary

DOCS = "the documentation of this Python"  # what is read where no text is named


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = parser().parse_args(arguments)
    run = partial(COMMANDS[options.command], options)
    return exit_code(PROGRAM, run, FormatError, UnknownWordError, DeviceError)


def run_train(options: argparse.Namespace) -> int:
    """Read, train, save, show."""
    if options.threads is not None:
        ts.set_num_threads(options.threads)
    saved_to = options.save or options.resume
    pictures = (options.plot, options.plot and of_loss(options.plot))
    check_can_write(saved_to, *pictures, inputs=[options.corpus])
    check_can_write(*pictures, inputs=[options.resume])
    check_can_draw(options.plot)
    prepare = resumed if options.resume else fresh
    model, vocabulary, text, run, reading = prepare(options)

    def save() -> None:
        if saved_to is not None:
            store.save(saved_to, model, vocabulary, run, reading)

    def save_epoch() -> None:
        try:
            save()
        except OSError as error:  # a full disk, say: no reason to lose the run
            warnings.warn(f"could not save {saved_to}, going on: {error}", stacklevel=1)

    begin, before = time.perf_counter(), run.words
    if saved_to is None:
        print("Ctrl-C would save nothing: --save FILE keeps the run, after each epoch too")
    with until_interrupted() as wanted:
        train(model, vocabulary, text, run, wanted=wanted, epoch_done=save_epoch)
        if not any(run.losses):  # or each stood alone
            raise InputError("every word was thinned out. Hint: raise --sample")
        save()
        stopped = not wanted()
    if not stopped and run.words == before:
        print(f"{saved_to} had come to the end of its {model.settings.epochs} epochs before")
    speed = (run.words - before) / (time.perf_counter() - begin)
    print(
        f"{'stopped' if stopped else 'trained'} after {run.words:,} words, {speed:,.0f} words/s;"
        f" loss a pair {np.mean(run.losses[-99:]):.3f}, at first {run.losses[0]:.3f}"
    )
    if stopped:
        again = [PROGRAM, "train", *filter(None, [options.corpus]), "--resume", saved_to]
        hint = ", nothing is saved"
        if saved_to is not None:
            hint = f"; go on with: python -m examples.{shlex.join(map(str, again))}"
        print(f"interrupted{hint}", file=sys.stderr)
        return INTERRUPTED
    table = model.inputs.table.numpy()[len(vocabulary.words) :]  # of n-grams, if there are any
    kv = KeyedVectors(vocabulary.words, model.inputs.vectors(), model.settings.grams, table)
    print("\n" + neighbour_table(kv, options.words or (WORDS if options.corpus is None else [])))
    if options.plot is not None:
        draw(kv, run.losses, options.plot)
    if saved_to is not None:
        print(f"The vectors and the run: {saved_to}")
    return 0


Start = tuple[Model, Vocabulary, Text, Run, dict[str, Any]]


def fresh(options: argparse.Namespace) -> Start:
    """A run from the beginning."""
    chosen = DEFAULTS | said(options)
    check_effect(options, chosen)
    reading = {name: chosen.pop(name) for name in READING}
    sentences = reader(options.corpus, reading)
    vocabulary = Vocabulary.build(sentences, reading["min_count"], reading["max_words"])
    if len(vocabulary.words) < 2:
        few = reading["max_words"] is not None and reading["max_words"] < 2
        raise InputError(
            f"fewer than 2 words occur {reading['min_count']} times or more"
            f" in {options.corpus or DOCS}."
            f" Hint: {'raise --max-words' if few else 'give a longer text, or lower --min-count'}"
        )
    if options.plot is not None and len(telling_words(vocabulary.words)) < 2:
        raise InputError("a map needs 2 words of 3 letters or more, stop words left aside")
    text = vocabulary.encode(sentences)
    if sentences.changed():
        hint = "train on a copy, or once nothing writes there"
        raise InputError(f"{options.corpus or DOCS} changed while it was read. Hint: {hint}")
    reading["text"] = text.checksum()
    if (np.diff(text.bounds) < 2).all():
        raise InputError("no sentence has two words to learn from. Hint: lower --min-count")
    print(
        f"{len(text.ids):,} words in {len(text.bounds) - 1:,} sentences;"
        f" {len(vocabulary.words):,} different words occur {reading['min_count']} times or more"
    )
    settings = Settings(**chosen)
    if settings.parts and settings.shortest > settings.longest:
        got = f"--shortest {settings.shortest} and --longest {settings.longest}"
        raise InputError(f"there are n-grams from the shortest to the longest, got {got}")
    model = Model(vocabulary, settings, device=options.device)
    return model, vocabulary, text, Run(), reading


def resumed(options: argparse.Namespace) -> Start:
    """A run from where it was saved, if the text is still the same."""
    model, vocabulary, run, reading = store.load(options.resume, options.device)
    kept = reading | model.settings._asdict()
    for name, value in said(options).items():
        if value != kept[name]:
            raise InputError(
                f"{options.resume} is a run with {as_said(name, kept[name])}, which --resume goes"
                f" on with, got {as_said(name, value)}. Hint: leave it out, or start a new run"
            )
    check_effect(options, kept)
    text = vocabulary.encode(reader(options.corpus, reading))
    if text.checksum() != reading["text"]:
        raise InputError(
            f"{options.resume} is a run on another text than {options.corpus or DOCS}:"
            f" {int(vocabulary.counts.sum()):,} words, here {len(text.ids):,}."
            " Hint: name the text of that run"
        )
    return model, vocabulary, text, run, reading


def reader(corpus: Path | None, reading: dict[str, Any]) -> Sentences:
    """The sentences of the corpus, each time from the start."""
    if corpus is None:
        return Sentences(python_docs)
    if corpus.exists() and not (corpus.is_file() or corpus.is_dir()):
        hint = "a text is read twice: write it to a file"
        raise InputError(f"{corpus} is neither a file nor a folder. Hint: {hint}")
    return Sentences(partial(read_text, corpus, bool(reading["lines"])))


def draw(kv: KeyedVectors, losses: Sequence[float], path: Path) -> None:
    """Both pictures."""
    draw_map(kv, path)
    print(f"\nA map of the most frequent words: {path}")
    draw_loss(losses, of_loss(path))
    print(f"The loss as it fell: {of_loss(path)}")


def of_loss(path: Path) -> Path:
    """The picture of the loss that belongs to a map."""
    return path.with_name(f"{path.stem}-loss{path.suffix}")


def run_neighbours(options: argparse.Namespace) -> None:
    """A line for each word. Raises UnknownWordError if not one of them has a vector."""
    kv = store.load_vectors(options.vectors)
    if not any(map(kv.has_vector, options.words)):
        raise UnknownWordError(options.words[0])
    print(neighbour_table(kv, options.words, options.count))


def run_analogy(options: argparse.Namespace) -> None:
    """A line for each answer."""
    kv = store.load_vectors(options.vectors)
    answers = kv.most_similar([options.b, options.c], [options.a], options.count)
    for word, cosine in answers:
        print(f"{word} {cosine:.2f}")


def run_evaluate(options: argparse.Namespace) -> None:
    """A line for each test set, and what the vectors do not know."""
    kv = store.load_vectors(options.vectors)
    if not options.pairs and not options.analogies:
        raise InputError("nothing to evaluate by. Hint: --pairs FILE or --analogies FILE")
    if options.among is not None and not options.analogies:
        raise InputError("--among does nothing without --analogies. Hint: leave it out")
    try:
        for path in options.pairs:
            score = evaluation.word_pairs(kv, path)
            print(f"{path.name}: rho {score.rho:.4f} on {score.used} of {score.total} pairs")
            if score.unknown:
                print(f"  not in the vocabulary: {', '.join(score.unknown)}")
        for path in options.analogies:
            show_analogies(path, evaluation.analogies(kv, path, options.among or AMONG))
    except ValueError as error:
        raise InputError(str(error)) from error


def show_analogies(path: Path, scores: list[evaluation.AnalogyScore]) -> None:
    """The sum, then the sections."""
    right, asked, total = (sum(s[i] for s in scores) for i in (1, 2, 3))
    share = f"{right / asked:.1%} right of" if asked else "none known of"
    print(f"{path.name}: {share} {asked} asked, {total} in the file")
    for s in scores:
        print(f"  {s.section}: {s.right} of {s.asked} asked, {s.total} in the file")


def run_plot(options: argparse.Namespace) -> None:
    """The map; the loss too where the file has it."""
    check_can_write(options.out, of_loss(options.out), inputs=[options.vectors])
    check_can_draw(options.out)
    kv, losses = store.load_shown(options.vectors)
    words = options.words and [word for word in options.words if kv.has_vector(word)]
    if options.words and (unknown := sorted(set(options.words) - set(words))):
        warnings.warn(f"not in the vocabulary: {', '.join(unknown)}", stacklevel=1)
    try:
        draw_map(kv, options.out, words, options.method)
    except ValueError as error:
        raise InputError(str(error)) from error
    print(options.out)
    if len(losses):
        draw_loss(losses, of_loss(options.out))
        print(of_loss(options.out))


def run_export(options: argparse.Namespace) -> None:
    """The vectors alone."""
    check_can_write(options.out, inputs=[options.vectors])
    kind = options.format or formats.kind_by_name(options.out)
    kv = store.load_vectors(options.vectors)
    formats.save(kv, options.out, kind)
    print(f"{len(kv):,} vectors of {kv.vectors.shape[1]} numbers: {options.out}")


COMMANDS: dict[str, Callable[[argparse.Namespace], int | None]] = {
    "train": run_train,
    "neighbours": run_neighbours,
    "analogy": run_analogy,
    "evaluate": run_evaluate,
    "plot": run_plot,
    "export": run_export,
}
