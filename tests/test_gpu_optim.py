"""Optimizers, clipping and layers on the stand-in for a GPU: what NumPy gives, and no waits."""

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import nn, ops, optim
from tinygrad_sparse.errors import ArgumentError, DeviceError
from tinygrad_sparse.slices import densify

V, d = 40, 3
OPTIMIZERS = {
    "sgd": lambda p, **more: optim.SGD(p, lr=0.1, **more),
    "momentum": lambda p, **more: optim.SGD(p, lr=0.1, momentum=0.9, **more),
    "decay": lambda p, **more: optim.SGD(p, lr=0.1, weight_decay=0.01, **more),
    "adagrad": lambda p, **more: optim.Adagrad(p, lr=0.1, **more),
    "rowwise": lambda p, **more: optim.RowwiseAdagrad(p, lr=0.1, **more),
    "rmsprop": lambda p, **more: optim.RMSprop(p, lr=0.1, **more),
    "centered": lambda p, **more: optim.RMSprop(p, lr=0.1, eps=0.1, centered=True, **more),
    "adam": lambda p, **more: optim.Adam(p, lr=0.1, **more),
    "adamw": lambda p, **more: optim.AdamW(p, lr=0.1, **more),
    "amsgrad": lambda p, **more: optim.Adam(p, lr=0.1, amsgrad=True, **more),
    "nadam": lambda p, **more: optim.NAdam(p, lr=0.1, **more),
    "adadelta": lambda p, **more: optim.Adadelta(p, lr=0.1, **more),
    "ftrl": lambda p, **more: optim.FTRL(p, lr=0.1, l1=0.01, **more),
}

pytestmark = pytest.mark.usefixtures("gpu")


def batches(steps=6):
    rng = np.random.default_rng(0)
    return [rng.integers(0, V, (5, 2)) for _ in range(steps)]


def table(dtype="float64"):
    return np.random.default_rng(1).normal(size=(V, d)).astype(dtype)


def step(W, opt, ids, **more):
    with ts.Tape("raise") as tape:
        rows = W[ids]
        loss = (rows * rows * 0.5 + rows).sum()
    grads = tape.backward(loss)
    opt.step(grads, **more)
    return loss


def trained(make, device, dtype="float64", **settings):
    W = ts.parameter(table(dtype), device=device)
    opt = make([W], **settings)
    for ids in batches():
        step(W, opt, ids)
    return W, opt


def test_what_a_formula_answers_is_from_before_the_step():
    @optim.rule(slots=("here", "there"), still=True)
    def remembering(p, g, here, there, *, lr):
        return p - lr * g, there, p

    W = ts.parameter(np.ones((3, 4)), device="cuda")
    opt = optim.Optimizer(remembering, [W], lr=0.5)
    for _ in range(2):
        with ts.Tape() as tape:
            loss = W.sum()
        opt.step(tape.backward(loss))
    slots = opt.state_dict()["slots"][0]
    assert [a.flat[0] for a in (W.numpy(), *slots)] == [0.0, 1.0, 0.5]


def test_a_gradient_that_is_a_parameters_values_is_read_before_the_step_changes_them():
    a, b = np.random.default_rng(0).normal(size=(2, 30, d))
    A, B = ts.parameter(a, device="cuda"), ts.parameter(b, device="cuda")
    order = np.random.default_rng(1).permutation(30)
    grads = ts.GradStore()
    grads[A] = ts.IndexedSlices(order, A.data, a.shape)
    grads[B] = A.data
    optim.SGD([A, B], lr=0.5).step(grads)
    np.testing.assert_allclose(A.numpy()[order], a[order] - 0.5 * a)
    np.testing.assert_allclose(B.numpy(), b - 0.5 * a)


@pytest.mark.parametrize("sparse", ["lazy", "exact"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_moves_rows_as_on_numpy(name, sparse):
    (here, mine), (there, theirs) = (
        trained(OPTIMIZERS[name], device, sparse=sparse) for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=1e-10, atol=1e-12)
    for a, b in zip(mine.state_dict()["slots"], theirs.state_dict()["slots"], strict=True):
        for slot, other in zip(a, b, strict=True):
            assert type(other) is np.ndarray
            np.testing.assert_allclose(other, slot, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [{"average": 0.9}, {"count": "row", "sparse": "lazy"}, {"maximize": True}],
    ids=["average", "count", "maximize"],
)
def test_settings_mean_what_they_mean_on_numpy(settings):
    (here, mine), (there, theirs) = (
        trained(optim.Adam, device, lr=0.1, **settings) for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=1e-10)
    if "average" not in settings:
        return
    np.testing.assert_allclose(theirs.averages(there).get(), mine.averages(here), rtol=1e-10)
    with theirs.averaged():
        np.testing.assert_allclose(there.numpy(), mine.averages(here), rtol=1e-10)
    np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=1e-10)


@pytest.mark.parametrize("master", [False, True])
def test_half_precision_is_computed_in_single(master):
    (here, _), (there, _) = (
        trained(optim.Adam, device, "float16", lr=0.1, sparse="lazy", master=master)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=2e-2)


KEPT = {
    "": {},
    "an average": {"average": 0.9},
    "steps of each row": {"count": "row", "sparse": "lazy"},
    "a copy in float32": {"master": True},
}


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("sparse", ["lazy", "exact"])
@pytest.mark.parametrize("there", ["cpu", "cuda"])
@pytest.mark.parametrize("here", ["cpu", "cuda"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_saved_state_goes_on_on_any_device(name, here, there, sparse, kept):
    if kept == "steps of each row" and name == "nadam":
        return  # which keeps numbers of all steps, and says so
    settings = {"sparse": sparse, **KEPT[kept]}
    dtype, close = ("float16", 3e-2) if kept == "a copy in float32" else ("float64", 1e-9)
    W, opt = trained(OPTIMIZERS[name], here, dtype, **settings)
    state, values = opt.state_dict(), W.numpy()
    W = ts.parameter(values, device=here)  # rounded as it was saved
    opt = OPTIMIZERS[name]([W], **settings)
    copy = ts.parameter(values, device=there)
    again = OPTIMIZERS[name]([copy], **settings)
    for one in (opt, again):
        one.load_state_dict(state)
    for ids in batches(3):
        step(W, opt, ids)
        step(copy, again, ids)
    np.testing.assert_allclose(copy.numpy(), W.numpy(), close, close)
    for a, b in zip(opt.state_dict()["slots"][0], again.state_dict()["slots"][0], strict=True):
        assert type(a) is type(b) is np.ndarray
        np.testing.assert_allclose(b, a, close, close)


def test_gradients_of_parts_of_rows_and_of_whole_tables():
    results = []
    for device in ("cpu", "cuda"):
        Q, b = ts.parameter(table(), device=device), ts.parameter(np.ones(d), device=device)
        opt = optim.Adam([Q, b], lr=0.1, sparse="lazy")
        for ids in batches():
            with ts.Tape("raise") as tape:
                loss = (Q[ids[:, 0], ids[:, 1] % d] ** 2).sum() + (Q[ids[:, 1]] * b).sum()
            opt.step(tape.backward(loss))
        results.append((Q.numpy(), b.numpy()))
    for got, wanted in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10)


CLIPS = {
    "norm": lambda grads: optim.clip_grad_norm(grads, 0.5),
    "norm of order 1": lambda grads: optim.clip_grad_norm(grads, 0.5, ord=1),
    "value": lambda grads: optim.clip_grad_value(grads, 0.1),
    "rows": lambda grads: optim.clip_grad_rows(grads, 0.2),
    "sum": lambda grads: grads + grads * 0.5,
    "dense": lambda grads: grads.to_dense(),
}


@pytest.mark.parametrize("name", CLIPS)
def test_what_a_gradstore_does(name):
    results = []
    for device in ("cpu", "cuda"):
        W, b = ts.parameter(table(), device=device), ts.parameter(np.ones(d), device=device)
        with ts.Tape() as tape:
            loss = (W[batches()[0]] ** 2 * b).sum()
        grads = CLIPS[name](tape.backward(loss))
        norm = grads.norm()
        dense = [densify(g) for _, g in grads.items()]
        results.append([norm, *[g if device == "cpu" else g.get() for g in dense]])
    for got, wanted in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


class Model(nn.Module):
    def __init__(self):
        self.table = nn.Embedding(V, d, seed=0, padding_idx=0)
        self.bag = nn.EmbeddingBag(V, d, mode="mean", seed=1)
        self.norm = nn.LayerNorm(d)
        self.drop = nn.Dropout(0.3, seed=2)
        self.out = nn.Linear(d, 4, seed=3)

    def __call__(self, ids):
        hidden = self.table(ids[:, 0]) + self.bag(ids)
        return self.out(self.drop(self.norm(hidden)))


def test_a_model_trains_as_on_numpy_once_it_was_moved():
    results = []
    for device in ("cpu", "cuda"):
        model = Model()
        before = model.parameters()
        model.to(device)
        assert model.parameters() == before and {p.device for p in before} == {device}
        opt = optim.Adam(model.parameters(), lr=0.05, sparse="lazy")
        for ids in batches():
            with ts.Tape("raise") as tape:
                loss = nn.cross_entropy(model(ids), ids[:, 1] % 4)
            opt.step(tape.backward(loss))
        results.append(model.state_dict())
    for device, state in zip(("cuda", "cpu"), results, strict=True):  # each on the other device
        other = Model().to(device)
        other.load_state_dict(state)
        assert {p.device for p in other.parameters()} == {device}
        for name, values in other.state_dict().items():
            np.testing.assert_array_equal(values, state[name])
    for name, values in results[0].items():
        np.testing.assert_allclose(results[1][name], values, rtol=1e-4, atol=1e-6, err_msg=name)


def test_an_optimizer_made_before_the_move_says_so():
    W = ts.parameter(table())
    opt = optim.Adam([W], lr=0.1)
    step(W, opt, [1])
    model = nn.Module()
    model.W = W
    model.to("cuda")
    with pytest.raises(DeviceError, match=r"Adam: expected parameters where they were, got"):
        step(W, opt, [1])


# -- what a step costs -----------------------------------------------------------------------------


def counted(standin, W, opt, ids, **more):
    """(launches, uploads, syncs) of a step."""
    standin.counts.clear()
    step(W, opt, ids, **more)
    counts = standin.counts
    assert not counts.downloads
    return counts.launches, counts.uploads, counts.syncs


# Those that docs/gpu.md tells, of plain steps and of those with `clip_rows`.
LAUNCHES = {"sgd": (25, 44), "adam": (40, 59), "rowwise": (34, 53)}


@pytest.mark.parametrize("more", [{}, {"clip_rows": 0.5}], ids=["", "clip_rows"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_waits_for_nothing_and_costs_the_same_every_time(gpu, name, more):
    W = ts.parameter(table("float32"), device="cuda")
    opt = OPTIMIZERS[name]([W], sparse="lazy")
    counted(gpu, W, opt, batches()[0], **more)  # makes room for its state
    costs = {counted(gpu, W, opt, ids, **more) for ids in batches()}
    ((launches, uploads, syncs),) = costs
    assert (uploads, syncs) == (1, 0)
    assert launches == (LAUNCHES[name][len(more)] if name in LAUNCHES else launches) <= 75


def word2vec_step(tables, opt, centers, contexts, negatives):
    U, C = tables
    with ts.Tape("raise") as tape:
        u = U[centers]
        right = ops.sum(u * C[contexts], -1)
        wrong = ops.einsum("bd,bkd->bk", u, C[negatives])
        loss = ops.softplus(-right).sum() + ops.softplus(wrong).sum()
    opt.step(tape.backward(loss))


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_word2vec_step_waits_for_nothing(gpu, name):
    tables = [ts.parameter(np.ones((500, d), np.float32), device="cuda") for _ in range(2)]
    opt = OPTIMIZERS[name](tables, sparse="lazy")
    rng, costs = np.random.default_rng(0), []
    for _ in range(4):
        ids = rng.integers(0, V, 8), rng.integers(0, V, 8), rng.integers(0, V, (8, 5))
        gpu.counts.clear()
        with gpu.refuse_syncs():
            word2vec_step(tables, opt, *ids)
        costs.append((gpu.counts.launches, gpu.counts.uploads, gpu.counts.syncs))
    assert len(set(costs[1:])) == 1 and costs[1][1:] == (3, 0)  # the first makes room for state


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(V,), (V, d), (V, 2, 2)])
def test_rows_are_shortened_without_a_wait(gpu, shape, dtype):
    results = []
    for device in ("cpu", "cuda"):
        values = np.linspace(-3, 3, np.prod(shape)).reshape(shape).astype(dtype)
        W = ts.parameter(values, device=device)
        opt = optim.SGD([W], lr=0.5)
        with ts.Tape("raise") as tape:
            loss = (W[[3, 8, 3, 20]] ** 2).sum()
        grads = tape.backward(loss)
        gpu.counts.clear()
        opt.step(grads, clip_rows=1.0)
        assert not gpu.counts.syncs or dtype == "float16"  # its rows are summed before the step
        results.append(W.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6 if dtype != "float16" else 1e-2)


@pytest.mark.parametrize("large", [1e25, np.inf, np.nan])
def test_a_row_without_a_length_is_told_later_and_not_stepped(gpu, large):
    W = ts.parameter(np.ones((V, d), np.float32), device="cuda")
    with ts.Tape() as tape:
        loss = (W[[1, 2]] * ts.tensor([[1e30], [large]], device="cuda").astype("f4")).sum()
    optim.SGD([W], lr=0.5).step(tape.backward(loss), clip_rows=1.0)
    if large == 1e25:  # squares overflow, lengths do not
        np.testing.assert_allclose(W.numpy()[1:3], 1 - 0.5 / np.sqrt(d), rtol=1e-6)
        return
    with pytest.raises(ArgumentError, match=f"clip_grad_rows: expected a finite norm, got {large}"):
        W.numpy()
    np.testing.assert_allclose(W.numpy()[1:3, 0], [1 - 0.5 / np.sqrt(d), 1], rtol=1e-6)


def test_a_table_on_a_file_stays_on_the_cpu(tmp_path):
    W = ts.parameter_file(tmp_path / "table.npy", (V, d))
    model = nn.Module()
    model.W = W
    for move in (W.to, model.to):
        with pytest.raises(DeviceError, match=r"to: expected an array in memory, got .* on a file"):
            move("cuda")
    assert W.to("cpu") is W


def test_rows_at_rest_catch_up_with_few_waits(gpu):
    (here, mine), (there, theirs) = (
        trained(optim.Adam, device, lr=0.1, sparse="exact") for device in ("cpu", "cuda")
    )
    gpu.counts.clear()
    theirs.flush()
    assert gpu.counts.syncs <= 7  # which are late, once each, who is sure, and what is left
    mine.flush()
    np.testing.assert_allclose(there.numpy(), here.numpy(), rtol=1e-10)
