"""Examples to learn from, none of which is downloaded.

scikit-learn brings small sets. Larger ones come from packages of a Linux distribution; a folder of
IDX files (Fashion-MNIST), WordNet's `data.noun`, or any .npz file with arrays X and y will do.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

BUNDLED: dict[str, Callable[..., Any]] = {
    "digits": datasets.load_digits,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
}
CLOTHES = ["T-shirt", "trouser", "pullover", "dress", "coat"]
CLOTHES += ["sandal", "shirt", "sneaker", "bag", "boot"]
FASHION = [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]  # how Fashion-MNIST's labels begin, and MNIST's do not
WORD = re.compile(r"[a-z]+")


class Set(NamedTuple):
    """Examples split in two, and how to show them."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    image_shape: tuple[int, int] | None = None
    feature_names: list[str] | None = None
    class_names: list[str] | None = None


def read(source: str, seed: int = 0, members: int = 5) -> Set:
    """The set of a name in BUNDLED, or of a path; features scaled to about one unit.

    `members` is for WordNet: classes with fewer members are left out. Raises ValueError for a path
    that is none of the known kinds, and OSError.
    """
    if source in BUNDLED:
        return bundled(source, seed)
    path = Path(source)
    if path.is_dir():
        return idx_folder(path)
    if is_wordnet(source):
        return hypernyms(path, members, seed)
    if path.suffix == ".npz":
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            if not {"X", "y"} <= set(arrays):
                raise ValueError(f"{path}: expected arrays X and y, got {sorted(arrays)}")
            X, y = arrays["X"].astype(np.float32), arrays["y"]
        if len(X.shape) != 2 or y.shape != X.shape[:1] or len(y) < 2:
            wanted = "X (n, features) and y (n,) of 2 examples or more"
            raise ValueError(f"{path}: expected {wanted}, got {X.shape} and {y.shape}")
        return standardised(split(X, y, seed))
    raise ValueError(
        f"{source}: expected one of {', '.join(BUNDLED)}, a folder of IDX files, WordNet's"
        " data.noun, or an .npz file with arrays X and y"
    )


def is_wordnet(source: str) -> bool:
    """Whether it is named as WordNet names its nouns."""
    return Path(source).name.startswith("data.noun")


def split(X: Any, y: np.ndarray, seed: int, **shown: Any) -> Set:
    """A quarter for testing, each class in its proportion where that can be."""
    rare = np.unique(y, return_counts=True)[1].min() < 2
    parts = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=None if rare else y)
    return Set(parts[0], parts[2], parts[1], parts[3], **shown)


def standardised(examples: Set) -> Set:
    """Features with mean 0 and variance 1 among the examples to learn from; a constant one is 0."""
    scaler = StandardScaler().fit(examples.X)
    scaled = {"X": scaler.transform(examples.X), "X_test": scaler.transform(examples.X_test)}
    return examples._replace(**scaled)


def bundled(name: str, seed: int) -> Set:
    """One of scikit-learn's own."""
    bunch = BUNDLED[name]()
    X, y = bunch.data.astype(np.float32), bunch.target
    if name == "digits":
        return split(X / 16, y, seed, image_shape=(8, 8))
    names = {"feature_names": list(bunch.feature_names), "class_names": list(bunch.target_names)}
    return standardised(split(X, y, seed, **names))


def files_of(source: str) -> list[Path]:
    """The files that `read` would read."""
    if source in BUNDLED:
        return []
    path = Path(source)
    return sorted(path.glob("*-ubyte*")) if path.is_dir() else [path]


def idx_folder(folder: Path) -> Set:
    """MNIST's format: four files, train-images-idx3-ubyte and so on, with or without .gz."""
    arrays = []
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            found = sorted(folder.glob(f"{part}-{kind}-ubyte*"))
            if not found:
                raise ValueError(f"{folder}: expected a file {part}-{kind}-ubyte or .gz in it")
            arrays.append(idx(found[0]))
    images, labels, test_images, test_labels = arrays
    shape = images.shape[1:]
    for x, y in ((images, labels), (test_images, test_labels)):
        if x.ndim != 3 or x.shape[1:] != shape or y.shape != x.shape[:1]:
            wanted = "images (n, rows, columns), all of one size, and as many labels"
            raise ValueError(f"{folder}: expected {wanted}, got {x.shape} and {y.shape}")
    return Set(
        images.reshape(len(images), -1).astype(np.float32) / 255,
        labels,
        test_images.reshape(len(test_images), -1).astype(np.float32) / 255,
        test_labels,
        image_shape=shape,
        class_names=CLOTHES if labels[: len(FASHION)].tolist() == FASHION else None,
    )


def idx(path: Path) -> np.ndarray:
    """The bytes of one IDX file, in their shape."""
    raw = path.read_bytes()
    try:
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (EOFError, zlib.error) as error:
        raise ValueError(f"{path}: the compressed file is damaged ({error})") from error
    if len(raw) < 4 or raw[:3] != b"\0\0\x08" or len(raw) < 4 + 4 * raw[3]:
        raise ValueError(f"{path}: expected an IDX file of bytes")
    shape = np.frombuffer(raw, ">u4", raw[3], 4)
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    if values.size != shape.prod():
        raise ValueError(
            f"{path}: expected {shape.prod()} bytes after the header, got {values.size}"
        )
    return values.reshape(shape)


def hypernyms(path: Path, members: int, seed: int) -> Set:
    """WordNet: from the words of a noun's gloss (sparse) to the noun above it, thousands of them.

    Rows are 1/√(number of words) where a word occurs. Words that occur once are left out.
    """
    glosses, parents, words_of = [], [], {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith(" "):
                continue
            fields, _, gloss = line.partition("|")
            parts = fields.split()
            if len(parts) < 6:
                raise ValueError(f"{path}: expected a line of data.noun, got {line!r:.60}")
            words_of[parts[0]] = parts[4].replace("_", " ")
            above = parts.index("@") if "@" in parts else None
            if above is not None:
                glosses.append(sorted(set(WORD.findall(gloss.lower()))))
                parents.append(parts[above + 1])
    sizes = Counter(parents)
    kept = [i for i, parent in enumerate(parents) if sizes[parent] >= members]
    if not kept:
        raise ValueError(f"{path}: expected a class of {members} members or more, got none")
    seen = Counter(word for i in kept for word in glosses[i])
    vocabulary = sorted(word for word, n in seen.items() if n > 1)
    column = {word: j for j, word in enumerate(vocabulary)}
    rows = [[column[word] for word in glosses[i] if word in column] for i in kept]
    lengths = np.array([len(row) for row in rows])
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    values = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths).astype(np.float32)
    columns = np.array([j for row in rows for j in row], np.int64)
    X = sparse.csr_array((values, columns, bounds), shape=(len(rows), len(vocabulary)))
    y, classes = np.array([parents[i] for i in kept]), sorted({parents[i] for i in kept})
    labels = np.searchsorted(classes, y)
    names = [words_of.get(c, c) for c in classes]
    return split(X, labels, seed, feature_names=vocabulary, class_names=names)
