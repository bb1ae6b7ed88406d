"""The laws that every op obeys; `check_op` runs them all on one case. Floor 6."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_sparse import ops
from tinygrad_sparse.backward import GradStore
from tinygrad_sparse.errors import SparsityError
from tinygrad_sparse.primitive import Primitive
from tinygrad_sparse.slices import IndexedSlices, densify, is_sparse
from tinygrad_sparse.tape import Tape
from tinygrad_sparse.tensor import Tensor, parameter, tensor, unwrap

from .cases import Case
from .gradcheck import check_grads

ROW_SETS = {"one": [0], "many": [3, 1], "repeated": [2, 2, 4, 0, 2], "none": []}


def gradient(case: Case) -> None:
    """Gradients equal finite differences, at orders 1 and 2."""
    check_grads(case, case.draw(), order=case.order)


def sparse_pull(case: Case) -> None:
    """Pulling rows back equals pulling the dense cotangent back, for any rows, at every lead."""
    arrays = case.draw()
    shape = np.shape(unwrap(case(*map(tensor, arrays))))
    for lead in range(1, len(shape) + 1):
        size = math.prod(shape[:lead])
        for label, chosen in ROW_SETS.items():
            rows = [r % size for r in chosen] if size else []
            values = np.random.default_rng(1).normal(size=(len(rows), *shape[lead:]))
            g = IndexedSlices(rows, values, shape, lead)
            try:
                sparse = _pull(case, arrays, g, "raise" if case.rows == "sparse" else "allow")
            except SparsityError as error:
                raise AssertionError(f"{case}, rows {label}: {error}") from error
            dense = _pull(case, arrays, g.to_dense(), "allow")
            assert set(sparse) == set(dense), f"{case}: different arguments reached"
            for k in dense:
                got, wanted = densify(sparse[k]), densify(dense[k])
                np.testing.assert_allclose(
                    got, wanted, rtol=1e-10, atol=1e-12, err_msg=f"{case}, lead {lead}, {label}"
                )


def rows_commute(case: Case) -> None:
    """f(x)[r] == f(x[r]): what a row rule claims, said of the forward."""
    if case.commutes:
        arrays = case.draw()
        rows = [2, 0, 2]
        some = [a[rows] if k in case.commutes else a for k, a in enumerate(arrays)]
        whole = unwrap(case(*map(tensor, arrays)))
        np.testing.assert_allclose(unwrap(case(*map(tensor, some))), whole[rows], rtol=1e-12)


def dtype_kept(case: Case) -> None:
    """float32 and float16 in, the same out, and gradients likewise."""
    for dtype in (np.float32, np.float16):
        arrays = case.draw(dtype=dtype)
        leaves, out = _run(case, arrays, Tape("allow"))
        assert out.dtype == dtype, f"{case}: {np.dtype(dtype)} in, {out.dtype} out"
        grads = out.backward(seed=np.ones(out.shape))
        for k, leaf in leaves.items():
            assert grads[leaf].dtype == dtype, f"{case}: argument {k} got {grads[leaf].dtype}"


def upstream_is_read_only(case: Case) -> None:
    """A read-only, stride-0 upstream works, and neither it nor the arguments are written to."""
    arrays = case.draw()
    before = [a.copy() for a in arrays]
    shape = np.shape(unwrap(case(*map(tensor, arrays))))
    seed = np.broadcast_to(np.float64(0.5), shape)
    once = _pull(case, arrays, seed, "allow")
    again = _pull(case, arrays, np.full(shape, 0.5), "allow")
    for k in once:
        np.testing.assert_array_equal(densify(once[k]), densify(again[k]), err_msg=str(case))
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=f"{case} wrote to its arguments")


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
        g = out.backward(seed=np.ones(out.shape))
        assert g.get_ids() == [leaves[k].id], f"{case}: gradients of constants"
        np.testing.assert_allclose(densify(g[leaves[k]]), densify(everything[k]), rtol=1e-12)


def twice_is_double(case: Case) -> None:
    """Using an op's inputs twice doubles every gradient: only the engine accumulates."""
    arrays = case.draw()
    once = _pull(case, arrays, None, "allow")
    leaves = {k: parameter(a) for k, a in enumerate(arrays) if a.dtype.kind == "f"}
    with Tape("allow"):
        xs = [leaves.get(k, a) for k, a in enumerate(arrays)]
        total = ops.sum(case(*xs)) + ops.sum(case(*xs))
    grads = total.backward()
    for k, g in once.items():
        np.testing.assert_allclose(
            densify(grads[leaves[k]]), 2 * densify(g), rtol=1e-9, atol=1e-12, err_msg=str(case)
        )


def _guarded(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tape entry whose VJPs for untracked arguments fail when they are run."""
    op, _, _, parents, *_ = entry

    def refuse(*args: Any, **static: Any) -> Any:
        raise AssertionError(f"{op.name}: the VJP of an untracked argument was run")

    vjps = [op.vjp_of(k) if parent else refuse for k, parent in enumerate(parents)]
    vjp = vjps.__getitem__ if op.variadic else tuple(vjps)
    guarded = Primitive(op.name, op.kernels, vjp, op.rows, op.variadic)
    return (guarded, *entry[1:])


LAWS = [
    gradient,
    sparse_pull,
    rows_commute,
    dtype_kept,
    upstream_is_read_only,
    untracked_does_no_work,
    twice_is_double,
]


def check_op(case: Case) -> None:
    """Every law on one case."""
    for law in LAWS:
        law(case)


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
        seed = np.ones(out.shape)
    elif is_sparse(seed):
        seed = seed.astype(out.dtype)
    grads: GradStore = out.backward(seed=seed)
    return {k: grads[p] for k, p in leaves.items() if p in grads}
