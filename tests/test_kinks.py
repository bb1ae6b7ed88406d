"""Every kink that an op declares has the declared value, in every float dtype."""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import ops

KINKS = [
    pytest.param(getattr(ops, name), kink, id=f"{name}{kink.args}")
    for name in ops.__all__
    for kink in getattr(getattr(ops, name), "kinks", ())
    if getattr(ops, name).__name__ == name
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("op, kink", KINKS)
def test_declared_value(op, kink, dtype):
    leaves = [
        ts.parameter(np.array(a, dtype)) if c is not None else np.array(a, dtype)
        for a, c in zip(kink.args, kink.cotangents, strict=True)
    ]
    with ts.Tape("raise"), np.errstate(divide="ignore"):
        out = op(*leaves, **kink.static)
        grads = out.backward(seed=np.ones(out.shape))
    for leaf, cotangent in zip(leaves, kink.cotangents, strict=True):
        if cotangent is not None:
            np.testing.assert_array_equal(grads[leaf], np.array(cotangent, dtype))
