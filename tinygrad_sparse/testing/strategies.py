"""Hypothesis strategies for arrays, ids and row-sparse gradients. Floor 6.

Values are multiples of 1/8 between -4 and 4: exact in every float dtype, and so are their sums and
products of a few, so that tests may ask for equality. Sides are at most 5, which is where shapes
stop being interesting.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_sparse.slices import IndexedSlices
from tinygrad_sparse.tensor import Tensor, parameter, tensor

try:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as npst
except ImportError as error:
    raise ImportError(
        "tinygrad_sparse.testing.strategies: expected hypothesis to be installed. "
        "Hint: pip install 'tinygrad_sparse[test]'."
    ) from error

Strategy = Any  # hypothesis.strategies.SearchStrategy, where hypothesis is installed

SIDE = 5
FLOATS = (np.float64, np.float32, np.float16)
INTEGERS = (np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8)


def shapes(min_dims: int = 0, max_dims: int = 3, min_side: int = 0) -> Strategy:
    """Shapes, zero-size ones included."""
    return npst.array_shapes(min_dims=min_dims, max_dims=max_dims, min_side=min_side, max_side=SIDE)


def arrays(shape: Any = None, dtype: Any = None) -> Strategy:
    """Float arrays; `shape` and `dtype` may be values or strategies."""
    return npst.arrays(
        dtype=st.sampled_from(FLOATS) if dtype is None else dtype,
        shape=shapes() if shape is None else shape,
        elements=st.integers(-32, 32).map(lambda n: n / 8),
    )


@st.composite
def tensors(draw: Any, shape: Any = None, dtype: Any = None, tracked: bool | None = None) -> Tensor:
    """Tensors: parameters, constants, or (None) either."""
    array = draw(arrays(shape, dtype))
    if tracked is None:
        tracked = draw(st.booleans())
    return parameter(array) if tracked else tensor(array)


@st.composite
def row_indices(
    draw: Any, size: int, max_length: int = 8, rank: int | None = 1, negative: bool = True,
    dtypes: Any = INTEGERS,
) -> np.ndarray:  # fmt: skip
    """Ids of rows of a table of `size` rows: repeated, negative, none at all, of any integer dtype.

    `rank` None draws ids of rank 0 to 2. For an empty table there are no ids but none.
    """
    if rank is None:
        rank = draw(st.integers(0 if size else 1, 2))
    shape = draw(
        st.tuples(*[st.integers(0, max_length if rank == 1 else 3)] * rank)
        if size
        else st.just((0,) * rank)
    )
    fitting = [d for d in dtypes if size <= np.iinfo(d).max]
    dtype = np.dtype(draw(st.sampled_from(fitting)))
    low = -size if negative and dtype.kind == "i" else 0
    return draw(npst.arrays(dtype, shape, elements=st.integers(low, max(size - 1, 0))))


@st.composite
def indexed_slices(
    draw: Any, shape: Any = None, dtype: Any = None, lead: int | None = None, max_length: int = 8
) -> IndexedSlices:
    """Row-sparse gradients: ids repeat, in any order; none, one or several leading axes."""
    if shape is None or isinstance(shape, st.SearchStrategy):
        shape = draw(shapes(min_dims=lead or 1) if shape is None else shape)
    if lead is None:
        lead = draw(st.integers(1, len(shape)))
    rows = int(np.prod(shape[:lead], dtype=np.int64))
    ids = draw(row_indices(rows, max_length))
    return IndexedSlices(ids, draw(arrays((len(ids), *shape[lead:]), dtype)), shape, lead)


@st.composite
def broadcastable_pairs(draw: Any, dtype: Any = np.float64, max_dims: int = 3) -> Any:
    """Two arrays whose shapes broadcast together."""
    drawn = draw(npst.mutually_broadcastable_shapes(num_shapes=2, max_dims=max_dims, max_side=SIDE))
    x, y = drawn.input_shapes
    return draw(arrays(x, dtype)), draw(arrays(y, dtype))


def axes(ndim: int) -> Strategy:
    """What a reduction's `axis` may be: None, an int of either sign, a tuple of distinct ones."""
    several = npst.valid_tuple_axes(ndim)
    return (
        st.one_of(st.none(), st.integers(-ndim, ndim - 1), several)
        if ndim
        else st.one_of(st.none(), several)
    )
