"""The laws that every op obeys; `check_op` runs them all on one case. Floor 6.

A law is a function of a Case that returns if the case keeps it and raises if not. Its docstring's
first line is what it says. It computes where the case's arrays are: `Case.device`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinygrad_sparse.backend import xp_of
from tinygrad_sparse.errors import SparsityError
from tinygrad_sparse.gradstore import GradStore
from tinygrad_sparse.slices import IndexedSlices, finer, is_sparse
from tinygrad_sparse.tape import Tape
from tinygrad_sparse.tensor import Tensor, parameter, tensor

from .cases import Case
from .compare import ATOL, RTOL, Options, Problem, compare
from .conduct import check_repeatable, check_sparse, check_strides, check_unwritten, check_zero
from .gradcheck import check_twice, compare_higher, traced
from .places import dense, home, placed, rows_at
from .substitute import vjps_of, with_vjps
from .watch import dense_twin

Law = Callable[[Case], None]

ROW_SETS = {"one": [0], "many": [3, 1], "repeated": [2, 2, 4, 0, 2], "none": []}


def gradient(case: Case) -> None:
    """Gradients equal finite differences, at orders 1 and 2; rows that are not read have no id."""
    problem = _problem(case)
    compare(problem, Options())
    compare_higher(case, case.draw(), problem.wanted, case.order, Options())


def sparse_pull(case: Case) -> None:
    """Pulling rows back equals pulling the dense cotangent back, for any rows, at every lead."""
    arrays = case.draw()
    shape = home(case(*map(tensor, arrays))).shape
    for lead in range(1, len(shape) + 1):
        for label, g in _row_sets(case, shape, lead):
            try:
                sparse = _pull(case, arrays, g, "raise" if case.rows == "sparse" else "allow")
            except SparsityError as error:
                raise AssertionError(f"{case}, rows {label}: {error}") from error
            whole = _pull(case, arrays, g.to_dense(), "allow")
            assert set(sparse) == set(whole), f"{case}: different arguments reached"
            for k in whole:
                got, wanted = dense(sparse[k]), dense(whole[k])
                name, of = getattr(case.function, "__name__", case), f"lead {lead}, {label}"
                said = f"the row rule of {name} is wrong for argument {k}: rows pulled back by it "
                said += f"give another gradient than the same cotangent, dense\n{case}, {of}"
                np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12, err_msg=said)


def exact_rows(case: Case) -> None:
    """Rows in, the rows that they depend on out, as a dense run has it: no other id, no table.

    Row i of an argument counts for row i of the result even where its slope is 0, as that of
    ``maximum`` may be. An argument that all rows share gets a dense gradient of its own shape.
    """
    if case.rows != "sparse":
        return
    arrays = case.draw()
    shape = home(case(*map(tensor, arrays))).shape
    for lead in range(1, len(shape) + 1) if math.prod(shape) else ():
        for label, g in _row_sets(case, shape, lead):
            if not len(g.indices):
                continue  # that is the law `nothing_in_nothing_out`
            sparse = _pull(case, arrays, g, "raise")
            spare = {k: _aligned(g, c) for k, c in sparse.items() if c.size and len(c.shape)}
            for k, ids in _reached(case, arrays, g, sparse, spare).items():
                got = _ids(sparse[k])
                # where nothing arrives, the slope may be 0 everywhere: no telling rows by it
                assert ids <= got <= (ids | spare[k] if ids else got), (
                    f"{case}: the row rule is wrong for argument {k}, lead {lead}, {label}: "
                    f"expected a gradient of rows "
                    f"{sorted(ids)}, got {sorted(got)} in {type(sparse[k]).__name__}"
                )


def _row_sets(case: Case, shape: tuple[int, ...], lead: int) -> Iterator[tuple[str, IndexedSlices]]:
    """Cotangents of some rows that `lead` axes of an array address, by the names of ROW_SETS."""
    size = math.prod(shape[:lead])
    for label, chosen in ROW_SETS.items():
        rows = [r % size for r in chosen] if size else []
        values = np.random.default_rng(1).normal(size=(len(rows), *shape[lead:]))
        yield label, IndexedSlices(rows, placed(values, case.device), shape, lead)


def _ids(c: Any) -> set[int]:
    return set(c.indices.tolist() if is_sparse(c) else range(len(c)))


def _aligned(g: IndexedSlices, c: Any) -> set[int]:
    """The rows of c, a cotangent of an argument, at the places of those of g."""
    if not is_sparse(c):
        # rows that several axes address may share an argument by a part of their address
        return _ids(c) if g.lead > 1 or len(c) == 1 else set()
    lead = c.lead
    if g.shape[:lead] != c.shape[:lead]:
        return set()
    rows = finer(g, lead) if lead > g.lead else g
    return set((rows.indices // math.prod(g.shape[lead : g.lead])).tolist())


def _reached(
    case: Case,
    arrays: list[np.ndarray],
    g: IndexedSlices,
    sparse: dict[int, Any],
    spare: dict[int, set[int]],
) -> dict[int, set[int]]:
    """The rows of the arguments in `spare` to which the dense twin sends something.

    What it sends to a row may be 0 by chance, such as to one that is not the largest: other values
    are drawn until all rows that `sparse` has were seen but the spare ones, at most 100 times.
    """
    twin = replace(case, function=dense_twin(case.function))
    found: dict[int, set[int]] = {k: set() for k in spare}
    for seed in range(100):
        again = zip(arrays, case.draw(seed), strict=True)
        drawn = [new if new.dtype.kind == "f" else old for old, new in again]
        whole = _pull(twin, drawn, g.to_dense(), "allow")
        for k, ids in found.items():
            c = sparse[k]
            rows = math.prod(c.shape[: c.lead if is_sparse(c) else 1])
            ids.update(np.flatnonzero(dense(whole[k]).reshape(rows, -1).any(1)).tolist())
        if all(_ids(sparse[k]) <= ids | spare[k] for k, ids in found.items()):
            break
    return found


def sparse_equals_dense(case: Case) -> None:
    """A row-sparse gradient equals the dense twin's, which shares no code with it."""
    problem = _problem(case)
    twin = traced(dense_twin(case), case.draw(), problem.wanted)
    check_sparse(problem, twin, Options())


def nothing_in_nothing_out(case: Case) -> None:
    """A row-sparse cotangent without rows reaches no row of any argument that has rows."""
    if case.rows != "sparse":
        return
    arrays = case.draw()
    shape = home(case(*map(tensor, arrays))).shape
    if shape:
        g = IndexedSlices([], placed(np.zeros((0, *shape[1:])), case.device), shape)
        for k, c in _pull(case, arrays, g, "raise").items():
            rows = len(c.indices) if is_sparse(c) else np.count_nonzero(home(c))
            assert not rows, f"{case}: {rows} rows of argument {k} from none"


def rows_commute(case: Case) -> None:
    """f(x)[r] == f(x[r]): what a row rule claims, said of the forward; also for no rows at all."""
    if case.commutes:
        arrays = case.draw()
        whole = home(case(*map(tensor, arrays)))
        for rows in ([2, 0, 2], []):
            some = [rows_at(a, rows) if k in case.commutes else a for k, a in enumerate(arrays)]
            np.testing.assert_allclose(
                home(case(*map(tensor, some))), whole[rows], rtol=1e-12, err_msg=str(case)
            )


def dtype_kept(case: Case) -> None:
    """float32 and float16 in, the same out, and gradients likewise."""
    for dtype in (np.float32, np.float16):
        arrays = case.draw(dtype=dtype)
        leaves, out = _run(case, arrays, Tape("allow"))
        assert out.dtype == dtype, f"{case}: {np.dtype(dtype)} in, {out.dtype} out"
        grads = out.backward(seed=_ones(out))
        for k, leaf in leaves.items():
            assert grads[leaf].dtype == dtype, f"{case}: argument {k} got {grads[leaf].dtype}"


def dtypes_agree(case: Case) -> None:
    """Values and gradients in float32 and float16 are those of float64, to that precision."""
    for dtype in ("float32", "float16"):
        arrays = case.draw(dtype=dtype)
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        (_, out), (_, true) = (_run(case, some, Tape("allow")) for some in (arrays, wide))
        pairs = [("values", home(out), home(true))]
        seed = np.linspace(0.5, 1.5, out.size).reshape(out.shape).astype(dtype)
        seed = placed(seed, case.device)
        got, wanted = (_pull(case, some, seed, "allow") for some in (arrays, wide))
        pairs += [(f"argument {k}", dense(got[k]), dense(wanted[k])) for k in wanted]
        for what, a, b in pairs:
            smallest = float(np.finfo(dtype).smallest_subnormal)
            atol = ATOL[dtype] * np.abs(b).max(initial=0.0) + smallest
            np.testing.assert_allclose(
                a.astype(np.float64), b, rtol=RTOL[dtype], atol=atol, err_msg=f"{case}: {what}"
            )


def arrays_in_array_out(case: Case) -> None:
    """On arrays an op is the NumPy function: an array comes, with the bits that a Tensor gets."""
    if getattr(case.function, "op", None) is not None:
        arrays = case.draw()
        out = case(*arrays)
        assert type(out) is not Tensor, f"{case}: arrays in, a Tensor out"
        wanted = home(case(*map(tensor, arrays)))
        np.testing.assert_array_equal(
            home(out), wanted, err_msg=str(case), strict=bool(np.ndim(home(out)))
        )


def any_layout(case: Case) -> None:
    """Arguments may lie in memory in any order: values and gradients are the same."""
    arrays = case.draw()
    once = _pull(case, arrays, None, "allow")
    leaves = {k: parameter(a.T) for k, a in enumerate(arrays) if a.dtype.kind == "f"}
    with Tape("allow"):
        out = case(*[leaves[k].T if k in leaves else a for k, a in enumerate(arrays)])
    np.testing.assert_allclose(home(out), home(_run(case, arrays, Tape())[1]), rtol=1e-12)
    grads = out.backward(seed=_ones(out))
    for k, g in once.items():
        np.testing.assert_allclose(
            dense(grads[leaves[k]]).T, dense(g), rtol=1e-10, atol=1e-12, err_msg=str(case)
        )


def any_upstream(case: Case) -> None:
    """The upstream may be zero, read-only, of any strides; no rule writes to what it is given."""
    problem = _problem(case)
    check_unwritten(problem, Options())
    check_zero(problem)
    check_strides(problem, Options())


def repeatable(case: Case) -> None:
    """The same arguments give the same bits, in values and in gradients."""
    check_repeatable(_problem(case), _problem(case), Options())


def untracked_does_no_work(case: Case) -> None:
    """A constant argument costs no VJP and gets no gradient; the others' stay the same."""
    arrays = case.draw()
    floats = [k for k, a in enumerate(arrays) if a.dtype.kind == "f"]
    everything = _pull(case, arrays, None, "allow")
    for k in floats:
        tape = Tape("allow")
        leaves, out = _run(case, arrays, tape, only=k)
        if not out.requires_grad:
            continue
        tape._entries[1:] = [_guarded(entry) for entry in tape._entries[1:]]
        g = out.backward(seed=_ones(out))
        assert g.get_ids() == [leaves[k].id], f"{case}: gradients of constants"
        np.testing.assert_allclose(dense(g[leaves[k]]), dense(everything[k]), rtol=1e-12)


def twice_is_double(case: Case) -> None:
    """Using an op's inputs twice adds up both gradients: only the engine accumulates."""
    check_twice(case, _problem(case), Options())


LAWS: tuple[Law, ...] = (
    gradient,
    sparse_pull,
    exact_rows,
    sparse_equals_dense,
    nothing_in_nothing_out,
    rows_commute,
    dtype_kept,
    dtypes_agree,
    arrays_in_array_out,
    any_layout,
    any_upstream,
    repeatable,
    untracked_does_no_work,
    twice_is_double,
)

# The one law that CuPy's own functions do not keep: they sum repeated rows by atomic additions, in
# any order. The kernels of this package do, where arrays fit them: docs/gpu.md.
ANY_ORDER: tuple[Law, ...] = (repeatable,)


def check_op(case: Case, laws: Sequence[Law] = LAWS) -> None:
    """Every law on one case; the AssertionError of a law that is broken names it.

    >>> from tinygrad_sparse import ops
    >>> from tinygrad_sparse.testing import normal
    >>> check_op(Case(ops.tanh, [normal(5, 3)], commutes=(0,)))
    """
    for law in laws:
        try:
            law(case)
        except AssertionError as error:
            raise AssertionError(f"{law.__name__}: {error}") from error
        except Exception as error:
            promise = (law.__doc__ or "").partition("\n")[0]
            text = f"{type(error).__name__}: {error}\n{law.__name__} of {case}, the law: {promise}"
            raise AssertionError(text) from error


def _ones(out: Tensor) -> Any:
    """An upstream of ones."""
    return xp_of(out).ones(out.shape)


def _problem(case: Case) -> Problem:
    arrays = case.draw()
    wanted = tuple(k for k, a in enumerate(arrays) if a.dtype.kind == "f")
    return traced(case, arrays, wanted)


def _guarded(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tape entry whose VJPs for untracked arguments fail when they are run."""
    op, _, _, parents, *_ = entry

    def refuse(*args: Any, **static: Any) -> Any:
        raise AssertionError(f"{op.name}: the VJP of an untracked argument was run")

    right = vjps_of(op, len(parents))
    vjps = [f if parent else refuse for f, parent in zip(right, parents, strict=True)]
    return (with_vjps(op, vjps), *entry[1:])


def _run(
    case: Case, arrays: list[np.ndarray], tape: Tape, only: int | None = None
) -> tuple[dict[int, Tensor], Any]:
    leaves = {
        k: parameter(a) for k, a in enumerate(arrays) if a.dtype.kind == "f" and only in (None, k)
    }
    with tape:
        out = case(*[leaves.get(k, a) for k, a in enumerate(arrays)])
    return leaves, out


def _pull(case: Case, arrays: list[np.ndarray], seed: Any, densify: str) -> dict[int, Any]:
    """Gradients by argument number, for a seed (ones if None)."""
    leaves, out = _run(case, arrays, Tape(densify))
    if seed is None:
        seed = _ones(out)
    elif is_sparse(seed):
        seed = seed.astype(out.dtype)
    grads: GradStore = out.backward(seed=seed)
    return {k: grads[p] for k, p in leaves.items() if p in grads}
