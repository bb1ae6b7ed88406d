"""`python -m benchmarks.gpu`: everything about a GPU in one call, stage by stage.

Each stage is a process of its own with its own time limit, since an error on a GPU spoils the
process that it happens in. What a stage finds it writes line by line, so one that dies leaves what
it had; the report is written anew after each stage. A stage that fails says so in a line, the next
one begins, and the exit status is 1. The tables of the grid and of whole steps say of each cell
which part of the ceiling it reached: floor / (time · ceiling), in which floor is the fewest bytes
that the step can do with.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIMITS = {  # seconds, in this order
    "identity": 20,
    "texts": 30,
    "ceilings": 50,
    "tests": 190,
    "repeated": 40,
    "captured": 30,
    "grid": 130,
    "steps": 50,
}
TABLES = "grid", "steps"
# Those that want a GPU: a process for each, for one error can spoil all that comes after it.
TESTS = "test_cuda_kernels.py", "test_cuda_formulas.py", "test_gpu_device.py"


def main() -> None:
    """Run the stages; say what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("build/gpu"), help="where to keep what stages write"
    )
    parser.add_argument("--stage", choices=LIMITS, help="this one alone, in this process")
    parser.add_argument("--only", nargs="+", choices=LIMITS, default=list(LIMITS))
    parser.add_argument("--budget", type=float, default=540, help="seconds for all of them")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that all runs")
    parser.add_argument("--seconds", type=float, default=3600, help="for the --stage")
    parser.add_argument("--tests", default="", help="of the tests, those that pytest -k picks")
    arguments = parser.parse_args()
    refuse_without_gpu()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if arguments.stage:
        sys.exit(run_here(arguments.stage, out, arguments))
    stop, failed = time.monotonic() + arguments.budget, []
    for stage in arguments.only:
        for old in out.glob(f"{stage}.*"):
            old.unlink()
    for stage in arguments.only:
        limit = min(LIMITS[stage], stop - time.monotonic())
        more = ["--tiny"] * arguments.tiny + ["--tests", arguments.tests]
        ended = run(stage, out, limit, more)
        print(f"{stage}: {ended}", flush=True)
        failed += [stage] * (ended != "done")
        (out / "report.txt").write_text(report(read(out)) + "\n")
    print(f"\n{report(read(out))}\n\nkept in {out}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def refuse_without_gpu() -> None:
    """Say so and stop."""
    try:
        import cupy
    except ImportError:
        sys.exit(
            "no GPU here: CuPy is not installed (pip install -e '.[cuda12x]', or cuda13x). "
            "The kernels are tested without one: pytest tests/test_cuda_kernels.py"
        )
    if not cupy.is_available():
        sys.exit(
            "no GPU here: CuPy is installed, but finds no device (see nvidia-smi, and "
            "python -c 'import cupy; cupy.show_config()')"
        )


def run(stage: str, out: Path, limit: float, more: list[str]) -> str:
    """Run a stage in a process of its own; "done", or in a line how else it ended."""
    if limit < 1:
        return "left out: the time is up"
    command = [sys.executable, "-m", "benchmarks.gpu", "--stage", stage, "--out", str(out), *more]
    command += ["--seconds", str(limit - 5)]
    log = out / f"{stage}.txt"
    with open(log, "w") as file:
        try:
            done = subprocess.run(
                command, timeout=limit, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT
            )
        except subprocess.TimeoutExpired:
            return f"stopped after {limit:.0f} s"
    if not done.returncode:
        return "done"
    if done.returncode < 0:
        return f"died of signal {-done.returncode}"
    last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    return f"failed: {last[0]}"


def run_here(stage: str, out: Path, asked: argparse.Namespace) -> int:
    """A stage in this process: its exit status."""
    with open(out / f"{stage}.jsonl", "w") as file:

        def tell(**record: Any) -> None:
            print(json.dumps(record), file=file, flush=True)

        try:
            if stage == "tests":
                tests(tell, asked.tests, asked.seconds, several=not asked.tiny)
            else:
                from benchmarks import gpu_stages as stages

                getattr(stages, stage)(tell, stages.TINY if asked.tiny else stages.FULL)
        except Exception as error:
            traceback.print_exc()
            lines = str(error).strip().splitlines() or [""]
            print(f"{type(error).__name__}: {lines[0]}", file=sys.stderr, flush=True)
            return 1
    return 0


def tests(tell: Any, picked: str, seconds: float, several: bool) -> None:
    """`pytest -m gpu`, file by file. A file without a test that passed has failed.

    The long file runs in several processes where pytest can: most of its time is CuPy compiling.
    """
    wrong, stop = [], time.monotonic() + seconds
    for name in TESTS:
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "--maxfail=20", f"tests/{name}"]
        # What a file leaves out for -k is no fault where -k was asked for.
        fine = {0, 5} if picked else {0}
        command += ["-k", picked] if picked else []
        if several and name == TESTS[-1] and find_spec("xdist"):
            command += ["-n", "4"]
        left, both = max(1.0, stop - time.monotonic()), subprocess.STDOUT
        with subprocess.Popen(
            command,
            cwd=ROOT,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=both,
            # What a shell runs in the background ignores it, and so would pytest.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            try:
                said, ended = process.communicate(timeout=left)[0], ""
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)  # pytest says what it had so far
                ended = f"stopped after {left:.0f} s: "
                try:
                    said = process.communicate(timeout=4)[0]
                except subprocess.TimeoutExpired:
                    process.kill()
                    said = process.communicate()[0]
        print(said, flush=True)
        ended += (said.strip().splitlines() or ["it said nothing"])[-1]
        tell(file=name, ended=ended)
        wrong += [f"{name}: {ended}"] * (process.returncode not in fine)
    if wrong:
        raise AssertionError("; ".join(wrong))


def read(out: Path) -> dict[str, list[dict[str, Any]]]:
    """What stages wrote; the line in which one was killed is left out."""
    records: dict[str, list[dict[str, Any]]] = {}
    for path in out.glob("*.jsonl"):
        lines = path.read_text().split("\n")[:-1]
        records[path.stem] = [json.loads(line) for line in lines]
    return records


def report(records: dict[str, list[dict[str, Any]]]) -> str:
    """What the stages found, as text; the tables against the ceilings last.

    "of copy" and "of rows" are parts of what a copy and plain kernels on random rows reached.
    """
    lines = []
    for stage in LIMITS:
        if stage not in records or stage in TABLES:
            continue
        lines += [stage, *("  " + shown(record) for record in records[stage]), ""]
    rates = {(r["what"], r.get("d")): r["rate"] for r in records.get("ceilings", []) if "rate" in r}
    for stage in TABLES:
        if stage not in records:
            continue
        columns = "n", "d", "us", "launches", "of copy", "of rows", "torch/us"
        lines += [stage, heading("step", "ids", *columns)]
        lines += [cell(record, rates) for record in records[stage]]
        lines.append("")
    return "\n".join(lines).rstrip()


def cell(r: dict[str, Any], rates: dict[tuple[str, int | None], float]) -> str:
    """One cell of a table."""
    if "failed" in r:
        return f"{shown(r)}"
    rate = r["floor"] / r["us"] * 1e6
    copy = rates.get(("copy", None))
    rows = rates.get(("gather" if r["step"] in ("lookup", "bag") else "modify", r["d"]))
    return heading(
        r["step"], r["ids"], r["n"], r["d"], f"{r['us']:.1f}", r.get("launches", "-"),
        f"{rate / copy:.0%}" if copy else "-", f"{rate / rows:.0%}" if rows else "-",
        f"{r['torch_us'] / r['us']:.1f}" if r.get("torch_us") else "-",
    )  # fmt: skip


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
