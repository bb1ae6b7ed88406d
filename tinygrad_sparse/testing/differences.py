"""Derivatives by evaluation alone: what a gradient is compared with. Floor 6; knows only NumPy.

A `Value` maps a list of arrays to one array and is the only thing asked. A `Path` gives the
arguments after a step t along some direction. Steps are powers of two, and directions scaled by
max(1, |x|), so that x + t·d loses no digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Arrays = list[np.ndarray]
Value = Callable[[Arrays], np.ndarray]
Path = Callable[[Any], Arrays]

STEP = 2.0**-20  # about 1e-6: truncation h²/6 · f''' and rounding ε/h · f are both near 1e-10
TINY = 2.0**-100  # the complex step subtracts nothing, so it may be as small as it likes


class Probe(NamedTuple):
    """A direction to move one argument in: that of the element `at`, or a whole array's.

    `scale` is the length of an element's direction; whoever wants its derivative divides by it.
    """

    at: tuple[int, ...] | None
    scale: float = 1.0
    direction: Any = None
    name: str = ""

    def path(self, arrays: Arrays, i: int) -> Path:
        """Argument `i` on its way along this direction."""

        def moved(t: Any) -> Arrays:
            if self.at is None:
                x = arrays[i] + t * self.direction
            else:
                x = arrays[i].astype(np.result_type(arrays[i], type(t)))
                x[self.at] += t * self.scale
            return [*arrays[:i], x, *arrays[i + 1 :]]

        return moved


def element(x: np.ndarray, at: tuple[int, ...]) -> Probe:
    """The direction of one element."""
    return Probe(at, max(1.0, abs(float(x[at]))))


def direction(x: np.ndarray, rows: np.ndarray, d: np.ndarray, name: str) -> Probe:
    """The direction `d` for some rows of x, counted with `len(d)` of them in all."""
    whole = np.zeros_like(d)
    whole[rows] = d[rows]
    whole = whole.reshape(x.shape) * np.maximum(1.0, np.abs(x))
    return Probe(None, 1.0, whole / np.linalg.norm(whole), name)


def central(f: Value, path: Path, h: float) -> np.ndarray:
    """(f(x + hd) - f(x - hd)) / 2h."""
    return (f(path(h)) - f(path(-h))) / (2 * h)


def one_sided(f: Value, path: Path, h: float) -> tuple[np.ndarray, np.ndarray]:
    """The slopes on the left and on the right of x."""
    here = f(path(0.0))
    return (here - f(path(-h))) / h, (f(path(h)) - here) / h


def complex_step(f: Value, path: Path) -> np.ndarray:
    """Im f(x + ihd) / h: exact to rounding where f is analytic (Squire & Trapp, 1998)."""
    return np.imag(f(path(1j * TINY))) / TINY


def jitter(f: Value, arrays: Arrays, i: int, rng: np.random.Generator) -> np.ndarray:
    """How far each element of f is off by rounding: what it does when x moves by a few ulps."""
    here = f(arrays)
    x = arrays[i]
    ulp = np.spacing(np.maximum(1.0, np.abs(x)))
    most: Any = np.finfo(np.float64).eps * np.abs(here)
    for ulps in (-2, -1, 1, 2):
        moved = x + ulps * ulp * rng.choice([-1.0, 1.0], size=ulp.shape)
        most = np.maximum(most, np.abs(f([*arrays[:i], moved, *arrays[i + 1 :]]) - here))
    return most
