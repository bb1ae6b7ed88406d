"""The fewest bytes through memory that a step can do with, for benchmarks to be held against.

Each input is read once and each output written once; what one kernel leaves for the next is counted
where no way around it is known (the passes of a sort), and not where there is one. Floor 1.
"""

from __future__ import annotations

from tinygrad_sparse.errors import ArgumentError, explain

from .plans import BITS


def bytes_moved(
    step: str,
    n: int,
    k: int,
    d: int,
    reads: int = 1,
    writes: int = 1,
    itemsize: int = 4,
    ids: int = 8,
    V: int = 2**24,
) -> int:
    """Bytes for n rows or ids, k of them distinct, rows of d numbers.

    `reads` and `writes`: how many of the table and its slots an update reads and writes, 1 and 1
    for SGD, 3 and 3 for Adam; `ids`: bytes of an id as it comes.

    >>> bytes_moved("update unique", 262144, 262144, 128, 3, 3) // 10**6  # Adam
    941
    """
    row, key = d * itemsize, 4 if V <= 2**31 else 8
    passes = max(1, -(-max(0, V - 1).bit_length() // BITS))
    sort = n * (ids + passes * (3 * key + 8) - 4)  # count, then move; the first order is implied
    floors = {
        "lookup": n * (ids + row) + k * row,
        "bag": n * ids + k * row,
        "sort": sort,
        "coalesce": sort + n * (key + 4 + row) + k * (8 + row),
        "update unique": n * (ids + row) + n * (reads + writes) * row,
        "update": sort + n * (key + 4 + row) + k * (reads + writes) * row,
    }
    if step not in floors:
        raise ArgumentError(explain("bytes_moved", f"one of {sorted(floors)}", repr(step)))
    return floors[step]
