"""What hypothesis draws here: shapes, row ids that repeat, and IndexedSlices with a dense twin.

Values are small whole numbers, so sums and products are exact in float16 too, and a test may ask
for equality.
"""

import math

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tinygrad_sparse import IndexedSlices

FLOATS = [np.float16, np.float32, np.float64]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]

# A shared machine stalls at times: neither a slow draw nor a slow example is a fault.
quick = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])

floats = st.sampled_from(FLOATS)


def whole(draw, shape, dtype=np.float64, low=-4, high=4):
    """Whole numbers as floats: drawn by a seed, since their digits are not what fails."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    return rng.integers(low, high + 1, size=shape).astype(dtype)


@st.composite
def row_ids(draw, size, max_n=6, negative=True):
    """Ids of `size` rows, as a list: repeated, unsorted, counted from the end, or none."""
    low = -size if negative else 0
    return draw(st.lists(st.integers(low, size - 1), max_size=max_n)) if size else []


@st.composite
def table_shapes(draw, lead=1):
    """Shapes of which the first `lead` axes address a row, and zero to three lie within one."""
    leading = draw(st.lists(st.integers(1, 4), min_size=lead, max_size=lead))
    inner = draw(st.lists(st.integers(0, 3), max_size=3))
    return (*leading, *inner)


def twin(ids, values, shape, lead=1):
    """What IndexedSlices(ids, values, shape, lead) stands for, by the definition."""
    rows = math.prod(shape[:lead])
    dense = np.zeros((rows, *shape[lead:]))
    for i, value in zip(ids, np.asarray(values, np.float64), strict=True):
        dense[i] += value
    return dense.reshape(shape)


def frozen(array):
    """A read-only copy: whoever writes to an input raises."""
    array = np.array(array)
    array.flags.writeable = False
    return array


@st.composite
def slices(draw, shape=None, lead=None, dtype=None):
    """(IndexedSlices, its dense twin in float64): of a given shape, or of any."""
    if shape is None:
        shape = draw(table_shapes(lead or draw(st.integers(1, 2))))
    if lead is None:
        lead = draw(st.integers(1, min(2, len(shape))))
    dtype = dtype or draw(floats)
    ids = draw(row_ids(math.prod(shape[:lead])))
    values = whole(draw, (len(ids), *shape[lead:]), dtype)
    return IndexedSlices(ids, frozen(values), shape, lead), twin(ids, values, shape, lead)


@st.composite
def pairs(draw):
    """Two of `slices` with one shape and dtype, each with a lead of its own."""
    shape, dtype = draw(table_shapes(draw(st.integers(1, 2)))), draw(floats)
    return draw(slices(shape, dtype=dtype)), draw(slices(shape, dtype=dtype))
