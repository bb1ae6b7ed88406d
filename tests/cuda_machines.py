"""The CUDA texts of the package on the CPU: built by g++ behind a small header, launched by ctypes.

What a kernel computes is tested so without a GPU: its numbers, its bounds (arrays lie between
guards that must stay as they are), and that no result depends on which thread runs first. Where
there is a GPU, `pytest -m gpu` runs the same tests on it.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tinygrad_sparse.backend.cuda import plans, texts

SHIM = Path(__file__).with_name("cuda_shim.h")
# No fused multiply-adds: one rounding an operation, as the kernels are compiled for a GPU.
FLAGS = ["-std=c++17", "-O0", "-fPIC", "-ffp-contract=off", "-w"]
WRAPPER = """
extern "C" const char* launch_%s(const unsigned* sizes, void** args, int order)
{
    return shim::launch(%s, sizes, args, order, %s);
}
"""
MARGIN = 64  # numbers before and after each array


class Cpu:
    """Builds texts, carries plans out, forward and backward in the order of threads."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.built = {}
        self.order = 0
        self.guarded = []
        self.launches = []
        self.memory = plans.Memory(self.empty, lambda x: x.ctypes.data)

    def empty(self, shape, dtype):
        """An array full of rubbish, between guards."""
        dtype, size = np.dtype(dtype), int(np.prod(shape))
        rubbish = np.nan if dtype.kind == "f" else 0x6F6F6F6F
        whole = np.full(size + 2 * MARGIN, rubbish, dtype)
        offset = -whole.ctypes.data // dtype.itemsize % (16 // dtype.itemsize)  # on 16 bytes
        start = MARGIN // 2 + offset
        self.guarded.append((whole, start, size))
        return whole[start : start + size].reshape(shape)

    def array(self, x):
        """A copy between guards."""
        x = np.asarray(x)
        copy = self.empty(x.shape, x.dtype)
        copy[...] = x
        return copy

    def run(self, plan, order=0):
        """Carry a plan out; `order` 1 lets the last threads go first."""
        self.order = order
        self.launches.clear()
        result = plans.run(plan, self.launch)
        for whole, start, size in self.guarded:
            rubbish = np.nan if whole.dtype.kind == "f" else 0x6F6F6F6F
            outside = np.concatenate([whole[:start], whole[start + size :]])
            np.testing.assert_array_equal(outside, rubbish, "written outside of an array")
        self.guarded.clear()
        return result

    def launch(self, launch):
        self.launches.append(launch)
        assert min(*launch.grid, *launch.block) > 0, "CUDA refuses to launch nothing"
        function = getattr(self.load(launch.kernel), f"launch_{launch.kernel.entry}")
        function.restype = ctypes.c_char_p
        places = []
        for x in launch.args:
            if isinstance(x, np.ndarray):
                assert x.flags.c_contiguous
                # CuPy's arrays without elements are nowhere.
                places.append(ctypes.c_void_p(x.ctypes.data if x.size else None))
            else:  # a number of the kernel's own type
                number = np.asarray(x)
                places.append((ctypes.c_char * number.nbytes)(*number.tobytes()))
        pointers = (ctypes.c_void_p * len(places))(*(ctypes.addressof(p) for p in places))
        sizes = (ctypes.c_uint * 6)(*launch.grid, *launch.block)
        fault = function(sizes, pointers, self.order)
        assert not fault, f"{launch.kernel.entry}: {fault.decode()}"

    def load(self, kernel):
        if kernel.text not in self.built:
            self.built[kernel.text] = ctypes.CDLL(str(build(self.folder, kernel.text)))
        return self.built[kernel.text]


def build(folder, text):
    """A shared library of a text, found again by what is in it."""
    header = compiled(folder, SHIM.read_text(), ".h.gch", ["-x", "c++-header"])
    cooperate = "_sync" in text.replace("__syncwarp", "_sync") or "__syncthreads" in text
    source = [text]
    for entry in texts.entries_of(text):
        source.append(WRAPPER % (entry, entry, str(cooperate).lower()))
    include = ["-include", str(header.with_suffix("")), "-shared"]
    return compiled(folder, "\n".join(source), ".so", include)


def compiled(folder, source, suffix, flags):
    """The file that g++ makes of a source, in the folder already or made now."""
    name = hashlib.sha256(f"{FLAGS}{flags}{source}".encode()).hexdigest()[:24]
    result = folder / f"{name}{suffix}"
    if not result.exists():
        file = folder / f"{name}{'.h' if suffix == '.h.gch' else '.cpp'}"
        fresh = folder / f"{name}.{os.getpid()}"
        file.write_text(source)
        command = ["g++", *FLAGS, *flags, str(file), "-o", str(fresh)]
        made = subprocess.run(command, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr[:3000]
        fresh.rename(result)  # at once: another process may look for it
    return result


class Gpu(Cpu):
    """The same tests on a GPU: what a kernel is given goes there, and comes back after it."""

    def __init__(self):
        super().__init__("")
        self.modules = {}

    def launch(self, launch):
        import cupy

        self.launches.append(launch)
        text = launch.kernel.text
        if text not in self.modules:
            self.modules[text] = cupy.RawModule(code=text, options=texts.OPTIONS)
        kernel = self.modules[text].get_function(launch.kernel.entry)
        given = [cupy.asarray(x) if isinstance(x, np.ndarray) else x for x in launch.args]
        kernel(launch.grid, launch.block, tuple(given))
        for x, there in zip(launch.args, given, strict=True):
            if isinstance(x, np.ndarray):
                x[...] = there.get()


def has_gpu():
    """Whether there is CuPy, the real one, and a GPU for it."""
    if find_spec("cupy") is None:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cupy
    return cupy.is_available()


@pytest.fixture(scope="session", params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def machine(request):
    """What runs the kernels; skips where there is no g++, or no GPU."""
    if request.param == "gpu":
        if not has_gpu():
            pytest.skip("there is no GPU, or no CuPy for it")
        return Gpu()
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: no kernel can run on the CPU")
    return Cpu(request.config.cache.mkdir("cuda_on_cpu"))
