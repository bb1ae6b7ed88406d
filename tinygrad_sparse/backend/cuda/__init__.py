"""CUDA kernels as plain texts, and plans that say how to launch them. Floor 1.

Nothing here imports CuPy or needs a GPU, and no GPU has run it yet: the tests build the texts for
the CPU and compare numbers, and compile them with NVIDIA's compiler. See docs/cuda-kernels.md for
every kernel, what it is given, how it is launched, and how an adapter carries a plan out.
"""

from .floors import bytes_moved as bytes_moved
from .formula import generate as generate
from .plans import LONGEST as LONGEST
from .plans import MOST as MOST
from .plans import Launch as Launch
from .plans import Memory as Memory
from .plans import Runs as Runs
from .plans import check_ids as check_ids
from .plans import coalesce as coalesce
from .plans import embedding_bag as embedding_bag
from .plans import group as group
from .plans import numbers_of as numbers_of
from .plans import run as run
from .plans import sort as sort
from .plans import take_rows as take_rows
from .plans import update as update
from .symbols import FormulaError as FormulaError
from .texts import OPTIONS as OPTIONS
from .texts import Kernel as Kernel
from .texts import entries_of as entries_of
