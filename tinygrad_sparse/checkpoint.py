"""Files of state: dicts, lists, numbers, text and arrays in one .npz, without pickle. Floor 5.

May import `backend` and `errors`. A file that somebody else made can hold wrong numbers, but it
cannot run anything; whether the numbers fit is for `load_state_dict` to say.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib.npyio import NpzFile

from tinygrad_sparse.backend import as_host_array, describe
from tinygrad_sparse.errors import ArgumentError, CheckpointError, StorageError, explain

FORMAT = "tinygrad_sparse state 1"
HEADER = "header"
PLAIN = (bool, int, float, str)
LONGEST = 14_000  # bits of a whole number: Python reads 4,300 digits and no more


def save(path: str | os.PathLike[str], state: Any) -> None:
    """Write state, as `state_dict` gives it, to one .npz file; `load` reads it.

    `state` is dicts by text, lists, numbers, text, None and arrays, in any nesting; a tuple becomes
    a list. The file appears whole or not at all. Raises CheckpointError for anything else in it,
    and StorageError for a file that cannot be written.

    >>> import tempfile, tinygrad_sparse as ts
    >>> model = ts.nn.Linear(3, 2, seed=0)
    >>> opt = ts.optim.Adam(model.parameters(), lr=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.npz")
    ...     ts.save(path, {"model": model.state_dict(), "opt": opt.state_dict(), "epoch": 7})
    ...     state = ts.load(path)
    >>> model.load_state_dict(state["model"])
    >>> opt.load_state_dict(state["opt"])
    >>> state["epoch"]
    7
    """
    path, arrays = _path("save", path), list[np.ndarray]()
    try:
        header = json.dumps({"format": FORMAT, "state": _written(state, "state", arrays)})
    except RecursionError:
        got = "one that holds itself, or thousands of lists in one another"
        raise CheckpointError(explain("save", "a state with an end", got)) from None
    named = {HEADER: np.frombuffer(header.encode(), np.uint8)}
    named |= {str(i): a for i, a in enumerate(arrays)}
    try:
        with whole_file(path) as file:
            np.savez(file, **named)  # type: ignore[arg-type]  # none is named allow_pickle
    except (OSError, ValueError) as error:  # the latter of a path with a NUL in it, say
        raise StorageError(explain("save", f"a file {path} to write", f"{error}")) from error


def load(path: str | os.PathLike[str]) -> Any:
    """What `save` wrote. Raises CheckpointError for a file of anything else, and StorageError."""
    path = _path("load", path)
    try:
        with open(path, "rb") as file, NpzFile(file) as zipped:  # which reads no pickle
            header = json.loads(zipped[HEADER].tobytes())
            if header["format"] != FORMAT:
                raise ValueError(f"its format is {header['format']!r}")
            return _read(header["state"], zipped)
    except OSError as error:
        raise StorageError(explain("load", f"a file {path} to read", f"{error}")) from error
    except Exception as error:  # its readers have no end of names for what a file can be
        got = f"{path}, which fails with {type(error).__name__}: {error}"
        raise CheckpointError(explain("load", "a file that ts.save wrote", got)) from error


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of `path` once all of it is on the disk, or never."""
    path = Path(os.path.realpath(path))  # a link goes on naming the file that it names
    # A name of its own, so that two programs that save to one place do not write into one file.
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    file = open(unfinished, "xb")  # noqa: SIM115  where this fails, nothing is to be removed
    try:
        with file:
            if path.exists():
                shutil.copymode(path, unfinished)  # before there is anything in it to be read
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _path(op: str, path: Any) -> Path:
    if isinstance(path, (str, os.PathLike)):
        return Path(path)
    hint = "ts.save(path, state), ts.load(path)"
    raise ArgumentError(explain(op, "a path first", type(path).__name__, hint))


def _written(x: Any, place: str, arrays: list[np.ndarray]) -> Any:
    """`x` as JSON has it: an array as its number, a dict as one inside a dict, to tell them."""
    if isinstance(x, int) and x.bit_length() > LONGEST:
        wanted = f"whole numbers of {LONGEST:,} bits or fewer at {place}"
        raise CheckpointError(explain("save", wanted, f"one of {x.bit_length():,}"))
    if x is None or isinstance(x, PLAIN):
        return x
    if isinstance(x, dict):
        for key in x:
            if not isinstance(key, str):
                raise CheckpointError(explain("save", f"text as keys of {place}", repr(key)))
        return {"dict": {key: _written(v, f"{place}[{key!r}]", arrays) for key, v in x.items()}}
    if isinstance(x, (list, tuple)):
        return [_written(v, f"{place}[{i}]", arrays) for i, v in enumerate(x)]
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "biufUS":
        arrays.append(as_host_array("save", x))
        return {"array": len(arrays) - 1}
    hint = "x.numpy() is a Tensor's array, x.get() one of CuPy's, .state_dict() a Module's state"
    wanted = f"numbers, text, arrays, lists or dicts at {place}"
    got = describe(x) if isinstance(x, np.ndarray) else type(x).__name__
    raise CheckpointError(explain("save", wanted, got, hint))


def _read(x: Any, zipped: Any) -> Any:
    if isinstance(x, list):
        return [_read(v, zipped) for v in x]
    if not isinstance(x, dict):
        return x
    if "array" in x:
        array = zipped[str(x["array"])]
        if not isinstance(array, np.ndarray):  # what is no .npy comes as its bytes
            raise TypeError(f"its array {x['array']} is none")
        return array
    return {key: _read(v, zipped) for key, v in x["dict"].items()}
