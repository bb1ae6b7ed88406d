"""Order: one row an op and shape. Normal numbers have no ties."""

from tinygrad_sparse import ops
from tinygrad_sparse.testing import Case, normal

CASES = [
    Case(ops.sort, [normal(5, 4)], commutes=(0,)),
    Case(ops.sort, [normal(5, 4)], name="rows", static={"axis": 0}),
    Case(ops.sort, [normal(3, 4)], name="flat", static={"axis": None}),
    Case(ops.sort, [normal(4, 5, 2)], name="middle", commutes=(0,),
         static={"axis": 1, "descending": True}),
    Case(lambda x: ops.take_along_axis(x, ops.argsort(x)), [normal(5, 4)], name="sort: by argsort",
         commutes=(0,)),
    Case(lambda x: ops.topk(x, 2)[0], [normal(5, 4)], name="topk", commutes=(0,)),
    Case(lambda x: ops.topk(x, 3, axis=0)[0], [normal(5, 2)], name="topk: rows"),
    Case(lambda x: ops.topk(x, 0)[0], [normal(5, 2)], name="topk: none"),
    Case(lambda x: ops.argsort(x).astype(x.dtype) * x, [normal(5, 4)], name="argsort: ranks",
         commutes=(0,)),
]  # fmt: skip
