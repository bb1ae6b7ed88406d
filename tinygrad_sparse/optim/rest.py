"""How a row rests: closed forms of many steps with a zero gradient. Floor 5.

Each reads its factors off the rule's own formula (`Rule.at_rest`), and so follows its settings;
that the formula has the form in question is the rule's claim, which `proof` tries out. What they
carry from step to step composes as `history` needs it. The derivations are in docs/decisions/.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from tinygrad_sparse.errors import ArgumentError, explain

from .history import Formula, History, Rest
from .rule import Rule

TINY = 1e-30  # a momentum that decayed to this part of itself moves nothing any more


def columns_of(factors: np.ndarray, like: Any) -> Any:
    """(k, n) numbers as (k, n, 1, ...), to multiply rows of `like` by."""
    shape = (*factors.shape, *(1,) * (like.ndim - 1))
    with np.errstate(over="ignore"):
        return factors.reshape(shape).astype(like.dtype)


# -- formulas, of a row's numbers (p, *slots) and its factors --------------------------------------


def _times(factor: int, number: int) -> Formula:
    """One of the factors times one number of the row."""
    return lambda row, factors: factors[factor] * row[number]


def _sum(first: Formula, *others: Formula) -> Formula:
    """What some formulas give, added up."""
    if not others:
        return first
    more = _sum(*others)
    return lambda row, factors: first(row, factors) + more(row, factors)


def _row(first: Formula, *others: Formula) -> Formula:
    """The new row: one formula for each of its numbers."""
    if not others:
        return lambda row, factors: (first(row, factors),)
    more = _row(*others)
    return lambda row, factors: (first(row, factors), *more(row, factors))


def _always(row: Any, factors: Any) -> bool:
    return True


class _Closed:
    """What is common to rests whose one formula holds for every row."""

    kept = 0

    def factors(self, carry: np.ndarray) -> np.ndarray:
        return carry

    def replay(
        self, row: list[Any], factors: np.ndarray, steps: np.ndarray, history: History
    ) -> list[Any]:
        return row  # no row is left


class _Linear(_Closed):
    """See `linear`. The carry is the product of the steps' matrices."""

    moveless = False  # whether nothing but an average moves

    def __init__(self, rule: Rule, dtype: Any, average: bool = False) -> None:
        self.rule = rule
        self.average = average
        self.size = len(rule.slots) + 1 + average
        self.width = self.size**2
        self.used = np.eye(self.size, dtype=bool)  # factors that are not 0 in all products so far

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

    def formulas(self, factors: np.ndarray) -> list[tuple[Formula, Formula]]:
        self.used |= factors.any(axis=1).reshape(self.used.shape)
        return [(_matrix(*map(tuple, self.used.tolist())), _always)]


@cache
def _matrix(*used: tuple[bool, ...]) -> Formula:
    """A matrix, line by line, times the row; what has a factor of 0 is not looked at."""
    n = len(used)
    lines = [[_times(n * i + j, j) for j in range(n) if used[i][j]] for i in range(n)]
    return _row(*(_sum(*line) for line in lines))


def linear(rule: Rule, dtype: Any, average: bool = False) -> Rest:
    """A zero gradient maps (p, *slots) linearly, element by element: momentum, any decay, means."""
    return _Linear(rule, dtype, average)


class _Moveless(_Linear):
    """See `moveless`."""

    moveless = True


def moveless(rule: Rule, dtype: Any, average: bool = False) -> Rest:
    """Nothing moves at rest but the average: rules that are still, and the lazy meaning of any."""
    return _Moveless(rule, dtype, average)


class _Along(_Closed):
    """See `along`. The carry: what p is multiplied by, the slots' decays, and the path's length.

    With an average: what it keeps of itself, and what it takes of p and of the path.
    """

    def __init__(
        self, rule: Rule, dtype: Any, average: bool = False, *, direction: Callable[..., Any]
    ) -> None:
        self.rule = rule
        self.direction = direction
        self.average = average
        self.length = len(rule.slots) + 1  # the row of the path's length
        self.width = self.length + (4 if average else 1)
        try:
            self.unit = direction(*(np.ones(1) for _ in rule.slots))
        except TypeError as error:
            name = rule.formula.__name__
            wanted = f"a direction of the slots {rule.slots}"
            raise ArgumentError(explain(f"along, for {name}", wanted, str(error))) from error
        if not np.all(self.unit):
            name = rule.formula.__name__
            wanted = "a direction that is not 0 where all slots are 1"
            raise ArgumentError(explain(f"along, for {name}", wanted, f"{self.unit}"))

    def same(self) -> np.ndarray:
        carry = np.ones(self.width)
        carry[self.length] = 0.0
        carry[self.length + 2 :] = 0.0
        return carry

    def one(self, hyper: Any, average: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        ones = [np.ones(1) for _ in self.rule.slots]
        moved = self.rule.formula(np.zeros(1), np.zeros(1), *ones, **hyper)[0] / self.unit
        carry = np.append(np.diag(self.rule.at_rest(hyper)), moved)
        if self.average:
            part = 1.0 - average
            carry = np.concatenate([carry, [average, part * carry[0]], part * moved])
        return carry, np.empty(0)

    def chain(self, first: np.ndarray, then: np.ndarray) -> np.ndarray:
        carry, n = first * then, self.length
        carry[n] = then[0] * first[n] + then[n]
        if self.average:
            own, of_p, of_path = n + 1, n + 2, n + 3
            carry[of_p] = then[own] * first[of_p] + then[of_p] * first[0]
            carry[of_path] = then[own] * first[of_path] + then[of_p] * first[n] + then[of_path]
        return carry

    def drift(self, carry: np.ndarray) -> int:
        return int(carry[0] != 1)

    def moves(self, carry: np.ndarray) -> bool:
        return bool(carry[0] != 1 or carry[self.length] != 0)

    def formulas(self, factors: np.ndarray) -> list[tuple[Formula, Formula]]:
        return [(_on_a_path(self.direction, self.length, self.average), _always)]


@cache
def _on_a_path(direction: Callable[..., Any], n: int, average: bool) -> Formula:
    """The formula of `_Along` for a rule with n - 1 slots."""

    def path(factor: int) -> Formula:
        return lambda row, factors: factors[factor] * direction(*row[1:n])

    lines = [_sum(_times(0, 0), path(n)), *(_times(i, i) for i in range(1, n))]
    if average:
        lines.append(_sum(_times(n + 1, n), _times(n + 2, 0), path(n + 3)))
    return _row(*lines)


def along(direction: Callable[..., Any]) -> Callable[..., Rest]:
    """A zero gradient moves p along ``direction(*slots)``, which resting does not change.

    As in Lion, where p moves by lr · sign(m) while m decays. How far is read off the formula.
    """
    return partial(_Along, direction=direction)


Terms = Callable[[Any], tuple[float, float, float]]


class _Quotient:
    """See `quotient`. Rows of the carry, for the steps i in (a, t]:

    0: D, what p is multiplied by; then the slots' decays; then R = M/√N and Q = 1/√N, for the
    decays M of the momentum and N of the denominator; then the least ηᵢ; then S₀ ... S_K,
    Sₖ = Σ ωᵢ ηᵢᵏ, in which ωᵢ and ηᵢ are the scalars of p -= Σ ωᵢ m/(√v + ηᵢ). With an average:
    what it keeps of itself, what it takes of p, and sums as above for what it takes of the path.
    Last, whether p ever changed its sign: then so do the ωᵢ, and η̄ is no mean of the ηᵢ.
    """

    kept = 6

    def __init__(
        self, rule: Rule, dtype: Any, average: bool = False, *, m: str, v: str, terms: Terms
    ) -> None:
        self.rule = rule
        self.average = average
        self.terms = terms
        for slot in (m, v):
            if slot not in rule.slots:
                name = rule.formula.__name__
                wanted = f"slots among {rule.slots}"
                raise ArgumentError(explain(f"quotient, for {name}", wanted, repr(slot)))
        self.m, self.v = rule.slots.index(m), rule.slots.index(v)
        self.order = 10 if dtype == np.float64 else 4
        limits = np.finfo(dtype)
        self.tolerance, self.tiny, self.most = limits.eps, limits.smallest_subnormal, limits.max
        self.low = len(rule.slots) + 3  # the row of the least η
        self.sums = slice(self.low + 1, self.low + self.order + 2)
        self.own = self.sums.stop  # rows of an average: its own part, p's, and its sums
        self.path = slice(self.own + 2, self.own + self.order + 3)
        self.width = (self.path.stop if average else self.own) + 1
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
        return np.append(carry, factors[0] < 0), kept

    def chain(self, first: np.ndarray, then: np.ndarray) -> np.ndarray:
        low = self.low
        with np.errstate(all="ignore"):
            carry = first * then
            R, Q = first[low - 2], first[low - 1]
            np.fmin(first[low], Q * then[low], out=carry[low])
            np.maximum(first[-1], then[-1], out=carry[-1])
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
        """D and the slots' decays; the least v for each formula; the spectrum of the path; for an
        average its own part, p's, and its spectrum.
        """
        spectrum, least = self._spectrum(carry[self.sums], carry[self.low], carry[-1])
        parts = [carry[: self.low - 2], least, spectrum]
        if self.average:
            spectrum, other = self._spectrum(carry[self.path], carry[self.low], carry[-1])
            np.maximum(least, other, out=parts[1])
            parts += [carry[self.own : self.own + 2], spectrum]
        return np.concatenate(parts)

    def _spectrum(
        self, sums: np.ndarray, lowest: np.ndarray, turned: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Σω, the mean η̄ of η, and the central moments of η/η̄ down to the second; and the least v
        for which two terms of the series are enough, and for which all are.
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
            spread = np.where(none, 0.0, np.maximum(1.0, centre / lowest))
            # after K terms the remainder is at most u^K · excess, u = η̄ / (√v + η̄)
            excess = moments[[0, -1]] * spread / self.tolerance
            root = centre * (excess ** (1.0 / np.array([[2], [self.order]])) - 1.0)
            least = np.where(excess <= 1.0, 0.0, np.maximum(root * root, self.tiny))
            spectrum = np.concatenate([[sums[0], centre], moments[-2::-1]])
            # A column that the dtype cannot hold is sure of nothing, but that 0 stays 0.
            lost = ~(np.abs(spectrum) <= self.most).all(axis=0) | np.isnan(least).any(axis=0)
            lost |= turned > 0
            spectrum[:, lost], least[:, lost] = 0.0, np.inf
            np.maximum(spectrum[1], self.tiny, out=spectrum[1])
        return spectrum, least

    def formulas(self, factors: np.ndarray) -> list[tuple[Formula, Formula]]:
        size, m, v = len(self.rule.slots) + 1, 1 + self.m, 1 + self.v
        return _by_series(size, m, v, self.order, self.average)

    def replay(
        self, row: list[Any], factors: np.ndarray, steps: np.ndarray, history: History
    ) -> list[Any]:
        """A row by the last formula, but for the elements that this is not sure of."""
        formula, sure = self.formulas(factors)[-1]
        numbers = columns_of(factors, row[0])
        with np.errstate(all="ignore"):
            new = list(formula(row, numbers))
            at = np.nonzero(~sure(row, numbers))
        p, m, v = (row[i][at] for i in (0, 1 + self.m, 1 + self.v))
        mean = row[-1][at] if self.average else np.zeros_like(p)
        new[0][at], mean = self._replay(p, m, v, mean, steps[at[0]], history)
        if self.average:
            new[-1][at] = mean
        return new

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


@cache
def _by_series(n: int, m: int, v: int, order: int, average: bool) -> list[tuple[Formula, Formula]]:
    """The formulas of `_Quotient` for rows of n numbers, m and v two of them, and maybe an average.

    Two terms of the series do for almost every row; then comes the formula with all of them.
    """
    spectrum = n + 2  # after the decays, and the least v of either formula
    own = spectrum + order
    formulas = []
    for least, terms in ((n, 2), (n + 1, order)):
        lines = [_sum(_times(0, 0), _moved(m, v, spectrum, terms))]
        lines += [_times(i, i) for i in range(1, n)]
        if average:
            path = _moved(m, v, own + 2, terms)
            lines.append(_sum(_times(own, n), _times(own + 1, 0), path))
        formulas.append((_row(*lines), _known(m, v, least)))
    return formulas


def _moved(m: int, v: int, spectrum: int, terms: int) -> Formula:
    """-Σ ωᵢ m/(√v + ηᵢ), by so many terms of the series about η̄."""

    def moved(row: Any, factors: Any) -> Any:
        below = np.sqrt(row[v]) + factors[spectrum + 1]
        move = -factors[spectrum] * row[m] / below
        if terms == 2:  # 1 and 0
            return move
        t = -factors[spectrum + 1] / below
        series = factors[spectrum + 2]
        for k in range(spectrum + 3, spectrum + terms):
            series = series * t + factors[k]
        return move + move * (t * t) * series

    return moved


def _known(m: int, v: int, least: int) -> Formula:
    """Whether v is large enough for the terms, or m is nothing."""
    return lambda row, factors: (row[v] >= factors[least]) | (row[m] == 0.0)


def quotient(m: str, v: str, terms: Terms) -> Callable[..., Rest]:
    """A zero gradient moves p by a scalar times m / (√v / root + eps), while m and v decay: Adam.

    `terms(hyper)` gives (weight, root, eps) of a step, for m and v as they are after it:
    p' = D·p - weight · m' / (√v' / root + eps).
    """
    return partial(_Quotient, m=m, v=v, terms=terms)
