"""What the two programs share: numbers on the command line, errors in one line, whole files."""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tinygrad_sparse.checkpoint import whole_file as whole_file

# -- the command line ------------------------------------------------------------------------------


INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended
ENDINGS = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".eps", ".ps")


class InputError(Exception):
    """What the user gave cannot be used; the message is all there is to say."""


def number(kind: type, low: float, high: float, text: str) -> float:
    """Read an option's number, or say which numbers it can be."""
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        name = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"expected {name} from {low:g} to {high:g}, got {text!r}")
    return value


count = partial(number, int, 1, 10**9)
seed = partial(number, int, 0, 2**32 - 1)
rate = partial(number, float, 1e-6, 1e3)


def device(add: Callable[..., Any]) -> None:
    """The option that says where to compute."""
    text = "where to compute; cuda is a GPU, by CuPy; no part of what is saved [%(default)s]"
    add("--device", choices=("cpu", "cuda"), default="cpu", help=text)


def check_can_write(*outputs: Path | None, inputs: Iterable[Path | None] = ()) -> None:
    """Say so before the work, not after it: a place that cannot be written, or that is in use.

    No output may be an input, lie in a folder of inputs, or be another output. Raises InputError.
    """
    taken = [path for path in inputs if path is not None]
    for path in outputs:
        if path is None:
            continue
        if not path.parent.is_dir():
            raise InputError(f"cannot write a file {path}: there is no folder {path.parent}")
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise InputError(f"cannot write a file {path}")
        for other in taken:
            if path.resolve() == other.resolve():
                raise InputError(f"{path} would overwrite {other}. Hint: give it another name")
            if other.is_dir() and path.resolve().is_relative_to(other.resolve()):
                raise InputError(
                    f"{path} would be read as a part of {other}. Hint: write it elsewhere"
                )
        taken.append(path)


def check_can_draw(path: Path | None) -> None:
    """Raise InputError for a picture of a kind that there is not."""
    if path is not None and path.suffix.lower() not in ENDINGS:
        hint = path.with_suffix(".png").name
        raise InputError(f"cannot draw {path}: expected {', '.join(ENDINGS)}. Hint: {hint}")


def start(name: str) -> NoReturn:
    """Run `main` of the command of an example, as ``python -m examples.NAME`` does."""
    # A warning here is for whoever runs the command: what happened, not which line of code.
    warnings.formatwarning = lambda message, *_, **__: f"{name}: warning: {message}\n"
    try:
        command = import_module(f"examples.{name}.command")
    except ModuleNotFoundError as error:
        sys.exit(f"{name}: error: {error}. Hint: pip install 'tinygrad-sparse[examples]'")
    sys.exit(command.main())


def exit_code(name: str, run: Callable[[], int | None], *known: type[Exception]) -> int:
    """What `run` returns; 2 and a line where the input, a file or one of `known` is the reason."""
    try:
        return run() or 0
    except (InputError, *known) as error:
        message = str(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except MemoryError as error:
        message = f"not enough memory{f': {error}' if str(error) else ''}"
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror or error}"
    print(f"{name}: error: {message}", file=sys.stderr)
    return 2


# -- files -----------------------------------------------------------------------------------------


def write_npz(path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays and a JSON header as .npz, no pickle. The file appears whole or not at all."""
    as_bytes = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with whole_file(path) as file:
        np.savez(file, header=as_bytes, **arrays)


def write_picture(path: Path, figure: Any) -> None:
    """A figure of Matplotlib, of the kind that the ending of the name says; whole or not at all."""
    with whole_file(path) as file:
        figure.savefig(file, format=path.suffix.lower()[1:])


def header_of(arrays: Mapping[str, np.ndarray], expected: str) -> dict[str, Any]:
    """The header that `write_npz` wrote. Raises KeyError, TypeError or ValueError for another."""
    header = json.loads(arrays["header"].tobytes())
    if header["format"] != expected:
        raise ValueError(header["format"])
    return header
