"""What the two estimators share: settings, checks, the fitted state, and its ways in and out.

Between calls the fitted state is a `Model`; pickle and `store` see it as plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from tinygrad_sparse.nn.soft_tree import (
    BIG,
    DEEPEST,
    TINY,
    PathPenalty,
    SoftTree,
    depth_of,
    is_number,
    is_whole,
)

from .counts import SMOOTHING, Arrays, host
from .model import Data, Model, Plan, Size, train
from .routing import arrivals, leaves_reached, mean_arrivals, route

CHOICES = {
    "leaves": ("derivative_free", "gradient"),
    "smoothing": tuple(SMOOTHING),
    "leaf_form": ("normalised", "softmax"),
    "schedule": ("linear", "constant"),
    "device": ("cpu", "cuda"),
}
COUNTS = {
    "depth": (0, DEEPEST),
    "batch_size": (1, None),
    "max_iter": (1, None),
    "n_iter_no_change": (1, None),
}
LIGHTEST = 1e-20  # mean weight of examples: counts and sums of squares have a floor of 1e-30
RANGES = {
    "learning_rate": (TINY, BIG, "a number > 0"),
    "inverse_temperature": (TINY, BIG, "a number > 0"),
    "penalty": (0, BIG, "a number >= 0"),
    "tol": (0, BIG, "a number >= 0"),
    "penalty_decay": (TINY, 1, "a share in (0, 1]"),
    "validation_fraction": (TINY, 1 - np.finfo(float).epsneg, "a share in (0, 1)"),
}
FLAGS = ("learn_temperature", "penalty_window", "early_stopping", "warm_start")
SEEDS = 2**32  # of NumPy's RandomState
AS_WEIGHTS = ("learning_rate", "inverse_temperature", "penalty")  # meet numbers of X's dtype


class Built(NamedTuple):
    """The settings that a model was built with. Those of the estimator wait for the next `fit`."""

    depth: int
    leaves: str
    smoothing: str
    inverse_temperature: float
    learn_temperature: bool
    penalty: float
    penalty_decay: float
    penalty_window: bool
    device: str
    leaf_form: str | None = None  # of a classifier

    @staticmethod
    def of(settings: dict[str, Any]) -> Built:
        """Those among all settings."""
        return Built(**{name: v for name, v in settings.items() if name in Built._fields})


def check_some(weights: np.ndarray) -> None:
    """Raise ValueError where no example has a weight."""
    if not weights.any():
        raise ValueError("sample_weight: expected a positive weight, got only zeros")


class SoftDecisionTree(BaseEstimator):
    """What the classifier and the regressor share; the classifier says what parameters mean."""

    def __init__(
        self,
        depth: int = 6,
        *,
        leaves: str = "gradient",
        smoothing: str = "exponential",
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
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
        device: str = "cpu",
    ) -> None:
        self.depth = depth
        self.leaves = leaves
        self.smoothing = smoothing
        self.inverse_temperature = inverse_temperature
        self.learn_temperature = learn_temperature
        self.penalty = penalty
        self.penalty_decay = penalty_decay
        self.penalty_window = penalty_window
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    # -- learning ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from X (n, D), dense or sparse, and y (n,); examples of weight 0 count as absent.

        With ``warm_start=True`` training goes on from where the last call ended. A call that fails
        changes nothing.
        """
        self._check_settings()
        again = self.warm_start and hasattr(self, "_model")
        plan = Plan(
            batch_size=self.batch_size,
            epochs=self.max_iter,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            patience=self.n_iter_no_change,
            tol=self.tol,
            verbose=bool(self.verbose),
            again=again,
        )
        return self._learn(X, y, sample_weight, plan, hold_out=self.early_stopping)

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        plan: Plan,
        classes: np.ndarray | None = None,
        hold_out: bool = False,
    ) -> Self:
        again = plan.again
        before = dict(vars(self))
        rng = self._rng if again else self.random_state
        drawn = rng.get_state() if isinstance(rng, np.random.RandomState) else None
        try:
            if again:
                self._check_built()
            with np.errstate(over="ignore", invalid="ignore"):  # found by looking at the results
                data = self._data(X, y, sample_weight, again, classes)
                self._train(data, plan, hold_out)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            if drawn is not None:
                rng.set_state(drawn)
            raise
        return self

    def _data(
        self, X: Any, y: Any, sample_weight: Any, again: bool, classes: np.ndarray | None
    ) -> Data:
        """The examples of positive weight, checked."""
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=self._model.dtype if again else [np.float64, np.float32],
            multi_output=True,  # a column is made flat, with a warning; see `_known_targets`
            reset=not again,
        )
        self._check_dtype(X.dtype)
        weights = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        check_some(weights)
        targets, weights = self._known_targets(y, weights, again, classes)
        check_some(weights)  # a class may weigh nothing
        if not weights.sum() <= float(np.finfo(X.dtype).max):
            raise ValueError(f"sample_weight: expected a sum that {X.dtype} holds, got more")
        if not (mean := weights[weights > 0].mean()) >= LIGHTEST:
            raise ValueError(
                f"sample_weight: expected a mean of at least {LIGHTEST:g}, got {mean:.3g}"
            )
        if sparse.issparse(X) and not X.data.all():
            X = X.copy()  # zeros that are stored would be looked up, and then move as others do not
            X.eliminate_zeros()
        data = Data(X, targets, weights)
        if not weights.all():
            data = data.take(np.flatnonzero(weights))
        return data

    def _train(self, data: Data, plan: Plan, hold_out: bool) -> None:
        if hold_out:
            self._check_hold_out(len(data.targets))
        size = Size.of(data)
        if not plan.again:
            self._rng = check_random_state(self.random_state)
            self._split = -1  # the seed of the part held out, once there is one
            self._built = Built.of(self.get_params())
            self._model = self._build(data.x.shape[1], size, self._rng, data.x.dtype)
            self.n_iter_, self.loss_curve_, self.validation_scores_ = 0, [], []
        score = None
        if hold_out:
            if self._split < 0:
                self._split = int(self._rng.randint(2**31 - 1))
            learned, held = train_test_split(
                np.arange(len(data.targets)),
                test_size=self.validation_fraction,
                random_state=self._split,  # a warm start holds the same examples out
                stratify=self._strata(data.targets),
            )
            part, data = data.take(held), data.take(learned)
            score = lambda: self._score(part)
        undone = self._model.savepoint(data, plan.batches(data), plan.stream)
        with undone if plan.again else nullcontext():  # what is new is let go as it is
            history = train(self._model, data, plan, self._rng, score)
        self.n_iter_ += len(history.losses)
        self.loss_curve_ = self.loss_curve_ + history.losses
        self.validation_scores_ = self.validation_scores_ + history.scores

    def _strata(self, targets: np.ndarray) -> np.ndarray | None:
        """What the part held out has in proportion; a regressor nothing."""

    def _partial_fit(
        self, X: Any, y: Any, sample_weight: Any, classes: np.ndarray | None = None
    ) -> Self:
        plan = Plan(
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            verbose=bool(self.verbose),
            stream=True,
            again=hasattr(self, "_model"),
        )
        return self._learn(X, y, sample_weight, plan, classes)

    def _check_settings(self) -> None:
        """Raise ValueError for a setting out of range, before anything is learned."""
        for name, known in CHOICES.items():
            value = getattr(self, name, known[0])
            if not isinstance(value, str) or value not in known:
                raise ValueError(f"{name}: expected one of {known}, got {value!r}")
        for name, (least, most) in COUNTS.items():
            value = getattr(self, name)
            if not is_whole(value, least, most):
                to = "" if most is None else f" to {most}"
                raise ValueError(
                    f"{name}: expected a whole number from {least}{to}, got {value!r:.20}"
                )
        for name, (low, high, text) in RANGES.items():
            value = getattr(self, name)
            if not is_number(value, low, high):
                raise ValueError(f"{name}: expected {text}, got {value!r}")
        for name in FLAGS:
            if not isinstance(value := getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name}: expected True or False, got {value!r}")
        if not isinstance(self.verbose, (bool, np.bool_)) and not is_whole(self.verbose, 0):
            raise ValueError(
                f"verbose: expected True, False or a whole number, got {self.verbose!r}"
            )
        seed = self.random_state
        drawn = seed is None or seed is np.random or isinstance(seed, np.random.RandomState)
        if not drawn and not is_whole(seed, 0, SEEDS - 1):
            raise ValueError(
                f"random_state: expected None, a whole number from 0 to {SEEDS - 1} or a"
                f" RandomState, got {seed!r}"
            )

    def _check_built(self) -> None:
        """Raise ValueError for a setting that the tree was built without."""
        now = Built.of(self.get_params())
        for name, was, is_now in zip(Built._fields, self._built, now, strict=True):
            if was != is_now:
                raise ValueError(
                    f"{name}: expected {was!r}, which the tree was built with and goes on"
                    f" with, got {is_now!r}"
                )

    def _check_hold_out(self, n: int) -> None:
        """Raise ValueError where holding a part out would leave nothing to learn from."""
        if np.ceil(self.validation_fraction * n) >= n:  # rounded as train_test_split does
            raise ValueError(
                f"validation_fraction: expected a share that leaves some of {n} examples to learn"
                f" from, got {self.validation_fraction}. Hint: early_stopping=False holds none out."
            )

    def _check_dtype(self, dtype: Any) -> None:
        """Raise ValueError for a setting that is no number in the dtype of the weights."""
        for name in AS_WEIGHTS:
            value = getattr(self, name)
            low, high = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
            if value != 0 and not low <= value <= high:
                raise ValueError(f"{name}: expected a number that {dtype} holds, got {value!r}")

    def _build(self, D: int, size: Size, rng: Any, dtype: Any) -> Model:
        built = self._built
        tree = SoftTree(
            D,
            built.depth,
            inverse_temperature=built.inverse_temperature,
            learn_temperature=built.learn_temperature,
            std=1.0 / size.length,
            seed=rng.randint(2**31 - 1),
            dtype=dtype,
        )
        tree.to(built.device)
        penalty = PathPenalty(
            built.depth, built.penalty, decay=built.penalty_decay, window=built.penalty_window
        )
        return Model(tree, self._leaves(2**built.depth, rng, dtype), penalty, size)

    # -- what was learned --------------------------------------------------------------------

    def _route(self, X: Any, routing: str, read: Callable[..., Any] | None = None) -> np.ndarray:
        X = self._examples(X)
        return route(self._model, X, routing, read)

    def _examples(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, accept_sparse="csr", dtype=self._model.dtype, reset=False)

    def apply(self, X: Any, routing: str = "likeliest") -> np.ndarray:
        """The leaf of each example, (n,), counted from the left; `routing` is hard or likeliest."""
        X = self._examples(X)
        return leaves_reached(self._model, X, routing)

    def arrivals(self, X: Any) -> np.ndarray:
        """The probability that each example arrives at each node, (n, 2^(depth + 1) - 1)."""
        X = self._examples(X)
        return arrivals(self._model, X)

    def _mean_arrivals(self, X: Any) -> np.ndarray:
        """The share of examples X that arrives at each node, (2^(depth + 1) - 1,)."""
        X = self._examples(X)
        return mean_arrivals(self._model, X)

    @property
    def _leaf_numbers(self) -> int:
        """How many numbers the leaves are at least."""
        return int(2**self._built.depth)

    @property
    def _depth(self) -> int:
        """Of what was built, whatever the setting is now."""
        return depth_of(self._fitted.tree.weight.shape[1])

    @property
    def gate_weights_(self) -> np.ndarray:
        """What each gate looks at, (2^depth - 1, D), the inverse temperature included."""
        return (host(self._fitted.tree.weight.data) * self._fitted.beta).T

    @property
    def gate_intercepts_(self) -> np.ndarray:
        """The logit of each gate where all features are 0, (2^depth - 1,)."""
        return host(self._fitted.tree.bias.data) * self._fitted.beta

    @property
    def _fitted(self) -> Model:
        check_is_fitted(self)
        return self._model

    # -- scikit-learn ------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "_model" in state:
            state["_model"] = state["_model"].arrays()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = state.pop("_model", None)
        super().__setstate__(state)
        if arrays is not None:
            self._restore(arrays)

    def _restore(self, arrays: Arrays) -> None:
        """Make the model that `arrays` were taken from. Raises ValueError where they are none."""
        weight = arrays["tree.weight"]
        D, N = weight.shape
        largest = max(a.size for name, a in arrays.items() if name.startswith("leaves."))
        if depth_of(N) != self._built.depth or self._leaf_numbers > largest:
            raise ValueError("a header of a larger tree")  # found before anything of its size is
        model = self._build(D, Size(), np.random.RandomState(0), weight.dtype)
        model.load(arrays)
        for name, here in model.arrays().items():
            a = arrays.get(name)
            if a is None or a.shape != here.shape or a.dtype != here.dtype:
                raise ValueError(f"{name}: expected {here.dtype} {here.shape}")
            if a.dtype.kind == "f" and (np.isnan(a).any() or np.isposinf(a).any()):
                raise ValueError(f"{name}: expected numbers")
        if unknown := set(arrays) - set(model.arrays()):
            raise ValueError(f"unknown arrays {sorted(unknown)}")
        self._model = model
