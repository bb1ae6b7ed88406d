"""The tree as scikit-learn knows estimators: a classifier and a regressor."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from tinygrad_sparse.nn.soft_tree import BIG, is_number

from .base import SoftDecisionTree
from .leaves import CountedLeaves, GaussianLeaves, GradientLeaves, TrainedMeans
from .model import Data
from .routing import route


def most_probable(probabilities: np.ndarray) -> np.ndarray:
    """The class of each row."""
    return probabilities.argmax(axis=1)


class SoftDecisionTreeClassifier(ClassifierMixin, SoftDecisionTree):
    """A decision tree that sends each example both ways at each gate, more or less.

    Parameters
    ----------
    depth : the tree has 2^depth leaves.
    leaves : "derivative_free" (a leaf counts what it explained) or "gradient".
    smoothing : of leaves that count: "exponential" (a window of about an epoch) or "epoch" (an
        epoch's counts replace the last one's step by step).
    leaf_form : of leaves that count: "normalised", θ / Σθ, or "softmax".
    inverse_temperature, learn_temperature : β of a gate's σ(β(x·w + b)); may each learn its own.
    penalty, penalty_decay, penalty_window : for one-sided gates: λ, its factor from level to level,
        and whether a gate's share is averaged over 2^level batches.
    learning_rate, schedule : how far one step may move the logit of a typical example; "linear"
        (falls to 0) or "constant".
    batch_size, max_iter : examples a step; epochs. Batches differ by one example at most.
    early_stopping, validation_fraction, n_iter_no_change, tol : hold a part out; stop when its
        score has not grown by `tol` for `n_iter_no_change` epochs; keep the best epoch.
    class_weight : None, "balanced", or a weight for each class.
    warm_start, random_state, verbose : as everywhere in scikit-learn; `verbose` shows a bar.
    device : "cpu", or "cuda" to learn and predict on a GPU, by CuPy.

    A unit that all features share does not matter. Where units differ, put a scaler in front.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, n_iter_, loss_curve_, validation_scores_,
    gate_weights_ (gates, D), gate_intercepts_ (gates,), leaf_values_ (leaves, classes).

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> tree = SoftDecisionTreeClassifier(depth=3, random_state=0).fit(X, y)
    >>> bool(tree.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        depth: int = 6,
        *,
        leaves: str = "derivative_free",
        smoothing: str = "exponential",
        leaf_form: str = "normalised",
        inverse_temperature: float = 1.0,
        learn_temperature: bool = False,
        penalty: float = 0.1,
        penalty_decay: float = 0.5,
        penalty_window: bool = True,
        learning_rate: float = 1.0,
        schedule: str = "linear",
        batch_size: int = 128,
        max_iter: int = 100,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-4,
        class_weight: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            depth,
            leaves=leaves,
            smoothing=smoothing,
            inverse_temperature=inverse_temperature,
            learn_temperature=learn_temperature,
            penalty=penalty,
            penalty_decay=penalty_decay,
            penalty_window=penalty_window,
            learning_rate=learning_rate,
            schedule=schedule,
            batch_size=batch_size,
            max_iter=max_iter,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
            device=device,
        )
        self.leaf_form = leaf_form
        self.class_weight = class_weight

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One pass over X, y. The first call names all `classes` that there will ever be.

        Its rate is constant: `schedule`, `max_iter` and early stopping are of `fit`.
        """
        self._check_settings()
        again = hasattr(self, "_model")
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight: expected None or a dict with partial_fit, which cannot know how"
                f" frequent classes are, got {self.class_weight!r}"
            )
        if classes is None and not again:
            raise ValueError("classes must be passed on the first call to partial_fit")
        if classes is not None:
            classes = np.unique(column_or_1d(classes))
            if not len(classes) or (classes.dtype.kind == "f" and not np.isfinite(classes).all()):
                raise ValueError(f"classes: expected labels, got {classes}")
            if again and not np.array_equal(classes, self.classes_):
                raise ValueError(f"classes: expected {self.classes_} as before, got {classes}")
        return self._partial_fit(X, y, sample_weight, classes)

    def _known_targets(
        self, y: Any, weights: np.ndarray, again: bool, classes: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        y = column_or_1d(y, warn=True)
        # A part of a stream may well have few examples of each class.
        if classes is None and not again:
            check_classification_targets(y)
        if not again:
            self.classes_ = np.unique(y) if classes is None else classes
        labels = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (unknown := self.classes_[labels] != y).any():
            got = np.unique(y[unknown])
            raise ValueError(f"y: expected the classes {self.classes_}, got also {got}")
        if self.class_weight is not None:
            weights = weights * self._class_factors(labels, weights)
        return labels, weights

    def _check_settings(self) -> None:
        super()._check_settings()
        given = self.class_weight
        if isinstance(given, dict):
            fits = all(is_number(weight, 0, BIG) for weight in given.values())
        else:
            fits = given is None or (isinstance(given, str) and given == "balanced")
        if not fits:
            raise ValueError(
                "class_weight: expected None, 'balanced' or a dict of finite weights >= 0, got"
                f" {given!r}"
            )

    def _class_factors(self, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What class_weight makes of each example; those of weight 0 are not counted."""
        classes, seen = np.arange(len(self.classes_)), weights > 0
        given = self.class_weight
        if isinstance(given, dict):  # a part need not have all the classes
            unknown = sorted(set(given) - set(self.classes_.tolist()), key=str)
            if unknown:
                raise ValueError(f"class_weight: expected {self.classes_}, got also {unknown}")
            each = compute_class_weight(given, classes=self.classes_, y=self.classes_)
            return each[labels]
        here = np.isin(classes, labels[seen])
        each = np.zeros(len(classes))
        if here.any():
            each[here] = compute_class_weight(given, classes=classes[here], y=labels[seen])
        return each[labels]

    def _strata(self, targets: np.ndarray) -> np.ndarray | None:
        counts = np.bincount(targets)
        counts = counts[counts > 0]
        share = min(self.validation_fraction, 1 - self.validation_fraction)
        few = counts.min() < 2 or int(share * len(targets)) < len(counts)
        return None if few else targets

    def _leaves(self, L: int, rng: Any, dtype: Any) -> Any:
        C, built = len(self.classes_), self._built
        if built.leaves == "gradient":
            return GradientLeaves(C, L, rng, dtype, built.device)
        return CountedLeaves(
            C, L, smoothing=built.smoothing, form=built.leaf_form, dtype=dtype, device=built.device
        )

    @property
    def _leaf_numbers(self) -> int:
        if not np.array_equal(np.unique(self.classes_), self.classes_):
            raise ValueError(f"classes_: expected each class once, in order, got {self.classes_}")
        return super()._leaf_numbers * len(self.classes_)

    def _score(self, part: Data) -> float:
        guesses = route(self._model, part.x, "soft", most_probable)
        return accuracy_score(part.targets, guesses, sample_weight=part.weights)

    @property
    def leaf_values_(self) -> np.ndarray:
        """The class distribution of each leaf, (2^depth, n_classes)."""
        return self._fitted.leaves.values()

    def predict_proba(self, X: Any, routing: str = "soft") -> np.ndarray:
        """Class probabilities, (n, n_classes); for `routing` see the module of that name."""
        return self._route(X, routing)

    def predict(self, X: Any, routing: str = "soft") -> np.ndarray:
        """The most probable class of each example, (n,)."""
        labels = self._route(X, routing, most_probable)
        return self.classes_[labels]


class SoftDecisionTreeRegressor(RegressorMixin, SoftDecisionTree):
    """A regression tree that sends each example both ways at each gate, more or less.

    With ``leaves="gradient"``, the default, the tree's mean is fitted to y by squared error. With
    ``leaves="derivative_free"`` each leaf is a normal distribution of y, whose mean and variance
    follow the examples that it explained; the gates learn from the mixture's likelihood. The other
    parameters are those of SoftDecisionTreeClassifier, without `leaf_form` and `class_weight`.

    Attributes
    ----------
    n_features_in_, feature_names_in_, n_iter_, loss_curve_, validation_scores_,
    gate_weights_ (gates, D), gate_intercepts_ (gates,), leaf_values_ (leaves, 1).

    >>> X = np.linspace(-2.0, 2.0, 400)[:, None]
    >>> tree = SoftDecisionTreeRegressor(depth=3, random_state=0).fit(X, np.sin(2.0 * X[:, 0]))
    >>> bool(tree.score(X, np.sin(2.0 * X[:, 0])) > 0.9)
    True
    """

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """One pass over X, y. The first call sets the unit in which errors are measured.

        Its rate is constant: `schedule`, `max_iter` and early stopping are of `fit`.
        """
        self._check_settings()
        return self._partial_fit(X, y, sample_weight)

    def _known_targets(
        self, y: Any, weights: np.ndarray, again: bool, classes: None
    ) -> tuple[np.ndarray, np.ndarray]:
        y = column_or_1d(y, warn=True).astype(np.float64)
        if not again:
            seen, w = y[weights > 0], weights[weights > 0]
            top = np.exp2(np.frexp(np.abs(seen).max())[1] - 1.0)  # squares of y / top are numbers
            mean = np.average(seen / top, weights=w)
            deviation = np.sqrt(np.average((seen / top - mean) ** 2, weights=w))
            self._mean, self._unit = mean * top, deviation * top if deviation > 0 else 1.0
        with np.errstate(over="ignore"):
            targets = (y - self._mean) / self._unit
        if not np.isfinite(targets[weights > 0]).all():
            raise ValueError("y: expected numbers near those of the first call, got larger ones")
        return targets, weights

    def _leaves(self, L: int, rng: Any, dtype: Any) -> Any:
        built = self._built
        if built.leaves == "gradient":
            return TrainedMeans(L, rng, dtype, built.device)
        return GaussianLeaves(L, smoothing=built.smoothing, dtype=dtype, device=built.device)

    def _score(self, part: Data) -> float:
        """1 less the mean squared error; the targets of the fit have variance 1, these any."""
        guesses = route(self._model, part.x, "soft")[:, 0]
        return 1.0 - float(np.average((guesses - part.targets) ** 2, weights=part.weights))

    @property
    def leaf_values_(self) -> np.ndarray:
        """What each leaf predicts, (2^depth, 1)."""
        values = self._fitted.leaves.values().astype(np.float64)
        return values * self._unit + self._mean

    def predict(self, X: Any, routing: str = "soft") -> np.ndarray:
        """The mean of y given each example, (n,); for `routing` see the module of that name."""
        mean = self._route(X, routing)[:, 0].astype(np.float64)
        return mean * self._unit + self._mean
