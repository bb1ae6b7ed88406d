"""Parameters on a file: what a step leaves there, and what comes back."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tinygrad_sparse as ts
from tinygrad_sparse import errors, optim
from tinygrad_sparse.backend import files
from tinygrad_sparse.errors import (
    CheckpointError,
    DtypeError,
    ShapeError,
    StorageError,
    TinygradSparseError,
)

V, d = 5000, 8
INIT = ts.normal_rows(0.1, seed=3)
RULES = {
    "sgd": lambda p, **k: optim.SGD(p, lr=0.1, **k),
    "momentum and decay": lambda p, **k: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, **k),
    "adagrad": lambda p, **k: optim.Adagrad(p, lr=0.1, **k),
    "rowwise adagrad": lambda p, **k: optim.RowwiseAdagrad(p, lr=0.1, **k),
    "adam": lambda p, **k: optim.Adam(p, lr=0.01, **k),
    "adamw": lambda p, **k: optim.AdamW(p, lr=0.01, weight_decay=0.1, **k),
    "average": lambda p, **k: optim.SGD(p, lr=0.1, average=0.9, **k),
}


def in_memory():
    return ts.parameter(INIT(np.arange(V), (d,)))


def train(W, opt, seed, steps=12):
    random = np.random.default_rng(seed)
    for _ in range(steps):
        ids = random.integers(0, V, 40)
        with ts.Tape(densify="raise") as tape:
            loss = (W[ids] ** 2).sum()
        opt.step(tape.backward(loss))


@pytest.mark.parametrize("sparse", ["exact", "lazy"])
@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
def test_training_on_a_file_is_training_in_memory(tmp_path, make, sparse):
    mine, theirs = ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT), in_memory()
    first, second = make([mine], sparse=sparse), make([theirs], sparse=sparse)
    train(mine, first, 1), train(theirs, second, 1)
    ids = np.arange(0, V, 7)
    assert np.array_equal(mine[ids].numpy(), theirs[ids].numpy())
    train(mine, first, 2), train(theirs, second, 2)
    first.flush()
    assert np.array_equal(mine.data, theirs.data)
    if make is RULES["average"]:
        assert np.array_equal(first.averages(mine), second.averages(theirs))


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam"])
def test_a_step_makes_the_rows_it_touches_and_no_others(tmp_path, name):
    W = ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT)
    opt = RULES[name]([W])
    train(W, opt, 1)
    ids = np.random.default_rng(1).integers(0, V, 40)
    made = np.flatnonzero(np.load(tmp_path / "w.npy.made"))
    assert set(ids) <= set(made)
    assert len(made) <= 12 * 40
    opt.flush()
    assert len(np.flatnonzero(np.load(tmp_path / "w.npy.made"))) == len(made)


def test_a_gradient_for_rows_never_read_makes_them_first(tmp_path):
    W = ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT)
    other = in_memory()
    for p in (W, other):
        with ts.Tape() as tape:
            loss = p[[1]].sum()
        grads = tape.backward(loss)
        grads[p] = ts.IndexedSlices(np.array([5, 7]), np.ones((2, d), np.float32), (V, d))
        optim.Adam([p], lr=0.1).step(grads)
    assert np.array_equal(W[:10].numpy(), other[:10].numpy())


def test_a_file_goes_on_where_it_was_left(tmp_path):
    path = tmp_path / "w.npy"
    W = ts.parameter_file(path, (V, d), init=INIT)
    opt = optim.Adam([W], lr=0.01)
    train(W, opt, 1)
    state = opt.state_dict()
    W.flush()
    del W, opt
    W = ts.parameter_file(path, (V, d), init=INIT)
    opt = optim.Adam([W], lr=0.01)
    opt.load_state_dict(state)
    train(W, opt, 2)
    theirs = in_memory()
    other = optim.Adam([theirs], lr=0.01)
    train(theirs, other, 1)
    other.flush()  # as state_dict does
    train(theirs, other, 2)
    assert np.array_equal(W.data, theirs.data)


@pytest.mark.skipif(sys.platform == "win32", reason="kills a process by a signal")
def test_a_killed_process_loses_no_step(tmp_path):
    path = tmp_path / "w.npy"
    script = f"""
        import numpy as np, tinygrad_sparse as ts
        W = ts.parameter_file({str(path)!r}, ({V}, {d}), init=ts.normal_rows(0.1, seed=3))
        opt = ts.optim.SGD([W], lr=0.1)
        random = np.random.default_rng(1)
        for step in range(10**6):
            with ts.Tape() as tape:
                loss = (W[random.integers(0, {V}, 40)] ** 2).sum()
            opt.step(tape.backward(loss))
            if step == 11:
                print("there", flush=True)
                input()
        """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline().strip() == b"there"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    W, theirs = ts.parameter_file(path, (V, d), init=INIT), in_memory()
    train(theirs, optim.SGD([theirs], lr=0.1), 1)
    assert np.array_equal(W.data, theirs.data)


def test_two_exact_optimizers_may_share_a_table_on_a_file(tmp_path):
    tables = [ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT), in_memory()]
    for W in tables:
        first, second = optim.Adam([W], lr=0.01), optim.SGD([W], lr=0.1, momentum=0.9)
        for seed in range(3):
            train(W, first, seed, steps=2), train(W, second, seed + 10, steps=2)
    assert np.array_equal(tables[0].data, tables[1].data)


def test_assigning_rows_and_reading_some_in_any_way(tmp_path):
    W = ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT)
    W.assign(np.ones((2, d), np.float32), rows=[4, 2])
    expected = INIT(np.arange(V), (d,))
    expected[[4, 2]] = 1
    assert np.array_equal(W[1:9:2].numpy(), expected[1:9:2])
    assert np.array_equal(W[-3:].numpy(), expected[-3:])
    assert np.array_equal(W[::-1][:2].numpy(), expected[::-1][:2])
    assert np.array_equal(W.numpy(), expected)


def test_printing_makes_what_is_shown_alone(tmp_path):
    W = ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT)
    assert repr(W) == repr(in_memory())
    assert np.load(tmp_path / "w.npy.made").sum() == 6


def test_zeros_without_init_and_any_npy_file_as_a_whole_table(tmp_path):
    W = ts.parameter_file(tmp_path / "zeros.npy", (V, d))
    assert not W.data.any()
    table = np.random.default_rng(0).normal(size=(20, 3))
    np.save(tmp_path / "given.npy", table)
    W = ts.parameter_file(tmp_path / "given.npy", (20, 3), np.float64, init=INIT, name="given")
    assert np.array_equal(W.data, table)
    assert W.name == "given"
    W.assign(np.zeros((1, 3)), rows=[7])
    W.flush()
    table[7] = 0
    assert np.array_equal(np.load(tmp_path / "given.npy"), table)


def test_a_sparse_file_takes_the_room_of_what_was_touched(tmp_path):
    path = tmp_path / "w.npy"
    W = ts.parameter_file(path, (10**6, 64), init=INIT)
    W[[1, 500_000, 999_999]]
    W.flush()
    assert path.stat().st_size > 2**27
    assert path.stat().st_blocks * 512 < 2**20


def test_a_full_disk_is_an_error_that_changes_nothing(tmp_path, monkeypatch):
    W = ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT)
    W[[1, 2]]
    real = os.statvfs

    class Full:
        f_bavail, f_frsize = 3, 4096

    monkeypatch.setattr(files.os, "statvfs", lambda path: Full)
    W[[2, 1]]  # are there
    with pytest.raises(StorageError, match=r"room for 2 new rows.*make room and go on"):
        W[[3, 1, 4, 3]]
    monkeypatch.setattr(files.os, "statvfs", real)
    assert np.array_equal(W[[3]].numpy(), INIT(np.array([3]), (d,)))

    def no_room(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "posix_fallocate", no_room)
    opt = optim.Adagrad([W], lr=0.1)
    before = W[:10].numpy()
    with pytest.raises(StorageError, match="an optimizer's state"):
        train(W, opt, 1, steps=1)
    assert np.array_equal(W[:10].numpy(), before)


def test_files_that_hold_something_else_are_refused(tmp_path):
    path = tmp_path / "w.npy"
    ts.parameter_file(path, (V, d))
    for shape, dtype in (((V, d + 1), np.float32), ((V, d), np.float64)):
        with pytest.raises(
            CheckpointError, match=r"parameter_file: expected .* float32 \(5000, 8\)"
        ):
            ts.parameter_file(path, shape, dtype)
    (tmp_path / "text.npy").write_text("hello")
    with pytest.raises(CheckpointError, match=r"as \.npy"):
        ts.parameter_file(tmp_path / "text.npy", (V, d))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"as \.npy"):
        ts.parameter_file(path, (V, d))
    path.unlink()
    with pytest.raises(CheckpointError, match="remove it"):
        ts.parameter_file(path, (V, d))
    np.save(tmp_path / "f.npy", np.asfortranarray(np.zeros((4, 3), np.float32)))
    with pytest.raises(CheckpointError, match="Fortran"):
        ts.parameter_file(tmp_path / "f.npy", (4, 3))


@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [
        ((3.5, 2), np.float32, ShapeError),
        ((0, 2), np.float32, ShapeError),
        ((), np.float32, ShapeError),
        ((-1, 2), np.float32, ShapeError),
        ((3, 2), np.int64, DtypeError),
        ((3, 2), ">f4", DtypeError),
        ((2**60, 2**10), np.float32, TinygradSparseError),
    ],
)
def test_shapes_and_dtypes_that_cannot_be(tmp_path, shape, dtype, error):
    with pytest.raises(error, match="parameter_file: expected"):
        ts.parameter_file(tmp_path / "w.npy", shape, dtype)


def test_an_init_of_the_wrong_shape_is_named(tmp_path):
    with pytest.raises(ShapeError, match=r"init: expected floats of shape \(2, 8\)"):
        ts.parameter_file(tmp_path / "w.npy", (V, d), init=lambda rows, shape: np.zeros(shape))
    assert not list(tmp_path.iterdir())


def test_normal_rows_are_normal_and_their_own():
    rows = ts.normal_rows(2.0, seed=1)(np.arange(4000), (3, 5))
    assert rows.dtype == np.float32
    assert rows.shape == (4000, 3, 5)
    assert abs(rows.mean()) < 0.02
    assert abs(rows.std() - 2) < 0.02
    assert abs(np.corrcoef(rows.reshape(4000, -1).T) - np.eye(15)).max() < 0.08
    tail = (abs(rows) > 4).mean()
    assert abs(tail - 0.0455) < 0.004
    again = ts.normal_rows(2.0, seed=2)(np.arange(4000), (3, 5))
    assert not (again == rows).any()
    for std in (float("nan"), float("inf"), -1, "a", None):
        with pytest.raises(TinygradSparseError, match="a finite std >= 0"):
            ts.normal_rows(std)
    for seed in (None, 1.5, "a"):
        with pytest.raises(TinygradSparseError, match="a whole number as seed"):
            ts.normal_rows(seed=seed)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": None}, "parameter_file: expected a path and a dtype, got "),
        ({"path": "a\0b"}, "parameter_file: expected a path and a dtype, got embedded null"),
        ({"shape": (2**70, 2)}, r"parameter_file: expected a shape of fewer than 2\*\*63 bytes"),
        ({"shape": (2**31, 2**31)}, r"fewer than 2\*\*63 bytes, got float32 \(2147483648, 2147"),
        ({"dtype": "foo"}, "parameter_file: expected a path and a dtype, got "),
        ({"init": 5}, r"parameter_file: expected a function init\(rows, row_shape\), got 5"),
    ],
)
def test_what_is_no_path_dtype_or_init_is_refused_before_there_is_a_file(tmp_path, given, message):
    with pytest.raises(TinygradSparseError, match=message):
        ts.parameter_file(**{"path": tmp_path / "t.npy", "shape": (3, 2), **given})
    assert not list(tmp_path.iterdir())


def test_a_table_that_cannot_be_made_leaves_no_file_that_blocks_its_name(tmp_path, monkeypatch):
    def full(path, mode, dtype, shape):
        if len(shape) > 1:
            raise OSError(28, "No space left on device")
        return made(path, mode, dtype, shape)

    made = np.lib.format.open_memmap
    monkeypatch.setattr(np.lib.format, "open_memmap", full)
    with pytest.raises(StorageError, match="No space left"):
        ts.parameter_file(tmp_path / "t.npy", (30, 2))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("width", [1, 64])
@pytest.mark.parametrize("dense", [False, True])
def test_copies_of_rows_that_are_not_there_yet_start_as_they_will(tmp_path, width, dense):
    """A master copy and an average of a row begin with the row's initial values."""

    def sevens(rows, shape):
        return np.full((len(rows), *shape), 7.0, np.float32)

    g = ts.IndexedSlices([1], np.ones((1, width), np.float32), (4, width))
    for name, settings in {"a": {"average": 0.5}, "m": {"master": True}}.items():
        dtype = np.float16 if settings.get("master") else np.float32
        W = ts.parameter_file(tmp_path / f"{name}.npy", (4, width), dtype=dtype, init=sevens)
        opt, grads = optim.SGD([W], lr=0.1, **settings), ts.GradStore()
        grads[W] = (g.to_dense() if dense else g).astype(dtype)
        opt.step(grads)
        wanted = [7, 6.9, 7, 7]
        if name == "a":
            np.testing.assert_allclose(opt.averages(W)[:, 0], [7, 6.95, 7, 7], rtol=1e-6)
        np.testing.assert_allclose(W.numpy()[:, 0], wanted, rtol=1e-3)


@pytest.mark.parametrize("copy", [{"average": 0.5}, {"master": True}], ids=str)
def test_a_copy_of_p_that_begins_later_starts_with_rows_not_made_yet_in_a_state_dict(
    tmp_path, copy
):
    W = ts.parameter_file(
        tmp_path / "t.npy", (5000, 64), init=lambda rows, shape: np.ones((len(rows), *shape), "f4")
    )
    opt = optim.SGD([W], lr=0.1)
    grads = ts.GradStore()
    grads[W] = ts.IndexedSlices([1], np.ones((1, 64), np.float32), (5000, 64))
    opt.step(grads)
    opt.groups[0].update(copy)
    (values,) = opt.state_dict()["slots"][0]
    assert (values[2:] == 1).all()


def test_an_average_that_begins_later_starts_with_the_initial_values_of_rows_not_made_yet(tmp_path):
    W = ts.parameter_file(
        tmp_path / "t.npy", (5000, 64), init=lambda rows, shape: np.ones((len(rows), *shape), "f4")
    )
    opt = optim.SGD([W], lr=0.1)
    grads = ts.GradStore()
    grads[W] = ts.IndexedSlices([1], np.ones((1, 64), np.float32), (5000, 64))
    opt.step(grads)
    opt.groups[0]["average"] = 0.5
    opt.step(grads)
    assert (opt.averages(W)[2:] == 1).all()


def uneven(rows, shape):
    return np.where(rows[:, None] % 2, 1.0, np.nan) * np.ones((len(rows), *shape))


INITS = {
    "normal": INIT,
    "another seed": ts.normal_rows(0.1, seed=4),
    "another std": ts.normal_rows(0.101, seed=3),
    "of one's own": uneven,
    "none": None,
}


@pytest.mark.parametrize("there", INITS)
@pytest.mark.parametrize("here", INITS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_table_is_opened_again_with_the_init_that_it_was_made_with(tmp_path, there, here, dtype):
    path = tmp_path / "w.npy"
    W = ts.parameter_file(path, (V, d), dtype, init=INITS[there])
    W[[3]]
    if here == there:
        assert ts.parameter_file(path, (V, d), dtype, init=INITS[here]).shape == (V, d)
        return
    with pytest.raises(CheckpointError, match=r"parameter_file: .*the init that it was made with"):
        ts.parameter_file(path, (V, d), dtype, init=INITS[here])
    assert W[[3]].shape == (1, d)  # and it is still the one that has the file
    (tmp_path / "w.npy.init").unlink()  # as files of earlier versions are
    ts.parameter_file(path, (V, d), dtype, init=INITS[here])


def test_an_init_does_not_matter_once_all_rows_are_there(tmp_path):
    W = ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT)
    whole = W.numpy()
    assert np.array_equal(ts.parameter_file(tmp_path / "w.npy", (V, d)).numpy(), whole)


def last_bits(W, theirs):
    """Equal but for the roundings of catching up in other parts."""
    np.testing.assert_allclose(W.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["momentum and decay", "adam", "adamw"])
def test_what_is_owed_is_written_when_nobody_has_the_parameter_any_more(tmp_path, name):
    def run():
        W = ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT)
        train(W, RULES[name]([W]), 1)

    theirs = in_memory()
    train(theirs, RULES[name]([theirs]), 1)
    run()
    last_bits(ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT), theirs)


@pytest.mark.parametrize("end", ["", "raise KeyboardInterrupt", "os.fork()"])
def test_what_is_owed_is_written_at_the_end_of_the_interpreter(tmp_path, end):
    if "fork" in end and not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    script = f"""
        import os, sys
        import numpy as np, tinygrad_sparse as ts
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_on_file import INIT, RULES, V, d, train
        W = ts.parameter_file({str(tmp_path / "w.npy")!r}, (V, d), init=INIT)
        opt = RULES["adamw"]([W])
        train(W, opt, 1)
        {end}
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True)
    theirs = in_memory()
    train(theirs, RULES["adamw"]([theirs]), 1)
    last_bits(ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT), theirs)


def test_large_kernels_end_with_the_interpreter(tmp_path):
    """Threads that are gone by then are not waited for: the caller does all of the work."""
    script = f"""
        import numpy as np, tinygrad_sparse as ts
        from tinygrad_sparse.backend import threads
        threads.PAYS = 0
        W = ts.parameter_file({str(tmp_path / "w.npy")!r}, (4000, 64), init=ts.normal_rows(0.1))
        opt = ts.optim.Adam([W], lr=0.1)
        for start in range(0, 4000, 1000):
            with ts.Tape() as tape:
                loss = (W[np.arange(start, start + 1000)] ** 2).sum()
            opt.step(tape.backward(loss))
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    theirs = ts.parameter(ts.normal_rows(0.1)(np.arange(4000), (64,)))
    opt = optim.Adam([theirs], lr=0.1)
    for start in range(0, 4000, 1000):
        with ts.Tape() as tape:
            loss = (theirs[np.arange(start, start + 1000)] ** 2).sum()
        opt.step(tape.backward(loss))
    last_bits(ts.parameter_file(tmp_path / "w.npy", (4000, 64), init=ts.normal_rows(0.1)), theirs)


def test_one_file_is_one_parameter_at_a_time(tmp_path):
    path = tmp_path / "w.npy"
    W, theirs = ts.parameter_file(path, (V, d), init=INIT), in_memory()
    first, other = RULES["adamw"]([W]), RULES["adamw"]([theirs])
    train(W, first, 1), train(theirs, other, 1)
    os.link(path, tmp_path / "same.npy")
    os.link(tmp_path / "w.npy.made", tmp_path / "same.npy.made")
    again = ts.parameter_file(tmp_path / "same.npy", (V, d), init=INIT)
    last_bits(again, theirs)  # what the first one owed is there
    message = "parameter_file: expected the parameter that the file was opened as last"
    with pytest.raises(StorageError, match=message):
        train(W, first, 1, steps=1)
    with pytest.raises(StorageError, match=message):
        W.numpy()
    assert message in repr(W) and f"{W.shape}, whose values raise StorageError" in str(W)
    before = again.numpy()
    del W, first
    assert np.array_equal(again.numpy(), before)


def test_a_link_to_a_table_is_the_table_with_its_notes(tmp_path):
    """Without them it would be a whole table, whose other rows are zeros."""
    W = ts.parameter_file(tmp_path / "w.npy", (V, d), init=INIT)
    expected = W[[3, 5]].numpy()
    (tmp_path / "link.npy").symlink_to(tmp_path / "w.npy")
    again = ts.parameter_file(tmp_path / "link.npy", (V, d), init=INIT)
    assert np.array_equal(again[[3, 5, 7]].numpy(), INIT(np.array([3, 5, 7]), (d,)))
    assert np.array_equal(again[[3, 5]].numpy(), expected)
    assert again._pending.made.sum() == 3


def test_what_an_init_of_a_removed_table_was_known_by_does_not_block_its_name(tmp_path):
    path = tmp_path / "w.npy"
    ts.parameter_file(path, (V, d), init=INIT)
    path.unlink(), (tmp_path / "w.npy.made").unlink()
    assert ts.parameter_file(path, (V, d + 1), init=INIT)[[3]].shape == (1, d + 1)


def test_a_read_that_fills_the_disk_is_told(tmp_path):
    W = ts.parameter_file(tmp_path / "w.npy", (100_000, 64), init=INIT)
    W[[3, 5]]
    message = r"all 100,000 read, .* 99,998 get their initial values, 25,599,488 bytes of the disk"
    with pytest.warns(errors.StorageWarning, match=message) as told:
        W.numpy()
    assert told[0].filename == __file__
    W.numpy()  # now they are there
    zeros = ts.parameter_file(tmp_path / "zeros.npy", (100_000, 64))
    assert not zeros.data.any()  # which takes no room
