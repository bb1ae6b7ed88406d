"""What a wrong gradient looks like: a sign, a factor, a missing term, a kink. Floor 6.

A checker that only says "wrong" sends its reader to print two matrices. Each function below is one
hypothesis about all the entries; the first that explains them is what the error says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinygrad_sparse.backend import describe
from tinygrad_sparse.errors import explain

if TYPE_CHECKING:
    from .compare import Check


class GradientError(AssertionError):
    """A gradient that is not the derivative, or a rule that breaks a promise.

    `kind` says what it looks like. Wrong numbers: "sign", "factor", "zero", "swapped",
    "transposed", "some entries", "missing term", "not linear", "not a number". Points that
    differences cannot judge: "kink", "edge", "unsettled", "not finite", "not analytic". Broken
    promises: "shape", "dtype", "untouched row", "sparse", "not repeatable", "zero upstream",
    "strides", "written to", "twice". `argument` and `index` say where; `got` and `expected` what,
    if it is one number.
    """

    def __init__(
        self, text: str, kind: str, argument: int | None = None,
        index: tuple[int, ...] | None = None, got: float | None = None,
        expected: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(text)
        self.kind = kind
        self.argument = argument
        self.index = index
        self.got = got
        self.expected = expected


class Mismatch(NamedTuple):
    """A check that failed: `check.got` and `expected`, seeds by probes, and where they differ."""

    check: Check
    expected: np.ndarray
    tolerance: np.ndarray
    wrong: np.ndarray

    @property
    def got(self) -> np.ndarray:
        return self.check.got

    @property
    def worst(self) -> tuple[int, int]:
        """(seed, probe) of the first entry that is about as far off as any.

        Not of the furthest: with one factor everywhere, rounding would choose that.
        """
        off = np.abs(self.got - self.expected) / np.maximum(self.tolerance, 1e-300)
        off = np.where(np.isnan(off), np.inf, off)
        s, k = np.unravel_index(np.argmax(off >= off.max() / 2), off.shape)
        return int(s), int(k)

    def fits(self, other: np.ndarray) -> bool:
        """True if `other` is what was claimed, as nearly as can be told."""
        return bool((np.abs(self.got - other) <= self.tolerance).all())

    def ratio(self, where: np.ndarray) -> float | None:
        """The c for which got = c · expected at all these entries, if there is one."""
        clear = where & (np.abs(self.expected) > 10 * self.tolerance)
        if not clear.any():
            return None
        c = float(np.median(self.got[clear] / self.expected[clear]))
        slack = self.tolerance * (1 + abs(c)) + 0.02 * abs(c - 1) * np.abs(self.expected)
        return c if (np.abs(self.got - c * self.expected) <= slack)[where].all() else None


def failure(bad: Mismatch, others: Sequence[Check]) -> GradientError:
    """The error that says where it is worst, what was expected, and what it looks like."""
    check, (s, k) = bad.check, bad.worst
    problem, probe = check.problem, check.probes[k]
    at = probe.at
    where = f"at {list(at)}" if at is not None else f"along {probe.name}"
    got, expected = float(bad.got[s, k]), float(bad.expected[s, k])
    details = [describe(problem.arrays[check.i])]
    if len(check.seeds) == problem.out.size and problem.out.ndim:
        element = np.unravel_index(s, problem.out.shape)
        details.append(f"element {[int(n) for n in element]} of the result")
    elif problem.out.size > 1:
        details.append("the result weighed by a random upstream")
    if problem.order > 1:
        details.append(f"order {problem.order}")
    details.append(f"wrong at {int(bad.wrong.sum())} of {bad.wrong.size} entries")
    exact = check.options.method == "complex"
    by, digits = ("a complex step", 12) if exact else ("central differences", 7)
    kind, sentence = next(
        (name, text) for name, guess in GUESSES.items() if (text := guess(bad, others)) is not None
    )
    text = explain(
        f"{problem.name}: gradient of argument {check.i} {where}",
        f"{expected:.{digits}g} by {by}",
        f"{got:.{digits}g} ({'; '.join(details)})",
        f"it looks like {sentence}",
    )
    return GradientError(text, kind, check.i, at, got, expected)


def _not_a_number(bad: Mismatch, others: Sequence[Check]) -> str | None:
    if np.isfinite(bad.got).all():
        return None
    return "a division by zero, or a difference of infinities, in the rule"


def _edge(bad: Mismatch, others: Sequence[Check]) -> str | None:
    if np.isfinite(bad.expected).all():
        return None
    return "the edge of the domain: one step away the function is not finite; move the argument"


def _kink(bad: Mismatch, others: Sequence[Check]) -> str | None:
    (s, k), step = bad.worst, bad.check.step
    sides = [[float(side[s]) for side in bad.check.sides(k, h)] for h in (step, step / 16)]
    gap, finer = (abs(right - left) for left, right in sides)
    scale = max(map(abs, sides[0]))
    smooth = gap / 32 < finer < gap / 8  # curvature: the gap shrinks with the step
    if gap < 1e-3 * scale + 4 * float(bad.check.noise[s, k]) or smooth:
        return None
    left, right = sides[0]
    return (
        f"a kink: the slope is {left:.6g} on one side and {right:.6g} on the other, so differences "
        "say nothing; move the argument away from it"
    )


def _unsettled(bad: Mismatch, others: Sequence[Check]) -> str | None:
    s, k = bad.worst
    if bad.check.options.method == "complex":
        return None
    h = bad.check.step
    finer = float(bad.check.along(k, h=h / 16)[s])
    if abs(finer - bad.expected[s, k]) <= bad.tolerance[s, k] + 16 * bad.check.noise[s, k]:
        return None
    return (
        f"differences that do not settle: {bad.expected[s, k]:.6g} with eps={h:.2g}, "
        f"{finer:.6g} with eps={h / 16:.2g}; choose eps, or method='complex'"
    )


def _zero(bad: Mismatch, others: Sequence[Check]) -> str | None:
    if bad.got.any():
        return None
    return (
        "a path that is cut: the gradient is zero everywhere; look for .data, .detach(), no_grad, "
        "or a VJP of None"
    )


def _sign(bad: Mismatch, others: Sequence[Check]) -> str | None:
    c = bad.ratio(bad.wrong | True)
    return "a sign: got = -expected everywhere" if c is not None and abs(c + 1) < 1e-3 else None


def _factor(bad: Mismatch, others: Sequence[Check]) -> str | None:
    c = bad.ratio(bad.wrong | True)
    if c is None:
        return None
    x, out = bad.check.problem.arrays[bad.check.i], bad.check.problem.out
    return f"a factor: got = {c:.9g} × expected everywhere{_length(c, x, out)}"


def _length(c: float, x: np.ndarray, out: np.ndarray) -> str:
    """What a factor may have come from: a length that was forgotten, or counted twice."""
    for n in {round(abs(c)), round(1 / abs(c))} - {0, 1}:
        if min(abs(abs(c) - n), abs(1 / abs(c) - n)) > 1e-3 * n:
            continue
        for what, shape in (("the argument", x.shape), ("the result", out.shape)):
            if n in shape:
                return f"; {n} is the length of axis {shape.index(n)} of {what}"
            if n == math.prod(shape):
                return f"; {n} is the size of {what}"
    return ""


def _swapped(bad: Mismatch, others: Sequence[Check]) -> str | None:
    problem, i = bad.check.problem, bad.check.i
    for other in others:
        if problem.arrays[other.i].shape == problem.arrays[i].shape and bad.fits(
            bad.check.expected(other.i)
        ):
            return f"swapped arguments: this is the gradient of argument {other.i}"
    return None


def _transposed(bad: Mismatch, others: Sequence[Check]) -> str | None:
    shape = bad.check.problem.arrays[bad.check.i].shape
    if len(shape) < 2 or shape[-1] != shape[-2] or bad.expected.shape[1] != math.prod(shape):
        return None
    turned = bad.expected.reshape(-1, *shape).swapaxes(-1, -2).reshape(bad.expected.shape)
    return (
        "a transpose: the last two axes of the gradient are exchanged" if bad.fits(turned) else None
    )


def _some(bad: Mismatch, others: Sequence[Check]) -> str | None:
    entries = np.asarray(bad.wrong.any(axis=0))
    if entries.all():
        return None
    probes = [p for p, off in zip(bad.check.probes, entries, strict=True) if off]
    wrong = [list(p.at) for p in probes if p.at is not None]
    c = bad.ratio(bad.wrong)
    what = "" if c is None else "zero" if abs(c) < 1e-9 else f"{c:.6g} × what it should be"
    text = f"some entries{f' that are {what}' if what else ''}: the others are right"
    if rows := _whole_rows(bad.check.problem.arrays[bad.check.i].shape, wrong):
        return (
            f"{text}, wrong are the rows {rows}; what arrives at one row from several ids adds up"
        )
    more = ", ..." if len(wrong) > 3 else ""
    return f"{text}, wrong are {', '.join(map(str, wrong[:3]))}{more}"


def _whole_rows(shape: tuple[int, ...], wrong: list[list[int]]) -> list[int]:
    """The rows that the wrong entries fill, if they fill rows."""
    rows = sorted({at[0] for at in wrong if at})
    fills = len(shape) > 1 and len(wrong) == len(rows) * math.prod(shape[1:])
    return rows if fills else []


def _missing(bad: Mismatch, others: Sequence[Check]) -> str:
    s, k = bad.worst
    off = float(bad.got[s, k] - bad.expected[s, k])
    return f"a missing or a wrong term: got - expected is {off:.6g} here, in no fixed proportion"


GUESSES: dict[str, Any] = {
    "edge": _edge,
    "not a number": _not_a_number,
    "kink": _kink,
    "unsettled": _unsettled,
    "zero": _zero,
    "sign": _sign,
    "factor": _factor,
    "swapped": _swapped,
    "transposed": _transposed,
    "some entries": _some,
    "missing term": _missing,
}
