"""What a tree has learned, in words and numbers: its rules, the way of one example, how soft it is.

Gates and leaves go by the numbers of `nn.soft_tree`: node n has the children 2n + 1 and 2n + 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from tinygrad_sparse.errors import explain
from tinygrad_sparse.nn.soft_tree import is_whole

from .base import SoftDecisionTree


class Step(NamedTuple):
    """One gate on the way of an example."""

    node: int
    right: bool  # which side is taken
    probability: float  # of that side, at this gate
    arrival: float  # of having come so far: the product of the probabilities up to here


class Path(NamedTuple):
    """The way of one example from the root to a leaf."""

    steps: list[Step]
    leaf: int  # counted from the left
    values: np.ndarray  # what the leaf says


def one_example(x: Any) -> Any:
    """An example (D,), dense or sparse, or a matrix of one row, as examples (1, D)."""
    return sparse.csr_array(x.reshape(1, -1)) if sparse.issparse(x) else np.reshape(x, (1, -1))


def path_of(tree: SoftDecisionTree, x: Any, routing: str = "likeliest") -> Path:
    """The way of the example x (D,) to its likeliest leaf, or with ``"hard"`` the greedy walk."""
    x = one_example(x)
    (leaf,) = tree.apply(x, routing)
    (arrivals,) = tree.arrivals(x)
    node = len(arrivals) // 2 + int(leaf)
    steps: list[Step] = []
    while node > 0:
        parent = (node - 1) // 2
        chance = arrivals[node] / arrivals[parent]  # never 0 / 0: such a leaf has 2^-h or more
        steps.append(Step(parent, node % 2 == 0, float(chance), float(arrivals[node])))
        node = parent
    return Path(steps[::-1], int(leaf), tree.leaf_values_[leaf])


def agreement(tree: SoftDecisionTree, X: Any) -> float:
    """The share of examples of which the hard walk says the same as the whole tree.

    Of a regressor: R² of the walk's numbers, the tree's being the truth.
    """
    soft, hard = tree.predict(X), tree.predict(X, routing="hard")
    return float(np.mean(soft == hard) if is_classifier(tree) else r2_score(soft, hard))


def check_tree(op: str, tree: Any) -> None:
    """Raise TypeError for what is no tree: a pipeline, say."""
    if not isinstance(tree, SoftDecisionTree):
        hint = "pipeline[-1] is the last step of a pipeline, which sees what the others make of X"
        raise TypeError(explain(op, "a soft decision tree", type(tree).__name__, hint))


def names_of(
    tree: SoftDecisionTree,
    feature_names: Sequence[str] | None,
    image_shape: tuple[int, int] | None = None,
) -> list[str]:
    """The names of the features: as given, as learned with, or made up; places in an image."""
    check_tree("to show a tree", tree)
    check_is_fitted(tree)
    if image_shape is not None:
        check_image_shape(image_shape, tree.n_features_in_)
    found = getattr(tree, "feature_names_in_", None) if feature_names is None else feature_names
    if found is not None:
        names = list(map(str, found))
    elif image_shape is not None:
        names = [f"pixel ({r}, {c})" for r, c in np.ndindex(*image_shape)]
    else:
        names = [f"x{i}" for i in range(tree.n_features_in_)]
    if len(names) != tree.n_features_in_:
        raise ValueError(f"feature_names: expected {tree.n_features_in_} names, got {len(names)}")
    return names


def class_names_of(tree: Any, class_names: Sequence[str] | None) -> list[str]:
    """The names of a classifier's classes: as given, or the classes."""
    names = list(map(str, tree.classes_ if class_names is None else class_names))
    if len(names) != len(tree.classes_):
        raise ValueError(f"class_names: expected {len(tree.classes_)} names, got {len(names)}")
    return names


def check_class_names(tree: Any, class_names: Sequence[str] | None) -> None:
    """Raise ValueError for names that are not those of the tree's classes."""
    if is_classifier(tree):
        class_names_of(tree, class_names)
    elif class_names is not None:
        raise ValueError(f"class_names: expected None of a regressor, got {class_names!r:.60}")


def check_image_shape(shape: Any, features: int) -> None:
    """Raise ValueError unless it is (rows, columns) of so many pixels."""
    two = isinstance(shape, Sequence) and len(shape) == 2 and all(is_whole(n, 1) for n in shape)
    if not two or shape[0] * shape[1] != features:
        raise ValueError(
            f"image_shape: expected (rows, columns) of {features} features, got {shape!r}"
        )


def check_count(name: str, value: int) -> None:
    """Raise ValueError for what counts nothing."""
    if not is_whole(value, 0):
        raise ValueError(f"{name}: expected a whole number from 0, got {value!r}")


def strongest(weights: np.ndarray, count: int) -> np.ndarray:
    """The `count` features of the largest weights, largest first."""
    return np.argsort(-np.abs(weights), kind="stable")[:count]


def says(
    tree: SoftDecisionTree, values: np.ndarray, class_names: Sequence[str] | None, count: int = 3
) -> str:
    """What a leaf's values mean: its likeliest classes, or its number."""
    if not is_classifier(tree):
        return f"{values[0]:.4g}"
    names = class_names_of(tree, class_names)
    top = np.argsort(-values, kind="stable")[:count]
    told = [c for rank, c in enumerate(top) if rank == 0 or values[c] >= 0.005]
    digits = [".2f" if values[c] >= 0.005 else ".1g" for c in told]
    return ", ".join(f"{names[c]} ({values[c]:{d}})" for c, d in zip(told, digits, strict=True))


def export_text(
    tree: SoftDecisionTree,
    *,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    image_shape: tuple[int, int] | None = None,
    X: Any = None,
    max_depth: int | None = None,
    terms: int = 3,
) -> str:
    """The tree as indented text: the strongest `terms` of each gate, the classes of each leaf.

    With examples X each side shows which share of what came to its gate goes there. A subtree below
    `max_depth` is summed up by what its leaves say to those who arrive. Features without names are
    pixels of an `image_shape`, where there is one.

    >>> from sklearn.datasets import load_iris
    >>> from .estimator import SoftDecisionTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> tree = SoftDecisionTreeClassifier(depth=1, random_state=0).fit(X[:100], y[:100])
    >>> print(export_text(tree, X=X[:100]))  # doctest: +ELLIPSIS
    gate 0: right if ... > 0
    |--- left 50 %: leaf 0 says ...
    |--- right 50 %: leaf 1 says ...
    """
    names = names_of(tree, feature_names, image_shape)
    check_class_names(tree, class_names)
    check_count("terms", terms)
    check_count("max_depth", deepest := tree._depth if max_depth is None else max_depth)
    weights, biases = tree.gate_weights_, tree.gate_intercepts_
    arriving = None if X is None else tree._mean_arrivals(X)
    lines: list[str] = []

    def rule(n: int) -> str:
        parts = [f"{weights[n, i]:+.2f} {names[i]}" for i in strongest(weights[n], terms)]
        more = " ..." if terms < tree.n_features_in_ else ""
        return f"gate {n}: right if {biases[n]:+.2f} {' '.join(parts)}{more} > 0"

    def walk(n: int, depth: int, opening: str, indent: str) -> None:
        if n >= len(biases):
            values = tree.leaf_values_[n - len(biases)]
            lines.append(f"{opening}leaf {n - len(biases)} says {says(tree, values, class_names)}")
        elif depth == deepest:
            values = summed_up(tree, n, arriving)
            lines.append(f"{opening}below gate {n}: {says(tree, values, class_names)}")
        else:
            lines.append(opening + rule(n))
            for child, side in ((2 * n + 1, "left"), (2 * n + 2, "right")):
                share = ""
                if arriving is not None:
                    share = f" {100 * arriving[child] / max(arriving[n], 1e-300):.0f} %"
                walk(child, depth + 1, f"{indent}|--- {side}{share}: ", indent + "|    ")

    walk(0, 0, "", "")
    return "\n".join(lines)


def summed_up(tree: SoftDecisionTree, node: int, arriving: np.ndarray | None) -> np.ndarray:
    """The mean of the leaves below a node, weighed by how much arrives there if that is known."""
    first = last = node
    gates = 2**tree._depth - 1
    while first < gates:
        first, last = 2 * first + 1, 2 * last + 2
    leaves = np.arange(first, last + 1)
    weights = np.ones(len(leaves)) if arriving is None else arriving[leaves] + 1e-300
    values = tree.leaf_values_[leaves - gates]
    return np.average(values, axis=0, weights=weights)
