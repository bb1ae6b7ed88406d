"""Where numba is not installed, the modules that need it cannot be imported, nor collected.

Elsewhere an import that fails is an error: a test module that cannot be imported must not pass for
one without tests.
"""

from importlib.util import find_spec

NEED_NUMBA = ("compiled", "elements", "formulas")

collect_ignore = (
    [] if find_spec("numba") else [f"tinygrad_sparse/backend/{name}.py" for name in NEED_NUMBA]
)
