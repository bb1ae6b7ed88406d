"""The options of the command, their defaults and what they mean."""

import argparse
from functools import partial
from pathlib import Path

from ..program import count, device, number, rate, seed
from .models import LOSSES, MODELS, Settings

PROGRAM = "word2vec"


def parser() -> argparse.ArgumentParser:
    """All subcommands."""
    p = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Learn a vector for every word of a text, so that words which are used alike"
        " point the same way; then ask the vectors questions.",
    )
    commands = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _train(commands)

    neighbours = _on_vectors(commands, "neighbours", "show the words nearest to some words")
    neighbours("words", nargs="+", metavar="WORD")
    neighbours("--count", type=count, default=10, help="how many [%(default)s]")

    analogy = _on_vectors(commands, "analogy", "complete: A is to B as C is to ?")
    for letter in "abc":
        analogy(letter, metavar=letter.upper())
    analogy("--count", type=count, default=5, help="how many answers [%(default)s]")

    evaluate = _on_vectors(commands, "evaluate", "score the vectors by standard test sets")
    evaluate(
        "--pairs",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="word pairs that people have judged: WORD <tab> WORD <tab> NUMBER",
    )
    evaluate(
        "--analogies",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="lines A B C D under headings ': section'",
    )
    evaluate(
        "--among",
        type=count,
        default=30_000,
        help="answers are looked for among so many frequent words [%(default)s]",
    )

    plot = _on_vectors(commands, "plot", "draw a map of words, and the loss of the training")
    plot("--out", type=Path, default=Path("word2vec.png"), metavar="FILE", help="[%(default)s]")
    plot("--words", nargs="+", metavar="WORD", help="these words [the most frequent]")
    plot("--method", choices=("t-sne", "pca"), default="t-sne", help="[%(default)s]")

    export = _on_vectors(commands, "export", "write the vectors for other programs")
    export("out", type=Path, metavar="OUT")
    export(
        "--format",
        choices=("text", "binary", "npz"),
        default="binary",
        help="text and binary are those of the original word2vec; gensim reads them [%(default)s]",
    )
    return p


def _on_vectors(commands: argparse._SubParsersAction, name: str, text: str):
    p = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    p.add_argument(
        "vectors",
        type=Path,
        metavar="FILE",
        help="what train wrote, or vectors in word2vec's text or binary format",
    )
    return p.add_argument


def _train(commands: argparse._SubParsersAction) -> None:
    p = commands.add_parser(
        "train",
        help="learn vectors from a text",
        description="Learn vectors from a text. Ctrl-C stops after the step at hand and saves;"
        " --resume goes on from there, to the same result as if nothing had happened.",
        epilog="Numbers in brackets are what is taken when you do not say.",
    )
    text = p.add_argument_group("the text").add_argument
    text(
        "corpus",
        type=Path,
        nargs="?",
        metavar="CORPUS",
        help="a UTF-8 text, also .gz or .bz2, or a folder of such [this Python's own docs]",
    )
    text(
        "--lines",
        action="store_true",
        help="each line is a sentence of words between blanks; otherwise it is prose",
    )
    text("--min-count", type=count, default=5, help="forget words that are rarer [%(default)s]")
    text("--max-words", type=count, help="keep only so many different words, the most frequent")
    text("--sample", type=share, help="thin out words above this share of the text [%(default)s]")

    model = p.add_argument_group("the model").add_argument
    model(
        "--model",
        choices=MODELS,
        help="skipgram: a word predicts those around it; cbow: they"
        " predict it; faster, and weaker on rare words [%(default)s]",
    )
    model(
        "--loss",
        choices=LOSSES,
        help="telling true words from random ones that neighbours share"
        " (shared) or that each pair draws (own); a tree of decisions (hierarchical); all words"
        " at once, for small vocabularies (softmax) [%(default)s]",
    )
    model("--dim", type=count, help="numbers in the vector of a word [%(default)s]")
    model("--window", type=width, help="contexts are this many words to each side [%(default)s]")
    model("--negatives", type=count, help="weight of random words against a true one [%(default)s]")
    model(
        "--shared", type=count, help="random words that 16 neighbouring words share [%(default)s]"
    )
    model(
        "--parts",
        type=parts,
        metavar="ROWS",
        help="words are also made of their n-grams, which"
        " share so many rows, 100000 say; then unknown words have vectors [%(default)s]",
    )
    model("--shortest", type=count, help="letters of the shortest n-gram [%(default)s]")
    model("--longest", type=count, help="and of the longest [%(default)s]")

    training = p.add_argument_group("the training").add_argument
    training("--epochs", type=count, help="how many times the text is read [%(default)s]")
    training("--batch", type=count, dest="centres", help="words a step [%(default)s]")
    training(
        "--threads", type=count, help="results do not depend on it [as many as there are cores]"
    )
    device(training)
    training("--lr", type=rate, help="learning rate; it falls evenly to 0 [%(default)s]")
    training("--clip", type=rate, help="no vector moves further in a step [%(default)s]")
    training("--seed", type=seed, help="same seed, same vectors, to the bit [%(default)s]")

    result = p.add_argument_group("the result").add_argument
    result("--save", type=Path, metavar="FILE", help="write the run as .npz, after each epoch too")
    result(
        "--resume",
        type=Path,
        metavar="FILE",
        help="go on with a saved run; its options"
        " hold, and it is saved to the same file unless --save says another",
    )
    result(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw a map of the words; and, in FILE-loss, the loss",
    )
    result("--words", nargs="+", metavar="WORD", help="show the neighbours of these words")
    p.set_defaults(**Settings()._asdict())


width = partial(number, int, 1, 1000)
parts = partial(number, int, 0, 10**9)
share = partial(number, float, 0, 1)
