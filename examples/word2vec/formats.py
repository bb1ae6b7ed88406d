"""Vectors in files that other programs read: word2vec's text and binary formats, and .npz.

Both word2vec formats begin with a line "V d". In text, each line then holds a word and d numbers;
in binary, a word, a blank and d little-endian float32. Nothing here unpickles: a file of unknown
origin can hold wrong numbers, but it cannot run anything. What is not as promised is refused, with
the place where it is wrong.
"""

import codecs
import zipfile
import zlib
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from ..program import whole_file
from .keyed_vectors import KeyedVectors

LONGEST = 10_000  # bytes of a word, or of a header
SAMPLE = 1 << 14  # bytes after the header that tell text from numbers


class FormatError(ValueError):
    """A file that does not hold vectors as it should."""


def save(kv: KeyedVectors, path: str | Path, kind: str) -> None:
    """Write words and vectors as "text", "binary" or "npz". A file appears whole or not at all.

    Raises FormatError, before anything is written, for what `load` would not read back.
    """
    check_can_hold(kv.words, kv.vectors, kind)
    with whole_file(Path(path)) as file:
        WRITERS[kind](file, kv)


def check_can_hold(words: Sequence[str], vectors: np.ndarray, kind: str) -> None:
    """Raise FormatError unless a file of this kind reads back as just these words and vectors."""
    reasons = NPZ_CANNOT if kind == "npz" else WORD2VEC_CANNOT
    for word in words:
        for cannot, why in reasons.items():
            if cannot(word):
                name = "an .npz file" if kind == "npz" else "a word2vec file"
                hint = "" if kind == "npz" else ". Hint: npz can hold it"
                got = repr(word if len(word) < 60 else word[:60] + "...")
                raise FormatError(f"{name} cannot hold a word {why}: {got}{hint}")
    _check_vectors(words, vectors)
    if kind != "npz" and vectors.shape[1] == 0:
        raise FormatError("a word2vec file cannot hold vectors of 0 numbers. Hint: npz can")
    if kind != "npz" and len(words):
        start, rows = BytesIO(), 1 + SAMPLE // vectors.shape[1]
        WRITERS[kind](start, KeyedVectors(words[:rows], vectors[:rows]))
        if kind_of(start) != kind:  # the bytes of very few numbers can be digits by chance
            got = f"{words[0]!r} and {vectors[0]}"
            raise FormatError(f"a {kind} file that begins with {got} looks like another. Hint: npz")


def _is_no_utf8(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return True
    return False


# Why no file of a kind can hold a word.
NPZ_CANNOT: dict[Callable[[str], bool], str] = {
    lambda word: word.endswith("\0"): "that ends in NUL",
}
WORD2VEC_CANNOT: dict[Callable[[str], bool], str] = {
    lambda word: word.split() != [word]: "with a blank, or none",
    _is_no_utf8: "that is not UTF-8",
    lambda word: len(word.encode()) > LONGEST: f"of more than {LONGEST:,} bytes",
}


def _write_text(file: IO[bytes], kv: KeyedVectors) -> None:
    file.write(f"{len(kv)} {kv.vectors.shape[1]}\n".encode())
    for word, vector in zip(kv.words, kv.vectors, strict=True):
        # repr of a float32 is the shortest text that reads back as the same number
        file.write(f"{word} {' '.join(map(str, vector))}\n".encode())


def _write_binary(file: IO[bytes], kv: KeyedVectors) -> None:
    file.write(f"{len(kv)} {kv.vectors.shape[1]}\n".encode())
    for word, vector in zip(kv.words, kv.vectors.astype("<f4"), strict=True):
        file.write(word.encode() + b" " + vector.tobytes() + b"\n")


def _write_npz(file: IO[bytes], kv: KeyedVectors) -> None:
    np.savez(file, words=np.array(kv.words, np.str_), vectors=kv.vectors)


WRITERS = {"text": _write_text, "binary": _write_binary, "npz": _write_npz}


def load(path: str | Path, kind: str | None = None) -> KeyedVectors:
    """Read a file of any of the three kinds: of the one that it looks like, unless `kind` says.

    Raises FormatError for a malformed file and OSError for one that cannot be opened.
    """
    path = Path(path)
    with open(path, "rb") as file:
        kind = kind or kind_of(file)
        try:
            return READERS[kind](file, path.stat().st_size)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None


ENDINGS = {".npz": "npz", ".txt": "text", ".vec": "text", ".bin": "binary"}


def kind_by_name(path: Path) -> str:
    """Which format the ending of a file's name asks for. Raises FormatError for another ending."""
    if path.suffix.lower() not in ENDINGS:
        known, hint = ", ".join(ENDINGS), f"{path.with_suffix('.bin').name}, or say --format"
        raise FormatError(f"cannot export {path}: expected {known}. Hint: {hint}")
    return ENDINGS[path.suffix.lower()]


def kind_of(file: IO[bytes]) -> str:
    """Which format an open file has: the beginning of text is text, be it with a mistake."""
    file.seek(0)
    start = file.read(4)
    file.seek(0)
    if start == b"PK\x03\x04":
        return "npz"
    header, sample = file.readline(LONGEST).split(), file.read(SAMPLE)
    file.seek(0)
    fields = sample.partition(b"\n")[0].split(b" ")[1:]
    try:
        numbers = len([float(field) for field in fields])
    except ValueError:
        numbers = 0
    # Vectors whose bytes are all letters are too rare to think of; if short, `save` refuses them.
    right = numbers > 0 and header[1:] == [b"%d" % numbers]
    return "text" if right or _is_printable(sample) else "binary"


def _is_printable(sample: bytes) -> bool:
    """Whether it is UTF-8, cut anywhere, of characters that show or part lines."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return "".join(text.split()).isprintable() and not text.isspace() and text != ""


def _header(file: IO[bytes], size: int, least: int) -> tuple[int, int]:
    """V and d, if a file of this size can hold so many numbers of at least so many bytes."""
    line = file.readline(LONGEST)
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise FormatError(f'expected a first line "V d", two whole numbers; got {line[:40]!r}')
    V, d = map(int, fields)
    if d == 0 or V * (1 + d * least) > size:
        raise FormatError(f"expected {V} vectors of {d} numbers, more than {size} bytes can hold")
    return V, d


def _word(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{where}: expected a word in UTF-8, got {raw[:40]!r}") from error


def _read_text(file: IO[bytes], size: int) -> KeyedVectors:
    V, d = _header(file, size, least=2)
    words, vectors = [], np.empty((V, d), np.float32)
    for i in range(V):
        where = f"line {i + 2}"
        fields = file.readline().rstrip().split(b" ")
        if len(fields) != d + 1:
            raise FormatError(f"{where}: expected a word and {d} numbers, got {len(fields)} fields")
        words.append(_word(fields[0], where))
        try:
            vectors[i] = [float(field) for field in fields[1:]]
        except ValueError as error:
            raise FormatError(f"{where}: expected {d} numbers, got {error}") from error
    return _checked(file, words, vectors)


def _read_binary(file: IO[bytes], size: int) -> KeyedVectors:
    V, d = _header(file, size, least=4)
    words, vectors = [], np.empty((V, d), np.float32)
    for i in range(V):
        where = f"word {i + 1} of {V}"
        words.append(_word(_until_blank(file, where), where))
        raw = file.read(4 * d)
        if len(raw) < 4 * d:
            raise FormatError(f"{where}: expected {d} numbers, but the file ends")
        vectors[i] = np.frombuffer(raw, "<f4")
    return _checked(file, words, vectors)


def _until_blank(file: IO[bytes], where: str) -> bytes:
    """A word's bytes. Some programs end a vector with a newline, some do not."""
    raw = bytearray()
    while (byte := file.read(1)) != b" ":
        if not byte or len(raw) >= LONGEST:
            raise FormatError(f"{where}: expected a word and a blank, got {bytes(raw[:40])!r}")
        if byte != b"\n" or raw:
            raw += byte
    return bytes(raw)


def _checked(file: IO[bytes], words: list[str], vectors: np.ndarray) -> KeyedVectors:
    if rest := file.read(40).strip():
        raise FormatError(f"expected the end after {len(words)} vectors, got {rest!r}")
    return _as_vectors(words, vectors)


def _as_vectors(words: list[str], vectors: np.ndarray) -> KeyedVectors:
    if len(set(words)) < len(words):
        seen: set[str] = set()
        twice = next(word for word in words if word in seen or seen.add(word))
        raise FormatError(f"expected each word once, got {twice!r} twice")
    _check_vectors(words, vectors)
    return KeyedVectors(words, vectors)


def _check_vectors(words: Sequence[str], vectors: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        bad = np.flatnonzero(~np.isfinite(vectors.astype(np.float32)).all(axis=1))
    if len(bad):
        raise FormatError(f"expected finite numbers, got others for {words[bad[0]]!r}")


# What NumPy and the zip and deflate under it raise for what is no .npz file; TypeError for a .npy.
UNREADABLE = (
    OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def read_arrays(file: IO[bytes] | str | Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, none of them pickled. Raises FormatError."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.errno:
            raise  # there is no such file, or it may not be read
        where = f"{file}: " if isinstance(file, (str, Path)) else ""
        raise FormatError(f"{where}expected an .npz file of plain arrays, got {error}") from error


def _read_npz(file: IO[bytes], size: int) -> KeyedVectors:
    return of_arrays(read_arrays(file))


def of_arrays(arrays: dict[str, np.ndarray]) -> KeyedVectors:
    """The words and vectors among the arrays of an .npz file."""
    words, vectors = arrays.get("words"), arrays.get("vectors")
    if words is None or vectors is None or words.dtype.kind != "U" or vectors.dtype.kind != "f":
        raise FormatError(f"expected arrays words (text) and vectors, got {sorted(arrays)}")
    if vectors.ndim != 2 or words.shape != vectors.shape[:1]:
        raise FormatError(f"expected a row a word, got {words.shape} and {vectors.shape}")
    return _as_vectors(words.tolist(), vectors)


READERS = {"text": _read_text, "binary": _read_binary, "npz": _read_npz}
