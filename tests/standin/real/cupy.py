"""`import cupy` gives the stand-in, kernels and all, where this folder is first on PYTHONPATH.

So programs that are started as a process run on it, and tests that want a real device: they take
it for the real one. Kernels are built by g++ in the folder CUDA_ON_CPU.
"""

import os
import sys
from pathlib import Path

sys.path[:0] = [str(folder) for folder in Path(__file__).parents[2:4]]  # tests, and the root

import cuda_machines  # noqa: E402  the path comes first
import standin  # noqa: E402  likewise
from standin.functions import raw_modules  # noqa: E402  likewise

standin.cupy.RawModule = raw_modules(cuda_machines.Cpu(os.environ["CUDA_ON_CPU"]))
sys.modules["cupy"] = standin.cupy
