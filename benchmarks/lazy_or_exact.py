"""Does it matter? word2vec with lazy and with exact Adam, on text that neither has seen.

    python -m benchmarks.lazy_or_exact [--out lazy_or_exact.png] [--words 300000]

Both see the same batches from the same start, on nine tenths of the documentation of the running
Python; every tenth sentence is held out. Printed: the skip-gram loss there, seed by seed.
"""

import argparse
from itertools import islice
from pathlib import Path

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading
from examples.word2vec.corpus import python_docs
from examples.word2vec.pairs import batches
from examples.word2vec.train import skip_gram_loss
from examples.word2vec.vocabulary import NegativeSampler, Text, Vocabulary, keep_probability
from tinygrad_sparse import optim

DIM, PAIRS, NEGATIVES, SHARED, PARTS = 50, 512, 5, 64, 8
MEANINGS = ("lazy", "exact")


def texts(words: int) -> tuple[Text, Text, np.ndarray]:
    """Training text, held-out text, and the training counts of the words."""
    sentences, total = [], 0
    for sentence in python_docs():
        sentences.append(sentence)
        total += len(sentence)
        if total > words:
            break
    train = [s for i, s in enumerate(sentences) if i % 10]
    vocabulary = Vocabulary.build(train, 5)
    return vocabulary.encode(train), vocabulary.encode(sentences[::10]), vocabulary.counts


def run(text: Text, held: Text, counts: np.ndarray, meaning: str, lr: float, seed: int) -> list:
    """The held-out loss a pair, after each part of one epoch."""
    keep, sampler = keep_probability(counts, 1e-3), NegativeSampler(counts)
    sizes = {"window": 5, "pairs": PAIRS, "shared": SHARED}
    start = np.random.default_rng(seed).uniform(-0.5, 0.5, (len(counts), DIM)) / DIM
    W = ts.parameter(start.astype(np.float32))
    C = ts.parameter(np.zeros_like(start, np.float32))
    opt = optim.Adam([W, C], lr=lr, sparse=meaning)
    tests = list(islice(batches(held, keep, sampler, np.random.default_rng(0), **sizes), 60))
    todo = list(batches(text, keep, sampler, np.random.default_rng(seed), **sizes))
    losses = []
    for part in np.array_split(np.arange(len(todo)), PARTS):
        for i in part:
            with ts.Tape(densify="raise") as tape:
                loss = skip_gram_loss(W, C, todo[i], NEGATIVES) * (1.0 / todo[i].contexts.size)
            opt.step(tape.backward(loss))
        total = sum(skip_gram_loss(W, C, b, NEGATIVES).item() for b in tests)
        losses.append(total / sum(b.contexts.size for b in tests))
    return losses


def main() -> None:
    """Print the table; draw the curves where matplotlib is installed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--words", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    text, held, counts = texts(options.words)
    heading(f"Held-out skip-gram loss: {len(text.ids):,} words of {len(counts):,}, d = {DIM}")
    print(f"{'lr':>8}{'lazy':>10}{'exact':>10}{'exact - lazy, mean and standard error':>42}")
    curves = {}
    for lr in (1e-3, 3e-3, 1e-2):
        for meaning in MEANINGS:
            seeds = range(options.seeds)
            curves[lr, meaning] = [run(text, held, counts, meaning, lr, s) for s in seeds]
        ends = {m: np.array(curves[lr, m])[:, -1] for m in MEANINGS}
        gap = ends["exact"] - ends["lazy"]
        error = gap.std(ddof=1) / len(gap) ** 0.5 if len(gap) > 1 else np.nan
        print(
            f"{lr:8}{ends['lazy'].mean():10.4f}{ends['exact'].mean():10.4f}"
            f"{gap.mean():32.4f} ± {error:.4f}",
            flush=True,
        )
    if options.out is not None:
        draw(curves, options.out)


def draw(curves: dict, path: Path) -> None:
    """Held-out loss over the epoch, a line a rate and meaning."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for i, ((lr, meaning), runs) in enumerate(curves.items()):
        style = {"color": f"C{i // 2}", "linestyle": "-" if meaning == "exact" else "--"}
        axes.plot(
            np.arange(1, PARTS + 1) / PARTS,
            np.mean(runs, axis=0),
            label=f"{meaning}, lr {lr}",
            **style,
        )
    axes.set(
        xlabel="part of the epoch", ylabel="held-out loss a pair", title="Adam: exact and lazy"
    )
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
