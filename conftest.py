"""Where numba or CuPy is not installed, what needs it cannot be imported, nor collected.

Elsewhere an import that fails is an error: a test module that cannot be imported must not pass for
one without tests.
"""

from importlib.util import find_spec

NEEDED = {
    "numba": ("compiled", "elements", "formulas", "products", "vectors"),
    "cupy": ("cupy", "launching"),
}

collect_ignore = [
    f"tinygrad_sparse/backend/{name}.py"
    for package, modules in NEEDED.items()
    for name in modules
    if find_spec(package) is None
]
collect_ignore.append("tests/standin/real")  # it takes CuPy's name in processes of its own
