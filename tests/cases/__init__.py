"""The case table: one row an op and shape, and every law runs on every row.

Domains stay away from kinks, where finite differences mean nothing; kinks have declared values.
"""

from . import elementwise, linalg, nn, reduce, rows, shape, soft_tree

PARTS = (elementwise, shape, reduce, linalg, rows, nn, soft_tree)
CASES = [case for part in PARTS for case in part.CASES]
