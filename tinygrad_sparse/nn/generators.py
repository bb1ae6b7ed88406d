"""The state of a random generator as an array of numbers, for a Module's state_dict. Floor 5.

NumPy gives the state of a generator as a tree of whole numbers and arrays of them. Its leaves in
their order, as 64-bit words, are all there is to save: the tree is known where it is loaded.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from tinygrad_sparse.errors import CheckpointError, explain

WORD = 2**64
# The largest values of those leaves that NumPy takes as they come, and reads memory by.
MOST = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "uinteger": 2**32 - 1}


def words_of(rng: np.random.Generator) -> np.ndarray:
    """The state of a generator, uint64 (n,): its kind, then its leaves, two words a number."""
    state: Any = rng.bit_generator.state
    words = [zlib.crc32(state["bit_generator"].encode())]
    for _, _, leaf in _leaves(state):
        words += leaf.tolist() if isinstance(leaf, np.ndarray) else divmod(int(leaf), WORD)
    return np.array(words, np.uint64)


def state_of(name: str, words: np.ndarray, rng: np.random.Generator) -> Any:
    """What `words_of` saved of a generator of the same kind. Raises CheckpointError for another."""
    kind, mine = type(rng.bit_generator).__name__, words_of(rng)
    if words.dtype != mine.dtype or words.shape != mine.shape or words[0] != mine[0]:
        got = f"{words.dtype} {words.shape}"
        wanted = f"{name}, the state of a generator {kind}, {mine.dtype} {mine.shape}"
        raise CheckpointError(explain("load_state_dict", wanted, got))
    state = deepcopy(rng.bit_generator.state)
    rest = iter(words[1:].tolist())
    for tree, key, leaf in list(_leaves(state)):
        if isinstance(leaf, np.ndarray):
            new = np.array([next(rest) for _ in leaf], np.uint64)
            tree[key], largest, most = new.astype(leaf.dtype), int(new.max()), np.iinfo(leaf.dtype)
            fits = largest <= most.max
        else:
            tree[key] = largest = next(rest) * WORD + next(rest)
            fits = largest <= MOST.get(key, WORD**2)
        if not fits:
            wanted = f"{name} as a generator {kind} can be"
            raise CheckpointError(explain("load_state_dict", wanted, f"{key} {largest}"))
    return state


def _leaves(tree: Any) -> Iterator[tuple[Any, str, Any]]:
    """(tree, key, leaf) of all numbers and arrays below."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value)
        elif not isinstance(value, str):
            yield tree, key, value
