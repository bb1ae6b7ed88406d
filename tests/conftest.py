"""Makes `cases` importable, runs laws as tests, fails a test that leaves a Tape recording."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tinygrad_sparse import tape

LEFT_OUT = pytest.StashKey()
pytest_plugins = ["tinygrad_sparse.testing.pytest"]

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(config, items):
    """Tests that want a GPU are left out where there is none: counted as deselected."""
    from cuda_machines import has_gpu

    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if wanting and not has_gpu():
        config.hook.pytest_deselected(items=wanting)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
        config.stash[LEFT_OUT] = len(wanting)


def pytest_terminal_summary(terminalreporter, config):
    """Whoever asks for ``-m gpu`` hears why nothing ran; pytest's exit status is 5 then."""
    if "gpu" in config.option.markexpr and config.stash.get(LEFT_OUT, 0):
        why = "CuPy finds no device" if find_spec("cupy") else "CuPy is not installed"
        terminalreporter.write_line(
            f"{config.stash[LEFT_OUT]} tests want a GPU, and there is none ({why}): none ran"
        )


@pytest.fixture
def gpu():
    """``device="cuda"`` computes on the stand-in, and what it counts begins at 0: see `standin`."""
    import standin

    with standin.installed():
        standin.counts.clear()
        yield standin


@pytest.fixture
def launched(gpu, request):
    """The same, with the package's kernels, built by g++: names of those that ran."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: no kernel can run on the CPU")
    import cuda_machines

    machine, names = cuda_machines.Cpu(request.config.cache.mkdir("cuda_on_cpu")), []
    run = machine.launch
    machine.launch = lambda one: (names.append(one.kernel.entry), run(one))[1]
    with gpu.kernels(machine):
        yield names


@pytest.fixture(autouse=True)
def recording_is_left_off():
    yield
    left, tape.state.tape = tape.state.tape, None
    assert left is None, "this test left a Tape recording"
