"""Save and load a fitted tree: one .npz of plain arrays with a JSON header, no pickle.

A file that someone else made can hold wrong numbers, but it cannot run anything.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

import tinygrad_sparse as ts
from tinygrad_sparse.errors import CheckpointError, explain

from ..program import header_of, write_npz
from .base import Built, SoftDecisionTree
from .estimator import SoftDecisionTreeClassifier, SoftDecisionTreeRegressor
from .reading import check_tree

FORMAT = "soft decision tree 3"
KINDS = {kind.__name__: kind for kind in (SoftDecisionTreeClassifier, SoftDecisionTreeRegressor)}
LISTS, UNITS = ("loss_curve_", "validation_scores_"), ("_mean", "_unit")
FITTED = ("n_features_in_", "n_iter_", "_split", *LISTS, *UNITS)
NAMED = ("classes_", "feature_names_in_")


def save(tree: SoftDecisionTree, path: str | Path) -> None:
    """Write a fitted tree, with all that is needed to go on training it.

    The file appears whole or not at all. Raises CheckpointError for a setting that has no place in
    JSON, such as a RandomState.
    """
    check_tree("save", tree)
    state = tree.__getstate__()
    if "_model" not in state:
        raise CheckpointError(explain("save", "a fitted tree", f"{tree!r}", "call fit first"))
    header = {
        "format": FORMAT,
        "kind": type(tree).__name__,
        "settings": _apart_from_device(tree.get_params()),
        "built": _apart_from_device(tree._built._asdict()),
        "fitted": {name: _plain(name, state[name]) for name in FITTED if name in state},
    }
    arrays = {f"model.{name}": a for name, a in state["_model"].items()}
    for name in NAMED:
        if name in state:
            arrays[name] = _without_objects(name, state[name])
    header["objects"] = [name for name in NAMED if name in state and state[name].dtype.kind == "O"]
    random = tree._rng.get_state(legacy=False)
    header["random"] = {"has_gauss": random["has_gauss"], "gauss": random["gauss"]}
    arrays["random.key"] = random["state"]["key"]
    arrays["random.pos"] = np.array(random["state"]["pos"])
    write_npz(Path(path), header, arrays)


def _apart_from_device(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON knows them. Where a tree is computed is up to who loads it."""
    return {name: _plain(name, v) for name, v in settings.items() if name != "device"}


def load(path: str | Path, device: str = "cpu") -> SoftDecisionTree:
    """Read what `save` wrote, onto a device. Raises CheckpointError for anything else.

    And DeviceError for a device that is not there.
    """
    ts.tensor(0.0, device=device)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as zipped:
            arrays = dict(zipped)
        return _tree_of(header_of(arrays, FORMAT), arrays, device)
    except FileNotFoundError:
        raise
    except Exception as error:  # its readers have no end of names for what a file can be
        got = f"{path}, which fails with {type(error).__name__}: {error}"
        raise CheckpointError(explain("load", "a file that save wrote", got)) from error


def _tree_of(
    header: dict[str, Any], arrays: dict[str, np.ndarray], device: str
) -> SoftDecisionTree:
    """The tree that was saved. Raises what comes of a wrong header or wrong arrays."""
    del arrays["header"]
    settings = header["settings"]
    if isinstance(settings.get("class_weight"), list):
        settings["class_weight"] = {key: weight for key, weight in settings["class_weight"]}
    kind = KINDS[header["kind"]]
    tree = kind(**settings, device=device)
    built = {name: value for name, value in header["built"].items() if value is not None}
    kind(**built)._check_settings()
    tree._built = Built(**built, device=device)
    vars(tree).update(_fitted(header["fitted"], is_classifier(tree)))
    _check("objects", isinstance(header["objects"], list))
    for name in NAMED:
        if name in arrays:
            names, objects = arrays.pop(name), name in header["objects"]
            _check(name, names.dtype.kind == "U" or not objects)
            setattr(tree, name, names.astype(object) if objects else names)
    key, pos = arrays.pop("random.key"), int(arrays.pop("random.pos"))
    has_gauss, gauss = int(header["random"]["has_gauss"]), float(header["random"]["gauss"])
    _check("random", key.shape == (624,) and key.dtype == np.uint32 and 0 <= pos <= 624)
    _check("random", has_gauss in (0, 1) and math.isfinite(gauss))
    tree._rng = np.random.RandomState()
    tree._rng.set_state(("MT19937", key, pos, has_gauss, gauss))
    _check("arrays", all(name.startswith("model.") for name in arrays))
    tree._restore({name.removeprefix("model."): a for name, a in arrays.items()})
    _check("n_features_in_", tree.n_features_in_ == len(tree._model.tree.weight))
    names = getattr(tree, "feature_names_in_", None)
    _check("feature_names_in_", names is None or names.shape == (tree.n_features_in_,))
    return tree


def _fitted(values: dict[str, Any], classifier: bool) -> dict[str, Any]:
    """What the header says of the fit, checked."""
    _check("fitted", set(values) == set(FITTED) - set(UNITS if classifier else ()))
    for name, value in values.items():
        _check(name, isinstance(value, list) == (name in LISTS))
        _check(name, all(type(v) in (int, float) for v in (value if name in LISTS else [value])))
    _check("_split", type(values["_split"]) is int and -1 <= values["_split"] < 2**31)
    _check("n_iter_", type(values["n_iter_"]) is int and values["n_iter_"] >= 0)
    _check("_mean", math.isfinite(values.get("_mean", 0.0)))
    _check("_unit", 0 < values.get("_unit", 1.0) < math.inf)
    return values


def _check(name: str, good: bool) -> None:
    if not good:
        raise ValueError(f"{name} is none that save wrote")


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
