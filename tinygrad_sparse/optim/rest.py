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
    """A zero gradient maps (p, *slots) linearly, element by element: momentum, any decay, means.

    The carry is the product of the steps' matrices.
    """

    kept = 0
    moveless = False  # whether nothing but an average moves

    def __init__(self, rule: Rule, dtype: Any, average: bool = False) -> None:
        self.rule = rule
        self.average = average
        self.size = len(rule.slots) + 1 + average
        self.width = self.size**2

    def same(self) -> np.ndarray:
        return np.eye(self.size).ravel()

    def one(self, hyper: Any, average: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        matrix = np.eye(self.size)
        n = len(self.rule.slots) + 1
        if not self.moveless:
            matrix[:n, :n] = self.rule.at_rest(hyper)
        if self.average:
            matrix[-1, :n] = (1.0 - average) * matrix[0, :n]
            matrix[-1, -1] = average
        return matrix.ravel(), np.empty(0)

    def chain(self, first: np.ndarray, then: np.ndarray) -> np.ndarray:
        n = self.size
        product = (then.reshape(n, n, 1, -1) * first.reshape(1, n, n, -1)).sum(1)
        return product.reshape(self.width, -1)

    def drift(self, carry: np.ndarray) -> int:
        n = len(self.rule.slots) + 1
        first = carry.reshape(self.size, self.size)[:n, 0]
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


class moveless(linear):
    """Nothing moves at rest but the average: rules that are still, and the lazy meaning of any."""

    moveless = True


class _Along:
    """See `along`. The carry: what p is multiplied by, the slots' decays, and the path's length."""

    kept = 0

    def __init__(
        self, rule: Rule, dtype: Any, average: bool = False, *, direction: Callable[..., Any]
    ) -> None:
        self.rule = rule
        self.direction = direction
        self.average = average
        self.length = len(rule.slots) + 1  # the row of the path's length
        self.width = self.length + (4 if average else 1)

    def same(self) -> np.ndarray:
        carry = np.ones(self.width)
        carry[self.length] = 0.0
        carry[self.length + 2 :] = 0.0
        return carry

    def one(self, hyper: Any, average: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        ones = [np.ones(1) for _ in self.rule.slots]
        moved = self.rule.formula(np.zeros(1), np.zeros(1), *ones, **hyper)[0]
        carry = np.append(np.diag(self.rule.at_rest(hyper)), moved)
        if self.average:
            part = 1.0 - average
            carry = np.concatenate([carry, [average, part * carry[0]], part * moved])
        return carry, np.empty(0)

    def chain(self, first: np.ndarray, then: np.ndarray) -> np.ndarray:
        carry, n = first * then, self.length
        carry[n] = then[0] * first[n] + then[n]
        if self.average:  # rows: what it keeps of itself, what it takes of p, and of the path
            a, b, e = n + 1, n + 2, n + 3
            carry[b] = then[a] * first[b] + then[b] * first[0]
            carry[e] = then[a] * first[e] + then[b] * first[n] + then[e]
        return carry

    def drift(self, carry: np.ndarray) -> int:
        return int(carry[0] != 1)

    def moves(self, carry: np.ndarray) -> bool:
        return bool(carry[0] != 1 or carry[self.length] != 0)

    def factors(self, carry: np.ndarray) -> np.ndarray:
        return carry

    def apply(
        self, factors: np.ndarray, p: Any, slots: list[Any], steps: np.ndarray, history: History
    ) -> tuple[Any, list[Any]]:
        decay, *decays = _columns(factors, p)
        n = len(self.rule.slots)
        direction = self.direction(*slots[:n])
        new = decay * p + decays[n] * direction
        new_slots = [d * s for d, s in zip(decays, slots[:n], strict=False)]
        if self.average:
            own, of_p, of_path = decays[n + 1 :]
            new_slots.append(own * slots[-1] + of_p * p + of_path * direction)
        return new, new_slots


def along(direction: Callable[..., Any]) -> Callable[..., Rest]:
    """A zero gradient moves p along ``direction(*slots)``, which resting does not change.

    As in Lion, where p moves by lr · sign(m) while m decays. The direction is of size 1.
    """
    return partial(_Along, direction=direction)


Terms = Callable[[Any], tuple[float, float, float]]


class _Quotient:
    """See `quotient`. Rows of the carry, for the steps i in (a, t]:

    0: D, what p is multiplied by; then the slots' decays; then R = M/√N and Q = 1/√N, for the
    decays M of the momentum and N of the denominator; then the least ηᵢ; then S₀ ... S_K,
    Sₖ = Σ ωᵢ ηᵢᵏ, in which ωᵢ and ηᵢ are the scalars of p -= Σ ωᵢ m/(√v + ηᵢ). With an average:
    what it keeps of itself, what it takes of p, and sums as above for what it takes of the path.
    """

    kept = 6

    def __init__(
        self, rule: Rule, dtype: Any, average: bool = False, *, m: str, v: str, terms: Terms
    ) -> None:
        self.rule = rule
        self.average = average
        self.terms = terms
        self.m, self.v = rule.slots.index(m), rule.slots.index(v)
        self.order = 10 if dtype == np.float64 else 4
        self.tolerance = np.finfo(dtype).eps
        self.low = len(rule.slots) + 3  # the row of the least η
        self.sums = slice(self.low + 1, self.low + self.order + 2)
        self.own = self.sums.stop  # rows of an average: its own part, p's, and its sums
        self.path = slice(self.own + 2, self.own + self.order + 3)
        self.width = self.path.stop if average else self.own
        self.powers = np.arange(self.order + 1)
        self.noise = 2.0 ** self.powers[2:, None] * 1e-15

    def same(self) -> np.ndarray:
        carry = np.ones(self.width)
        carry[self.low] = np.inf
        carry[self.low + 1 :] = 0.0
        if self.average:
            carry[self.own] = 1.0
        return carry

    def one(self, hyper: Any, average: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        factors = np.diag(self.rule.at_rest(hyper))
        M, N = factors[1 + self.m], factors[1 + self.v]
        weight, root, eps = self.terms(hyper)  # p -= weight · m / (√v / root + eps)
        weight, eps = weight * root, eps * root
        if not N:  # v is nothing after one step: no closed form
            return np.full(self.width, np.nan), np.zeros(self.kept)
        R, Q = M / math.sqrt(N), 1.0 / math.sqrt(N)
        sums = weight * R * (eps * Q) ** self.powers
        kept = np.array([factors[0], M, N, weight, eps, average])
        carry = np.concatenate([factors, [R, Q, eps * Q], sums])
        if self.average:
            part = 1.0 - average
            carry = np.concatenate([carry, [average, part * factors[0]], part * sums])
        return carry, kept

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
            carry[self.sums] = scale * then[self.sums] + then[0] * first[self.sums]
            if self.average:
                own, of_p = then[self.own], then[self.own + 1]
                carry[self.own + 1] = own * first[self.own + 1] + of_p * first[0]
                path = scale * then[self.path]
                carry[self.path] = path + own * first[self.path] + of_p * first[self.sums]
        return carry

    def drift(self, carry: np.ndarray) -> int:
        return int(carry[0] != 1)

    def moves(self, carry: np.ndarray) -> bool:
        return bool(carry[0] != 1 or carry[self.low + 1] != 0)

    def factors(self, carry: np.ndarray) -> np.ndarray:
        """D and the slots' decays, the spectrum of the path; for an average its parts and path."""
        parts = [carry[: self.low - 2], self._spectrum(carry[self.sums], carry[self.low])]
        if self.average:
            parts += [carry[self.own : self.own + 2]]
            parts += [self._spectrum(carry[self.path], carry[self.low])]
        return np.concatenate(parts)

    def _spectrum(self, sums: np.ndarray, least: np.ndarray) -> np.ndarray:
        """Σω and the mean η̄ of η; what bounds the remainder of a series; the central moments of
        η/η̄ from the second on.
        """
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
            spread = np.where(none, 0.0, np.maximum(1.0, centre / least))
        return np.concatenate([[sums[0], centre, spread], moments])

    def apply(
        self, factors: np.ndarray, p: Any, slots: list[Any], steps: np.ndarray, history: History
    ) -> tuple[Any, list[Any]]:
        n = self.low - 2
        ends = n + self.order + 2
        decays = _columns(factors[1:n], p)
        m, v = slots[self.m], slots[self.v]
        root = np.sqrt(v)
        kept = p if (factors[0] == 1.0).all() else _columns(factors[:1], p)[0] * p
        moved, far = self._moved(factors[n:ends], m, root)
        new = kept - moved
        new_slots = [d * s for d, s in zip(decays, slots, strict=False)]
        average = None
        if self.average:
            own, of_p = _columns(factors[ends : ends + 2], p)
            moved, farther = self._moved(factors[ends + 2 :], m, root)
            average = own * slots[-1] + of_p * p - moved
            far = farther if far is None else far if farther is None else far | farther
            new_slots.append(average)
        if far is not None:
            at = np.nonzero(far)
            old = slots[-1][at] if self.average else np.zeros(len(at[0]))
            if len(at[0]):
                new[at], old = self._replay(p[at], m[at], v[at], old, steps[at[0]], history)
            if average is not None:
                average[at] = old
        return new, new_slots

    def _moved(self, spectrum: np.ndarray, m: Any, root: Any) -> tuple[Any, Any]:
        """Σ ωᵢ m/(√v + ηᵢ), and a mask of the elements for which that is not sure; or None."""
        centre, spread, *moments = spectrum[1:]
        total_, centre_ = _columns(spectrum[:2], root)
        below = root + centre_  # √v + η̄
        with np.errstate(all="ignore"):
            # u = η̄ / (√v + η̄) is at most this in each row; the series in u stops where it may
            least = root.min(axis=tuple(range(1, root.ndim)), initial=np.inf).astype(np.float64)
            top = 1.0 / (1.0 + least / centre)
            for order in range(2, self.order + 1, 2):
                bound = moments[order - 2] * spread
                sure = bound * top**order <= self.tolerance
                if sure.all():
                    break
            moved = m * total_ / below
            if order > 2:
                t = -centre_ / below
                mus = _columns(np.array(moments[: order - 2]), root)
                series = mus[-1]
                for mu in mus[-2::-1]:
                    series = series * t + mu
                moved += moved * (t * t) * series
            if sure.all():
                return moved, None
            rows = np.flatnonzero(~sure)
            limit = (self.tolerance / bound[rows]) ** (1.0 / order)
            unsure = ~(centre_[rows] / below[rows] <= _columns(limit[None], root)[0])
        resting = unsure & (m[rows] == 0)
        moved[rows] = np.where(resting, 0.0, moved[rows])
        far = np.zeros(m.shape, bool)
        far[rows] = unsure & ~resting
        return moved, far

    def _replay(
        self, p: Any, m: Any, v: Any, mean: Any, steps: np.ndarray, history: History
    ) -> tuple[Any, Any]:
        """Single elements and their averages, step by step until their momentum is nothing."""
        order = np.argsort(steps, kind="stable")
        steps = steps[order]
        p, m, v, mean = (np.array(x[order], np.float64) for x in (p, m, v, mean))
        left = np.ones_like(p)
        first, i, n = 0, int(steps[0]), len(steps)
        while first < n and i < history.now:
            i = max(i, int(steps[first])) + 1
            active = slice(first, int(np.searchsorted(steps, i)))
            decay, M, N, weight, eps, own = history.step(i)
            left[active] *= M
            m[active] *= M
            v[active] *= N
            p[active] = decay * p[active] - weight * m[active] / (np.sqrt(v[active]) + eps)
            mean[active] = own * mean[active] + (1.0 - own) * p[active]
            if i % 16 == 0:
                done = slice(first, first + int(np.searchsorted(left[active] >= TINY, True)))
                later = history.since(np.array([i]))[:, 0]
                if self.average:
                    mean[done] = later[self.own] * mean[done] + later[self.own + 1] * p[done]
                p[done] *= later[0]
                first = done.stop
        back = np.argsort(order)
        return p[back], mean[back]


def quotient(m: str, v: str, terms: Terms) -> Callable[..., Rest]:
    """A zero gradient moves p by a scalar times m / (√v / root + eps), while m and v decay: Adam.

    `terms(hyper)` gives (weight, root, eps) of a step, for m and v as they are after it:
    p' = D·p - weight · m' / (√v' / root + eps).
    """
    return partial(_Quotient, m=m, v=v, terms=terms)
