"""GloVe (Pennington, Socher & Manning, 2014) on Python's own documentation, in one file.

    python -m examples.glove

Four tables are looked up at the pairs of a batch, so all four gradients are rows.
"""

import numpy as np
from tqdm import trange

import tinygrad_sparse as ts
from tinygrad_sparse import optim

from .word2vec.keyed_vectors import KeyedVectors
from .word2vec.plots import WORDS, neighbour_table
from .word2vec.python_docs import python_docs
from .word2vec.vocabulary import Text, Vocabulary


def cooccurrences(text: Text, window: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Word i, word j, and how often j stands near i; a neighbour k words away counts 1/k."""
    ids, V = text.ids.astype(np.int64), int(text.ids.max()) + 1
    sentence = np.repeat(np.arange(len(text.bounds) - 1), np.diff(text.bounds))
    pairs, shares = [], []
    for k in range(1, window + 1):
        together = sentence[k:] == sentence[:-k]
        a, b = ids[:-k][together], ids[k:][together]
        pairs += [a * V + b, b * V + a]
        shares += [np.full(2 * len(a), 1.0 / k)]
    unique, where = np.unique(np.concatenate(pairs), return_inverse=True)
    return unique // V, unique % V, np.bincount(where, np.concatenate(shares))


def train(
    text: Text, V: int, d: int = 64, steps: int = 1500, batch: int = 8192, seed: int = 1
) -> tuple[np.ndarray, list[float]]:
    """Vectors (V, d), the sum of both tables as in the paper, and the loss of each step."""
    rng = np.random.default_rng(seed)
    i, j, count = cooccurrences(text)
    weight = np.minimum(1.0, (count / 50.0) ** 0.75).astype(np.float32)
    target = np.log(count).astype(np.float32)
    W, C = (ts.parameter(rng.normal(0, 0.1, (V, d)).astype(np.float32)) for _ in range(2))
    b, c = (ts.parameter(np.zeros(V, np.float32)) for _ in range(2))
    optimizer, losses = optim.Adagrad([W, C, b, c], lr=0.1), []
    for _ in trange(steps, unit=" steps"):
        n = rng.integers(0, len(i), batch)
        with ts.Tape(densify="raise") as tape:
            guess = (W[i[n]] * C[j[n]]).sum(-1) + b[i[n]] + c[j[n]]
            loss = (weight[n] * (guess - target[n]) ** 2).mean()
        optimizer.step(tape.backward(loss))
        losses.append(loss.item())
    return W.numpy() + C.numpy(), losses


if __name__ == "__main__":
    sentences = list(python_docs())
    vocabulary = Vocabulary.build(sentences)
    vectors, _ = train(vocabulary.encode(sentences), len(vocabulary.words))
    print(neighbour_table(KeyedVectors(vocabulary.words, vectors), WORDS))
