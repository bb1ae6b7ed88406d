"""Arrays on the wrong device, for all that takes arrays: an error that says so, never a copy.

Ops, losses and their gradients come from the case table, so that a new one is asked too; the rest
of what is public is listed here, and a test sees to it that nothing is missing.
"""

import re
from dataclasses import replace
from types import FunctionType

import numpy as np
import pytest
import standin
from cases import CASES
from test_gpu_optim import OPTIMIZERS

import tinygrad_sparse as ts
from tinygrad_sparse import nn, ops, optim, testing
from tinygrad_sparse.errors import DeviceError
from tinygrad_sparse.nn.soft_tree import gate_logits, leaf_update
from tinygrad_sparse.testing.places import home, placed

pytestmark = pytest.mark.usefixtures("gpu")
OTHER = {"cpu": "cuda", "cuda": "cpu"}
PUBLIC = {getattr(m, name) for m in (ops, nn) for name in m.__all__}


VALUES = np.arange(18.0).reshape(6, 3)


def parameter(device):
    return ts.parameter(VALUES, name="W", device=device)


def array(device, x=VALUES):
    return ts.tensor(x, device=device)._data


@pytest.fixture(params=OTHER, ids=lambda here: f"{here} given {OTHER[here]}")
def here(request):
    return request.param


SAYS = re.compile(r"[\w.*+ ]+: expected .*, got .* Hint: .*\.", re.DOTALL)


def refused(gpu, f, *args, reads=False):
    """Whether a DeviceError is raised: it names who raises it and has a hint, and is no copy.

    `reads`: of what has to come to the host anyhow, as a norm has.
    """
    gpu.counts.clear()
    try:
        f(*args)
    except DeviceError as error:
        assert SAYS.fullmatch(str(error)) and (reads or not gpu.counts.downloads), error
        return True
    return False


# -- the case table ------------------------------------------------------------------------------


def forms(case):
    """How a case is given arrays: as they are too, where its function is ours to say no."""
    yield ts.tensor
    yield ts.parameter
    if case.function in PUBLIC:
        yield lambda x, device: placed(x, device)


def on(device, x, form):
    return form(x, device=device) if x.dtype.kind == "f" else placed(x, device)


def floats_of_two_devices_are_refused(gpu, here, case):
    """Whichever is the odd one out; ids are on the host."""
    drawn = case.draw()
    floats = [k for k, x in enumerate(drawn) if x.dtype.kind == "f"]
    for form in forms(case):
        for odd in floats if len(floats) > 1 else []:
            places = ["cpu"] * len(drawn)
            for k in floats:
                places[k] = OTHER[here] if k == odd else here
            given = [on(place, x, form) for place, x in zip(places, drawn, strict=True)]
            assert refused(gpu, recorded, case, given), f"{case}: argument {odd} elsewhere is taken"
            for x, was in zip(given, drawn, strict=True):
                np.testing.assert_array_equal(home(x), was)


def recorded(case, given):
    with ts.Tape("allow"):
        return case(*given)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_floats_of_two_devices_are_refused(gpu, here, case):
    floats_of_two_devices_are_refused(gpu, here, case)


COPIES = {
    "from the host": lambda xp, x, y: x + xp.asarray(y),
    "to the host": lambda xp, x, y: x + (y.get() if hasattr(y, "get") and xp is np else y),
    "to the device": lambda xp, x, y: x + (y if type(y) is type(x) else placed(home(y), "cuda")),
}


@pytest.mark.parametrize("name", COPIES)
def test_an_op_that_copies_unasked_is_caught(gpu, name):
    op = ts.primitive(rows=ts.elementwise, vjp=(lambda g, out, x, y: g,) * 2)(COPIES[name])
    case = testing.Case(op, [testing.normal(5, 3), testing.normal(5, 3)])
    case(*case.draw())
    with pytest.raises(AssertionError):
        floats_of_two_devices_are_refused(gpu, "cuda", case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ids_are_uploaded_or_refused(gpu, case):
    """Ids on a GPU are never brought home; those on the host may go where the floats are."""
    drawn = case.draw()
    ids = [k for k, x in enumerate(drawn) if x.dtype.kind != "f"]
    wanted = home(case(*drawn))
    if len(ids) < len(drawn):
        for k in ids:
            given = [on("cuda" if j == k else "cpu", x, ts.tensor) for j, x in enumerate(drawn)]
            assert refused(gpu, case, *given), f"{case}: argument {k} on a GPU is taken"
    for there in ([], ids, *([k] for k in ids)):
        moved = [x.dtype.kind == "f" or k in there for k, x in enumerate(drawn)]
        places = ["cuda" if m else "cpu" for m in moved]
        given = [on(place, x, ts.tensor) for place, x in zip(places, drawn, strict=True)]
        # Refused is what is no id: targets, masks; and two arrays of one index, apart.
        if not refused(gpu, case, *given):
            np.testing.assert_allclose(home(case(*given)), wanted, 1e-10, 1e-10)


def is_array(x):
    return isinstance(x, np.ndarray) or (type(x) is ts.Tensor and not x.requires_grad)


def constants_on(device, case):
    """The case with its static arrays there, and those known by a name in capitals; None: none."""
    f, static = case.function, {k: x for k, x in case.static.items() if is_array(x)}
    known = {}
    if getattr(f, "__name__", "") == "<lambda>":
        names = {n: f.__globals__[n] for n in f.__code__.co_names if n.isupper()}
        known = {n: array(device, x) for n, x in names.items() if is_array(x)}
        f = FunctionType(f.__code__, {**f.__globals__, **known}, closure=f.__closure__)
    moved = {k: array(device, x) for k, x in static.items()}
    return replace(case, function=f, static={**case.static, **moved}) if known or moved else None


@pytest.mark.parametrize("case", [c for c in CASES if constants_on("cpu", c)], ids=str)
def test_constants_of_another_device_are_refused_or_as_ids(gpu, here, case):
    there, drawn = constants_on(OTHER[here], case), case.draw()
    given = [on(here if x.dtype.kind == "f" else "cpu", x, ts.tensor) for x in drawn]
    if not refused(gpu, there, *given):
        assert here == "cuda", "nothing comes from a GPU unasked"
        np.testing.assert_allclose(home(there(*given)), home(case(*drawn)), 1e-10)


# -- all else that is public ---------------------------------------------------------------------


def rows(device):
    return ts.IndexedSlices([1, 2, 1], array(device, VALUES[:3]), VALUES.shape)


def store(W, dense=False):
    with ts.Tape() as tape:
        loss = ((W if dense else W[[1, 2, 1]]) ** 2).sum()
    return tape.backward(loss)


def moved(W, device):
    model = nn.Module()
    model.W = W
    model.to(device)


def stale(here, there, dense=False):
    """(a parameter, a gradient of it from before it was moved)."""
    W = parameter(there)
    grads = store(W, dense)
    moved(W, here)
    standin.counts.clear()  # of the copy that was asked for
    return W, grads


def recorded_product(device):
    with ts.Tape() as tape:
        return tape, parameter(device) * 2


def loaded_model(here, there):
    model = nn.Linear(3, 2, seed=0).to(here)
    model.load_state_dict({k: array(there, x) for k, x in model.state_dict().items()})


def loaded_optimizer(here, there):
    W = parameter(here)
    opt = optim.Adam([W], lr=0.1, sparse="lazy")
    opt.step(store(W))
    state = opt.state_dict()
    state["slots"] = [[array(there, slot) for slot in one] for one in state["slots"]]
    opt.load_state_dict(state)


def stepped(here, there, **more):
    W, grads = stale(here, there)
    optim.SGD([W], lr=0.1).step(grads, **more)


def penalised_twice(here, there):
    penalty = nn.PathPenalty(1, 1.0)
    for device in (here, there):
        penalty(ts.tensor(np.log([[1.0, 0.4, 0.6]]), device=device))


ELSEWHERE = {
    "GradStore.__setitem__": [
        lambda here, there: store(W := parameter(here)).__setitem__(W, array(there)),
        lambda here, there: store(W := parameter(here)).__setitem__(W, rows(there)),
        lambda here, there: store(W := parameter(here)).__setitem__(W, ts.tensor(array(there))),
    ],
    "GradStore.map": [lambda here, there: store(parameter(here)).map(lambda g: rows(there))],
    "GradStore.__add__": [
        lambda here, there: (s := stale(here, there))[1] + store(s[0]),
        lambda here, there: store((s := stale(here, there))[0]) + s[1],
        lambda here, there: store((s := stale(here, there, True))[0], True) + s[1],
    ],
    "IndexedSlices": [
        lambda here, there: ts.IndexedSlices(array("cuda", np.array([1])), array("cpu", VALUES[:1]),
                                             VALUES.shape)
    ],
    "IndexedSlices.__add__": [
        lambda here, there: rows(here) + rows(there),
        lambda here, there: rows(here) + array(there),
        lambda here, there: rows(here) + ts.tensor(array(there)),
    ],
    "IndexedSlices.__radd__": [lambda here, there: array(there) + rows(here)],
    "IndexedSlices.__sub__": [
        lambda here, there: rows(here) - rows(there),
        lambda here, there: rows(here) - array(there),
    ],
    "IndexedSlices.__rsub__": [lambda here, there: array(there) - rows(here)],
    "Tape.backward": [
        lambda here, there: ts.Tape.backward(*recorded_product(here), array(there)),
        lambda here, there: ts.Tape.backward(*recorded_product(here), rows(there)),
        lambda here, there: ts.Tape.backward(*recorded_product(here), ts.tensor(array(there))),
    ],
    "Tensor.backward": [
        lambda here, there: recorded_product(here)[1].backward(array(there)),
        lambda here, there: recorded_product(here)[1].backward(rows(there)),
    ],
    "Tensor.assign": [
        lambda here, there: parameter(here).assign(array(there)),
        lambda here, there: parameter(here).assign(parameter(there)),
        lambda here, there: parameter(here).assign(array(there, VALUES[:1]), rows=[0]),
        lambda here, there: parameter("cpu").assign([VALUES[0]], rows=array("cuda", np.array([0]))),
    ],
    "Optimizer.step": [
        stepped,
        lambda here, there: stepped(here, there, clip_rows=0.5),
        lambda here, there: stepped(here, there, error_if_nonfinite=True),
    ],
    "Optimizer.load_state_dict": [loaded_optimizer],
    "Optimizer.savepoint": [
        lambda here, there: optim.SGD([W := parameter("cpu")], lr=0.1)
        .savepoint({W: array("cuda", np.array([0]))})
        .__enter__()
    ],
    "Module.load_state_dict": [loaded_model],
    "clip_grad_norm": [lambda here, there: optim.clip_grad_norm(stale(here, there)[1], 0.5)],
    "clip_grad_value": [lambda here, there: optim.clip_grad_value(stale(here, there)[1], 0.5)],
    "clip_grad_rows": [lambda here, there: optim.clip_grad_rows(stale(here, there)[1], 0.5)],
    "grad": [lambda here, there: ts.grad(product)(array(here), array(there))],
    "value_and_grad": [lambda here, there: ts.value_and_grad(product)(array(here), array(there))],
    "hvp": [lambda here, there: ts.hvp(lambda x: (x**3).sum(), array(here), array(there))],
    "jvp": [lambda here, there: ts.jvp(ops.exp, (array(here),), (array(there),))],
    "Linear": [
        lambda here, there: nn.Linear(3, 2, seed=0).to(here)(array(there)),
        lambda here, there: nn.Linear(3, 2, seed=0).to(here)(ts.tensor(array(there))),
    ],
    "LayerNorm": [lambda here, there: nn.LayerNorm(3).to(here)(array(there))],
    "Sequential": [lambda here, there: nn.Sequential(nn.Linear(3, 2)).to(here)(array(there))],
    "Embedding": [lambda here, there: nn.Embedding(6, 3)(array("cuda", np.array([1])))],
    "EmbeddingBag": [
        lambda here, there: nn.EmbeddingBag(6, 3)(array("cuda", np.array([[1]]))),
        lambda here, there: nn.EmbeddingBag(6, 3)([1, 2], array("cuda", np.array([0, 1]))),
        lambda here, there: nn.EmbeddingBag(6, 3, mode="sum").to(here)(
            [[1, 2]], weights=array(there, VALUES[:1, :2].astype(np.float32))
        ),
    ],
    "SoftTree": [lambda here, there: nn.SoftTree(3, 1).to(here)(array(there))],
    "gate_logits": [
        lambda here, there: gate_logits(array(here), array(there).T, 0.0, 1.0),
        lambda here, there: gate_logits(array(here), array(here).T, 0.0, array(there)[:1, :1]),
    ],
    "PathPenalty": [penalised_twice],
    "leaf_update": [lambda here, there: leaf_update(array(here), rows(there))],
    "hash_ids": [lambda here, there: nn.hash_ids(array("cuda", np.array([3])), 5)],
    "check_grads": [lambda here, there: testing.check_grads(ops.exp, [array("cuda")])],
    "check_vjp": [lambda here, there: testing.check_vjp(np.exp, np.exp, [array("cuda")])],
}  # fmt: skip
# What takes no arrays, but for numbers; or takes them from wherever they are, one at a time.
APART = {
    "GradStore": "__contains__ __copy__ __deepcopy__ __getitem__ __iter__ __len__ __mul__ __radd__"
    " __rmul__ __truediv__ get get_by_id get_ids items norm parameter pop to_dense touched_rows",
    "IndexedSlices": "__array__ __array_ufunc__ __eq__ __getattr__ __getitem__ __hash__ __mul__"
    " __neg__ __rmul__ __truediv__ astype coalesce norm reshape to_dense",
    "Optimizer": "__copy__ __deepcopy__ __getattr__ __setattr__ add_group averaged averages flush"
    " state_bytes state_dict",
    "Module": "__getattr__ __setattr__ constants eval named_parameters parameters state_dict to"
    " train",
    "Tape": "__bool__ __enter__ __exit__ __len__ report",
    "nn": "Dropout Module dropout",
    "optim": "FTRL SGD Adadelta Adagrad Adam AdamW NAdam RMSprop RowwiseAdagrad Optimizer Plateau"
    " Rule along constant cosine exponential linear linear_decay one_cycle quotient rule step_decay"
    " warm_up",
    "ts": "DensifyWarning GradStore Kink Tape Tensor get_num_threads load no_grad normal_rows"
    " parameter parameter_file primitive reindexed rowwise save set_num_threads tensor",
    "testing": "Case GradientError check_op check_rule count_bytes count_ops dense_twin distinct"
    " integers no_densify normal planted_faults recorded_ops uniform",
}


def product(x, y):
    return (ts.tensor(x) * y if type(x) is not ts.Tensor else x * y).sum()


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_elsewhere_is_refused(gpu, here, name):
    for f in ELSEWHERE[name]:
        # what is saved is NumPy's, and goes where the parameters are
        saved = here == "cuda" and name.endswith("load_state_dict")
        assert refused(gpu, f, here, OTHER[here], reads="clip" in name) is not saved


@pytest.mark.parametrize("dense", [False, True], ids=["rows", "dense"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_refused_step_changes_nothing(gpu, here, name, dense):
    W, grads = stale(here, OTHER[here], dense)
    opt = OPTIMIZERS[name]([W], sparse="lazy")
    fresh = store(W, dense)
    opt.step(fresh)
    before, state = W.numpy(), opt.state_dict()
    assert refused(gpu, opt.step, grads)
    assert refused(gpu, fresh.__setitem__, W, home(grads[W]) if here == "cuda" else array("cuda"))
    assert refused(gpu, W.assign, array(OTHER[here]))
    np.testing.assert_array_equal(W.numpy(), before)
    after = opt.state_dict()
    for a, b in zip(state["slots"][0], after["slots"][0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert state["calls"] == after["calls"] == 1 and state["steps"] == after["steps"]
    opt.step(fresh)  # all is as it was: the next one is as usual
    assert (W.numpy() != before).any()


def own(kind):
    """What a class has of its own that can be called, but for what says how it looks."""
    found = {n for n, f in vars(kind).items() if callable(f)}
    private = {n for n in found if n.startswith("_") and not n.endswith("__")}
    return found - private - {"__init__", "__repr__", "__call__", "__reduce_ex__"}


def test_nothing_public_is_left_out():
    """Ops are in the case table: test_laws sees to that. Tensor's operators are ops."""
    for kind in (ts.GradStore, ts.IndexedSlices, ts.Tape, nn.Module, optim.Optimizer):
        name = kind.__name__
        asked = {n.partition(".")[2] for n in ELSEWHERE if n.startswith(f"{name}.")}
        assert own(kind) == asked | set(APART[name].split()), name
    tables = {getattr(case.function, "__name__", "") for case in CASES}
    for module, name in ((nn, "nn"), (optim, "optim"), (ts, "ts"), (testing, "testing")):
        callables = {n for n in module.__all__ if callable(getattr(module, n))}
        assert callables == (set(ELSEWHERE) | tables | set(APART[name].split())) & callables, name
