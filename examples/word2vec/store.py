"""A run in one file: the words and vectors that anyone can use, and all that is needed to go on."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..program import header_of, write_npz
from . import formats
from .formats import FormatError
from .keyed_vectors import KeyedVectors
from .models import LOSSES, MODELS, Model, Settings
from .pairs import Place
from .train import Run
from .vocabulary import Vocabulary

FORMAT = "word2vec run 1"


class Saved(NamedTuple):
    """What a file holds."""

    model: Model
    vocabulary: Vocabulary
    run: Run
    reading: dict[str, Any]  # how the text was read, so that it can be read the same way again


def save(
    path: Path, model: Model, vocabulary: Vocabulary, run: Run, reading: dict[str, Any]
) -> None:
    """Write a run, finished or not, as .npz. The file appears whole or not at all.

    Raises FormatError, before anything is written, for what cannot be read back.
    """
    header = {
        "format": FORMAT,
        "settings": model.settings._asdict(),
        "place": run.place,
        "words": run.words,
        "reading": reading,
    }
    arrays = {
        "words": np.array(vocabulary.words),
        "vectors": model.inputs.vectors(),
        "counts": vocabulary.counts,
        "outputs": model.outputs.numpy(),
        "losses": np.array(run.losses),
    }
    if model.settings.parts:  # without parts the vectors are the table
        arrays["inputs"] = model.inputs.table.numpy()
    formats.check_can_hold(vocabulary.words, arrays["vectors"], "npz")
    write_npz(path, header, arrays)


def load(path: Path, device: str = "cpu") -> Saved:
    """Read what `save` wrote, to go on with on a device. Raises FormatError for anything else."""
    arrays = formats.read_arrays(path)
    header, settings = _checked(path, arrays)
    vocabulary = Vocabulary.of(arrays["words"].tolist(), arrays["counts"])
    tables = arrays.get("inputs", arrays["vectors"]), arrays["outputs"]
    model = Model(vocabulary, settings, tables, device)
    run = Run(Place(*header["place"]), header["words"], arrays["losses"].tolist())
    return Saved(model, vocabulary, run, header["reading"])


def load_vectors(path: Path) -> KeyedVectors:
    """The vectors in any file: of a run, with vectors for unknown words where it has parts."""
    return load_shown(path)[0]


def load_shown(path: Path) -> tuple[KeyedVectors, np.ndarray]:
    """The vectors in any file, as `load_vectors`, and the losses of a run, none for others."""
    with open(path, "rb") as file:
        if formats.kind_of(file) != "npz":
            return formats.load(path), np.zeros(0)
    arrays = formats.read_arrays(path)
    if "header" not in arrays:
        return formats.load(path), np.zeros(0)
    _, settings = _checked(path, arrays)
    words, vectors = arrays["words"].tolist(), arrays["vectors"]
    table = arrays["inputs"][len(words) :] if settings.parts else None
    return KeyedVectors(words, vectors, settings.grams, table), arrays["losses"]


# -- what a file may hold --------------------------------------------------------------------------

COUNT = 1, 10**9
POSITIVE = 0, np.finfo(np.float64).max
# Of each number in the header: its type, and from where to where it goes.
RANGES: dict[str, tuple[type, float, float]] = {
    **{name: (int, *COUNT) for name in ("dim", "window", "negatives", "shared", "epochs")},
    **{name: (int, *COUNT) for name in ("shortest", "longest", "centres", "min_count")},
    "max_words": (int, *COUNT),
    "parts": (int, 0, 10**9),
    "lr": (float, *POSITIVE),
    "clip": (float, *POSITIVE),
    "sample": (float, 0, 1),
    "seed": (int, 0, 2**32 - 1),
    "text": (int, 0, 2**32 - 1),
    "words": (int, 0, 2**62),
    "place": (int, 0, 2**62),
}
HEADER = {"format", "settings", "place", "words", "reading"}
ARRAYS = {"header", "words", "vectors", "counts", "outputs", "losses"}
READING = {"lines", "min_count", "max_words", "text"}


def _checked(path: Path, arrays: dict[str, np.ndarray]) -> tuple[dict[str, Any], Settings]:
    """The header and settings of a run whose every array is as `save` writes it, or FormatError."""
    try:
        header = header_of(arrays, FORMAT)
        settings = _check_header(header)
        _check_arrays(arrays, settings)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        wrong = error if isinstance(error, FormatError) else repr(error)
        raise FormatError(f"{path}: expected a file that train wrote, got {wrong}") from error
    return header, settings


def _check_header(header: dict[str, Any]) -> Settings:
    _check_names("entries of the header", header, HEADER)
    settings, reading, place = header["settings"], header["reading"], header["place"]
    _check_names("settings", settings, set(Settings._fields))
    _check_names("ways of reading", reading, READING)
    if settings["model"] not in MODELS or settings["loss"] not in LOSSES:
        raise FormatError(f"a model {settings['model']!r} with loss {settings['loss']!r}")
    if type(reading["lines"]) is not bool:
        raise FormatError(f"lines {reading['lines']!r}")
    if type(place) is not list or len(place) != len(Place._fields):
        raise FormatError(f"a place {place!r}")
    numbers = [*settings.items(), *reading.items(), ("words", header["words"])]
    for name, value in [*numbers, *(("place", n) for n in place)]:
        if name in RANGES and not (name == "max_words" and value is None):
            kind, low, high = RANGES[name]
            if type(value) not in (kind, int) or not low <= value <= high:
                raise FormatError(f"{name} {value!r}")
    if place[0] > settings["epochs"]:
        raise FormatError(f"epoch {place[0]} of {settings['epochs']}")
    return Settings(**settings)


def _check_arrays(arrays: dict[str, np.ndarray], settings: Settings) -> None:
    _check_names("arrays", arrays, {*ARRAYS, *(["inputs"] if settings.parts else [])})
    V, d = len(formats.of_arrays(arrays)), settings.dim
    rows = max(1, V - 1) if settings.loss == "hierarchical" else V
    expected: dict[str, tuple[type, tuple[int, ...]]] = {
        "words": (np.str_, (V,)),
        "vectors": (np.float32, (V, d)),
        "counts": (np.int64, (V,)),
        "outputs": (np.float32, (rows, d)),
        "losses": (np.float64, (arrays["losses"].size,)),
    }
    if settings.parts:
        expected["inputs"] = np.float32, (V + settings.parts, d)
    for name, (kind, shape) in expected.items():
        array = arrays[name]
        if array.dtype.type is not kind or array.shape != shape:
            raise FormatError(f"{name} {array.dtype} {array.shape}, not {kind.__name__} {shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FormatError(f"{name} that are not finite")
    if V == 0 or (arrays["counts"] < 1).any() or (np.diff(arrays["counts"]) > 0).any():
        raise FormatError("counts that are not those of words, the most frequent first")


def _check_names(what: str, got: Any, expected: set[str]) -> None:
    if not isinstance(got, dict) or got.keys() != expected:
        names = sorted(got) if isinstance(got, dict) else repr(got)
        raise FormatError(f"{what} {names}, not {sorted(expected)}")
