"""Loops over groups of looked-up rows, and over elements, for the numba adapter. Floor 1.

In a group all rows of one lookup meet all rows of another, which together fit into the fastest
cache: nothing is copied out of the tables, and the rows of the next group are asked for while this
one is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from .compiled import jit, part, rows_of
from .elements import prefetch
from .vectors import dots, weighted_sum

groups = types.Array(types.int64, 2, "C")  # ids: a row a group


@cache
def kernel(name: str, dtype: np.dtype) -> Callable[..., Any]:
    """The kernel of this module for tables of a dtype. Called directly: it checks no argument."""
    table = rows_of(dtype)
    stack = types.Array(table.dtype, 3, "C")
    turned = types.Array(table.dtype, 3, "A")
    flat = types.Array(table.dtype, 1, "C")
    signatures = {
        "row_products": (table, table, groups, groups, stack, *part),
        "weighted_rows": (turned, table, groups, table, *part),
        "logistic_loss": (flat, flat, flat, flat, *part),
        "logistic_slope": (flat, flat, flat, flat, *part),
    }
    return globals()[name].compile(signatures[name])


@jit
def row_products(x: Any, y: Any, rows: Any, columns: Any, out: Any, start: int, stop: int) -> None:
    """out[s, i, j] = x[rows[s, i]] · y[columns[s, j]], by tiles of 4 rows and 2 columns."""
    m, n = rows.shape[1], columns.shape[1]
    for s in range(start, stop):
        r, c = rows[s], columns[s]
        for j in range(0, n - 1, 2):
            if s + 1 < stop:
                for k in range(j, j + 2):
                    prefetch(y, columns[s + 1, k], 0)
                    if k < m:
                        prefetch(x, rows[s + 1, k], 0)
            pair = c[j], c[j + 1]
            for i in range(0, m - 3, 4):
                tile = dots(x, y, (r[i], r[i + 1], r[i + 2], r[i + 3]), pair)
                out[s, i, j], out[s, i, j + 1] = tile[0], tile[1]
                out[s, i + 1, j], out[s, i + 1, j + 1] = tile[2], tile[3]
                out[s, i + 2, j], out[s, i + 2, j + 1] = tile[4], tile[5]
                out[s, i + 3, j], out[s, i + 3, j + 1] = tile[6], tile[7]
            for i in range(m - m % 4, m):
                out[s, i, j], out[s, i, j + 1] = dots(x, y, (r[i],), pair)
        if n % 2:
            for i in range(m):
                out[s, i, n - 1] = dots(x, y, (r[i],), (c[n - 1],))[0]


@jit
def weighted_rows(w: Any, y: Any, ids: Any, out: Any, start: int, stop: int) -> None:
    """Row s·m + i of `out` is the sum over j of w[s, i, j] · y[ids[s, j]], without weights of 0."""
    m, n = w.shape[1], w.shape[2]
    at, weights = np.empty(n, np.int64), np.empty(n, y.dtype)
    for s in range(start, stop):
        for i in range(m):
            if s + 1 < stop:
                for j in range(i, n, m):
                    prefetch(y, ids[s + 1, j], 0)
            count = 0
            for j in range(n):
                at[count], weights[count] = ids[s, j], w[s, i, j]
                count += w[s, i, j] != 0
            weighted_sum(y, at, weights, count, out, s * m + i)


# -- the logistic loss, in float32 -----------------------------------------------------------------
#
# Series instead of the C library's exp and log1p: a loop without calls is made into vectors.

LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # their sum is ln 2
WHOLE = np.float32(1.5 * 2**23)  # added and taken away again, it leaves whole numbers
LEAST = np.float32(-42.0)  # e**x of less is taken for this: its square would be a slow denormal
E2, E3, E4, E5, E6, E7 = (np.float32(1 / math.factorial(k)) for k in range(2, 8))
A3, A5, A7, A9, A11, A13, A15 = (np.float32(1 / k) for k in range(3, 16, 2))
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
BIAS, EXPONENT = np.int32(127), np.int32(23)  # of a float32: what is added, and its place


@numba.njit(error_model="numpy", forceinline=True)
def exp_of_negative(x: Any) -> Any:
    """e**x for x <= 0: 2**n times e**r, r within ±ln 2 / 2, by the terms of its series up to r⁷."""
    x = LEAST if x < LEAST else x
    n = (x * LOG2_E + WHOLE) - WHOLE
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    power = np.int32((np.int32(n) + BIAS) << EXPONENT).view(np.float32)
    return power * (ONE + r * (ONE + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * (E6 + r * E7)))))))


@numba.njit(error_model="numpy", forceinline=True)
def log1p_of(u: Any) -> Any:
    """log(1 + u) for 0 <= u <= 1, which is 2 artanh(u / (2 + u)), by the terms up to the 15th."""
    a = u / (TWO + u)
    b = a * a
    series = b * (A3 + b * (A5 + b * (A7 + b * (A9 + b * (A11 + b * (A13 + b * A15))))))
    return TWO * (a + a * series)


@jit
def logistic_loss(x: Any, y: Any, w: Any, out: Any, start: int, stop: int) -> None:
    """out = w · (log(1 + e**x) - y·x)."""
    x, y, w, out = x[start:stop], y[start:stop], w[start:stop], out[start:stop]
    for k in range(len(out)):
        loss = log1p_of(exp_of_negative(-abs(x[k]))) + (x[k] if x[k] > ZERO else ZERO)
        out[k] = w[k] * (loss - y[k] * x[k])


@jit
def logistic_slope(x: Any, y: Any, w: Any, out: Any, start: int, stop: int) -> None:
    """out = w · (1 / (1 + e**-x) - y)."""
    x, y, w, out = x[start:stop], y[start:stop], w[start:stop], out[start:stop]
    for k in range(len(out)):
        small = exp_of_negative(-abs(x[k]))
        out[k] = w[k] * ((ONE if x[k] >= ZERO else small) / (ONE + small) - y[k])
