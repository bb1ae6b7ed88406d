"""NVIDIA's run-time compiler of CUDA C, without a GPU, a driver or a toolkit: by ctypes.

The library is in the wheel nvidia-cuda-nvrtc, which the extra `gpu-test` installs.
"""

import ctypes
from functools import cache
from importlib import metadata
from pathlib import Path


@cache
def loaded():
    """The compiler, or None where its wheel is not installed."""
    try:
        files = metadata.files("nvidia-cuda-nvrtc") or []
    except metadata.PackageNotFoundError:
        return None
    paths = [Path(f.locate()) for f in files if ".so." in f.name and ".alt." not in f.name]
    builtins = [p for p in paths if p.name.startswith("libnvrtc-builtins")]
    if not builtins:
        return None
    ctypes.CDLL(str(builtins[0]), mode=ctypes.RTLD_GLOBAL)  # first: the compiler looks for it
    return ctypes.CDLL(str(next(p for p in paths if p.name.startswith("libnvrtc.so"))))


def compiled(text, options):
    """(whether it compiled, the compiler's log) for a text."""
    ok, log, _ = _run(text, options)
    return ok, log


def assembly(text, options):
    """What a text becomes, as PTX."""
    ok, log, ptx = _run(text, options)
    assert ok, log
    return ptx


def _run(text, options):
    nvrtc, program = loaded(), ctypes.c_void_p()
    source = text.encode()
    assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"text.cu", 0, None, None)
    try:
        words = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        failed = nvrtc.nvrtcCompileProgram(program, len(options), words)
        found = []
        for what in ("ProgramLog", "PTX"):
            size = ctypes.c_size_t()
            getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
            answer = ctypes.create_string_buffer(size.value + 1)
            getattr(nvrtc, f"nvrtcGet{what}")(program, answer)
            found.append(answer.value.decode())
        return not failed, *found
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
