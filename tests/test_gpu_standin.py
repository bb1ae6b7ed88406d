"""The stand-in catches what it is there for: each fault is planted in code that NumPy would run.

Then what a user meets: devices that are mixed, ids out of range, arrays that move.
"""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import backend, nn, ops, optim
from tinygrad_sparse.backend import numpy as reference
from tinygrad_sparse.errors import DeviceError, RowIndexError, TapeError
from tinygrad_sparse.slices import IndexedSlices, densify
from tinygrad_sparse.tensor import unwrap


@pytest.fixture
def cupy(gpu):
    return gpu.cupy


@pytest.fixture
def x(cupy):
    return cupy.asarray(np.arange(12.0).reshape(4, 3))


def doubled(forward=lambda xp, x: x * 2, vjp=lambda g, out, x: g * 2):
    """An op, in the forward or the VJP of which a fault can be planted."""
    return ts.primitive(rows=ts.elementwise, vjp=(vjp,))(forward)


def backward(op, device):
    W = ts.parameter(np.arange(12.0).reshape(4, 3), device=device)
    with ts.Tape("allow") as tape:
        loss = op(W[[0, 2, 2]]).sum()
    return tape.backward(loss)[W]


FORWARDS = {
    "a function of NumPy's": lambda xp, x: np.clip(np.sum([x, x], axis=0), -1e9, 1e9),
    "np.asarray": lambda xp, x: np.asarray(x) * 2,
    "a constant on the host": lambda xp, x: x * np.full(3, 2.0),
    "ids on the host": lambda xp, x: (x * 2)[np.arange(len(x))],
    "a list of ids": lambda xp, x: (x * 2)[list(range(len(x)))],
    "ids on the host, taken": lambda xp, x: xp.take(x * 2, np.arange(len(x)), axis=0),
    "a function that CuPy lacks": lambda xp, x: x * 2 + 0 * xp.vecdot(x, x)[..., None],
    "a keyword that CuPy lacks": lambda xp, x: x * 2 + 0 * xp.max(x, initial=0.0),
    "reduceat": lambda xp, x: xp.add.reduceat(x * 2, np.arange(len(x)), axis=0),
    "a buffer of NumPy's": lambda xp, x: np.multiply(x, 2, out=np.empty(x.shape)),
    "flags": lambda xp, x: (x * 2) if x.flags.writeable in (True, False) else x,
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARDS)
def test_a_forward_that_leaves_the_device_is_caught(gpu, name):
    op = doubled(FORWARDS[name])
    np.testing.assert_array_equal(backward(op, "cpu").coalesce().indices, [0, 2])
    with pytest.raises((TypeError, AttributeError)):
        backward(op, "cuda")


def test_a_rule_that_leaves_the_device_is_caught(gpu):
    op = doubled(vjp=lambda g, out, x: g * np.full(x.shape, 2.0))
    backward(op, "cpu")
    with pytest.raises(TypeError, match="an array on the host meets the device") as caught:
        backward(op, "cuda")
    assert "in the VJP of" in caught.value.__notes__[0]


WAITS = {
    "item": lambda x: x.item() if x.size == 1 else x.sum().item(),
    "float": lambda x: float(x.sum()),
    "a branch": lambda x: 1 if x.sum() > 0 else 2,
    "get": lambda x: x.get(),
    "a mask as index": lambda x: x[x > 0],
    "nonzero": lambda x: (x > 0).nonzero(),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_inside_a_step_is_counted_and_can_be_refused(gpu, name):
    def forward(xp, x):
        if xp is gpu.cupy:
            WAITS[name](x)
        return x * 2

    W = ts.parameter(np.ones((4, 3)), device="cuda")
    opt = optim.SGD([W], lr=0.1)

    def step(op):
        with ts.Tape() as tape:
            loss = op(W[[0, 2]]).sum()
        opt.step(tape.backward(loss))

    step(doubled())
    assert gpu.counts.syncs == 0
    step(doubled(forward))
    assert gpu.counts.syncs == 1
    with gpu.refuse_syncs(), pytest.raises(RuntimeError, match="waits for the device"):
        step(doubled(forward))


def test_a_write_to_one_row_twice_leaves_either(gpu, cupy):
    seen = set()
    for _ in range(20):
        table = cupy.zeros(3)
        table[cupy.asarray([1, 1])] = cupy.asarray([5.0, 7.0])
        seen.add(table.get()[1])
    assert seen == {5.0, 7.0}


def test_an_optimizer_that_writes_a_repeated_row_without_its_sum_is_caught(gpu, monkeypatch):
    adapter = backend.adapter_for("cuda")

    def careless(formula, rows, values, table, slots, hyper, places=None, cap=None):
        at = rows if places is None else places
        new = adapter.update_rows(formula, rows, values, table, slots, hyper, at)
        return lambda: adapter.put_rows(table, rows, new[0])

    def stepped(device):
        W = ts.parameter(np.zeros((3, 1)), device=device)
        opt = optim.SGD([W], lr=1.0)
        with ts.Tape() as tape:
            loss = (W[[1, 1, 2]] * ts.tensor([[1.0], [2.0], [4.0]], device=device)).sum()
        opt.step(tape.backward(loss))
        return W.numpy().ravel()

    np.testing.assert_array_equal(stepped("cuda"), [0, -3, -4])
    monkeypatch.setattr(adapter, "plan_update", careless)
    results = {tuple(stepped("cuda")) for _ in range(20)}
    assert (0, -3, -4) not in results and len(results) == 2


def test_ids_out_of_range_wrap_as_they_do_in_cupy(cupy, x):
    np.testing.assert_array_equal(x[cupy.asarray([5, -1])].get(), x.get()[[1, 3]])
    np.testing.assert_array_equal(x.take(cupy.asarray([-5]), axis=0).get(), x.get()[[3]])
    cupy.add.at(x, cupy.asarray([4]), 1.0)
    assert x.get()[0, 0] == 1.0


def test_room_is_no_launch_and_full_of_rubbish(gpu, cupy):
    gpu.counts.clear()
    assert np.isnan(cupy.empty((2, 3), np.float32).get()).all()
    assert (cupy.empty_like(cupy.asarray([0, 0])).get() != 0).all()
    assert gpu.counts.launches == 0


def test_what_is_no_array_of_numbers_is_refused(cupy):
    with pytest.raises(ValueError, match="Unsupported dtype object"):
        cupy.asarray(np.array([object()]))
    with pytest.raises(TypeError, match="of a list"):
        cupy.add([1.0], [2.0])
    with pytest.raises(TypeError, match="not allowed"):
        np.asarray(cupy.zeros(2))


def test_ufuncs_and_operators_of_numpy_are_handed_over_to_cupy(cupy, x):
    assert type(np.sqrt(x)) is type(np.float64(2) * x) is type(x)
    np.testing.assert_array_equal(np.maximum(x, 3.0).get(), np.maximum(x.get(), 3.0))
    for mixed in (lambda: np.ones(3) * x, lambda: x + np.ones(3), lambda: np.add(x, np.ones(3))):
        with pytest.raises(TypeError, match="meets the device"):
            mixed()
    with pytest.raises(TypeError, match="reduce"):
        np.add.reduce(x)


ARGS = {
    "numbers of Python's": ((1,), (32,), (7,)),
    "an array on the host": ((1,), (32,), (np.ones(1),)),
    "a number as grid": (1, (32,), ()),
    "a grid of NumPy's numbers": ((np.int64(1),), (32,), ()),
    "an empty grid": ((0,), (32,), ()),
    "too many threads": ((1,), (64, 32), ()),
    "a grid that is too high": ((1, 65536), (32,), ()),
}


@pytest.mark.parametrize("name", ARGS)
def test_a_launch_that_cuda_or_cupy_would_not_do_as_meant_is_refused(launched, cupy, name):
    module = cupy.RawModule(code='extern "C" __global__ void f(int n) {}')
    with pytest.raises((TypeError, ValueError), match=r"^f: "):
        module.get_function("f")(*ARGS[name])
    with pytest.raises(RuntimeError, match="not found"):
        module.get_function("g")


def test_a_captured_launch_runs_when_the_graph_does(launched, cupy):
    code = 'extern "C" __global__ void one_more(float* x) { x[threadIdx.x] += 1; }'
    kernel = cupy.RawModule(code=code).get_function("one_more")
    x = cupy.zeros(32, np.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        kernel((1,), (32,), (x,))
        for waits in (x.get, stream.synchronize, x.sum):
            with pytest.raises(RuntimeError, match="capture"):
                waits()
        graph = stream.end_capture()
    assert not x.get().any()
    for _ in range(2):
        graph.launch()
    np.testing.assert_array_equal(x.get(), 2)
    del x, waits
    with pytest.raises(RuntimeError, match="freed"):
        graph.launch()
    with pytest.raises(RuntimeError, match="legacy"):
        cupy.cuda.Stream(null=True).begin_capture()


# -- devices, as a user meets them ---------------------------------------------------------------


def test_without_cupy_there_is_no_device_cuda(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    monkeypatch.delitem(__import__("sys").modules, "tinygrad_sparse.backend.cupy", raising=False)
    monkeypatch.delattr(backend, "cupy", raising=False)
    with pytest.raises(DeviceError, match=r"device='cuda': expected CuPy 14.2 or later, got"):
        ts.tensor([1.0], device="cuda")


def test_the_first_array_of_cupys_brings_its_adapter(cupy, x):
    assert type(x) not in backend._ADAPTERS
    W = ts.parameter(x)
    assert W.device == "cuda" and unwrap(W) is not x
    assert type(ops.exp(x)) is type(x), "on arrays an op is the function of their library"


def test_values_come_and_go_when_asked(gpu):
    values = np.arange(6.0).reshape(3, 2)
    W = ts.parameter(values, name="W", device="cuda")
    assert (gpu.counts.uploads, gpu.counts.downloads) == (1, 0)
    np.testing.assert_array_equal(W.numpy(), values)
    assert W.to("cuda") is W and W.to("cpu").device == "cpu" and W.to("cpu").name == "W"
    assert W.to("cpu").id != W.id and W.to("cpu").requires_grad
    c = ts.tensor(values, device="cuda")
    assert not c.to("cpu").requires_grad and c.to("cpu")[0, 1].item() == 1.0
    assert repr(c[0]) == "Tensor([0., 1.], float64)"
    with ts.Tape():
        y = W * 2
        with pytest.raises(TapeError, match=r"to: expected a parameter or a constant"):
            y.to("cpu")
    with pytest.raises(DeviceError, match=r"np.asarray: expected a Tensor on the CPU"):
        np.asarray(c)


def test_assignment_to_rows_and_to_all(gpu):
    W = ts.parameter(np.zeros((3, 2)), device="cuda")
    W.assign([[1, 2], [3, 4]], rows=[2, 0])
    np.testing.assert_array_equal(W.numpy(), [[3, 4], [0, 0], [1, 2]])
    W.assign(ts.tensor(np.ones((3, 2)), device="cuda"))
    assert W.numpy().all()
    with pytest.raises(DeviceError, match="assign: expected arrays of one device"):
        W.assign(np.zeros((3, 2)))


@pytest.mark.parametrize("rows", [[1, 9], [-5, 0], [3, -1], [2, 2]])
def test_rows_that_cannot_be_set_are_refused_before_any_is(gpu, cupy, rows):
    errors = []
    for device, put in (("cpu", np.array), ("cuda", cupy.asarray)):
        W = ts.parameter(np.zeros((4, 3)), name="W", device=device)
        with pytest.raises(RowIndexError, match=r"^assign: expected") as caught:
            W.assign(put(np.ones((2, 3))), rows=put(rows))
        errors.append(str(caught.value))
        assert not W.numpy().any()
    assert errors[0] == errors[1]


MIXED = {
    "an operator": lambda W, h: W * h,
    "and back": lambda W, h: h + W,
    "a comparison": lambda W, h: h < W,
    "a product": lambda W, h: W.T @ h,
    "a Tensor": lambda W, h: W - ts.tensor(h),
    "where": lambda W, h: ops.where(h > 0, W, 0.0),
    "concatenate": lambda W, h: ops.concatenate([W, h]),
    "the other first": lambda W, h: ops.concatenate([h, W]),
    "stack": lambda W, h: ops.stack([W, h]),
    "einsum": lambda W, h: ops.einsum("ij,ij->", W, h),
    "index_add": lambda W, h: ops.index_add(W, [0], h[:1]),
    "a mask": lambda W, h: ops.softmax(W, where=h > 0),
    "targets": lambda W, h: nn.mse(W, h),
    "class weights": lambda W, h: nn.cross_entropy(W, [0, 1, 2, 1], weight=h[0]),
    "a seed": lambda W, h: ts.Tape.backward(*_recorded(W), h),
}


def _recorded(W):
    with ts.Tape() as tape:
        return tape, W * 2


@pytest.mark.parametrize("name", MIXED)
def test_devices_are_not_mixed_and_nothing_is_copied_unasked(gpu, name):
    W, h = ts.parameter(np.ones((4, 3)), device="cuda"), np.ones((4, 3))
    gpu.counts.clear()
    with pytest.raises(DeviceError, match=r"expected arrays of one device, got .* on 'cpu' and"):
        MIXED[name](W, h)
    assert gpu.counts.downloads == 0
    MIXED[name](ts.parameter(h), h)


def test_lists_and_numbers_are_on_no_device(gpu):
    W = ts.parameter(np.ones((2, 3)), device="cuda")
    for y in (W * 2.0, ops.index_add(W, 0, [1.0, 2.0, 3.0]), ops.index_set(W, 1, 0.0)):
        assert y.device == "cuda"
    assert nn.mse(W, [[1, 1, 1], [0, 0, 0]]).item() == 0.5


L = [1.0, 3.0, 2.0]
BESIDE = {
    "an operator": lambda W: W * L + L,
    "on the left": lambda W: L @ W.T,
    "NumPy's number": lambda W: W * np.float64(2) - np.float32(0.5),
    "and on the left": lambda W: np.float64(2) / (1 + W * W),
    "a comparison": lambda W: W * (W < L) + W * (W == [0.0, 1.0, 2.0]),
    "where": lambda W: ops.where([True, False, True], W, L),
    "joined": lambda W: ops.concatenate([W, [L]]) + ops.stack([W, W], 0)[0, 0],
    "einsum": lambda W: ops.einsum("ij,j->i", W, L),
    "products": lambda W: ops.dot(W, L) + ops.outer(L, W[0]).sum() + ops.kron(W, L).sum(),
    "tensordot": lambda W: ops.tensordot(L, W, ([0], [1])) + ops.vdot(W[0], L),
    "solve": lambda W: ops.solve(W[:3, :3] @ W[:3, :3].T + np.eye(3).tolist(), L),
    "clip": lambda W: ops.clip(W, [0.5, 1.0, 1.5], np.float64(7)),
    "logistic_loss": lambda W: ops.logistic_loss(W, [0.0, 1.0, 0.5], L),
    "masked": lambda W: ops.softmax(W, where=[True, True, False]),
    "bags": lambda W: ops.embedding_bag(W, [[0, 1], [2]], weights=[[2.0, 0.5], [3.0]]),
    "groups": lambda W: ops.weighted_rows([[[1.0, 2.0]]], W, [[0, 1]]),
    "convolution": lambda W: ops.conv1d(ops.expand_dims(W, 0), [[L[:2]] * 4]),
    "layer_norm": lambda W: nn.layer_norm(W, L, L),
    "a loss": lambda W: nn.bce_with_logits(W, [0.0, 1.0, 1.0], weight=L, pos_weight=[2.0]),
    "class weights": lambda W: nn.cross_entropy(W, [0, 1, 2, 1], weight=L),
    "arrays alone": lambda W: W * ops.add(W.data, L) * ops.where(W.data > 1, W.data, L),
    "padding": lambda W: ops.pad(W, 1, constant_values=np.array(2.0)),
}


@pytest.mark.parametrize("name", BESIDE)
def test_lists_and_numpys_numbers_go_where_the_other_is(gpu, name):
    results = []
    for device in ("cpu", "cuda"):
        W = ts.parameter(np.linspace(0.0, 2.0, 12).reshape(4, 3), device=device)
        with ts.Tape("allow") as tape:
            y = BESIDE[name](W)
            loss = (y * y).sum()
        g = densify(tape.backward(loss)[W])
        results.append((y.dtype, y.numpy(), g if device == "cpu" else g.get()))
    (dtype, *wanted), (other, *got) = results
    assert other == dtype
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-12, 1e-12)


def test_arrays_of_numpy_are_no_lists_whatever_they_are_made_of(gpu, tmp_path):
    W = ts.parameter(np.ones((4, 3)), device="cuda")
    np.save(tmp_path / "x.npy", np.ones((4, 3)))
    for h in (np.load(tmp_path / "x.npy", mmap_mode="r"), np.ones((4, 3), ">f8"), np.array(2.0)):
        for f in (nn.mse, ops.multiply, ops.add, ops.dot):
            gpu.counts.clear()
            with pytest.raises(DeviceError, match="expected arrays of one device"):
                f(W, h)
            assert not gpu.counts.uploads


def test_two_tensors_of_two_devices_are_refused_before_anything_is_computed(gpu):
    W, h = (ts.parameter(np.ones((4, 3)), device=device) for device in ("cuda", "cpu"))
    gpu.counts.clear()
    for f in (nn.mse, nn.cosine_similarity, ops.vdot, ops.kron):
        with pytest.raises(DeviceError, match=rf"^{f.__name__}: expected arrays of one device"):
            f(W, h)
    assert not gpu.counts.launches


def test_a_refusal_leaves_rows_at_rest(gpu):
    """To say where a table is costs none of its rows."""
    W = ts.parameter(np.ones((6, 2)), device="cuda")
    opt = optim.Adam([W], lr=0.1)
    for ids in ([1, 2], [3]):
        with ts.Tape() as tape:
            loss = W[ids].sum()
        opt.step(tape.backward(loss))
    pending = W._pending
    with pytest.raises(DeviceError):
        W.assign(np.ones((6, 2)))
    with pytest.raises(DeviceError):
        backend.refuse_mixed("f", [W, np.ones(2)])
    assert W._pending is pending


@pytest.mark.parametrize("name", ["grad of grad", "hvp", "jvp"])
def test_derivatives_as_functions(gpu, cupy, name):
    x, v = np.linspace(0.2, 1.0, 6).reshape(2, 3), np.arange(6.0).reshape(2, 3)

    def f(x):
        return (ops.tanh(x) * x).sum()

    derive = {
        "grad of grad": lambda x, v: ts.grad(lambda x: (ts.grad(f)(x) * v).sum())(x),
        "hvp": lambda x, v: ts.hvp(f, x, v),
        "jvp": lambda x, v: ts.jvp(lambda x: ops.exp(x) * x, (x,), (v,))[1],
    }[name]
    np.testing.assert_allclose(derive(*map(cupy.asarray, (x, v))).get(), derive(x, v), 1e-12)


# -- row ids ---------------------------------------------------------------------------------------

ERROR = r"take: expected ids in \[0, 4\), got 7 at position 1 \(ids int64 \(3,\), table \(4, 3\)\)"


def test_ids_on_the_host_are_checked_there_and_uploaded_once(gpu):
    W = ts.parameter(np.ones((4, 3)), device="cuda")
    with pytest.raises(RowIndexError, match=ERROR):
        W[[0, 7, 1]]
    gpu.counts.clear()
    ids = np.array([3, -1])
    with gpu.refuse_syncs():
        with ts.Tape("raise") as tape:
            loss = (W[ids] ** 2).sum()
            ids[:] = 0  # copied: what was looked up stays
        g = tape.backward(loss)[W]
    assert gpu.counts.uploads == 1
    np.testing.assert_array_equal(g.indices.get(), [3, 3])


def test_ids_on_the_device_are_checked_there_and_the_error_waits_for_the_next_read(gpu, cupy):
    W = ts.parameter(np.arange(12.0).reshape(4, 3), device="cuda")
    with gpu.refuse_syncs():
        y = W[cupy.asarray([3, -1, -4])]
    np.testing.assert_array_equal(y.numpy(), W.numpy()[[3, -1, -4]])
    with gpu.refuse_syncs():
        y = W[cupy.asarray([0, 7, 1])].sum()
        W[cupy.asarray([0])]
    with pytest.raises(RowIndexError, match=ERROR):
        y.item()
    y.item()  # it was said once


@pytest.mark.parametrize("lookup", [ops.take, ops.embedding_bag, ops.index_add, ops.one_hot])
def test_in_a_table_without_rows_every_id_is_out_of_range_at_once(gpu, cupy, lookup):
    errors = []
    for device, put in (("cpu", np.array), ("cuda", cupy.asarray)):
        W, ids = ts.parameter(np.ones((0, 3)), device=device), put([[2, 0]])
        with pytest.raises(RowIndexError, match=r"expected ids in \[0, 0\), got 2") as caught:
            if lookup is ops.index_add:
                lookup(W, ids, 1.0)
            elif lookup is ops.one_hot:
                lookup(ids, 0)
            else:
                lookup(W, ids)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_under_debug_it_is_said_at_once(gpu, cupy, monkeypatch):
    monkeypatch.setattr(backend.adapter_for("cuda"), "debug", True)
    W = ts.parameter(np.ones((4, 3)), device="cuda")
    with pytest.raises(RowIndexError, match=ERROR):
        W[cupy.asarray([0, 7, 1])]


def test_many_unread_flags_are_read_together(gpu, cupy, monkeypatch):
    monkeypatch.setattr(backend.adapter_for("cuda"), "UNREAD", 8)
    W = ts.parameter(np.ones((4, 3)), device="cuda")
    with pytest.raises(RowIndexError, match="got 9 at position 0"):
        for n in range(8):
            W[cupy.asarray([9 if n == 2 else 1])]
    assert gpu.counts.syncs == 3  # the flags, then which and where


@pytest.mark.parametrize("dtype", ["u1", "i1", "u4"])
def test_ids_of_a_dtype_that_has_not_the_numbers_they_are_compared_with(gpu, cupy, dtype):
    results = []
    for device, put in (("cpu", np.array), ("cuda", cupy.asarray)):
        W = ts.parameter(np.arange(900.0).reshape(300, 3), device=device)
        ids, targets = put(np.array([3, 0], dtype)), put(np.array([2, 1], dtype))
        loss = nn.cross_entropy(W[ids], targets, ignore_index=-100)
        padded = nn.Embedding(300, 2, padding_idx=299, seed=0).to(device)(ids)
        results.append([W[ids].numpy(), loss.numpy(), padded.numpy()])
    for got, wanted in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(got, wanted, 1e-12)


@pytest.mark.parametrize("dtype", ["u1", "u8", "i2", "i4"])
def test_ids_of_any_integer_dtype(gpu, cupy, dtype):
    W = ts.parameter(np.arange(12.0).reshape(4, 3), device="cuda")
    y = W[cupy.asarray(np.array([3, 0], dtype))]
    np.testing.assert_array_equal(y.numpy(), W.numpy()[[3, 0]])
    big = np.array([np.iinfo(dtype).max], dtype)
    with pytest.raises(RowIndexError, match=f"got {big[0]} at"):
        W[cupy.asarray(big)].numpy()


def test_ids_that_are_none_are_refused_at_once(gpu, cupy):
    W = ts.parameter(np.ones((4, 3)), device="cuda")
    with pytest.raises(RowIndexError, match=r"take: expected integer ids, got float64 \(1,\)"):
        W[cupy.asarray([1.0])]
    assert W[cupy.asarray(np.array([]))].shape == (0, 3)


def test_ids_on_the_device_for_a_table_on_the_host(gpu, cupy):
    W = ts.parameter(np.ones((4, 3)))
    with pytest.raises(DeviceError, match=r"take: expected ids on the CPU for an array \(4, 3\)"):
        W[cupy.asarray([1])]


INDICES = {
    "ids": lambda i: i([[2, 0], [1, 1]]),
    "two arrays": lambda i: (i([1, 3]), i([0, 2])),
    "a slice between": lambda i: (i([1, 3]), slice(None, None, 2), i([1, 1])),
    "new axis": lambda i: (None, i([1, 1])),
    "a number and ids": lambda i: (1, i([0, 2])),
    "a mask": lambda i: i([True, False, False, True]),
    "a mask and a slice": lambda i: (i([True, False, False, True]), slice(1, None)),
    "ids and an ellipsis": lambda i: (..., i([0, -1])),
}


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("name", INDICES)
def test_every_index_picks_what_it_picks_on_numpy(gpu, cupy, name, where):
    values = np.arange(24.0).reshape(4, 3, 2)
    results = []
    there = cupy.asarray if where == "device" else np.array
    for device, array in (("cpu", np.array), ("cuda", there)):
        W = ts.parameter(values, device=device)
        with ts.Tape("allow") as tape:
            y = W[INDICES[name](array)]
            loss = (y * y).sum()
        g = tape.backward(loss)[W].to_dense()
        results.append((y.numpy(), g if device == "cpu" else g.get()))
    for got, wanted in zip(results[1], results[0], strict=True):
        np.testing.assert_array_equal(got, wanted)


# -- the adapter's functions -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("row", [(), (3,), (2, 2)])
@pytest.mark.parametrize("n", [0, 1, 50])
def test_the_adapter_computes_what_the_numpy_adapter_computes(gpu, cupy, dtype, row, n):
    adapter, rng = backend.adapter_for("cuda"), np.random.default_rng(n)
    table = rng.normal(size=(9, *row)).astype(dtype)
    rows, values = rng.integers(0, 9, n), rng.normal(size=(n, *row)).astype(dtype)
    starts = np.concatenate([[0], np.sort(rng.integers(0, n + 1, 4)), [n]])
    here = table, rows, values
    there = tuple(map(cupy.asarray, here))
    close = {"f2": 5e-3, "f4": 1e-5, "f8": 1e-12}[dtype]

    def agree(f, *args):
        wanted = f(reference, *here, *args)
        got = f(adapter, *there, *map(cupy.asarray, args))
        for a, b in zip(got, wanted, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a.get(), b, close, close)

    agree(lambda m, t, r, v: [m.take_rows(t, r)])
    agree(lambda m, t, r, v: list(m.sum_duplicates(r, v)))
    agree(lambda m, t, r, v: [m.scatter_rows(r, v, 9)])
    agree(lambda m, t, r, v: [m.scatter_add_rows(m.copy(t), r, v)])
    agree(lambda m, t, r, v: [m.max_rows(r, v, 9)])
    agree(lambda m, t, r, v: [m.count_rows(r, 9)])
    agree(lambda m, t, r, v, s: [m.embedding_bag(t, r, s)], starts)
    agree(lambda m, t, r, v, s, w: [m.embedding_bag(t, r, s, w)], starts, rng.normal(size=n))


def test_maxima_of_rows_with_nan_and_of_integers(gpu, cupy):
    adapter = backend.adapter_for("cuda")
    rows, values = np.array([0, 0, 2]), np.array([np.nan, 1.0, -np.inf])
    got = adapter.max_rows(cupy.asarray(rows), cupy.asarray(values), 4).get()
    np.testing.assert_array_equal(got, [np.nan, -np.inf, -np.inf, -np.inf])
    small = np.array([3, -5, 7], np.int8)
    got = adapter.max_rows(cupy.asarray(rows), cupy.asarray(small), 4)
    np.testing.assert_array_equal(got.get(), reference.max_rows(rows, small, 4))
    assert got.dtype == np.int8


def test_rows_of_a_table_in_another_order_of_memory(gpu, cupy):
    adapter = backend.adapter_for("cuda")
    table = np.arange(24.0).reshape(2, 3, 4)
    turned = cupy.asarray(table).transpose(1, 0, 2)
    got = adapter.take_rows(turned, cupy.asarray([0, 5, 3]), 2)
    np.testing.assert_array_equal(got.get(), table.transpose(1, 0, 2).reshape(6, 4)[[0, 5, 3]])


def test_slices_on_the_device(gpu, cupy):
    values = cupy.asarray(np.arange(6.0).reshape(3, 2))
    g = IndexedSlices([2, 0, 2], values, (4, 2))
    assert type(g.indices) is type(values)
    np.testing.assert_array_equal((g + g).to_dense().get(), [[4, 6], [0, 0], [8, 12], [0, 0]])
    np.testing.assert_array_equal((g * 2).coalesce().values.get(), [[4, 6], [8, 12]])
    np.testing.assert_allclose(g.norm().get(), np.sqrt(4 + 9 + 16 + 36))
    assert g.coalesce().indices.get().tolist() == [0, 2]
