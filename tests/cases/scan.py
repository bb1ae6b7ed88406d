"""Running sums and products: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.ops.scan import _recurrence, _shift
from tinygrad_sparse.testing import Case, normal

from .reduce import zeros_in

CASES = [
    case
    for op in (ops.cumsum, ops.cumprod)
    for case in (
        Case(op, [normal(5, 4)], name="axis -1", commutes=(0,), static={"axis": -1}),
        Case(op, [normal(5, 4)], name="axis 0", rows="dense", static={"axis": 0}),
        Case(op, [normal(5, 2, 3)], name="middle", commutes=(0,), static={"axis": 1}),
        Case(op, [normal(5, 2)], name="flattened", rows="dense"),
        Case(op, [normal(7)], name="a vector", rows="dense"),
        Case(op, [normal()], name="0-d", rows="dense"),
        Case(op, [normal(5, 1)], name="one step", commutes=(0,), static={"axis": 1}),
        Case(op, [normal(5, 0)], name="no steps", commutes=(0,), static={"axis": 1}),
    )
] + [
    Case(ops.cumprod, [zeros_in(normal(5, 5), 1, 3)], name="zeros", commutes=(0,),
         static={"axis": 1}),
    Case(ops.cumprod, [normal(11)], name="longer", rows="dense"),
    *[Case(f, [normal(5, 4)] * n, commutes=range(n) if axis else (),
           rows="sparse" if axis else "dense", name=f"axis {axis}, reverse {reverse}",
           static={"axis": axis, "reverse": reverse, **static})
      for f, n, static in ((_shift, 1, {"first": 1.0}), (_recurrence, 2, {}))
      for axis in (0, 1) for reverse in (False, True)],
]  # fmt: skip
