"""The stages of `python -m benchmarks.gpu` that need CuPy: functions of `tell` and `Sizes`.

Times are medians of batches between two events, each batch long enough to be worth timing, over ids
that change from one repeat to the next; tables are far larger than the cache. Nothing is made of
zeros, and no clock or power setting is touched. Random numbers are the host's: no cuRAND is needed.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

import tinygrad_sparse as ts
from benchmarks import gpu_torch
from tinygrad_sparse import optim
from tinygrad_sparse.backend import cuda
from tinygrad_sparse.backend import numpy as reference
from tinygrad_sparse.optim import rules

Tell = Callable[..., None]


class Sizes(NamedTuple):
    """How much of everything; what tells most comes first in each tuple."""

    rows: int = 2**23  # of a table: 4.3 GB at d = 128. Fewer where the memory is small
    copied: int = 2**29  # numbers of the copy
    at_random: int = 2**20  # rows that the ceilings move
    widths: tuple[int, ...] = (128, 32, 256)
    batches: tuple[int, ...] = (2**21, 2**18, 2**14, 2**10)
    checked: tuple[int, ...] = (3000, 200_000)  # ids of steps that are compared with NumPy's ...
    checked_rows: int = 50_000  # ... and rows of their tables
    captured: tuple[int, ...] = (1000, 16_000)
    dense: int = 200_000  # rows of a table that PyTorch steps all of
    enough: float = 0.05  # seconds of a batch
    repeats: int = 2000  # of a batch, at most


FULL = Sizes()
TINY = Sizes(1000, 2**12, 64, (8, 4), (100, 10), (50,), 200, (20,), 100, 1e-3, 2)

memory = cuda.Memory(cp.empty, lambda x: x.data.ptr)
SETS = 4  # sets of ids that take turns
BLOCK = 2**22  # random numbers that arrays on the device are filled with, again and again
HYPER = {
    "sgd": {"lr": 0.1},
    "adagrad": {"lr": 0.1, "eps": 1e-10, "lr_decay": 0.0, "step": 1},
    "adam": {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "step": 3},
}
ROWS = r"""
struct alignas(16) Four { float x[4]; };
extern "C" __global__ void gather(float* out, const float* table, const int* ids, int n, int d)
{
    const long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= n) return;
    for (int c = 4 * threadIdx.x; c < d; c += 4 * blockDim.x) {
        *(Four*)(out + i * d + c) = *(const Four*)(table + (long long)ids[i] * d + c);
    }
}
extern "C" __global__ void modify(float* table, const int* ids, int n, int d)
{
    const long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= n) return;
    for (int c = 4 * threadIdx.x; c < d; c += 4 * blockDim.x) {
        Four* at = (Four*)(table + (long long)ids[i] * d + c);
        Four four = *at;
        for (int k = 0; k < 4; k++) four.x[k] += 1.0f;
        *at = four;
    }
}
extern "C" __global__ void nothing(int n) {}
"""  # what the hardware does with rows at random, by the plainest kernels there are


@cache
def compiled(kernel: cuda.Kernel) -> Any:
    """A kernel of CuPy's."""
    return cp.RawModule(code=kernel.text, options=cuda.OPTIONS).get_function(kernel.entry)


def launch(one: cuda.Launch) -> None:
    """Launch it on the current stream."""
    compiled(one.kernel)(one.grid, one.block, one.args)


def seconds(
    run: Callable[[Any], object],
    sizes: Sizes,
    turns: Sequence[Any] = (None,),
    batches: int = 5,
) -> float:
    """Median seconds of a run, which is given each of the turns in its turn."""
    for turn in turns:
        run(turn)

    def batch(repeats: int) -> float:
        start, end = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        for k in range(repeats):
            run(turns[k % len(turns)])
        end.record()
        end.synchronize()
        return cp.cuda.get_elapsed_time(start, end) / 1e3

    once = batch(len(turns)) / len(turns)
    repeats = max(len(turns), min(sizes.repeats, int(sizes.enough / max(once, 1e-6))))
    return median(batch(repeats) for _ in range(batches)) / repeats


def filled(shape: tuple[int, ...], low: float = 0.5, high: float = 1.5) -> Any:
    """An array on the device of random float32, the same few millions of them in turn."""
    out = cp.empty(shape, np.float32)
    flat, few = out.reshape(-1), random_numbers(low, high)
    for first in range(0, out.size, BLOCK):
        part = flat[first : first + BLOCK]
        cp.copyto(part, few[: part.size])
    return out


@cache
def random_numbers(low: float, high: float) -> Any:
    return cp.asarray(np.random.default_rng(0).uniform(low, high, BLOCK).astype(np.float32))


def rows_that_fit(sizes: Sizes, d: int) -> int:
    """Rows of a table, so that what two libraries make of it fits into the memory: ten tables."""
    free, _ = cp.cuda.runtime.memGetInfo()
    return min(sizes.rows, int(free // (4 * d * 10)))


def make_room() -> None:
    """Give back what is free, for the next cell or the other library."""
    cp.get_default_memory_pool().free_all_blocks()


def identity(tell: Tell, sizes: Sizes) -> None:
    """Which GPU, and what it runs."""
    found = cp.cuda.runtime.getDeviceProperties(0)
    tell(
        name=found["name"].decode(),
        driver=cp.cuda.runtime.driverGetVersion(),
        runtime=cp.cuda.runtime.runtimeGetVersion(),
        nvrtc=".".join(map(str, cp.cuda.nvrtc.getVersion())),
        cupy=cp.__version__,
        numpy=np.__version__,
        torch=gpu_torch.version(),
        multiprocessors=found["multiProcessorCount"],
        cache=found["l2CacheSize"],
        memory=found["totalGlobalMem"],
        free=cp.cuda.runtime.memGetInfo()[0],
    )


def texts(tell: Tell, sizes: Sizes) -> None:
    """Compile what the grid uses, of each step on its own: few ids, many, packs, single numbers."""
    for step in STEPS:
        start, kernels = time.perf_counter(), set()
        for n in (100, 5000):
            for d in (8, 3):
                for one in plan_of(step, *inputs(n, d, "uniform", 1000)):
                    compiled(one.kernel)
                    kernels.add(one.kernel)
        tell(step=step, kernels=len(kernels), seconds=time.perf_counter() - start)


def ceilings(tell: Tell, sizes: Sizes) -> None:
    """What a copy, rows at random and launches cost on this machine."""
    copies(tell, sizes)
    make_room()
    module = cp.RawModule(code=ROWS, options=cuda.OPTIONS)
    for d in sizes.widths:
        rows_at_random(tell, module, sizes, d)
        make_room()
    nothing, x = module.get_function("nothing"), cp.ones(16)
    given = (np.int32(0),)
    tell(what="launch", us=1e6 * seconds(lambda _: nothing((1,), (32,), given), sizes))
    tell(what="launch of CuPy's own", us=1e6 * seconds(lambda _: cp.add(x, 1.0, out=x), sizes))


def copies(tell: Tell, sizes: Sizes) -> None:
    """What is read and written counts."""
    a = filled((sizes.copied,))
    b = cp.empty_like(a)
    tell(what="copy", rate=2 * a.nbytes / seconds(lambda _: cp.copyto(b, a), sizes))


def rows_at_random(tell: Tell, module: Any, sizes: Sizes, d: int) -> None:
    """Reading rows, and changing them, by plain kernels; no row is there twice."""
    V, lanes = rows_that_fit(sizes, d), min(32, d // 4)
    n = min(sizes.at_random, V)
    table, out, rng = filled((V, d)), cp.empty((n, d), np.float32), np.random.default_rng(d)
    sets = [cp.asarray(rng.permutation(V)[:n].astype(np.int32)) for _ in range(SETS)]
    shape = ((n * lanes + 255) // 256,), (lanes, 256 // lanes)
    gather, modify = module.get_function("gather"), module.get_function("modify")
    last = np.int32(n), np.int32(d)
    took = seconds(lambda ids: gather(*shape, (out, table, ids, *last)), sizes, sets)
    tell(what="gather", d=d, rows=V, rate=n * (8 * d + 4) / took)
    took = seconds(lambda ids: modify(*shape, (table, ids, *last)), sizes, sets)
    tell(what="modify", d=d, rows=V, rate=n * (8 * d + 4) / took)


# -- steps -----------------------------------------------------------------------------------------

STEPS = ("lookup", "coalesce", "sgd", "adagrad", "adam")


def inputs(n: int, d: int, kind: str, rows: int) -> tuple[list[Any], Any, Any, list[Any]]:
    """(sets of ids, values, table, two slots)."""
    rng = np.random.default_rng(n + d)
    ids = [cp.asarray(draw(rng, n, kind, rows)) for _ in range(SETS)]
    table, *slots = (filled((rows, d)) for _ in range(3))
    return ids, filled((n, d), -1.0, 1.0), table, slots


def draw(rng: np.random.Generator, n: int, kind: str, rows: int) -> np.ndarray:
    """Ids as they come: uniform, or by Zipf's law with exponent 1.05, frequent ones anywhere."""
    u = rng.random(n)
    if kind == "uniform":
        return (u * rows).astype(np.int64)
    power = 1.0 - 1.05
    rank = ((rows**power - 1.0) * u + 1.0) ** (1.0 / power)
    return (rank.astype(np.int64) * 2_654_435_761) % rows


def plan_of(
    step: str, ids: list[Any], values: Any, table: Any, slots: list[Any], turn: int = 0
) -> Any:
    """The launches of a step."""
    rows = ids[turn]
    if step == "lookup":
        return cuda.take_rows(memory, table, rows, values)
    if step == "coalesce":
        return cuda.coalesce(memory, rows, values, len(table))
    rule = getattr(rules, step)
    own = slots[: len(rule.slots)]
    return cuda.update(memory, rule.formula, rows, values, table, own, HYPER[step])


def launch_all(launches: list[cuda.Launch]) -> None:
    """A step whose plan was made before."""
    for one in launches:
        launch(one)


def repeated(tell: Tell, sizes: Sizes) -> None:
    """The same bits twice; NumPy's numbers. What is not so is an error, when all is told."""
    wrong = []
    for step in STEPS[1:]:
        for kind in ("uniform", "zipf"):
            for n in sizes.checked:
                ids, values, table, slots = inputs(n, 64, kind, sizes.checked_rows)
                start = [table.get(), *(s.get() for s in slots)]
                a, b = (once(step, ids, values, start) for _ in range(2))
                same = all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
                far = error(step, ids[0].get(), values.get(), start, a)
                tell(step=step, ids=kind, n=n, same_bits=same, error=f"{far:.1e}")
                if not (same and far < 1e-4):
                    wrong.append(f"{step} of {n} {kind} ids")
    if wrong:
        raise AssertionError(f"other bits, or not NumPy's numbers: {', '.join(wrong)}")


def once(step: str, ids: list[Any], values: Any, start: list[np.ndarray]) -> list[np.ndarray]:
    """What a step makes of fresh arrays, on the host."""
    table, *slots = map(cp.asarray, start)
    made = cuda.run(plan_of(step, ids, values, table, slots), launch)
    if step == "coalesce":
        runs, sums = made
        return [a[: int(runs.count[0])].get() for a in (runs.unique, sums)]
    return [a.get() for a in (table, *slots)]


def error(
    step: str, rows: np.ndarray, g: np.ndarray, start: list[np.ndarray], found: list[np.ndarray]
) -> float:
    """How far from the NumPy adapter, of the largest number."""
    wanted = [a.copy() for a in start]
    if step == "coalesce":
        wanted = list(reference.sum_duplicates(rows, g))
    else:
        rule = getattr(rules, step)
        own = wanted[1 : 1 + len(rule.slots)]
        reference.plan_update(rule.formula, rows, g, wanted[0], own, HYPER[step])()
    pairs = zip(found, wanted, strict=True)
    return max(float(abs(a - b).max() / max(1, abs(b).max())) for a, b in pairs)


def captured(tell: Tell, sizes: Sizes) -> None:
    """A step in a CUDA graph, so nothing in it waits; against its launches one by one."""
    for step in STEPS:
        for n in sizes.captured:
            given = inputs(n, 128, "uniform", min(sizes.rows, 10**6))
            launches = list(plan_of(step, *given))  # which keep the scratch alive
            launch_all(launches)  # compiled before the capture
            cp.cuda.Device().synchronize()
            with cp.cuda.Stream(non_blocking=True) as stream:
                stream.begin_capture()
                try:
                    launch_all(launches)
                finally:
                    graph = stream.end_capture()
                in_graph = seconds(lambda g: g.launch(), sizes, [graph])
                alone = seconds(launch_all, sizes, [launches])
                stream.synchronize()
            times = {"eager_us": 1e6 * alone, "graph_us": 1e6 * in_graph}
            tell(step=step, n=n, launches=len(launches), **times)


# -- the grid --------------------------------------------------------------------------------------


def grid(tell: Tell, sizes: Sizes) -> None:
    """Each step from raw ids, by kernels alone, against PyTorch on the same memory."""
    for n in sizes.batches:
        for d in sizes.widths:
            for kind in ("uniform", "zipf"):
                try:
                    cells(tell, sizes, n, d, kind)
                except cp.cuda.memory.OutOfMemoryError as error:
                    tell(step="others", ids=kind, n=n, d=d, failed=str(error))
                make_room()


def cells(tell: Tell, sizes: Sizes, n: int, d: int, kind: str) -> None:
    """All steps on the same inputs."""
    V = rows_that_fit(sizes, d)
    given = ids, values, table, _ = inputs(n, d, kind, V)
    k = distinct(ids)
    for step in STEPS:
        plans = [list(plan_of(step, *given, turn=turn)) for turn in range(SETS)]
        took, launches = seconds(launch_all, sizes, plans), len(plans[0])
        del plans
        make_room()
        tell(
            step=step,
            ids=kind,
            n=n,
            k=k,
            d=d,
            rows=V,
            us=1e6 * took,
            floor=floor_of(step, n, k, d, V),
            launches=launches,
            torch_us=torch_us(sizes, ids, lambda step=step: gpu_torch.bare(step, values, table)),
        )


def steps(tell: Tell, sizes: Sizes) -> None:
    """Whole steps as they are written: lookup, loss, backward, optimizer."""
    for n in sizes.batches[1:]:
        for name, rows in (("sgd", None), ("adam", None), ("dense adam", sizes.dense)):
            d = sizes.widths[0]
            V = min(rows or sizes.rows, rows_that_fit(sizes, d))
            rng = np.random.default_rng(n)
            ids = [cp.asarray(draw(rng, n, "zipf", V)) for _ in range(SETS)]
            step = name.removeprefix("dense ")
            run, k = whole_step(step, filled((V, d)), filled((d,))), distinct(ids)
            tell(
                step=name,
                ids="zipf",
                n=n,
                k=k,
                d=d,
                rows=V,
                us=1e6 * seconds(run, sizes, ids),
                floor=floor_of("lookup", n, k, d, V) + floor_of(step, n, k, d, V),
                torch_us=torch_us(
                    sizes,
                    ids,
                    lambda name=name, V=V, d=d: gpu_torch.whole(name, filled((V, d)), filled((d,))),
                ),
            )
            del run
            make_room()


def whole_step(name: str, table: Any, c: Any) -> Callable[[Any], None]:
    """The gradient of the loss is the same at every step, so nothing grows out of bounds."""
    W, c = ts.parameter(table), ts.tensor(c)
    make = {"sgd": optim.SGD, "adam": optim.Adam}[name]
    opt = make([W], lr=1e-3, sparse="lazy")

    def run(ids: Any) -> None:
        with ts.Tape("raise") as tape:
            loss = (W[ids] * c).sum()
        opt.step(tape.backward(loss))

    return run


def distinct(sets: list[Any]) -> int:
    """How many different ids, of a set of them."""
    return int(np.mean([len(cp.unique(ids)) for ids in sets]))


def floor_of(step: str, n: int, k: int, d: int, V: int) -> int:
    """The fewest bytes: an update moves the table and what the rule keeps for it."""
    many = 1 + len(getattr(rules, step).slots) if step in HYPER else 1
    name = step if step in ("lookup", "coalesce") else "update"
    return cuda.bytes_moved(name, n, k, d, many, many, V=V)


def torch_us(sizes: Sizes, ids: list[Any], make: Callable[[], Any]) -> float | None:
    """The same by PyTorch; None without it, or where it has no room for its own."""
    torch = gpu_torch.loaded()
    if torch is None:
        return None
    try:
        run, turns = make(), [torch.from_dlpack(x) for x in ids]
        with cp.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            return 1e6 * seconds(run, sizes, turns, batches=3)
    except torch.cuda.OutOfMemoryError:
        return None
    finally:
        torch.cuda.empty_cache()
