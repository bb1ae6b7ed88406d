"""How a row rests: closed forms of many steps with a zero gradient. Floor 5.

Each reads its factors off the rule's own formula (`Rule.at_rest`); none repeats it. What they carry
from step to step composes as `history` needs it. The derivations are in docs/decisions/.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .history import History, Rest
from .rule import Rule

TINY = 1e-30  # a momentum that decayed to this part of itself moves nothing any more


def _columns(factors: np.ndarray, like: Any) -> Any:
    """(k, n) numbers as (k, n, 1, ...), to multiply rows of `like` by."""
    shape = (*factors.shape, *(1,) * (like.ndim - 1))
    with np.errstate(over="ignore"):
        return factors.reshape(shape).astype(like.dtype)


class linear:
    """A zero gradient maps (p, *slots) linearly, element by element: momentum, any decay, averages.

    The carry is the product of the steps' matrices.
    """

    kept = 0

    def __init__(self, rule: Rule, dtype: Any) -> None:
        self.rule = rule
        self.size = len(rule.slots) + 1
        self.width = self.size**2

    def same(self) -> np.ndarray:
        return np.eye(self.size).ravel()

    def one(self, hyper: Any) -> tuple[np.ndarray, np.ndarray]:
        return self.rule.at_rest(hyper).ravel(), np.empty(0)

    def chain(self, first: np.ndarray, then: np.ndarray) -> np.ndarray:
        n = self.size
        product = (then.reshape(n, n, 1, -1) * first.reshape(1, n, n, -1)).sum(1)
        return product.reshape(self.width, -1)

    def drift(self, carry: np.ndarray) -> int:
        first = carry.reshape(self.size, self.size)[:, 0]
        return 2 if first[1:].any() else int(first[0] != 1)

    def moves(self, carry: np.ndarray) -> bool:
        return not np.array_equal(carry[: self.size], self.same()[: self.size])

    def factors(self, carry: np.ndarray) -> np.ndarray:
        return carry

    def apply(
        self, factors: np.ndarray, p: Any, slots: list[Any], steps: np.ndarray, history: History
    ) -> tuple[Any, list[Any]]:
        rows = [p, *slots]
        matrix = factors.reshape(self.size, self.size, -1)
        new = []
        for line, row in zip(matrix, rows, strict=True):
            used = np.flatnonzero(line.any(axis=1))
            total = None
            for factor, j in zip(_columns(line[used], row), used, strict=True):
                part = factor * rows[j]
                total = part if total is None else total + part
            new.append(np.zeros_like(row) if total is None else total)
        return new[0], new[1:]


class _Along:
    """See `along`. The carry: what p is multiplied by, the slots' decays, and the path's length."""

    kept = 0

    def __init__(self, rule: Rule, dtype: Any, direction: Callable[..., Any]) -> None:
        self.rule = rule
        self.direction = direction
        self.width = len(rule.slots) + 2

    def same(self) -> np.ndarray:
        carry = np.ones(self.width)
        carry[-1] = 0.0
        return carry

    def one(self, hyper: Any) -> tuple[np.ndarray, np.ndarray]:
        ones = [np.ones(1) for _ in self.rule.slots]
        moved = self.rule.formula(np.zeros(1), np.zeros(1), *ones, **hyper)[0]
        return np.append(np.diag(self.rule.at_rest(hyper)), moved), np.empty(0)

    def chain(self, first: np.ndarray, then: np.ndarray) -> np.ndarray:
        carry = first * then
        carry[-1] = then[0] * first[-1] + then[-1]
        return carry

    def drift(self, carry: np.ndarray) -> int:
        return int(carry[0] != 1)

    def moves(self, carry: np.ndarray) -> bool:
        return bool(carry[0] != 1 or carry[-1] != 0)

    def factors(self, carry: np.ndarray) -> np.ndarray:
        return carry

    def apply(
        self, factors: np.ndarray, p: Any, slots: list[Any], steps: np.ndarray, history: History
    ) -> tuple[Any, list[Any]]:
        decay, *decays, length = _columns(factors, p)
        new = decay * p + length * self.direction(*slots)
        return new, [d * s for d, s in zip(decays, slots, strict=True)]


def along(direction: Callable[..., Any]) -> Callable[[Rule, Any], Rest]:
    """A zero gradient moves p along ``direction(*slots)``, which resting does not change.

    As in Lion, where p moves by lr · sign(m) while m decays. The direction is of size 1.
    """
    return partial(_Along, direction=direction)


Terms = Callable[[Any], tuple[float, float, float]]


class _Quotient:
    """See `quotient`. Rows of the carry, for the steps i in (a, t]:

    0: D, what p is multiplied by; then the slots' decays; then R = M/√N and Q = 1/√N, for the
    decays M of the momentum and N of the denominator; then the least ηᵢ; then S₀ ... S_K,
    Sₖ = Σ ωᵢ ηᵢᵏ, in which ωᵢ and ηᵢ are the scalars of p -= Σ ωᵢ m/(√v + ηᵢ).
    """

    kept = 5

    def __init__(self, rule: Rule, dtype: Any, m: str, v: str, terms: Terms) -> None:
        self.rule = rule
        self.terms = terms
        self.m, self.v = rule.slots.index(m), rule.slots.index(v)
        self.order = 10 if dtype == np.float64 else 4
        self.tolerance = np.finfo(dtype).eps
        self.low = len(rule.slots) + 3  # the row of the least η
        self.width = self.low + self.order + 2
        self.powers = np.arange(self.order + 1)
        self.noise = 2.0 ** self.powers[2:, None] * 1e-15

    def same(self) -> np.ndarray:
        carry = np.ones(self.width)
        carry[self.low] = np.inf
        carry[self.low + 1 :] = 0.0
        return carry

    def one(self, hyper: Any) -> tuple[np.ndarray, np.ndarray]:
        factors = np.diag(self.rule.at_rest(hyper))
        M, N = factors[1 + self.m], factors[1 + self.v]
        weight, root, eps = self.terms(hyper)  # p -= weight · m / (√v / root + eps)
        weight, eps = weight * root, eps * root
        R, Q = M / math.sqrt(N), 1.0 / math.sqrt(N)
        sums = weight * R * (eps * Q) ** self.powers
        kept = np.array([factors[0], M, N, weight, eps])
        return np.concatenate([factors, [R, Q, eps * Q], sums]), kept

    def chain(self, first: np.ndarray, then: np.ndarray) -> np.ndarray:
        low = self.low
        with np.errstate(all="ignore"):
            carry = first * then
            R, Q = first[low - 2], first[low - 1]
            np.fmin(first[low], Q * then[low], out=carry[low])
            scale = np.empty((self.order + 1, first.shape[1]))
            scale[0] = R
            scale[1:] = np.where(R > 1e-200, Q, 0.0)  # Q may overflow once R is nothing
            np.multiply.accumulate(scale, axis=0, out=scale)
            np.multiply(scale, then[low + 1 :], out=carry[low + 1 :])
            carry[low + 1 :] += then[0] * first[low + 1 :]
        return carry

    def drift(self, carry: np.ndarray) -> int:
        return int(carry[0] != 1)

    def moves(self, carry: np.ndarray) -> bool:
        return bool(carry[0] != 1 or carry[self.low + 1] != 0)

    def factors(self, carry: np.ndarray) -> np.ndarray:
        """D and the slots' decays; Σω and the mean η̄ of η; what bounds the remainder of a series;
        the central moments of η/η̄ from the second on.
        """
        sums = carry[self.low + 1 :]
        with np.errstate(all="ignore"):
            none = sums[0] == 0.0  # a learning rate of zero all along
            centre = np.where(none, 1.0, sums[1] / sums[0])
            scale = np.full_like(sums, 1.0) * centre
            scale[0] = sums[0]
            np.multiply.accumulate(scale, axis=0, out=scale)
            raw = np.where(none, 1.0, sums / scale)  # Σ ω (η/η̄)ᵏ / Σ ω
            moments = np.empty((self.order - 1, raw.shape[1]))
            for k in range(self.order):  # differences: Σ ω (η/η̄ - 1)ᵏ / Σ ω
                raw = raw[1:] - raw[:-1]
                if k:
                    moments[k - 1] = raw[0]
            # what is below the rounding of numbers near 1 is not there
            moments[abs(moments) < self.noise] = 0.0
            spread = np.where(none, 0.0, np.maximum(1.0, centre / carry[self.low]))
        return np.concatenate([carry[: self.low - 2], [sums[0], centre, spread], moments])

    def apply(
        self, factors: np.ndarray, p: Any, slots: list[Any], steps: np.ndarray, history: History
    ) -> tuple[Any, list[Any]]:
        n = self.low - 2
        centre, spread, *moments = factors[n + 1 :]
        decay, *decays, total_, centre_ = _columns(factors[: n + 2], p)
        m, v = slots[self.m], slots[self.v]
        root = np.sqrt(v)
        below = root + centre_  # √v + η̄
        with np.errstate(all="ignore"):
            # u = η̄ / (√v + η̄) is at most this in each row; the series in u stops where it may
            least = root.min(axis=tuple(range(1, p.ndim)), initial=np.inf).astype(np.float64)
            top = 1.0 / (1.0 + least / centre)
            for order in range(2, self.order + 1, 2):
                bound = moments[order - 2] * spread
                sure = bound * top**order <= self.tolerance
                if sure.all():
                    break
            moved = m * total_ / below
            if order > 2:
                t = -centre_ / below
                mus = _columns(np.array(moments[: order - 2]), p)
                series = mus[-1]
                for mu in mus[-2::-1]:
                    series = series * t + mu
                moved += moved * (t * t) * series
        kept = p if (factors[0] == 1.0).all() else decay * p
        new = kept - moved
        if not sure.all():
            rows = np.flatnonzero(~sure)
            with np.errstate(all="ignore"):
                limit = (self.tolerance / bound[rows]) ** (1.0 / order)
                far = ~(centre_[rows] / below[rows] <= _columns(limit, p))
            resting = far & (m[rows] == 0)
            new[rows] = np.where(resting, kept[rows], new[rows])
            row, *rest = np.nonzero(far & ~resting)
            if len(row):
                at = (rows[row], *rest)
                new[at] = self._replay(p[at], m[at], v[at], steps[at[0]], history)
        return new, [d * s for d, s in zip(decays, slots, strict=True)]

    def _replay(self, p: Any, m: Any, v: Any, steps: np.ndarray, history: History) -> Any:
        """Single elements step by step, until nothing is left of their momentum."""
        order = np.argsort(steps, kind="stable")
        steps = steps[order]
        p, m, v = (np.array(x[order], np.float64) for x in (p, m, v))
        left = np.ones_like(p)
        first, i, n = 0, int(steps[0]), len(steps)
        while first < n and i < history.now:
            i = max(i, int(steps[first])) + 1
            active = slice(first, int(np.searchsorted(steps, i)))
            decay, M, N, weight, eps = history.step(i)
            left[active] *= M
            m[active] *= M
            v[active] *= N
            p[active] = decay * p[active] - weight * m[active] / (np.sqrt(v[active]) + eps)
            if i % 16 == 0:
                done = first + int(np.searchsorted(left[active] >= TINY, True))
                p[first:done] *= history.since(np.array([i]))[0, 0]
                first = done
        new = np.empty_like(p)
        new[order] = p
        return new


def quotient(m: str, v: str, terms: Terms) -> Callable[[Rule, Any], Rest]:
    """A zero gradient moves p by a scalar times m / (√v / root + eps), while m and v decay: Adam.

    `terms(hyper)` gives (weight, root, eps) of a step, for m and v as they are after it:
    p' = D·p - weight · m' / (√v' / root + eps).
    """
    return partial(_Quotient, m=m, v=v, terms=terms)
