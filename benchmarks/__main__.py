"""`python -m benchmarks`: every table; peers that are not installed are left out.

With ``--out DIRECTORY`` what each benchmark prints is written there too, with the pictures that
some draw; ``--full`` measures every cell of the grid. word2vec, exact optimizers and tables on
files take texts, time or room, and have commands of their own.
"""

import argparse
import io
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks import grid

BENCHMARKS = (
    "op_overhead",
    "separate_parameters",
    "table_step",
    "coalesce",
    "embedding_bag",
    "leaf_update",
    "soft_tree",
    "busy",
    "freed_memory",
    "frameworks",
)
NUMBA = ("floors", "sharing")  # those about compiled loops
DRAWN = ("break_even", "growth")


def run(name: str, out: Path | None) -> None:
    """One benchmark, its table and its picture."""
    benchmark, printed = import_module(f"benchmarks.{name}"), io.StringIO()
    with redirect_stdout(printed):
        if name in DRAWN and out is not None:
            benchmark.main(out / f"{name}.png")
        else:
            benchmark.main()
    text = printed.getvalue()
    print(text, end="", flush=True)
    if out is not None:
        (out / f"{name}.txt").write_text(text.lstrip())


def main() -> None:
    """Run them one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to write tables and charts")
    parser.add_argument("--full", action="store_true", help="every cell of the grid")
    arguments = parser.parse_args()
    out: Path | None = arguments.out
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    for name in (*BENCHMARKS, *(NUMBA if find_spec("numba") else ()), *DRAWN):
        run(name, out)
    grid.main(not arguments.full, out)


main()
