"""Makes `cases` importable, runs laws as tests, fails a test that leaves a Tape recording."""

import sys
from pathlib import Path

import pytest

from tinygrad_sparse import tape

pytest_plugins = ["tinygrad_sparse.testing.pytest"]

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def gpu():
    """``device="cuda"`` computes on the stand-in, and what it counts begins at 0: see `standin`."""
    import standin

    with standin.installed():
        standin.counts.clear()
        yield standin


@pytest.fixture(autouse=True)
def recording_is_left_off():
    yield
    left, tape.state.tape = tape.state.tape, None
    assert left is None, "this test left a Tape recording"
