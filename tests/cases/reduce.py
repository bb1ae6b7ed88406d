"""Reductions: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, integers, normal

SMOOTH = (ops.sum, ops.mean, ops.prod, ops.var, ops.std)
REDUCTIONS = (*SMOOTH, ops.max, ops.min)

AXES = [(0, False), (-1, False), (1, True), ((0, -1), True)]


def along_axes(op, draw, **static):
    """The op over each kind of axis: within rows, and across them."""
    return [
        Case(op, [draw], name=f"axis {axis}, keepdims {keep}",
             commutes=(0,) if axis in (-1, 1) else (),
             static={"axis": axis, "keepdims": keep, **static})
        for axis, keep in AXES
    ]  # fmt: skip


def zeros_in(draw, *columns):
    """Some columns exactly 0, where dividing a product by its element would fail."""

    def drawn(rng):
        x = draw(rng)
        x[..., list(columns)] = 0.0
        return x

    return drawn


CASES = [
    *[case for op in REDUCTIONS for case in along_axes(op, normal(5, 4))],
    *[Case(op, [normal(5, 4)], name="all") for op in REDUCTIONS],
    *[Case(op, [normal(5)], name="a vector") for op in (ops.mean, ops.prod, ops.max)],
    *[
        Case(op, [normal(5, 2, 3)], name="middle", commutes=(0,), static={"axis": 1})
        for op in (ops.sum, ops.prod, ops.var)
    ],
    *[
        Case(op, [normal(5, 2, 3)], name="two inner", commutes=(0,), static={"axis": (-1, 1)})
        for op in (ops.sum, ops.prod, ops.std)
    ],
    *[
        Case(op, [normal(2, 5, 3)], name=f"outer, keepdims {keep}",
             static={"axis": (0, 2), "keepdims": keep})
        for op in (ops.sum, ops.prod, ops.max) for keep in (False, True)
    ],
    *[
        Case(op, [normal(2, 3, 5, 2)], name=f"axes {axis} of four", static={"axis": axis})
        for op in REDUCTIONS for axis in (0, (0, 2))
    ],
    Case(lambda tables, ids: ops.mean(tables, 0)[ids], [normal(3, 5, 2), integers(4, high=5)],
         name="mean: several tables, looked up", commutes=(1,)),
    *[
        Case(op, [normal(5, 3)], name="no axes", commutes=(0,), static={"axis": ()})
        for op in (ops.sum, ops.mean, ops.prod, ops.max)
    ],
    *[
        Case(op, [normal(5, 4)], name="ddof", commutes=(0,), static={"axis": 1, "ddof": 1})
        for op in (ops.var, ops.std)
    ],
    Case(ops.prod, [zeros_in(normal(5, 3), 1)], name="a zero", static={"axis": 1}),
    Case(ops.prod, [zeros_in(normal(5, 4), 0, 2)], name="two zeros", static={"axis": 1}),
    *[Case(op, [normal(0, 3)], name="zero size") for op in (ops.sum, ops.prod)],
    *[Case(op, [normal()], name="0-d") for op in (ops.sum, ops.mean, ops.prod, ops.max)],
]  # fmt: skip
