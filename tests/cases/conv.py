"""Convolutions: every stride with every padding, dilation and number of groups."""

import itertools

from tinygrad_sparse import ops
from tinygrad_sparse.ops.conv import _Grid, _overlaid
from tinygrad_sparse.testing import Case, normal

CASES = [
    *[
        Case(ops.conv1d, [normal(3, 2, 6), normal(4, 2 // groups, 2)], commutes=(0,),
             name=f"stride {stride}, padding {padding}, dilation {dilation}, groups {groups}",
             static={"stride": stride, "padding": padding, "dilation": dilation, "groups": groups})
        for stride, padding, dilation, groups in itertools.product(
            (1, 2, 3), (0, 1, (0, 2)), (1, 2), (1, 2))
    ],
    Case(ops.conv2d, [normal(3, 2, 4, 3), normal(2, 2, 2, 2)], commutes=(0,)),
    Case(ops.conv2d, [normal(3, 2, 5, 4), normal(2, 1, 3, 2)], name="all at once", commutes=(0,),
         static={"stride": (1, 2), "padding": (1, (0, 2)), "dilation": (2, 1), "groups": 2}),
    Case(ops.conv2d, [normal(3, 1, 3, 4), normal(1, 1, 2, 3)], name="same", commutes=(0,),
         static={"padding": "same"}),
    Case(ops.conv2d, [normal(3, 2, 3, 3), normal(4, 1, 2, 2)], name="depthwise", commutes=(0,),
         static={"groups": 2}),
    Case(ops.conv2d, [normal(0, 2, 3, 3), normal(1, 2, 2, 2)], name="no examples"),
    Case(_overlaid, [normal(3, 2, 2, 4)], commutes=(0,),
         static={"grid": _Grid((2,), (1,), (1,), ((0, 1),), (4,))}),
    Case(ops.conv1d, [normal(4, 8, 12), normal(6, 8, 3)], name="large", commutes=(0,),
         static={"padding": 1}),
]  # fmt: skip
