"""The command: read examples, grow a tree, say how well it does, draw it."""

from __future__ import annotations

import argparse
import time
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad_sparse.errors import DeviceError

from ..program import (
    InputError,
    check_can_draw,
    check_can_write,
    count,
    device,
    exit_code,
    number,
    rate,
    seed,
    write_picture,
)
from . import store
from .base import CHOICES
from .data import BUNDLED, Set, files_of, is_wordnet, read
from .estimator import SoftDecisionTreeClassifier
from .plot import plot_path, plot_tree
from .reading import agreement, export_text

PROGRAM = "soft_decision_tree"
SETTINGS = ("depth", "leaves", "smoothing", "leaf_form", "penalty", "learning_rate", "batch_size",
            "max_iter", "inverse_temperature", "device")  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = parser().parse_args(arguments)
    return exit_code(PROGRAM, lambda: run(options), DeviceError)


def run(options: argparse.Namespace) -> None:
    """All the steps."""
    check_can_write(options.out, of_way(options.out), options.save, inputs=files_of(options.data))
    check_can_draw(options.out)
    check_effect(options)
    examples = read_examples(options)
    print(
        f"{examples.X.shape[0]:,} examples to learn from, {examples.X.shape[1]:,} features,"
        f" {len(np.unique(examples.y)):,} classes; {examples.X_test.shape[0]:,} to test with"
    )
    settings = {name: getattr(options, name) for name in SETTINGS}
    tree = SoftDecisionTreeClassifier(**settings, random_state=options.seed, verbose=True)
    begin = time.perf_counter()
    try:
        tree.fit(examples.X, examples.y)
    except ValueError as error:  # examples with a NaN, say, or settings that lead to one
        raise InputError(str(error).partition("\n")[0]) from error
    seconds = time.perf_counter() - begin
    soft, hard = (
        np.mean(tree.predict(examples.X_test, routing=routing) == examples.y_test)
        for routing in ("soft", "hard")
    )
    print(
        f"trained in {seconds:.1f} s: {soft:.1%} of the test examples right,"
        f" {hard:.1%} with one hard walk each;"
        f" the two agree on {agreement(tree, examples.X_test):.1%}\n"
    )
    shown = {
        "feature_names": examples.feature_names,
        "class_names": examples.class_names,
        "image_shape": examples.image_shape,
    }
    some = examples.X_test[: options.shown]
    print(export_text(tree, X=some, max_depth=options.levels, **shown))
    draw(tree, examples, options, shown)
    if options.save is not None:
        store.save(tree, options.save)
        print(f"The tree: {options.save}")


def check_effect(options: argparse.Namespace) -> None:
    """Raise InputError for an option that does nothing beside the others."""
    usual = parser().get_default
    by_gradient = options.leaves == "gradient" and "with --leaves gradient"
    without_effect = {
        "smoothing": by_gradient,
        "leaf_form": by_gradient,
        "members": not is_wordnet(options.data) and f"with --data {options.data}",
    }
    for name, why in without_effect.items():
        if why and getattr(options, name) != usual(name):
            flag = "--" + name.replace("_", "-")
            raise InputError(f"{flag} does nothing {why}. Hint: leave it out")


def draw(
    tree: SoftDecisionTreeClassifier,
    examples: Set,
    options: argparse.Namespace,
    shown: dict[str, Any],
) -> None:
    """Two pictures: the tree, and the way of the first test example."""
    figure = plot_tree(tree, X=examples.X_test[: options.shown], levels=options.levels, **shown)
    write_picture(options.out, figure)
    print(f"\nA picture of the tree: {options.out}")
    way = of_way(options.out)
    write_picture(way, plot_path(tree, examples.X_test[:1], **shown))
    print(f"The way of one example: {way}")


def of_way(path: Path) -> Path:
    """The picture of a way that belongs to one of the tree."""
    return path.with_name(f"{path.stem}-path{path.suffix}")


def read_examples(options: argparse.Namespace) -> Set:
    """What --data names, or an InputError."""
    try:
        return read(options.data, options.seed, options.members)
    except OSError as error:
        raise InputError(f"cannot read {options.data}: {error.strerror or error}") from error
    except zipfile.BadZipFile as error:
        raise InputError(f"{options.data}: {error}") from error
    except ValueError as error:
        raise InputError(str(error)) from error


def parser() -> argparse.ArgumentParser:
    """The options, their defaults and what they mean."""
    p = argparse.ArgumentParser(
        prog=f"python -m examples.{PROGRAM}",
        description="Grow a decision tree whose gates send an example both ways, more or less, so"
        " that it can be trained like a network and read like a tree.",
        epilog="Numbers in brackets are what is taken when you do not say.",
    )
    data = p.add_argument_group("the examples").add_argument
    data("--data", default="digits", metavar="NAME|PATH",
         help=f"{', '.join(BUNDLED)}; or a folder of IDX files, WordNet's data.noun, an .npz file"
         " with arrays X and y [%(default)s]")  # fmt: skip
    data("--members", type=count, default=5, help="WordNet: least size of a class [%(default)s]")

    tree = p.add_argument_group("the tree").add_argument
    tree("--depth", type=partial(number, int, 0, 14), help="it has 2^depth leaves [%(default)s]")
    tree("--leaves", choices=CHOICES["leaves"], help="how leaves learn [%(default)s]")
    tree("--smoothing", choices=CHOICES["smoothing"], help="of leaves that count [%(default)s]")
    tree("--leaf-form", choices=CHOICES["leaf_form"], help="of leaves that count [%(default)s]")
    tree("--beta", type=rate, dest="inverse_temperature", help="inverse temperature [%(default)s]")

    training = p.add_argument_group("the training").add_argument
    training("--epochs", type=count, dest="max_iter", help="passes over the examples [%(default)s]")
    training("--batch", type=count, dest="batch_size", help="examples a step [%(default)s]")
    training(
        "--lr",
        type=rate,
        dest="learning_rate",
        help="how far a step may move a logit; falls to 0 [%(default)s]",
    )
    training(
        "--penalty", type=partial(number, float, 0, 1e6), help="for one-sided gates [%(default)s]"
    )
    device(training)
    training("--seed", type=seed, default=1, help="same seed, same tree [%(default)s]")

    result = p.add_argument_group("the result").add_argument
    result("--levels", type=partial(number, int, 1, 6), default=4, help="shown [%(default)s]")
    result("--shown", type=count, default=2000, help="test examples counted in it [%(default)s]")
    result("--out", type=Path, metavar="FILE", default=Path("soft_tree.png"),
           help="picture of the tree: .png, .pdf, .svg or another [%(default)s]")  # fmt: skip
    result("--save", type=Path, metavar="FILE", help="write the tree itself, as .npz")

    defaults = SoftDecisionTreeClassifier().get_params()
    p.set_defaults(**{name: defaults[name] for name in SETTINGS})
    return p
