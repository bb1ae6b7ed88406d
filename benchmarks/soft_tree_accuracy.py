"""Accuracy of soft decision trees beside decision trees and a linear model, over several seeds.

    python -m benchmarks.soft_tree_accuracy                         # scikit-learn's digits
    python -m benchmarks.soft_tree_accuracy --data FOLDER --depth 8 --epochs 15
    python -m benchmarks.soft_tree_accuracy --data data.noun --depth 8 --epochs 10

What --data takes, and how its examples are split, is said in `examples.soft_decision_tree.data`;
nothing is downloaded. A folder of IDX files has its own split and the seed is the tree's alone;
elsewhere each seed is another split, too. Prints a table for docs/soft-trees.md: mean and standard
deviation in percent of the test examples. "Numbers" are what was learned: weights, thresholds and
class shares. One of the decision trees may have as many as the soft tree; a linear model has no
way to spend more. With more than 100 classes the yardsticks are naive Bayes and the ten likeliest
classes, and a step's milliseconds say what leaves cost.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.tree import DecisionTreeClassifier
from tqdm import tqdm

from benchmarks.timing import heading
from examples.soft_decision_tree import SoftDecisionTreeClassifier
from examples.soft_decision_tree.data import Set, read

MANY = 100  # classes
PASSES = 200  # of the linear model over its examples, at most
KINDS = {"leaves that count": "derivative_free", "leaves by gradient": "gradient"}


class Result(NamedTuple):
    """Of one model, trained once."""

    numbers: int
    shares: tuple[float, ...]  # right; then right by a hard walk, or right among the first ten
    milliseconds: float | None = None  # a step


Contestant = Callable[[Set, int], Result]
Measure = Callable[[Any, Set], tuple[float, ...]]


def soft_tree(leaves: str, depth: int, epochs: int, measure: Measure) -> Contestant:
    """The estimator, with its defaults in all else."""

    def run(examples: Set, seed: int) -> Result:
        tree = SoftDecisionTreeClassifier(depth, leaves=leaves, max_iter=epochs, random_state=seed)
        begin = time.perf_counter()
        tree.fit(examples.X, examples.y)
        seconds = time.perf_counter() - begin
        steps = epochs * -(-examples.X.shape[0] // tree.batch_size)
        numbers = tree.gate_weights_.size + tree.gate_intercepts_.size + tree.leaf_values_.size
        return Result(numbers, measure(tree, examples), 1e3 * seconds / steps)

    return run


def decision_tree(depth: int | None, like: int | None = None) -> Contestant:
    """scikit-learn's; `like` is the depth of the soft tree whose numbers it may use."""

    def run(examples: Set, seed: int) -> Result:
        D, C = examples.X.shape[1], len(np.unique(examples.y))
        limit = None
        if like is not None:
            limit = ((2**like - 1) * (D + 1) + 2**like * C) // (C + 2)
        tree = DecisionTreeClassifier(max_depth=depth, max_leaf_nodes=limit, random_state=seed)
        tree.fit(examples.X, examples.y)
        leaves = tree.get_n_leaves()
        return Result(2 * (leaves - 1) + leaves * C, right(tree, examples))

    return run


def linear(examples: Set, seed: int) -> Result:
    """Logistic regression."""
    model = LogisticRegression(max_iter=PASSES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # PASSES is the budget
        model.fit(examples.X, examples.y)
    return Result(model.coef_.size + model.intercept_.size, right(model, examples))


def naive_bayes(examples: Set, seed: int) -> Result:
    """Counts of words in classes."""
    model = MultinomialNB(alpha=0.1).fit(examples.X, examples.y)
    return Result(model.feature_log_prob_.size + len(model.classes_), first_ten(model, examples))


# -- what is measured ------------------------------------------------------------------------------


def right(model: Any, examples: Set) -> tuple[float, ...]:
    """The share of test examples whose class is the likeliest."""
    return (float(np.mean(model.predict(examples.X_test) == examples.y_test)),)


def both_ways(tree: Any, examples: Set) -> tuple[float, ...]:
    """`right`, and the same with one hard walk."""
    walked = tree.predict(examples.X_test, routing="hard")
    return (*right(tree, examples), float(np.mean(walked == examples.y_test)))


def first_ten(model: Any, examples: Set) -> tuple[float, ...]:
    """`right`, and the share whose class is among the ten likeliest."""
    hits = np.zeros(2)
    for start in range(0, examples.X_test.shape[0], 1000):
        part = slice(start, start + 1000)
        likelihood = model.predict_proba(examples.X_test[part])
        ten = np.argpartition(-likelihood, 10, axis=1)[:, :10]
        y = examples.y_test[part]
        hits += (
            np.sum(model.classes_[likelihood.argmax(axis=1)] == y),
            np.sum(model.classes_[ten] == y[:, None]),
        )
    return tuple((hits / examples.X_test.shape[0]).tolist())


# -- the table -------------------------------------------------------------------------------------


def contestants(many: bool, depth: int, epochs: int) -> dict[str, Contestant]:
    """Who takes part."""
    measure = first_ten if many else both_ways
    soft = {
        f"soft tree, depth {depth}, {epochs} epochs, {name}": soft_tree(
            kind, depth, epochs, measure
        )
        for name, kind in KINDS.items()
    }
    if many:
        return {**soft, "naive Bayes": naive_bayes}
    return {
        **soft,
        f"decision tree, depth {depth}": decision_tree(depth),
        "decision tree, as many numbers at most": decision_tree(None, like=depth),
        "decision tree, no limit": decision_tree(None),
        "logistic regression": linear,
    }


def percent(values: list[float]) -> str:
    """Mean and, of more than one, standard deviation."""
    mean = f"{100 * np.mean(values):.1f}"
    return f"{mean} ± {100 * np.std(values, ddof=1):.2f}" if len(values) > 1 else mean


def line(name: str, results: list[Result]) -> str:
    """A line of the table."""
    cells = [f"{np.mean([r.numbers for r in results]):,.0f}"]
    cells += [percent(list(column)) for column in zip(*(r.shares for r in results), strict=True)]
    cells += [""] * (3 - len(cells))
    times = [r.milliseconds for r in results if r.milliseconds is not None]
    cells.append(f"{np.median(times):.1f}" if times else "")
    return " | ".join(["", name, *cells, ""]).strip()


def main() -> None:
    """Train them all and print the table, a line as soon as it is known."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--data", default="digits", metavar="NAME|PATH")
    p.add_argument("--depth", type=int, default=6)
    p.add_argument("--epochs", type=int, default=100)
    p.add_argument("--seeds", type=int, default=5)
    options = p.parse_args()
    first = read(options.data, 0)
    C = len(np.unique(first.y))
    train, test = first.X.shape[0], first.X_test.shape[0]
    heading(
        f"{Path(options.data).name}: {train:,} examples to learn from, {test:,} to test,"
        f" {first.X.shape[1]:,} features, {C:,} classes, {options.seeds} seeds"
    )
    second = "among the first ten" if C > MANY else "one hard walk"
    print(f"\n| model | numbers | right, % | {second}, % | ms a step |\n|---|---|---|---|---|")
    models = contestants(C > MANY, options.depth, options.epochs)
    with tqdm(total=len(models) * options.seeds, unit=" trainings") as bar:
        for name, run in models.items():
            results = []
            for seed in range(options.seeds):
                results.append(run(read(options.data, seed), seed))
                bar.set_postfix_str(f"{name}: {percent([r.shares[0] for r in results])}")
                bar.update()
            tqdm.write(line(name, results))


if __name__ == "__main__":
    main()
