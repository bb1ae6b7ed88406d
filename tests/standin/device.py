"""`cupy.cuda`, as far as benchmarks want it: streams, events, graphs, what is known of the device.

Work is done at once, so an event's time is the host's. A capture is stricter than CuPy's: it takes
kernels of RawModule alone, refuses whatever waits, and a graph that is launched wants the arrays of
its kernels to be alive, of which CuPy keeps the addresses only.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from .arrays import capturing, ndarray, wait


class Event:
    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.at: float | None = None

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        wait("an event")


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds."""
    if start_event.at is None or end_event.at is None:
        raise RuntimeError("cudaErrorInvalidResourceHandle: an event was not recorded")
    return 1e3 * (end_event.at - start_event.at)


class Stream:
    """One stream is like another here; only the default one cannot capture."""

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False,
        priority: int | None = None,
    ) -> None:  # fmt: skip
        self.ptr = 0 if null else id(self)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *args: Any) -> None:
        pass

    def synchronize(self) -> None:
        wait("a stream")

    def begin_capture(self, mode: int | None = None) -> None:
        if not self.ptr:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        capturing.append([])

    def end_capture(self) -> Graph:
        return Graph(capturing.pop())


class ExternalStream(Stream):
    def __init__(self, ptr: int, device_id: int = -1) -> None:
        self.ptr = ptr


class Graph:
    def __init__(self, launches: list[Any]) -> None:
        self._launches = launches

    def launch(self, stream: Any = None) -> None:
        for launch, args in self._launches:
            launch(tuple(alive(x) if type(x) is weakref.ref else x for x in args))


def captured(launch: Callable[[Any], None], args: tuple[Any, ...]) -> None:
    """Keep a launch for the graph: of arrays no more than where they are."""
    capturing[-1].append((launch, [weakref.ref(x) if type(x) is ndarray else x for x in args]))


def alive(x: Any) -> Any:
    array = x()
    if array is None:
        raise RuntimeError("a graph was launched whose arrays are freed")
    return array


class Device:
    def __init__(self, device: int | None = None) -> None:
        self.id = device or 0

    def synchronize(self) -> None:
        wait("the device")


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory has it."""


PROPERTIES = {
    "name": b"a stand-in", "multiProcessorCount": 1, "l2CacheSize": 2**20, "totalGlobalMem": 2**32,
}  # fmt: skip

cuda = SimpleNamespace(
    Event=Event,
    Stream=Stream,
    ExternalStream=ExternalStream,
    Device=Device,
    get_elapsed_time=get_elapsed_time,
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
    runtime=SimpleNamespace(
        getDeviceProperties=lambda device: dict(PROPERTIES),
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
        memGetInfo=lambda: (2**31, 2**32),
    ),
)


def get_default_memory_pool() -> Any:
    return SimpleNamespace(free_all_blocks=lambda stream=None: None)
