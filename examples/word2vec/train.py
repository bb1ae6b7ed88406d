"""The model, its loss and the training loop, on public names of tinygrad_sparse alone.

Why sparse: a batch touches a few thousand rows of two tables. Looking rows up gives gradients
that hold those rows only, and Adagrad updates those rows only, so a step costs the same whether
the vocabulary has five thousand words or five million.
"""

from statistics import fmean
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

import tinygrad_sparse as ts
from tinygrad_sparse import ops, optim

from .pairs import Batch, batches
from .vocabulary import NegativeSampler, Text, keep_probability


class Settings(NamedTuple):
    """What a run depends on, besides its text."""

    dim: int = 100
    epochs: int = 8
    window: int = 5
    negatives: int = 5  # each true pair weighs as much as this many drawn ones ...
    shared: int = 64  # ... of which a batch looks at this many
    pairs: int = 4096
    lr: float = 0.2
    sample: float = 1e-3
    seed: int = 1


def skip_gram_loss(W: ts.Tensor, C: ts.Tensor, batch: Batch, negatives: int) -> ts.Tensor:
    """Negative sampling, summed over pairs: -log σ(w·c) - negatives · mean over n of log σ(-w·n).

    σ(w·c) is how sure the model is that context c really occurred near centre w. And
    -log σ(x) is softplus(-x), which does not overflow.
    """
    m, k = batch.contexts.shape[1], len(batch.negatives)
    w = W[batch.centres]  # (b, d)
    near = C[batch.contexts] @ ops.expand_dims(w, -1)  # (b, m, 1)
    far = w @ C[batch.negatives].T  # (b, k)
    return ops.softplus(-near).sum() + (m * negatives / k) * ops.softplus(far).sum()


def train(text: Text, counts: np.ndarray, settings: Settings) -> tuple[np.ndarray, list[float]]:
    """Learn a vector for each word. Returns them, (V, dim), and the loss per pair of each step."""
    s, rng = settings, np.random.default_rng(settings.seed)
    start = rng.uniform(-0.5, 0.5, (len(counts), s.dim)).astype(np.float32) / s.dim
    W = ts.parameter(start, name="words as centres")
    C = ts.parameter(np.zeros_like(start), name="words as contexts")
    optimizer = optim.Adagrad([W, C], lr=s.lr)
    keep, sampler = keep_probability(counts, s.sample), NegativeSampler(counts)
    sizes = {"window": s.window, "pairs": s.pairs, "shared": s.shared}

    done, total, losses = 0, s.epochs * len(text.ids), []
    with tqdm(total=total, unit=" words", unit_scale=True) as bar:
        for epoch in range(1, s.epochs + 1):
            for batch in batches(text, keep, sampler, rng, **sizes):
                optimizer.lr = s.lr * (1 - done / total)
                with ts.Tape(densify="raise") as tape:
                    loss = skip_gram_loss(W, C, batch, s.negatives)
                optimizer.step(tape.backward(loss))
                done += batch.words
                losses.append(loss.item() / batch.contexts.size)
                bar.set_postfix_str(f"epoch {epoch}, loss {fmean(losses[-99:]):.3f}", refresh=False)
                bar.update(batch.words)
    return W.numpy(), losses
