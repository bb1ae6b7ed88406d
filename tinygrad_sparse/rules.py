"""Row rules: how an op lets a row-sparse cotangent through. Floor 3; may import `slices`.

An op that treats every row alike has a VJP that treats every row alike, so the engine may run the
same VJP on the touched rows only. What it must know is which arguments have a row for each row of
the output. That is all a rule says:

- `elementwise`: an argument whose leading axes match the output's gives its row i to row i; one
  that is broadcast along them is shared by all rows.
- `rowwise("rs")`: letter by letter, r: row i of the output needs row i of this argument;
  s: shared by all rows, so its cotangent sums over the touched ones.
- `reindexed(...)`: rows move. One function an argument rewrites ids instead of running the VJP;
  `moved` is what such a function is mostly made of.

Also here: `Kink`, the other thing that a declaration says in data.

A rule that answers None means "not row by row for these shapes". Rows addressed by several axes are
then filled up to larger ones, and the rule is asked again. What is not row by row may still move
rows, as a reduction over the first axes does: then its functions do that. An op without a rule, or
with one that refuses all of this, turns the gradient dense: noted on the tape, never silent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tinygrad_sparse.backend import Array, adapter_of, xp_of
from tinygrad_sparse.shapes import Shape
from tinygrad_sparse.slices import IndexedSlices, rows_of

Roles = str | None  # a letter an argument, or None
Moves = Mapping[int, Callable[[Array], Array]]


class RowRule(NamedTuple):
    """What `primitive(rows=...)` takes. `roles(lead, out, shapes, static)` answers with letters.

    Beside r and s there is b, for an argument that is stretched along some of the row axes only:
    its row is found by the others.
    """

    kind: str
    roles: Callable[[int, Shape, list[Shape], dict[str, Any]], Roles]
    remap: tuple[Callable[..., Any] | None, ...] | Callable[[int], Callable[..., Any]] = ()
    words: str = ""  # for the documentation, where the kind does not say it all
    dense: str = "never"  # and when nothing keeps rows; a test looks for cases of it

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
    static: dict[str, Any] = {}  # noqa: RUF012  never written to


def _broadcast_roles(lead: int, out: Shape, shapes: list[Shape], static: dict[str, Any]) -> Roles:
    letters = ""
    for shape in shapes:
        leading = shape[: max(0, len(shape) - len(out) + lead)]  # what lies along out's row axes
        if len(shape) == len(out) and leading == out[:lead]:
            letters += "r"
        else:
            letters += "s" if all(n == 1 for n in leading) else "b"
    return letters


elementwise = RowRule("elementwise", _broadcast_roles)


def rowwise(
    letters: str, when: Callable[..., bool] | None = None, dense: str | None = None
) -> RowRule:
    """The rule of an op whose arguments have fixed roles.

    `letters` has one r or s for each argument; the last one stands for all that follow. The rule
    holds ``when(lead, out, *shapes, **static)``, with shapes for `out` and the arguments. `dense`
    says in words when it does not hold for rows of the first axis.
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
    words = f"({', '.join(letters)}) {condition}".strip()
    return RowRule("rowwise", roles, (), words, dense or ("otherwise" if condition else "never"))


def roles(f: Callable[..., Roles], dense: str = "never") -> RowRule:
    """The rule of an op whose roles depend on its shapes: f answers as `RowRule.roles` does."""
    return RowRule("rowwise", f, (), first_line(f), dense)


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
    return RowRule("reindexed", lambda *_: None, moves, words)


def fixed_axes(
    lead: int, out: Shape, *shapes: Shape, axis: int | tuple[int, ...], **_: Any
) -> bool:
    """if no row axis is among `axis`"""
    return min(axis, default=lead) >= lead if isinstance(axis, tuple) else axis >= lead


def places_of(ids: Array, shape: Shape) -> list[Array]:
    """Flat ids into the axes of `shape`, taken apart: one array of places an axis."""
    places: list[Array] = []
    for n in shape[:0:-1]:
        places.append(ids % n)
        ids = ids // n
    return [ids, *reversed(places)]


def ids_of(places: Sequence[Array], shape: Shape) -> Array:
    """Places along the axes of `shape`, put together as flat ids."""
    ids = places[0]
    for n, place in zip(shape[1:], places[1:], strict=True):
        ids = ids * n + place
    return ids


def moved(g: IndexedSlices, shape: Shape, moves: Moves, values: Array) -> IndexedSlices:
    """`values` at the rows of g, moved to an array of `shape` that has as many row axes.

    ``moves[a](place)`` is where a place along axis a goes; a row that goes to a place outside the
    new axis is dropped. Axes without an entry stay.
    """
    new = places_of(g.indices, g.shape[: g.lead])
    kept: Any = True
    for a, move in moves.items():
        if a < g.lead:
            new[a] = move(new[a])
            kept = kept & (new[a] >= 0) & (new[a] < shape[a])
    if kept is not True and not kept.all():
        here = xp_of(kept).flatnonzero(kept)
        new, values = [place[here] for place in new], adapter_of(values).take_rows(values, here)
    return rows_of(ids_of(new, shape[: g.lead]), values, shape, g.lead)


def members(g: IndexedSlices, ids: Array) -> tuple[IndexedSlices, Array, Array]:
    """g coalesced, the positions of those `ids` that are rows of it, and which row each is."""
    g = g.coalesce()
    if not len(g.indices):
        return g, g.indices, g.indices
    xp = xp_of(ids)
    at = xp.minimum(xp.searchsorted(g.indices, ids), len(g.indices) - 1)
    here = xp.flatnonzero(g.indices[at] == ids)
    return g, here, at[here]
