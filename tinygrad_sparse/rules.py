"""Row rules: how an op lets a row-sparse cotangent through. Floor 3; may import `slices`.

An op that treats every row alike has a VJP that treats every row alike, so the engine may run the
same VJP on the touched rows only. What it must know is which arguments have a row for each row of
the output. That is all a rule says:

- `elementwise`: an argument whose leading axes match the output's gives its row i to row i; one
  that is broadcast along them is shared by all rows.
- `rowwise("rs")`: letter by letter, r: row i of the output needs row i of this argument;
  s: shared by all rows, so its cotangent sums over the touched ones.
- `reindexed(...)`: rows move. One function an argument rewrites ids instead of running the VJP.

Also here: `Kink`, the other thing that a declaration says in data.

An op without a rule turns the gradient dense: noted on the tape, never silent. So does a rule
that answers None, which means "not row by row for these shapes".
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

Shape = tuple[int, ...]
Roles = str | None  # a letter an argument, or None


class RowRule(NamedTuple):
    """What `primitive(rows=...)` takes. `roles(lead, out, shapes, static)` answers with letters."""

    kind: str
    roles: Callable[[int, Shape, list[Shape], dict[str, Any]], Roles] | None = None
    remap: tuple[Callable[..., Any] | None, ...] | Callable[[int], Callable[..., Any]] | None = None
    words: str = ""  # for the documentation, where the kind does not say it all

    def describe(self) -> str:
        """The rule in words: what the documentation shows."""
        return f"{self.kind}: {self.words}" if self.words else self.kind


class Kink(NamedTuple):
    """A point without a derivative, and the cotangents that the VJPs give there.

    `args` are numbers or nested tuples, `cotangents` what each gets from an upstream of ones (None
    where no gradient flows). One declaration makes the row in the documentation and the test.
    """

    args: tuple[Any, ...]
    cotangents: tuple[Any, ...]
    static: dict[str, Any] = {}  # noqa: RUF012


def _broadcast_roles(lead: int, out: Shape, shapes: list[Shape], static: dict[str, Any]) -> Roles:
    letters = ""
    for shape in shapes:
        leading = shape[: max(0, len(shape) - len(out) + lead)]  # what lies along out's row axes
        if len(shape) == len(out) and leading == out[:lead]:
            letters += "r"
        elif all(n == 1 for n in leading):
            letters += "s"
        else:
            return None
    return letters


elementwise = RowRule("elementwise", _broadcast_roles)


def rowwise(letters: str, when: Callable[..., bool] | None = None) -> RowRule:
    """The rule of an op whose arguments have fixed roles.

    `letters` has one r or s for each argument; the last one stands for all that follow. The rule
    holds ``when(lead, out, *shapes, **static)``, with shapes for `out` and the arguments.
    """

    def roles(lead: int, out: Shape, shapes: list[Shape], static: dict[str, Any]) -> Roles:
        if when is not None and not when(lead, out, *shapes, **static):
            return None
        full = letters + letters[-1] * (len(shapes) - len(letters))
        for role, shape in zip(full, shapes, strict=False):
            if role == "r" and shape[:lead] != out[:lead]:
                return None
        return full

    condition = first_line(when) if when is not None else ""
    return RowRule("rowwise", roles, words=f"({', '.join(letters)}) {condition}".strip())


def first_line(f: Callable[..., Any]) -> str:
    """What a function's docstring says first."""
    return (inspect.getdoc(f) or "").partition("\n")[0].rstrip(".")


def reindexed(*remap: Callable[..., Any] | None, variadic: bool = False) -> RowRule:
    """The rule of an op that moves rows: ``f(g, out, *args, **static)`` for each argument.

    `g` is IndexedSlices; the answer is the argument's cotangent with ids rewritten, or None where
    that cannot be done. With ``variadic=True`` one function makes f from the argument's number.
    """
    words = "; ".join(filter(None, (first_line(f) for f in remap if f is not None)))
    moves: Any = remap[0] if variadic else remap
    return RowRule("reindexed", remap=moves, words=words)


def fixed_axes(lead: int, out: Shape, *shapes: Shape, axis: tuple[int, ...], **_: Any) -> bool:
    """if no row axis is among `axis`"""
    return all(a >= lead for a in axis)
