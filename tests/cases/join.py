"""Joining, splitting, repeating, padding: one row an op and shape."""

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal

PAIRS = ((1, 2), (0, 1))

CASES = [
    Case(lambda x, y: ops.concatenate([x, y]), [normal(5, 3), normal(2, 3)], name="concatenate"),
    Case(lambda x, y: ops.concatenate([x, y, x], axis=-1), [normal(5, 3), normal(5, 2)],
         name="concatenate: columns", commutes=(0, 1)),
    Case(lambda x, y: ops.concatenate([x, y]), [normal(2, 5), normal(0, 5)],
         name="concatenate: empty"),
    Case(lambda x, y: ops.concatenate([x, y], axis=1), [normal(4, 2, 3), normal(4, 1, 3)],
         name="concatenate: middle", commutes=(0, 1)),
    Case(lambda x, y: ops.concatenate([x, y], axis=None), [normal(5, 3), normal()],
         name="concatenate: flat"),
    Case(lambda x, y: ops.stack([x, y]), [normal(5, 3), normal(5, 3)], name="stack"),
    Case(lambda x, y: ops.stack([x, y], axis=1), [normal(5, 3), normal(5, 3)], name="stack: axis 1",
         commutes=(0, 1)),
    Case(lambda x, y: ops.stack([x, y, x], axis=-1), [normal(5, 3), normal(5, 3)],
         name="stack: last axis", commutes=(0, 1)),
    Case(lambda x, y: ops.stack([x, y]), [normal(), normal()], name="stack: 0-d"),
    Case(lambda x, y: ops.stack([x, y]), [normal(0, 3), normal(0, 3)], name="stack: empty"),
    Case(lambda x: ops.split(x, 3)[1], [normal(6, 2)], name="split: middle of three"),
    Case(lambda x: ops.split(x, [1, 4], axis=1)[1], [normal(5, 6)], name="split: columns",
         commutes=(0,)),
    Case(lambda x: ops.concatenate(ops.split(x, [2, 2, 5])[::-1]), [normal(6, 2)],
         name="split: and joined the other way"),
    Case(lambda x: ops.array_split(x, 4)[0], [normal(6, 2)], name="array_split"),
    Case(ops.tile, [normal(5, 3)], name="one number", commutes=(0,), static={"reps": 2}),
    Case(ops.tile, [normal(4, 2)], name="rows", static={"reps": (3, 1)}),
    Case(ops.tile, [normal(4, 2)], name="both", static={"reps": (2, 3)}),
    Case(ops.tile, [normal(4, 2)], name="a new axis", static={"reps": (2, 1, 2)}),
    Case(ops.tile, [normal(4, 2)], name="not at all", static={"reps": (0, 1)}),
    Case(ops.repeat, [normal(3, 2)], name="flat", static={"repeats": 2}),
    Case(ops.repeat, [normal(5, 2)], name="rows", static={"repeats": 3, "axis": 0}),
    Case(ops.repeat, [normal(5, 2)], name="columns", commutes=(0,),
         static={"repeats": 3, "axis": -1}),
    Case(ops.repeat, [normal(5, 2)], name="each row", static={"repeats": [2, 0, 1, 3, 1],
         "axis": 0}),
    Case(ops.repeat, [normal(5, 3)], name="each column", commutes=(0,),
         static={"repeats": np.array([2, 0, 1]), "axis": 1}),
    Case(ops.pad, [normal(5, 3)], name="zeros", static={"pad_width": PAIRS}),
    Case(ops.pad, [normal(5, 3)], name="columns of 7", commutes=(0,),
         static={"pad_width": ((0, 0), (1, 2)), "constant_values": 7.0}),
    Case(ops.pad, [normal(2, 2, 2)], name="one number", static={"pad_width": 1}),
    Case(ops.pad, [normal(0, 2)], name="zero size", static={"pad_width": 1}),
    *[
        Case(ops.pad, [normal(5, 3)], name=mode, static={"pad_width": PAIRS, "mode": mode})
        for mode in ("edge", "reflect", "symmetric", "wrap")
    ],
]  # fmt: skip
