"""`python -m benchmarks`: every table; peers that are not installed are left out.

With ``--out DIRECTORY`` what each benchmark prints is written there too, and the grid's chart;
``--full`` measures every cell of the grid.
"""

import argparse
import io
from contextlib import redirect_stdout
from pathlib import Path

from benchmarks import (
    break_even,
    coalesce,
    embedding_bag,
    grid,
    leaf_update,
    op_overhead,
    separate_parameters,
    soft_tree,
    table_step,
)

BENCHMARKS = (
    op_overhead,
    separate_parameters,
    table_step,
    coalesce,
    embedding_bag,
    leaf_update,
    soft_tree,
    break_even,
)


def main() -> None:
    """Run them one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to write tables and charts")
    parser.add_argument("--full", action="store_true", help="every cell of the grid")
    arguments = parser.parse_args()
    out: Path | None = arguments.out
    for benchmark in BENCHMARKS:
        printed = io.StringIO()
        with redirect_stdout(printed):
            benchmark.main()
        text = printed.getvalue()
        print(text, end="", flush=True)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            name = benchmark.__name__.rpartition(".")[2]
            (out / f"{name}.txt").write_text(text.lstrip())
    grid.main(not arguments.full, out)


main()
