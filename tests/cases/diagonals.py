"""Diagonals and triangles: one row an op and shape."""

from tinygrad_sparse import ops
from tinygrad_sparse.ops.diagonals import _undiagonal
from tinygrad_sparse.testing import Case, normal

CASES = [
    Case(ops.diagonal, [normal(5, 4)], static={"offset": 1}),
    Case(ops.diagonal, [normal(5, 3, 4)], name="in each row", commutes=(0,),
         static={"offset": -1, "axis1": -1, "axis2": 1}),
    Case(ops.diagonal, [normal(4, 5, 4)], name="row axis last", static={"axis2": -1}),
    Case(ops.diagonal, [normal(4, 3, 2)], name="of the first axes", static={"offset": -1}),
    Case(ops.diagonal, [normal(2, 4, 3, 2)], name="around another",
         static={"axis1": 3, "axis2": 1}),
    Case(ops.diagonal, [normal(2, 2)], name="outside", static={"offset": 5}),
    Case(ops.diag, [normal(3)], static={"k": -1}),
    Case(ops.diag, [normal(4, 3)], name="of a matrix"),
    Case(_undiagonal, [normal(5, 3)], name="in each row", commutes=(0,),
         static={"sizes": (3, 4), "offset": 1, "axes": (1, 2), "place": 1}),
    *[Case(_undiagonal, [normal(2, 4, 3)], name=f"axes {axes}, place {place}",
           static={"sizes": sizes, "offset": 0, "axes": axes, "place": place})
      for axes, sizes, place in (((0, 1), (4, 5), 1), ((3, 1), (2, 2), 0), ((0, 3), (4, 4), 1),
                                 ((1, 2), (3, 3), 2))],
    Case(ops.trace, [normal(4, 5)], static={"offset": 1}),
    Case(ops.trace, [normal(5, 3, 3)], name="in each row", commutes=(0,),
         static={"axis1": 1, "axis2": 2}),
    Case(ops.tril, [normal(5, 3)], static={"k": -1}),
    Case(ops.triu, [normal(5, 3, 3)], commutes=(0,)),
]  # fmt: skip
