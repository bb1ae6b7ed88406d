"""What the stand-in has is what CuPy has: compared with the real package, which needs no GPU.

It weighs 300 MB, so it is in the extra `gpu-test`; where it is not installed this says so.
"""

import inspect
import warnings
from importlib.util import find_spec

import pytest
from standin import names

WHY = "cupy-cuda12x or -13x is not installed: the stand-in's names were not compared with CuPy's"
if find_spec("cupy") is None:
    pytest.skip(WHY, allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about libraries of a GPU that is not there
    import cupy


def found(name):
    function = cupy
    for part in name.split("."):
        function = getattr(function, part)
    return function


@pytest.mark.parametrize("name", names.FUNCTIONS)
def test_functions_and_their_parameters(name):
    assert tuple(inspect.signature(found(name)).parameters) == names.FUNCTIONS[name]


@pytest.mark.parametrize("name", [*names.UFUNCS, *names.ALIASES])
def test_ufuncs(name):
    assert callable(getattr(cupy, name))


@pytest.mark.parametrize("name", names.AT)
def test_ufuncs_with_atomic_operations(name):
    assert callable(getattr(cupy, name).at)


def parameters(method):
    """Of a method, by the first line of its docstring, which has the signature."""
    line = method.__doc__.partition("->")[0].partition("\n")[0]
    inside = line[line.index("(") + 1 : line.rindex(")")].split(",")
    return tuple(part.split("=")[0].split()[-1].strip("*") for part in inside)[1:]


@pytest.mark.parametrize("name", names.DEVICE)
def test_what_benchmarks_use_of_the_device(name):
    wanted, thing = names.DEVICE[name], found(name)
    if wanted is None:
        return
    try:
        has = tuple(inspect.signature(thing).parameters)
    except ValueError:  # Cython's: the first line of the docstring has it, with types
        line = thing.__doc__.partition("\n")[0].partition("->")[0].strip()
        inside = line[line.index("(") + 1 : line.rindex(")")]
        has = tuple(part.split("=")[0].split()[-1] for part in inside.split(",") if part)
    assert has == wanted


@pytest.mark.parametrize("name", names.METHODS)
def test_methods_and_their_parameters(name):
    assert parameters(getattr(cupy.ndarray, name)) == names.METHODS[name]


@pytest.mark.parametrize(
    "name", ["T", "base", "copy", "dtype", "fill", "flags", "get", "item", "itemsize", "nbytes",
             "ndim", "nonzero", "reshape", "shape", "size", "sort", "strides", "take", "tolist",
             "transpose", "view"],
)  # fmt: skip
def test_what_arrays_have(name):
    assert hasattr(cupy.ndarray, name)


def test_what_arrays_do_not_have():
    assert not hasattr(cupy.ndarray, "setflags") and not hasattr(cupy.ndarray, "__index__")
    assert parameters(cupy.ndarray.item) == ()
    assert cupy.ndarray.__module__ == "cupy", "by this the first array of CuPy's is known"


def test_the_adapter_imports_without_a_gpu():
    from tinygrad_sparse.backend import cupy as adapter

    assert adapter.xp is cupy
