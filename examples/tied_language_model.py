"""A language model whose one table reads words and predicts them (Press & Wolf, 2017), in one file.

    python -m examples.tied_language_model

E's row-sparse gradient and its dense one meet in one dense buffer, which the Tape records.
"""

import numpy as np
from tqdm import trange

import tinygrad_sparse as ts
from tinygrad_sparse import nn, ops, optim

from .word2vec.python_docs import python_docs
from .word2vec.vocabulary import Text, Vocabulary

ORDER = 3  # words that the next one is predicted from


def logits(E: ts.Tensor, A: ts.Tensor, b: ts.Tensor, history: np.ndarray) -> ts.Tensor:
    """tanh([E[word 3 back], E[word 2 back], E[the last word]] @ A) @ E.T + b."""
    return ops.tanh(E[history].reshape(len(history), -1) @ A) @ E.T + b


def examples(text: Text) -> tuple[np.ndarray, np.ndarray]:
    """(n, ORDER) words and the (n,) words that follow them, never over the end of a sentence."""
    ends = np.repeat(text.bounds[1:], np.diff(text.bounds))
    start = np.flatnonzero(np.arange(len(text.ids)) + ORDER < ends)
    return text.ids[start[:, None] + np.arange(ORDER)], text.ids[start + ORDER]


def train(
    text: Text, V: int, d: int = 64, steps: int = 1000, batch: int = 256, seed: int = 1
) -> tuple[float, float, ts.Tape]:
    """Perplexities of the model and of a unigram on unseen examples; the last step's Tape."""
    rng = np.random.default_rng(seed)
    history, word = examples(text)
    test, known = np.split(rng.permutation(len(word)), [len(word) // 20])
    E = ts.parameter(rng.normal(0, 0.1, (V, d)).astype(np.float32))
    A = ts.parameter(rng.normal(0, d**-0.5, (ORDER * d, d)).astype(np.float32))
    b = ts.parameter(np.zeros(V, np.float32))
    optimizer = optim.Adagrad([E, A, b], lr=0.1)
    for _ in trange(steps, unit=" steps"):
        n = rng.choice(known, batch)
        with ts.Tape(densify="raise") as tape:
            loss = nn.cross_entropy(logits(E, A, b, history[n]), word[n])
        optimizer.step(tape.backward(loss))
    parts = np.array_split(test, 32)
    unseen = [nn.cross_entropy(logits(E, A, b, history[n]), word[n]).item() for n in parts]
    share = (np.bincount(word[known], minlength=V) + 1) / (len(known) + V)
    return np.exp(np.mean(unseen)), np.exp(-np.log(share[word[test]]).mean()), tape


if __name__ == "__main__":
    sentences = list(python_docs())
    vocabulary = Vocabulary.build(sentences, min_count=40)
    tied, unigram, tape = train(vocabulary.encode(sentences), len(vocabulary.words))
    print(f"perplexity on unseen text: {tied:.0f}; guessing by frequency: {unigram:.0f}")
    print(*tape.densified, sep="\n")
