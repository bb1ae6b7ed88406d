"""The training loop, and where a run stands, on public names of tinygrad_sparse alone.

Why sparse: a batch touches a few thousand rows of two tables. Looking rows up gives gradients
that hold those rows only, and SGD updates those rows only, so a step costs the same whether the
vocabulary has five thousand words or five million.
"""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import fmean
from types import FrameType
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits
from tqdm import tqdm

import tinygrad_sparse as ts
from tinygrad_sparse import optim

from .models import Model
from .pairs import START, Place, batches
from .vocabulary import Text, Vocabulary, keep_probability

T = TypeVar("T")
HANGUP = getattr(signal, "SIGHUP", None)  # not known everywhere
END: Any = object()  # comes after the last item


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
    shape = {"window": s.window, "centres": s.centres, "epochs": s.epochs}
    made = batches(text, keep, model.draw, start=run.place, seed=s.seed, **shape)
    unread: list[tuple[ts.Tensor, int]] = []  # losses: to read each would be to wait for a GPU

    def read() -> None:
        run.losses += [loss.item() / max(1, pairs) for loss, pairs in unread]
        unread.clear()

    bar = tqdm(total=total, initial=run.words, unit=" words", unit_scale=True)
    with bar, threadpool_limits(1):  # BLAS: its products are too small to be shared out
        for batch in ahead(made) if ts.get_num_threads() > 1 else made:
            if batch.after.epoch > run.place.epoch:
                read()
                epoch_done()
            optimizer.lr = s.lr * max(1e-4, 1 - run.words / total)
            with ts.Tape(densify="raise") as tape:
                loss = model.loss(batch)
            optimizer.step(tape.backward(loss), clip_rows=s.clip / optimizer.lr)
            run.place, run.words = batch.after, run.words + batch.words
            unread.append((loss.detach(), model.pairs(batch)))
            if bar.update(batch.words):  # it was drawn: what it says next time
                read()
                recent = f"epoch {run.place.epoch + 1}, loss {fmean(run.losses[-99:]):.3f}"
                bar.set_postfix_str(recent, refresh=False)
            if not wanted():
                break
    read()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The items; each is made in a thread of its own while the one before it is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, END)
        while (item := coming.result()) is not END:
            coming = pool.submit(next, items, END)
            yield item


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """``with until_interrupted() as wanted:`` Ctrl-C makes wanted() False, a second one stops dead.

    So a step is always finished. To be told to terminate means the same, and so does a closed
    terminal, however often that is told; unless nohup has said to ignore it.
    """
    asked = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if number != HANGUP:  # the shell and the system each tell that the terminal is closed
            signal.signal(number, before[number])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    if HANGUP is not None and signal.getsignal(HANGUP) != signal.SIG_IGN:
        before[HANGUP] = signal.signal(HANGUP, ask)
    try:
        yield lambda: not asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
