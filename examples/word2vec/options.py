"""The options of the command, their defaults and what they mean."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from ..program import InputError, count, device, number, rate, seed
from .evaluation import AMONG
from .models import LOSSES, MODELS, Settings

PROGRAM = "word2vec"
READING: dict[str, Any] = {"lines": False, "min_count": 5, "max_words": None}
DEFAULTS: dict[str, Any] = {**READING, **Settings()._asdict()}
FLAGS = {name: "--" + name.replace("_", "-") for name in DEFAULTS} | {"centres": "--batch"}


def parser() -> argparse.ArgumentParser:
    """All subcommands."""
    p = argparse.ArgumentParser(
        prog=f"python -m examples.{PROGRAM}",
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
        help=f"answers are looked for among so many frequent words [{AMONG}]",
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
        help="text and binary are those of the original word2vec; gensim reads them [as OUT"
        " ends: .npz; .txt or .vec for text; .bin for binary]",
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
    group = p.add_argument_group("the text")
    group.add_argument(
        "corpus",
        type=Path,
        nargs="?",
        metavar="CORPUS",
        help="a UTF-8 text, also .gz, .bz2 or .xz, or a folder of such [this Python's own docs]",
    )
    text = partial(_of_the_run, group)
    text(
        "lines",
        "each line is a sentence of words between blanks; otherwise it is prose",
        action="store_const",
        const=True,
    )
    text("min_count", "forget words that are rarer", type=count)
    text("max_words", "keep only so many different words, the most frequent", type=count)
    text("sample", "thin out words above this share of the text", type=share)

    model = partial(_of_the_run, p.add_argument_group("the model"))
    model(
        "model",
        "skipgram: a word predicts those around it; cbow: they predict it; faster, and weaker on"
        " rare words",
        choices=MODELS,
    )
    model(
        "loss",
        "telling true words from random ones that neighbours share (shared) or that each pair"
        " draws (own); a tree of decisions (hierarchical); all words at once, for small"
        " vocabularies (softmax)",
        choices=LOSSES,
    )
    model("dim", "numbers in the vector of a word", type=count)
    model("window", "contexts are this many words to each side", type=width)
    model("negatives", "weight of random words against a true one", type=count)
    model("shared", "random words that 16 neighbouring words look at", type=count)
    model(
        "parts",
        "words are also made of their n-grams, which share so many rows, 100000 say; then unknown"
        " words have vectors",
        type=parts,
        metavar="ROWS",
    )
    model("shortest", "letters of the shortest n-gram", type=count)
    model("longest", "and of the longest", type=count)

    group = p.add_argument_group("the training")
    training = partial(_of_the_run, group)
    training("epochs", "how many times the text is read", type=count)
    training("centres", "words a step", type=count)
    training("lr", "learning rate; it falls evenly to 0", type=rate)
    training("clip", "no vector moves further in a step", type=rate)
    training("seed", "same seed, same vectors, to the bit", type=seed)
    threads = "results do not depend on it [as many as there are cores]"
    group.add_argument("--threads", type=count, help=threads)
    device(group.add_argument)

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
        help="draw a map of the words; and, in FILE-loss, the loss: .png, .pdf, .svg or another",
    )
    result("--words", nargs="+", metavar="WORD", help="show the neighbours of these words")


def _of_the_run(group: argparse._ArgumentGroup, name: str, text: str, **how: Any) -> None:
    """An option that a saved run keeps: None where it is not said, so that --resume can tell."""
    usual = DEFAULTS[name]
    bracket = "" if usual is None or usual is False else f" [{usual}]"
    group.add_argument(FLAGS[name], dest=name, help=text + bracket, **how)


def said(options: argparse.Namespace) -> dict[str, Any]:
    """What the command line says of the run, by name."""
    values = {name: getattr(options, name) for name in DEFAULTS}
    return {name: value for name, value in values.items() if value is not None}


def check_effect(options: argparse.Namespace, kept: dict[str, Any]) -> None:
    """Raise InputError for what is said and does nothing in a run with the options `kept`."""
    loss, whole = kept["loss"], not kept["parts"]
    without_effect = {
        "lines": options.corpus is None and "without a text",
        "negatives": loss in ("hierarchical", "softmax") and f"with --loss {loss}",
        "shared": loss != "shared" and f"with --loss {loss}",
        "shortest": whole and "without --parts",
        "longest": whole and "without --parts",
    }
    for name in said(options):
        if why := without_effect.get(name):
            raise InputError(f"{FLAGS[name]} does nothing {why}. Hint: leave it out")


def as_said(name: str, value: Any) -> str:
    """An option of a run and its value, as on the command line."""
    if value is None or value is False:
        return f"no {FLAGS[name]}"
    return FLAGS[name] if value is True else f"{FLAGS[name]} {value}"


width = partial(number, int, 1, 1000)
parts = partial(number, int, 0, 10**9)
share = partial(number, float, 0, 1)
