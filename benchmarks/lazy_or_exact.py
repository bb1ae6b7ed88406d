"""Does it matter? word2vec with lazy and with exact Adam, on text that neither has seen.

    python -m benchmarks.lazy_or_exact [--out DIRECTORY] [--words 300000]

Both see the same batches from the same start, on nine tenths of the documentation of the running
Python; every tenth sentence is held out. Printed: the skip-gram loss there, seed by seed.
"""

import argparse
from itertools import islice
from pathlib import Path

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading
from examples.word2vec.models import Model, Settings
from examples.word2vec.pairs import batches
from examples.word2vec.python_docs import python_docs
from examples.word2vec.vocabulary import Text, Vocabulary, keep_probability
from tinygrad_sparse import optim

DIM, CENTRES, PARTS = 50, 96, 8
MEANINGS = ("lazy", "exact")


def texts(words: int) -> tuple[Text, Text, Vocabulary]:
    """Training text, held-out text, and the words of the training text."""
    sentences, total = [], 0
    for sentence in python_docs():
        sentences.append(sentence)
        total += len(sentence)
        if total > words:
            break
    train = [s for i, s in enumerate(sentences) if i % 10]
    vocabulary = Vocabulary.build(train, 5)
    return vocabulary.encode(train), vocabulary.encode(sentences[::10]), vocabulary


def run(
    text: Text, held: Text, vocabulary: Vocabulary, meaning: str, lr: float, seed: int
) -> list[float]:
    """The held-out loss a pair, after each part of one epoch."""
    keep = keep_probability(vocabulary.counts)
    model = Model(vocabulary, Settings(dim=DIM, seed=seed))
    opt = optim.Adam(model.parameters, lr=lr, sparse=meaning)
    tests = list(islice(batches(held, keep, model.draw, centres=CENTRES, seed=0), 60))
    todo = list(batches(text, keep, model.draw, centres=CENTRES, seed=seed))
    losses = []
    for part in np.array_split(np.arange(len(todo)), PARTS):
        for i in part:
            with ts.Tape(densify="raise") as tape:
                loss = model.loss(todo[i]) * (1.0 / max(1, model.pairs(todo[i])))
            opt.step(tape.backward(loss))
        losses.append(sum(model.loss(b).item() for b in tests) / sum(map(model.pairs, tests)))
    return losses


def main() -> None:
    """Print the table; draw the curves where matplotlib is installed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="where to write lazy_or_exact.png")
    parser.add_argument("--words", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    text, held, vocabulary = texts(options.words)
    heading(
        f"Held-out skip-gram loss: {len(text.ids):,} words of {len(vocabulary.words):,}, d = {DIM}"
    )
    print(f"{'lr':>8}{'lazy':>10}{'exact':>10}{'exact - lazy, mean and standard error':>42}")
    curves = {}
    for lr in (1e-3, 3e-3, 1e-2):
        for meaning in MEANINGS:
            seeds = range(options.seeds)
            curves[lr, meaning] = [run(text, held, vocabulary, meaning, lr, s) for s in seeds]
        ends = {m: np.array(curves[lr, m])[:, -1] for m in MEANINGS}
        gap = ends["exact"] - ends["lazy"]
        error = gap.std(ddof=1) / len(gap) ** 0.5 if len(gap) > 1 else np.nan
        print(
            f"{lr:8}{ends['lazy'].mean():10.4f}{ends['exact'].mean():10.4f}"
            f"{gap.mean():32.4f} ± {error:.4f}",
            flush=True,
        )
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        draw(curves, options.out / "lazy_or_exact.png")


def draw(curves: dict, path: Path) -> None:
    """Held-out loss over the epoch, a line a rate and meaning."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 4), dpi=150, layout="constrained")
    for i, ((lr, meaning), runs) in enumerate(curves.items()):
        style = {"color": f"C{i // 2}", "linestyle": "-" if meaning == "exact" else "--"}
        axes.plot(
            np.arange(1, PARTS + 1) / PARTS,
            np.mean(runs, axis=0),
            label=f"{meaning}, lr {lr}",
            **style,
        )
    axes.set(
        xlabel="part of the epoch",
        ylabel="held-out loss a pair",
        title="word2vec: Adam, exact and lazy",
        xlim=(0, 1),
    )
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path)


if __name__ == "__main__":
    main()
