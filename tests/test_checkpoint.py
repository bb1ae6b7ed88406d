"""Files of state: what goes in comes out, and what is no such file is told."""

import json
import zipfile

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import checkpoint, errors, nn, optim


def equal(a, b):
    """Of one kind, in all nesting, and the same bits."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        return all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b, strict=True)
        return True
    return a == b or (a != a and b != b)


STATE = {
    "array": np.arange(6.0).reshape(2, 3)[:, ::2],
    "": {"dict": {"array": 0}, "list": [[], {}, [None, True, 2**80, -(2**13_999), -1.5, "ä\0"]]},
    "few": [np.zeros((0, 3), np.float16), np.array(3, np.int64), np.array(["a", "bc"])],
    "numbers": [float("inf"), float("nan"), 0.1],
}


def test_what_is_saved_is_loaded(tmp_path):
    path = tmp_path / "state"  # the name is as it is given
    ts.save(path, STATE)
    assert equal(ts.load(str(path)), STATE)
    ts.save(path, (1, np.float32(0.5)))
    assert equal(ts.load(path), [1, np.array(0.5, np.float32)])
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


MAKERS = {
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "lazy": lambda p: optim.Adam(p, lr=0.01, sparse="lazy", count="row"),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "plateau": lambda p: optim.SGD(p, lr=optim.Plateau(0.1), momentum=0.9, average=0.9),
    "groups": lambda p: optim.RMSprop([{"params": p[:1]}, {"params": p[1:], "lr": 0.1}], lr=0.1),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_training_goes_on_bit_for_bit_from_a_file(tmp_path, make):
    def fresh():
        model = nn.Sequential(nn.Embedding(40_000, 8, seed=0), nn.Dropout(0.3, seed=1))
        model.layers.append(nn.Linear(8, 2, seed=2))
        return model, make(model.parameters())

    def train(model, opt, seed):
        for ids in np.random.default_rng(seed).integers(0, 40_000, (5, 16)):
            with ts.Tape() as tape:
                loss = (model(ids) ** 2).sum()
            opt.step(tape.backward(loss))
        return {"model": model.state_dict(), "opt": opt.state_dict()}

    first, second = fresh(), fresh()
    ts.save(tmp_path / "run.npz", train(*first, 1))
    state = ts.load(tmp_path / "run.npz")
    second[0].load_state_dict(state["model"])
    second[1].load_state_dict(state["opt"])
    assert equal(train(*second, 2), train(*first, 2))


LOOP: dict = {}
LOOP["again"] = [LOOP]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": [nn.Linear(2, 2)]}, r"at state\['a'\]\[0\], got Linear\. Hint: .*state_dict\(\)"),
        ({"a": ts.tensor(1.0)}, r"at state\['a'\], got Tensor\. Hint: x\.numpy\(\)"),
        (np.array([None]), r"at state, got object \(1,\)"),
        (LOOP, "save: expected a state with an end, got one that holds itself"),
        ({1: 2}, "save: expected text as keys of state, got 1"),
        (lambda: 0, "at state, got function"),
        ({"n": 2**20_000}, r"save: .* of 14,000 bits or fewer at state\['n'\], got one of 20,001"),
    ],
)
def test_what_has_no_place_in_a_file_is_named_and_the_file_stays(tmp_path, state, message):
    path = tmp_path / "run.npz"
    ts.save(path, 1)
    with pytest.raises(errors.CheckpointError, match=message):
        ts.save(path, state)
    assert ts.load(path) == 1


def with_entry(path, name, content):
    """A file with a whole header, and what is no .npy in the place of its array."""
    header = json.dumps({"format": checkpoint.FORMAT, "state": {"array": 0}}).encode()
    np.savez(path, header=np.frombuffer(header, np.uint8))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(name, content)


def test_files_of_something_else_are_refused(tmp_path):
    path = tmp_path / "run.npz"
    wrong = "load: expected a file that ts.save wrote, got .*run.npz, which fails with "
    with pytest.raises(errors.StorageError, match=r"load: expected a file .* to read"):
        ts.load(path)
    with pytest.raises(errors.StorageError, match=r"save: expected a file .* to write"):
        ts.save(tmp_path / "none" / "run.npz", 1)
    ts.save(path, STATE)
    whole = path.read_bytes()
    other = json.dumps({"format": "another", "state": 1}).encode()
    for write in (
        lambda: path.write_text("hello"),
        lambda: path.write_bytes(whole[: len(whole) // 2]),
        lambda: np.savez(path, a=np.ones(2)),
        lambda: np.savez(path, header=np.array([{}], object)),
        lambda: np.savez(path, header=np.frombuffer(other, np.uint8)),
        lambda: np.savez(path, header=np.frombuffer(b"[]", np.uint8)),
        lambda: path.write_bytes(b""),
        lambda: with_entry(path, "0", b"no array"),
    ):
        write()
        with pytest.raises(errors.CheckpointError, match=wrong) as caught:
            ts.load(path)
        assert "unsafely" not in str(caught.value)  # as np.load tells how to read any file


def test_what_a_mask_hides_is_not_saved_as_if_it_were_not_hidden(tmp_path):
    with pytest.raises(errors.DtypeError, match="save: expected an array without a mask"):
        ts.save(tmp_path / "run.npz", [np.ma.array([1.0, 2.0], mask=[False, True])])


def test_a_path_is_what_comes_first(tmp_path):
    """`load(0)` would read, and close, the standard input."""
    for wrong in ({"a": 1}, None, 0):
        with pytest.raises(errors.ArgumentError, match="save: expected a path first, got"):
            ts.save(wrong, tmp_path / "run.npz")
        with pytest.raises(errors.ArgumentError, match="load: expected a path first, got"):
            ts.load(wrong)
    for path in ("", tmp_path / ("a" * 300)):
        with pytest.raises(errors.StorageError, match=r"save: expected a file .* to write"):
            ts.save(path, 1)


def test_a_link_goes_on_naming_the_file_that_it_names(tmp_path):
    there, link = tmp_path / "there.npz", tmp_path / "link.npz"
    ts.save(there, 1)
    link.symlink_to(there)
    ts.save(link, 2)
    assert link.is_symlink() and ts.load(there) == 2


def test_a_file_that_is_replaced_keeps_who_may_read_it(tmp_path):
    path = tmp_path / "run.npz"
    ts.save(path, 1)
    for mode in (0o600, 0o664):
        path.chmod(mode)
        ts.save(path, 2)
        assert path.stat().st_mode & 0o777 == mode


def test_a_path_that_no_file_can_have_is_told():
    with pytest.raises(errors.StorageError, match=r"save: expected a file .*, got embedded"):
        ts.save("a\0b", 1)
    with pytest.raises(errors.TinygradSparseError, match=r"load: expected a file .* embedded null"):
        ts.load("a\0b")
