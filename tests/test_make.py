"""make leaves alone what it did not make."""

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
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert theirs.is_dir()
    assert not (tmp_path / ".venv-make").exists()
