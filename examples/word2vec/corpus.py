"""Sentences of a text in one file, a compressed file or a folder, read as a stream.

Nothing here holds more than a piece of one file, so a corpus may be larger than the memory. Two
kinds of text are understood: prose, where a sentence ends at a full stop, and files that somebody
has prepared with one sentence a line, as other programs for word vectors read them.
"""

import bz2
import gzip
import lzma
import os
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import IO, NoReturn

from tqdm import tqdm

from ..program import InputError

Sentence = list[str]

WORD = re.compile(r"[^\W\d_]+")  # letters of any language
# A full stop ends a sentence only before white space, so "os.path.join" stays together.
SENTENCE_END = re.compile(r"[.!?]+(?=\s)|\n[ \t\r]*\n")
LINE_END = re.compile(r"\n")
MAX_WORDS = 1000  # a text without punctuation is one endless sentence

CHUNK = 1 << 20  # characters of a file in memory at a time
LONGEST = 1 << 20  # characters without a blank, after which a piece is cut all the same
LONGEST_WORD = 200  # characters: what is longer is data, and would make every saved word as long
UNDECODABLE = re.compile("[\udc80-\udcff]")  # what errors="surrogateescape" makes of a bad byte
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
BAD = 0.1  # what has a greater share of bytes that are not UTF-8 is no text with a few bad ones


def split_sentences(text: str) -> Iterator[Sentence]:
    """Sentences of lower-cased words; they end at `.`, `!`, `?` and blank lines."""
    for sentence in SENTENCE_END.split(text.lower()):
        yield from cut(WORD.findall(sentence))


def cut(words: list[str]) -> Iterator[Sentence]:
    """The words of a sentence; none for an empty one, several parts for an endless one."""
    if len(max(words, key=len, default="")) > LONGEST_WORD:
        warnings.warn(f"left out words of more than {LONGEST_WORD} characters", stacklevel=1)
        words = [word for word in words if len(word) <= LONGEST_WORD]
    for start in range(0, len(words), MAX_WORDS):
        # Interned, the thousand occurrences of a word are one string in memory.
        yield [sys.intern(word) for word in words[start : start + MAX_WORDS]]


def read_text(path: str | Path, lines: bool = False) -> Iterator[Sentence]:
    """Sentences of a UTF-8 file (.gz, .bz2, .xz too), or of all files of a folder in sorted order.

    With `lines`, each line is a sentence whose words stand between blanks, taken as they are.
    Otherwise it is prose: see `split_sentences`. Bytes that are not UTF-8 are left out, with one
    warning a file. Raises OSError for what cannot be read, a damaged archive included, and
    InputError for what is no text.
    """
    paths = files_of(Path(path))
    size = sum(os.path.getsize(file) for file in paths)
    with tqdm(total=size, desc="reading", unit="B", unit_scale=True, delay=1) as bar:
        for file in paths:
            for piece in pieces(file, LINE_END if lines else SENTENCE_END, bar):
                yield from cut(piece.split() if lines else WORD.findall(piece.lower()))


def files_of(path: Path) -> list[Path]:
    """The files of a folder and its subfolders, hidden ones aside; or the file itself.

    Warns of what is neither: links that lead nowhere or to folders, pipes. Raises OSError for a
    folder that may not be read.
    """
    if not path.is_dir():
        return [path]
    found, others = [], []
    for folder, subfolders, names in os.walk(path, onerror=_raise):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        # A link to a folder is not followed: it may lead to one that this folder lies in.
        others += [Path(folder, n) for n in subfolders if Path(folder, n).is_symlink()]
        for file in (Path(folder, name) for name in names if not name.startswith(".")):
            (found if file.is_file() else others).append(file)
    if others:
        rest = f" and {len(others) - 1} more" if len(others) > 1 else ""
        warnings.warn(f"left out {min(others)}{rest}: neither files nor folders", stacklevel=1)
    if not found:
        raise InputError(f"{path} is a folder with no files in it. Hint: name a text")
    return sorted(found)


def _raise(error: OSError) -> NoReturn:
    raise error


def pieces(path: Path, end: re.Pattern, bar: tqdm) -> Iterator[str]:
    """A file's text, cut wherever `end` matches; what never ends is cut between words."""
    undecodable, rest, before = 0, "", bar.n
    with open(path, "rb") as raw:
        try:
            with opened(raw, path) as file:
                while chunk := file.read(CHUNK):
                    bar.update(before + raw.tell() - bar.n)
                    length, nuls = len(chunk), chunk.count("\0")
                    # No word of a file may end in NUL: arrays of text lose it.
                    chunk, bad = UNDECODABLE.subn(" ", chunk.replace("\0", " "))
                    if bad + nuls > BAD * length:
                        hint = "unpack it, or convert it: iconv -f utf-16 -t utf-8, say"
                        share = (bad + nuls) / length
                        got = f"{share:.0%} of what stands there is not"
                        raise InputError(f"{path}: expected text in UTF-8; {got}. Hint: {hint}")
                    undecodable += bad
                    *whole, rest = end.split(rest + chunk)
                    if len(rest) > CHUNK:
                        at = max(map(rest.rfind, " \n")) + 1
                        if not at and len(rest) > LONGEST:
                            at = len(rest)
                        whole.append(rest[:at])
                        rest = rest[at:]
                    yield from whole
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if getattr(error, "errno", None):
                raise
            text = f"the compressed file is damaged ({error})"
            raise OSError(0, text, str(path)) from error
    yield rest
    if undecodable:
        warnings.warn(f"{path}: left out {undecodable} bytes that are not UTF-8", stacklevel=1)


def opened(raw: IO[bytes], path: Path) -> IO[str]:
    """The text in an open file, unpacked if its name says that it is packed."""
    how = {"encoding": "utf-8-sig", "errors": "surrogateescape"}
    if (ending := path.suffix.lower()) in OPENERS:
        return OPENERS[ending](raw, "rt", **how)
    return TextIOWrapper(raw, **how)


class Sentences:
    """Sentences that are read again each time they are asked for, and whether they stayed the same.

    Words are counted in one reading and taken in another: what somebody writes to in between has
    words that nobody counted.
    """

    def __init__(self, read: Callable[[], Iterator[Sentence]]) -> None:
        self.read = read
        self.checksums: set[int] = set()  # of each whole reading

    def __iter__(self) -> Iterator[Sentence]:
        found = 0
        for sentence in self.read():
            found = zlib.crc32(" ".join(sentence).encode("utf-8", "surrogatepass") + b"\n", found)
            yield sentence
        self.checksums.add(found)

    def changed(self) -> bool:
        """Whether one reading was not like another."""
        return len(self.checksums) > 1
