"""The case table: one row an op and shape, and every law runs on every row.

Domains stay away from kinks, where finite differences mean nothing; kinks have declared values.
"""

from . import elementwise, index, join, linalg, nn, reduce, rows, segment, shape, sorting

PARTS = (elementwise, shape, reduce, linalg, rows, index, join, sorting, segment, nn)
CASES = [case for part in PARTS for case in part.CASES]
