"""The benchmark of the kernels, as far as it goes without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gpu

ROOT = Path(__file__).parents[1]


def test_without_a_gpu_it_says_so(tmp_path):
    (tmp_path / "cupy.py").write_text("def is_available():\n    return False\n")
    for path, said in ((tmp_path, "finds no device"), (None, "no GPU here")):
        code = f"import sys; sys.path.insert(0, {str(path)!r}); " if path else ""
        code += "sys.modules['cupy'] = None; " if path is None else ""
        code = f"import sys; {code}from benchmarks import gpu; sys.argv = ['gpu']; gpu.main()"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 1 and "no GPU here" in done.stderr and said in done.stderr


def test_each_part_of_the_ceiling():
    records = {
        "identity": [{"name": "a GPU"}],
        "ceilings": [
            {"what": "copy", "rate": 4e12},
            {"what": "gather", "d": 128, "rate": 3e12},
            {"what": "modify", "d": 128, "rate": 2e12},
            {"what": "launch", "us": 2.5},
        ],
        "grid": [
            {"step": "lookup", "ids": "uniform", "n": 1000, "d": 128, "us": 2.0, "floor": 3_000_000,
             "torch_us": 5.0, "launches": 1},
            {"step": "adam", "ids": "zipf", "n": 1000, "d": 32, "us": 2.0, "floor": 3_000_000,
             "torch_us": None, "launches": 3},
        ],
    }  # fmt: skip
    text = gpu.report(records)
    assert "what copy, 4.00 TB/s" in text and "what launch, us 2.5" in text
    lookup, adam = text.splitlines()[-2:]
    assert lookup.split() == ["lookup", "uniform", "1000", "128", "2.0", "1", "38%", "50%", "2.5"]
    assert adam.split() == ["adam", "zipf", "1000", "32", "2.0", "3", "38%", "-", "-"]
    assert gpu.report({}).startswith("grid")


def test_a_stage_that_hangs_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setitem(gpu.LIMITS, "grid", 0.01)
    assert gpu.run("grid", tmp_path) == "stopped after 0.01 s"


def test_every_stage_is_there():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from benchmarks import gpu_stages

    assert all(callable(getattr(gpu_stages, stage)) for stage in gpu.LIMITS if stage != "tests")
