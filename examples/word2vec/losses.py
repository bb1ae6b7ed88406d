"""How a hidden vector is made to tell its context words from all others: four output layers.

Each takes a Task and gives the loss summed over its (hidden vector, target word) pairs. Written
from small ops on lookups, so the gradient of an output table is the rows that were looked up.
"""

from typing import Any, NamedTuple

import numpy as np

import tinygrad_sparse as ts
from tinygrad_sparse import ops

from .huffman import Tree


class Task(NamedTuple):
    """Hidden vectors, and which words each one should predict.

    `near[s, i, j]` is True if hidden vector i of group s should predict word `ids[s, j]`.
    """

    table: ts.Tensor  # (n, d)
    hidden: np.ndarray  # (S, L), rows of the table
    ids: np.ndarray  # (S, T)
    near: np.ndarray  # (S, L, T), True or False
    sizes: np.ndarray  # (S, L): the sums of `near` over its last axis

    def flat(self) -> ts.Tensor:
        """The hidden vectors as one matrix, (S·L, d)."""
        return self.table[self.hidden.reshape(-1)]

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Each pair: the row of its hidden vector in `flat`, and the word to predict."""
        s, i, j = np.nonzero(self.near)
        return s * self.near.shape[1] + i, self.ids[s, j]


def beside(table: ts.Tensor, x: np.ndarray) -> Any:
    """Numbers where the table is: on a GPU a copy of them there. (Ids go there by themselves.)"""
    return x if table.device == "cpu" else ts.tensor(x, device=table.device)


def scores(task: Task, C: ts.Tensor, ids: np.ndarray) -> ts.Tensor:
    """(S, L, n): hidden vectors of each group times the vectors of `ids` (S, n)."""
    return ops.row_products(task.table, C, task.hidden, ids)


def shared_negatives(task: Task, C: ts.Tensor, negatives: np.ndarray, K: float) -> ts.Tensor:
    """Negative sampling: for each pair -log σ(h·c) - K · mean over all n of log σ(-h·n).

    σ(h·c) is how sure the model is that c really belongs to h. The mean is what the K words that
    Mikolov et al. (2013b) draw for every pair stand for; here all hidden vectors of a group look
    at the same `negatives` (S, k), so that all scores are one product of small matrices. The
    same loss of smaller ops, in which -log σ(x) is softplus(-x):

        near, far = scores(task, C, task.ids), scores(task, C, negatives)
        (task.near * softplus(-near)).sum() + (task.sizes[:, :, None] * K / k * softplus(far)).sum()
    """
    ids = np.concatenate([task.ids, negatives], axis=1)  # (S, T + k)
    (S, L, T), k = task.near.shape, negatives.shape[1]
    true, weights = np.zeros((S, L, T + k), np.float32), np.empty((S, L, T + k), np.float32)
    true[:, :, :T] = 1
    weights[:, :, :T], weights[:, :, T:] = task.near, task.sizes[:, :, None] * np.float32(K / k)
    return ops.logistic_loss(scores(task, C, ids), beside(C, true), beside(C, weights)).sum()


def own_negatives(task: Task, C: ts.Tensor, negatives: np.ndarray) -> ts.Tensor:
    """Negative sampling as published: each of the n pairs has words of its own, (n, K)."""
    rows, words = task.pairs()
    h = task.flat()[rows]  # (n, d)
    near = (h * C[words]).sum(-1)
    far = C[negatives] @ ops.expand_dims(h, -1)  # (n, K, 1)
    return ops.softplus(-near).sum() + ops.softplus(far).sum()


def hierarchical_softmax(task: Task, N: ts.Tensor, tree: Tree) -> ts.Tensor:
    """Words are leaves of a tree; the way to each is a row of left-or-right decisions.

    -log p(word | h) is the sum of softplus(∓h·n) over the nodes n on the way: log V of them,
    instead of V words. Morin and Bengio, 2005; with Huffman's tree in Mikolov et al., 2013a.
    """
    rows, words = task.pairs()
    nodes, signs, lengths = tree.ways(words)
    h = task.flat()[np.repeat(rows, lengths)]
    return ops.softplus(beside(N, signs) * (h * N[nodes]).sum(-1)).sum()


def full_softmax(task: Task, C: ts.Tensor) -> ts.Tensor:
    """-log softmax(C h)[word], the real thing: for a vocabulary that is small.

    Every word's vector gets a gradient, so C's is dense, and the rows of the targets go into it.
    """
    normaliser = ops.logsumexp(task.flat() @ C.T, -1)  # (S·L,)
    right = beside(C, task.near) * scores(task, C, task.ids)
    return (beside(C, task.sizes.reshape(-1)) * normaliser).sum() - right.sum()
