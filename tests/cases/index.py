"""Indexing and what stands for assignment: one row a kind of index."""

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.ops.slicing import unslice
from tinygrad_sparse.testing import Case, integers, normal


def fixed(*values):
    """An index array that is the same for each seed: a mask, or ids that occur once."""
    return lambda rng: np.array(values)


ROWS = fixed(True, False, True, True, False)
ELEMENTS = fixed(*np.array([1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 1, 0], bool).reshape(5, 3))


def index(f, *args, name, **options):
    return Case(f, args, name=f"getitem: {name}", **options)


def added(at, *args, name, **options):
    return Case(lambda x, v, *ids: ops.index_add(x, at(*ids), v), args, name=f"index_add: {name}",
                **options)  # fmt: skip


def replaced(at, *args, name, **options):
    return Case(lambda x, v, *ids: ops.index_set(x, at(*ids), v), args, name=f"index_set: {name}",
                **options)  # fmt: skip


CASES = [
    # slices, integers, None, ...
    index(lambda x: x[1:4], normal(5, 3), name="slice"),
    index(lambda x: x[-2::-2], normal(5, 3), name="backward in steps"),
    index(lambda x: x[::-1], normal(5, 3), name="reversed"),
    index(lambda x: x[3:1:2], normal(5, 3), name="empty"),
    index(lambda x: x[::-2, 1], normal(5, 3), name="steps and a column"),
    index(lambda x: x[:, 1:], normal(5, 3), name="columns", commutes=(0,)),
    index(lambda x: x[:, 7], normal(5, 9), name="a column of many", commutes=(0,)),
    index(lambda x: x[:, 2:3], normal(5, 9, 2), name="a narrow cut", commutes=(0,)),
    index(lambda x: x[2:, :, 4], normal(5, 2, 9), name="rows, and one of many"),
    index(lambda x: x[:, None, -1:], normal(5, 3), name="new axis", commutes=(0,)),
    index(lambda x: x[..., 0], normal(5, 2, 3), name="ellipsis", commutes=(0,)),
    index(lambda x: x[3], normal(5, 3), name="integer"),
    index(lambda x: x[-1, 2], normal(5, 3), name="element"),
    index(lambda x: x[None, ..., None], normal(5, 3), name="new axes only"),
    index(lambda x: x[...] * 2.0, normal(5, 3), name="everything", commutes=(0,)),
    index(lambda x: x[()] * 2.0, normal(), name="0-d"),
    Case(unslice, [normal(2, 3)], static={"shape": (5, 4), "index": np.s_[1::2, 1:]}),
    Case(unslice, [normal(2, 3)], name="backward",
         static={"shape": (5, 4), "index": np.s_[3::-3, 1:]}),
    # arrays
    index(lambda x, i: x[i, 1:], normal(5, 3), integers(4, high=5), name="ids, slice"),
    index(lambda x, i: x[i, 1], normal(5, 3), integers(4, high=5), name="ids, integer"),
    index(lambda x, i: x[1:, i], normal(5, 3), integers(4, high=3), name="slice, ids"),
    index(lambda x, i: x[..., i, :], normal(5, 3, 2), integers(2, 2, high=3), name="middle",
          commutes=(0,)),
    index(lambda x, i, j: x[i, j], normal(5, 3, 2), integers(6, high=5), integers(6, high=3),
          name="two arrays", commutes=(1, 2)),
    index(lambda x, i, j: x[i[:, None], j], normal(5, 3, 2), integers(4, high=5),
          integers(2, high=3), name="outer", commutes=(1,)),
    index(lambda x, i, j: x[i, :, j], normal(5, 3, 2), integers(4, high=5), integers(4, high=2),
          name="two arrays apart", commutes=(1, 2)),
    index(lambda x, i, j: x[:, i, j], normal(5, 3, 2), integers(4, high=3), integers(4, high=2),
          name="two inner arrays", commutes=(0,)),
    index(lambda x, i: x[1, :, i, None], normal(2, 3, 5), integers(4, high=5),
          name="integer and array apart"),
    index(lambda x, i: x[::2, None, i, -1:], normal(5, 3, 2), integers(2, high=3), name="mixed"),
    index(lambda x, i: x[i], normal(5, 3), integers(high=5), name="0-d array"),
    # masks
    index(lambda x, m: x[m], normal(5, 3), ROWS, name="mask"),
    index(lambda x, m: x[m], normal(5, 3), ELEMENTS, name="mask of elements"),
    index(lambda x, m: x[m], normal(5, 3, 2), ELEMENTS, name="mask of two axes"),
    index(lambda x, m: x[:, m], normal(3, 5), ROWS, name="mask of columns", commutes=(0,)),
    index(lambda x, m, i: x[m, i], normal(5, 3), ROWS, integers(3, high=3), name="mask and ids"),
    index(lambda x, m: x[m], normal(5, 3), fixed(*[False] * 5), name="mask of nothing"),
    index(lambda x: x[True], normal(5, 3), name="True"),
    # assignment
    added(lambda i: i, normal(5, 3), normal(4, 3), integers(4, high=5), name="rows"),
    added(lambda i: i, normal(5, 3), normal(3), integers(2, 2, high=5), name="a shared row"),
    added(lambda i, j: (i, j), normal(5, 3, 2), normal(4, 1), integers(4, high=5),
          integers(4, high=3), name="two arrays"),
    added(lambda: np.s_[1:4, ::2], normal(5, 3), normal(3, 2), name="slices"),
    added(lambda i: np.s_[:, i], normal(5, 3), normal(5, 4), integers(4, high=3), name="columns"),
    added(lambda: ..., normal(), normal(), name="0-d"),
    replaced(lambda i: i, normal(5, 3), normal(3, 3), fixed(4, 0, 2), name="rows"),
    replaced(lambda i: i, normal(5, 3), normal(1, 3), fixed(4, 0, 4), name="a shared row"),
    replaced(lambda i, j: (i, j), normal(5, 3, 2), normal(4, 2), fixed(0, 3, 3, 1),
             fixed(1, 1, 2, 0), name="two arrays"),
    replaced(lambda m: m, normal(5, 3), normal(7), ELEMENTS, name="mask"),
    replaced(lambda: np.s_[1:4, ::2], normal(5, 3), normal(3, 2), name="slices"),
    replaced(lambda: np.s_[2, None], normal(5, 3), normal(), name="row by number"),
    replaced(lambda: np.s_[:, 1], normal(5, 3), normal(5), name="column"),
    replaced(lambda: ..., normal(5, 3), normal(5, 3), name="everything"),
]  # fmt: skip
