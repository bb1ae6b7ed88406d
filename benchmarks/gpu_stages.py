"""The stages of `python -m benchmarks.gpu` that need CuPy: each is a function of `tell`.

Times are medians of batches between two events, each batch long enough to be worth timing, over ids
that change from one repeat to the next; tables are far larger than the cache. Nothing is made of
zeros, and no clock or power setting is touched.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache
from statistics import median
from typing import Any

import cupy as cp
import numpy as np

from tinygrad_sparse.backend import cuda
from tinygrad_sparse.backend import numpy as reference
from tinygrad_sparse.optim import rules

Tell = Callable[..., None]
memory = cuda.Memory(cp.empty, lambda x: x.data.ptr)
V = 2**23  # rows of a table: 4.3 GB at d = 128
SETS = 4  # sets of ids that take turns
ENOUGH = 0.05  # seconds of a batch
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
extern "C" __global__ void nothing() {}
"""  # what the hardware does with rows at random, by the plainest kernels there are


@cache
def compiled(kernel: cuda.Kernel) -> Any:
    """A kernel of CuPy's."""
    return cp.RawModule(code=kernel.text, options=cuda.OPTIONS).get_function(kernel.entry)


def launch(one: cuda.Launch) -> None:
    """Launch it on the current stream."""
    compiled(one.kernel)(one.grid, one.block, one.args)


def seconds(
    run: Callable[[Any], object], turns: Sequence[Any] = (None,), batches: int = 5
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
    repeats = max(len(turns), min(2000, int(ENOUGH / max(once, 1e-6))))
    return median(batch(repeats) for _ in range(batches)) / repeats


def identity(tell: Tell) -> None:
    """Which GPU, and what it runs."""
    found = cp.cuda.runtime.getDeviceProperties(0)
    tell(
        name=found["name"].decode(),
        driver=cp.cuda.runtime.driverGetVersion(),
        runtime=cp.cuda.runtime.runtimeGetVersion(),
        cupy=cp.__version__,
        multiprocessors=found["multiProcessorCount"],
        cache=found["l2CacheSize"],
        memory=found["totalGlobalMem"],
    )


def texts(tell: Tell) -> None:
    """Compile what the grid uses."""
    start, kernels = time.perf_counter(), 0
    for step in STEPS:
        for one in plan_of(step, *inputs(100, 128, "uniform", 1000)):
            compiled(one.kernel)
            kernels += 1
    tell(kernels=kernels, seconds=time.perf_counter() - start)


def ceilings(tell: Tell) -> None:
    """What a copy, rows at random and launches cost on this machine."""
    a = cp.random.default_rng(0).random(2**29, np.float32)
    b = cp.empty_like(a)
    tell(what="copy", rate=2 * a.nbytes / seconds(lambda _: cp.copyto(b, a)))
    module = cp.RawModule(code=ROWS, options=cuda.OPTIONS)
    for d in (32, 128, 256):
        rows_at_random(tell, module, 2**20, d)
        cp.get_default_memory_pool().free_all_blocks()
    nothing, x = module.get_function("nothing"), cp.ones(16)
    tell(what="launch", us=1e6 * seconds(lambda _: nothing((1,), (32,), ())))
    tell(what="launch of CuPy's own", us=1e6 * seconds(lambda _: cp.add(x, 1.0, out=x)))


def rows_at_random(tell: Tell, module: Any, n: int, d: int) -> None:
    """Reading n rows, and changing them, by plain kernels."""
    table, lanes = cp.random.default_rng(0).random((V, d), np.float32), min(32, d // 4)
    out = cp.empty((n, d), np.float32)
    sets = [cp.random.permutation(V)[:n].astype(np.int32) for _ in range(SETS)]
    shape = ((n * lanes + 255) // 256,), (lanes, 256 // lanes)
    gather, modify = module.get_function("gather"), module.get_function("modify")
    took = seconds(lambda ids: gather(*shape, (out, table, ids, np.int32(n), np.int32(d))), sets)
    tell(what="gather", d=d, rate=n * (8 * d + 4) / took)
    took = seconds(lambda ids: modify(*shape, (table, ids, np.int32(n), np.int32(d))), sets)
    tell(what="modify", d=d, rate=n * (8 * d + 4) / took)


# -- steps -----------------------------------------------------------------------------------------

STEPS = ("lookup", "coalesce", "sgd", "adagrad", "adam")


def inputs(n: int, d: int, kind: str, rows: int = V) -> tuple[list[Any], Any, Any, list[Any]]:
    """(sets of ids, values, table, two slots)."""
    rng = np.random.default_rng(n + d)
    ids = [cp.asarray(draw(rng, n, kind, rows)) for _ in range(SETS)]
    random = cp.random.default_rng(0)
    values = random.standard_normal((n, d), np.float32)
    table, *slots = (random.random((rows, d), np.float32) + np.float32(0.5) for _ in range(3))
    return ids, values, table, slots


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


def repeated(tell: Tell) -> None:
    """The same bits twice; NumPy's numbers."""
    for step in STEPS[1:]:
        for kind in ("uniform", "zipf"):
            for n in (3000, 200_000):
                ids, values, table, slots = inputs(n, 64, kind, 50_000)
                start = [table.get(), *(s.get() for s in slots)]
                a, b = (once(step, ids, values, start) for _ in range(2))
                same = all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
                far = error(step, ids[0].get(), values.get(), start, a)
                tell(step=step, ids=kind, n=n, same_bits=same, error=far)


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


def captured(tell: Tell) -> None:
    """A step in a CUDA graph, so nothing in it waits; against its launches one by one."""
    for step in STEPS:
        for n in (1000, 16_000):
            launches = list(plan_of(step, *inputs(n, 128, "uniform", 10**6)))  # and the scratch
            launch_all(launches)
            cp.cuda.Device().synchronize()
            with cp.cuda.Stream(non_blocking=True) as stream:
                stream.begin_capture()
                launch_all(launches)
                graph = stream.end_capture()
                in_graph = seconds(lambda g: g.launch(), [graph])
                alone = seconds(launch_all, [launches])
            times = {"eager_us": 1e6 * alone, "graph_us": 1e6 * in_graph}
            tell(step=step, n=n, launches=len(launches), **times)


# -- the grid --------------------------------------------------------------------------------------


def grid(tell: Tell) -> None:
    """Each step from raw ids, against PyTorch on the same ids; what tells most comes first."""
    for n in (2**21, 2**18, 2**14, 2**10):
        for d in (128, 32, 256):
            for kind in ("uniform", "zipf"):
                cells(tell, n, d, kind)
                cp.get_default_memory_pool().free_all_blocks()


def cells(tell: Tell, n: int, d: int, kind: str) -> None:
    """All steps on the same inputs."""
    given = inputs(n, d, kind)
    k = int(np.mean([len(cp.unique(rows)) for rows in given[0]]))
    for step in STEPS:
        plans = [list(plan_of(step, *given, turn=turn)) for turn in range(SETS)]
        many = 1 + len(getattr(rules, step).slots) if step in HYPER else 1
        name = step if step in ("lookup", "coalesce") else "update"
        tell(
            step=step,
            ids=kind,
            n=n,
            k=k,
            d=d,
            us=1e6 * seconds(launch_all, plans),
            floor=cuda.bytes_moved(name, n, k, d, many, many, V=V),
            launches=len(plans[0]),
            torch_us=torch_us(step, *given),
        )


def torch_us(step: str, ids: list[Any], values: Any, table: Any, _: list[Any]) -> float | None:
    """The same step by PyTorch, on the same memory; None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None
    g, p = torch.from_dlpack(values), torch.nn.Parameter(torch.from_dlpack(table))
    made: dict[str, Callable[[], Any]] = {
        "sgd": lambda: torch.optim.SGD([p], lr=0.1),
        "adagrad": lambda: torch.optim.Adagrad([p], lr=0.1),
        "adam": lambda: torch.optim.SparseAdam([p], lr=0.01),
    }
    optimizer = made[step]() if step in made else None

    def run(at: Any) -> None:
        if step == "lookup":
            torch.nn.functional.embedding(at, p.detach())
            return
        gradient = torch.sparse_coo_tensor(at[None], g, p.shape, check_invariants=False)
        if optimizer is None:
            gradient.coalesce()
            return
        p.grad = gradient
        optimizer.step()

    with cp.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        us = 1e6 * seconds(run, [torch.from_dlpack(x) for x in ids], batches=3)
    torch.cuda.empty_cache()
    return us
