"""A run in one file: the words and vectors that anyone can use, and all that is needed to go on."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..program import header_of, write_npz
from . import formats
from .formats import FormatError
from .inputs import Grams
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
    """Write a run, finished or not, as .npz. The file appears whole or not at all."""
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
    write_npz(path, header, arrays)


def load(path: Path, device: str = "cpu") -> Saved:
    """Read what `save` wrote, to go on with on a device. Raises FormatError for anything else."""
    arrays = formats.read_arrays(path)
    try:
        settings, header = _settings(arrays)
        vocabulary = Vocabulary.of(arrays["words"].tolist(), arrays["counts"])
        tables = arrays.get("inputs", arrays["vectors"]), arrays["outputs"]
        model = Model(vocabulary, settings, tables, device)
        run = Run(Place(*header["place"]), int(header["words"]), arrays["losses"].tolist())
        return Saved(model, vocabulary, run, dict(header["reading"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path}: expected a file that train wrote, got {error!r}") from error


def _settings(arrays: dict[str, np.ndarray]) -> tuple[Settings, dict[str, Any]]:
    header = header_of(arrays, FORMAT)
    settings = Settings(**header["settings"])
    if settings.model not in MODELS or settings.loss not in LOSSES:
        raise ValueError(f"{settings.model}, {settings.loss}")
    return settings, header


def load_vectors(path: Path) -> KeyedVectors:
    """The vectors in any file: of a run, with vectors for unknown words where it has parts."""
    with open(path, "rb") as file:
        if formats.kind_of(file) != "npz":
            return formats.load(path)
    arrays = formats.read_arrays(path)
    kv = formats.of_arrays(arrays)
    if "inputs" not in arrays or "header" not in arrays:
        return kv
    try:
        s, _ = _settings(arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: expected a file that train wrote, got {error!r}") from error
    grams = Grams(s.shortest, s.longest, s.parts)
    return KeyedVectors(kv.words, kv.vectors, grams, arrays["inputs"][len(kv) :])
