"""make leaves alone what it did not make."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("given", [None, "mine"])
def test_an_environment_of_the_users_stays_as_it_is(tmp_path, given):
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    theirs = tmp_path / (given or ".venv") / "lib" / "kept"
    theirs.mkdir(parents=True)
    command = ["make", f"PYTHON={sys.executable}", "INSTALL=true"]
    command += [f"VENV={given}", f"{given}/.test"] if given else [".venv-make/.test"]
    # These tests may run under make, which would hand its own variables on.
    env = {k: v for k, v in os.environ.items() if k != "VENV" and not k.startswith("MAKE")}
    for line in (command, ["make", "clean"]):
        subprocess.run(line, cwd=tmp_path, env=env, check=True, capture_output=True)
    assert theirs.is_dir()
    assert not (tmp_path / ".venv-make").exists()
