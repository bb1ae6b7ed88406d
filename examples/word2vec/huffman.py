"""Huffman's tree (1952): frequent words near the root, so that most ways are short."""

import heapq

import numpy as np


class Tree:
    """A binary tree with a leaf for each word; V - 1 inner nodes decide on the way.

    The way of word i is `nodes[starts[i]:starts[i + 1]]`, from the root; a sign is -1 where it
    turns left and 1 where it turns right.
    """

    def __init__(self, counts: np.ndarray) -> None:
        V = len(counts)
        heap = [(int(count), i) for i, count in enumerate(counts)]
        heapq.heapify(heap)
        above = np.zeros(2 * V - 1, np.int64)
        sign = np.ones(2 * V - 1, np.float32)
        for node in range(V, 2 * V - 1):  # the two lightest trees become one, until one is left
            (a, left), (b, right) = heapq.heappop(heap), heapq.heappop(heap)
            above[left] = above[right] = node
            sign[left] = -1
            heapq.heappush(heap, (a + b, node))
        self.size = max(1, V - 1)  # a table for one word needs a row too
        self.starts, self.nodes, self.signs = _ways(V, above, sign)

    def ways(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Nodes and signs on the ways to all these words, one after the other; their lengths."""
        lengths = np.diff(self.starts)[words]
        ends = np.cumsum(lengths)
        places = np.arange(lengths.sum()) + np.repeat(self.starts[words] - ends + lengths, lengths)
        return self.nodes[places], self.signs[places], lengths


def _ways(V: int, above: np.ndarray, sign: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ways from the root to every leaf, climbing from all leaves at once."""
    root, at = 2 * V - 2, np.arange(V)
    levels = [(at[:0], at[:0], sign[:0])]
    while len(words := np.flatnonzero(at != root)):
        levels.append((words, above[at[words]] - V, sign[at[words]]))
        at[words] = above[at[words]]
    word, node, signs = map(np.concatenate, zip(*reversed(levels), strict=True))
    order = np.argsort(word, kind="stable")  # level by level from the root, now word by word
    starts = np.concatenate([[0], np.cumsum(np.bincount(word, minlength=V))])
    return starts, node[order], signs[order]
