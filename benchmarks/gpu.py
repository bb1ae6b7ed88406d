"""`python -m benchmarks.gpu`: everything about a GPU in one call, stage by stage.

Each stage is a process of its own with its own time limit, since an error on a GPU spoils the
process that it happens in. What a stage finds it writes line by line, so one that dies leaves what
it had. The table at the end says of each cell of the grid which part of the ceiling it reached:
floor / (time · ceiling), in which floor is the fewest bytes that the step can do with.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LIMITS = {  # seconds, in this order
    "identity": 20,
    "texts": 60,
    "ceilings": 60,
    "tests": 180,
    "repeated": 40,
    "captured": 30,
    "grid": 210,
}
TESTS = ["-m", "gpu", "-q", "-x", "-p", "no:cacheprovider", "tests"]


def main() -> None:
    """Run the stages, then print what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to keep what the stages write")
    parser.add_argument("--stage", choices=LIMITS, help="this one alone, in this process")
    parser.add_argument("--only", nargs="*", choices=LIMITS, default=list(LIMITS))
    arguments = parser.parse_args()
    refuse_without_gpu()
    if arguments.stage:
        from benchmarks import gpu_stages

        with open(arguments.out / f"{arguments.stage}.jsonl", "w") as file:
            getattr(gpu_stages, arguments.stage)(
                lambda **record: print(json.dumps(record), file=file, flush=True)
            )
        return
    with tempfile.TemporaryDirectory() as scratch:
        out = arguments.out or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        for stage in arguments.only:
            print(f"{stage}: {run(stage, out)}", flush=True)
        records = {
            path.stem: [json.loads(line) for line in path.read_text().splitlines()]
            for path in out.glob("*.jsonl")
        }
        print(report(records))


def refuse_without_gpu() -> None:
    """Say so and stop."""
    try:
        import cupy
    except ImportError:
        sys.exit("no GPU here: CuPy is not installed (pip install 'tinygrad_sparse[cuda13x]')")
    if not cupy.is_available():
        sys.exit("no GPU here: CuPy is installed, but finds no device")


def run(stage: str, out: Path) -> str:
    """Run a stage in a process of its own; how it ended."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--stage", stage, "--out", str(out)]
    if stage == "tests":
        command = [sys.executable, "-m", "pytest", *TESTS]
    try:
        done = subprocess.run(command, timeout=LIMITS[stage], capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return f"stopped after {LIMITS[stage]} s"
    (out / f"{stage}.txt").write_text(done.stdout + done.stderr)
    last = (done.stdout + done.stderr).strip().splitlines()[-1:] or [""]
    if stage == "tests":
        return last[0]
    return "done" if not done.returncode else f"failed: {last[0]}"


def report(records: dict[str, list[dict[str, Any]]]) -> str:
    """What the stages found, as text; the grid against the ceilings last.

    "of copy" and "of rows" are parts of what a copy and plain kernels on random rows reached.
    """
    lines = []
    for stage in LIMITS:
        if stage not in records or stage == "grid":
            continue
        lines += [stage, *("  " + shown(record) for record in records[stage]), ""]
    rates = {(r["what"], r.get("d")): r["rate"] for r in records.get("ceilings", []) if "rate" in r}
    copy = rates.get(("copy", None))
    lines += [
        "grid",
        heading("step", "ids", "n", "d", "us", "launches", "of copy", "of rows", "torch/us"),
    ]
    for r in records.get("grid", []):
        rate = r["floor"] / r["us"] * 1e6
        rows = rates.get(("gather" if r["step"] in ("lookup", "bag") else "modify", r["d"]))
        lines.append(
            heading(
                r["step"], r["ids"], r["n"], r["d"], f"{r['us']:.1f}", r["launches"],
                f"{rate / copy:.0%}" if copy else "-", f"{rate / rows:.0%}" if rows else "-",
                f"{r['torch_us'] / r['us']:.1f}" if r.get("torch_us") else "-",
            )
        )  # fmt: skip
    return "\n".join(lines)


def heading(step: Any, ids: Any, *others: Any) -> str:
    widths = 7, 4, 7, 9, 8, 8, 9
    numbers = " ".join(f"{x:>{w}}" for x, w in zip(others, widths, strict=True))
    return f"{step:<12} {ids:<8}{numbers}"


def shown(record: dict[str, Any]) -> str:
    """One record on a line; bytes a second in TB/s."""
    words = []
    for key, value in record.items():
        if key == "rate":
            words.append(f"{value / 1e12:.2f} TB/s")
        else:
            words.append(f"{key} {value:.1f}" if isinstance(value, float) else f"{key} {value}")
    return ", ".join(words)


if __name__ == "__main__":
    main()
