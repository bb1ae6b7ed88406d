"""The command: read a text, train, show what was learned; and the options of all that."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from .corpus import Sentence, python_docs, read_text
from .show import WORDS, draw_map, neighbour_table, telling_words
from .train import Settings, train
from .vocabulary import Vocabulary

PROGRAM = "word2vec"


class InputError(Exception):
    """What the user gave cannot be used; the message is all there is to say."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = parser().parse_args(arguments)
    try:
        run(options)
    except InputError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace) -> None:
    """All the steps, in the order of the files beside this one."""
    for path in (options.out, options.save):
        if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            raise InputError(f"cannot write a file {path}")

    sentences = read(options.corpus)
    vocabulary = Vocabulary.build(sentences, options.min_count)
    text = vocabulary.encode(sentences)
    print(
        f"{sum(map(len, sentences)):,} words in {len(sentences):,} sentences;"
        f" {len(vocabulary.words):,} different words occur {options.min_count} times or more"
    )
    if len(telling_words(vocabulary)) < 2:
        raise InputError(
            f"fewer than 2 words, stop words left aside, occur {options.min_count} times or more."
            " Hint: give a longer text, or lower --min-count"
        )

    settings = Settings(**{name: getattr(options, name) for name in Settings._fields})
    begin = time.perf_counter()
    vectors, losses = train(text, vocabulary.counts, settings)
    seconds = time.perf_counter() - begin
    if not losses:
        raise InputError("no sentence has two words to learn from. Hint: lower --min-count")
    print(
        f"trained in {seconds:.1f} s, {settings.epochs * len(text.ids) / seconds:,.0f} words/s;"
        f" loss per pair {np.mean(losses[-99:]):.3f}, at first {losses[0]:.3f}\n"
    )

    print(neighbour_table(vocabulary, vectors, options.words))
    draw_map(vocabulary, vectors, options.out, seed=settings.seed)
    print(f"\nA map of the most frequent words: {options.out}")
    if options.save is not None:
        with open(options.save, "wb") as file:
            np.savez(file, words=np.array(vocabulary.words), vectors=vectors)
        print(f"All vectors: {options.save}")


def read(corpus: Path | None) -> list[Sentence]:
    """The sentences of a file, or of Python's documentation where none is given."""
    try:
        sentences = list(python_docs() if corpus is None else read_text(corpus))
    except OSError as error:
        raise InputError(f"cannot read {corpus}: {error.strerror}") from error
    if not sentences and corpus is None:
        raise InputError("this Python comes without its sources. Hint: name a text, --corpus FILE")
    if not sentences:
        raise InputError(f"there is no word of the letters a to z in {corpus}")
    return sentences


def parser() -> argparse.ArgumentParser:
    """The options, their defaults and what they mean."""
    p = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Learn a vector for every word of a text, so that words which are used alike"
        " point the same way. Then show the nearest neighbours of a few words, and a map.",
        epilog="Numbers in brackets are what is taken when you do not say.",
    )

    text = p.add_argument_group("the text").add_argument
    text("--corpus", type=Path, metavar="FILE", help="plain text in UTF-8 [this Python's own docs]")
    text("--min-count", type=count, default=5, help="forget words that are rarer [%(default)s]")
    text("--sample", type=share, help="thin out words above this share of the text [%(default)s]")

    model = p.add_argument_group("the model").add_argument
    model("--dim", type=count, help="numbers in the vector of a word [%(default)s]")
    model("--window", type=count, help="contexts are this many words to each side [%(default)s]")
    model("--negatives", type=count, help="weight of random words against a true one [%(default)s]")
    model("--shared", type=count, help="random words a batch draws for its pairs [%(default)s]")

    training = p.add_argument_group("the training").add_argument
    training("--epochs", type=count, help="how many times the text is read [%(default)s]")
    training("--batch", type=count, dest="pairs", help="(word, context) pairs a step [%(default)s]")
    training("--lr", type=rate, help="learning rate; it falls evenly to 0 [%(default)s]")
    training("--seed", type=seed, help="same seed, same vectors, to the bit [%(default)s]")

    result = p.add_argument_group("the result").add_argument
    result("--words", nargs="+", default=WORDS, help="show the neighbours of these words")
    result("--out", type=Path, metavar="FILE", default="word2vec.png", help="map [%(default)s]")
    result("--save", type=Path, metavar="FILE", help="write all words and vectors, as .npz")

    p.set_defaults(**Settings()._asdict())
    return p


def number(kind: type, low: float, high: float, text: str) -> float:
    """Read an option's number, or say which numbers it can be."""
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        name = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"expected {name} from {low:g} to {high:g}, got {text!r}")
    return value


count = partial(number, int, 1, 10**9)
seed = partial(number, int, 0, 2**32 - 1)
share = partial(number, float, 0, 1)
rate = partial(number, float, 1e-6, 1e3)
