"""A two-tower recommender: which module of the standard library is this sentence from?

    python -m examples.two_tower

One tower averages a docstring's words, the other looks a module up. A batch's other modules are
the wrong answers, corrected for popular ones (Yi et al., 2019).
"""

import sysconfig
from pathlib import Path

import numpy as np
from tqdm import tqdm, trange

import tinygrad_sparse as ts
from tinygrad_sparse import nn, optim

from .word2vec.corpus import WORD
from .word2vec.python_docs import docstrings, read_source, source_files


def library() -> tuple[list[list[str]], np.ndarray, list[str]]:
    """Docstrings as words, the module that each is from, and the names of the modules."""
    texts, where, names, root = [], [], [], Path(sysconfig.get_path("stdlib"))
    for path in tqdm(source_files(root), unit=" files"):
        found = docstrings(read_source(path) or "")
        words = [WORD.findall(text.lower())[:40] for text in found]
        if len(words) >= 10:
            texts, where = texts + words, where + [len(names)] * len(words)
            names.append(".".join(path.relative_to(root).with_suffix("").parts))
    return texts, np.array(where), names


def train(
    texts: list[list[str]], where: np.ndarray, count: int, d: int = 64, steps: int = 600
) -> tuple[float, float]:
    """How often the right module is among the first 10 for unseen texts: the model, popularity."""
    rng, batch, rows = np.random.default_rng(1), 256, 20_000
    ids = [nn.hash_ids(text, rows) if text else np.zeros(0, int) for text in texts]
    test, known = np.split(rng.permutation(len(ids)), [len(ids) // 10])
    words = nn.EmbeddingBag(rows, d, mode="mean", seed=1)
    modules = nn.Embedding(count, d, seed=2)
    optimizer = optim.Adagrad([words.weight, modules.weight], lr=0.1)
    often = np.log(np.bincount(where[known], minlength=count) + 1.0).astype(np.float32)
    for _ in trange(steps, unit=" steps"):
        n = rng.choice(known, batch)
        with ts.Tape(densify="raise") as tape:
            scores = words([ids[i] for i in n]) @ modules(where[n]).T * 8.0 - often[where[n]]
            loss = nn.cross_entropy(scores, np.arange(batch))
        optimizer.step(tape.backward(loss))
    scores = words([ids[i] for i in test]).numpy() @ modules.weight.numpy().T
    found = (np.argsort(-scores)[:, :10] == where[test, None]).any(1).mean()
    return found, np.isin(where[test], np.argsort(-often)[:10]).mean()


if __name__ == "__main__":
    texts, where, names = library()
    found, popular = train(texts, where, len(names))
    print(f"right module among 10, unseen docstrings: {found:.0%}; by popularity: {popular:.0%}")
