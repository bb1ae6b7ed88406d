"""The case table: one row an op and shape, and every law runs on every row.

Domains stay away from kinks, where finite differences mean nothing; kinks have declared values.
Each file here belongs to the module of its name, and is found by being here.
"""

from importlib import import_module
from pkgutil import iter_modules

PARTS = [import_module(f"{__name__}.{part.name}") for part in iter_modules(__path__)]
CASES = [case for part in PARTS for case in part.CASES]
