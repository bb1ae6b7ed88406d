"""What a pull-back promises besides being right: repeatable, zero at zero, hands off. Floor 6.

Each of these was somebody's silent fault: a rule that assumed a contiguous upstream, one that wrote
into it, a 0 · inf under a zero upstream, an atomic sum that differs from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygrad_sparse.backend import xp_of
from tinygrad_sparse.errors import explain
from tinygrad_sparse.slices import Gradient, densify, is_sparse

from .compare import Options, Problem, rounding
from .diagnosis import GradientError
from .places import dense, home


def check_unwritten(problem: Problem, options: Options) -> None:
    """A rule writes to nothing it was given. Checked first, for it misleads whatever follows."""
    before = [np.array(home(a)) for a in problem.held]
    seed = _weights(problem, options)
    upstream = problem.put(seed.copy())
    first = problem.vjp(upstream)
    if not np.array_equal(seed, home(upstream)):
        raise _written_to(problem, "its upstream")
    kept = {i: np.array(dense(g)) for i, g in first.items()}
    problem.vjp(problem.put(-seed))
    if not all(_same(first[i], g) for i, g in kept.items()):
        raise _written_to(problem, "the cotangent that it gave before")
    for a, b in zip(problem.held, before, strict=True):
        if not np.array_equal(home(a), b, equal_nan=True):
            raise _written_to(problem, "its arguments or its result")


def check_repeatable(problem: Problem, again: Problem, options: Options) -> None:
    """Two runs give the same bits, in the value and in every cotangent."""
    seed = _weights(problem, options)
    pairs: list[tuple[str, Gradient, Gradient]] = [("the result", problem.out, again.out)]
    first, second = problem.pull(seed), again.pull(seed)
    for i in sorted({*first, *second}):
        pairs.append((f"the gradient of argument {i}", first.get(i), second.get(i)))
    for what, a, b in pairs:
        if not _same(a, b):
            raise GradientError(
                explain(
                    problem.name,
                    f"the same bits for {what} in two runs",
                    "different ones",
                    "is it random? draw outside the function, or with a fixed seed",
                ),
                "not repeatable",
            )


def check_sparse(problem: Problem, twin: Problem, options: Options) -> None:
    """Row-sparse gradients equal those of the dense twin, to rounding."""
    seed = _weights(problem, options)
    sparse = {i: g for i, g in problem.pull(seed).items() if is_sparse(g)}
    dense = twin.pull(seed) if sparse else {}
    for i, g in sparse.items():
        got, wanted = densify(g).astype(np.float64), densify(dense[i]).astype(np.float64)
        off = np.abs(got - wanted)
        if not (off <= rounding(g.dtype) * np.abs(wanted).max(initial=0.0)).all():
            at = tuple(map(int, np.unravel_index(np.argmax(off), off.shape)))
            raise GradientError(
                explain(
                    f"{problem.name}: gradient of argument {i} at {list(at)}",
                    f"{wanted[at]:.12g}, as with dense gradients from the lookup on",
                    f"{got[at]:.12g} from a row-sparse one",
                    "look at the row rules of the ops between the lookup and the result",
                ),
                "sparse",
                i,
                at,
            )


def check_zero(problem: Problem) -> None:
    """A zero upstream gives zero cotangents: no 0 · inf."""
    for i, g in problem.pull(np.zeros_like(problem.out)).items():
        dense = np.asarray(densify(g))
        if dense.any():
            bad = dense[dense != 0].ravel()[0]
            raise GradientError(
                explain(
                    f"{problem.name}: gradient of argument {i}",
                    "zeros for an upstream of zero",
                    f"{bad}",
                    "0 · inf is not a number: select with where before dividing",
                ),
                "zero upstream",
                i,
            )


def check_strides(problem: Problem, options: Options) -> None:
    """The upstream may be read-only and have any strides: the cotangents are the same."""
    for layout, seed in _layouts(problem.put(_weights(problem, options))):
        wanted = problem.vjp(seed.copy())
        try:
            got = problem.vjp(seed)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise _written_to(problem, f"its {layout} upstream") from error
        for i in wanted:
            a, b = np.asarray(dense(got[i])), np.asarray(dense(wanted[i]))
            slack = rounding(b.dtype) * np.abs(b).max(initial=0.0)
            if not (np.abs(a.astype(np.float64) - b) <= slack).all():
                raise GradientError(
                    explain(
                        f"{problem.name}: gradient of argument {i}",
                        "the same cotangent for any layout of the upstream",
                        f"another one for a {layout} upstream",
                    ),
                    "strides",
                    i,
                )


def _written_to(problem: Problem, what: str) -> GradientError:
    return GradientError(
        explain(
            problem.name,
            f"a rule that leaves {what} as it found it",
            "one that writes to it",
            "x = x + y instead of x += y; out= only into arrays of its own",
        ),
        "written to",
    )


def _layouts(seed: Any) -> Iterator[tuple[str, Any]]:
    """The same numbers in memory of other shapes, and one number in no memory at all."""
    xp = xp_of(seed)
    yield "read-only stride-0", xp.broadcast_to(xp.asarray(0.5, seed.dtype), seed.shape)
    if not seed.ndim:
        return
    yield "Fortran-ordered", xp.array(seed, order="F")
    backwards = (slice(None, None, -1),) * seed.ndim
    yield "backward-strided", seed[backwards].copy()[backwards]
    wide = xp.zeros((*seed.shape, 2), seed.dtype)
    wide[..., 0] = seed
    yield "gapped", wide[..., 0]


def _weights(problem: Problem, options: Options) -> np.ndarray:
    rng = np.random.default_rng(options.seed)
    return rng.normal(size=problem.out.shape).astype(problem.out.dtype)


def _same(a: Gradient | None, b: Gradient | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(np.asarray(dense(a)), np.asarray(dense(b)), equal_nan=True)
