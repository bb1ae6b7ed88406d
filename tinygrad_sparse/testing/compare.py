"""Claimed cotangents against differences, argument by argument. Floor 6.

The seam between the two checkers and the arithmetic: a `Problem` says how to evaluate a function
and how to pull a cotangent back through it, whether by a Tape or by somebody's own code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tinygrad_sparse.backend import as_host_array, describe
from tinygrad_sparse.errors import ArgumentError, DtypeError, explain
from tinygrad_sparse.slices import Gradient, densify, is_sparse

from .diagnosis import GradientError, Mismatch, failure
from .differences import (
    STEP,
    Arrays,
    Probe,
    Value,
    central,
    complex_step,
    direction,
    element,
    jitter,
    one_sided,
)
from .places import home

FULL = 48  # up to this size every element of an argument, or of the result, is looked at
SAMPLE = 8  # of what is larger: as many rows, besides a random direction

# Tolerances by dtype: relative to the entry, and relative to the argument's largest entry.
RTOL = {"float64": 1e-6, "float32": 2e-4, "float16": 2e-2}
ATOL = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2}


class Options(NamedTuple):
    """What the caller of a checker may choose; None means: by dtype."""

    eps: float | None = None
    atol: float | None = None
    rtol: float | None = None
    seed: int = 0
    method: str = "central"


@dataclass(frozen=True)
class Problem:
    """A function at one point, and the cotangents that are claimed for it there.

    `value` takes all arguments, the `wanted` ones in float64 (or complex, for a complex step).
    ``vjp(seed)`` gives cotangents by argument number; one that is missing is zero. It computes
    where ``put`` brings a seed to. All arrays here are on the host but `held`: those that nothing
    may write to. ``reads_nan(arrays)`` says whether a NaN among the arguments reaches anything that
    the function computes.
    """

    name: str
    arrays: Arrays
    wanted: tuple[int, ...]
    out: np.ndarray
    value: Value
    vjp: Callable[[Any], dict[int, Gradient]]
    reads_nan: Callable[[Arrays], bool]
    held: Sequence[Any] = ()
    order: int = 1
    put: Callable[[np.ndarray], Any] = np.asarray

    def pull(self, seed: np.ndarray) -> dict[int, Gradient]:
        """The cotangents of a seed, on the host."""
        return {i: home(g) for i, g in self.vjp(self.put(seed)).items()}

    @cached_property
    def wide(self) -> Arrays:
        """The arguments, with those that will be moved in float64."""
        return [a.astype(np.float64) if i in self.wanted else a for i, a in enumerate(self.arrays)]

    @cached_property
    def eps(self) -> float:
        """The relative rounding of what `value` gives."""
        return float(np.finfo(self.value(self.wide).dtype).eps)


def rounding(dtype: Any) -> float:
    """How far two computations of one thing in different order may part, of the largest entry."""
    return float(np.finfo(dtype).eps) ** 0.75


def own(op: str, args: Sequence[Any]) -> tuple[Arrays, tuple[int, ...]]:
    """Copies of the arguments, and which of them are differentiated: the floats.

    A copy does not overlap itself, whatever the argument did (a stride-0 view, say), so one element
    can be moved at a time.
    """
    arrays = [np.array(as_host_array(op, a), order="C") for a in args]
    wanted = tuple(i for i, a in enumerate(arrays) if a.dtype.kind == "f")
    strange = [describe(a) for a in arrays if a.dtype.kind not in "fiub" or a.dtype.itemsize > 8]
    if strange or not wanted:
        got = ", ".join(strange) or "no float argument"
        raise DtypeError(explain(op, "real arrays, one of them float16, float32 or float64", got))
    return arrays, wanted


def compare(problem: Problem, options: Options) -> None:
    """Raise GradientError unless every claimed cotangent equals the derivative by differences.

    Where argument and result have at most 48 elements each, that is the whole Jacobian. A larger
    result is weighed by a random upstream; a larger argument is moved along random directions, and
    at some elements. If its gradient is row-sparse, touched and untouched rows are both moved.
    """
    if not problem.wanted:  # a check of nothing would pass, whatever is wrong
        wanted = "a float argument, and a VJP for it, to compare"
        raise ArgumentError(explain(problem.name, wanted, "none"))
    _check_finite(problem)
    rng = np.random.default_rng(options.seed)
    out = problem.out
    weights = rng.normal(size=out.shape).astype(out.dtype)
    weighed = problem.pull(weights)
    seeds = [weights]
    if 0 < out.size <= FULL:
        seeds = list(np.eye(out.size, dtype=out.dtype).reshape(out.size, *out.shape))
    checks = []
    for i in problem.wanted:
        check_form(problem, i, weighed.get(i))
        checks.append(Check(problem, options, i, seeds, weighed.get(i)))
    for s, seed in enumerate(seeds):
        cotangents = problem.pull(seed)
        for check in checks:
            check.got[s] = check.read(cotangents.get(check.i))
    with np.errstate(all="ignore"):  # a step may leave the domain; that is said, not warned of
        for check in checks:
            if bad := check.mismatch():
                raise failure(bad, [c for c in checks if c is not check])
    _check_linear(problem, checks, weights, rng)
    if problem.order == 1:
        for i in problem.wanted:
            _check_ids(problem, i, weighed.get(i))


class Check:
    """One argument's claimed derivatives, seeds by probes, and the expected ones on demand."""

    def __init__(
        self,
        problem: Problem,
        options: Options,
        i: int,
        seeds: list[np.ndarray],
        weighed: Gradient | None,
    ) -> None:
        self.problem, self.options, self.i = problem, options, i
        self.probes = _probes(problem.wide[i], weighed, np.random.default_rng(options.seed))
        self.seeds = np.array(seeds, np.float64).reshape(len(seeds), problem.out.size)
        self.got = np.zeros((len(seeds), len(self.probes)))
        # A function that rounds to float32 at its end needs a step that shows through that.
        fine = problem.eps < 1e-15
        self.step = options.eps or (STEP if fine else problem.eps ** (1 / 3))

    def read(self, g: Gradient | None) -> list[float]:
        """A cotangent's derivative along each probe."""
        if g is None:
            return [0.0] * len(self.probes)
        dense = densify(g).astype(np.float64)
        return [
            float(dense[p.at] if p.at is not None else (dense * p.direction).sum())
            for p in self.probes
        ]

    def along(self, k: int, i: int | None = None, h: float | None = None) -> np.ndarray:
        """The derivative along probe `k` by central differences, for each seed."""
        path = self.probes[k].path(self.problem.wide, self.i if i is None else i)
        return self._weigh(k, central(self.problem.value, path, h or self.step))

    def sides(self, k: int, h: float) -> list[np.ndarray]:
        """The same from the left and from the right."""
        path = self.probes[k].path(self.problem.wide, self.i)
        return [self._weigh(k, side) for side in one_sided(self.problem.value, path, h)]

    def exact(self, k: int) -> np.ndarray:
        """The same by a complex step."""
        path = self.probes[k].path(self.problem.wide, self.i)
        return self._weigh(k, complex_step(self.problem.value, path))

    def _weigh(self, k: int, slope: np.ndarray) -> np.ndarray:
        return self.seeds @ np.asarray(slope, np.float64).reshape(-1) / self.probes[k].scale

    def expected(self, i: int | None = None) -> np.ndarray:
        """Central differences of argument `i` (this one), seeds by probes."""
        return np.array([self.along(k, i) for k in range(len(self.probes))]).T

    @cached_property
    def noise(self) -> np.ndarray:
        """What rounding alone may do to each difference, seeds by probes."""
        problem = self.problem
        rng = np.random.default_rng(self.options.seed)
        most = jitter(problem.value, problem.wide, self.i, rng).reshape(-1)
        most = np.maximum(most, problem.eps * np.abs(problem.out.reshape(-1)))
        each = 8 * (np.abs(self.seeds) @ most) / self.step
        return each[:, None] / np.array([[p.scale for p in self.probes]])

    def mismatch(self) -> Mismatch | None:
        """What is wrong, if anything is."""
        if not self.got.size:
            return None
        dtype = self.problem.arrays[self.i].dtype.name
        rtol, atol = max(RTOL[dtype], 10 * self.step**2), ATOL[dtype]
        expected, noise = self.expected(), self.noise
        if self.options.method == "complex":
            exact = np.array([self.exact(k) for k in range(len(self.probes))]).T
            self._check_analytic(exact, expected)
            expected, noise = exact, np.zeros_like(noise)
            rtol, atol = (1e-10, 1e-12) if dtype == "float64" else (RTOL[dtype], ATOL[dtype])
        # A function of higher order is itself a derivative, with rounding of its own.
        grown = 10.0 ** (self.problem.order - 1)
        rtol = rtol * grown if self.options.rtol is None else self.options.rtol
        atol = (
            atol * grown * np.abs(expected).max()
            if self.options.atol is None
            else self.options.atol
        )
        tolerance = atol + rtol * np.maximum(np.abs(self.got), np.abs(expected)) + noise
        wrong = ~(np.abs(self.got - expected) <= tolerance)
        return Mismatch(self, expected, tolerance, wrong) if wrong.any() else None

    def _check_analytic(self, exact: np.ndarray, coarse: np.ndarray) -> None:
        scale = float(np.maximum(np.abs(exact), np.abs(coarse)).max())
        off = np.abs(exact - coarse) > 0.01 * scale + 10 * self.noise
        if off.any():
            s, k = np.argwhere(off)[0]
            raise GradientError(
                explain(
                    self.problem.name,
                    "an analytic function, for method='complex'",
                    f"a slope of {exact[s, k]:.6g} by a complex step and of {coarse[s, k]:.6g} by "
                    f"differences in argument {self.i}",
                    "abs, maximum, comparisons and norms are not analytic: method='central'",
                ),
                "not analytic",
                self.i,
            )


def _check_linear(
    problem: Problem, checks: Sequence[Check], a: np.ndarray, rng: np.random.Generator
) -> None:
    """A VJP is linear in its cotangent: what |g| or a clipped g gives is right for some g only."""
    b = rng.normal(size=a.shape).astype(a.dtype)
    mixed = (-3.0 * a + 200.0 * b).astype(a.dtype)
    pulled = [problem.pull(g) for g in (a, b, mixed)]
    for check in checks:
        first, second, both = (np.array(check.read(p.get(check.i))) for p in pulled)
        expected = -3.0 * first + 200.0 * second
        dtype, scale = problem.arrays[check.i].dtype.name, 200.0 * np.abs(second).max(initial=0.0)
        off = ~(np.abs(both - expected) <= 200.0 * ATOL[dtype] + 10.0 * RTOL[dtype] * scale)
        if np.isfinite(expected).all() and off.any():
            k = int(np.argmax(off))
            raise GradientError(
                explain(
                    f"{problem.name}: gradient of argument {check.i}",
                    f"{expected[k]:.7g} for the cotangent 200 b - 3 a, as a VJP is linear",
                    f"{both[k]:.7g}",
                    "a rule may not look at the cotangent's size or sign: no abs, clip or where "
                    "of g",
                ),
                "not linear",
                check.i,
            )


def check_form(problem: Problem, i: int, g: Gradient | None) -> None:
    """A cotangent has its argument's shape and dtype."""
    x = problem.arrays[i]
    if g is None or (tuple(g.shape) == x.shape and g.dtype == x.dtype):
        return
    kind = "dtype" if tuple(g.shape) == x.shape else "shape"
    stretched = kind == "shape" and tuple(g.shape) == problem.out.shape
    raise GradientError(
        explain(
            f"{problem.name}: gradient of argument {i}",
            describe(x),
            describe(g),
            "sum over the axes along which the argument was broadcast" if stretched else None,
        ),
        kind,
        i,
    )


def _check_finite(problem: Problem) -> None:
    places = [(f"argument {i}", problem.arrays[i]) for i in problem.wanted]
    for what, a in [*places, ("the result", problem.out)]:
        if not np.isfinite(a).all():
            at = tuple(map(int, np.argwhere(~np.isfinite(a))[0]))
            raise GradientError(
                explain(
                    problem.name,
                    "finite arguments and a finite result",
                    f"{a[at]} at {list(at)} of {what}",
                    "differences mean nothing there; move the arguments",
                ),
                "not finite",
            )


def _check_ids(problem: Problem, i: int, g: Gradient | None) -> None:
    """A row that the function never reads is absent from the ids, not merely zero."""
    if g is None or not is_sparse(g):
        return
    merged = g.coalesce()
    rows, inner = math.prod(g.shape[: g.lead]), math.prod(g.shape[g.lead :])
    idle = ~merged.values.reshape(len(merged.indices), inner).any(axis=1)
    for row in merged.indices[idle][:SAMPLE]:
        x = problem.wide[i].copy()
        x.reshape(rows, inner)[row] = np.nan
        if not problem.reads_nan([*problem.wide[:i], x, *problem.wide[i + 1 :]]):
            raise GradientError(
                explain(
                    f"{problem.name}: gradient of argument {i}",
                    "the ids of rows that are used",
                    f"row {row}, which nothing reads, with values of zero",
                    "give IndexedSlices of the rows that were looked up, and no others",
                ),
                "untouched row",
                i,
                (int(row),),
            )


def _probes(x: np.ndarray, g: Gradient | None, rng: np.random.Generator) -> list[Probe]:
    """Each element of a small argument; some elements, and random directions, of a large one."""
    if x.size <= FULL:
        return [element(x, at) for at in np.ndindex(x.shape)]
    rows = len(x)
    regions = {"all elements": np.arange(rows)}
    if g is not None and is_sparse(g):
        rows = math.prod(g.shape[: g.lead])
        touched = np.unique(g.indices)
        others = np.setdiff1d(np.arange(rows), touched)
        regions = {"the touched rows": touched, "the untouched rows": others}
    inner = x.size // rows
    probes = []
    for name, region in regions.items():
        if len(region):
            d = rng.normal(size=(rows, inner))
            probes.append(direction(x, region, d, f"a random direction in {name}"))
        for row in rng.choice(region, size=min(SAMPLE, len(region)), replace=False):
            flat = int(row) * inner + int(rng.integers(inner))
            probes.append(element(x, tuple(map(int, np.unravel_index(flat, x.shape)))))
    return probes
