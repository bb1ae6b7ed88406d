"""Word2vec: words a second and quality beside gensim, and words a second as the vocabulary grows.

    python -m benchmarks.word2vec                              # made-up text, 5,000 to 1e6 words
    python -m benchmarks.word2vec CORPUS --rounds 3            # speed beside gensim, one core each
    python -m benchmarks.word2vec CORPUS --cores 2 --rounds 3  # two cores each
    python -m benchmarks.word2vec CORPUS --epochs 5 --seeds 1 2 --pairs FILE... --analogies FILE
    python -m benchmarks.word2vec CORPUS --set centres=1024 lr=0.05  # ours with other settings

CORPUS has a sentence a line. Contestants take turns, each in a process of its own that is held to
its cores, its BLAS to one thread. Time is that of training alone, after a short warm-up: reading
the text and counting its words is left out for both. Words are those of the vocabulary, before
thinning out. Both use their defaults: dimension 100, window 5, min_count 5, sample 1e-3. All of it
is on the CPU. Without gensim only ours runs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np

import tinygrad_sparse as ts
from benchmarks.timing import heading
from examples.word2vec import evaluation, formats
from examples.word2vec.corpus import read_text
from examples.word2vec.models import Model, Settings
from examples.word2vec.train import Run, train
from examples.word2vec.vocabulary import Text, Vocabulary, keep_probability

WARM_UP = 2_000  # sentences of the short training before the one that is timed
MIN_COUNT = 5
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


# -- contestants: words, seconds, and vectors in a file --------------------------------------------


def ours(options: argparse.Namespace, epochs: int, seed: int) -> tuple[int, float]:
    """The example with its defaults, but for those of --set."""
    corpus = options.corpus
    vocabulary = Vocabulary.build(read_text(corpus, lines=True), MIN_COUNT)
    text = vocabulary.encode(read_text(corpus, lines=True))
    ts.set_num_threads(options.cores)
    settings = Settings(epochs=epochs, seed=seed, **dict(options.set))
    words, seconds, model = timed(vocabulary, text, settings)
    np.savez(options.out, words=np.array(vocabulary.words), vectors=model.inputs.vectors())
    return words, seconds


def timed(vocabulary: Vocabulary, text: Text, settings: Settings) -> tuple[int, float, Model]:
    """One training, after another on the first sentences."""
    bounds = text.bounds[: WARM_UP + 1]
    start = Text(text.ids[: bounds[-1]], bounds)
    train(Model(vocabulary, settings), vocabulary, start, Run())
    model = Model(vocabulary, settings)
    begin = time.perf_counter()
    train(model, vocabulary, text, Run())
    return settings.epochs * len(text.ids), time.perf_counter() - begin, model


def gensim(options: argparse.Namespace, epochs: int, seed: int) -> tuple[int, float]:
    """Skip-gram with negative sampling, a worker a core."""
    from gensim.models import Word2Vec

    with open(options.corpus, encoding="utf-8") as file:
        sentences = [line.split() for line in file]
    model = Word2Vec(sg=1, hs=0, epochs=epochs, seed=seed, workers=options.cores)
    model.build_vocab(sentences)
    begin = time.perf_counter()
    _, words = model.train(sentences, total_examples=model.corpus_count, epochs=epochs)
    seconds = time.perf_counter() - begin
    np.savez(options.out, words=np.array(model.wv.index_to_key), vectors=model.wv.vectors)
    return words, seconds


CONTESTANTS = {"ours": ours, "gensim": gensim}


def in_a_process(name: str, cores: int, *arguments: object) -> float:
    """Words a second of a contestant that is alone in a process, held to its cores."""
    allowed = sorted(os.sched_getaffinity(0))[-cores:]
    command = [
        sys.executable,
        "-m",
        "benchmarks.word2vec",
        *arguments,
        "--contestant",
        name,
        "--cores",
        cores,
    ]
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **dict.fromkeys(ONE_THREAD, "1")},
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
        capture_output=True,
    )
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr.decode(errors='replace')}")
    words, seconds = json.loads(done.stdout.splitlines()[-1])
    return words / seconds


def compare(options: argparse.Namespace) -> None:
    """Rounds for each seed; then the scores of the last round's vectors."""
    names = [name for name in CONTESTANTS if name == "ours" or find_spec(name)]
    heading(
        f"word2vec on {options.corpus.name}, {options.epochs} epochs, {options.cores} cores each,"
        f" {dict(options.set) or 'default settings'};"
        f" load before {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            speeds: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(options.rounds):
                for name in names:
                    out = Path(folder, f"{name}.npz")
                    settings = ["--epochs", options.epochs, "--seeds", seed, "--out", out]
                    if options.set:
                        settings += ["--set", *("=".join(map(str, pair)) for pair in options.set)]
                    speed = in_a_process(name, options.cores, options.corpus, *settings)
                    speeds[name].append(speed)
            print(f"\nseed {seed}{'words/s, median':>24}{'all':>12}")
            for name in names:
                every = ", ".join(f"{speed:,.0f}" for speed in speeds[name])
                print(f"{name:12}{median(speeds[name]):18,.0f}     {every}")
            if "gensim" in names:
                print(f"ratio {median(speeds['ours']) / median(speeds['gensim']):.2f}")
            for name in names:
                score(name, Path(folder, f"{name}.npz"), options)


def score(name: str, path: Path, options: argparse.Namespace) -> None:
    """The quality of a file of vectors."""
    kv = formats.load(path)
    for file in options.pairs:
        result = evaluation.word_pairs(kv, file)
        print(f"{name:12}{file.name}: rho {result.rho:.4f} on {result.used} of {result.total}")
    for file in options.analogies:
        kinds: dict[str, list[int]] = {"semantic": [0, 0], "syntactic": [0, 0]}
        for section in evaluation.analogies(kv, file):
            kind = kinds["syntactic" if section.section.startswith("gram") else "semantic"]
            kind[0] += section.right
            kind[1] += section.asked
        for kind, (right, asked) in kinds.items():
            print(f"{name:12}{file.name}: {kind} {right} of {asked}, {right / max(asked, 1):.1%}")


# -- words a second as the vocabulary grows --------------------------------------------------------


def zipf(V: int, words: int = 1_000_000) -> tuple[Vocabulary, Text]:
    """A piece of a text in which word r occurs in proportion to 1/r, in sentences of 20 words.

    The vocabulary is that of the whole text, in which the rarest word occurs as often as it must.
    """
    rng = np.random.default_rng(0)
    counts = MIN_COUNT * V / np.arange(1, V + 1)
    shares = np.cumsum(counts)
    ids = np.searchsorted(shares / shares[-1], rng.random(words), side="right")
    vocabulary = Vocabulary.of(map(str, range(V)), counts.astype(np.int64))
    return vocabulary, Text(ids.astype(np.int32), np.arange(0, words + 1, 20))


def growing(rounds: int, cores: int) -> None:
    """A table over sizes of the vocabulary.

    The longer the tail of a text, the fewer of its words are thinned out: so speed is given in
    words of the text, and in words that were trained on, too.
    """
    heading(f"word2vec: made-up text, by the size of the vocabulary; {cores} cores")
    ts.set_num_threads(cores)
    texts = {V: zipf(V) for V in (5_000, 60_000, 1_000_000)}
    taken: dict[int, list[float]] = {V: [] for V in texts}
    for _ in range(rounds):
        for V, (vocabulary, text) in texts.items():
            taken[V].append(timed(vocabulary, text, Settings(epochs=1))[1])
    print(f"{'':12}{'words/s':>14}{'slower':>8}{'trained on':>12}{'of these/s':>14}{'slower':>8}")
    first: list[float] = []
    for V, (vocabulary, text) in texts.items():
        kept = float(keep_probability(vocabulary.counts)[text.ids].mean())
        speeds = [len(text.ids) * share / median(taken[V]) for share in (1.0, kept)]
        first = first or speeds
        words, trained = (
            f"{now:14,.0f}{was / now:8.2f}" for was, now in zip(first, speeds, strict=True)
        )
        print(f"{V:12,}{words}{kept:12.0%}{trained}")


def setting(text: str) -> tuple[str, object]:
    """A setting of ours, read from NAME=VALUE."""
    name, _, value = text.partition("=")
    usual = {n: v for n, v in Settings()._asdict().items() if n not in ("epochs", "seed")}
    if name not in usual:
        raise argparse.ArgumentTypeError(f"expected a name of {', '.join(usual)}, got {text!r}")
    return name, type(usual[name])(value)


def main() -> None:
    """Print what was asked for."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("corpus", type=Path, nargs="?")
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--seeds", type=int, nargs="+", default=[1])
    p.add_argument("--cores", type=int, default=1)
    p.add_argument("--set", type=setting, nargs="+", default=[], metavar="NAME=VALUE")
    p.add_argument("--pairs", type=Path, nargs="+", default=[])
    p.add_argument("--analogies", type=Path, nargs="+", default=[])
    p.add_argument("--contestant", choices=CONTESTANTS, help=argparse.SUPPRESS)
    p.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = p.parse_args()
    if options.contestant:
        run = CONTESTANTS[options.contestant]
        print(json.dumps(run(options, options.epochs, options.seeds[0])))
    elif options.corpus is None:
        growing(options.rounds, options.cores)
    else:
        compare(options)


if __name__ == "__main__":
    main()
