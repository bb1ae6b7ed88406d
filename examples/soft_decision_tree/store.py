"""Save and load a fitted tree: one .npz of plain arrays with a JSON header, no pickle.

A file that someone else made can hold wrong numbers, but it cannot run anything.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad_sparse.errors import CheckpointError, explain

from ..program import header_of, write_npz
from .base import SoftDecisionTree
from .estimator import SoftDecisionTreeClassifier, SoftDecisionTreeRegressor

FORMAT = "soft decision tree 1"
KINDS = {kind.__name__: kind for kind in (SoftDecisionTreeClassifier, SoftDecisionTreeRegressor)}
FITTED = ("n_features_in_", "n_iter_", "loss_curve_", "validation_scores_", "_mean", "_unit")
NAMED = ("classes_", "feature_names_in_")


def save(tree: SoftDecisionTree, path: str | Path) -> None:
    """Write a fitted tree, with all that is needed to go on training it.

    The file appears whole or not at all. Raises CheckpointError for a setting that has no place in
    JSON, such as a RandomState.
    """
    state = tree.__getstate__()
    if "_model" not in state:
        raise CheckpointError(explain("save", "a fitted tree", f"{tree!r}", "call fit first"))
    header = {
        "format": FORMAT,
        "kind": type(tree).__name__,
        "settings": {
            name: _plain(name, v) for name, v in tree.get_params().items() if name != "device"
        },
        "fitted": {name: _plain(name, state[name]) for name in FITTED if name in state},
    }
    arrays = {f"model.{name}": a for name, a in state["_model"].items()}
    for name in NAMED:
        if name in state:
            arrays[name] = _without_objects(name, state[name])
    random = tree._rng.get_state(legacy=False)
    header["random"] = {"has_gauss": random["has_gauss"], "gauss": random["gauss"]}
    arrays["random.key"] = random["state"]["key"]
    arrays["random.pos"] = np.array(random["state"]["pos"])
    write_npz(Path(path), header, arrays)


def load(path: str | Path) -> SoftDecisionTree:
    """Read what `save` wrote, onto the CPU. Raises CheckpointError for anything else."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        header = header_of(arrays, FORMAT)
        del arrays["header"]
        settings = header["settings"]
        if isinstance(settings.get("class_weight"), list):
            settings["class_weight"] = {key: weight for key, weight in settings["class_weight"]}
        tree = KINDS[header["kind"]](**settings)
        for name, value in header["fitted"].items():
            if name not in FITTED:
                raise ValueError(name)
            setattr(tree, name, value)
        for name in NAMED:
            if name in arrays:
                names = arrays.pop(name)
                setattr(tree, name, names.astype(object) if names.dtype.kind == "U" else names)
        tree._rng = np.random.RandomState()
        tree._rng.set_state(
            {
                "bit_generator": "MT19937",
                "state": {"key": arrays.pop("random.key"), "pos": int(arrays.pop("random.pos"))},
                **header["random"],
            }
        )
        tree._restore({name.removeprefix("model."): a for name, a in arrays.items()})
    except FileNotFoundError:
        raise
    except (
        AttributeError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile,
    ) as error:  # fmt: skip
        got = f"{path}, which fails with {type(error).__name__}: {error}"
        raise CheckpointError(explain("load", "a file that save wrote", got)) from error
    return tree


def _plain(name: str, value: Any) -> Any:
    """A setting as JSON knows it; a dictionary as pairs, since its keys need not be text."""
    if isinstance(value, dict):
        return [[_plain(name, k), _plain(name, v)] for k, v in value.items()]
    if isinstance(value, list):
        return [_plain(name, v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    hint = f"tree.set_params({name}=...) with a number before saving"
    raise CheckpointError(explain("save", f"{name} as text or a number", repr(value), hint))


def _without_objects(name: str, values: np.ndarray) -> np.ndarray:
    """Names as an array that needs no pickle."""
    if values.dtype.kind != "O":
        return values
    if all(isinstance(v, str) for v in values):
        return values.astype(str)
    raise CheckpointError(explain("save", f"{name} as numbers or text", repr(values.tolist())))
