"""The training loop, and where a run stands, on public names of tinygrad_sparse alone.

Why sparse: a batch touches a few thousand rows of two tables. Looking rows up gives gradients
that hold those rows only, and SGD updates those rows only, so a step costs the same whether the
vocabulary has five thousand words or five million.
"""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial, reduce
from itertools import islice
from operator import add
from statistics import fmean
from types import FrameType
from typing import TypeVar

from threadpoolctl import threadpool_limits
from tqdm import tqdm

import tinygrad_sparse as ts
from tinygrad_sparse import optim

from .models import Model
from .pairs import START, Batch, Place, batches
from .vocabulary import Text, Vocabulary, keep_probability

T, R = TypeVar("T"), TypeVar("R")


class Run:
    """How far a run has come: enough, with the tables, to go on as if it had not stopped."""

    def __init__(
        self, place: Place = START, words: int = 0, losses: list[float] | None = None
    ) -> None:
        self.place, self.words = place, words
        self.losses = losses or []  # a pair, step by step


def train(
    model: Model,
    vocabulary: Vocabulary,
    text: Text,
    run: Run,
    *,
    wanted: Callable[[], bool] = lambda: True,
    epoch_done: Callable[[], None] = lambda: None,
) -> None:
    """Train from where `run` stands to the end, or for as long as it is `wanted`.

    The rate falls evenly to 0. A frequent word is in many pairs of a batch, and their gradients add
    up: clipping keeps its step short without slowing the others.
    """
    s, optimizer = model.settings, optim.SGD(model.parameters, lr=model.settings.lr)
    keep, total = keep_probability(vocabulary.counts, s.sample), s.epochs * len(text.ids)
    shape = {"window": s.window, "centres": s.centres // s.workers, "epochs": s.epochs}
    made = batches(text, keep, model.draw, start=run.place, seed=s.seed, **shape)
    bar = tqdm(total=total, initial=run.words, unit=" words", unit_scale=True)
    with bar, threadpool_limits(1):  # BLAS: its products are too small to be shared out
        for shares in worked_on(made, partial(gradients, model), s.workers):
            done = [batch for batch, _, _ in shares]
            if done[-1].after.epoch > run.place.epoch:
                epoch_done()
            optimizer.lr = s.lr * max(1e-4, 1 - run.words / total)
            grads = reduce(add, (grads for _, grads, _ in shares))
            optimizer.step(optim.clip_grad_rows(grads, s.clip / optimizer.lr))
            words = sum(batch.words for batch in done)
            run.place, run.words = done[-1].after, run.words + words
            run.losses.append(
                sum(loss for *_, loss in shares) / max(1, sum(map(model.pairs, done)))
            )
            recent = f"epoch {run.place.epoch + 1}, loss {fmean(run.losses[-99:]):.3f}"
            bar.set_postfix_str(recent, refresh=False)
            bar.update(words)
            if not wanted():
                return


def gradients(model: Model, batch: Batch) -> tuple[Batch, ts.GradStore, float]:
    """A batch, its gradients, and its loss."""
    with ts.Tape(densify="raise") as tape:
        loss = model.loss(batch)
    return batch, tape.backward(loss), loss.item()


def worked_on(items: Iterator[T], work: Callable[[T], R], workers: int) -> Iterator[list[R]]:
    """`work` of the items, as many at a time as there are workers, each in a thread of its own.

    While they work, the next items are made. Threads are of use here since NumPy lets go of the
    interpreter while it computes; results come in order, so a run can be repeated.
    """
    if workers == 1:
        for item in items:
            yield [work(item)]
        return
    with ThreadPoolExecutor(workers) as pool:
        group = list(islice(items, workers))
        while group:
            results = [pool.submit(work, item) for item in group]
            group = list(islice(items, workers))
            yield [result.result() for result in results]


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """``with until_interrupted() as wanted:`` Ctrl-C makes wanted() False, a second one stops dead.

    So a step is always finished. To be told to terminate means the same.
    """
    asked = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, before[number])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: not asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
