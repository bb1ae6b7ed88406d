"""The benchmark of the kernels, as far as it goes without a GPU."""

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import cuda_machines
import numpy as np
import pytest

from benchmarks import gpu, gpu_torch

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
    assert gpu.report({}) == ""


def test_what_a_killed_stage_leaves_is_read_but_for_its_last_line(tmp_path):
    (tmp_path / "grid.jsonl").write_text('{"step": "a"}\n{"step": "b"}\n{"ste')
    assert gpu.read(tmp_path) == {"grid": [{"step": "a"}, {"step": "b"}]}
    text = gpu.report({"grid": [{"step": "others", "n": 9, "failed": "no room"}]})
    assert text.endswith("step others, n 9, failed no room")


def test_stages_fit_into_the_time_that_a_machine_is_lent_for():
    assert sum(gpu.LIMITS.values()) <= 540


def test_every_file_with_tests_that_want_a_gpu_is_run():
    wanting = {
        path.name
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__)
        and re.search(r"mark\.gpu|cuda_machines\.machine\b", path.read_text())
    }
    assert wanting == set(gpu.TESTS)


# -- on the stand-in, started as a user starts it ------------------------------------------------


@pytest.fixture
def started(tmp_path, request):
    """`python -m ...` where ``import cupy`` gives the stand-in."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: no kernel can run on the CPU")
    built = request.config.cache.mkdir("cuda_on_cpu")
    path = ROOT / "tests" / "standin" / "real"
    environment = {**os.environ, "PYTHONPATH": str(path), "CUDA_ON_CPU": str(built)}

    def start(*command, **more):
        return subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, env={**environment, **more},
            capture_output=True, text=True,
        )  # fmt: skip

    return start


SWITCHES = """
from tinygrad_sparse import backend
adapter = backend.adapter_for("cuda")
print(f"debug {adapter.debug}, kernels {adapter.launching.wanted}")
"""


@pytest.mark.parametrize(("said", "on"), [(None, False), ("0", False), ("1", True)])
def test_a_switch_says_on_by_1_and_off_by_0(started, said, on):
    names = "TINYGRAD_SPARSE_DEBUG", "TINYGRAD_SPARSE_KERNELS"
    switches = dict.fromkeys(names, said) if said else {}
    done = started("timeit", "-n1", "-r1", "-s", "import cupy", SWITCHES, **switches)
    assert f"debug {on}, kernels {on or not said}" in done.stdout, done.stderr


def test_every_stage_runs(started, tmp_path):
    picked = "test_ids_wrap or test_check_ids or test_a_formula"
    done = started("benchmarks.gpu", "--tiny", "--out", tmp_path, "--tests", picked)
    assert done.returncode == 0, done.stdout + done.stderr
    for stage in gpu.LIMITS:
        assert f"\n{stage}: done\n" in f"\n{done.stdout}"
    records = gpu.read(tmp_path)
    assert set(records) == set(gpu.LIMITS) and all(records.values())
    assert any("passed" in r["ended"] for r in records["tests"])
    assert all(r["same_bits"] for r in records["repeated"])
    cells = {(r["step"], r["ids"], r["n"], r["d"]) for r in records["grid"]}
    assert len(cells) == len(records["grid"]) == 5 * 2 * 2 * 2
    assert {r["step"] for r in records["steps"]} == {"sgd", "adam", "dense adam"}
    assert (tmp_path / "report.txt").read_text().strip() in done.stdout


def test_a_stage_that_fails_says_so_in_a_line_and_the_next_one_runs(started, tmp_path):
    (tmp_path / "identity.jsonl").write_text('{"name": "of a run before"}\n')
    out = tmp_path, "--budget", "500"
    done = started(
        "benchmarks.gpu", "--tiny", "--only", "tests", "identity", "--out", *out,
        "--tests", "no_such_test and (", CUDA_ON_CPU="",
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr.strip().endswith("failed: tests")
    failed, fine, *_ = done.stdout.splitlines()
    assert failed.startswith("tests: failed: AssertionError: test_cuda_kernels.py: ")
    assert fine == "identity: done" and "name a stand-in" in done.stdout


def test_tests_that_have_no_time_left_are_stopped_and_say_what_they_had(tmp_path, monkeypatch):
    hang = """
import sys, signal
try:
    open(sys.argv[1], "w").close()
    signal.pause()
except KeyboardInterrupt:
    sys.exit("3 passed")
"""
    popen, started = subprocess.Popen, []

    def hanging(command, **more):
        ready = tmp_path / str(len(started))
        process = popen([sys.executable, "-c", hang, ready], **more)
        while not ready.exists():  # the limit begins when it can be stopped, however slow it starts
            assert process.poll() is None
        started.append(command[-1])
        return process

    monkeypatch.setattr(gpu.subprocess, "Popen", hanging)
    told = []
    with pytest.raises(AssertionError, match=r"test_gpu_device\.py: stopped after 1 s: 3 passed"):
        gpu.tests(lambda **record: told.append(record), "", seconds=0, several=False)
    assert started == [f"tests/{name}" for name in gpu.TESTS]
    assert told == [{"file": name, "ended": "stopped after 1 s: 3 passed"} for name in gpu.TESTS]


def test_what_there_is_no_time_for_is_left_out(started, tmp_path):
    done = started("benchmarks.gpu", "--tiny", "--out", tmp_path, "--budget", "0")
    assert done.returncode == 1 and "grid: left out: the time is up" in done.stdout


def test_a_stage_that_hangs_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.sys, "executable", shutil.which("sleep"))
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    command = subprocess.run
    monkeypatch.setattr(gpu.subprocess, "run", lambda c, **more: command([c[0], "60"], **more))
    assert gpu.run("grid", tmp_path, 1.0, []) == "stopped after 1 s"


def test_who_asks_for_tests_on_a_gpu_hears_that_there_is_none(started):
    if cuda_machines.has_gpu():
        pytest.skip("there is a GPU: it is told of nothing that did not run")
    done = started("pytest", "-m", "gpu", "tests/test_cuda_kernels.py", PYTHONPATH="")
    assert "want a GPU" in done.stdout
    assert done.returncode == 5 and "and there is none" in done.stdout


# -- with PyTorch, on its CPU --------------------------------------------------------------------


def test_pytorchs_steps_move_the_memory_that_they_are_given():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ids = torch.tensor([1, 2, 2, 3, 1])
    for step in ("sgd", "adagrad", "adam"):
        table = np.ones((5, 4), np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about checks of sparse tensors
            gpu_torch.bare(step, np.ones((5, 4), np.float32), table)(ids)
        assert (table != 1).any(1).tolist() == [False, True, True, True, False]
    for step in ("sgd", "adam", "dense adam"):
        table = np.ones((5, 4), np.float32)
        gpu_torch.whole(step, table, np.ones(4, np.float32))(ids)
        assert (table != 1).any(1).tolist() == [False, True, True, True, False]
