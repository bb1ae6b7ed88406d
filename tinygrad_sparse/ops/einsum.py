"""Einstein summation: products and sums by labelled axes. Floor 4.

`einsum` reads the subscripts and takes diagonals where an operand repeats a label; what is left is
one primitive whose VJP is an einsum again: the cotangent and the other operands, summed to the
labels of the operand. Nothing is divided, and every order follows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from string import ascii_letters
from typing import Any

import numpy as np

from tinygrad_sparse.backend import Array, adapter_of, as_arrays
from tinygrad_sparse.backend.precision import widened
from tinygrad_sparse.errors import DtypeError, ShapeError, explain
from tinygrad_sparse.primitive import primitive
from tinygrad_sparse.rules import ids_of, places_of, reindexed
from tinygrad_sparse.shapes import Shape
from tinygrad_sparse.slices import IndexedSlices, rows_of

from .diagonals import _diagonal
from .shape import broadcast_to, reshape

SMALL = 4096  # products of fewer numbers than this: turning them into matrices costs more
_GRAMMAR = re.compile(r"([a-zA-Z]*(\.\.\.)?[a-zA-Z]*)(,[a-zA-Z]*(\.\.\.)?[a-zA-Z]*)*")


# -- the primitive: no label twice in one operand ------------------------------------------------


def _sizes(inputs: Sequence[str], shapes: Sequence[Shape]) -> dict[str, int]:
    """The length of each label's axis; one of length 1 gives way to another."""
    sizes: dict[str, int] = {}
    for labels, shape in zip(inputs, shapes, strict=True):
        for a, n in zip(labels, shape, strict=True):
            if sizes.get(a, 1) == 1:
                sizes[a] = n
    return sizes


def _einsum_vjp(k: int) -> Any:
    def vjp(g: Any, out: Any, *args: Any, inputs: tuple[str, ...], output: str) -> Any:
        mine, shape = inputs[k], tuple(args[k].shape)
        others = inputs[:k] + inputs[k + 1 :]
        # g among them: of rows, it has several where an operand that they share has one
        sizes = _sizes((output, *inputs), [tuple(a.shape) for a in (g, *args)])
        stretched = {a for a, n in zip(mine, shape, strict=True) if n != sizes[a]}
        reached = set(output).union(*others) - stretched
        target = "".join(a for a in mine if a in reached)
        c = _einsum([g, *args[:k], *args[k + 1 :]], inputs=(output, *others), output=target)
        # a label that only this operand has was summed: the cotangent is the same all along it
        length = dict(zip(target, c.shape, strict=True))
        c = reshape(c, tuple(length.get(a, 1) for a in mine)) if target != mine else c
        return broadcast_to(c, shape=shape) if tuple(c.shape) != shape else c

    return vjp


def _addresses(
    lead: int, out: Shape, inputs: Sequence[str], output: str, shapes: Sequence[Shape]
) -> list[int] | None:
    """How many axes of each operand address a row of the result; None if larger rows do better.

    The row labels that an operand has must be in front. One that has some of them only is looked up
    once for each touched row; that pays if it would be shared, and get a whole table, otherwise.
    """
    labels = output[:lead]
    sizes = dict(zip(labels, out, strict=False))
    counts = []
    for mine, shape in zip(inputs, shapes, strict=True):
        axes = [n for a, n in zip(mine, shape, strict=True) if a in labels]
        if not set(mine[: len(axes)]) <= set(labels):
            return None
        stretched = all(n == 1 < sizes[a] for a, n in zip(mine, axes, strict=False))
        counts.append(0 if stretched else len(axes))
    some = any(0 < n < lead for n in counts)
    lost = any(n and output[0] not in mine for n, mine in zip(counts, inputs, strict=True))
    return None if some and not lost else counts


def _within(places: dict[str, Array], labels: str, shape: Shape) -> list[Array]:
    """Where along each of these axes; a stretched one has one place."""
    along = [places[a] for a in labels[: len(shape)]]
    return [place if n > 1 else 0 * place for place, n in zip(along, shape, strict=True)]


def _einsum_rows(k: int) -> Any:
    def rows(g: IndexedSlices, out: Any, *args: Any, inputs: tuple[str, ...], output: str) -> Any:
        """operands' rows by their row labels, which become one label for all"""
        lead, shapes = g.lead, [tuple(a.shape) for a in args]
        counts = _addresses(lead, g.shape, inputs, output, shapes)
        if counts is None:
            return None
        places = dict(zip(output, places_of(g.indices, g.shape[:lead]), strict=False))
        row = next(a for a in ascii_letters if all(a not in mine for mine in inputs))
        ids = [
            ids_of(_within(places, mine, shape[:n]), shape[:n]) if n else None
            for n, mine, shape in zip(counts, inputs, shapes, strict=True)
        ]
        local = [
            adapter_of(a).take_rows(a, at, n) if n else a
            for n, a, at in zip(counts, args, ids, strict=True)
        ]
        named = tuple(row + mine[n:] if n else mine for n, mine in zip(counts, inputs, strict=True))
        c = _einsum_vjp(k)(g.values, None, *local, inputs=named, output=row + output[lead:])
        return rows_of(ids[k], c, shapes[k], counts[k]) if counts[k] else c

    return rows


@primitive(
    rows=reindexed(_einsum_rows, variadic=True)._replace(
        words="rows by the row labels of each operand",
        dense="if an operand has row labels, but not in front",
    ),
    vjp=_einsum_vjp,
    variadic=True,
)
def _einsum(xp: Any, *arrays: Array, inputs: tuple[str, ...], output: str) -> Array:
    """``einsum`` of operands none of which has a label twice."""
    narrow = all(a.dtype == np.float16 for a in arrays)
    if narrow:  # sums are kept in float32
        arrays = tuple(map(widened, arrays))
    if len(arrays) == 2:
        (x, y), (mine, yours) = arrays, inputs
        out = _pair(xp, x, y, mine, yours, output)
    else:
        optimize = len(arrays) > 2
        out = xp.einsum(f"{','.join(inputs)}->{output}", *arrays, optimize=optimize)
    return out.astype(np.float16) if narrow else out


def _pair(xp: Any, x: Array, y: Array, mine: str, yours: str, output: str) -> Array:
    """Two operands: by a matrix product where there is one in it, which BLAS does best."""
    x, mine = _without(xp, x, mine, yours + output)
    y, yours = _without(xp, y, yours, mine + output)
    if output and output[-1] not in yours:  # the result's columns come from the right
        x, y, mine, yours = y, x, yours, mine
    plan = _plan(mine, yours, output, x.shape, y.shape)
    if plan is None:
        return xp.einsum(f"{mine},{yours}->{output}", x, y)
    unfold_x, unfold_y, shape, order = plan
    product = xp.matmul(_matrices(xp, x, *unfold_x), _matrices(xp, y, *unfold_y))
    return xp.transpose(product.reshape((*product.shape[:-2], *shape)), order)


def _without(xp: Any, x: Array, labels: str, needed: str) -> tuple[Array, str]:
    """x summed over the labels that nobody else needs."""
    gone = tuple(i for i, a in enumerate(labels) if a not in needed)
    return (
        (xp.sum(x, axis=gone), "".join(a for a in labels if a in needed)) if gone else (x, labels)
    )


def _matrices(xp: Any, x: Array, order: list[int], shape: Shape, turned: bool) -> Array:
    x = xp.transpose(x, order).reshape(shape)
    return xp.swapaxes(x, -1, -2) if turned else x


@lru_cache(maxsize=256)
def _plan(mine: str, yours: str, output: str, x: Shape, y: Shape) -> Any:
    """How to make matrices of both operands, and the result of their product.

    None if there is no matrix product in it, or too small a one to be worth it.
    """
    sizes = _sizes([mine, yours], [x, y])
    stack = [a for a in mine if a in yours and a in output]
    inner = [a for a in mine if a in yours and a not in output]
    left = [a for a in mine if a not in yours]
    right = [a for a in yours if a not in mine]
    agree = all(x[mine.index(a)] == y[yours.index(a)] for a in inner)
    if not (left and inner and right and agree) or math.prod(sizes.values()) < SMALL:
        return None

    def unfolding(labels: str, shape: Shape, rows: list[str], columns: list[str]) -> Any:
        # the axis that is last in memory stays last, so that a copy runs along it; BLAS can turn
        turned = labels[-1] in rows
        first, last = (columns, rows) if turned else (rows, columns)
        above = [shape[labels.index(a)] for a in stack]
        flat = [math.prod(sizes[a] for a in group) for group in (first, last)]
        return [labels.index(a) for a in stack + first + last], (*above, *flat), turned

    everything = stack + left + right
    return (
        unfolding(mine, x, left, inner),
        unfolding(yours, y, inner, right),
        [sizes[a] for a in left + right],
        [everything.index(a) for a in output],
    )


# -- reading the subscripts ----------------------------------------------------------------------


def einsum(subscripts: str, *operands: Any) -> Any:
    """Sums of products by labelled axes, as in NumPy: ``"ij,jk->ik"`` is a matrix product.

    Without ``->`` the output has, sorted, the labels that occur once. ``...`` stands for axes that
    broadcast. A label twice in one operand takes its diagonal; one that the output lacks is summed.
    An axis of length 1 stretches to the other operands'. Raises ShapeError.

    >>> einsum("iij->i", np.arange(12.0).reshape(2, 2, 3))
    array([ 3., 30.])
    """
    if not isinstance(subscripts, str):
        hint = "einsum('ij,jk->ik', x, y)"
        got = type(subscripts).__name__
        raise DtypeError(explain("einsum", "a string of subscripts, then the operands", got, hint))
    arrays = as_arrays("einsum", operands) if operands else []
    inputs, output = _parse(subscripts, tuple(tuple(a.shape) for a in arrays))
    merged = [_merged(a, labels) for a, labels in zip(arrays, inputs, strict=True)]
    return _einsum([x for x, _ in merged], inputs=tuple(s for _, s in merged), output=output)


def _merged(x: Any, labels: str) -> tuple[Any, str]:
    """x with a diagonal in the place of each label that it has twice."""
    if len(set(labels)) == len(labels):
        return x, labels
    first = next(i for i, a in enumerate(labels) if labels.count(a) > 1)
    second = labels.index(labels[first], first + 1)
    x = _diagonal(x, offset=0, axes=(first, second), place=first)
    return _merged(x, labels[:second] + labels[second + 1 :])


@lru_cache(maxsize=256)
def _parse(subscripts: str, shapes: tuple[Shape, ...]) -> tuple[tuple[str, ...], str]:
    """The labels of each operand and of the output, with letters in the place of each ellipsis."""
    text = re.sub(r"\s", "", subscripts)
    left, arrow, right = text.partition("->")
    if not _GRAMMAR.fullmatch(left) or not _GRAMMAR.fullmatch(right) or "," in right:
        _refuse("letters, ',' between operands, '...' and one '->'", repr(subscripts))
    terms = left.split(",")
    if len(terms) != len(shapes):
        _refuse(f"an operand for each term of {subscripts!r}", f"{len(shapes)} for {len(terms)}")
    hidden = [len(s) - len(t.replace("...", "")) for t, s in zip(terms, shapes, strict=True)]
    for k, (term, count) in enumerate(zip(terms, hidden, strict=True)):
        if count < 0 or (count > 0 and "..." not in term):
            _refuse(f"an axis for each label of {term!r}", f"shape {shapes[k]} (operand {k})")
    unused = [a for a in ascii_letters if a not in text]
    most = max(n if "..." in t else 0 for t, n in zip(terms, hidden, strict=True))
    if most > len(unused):
        _refuse(f"at most {len(ascii_letters)} labels and axes", repr(subscripts))
    dots = "".join(unused[:most])
    inputs = tuple(t.replace("...", dots[most - n :]) for t, n in zip(terms, hidden, strict=True))
    if arrow:
        output = right.replace("...", dots)
        if dots and "..." not in right:
            _refuse("'...' in the output, for the axes it stands for", repr(subscripts))
        if len(set(output)) < len(output) or not set(output) <= set("".join(inputs)):
            _refuse("output labels that occur in an operand, each once", repr(subscripts))
    else:
        output = dots + "".join(sorted(a for a in set(left) - {",", "."} if left.count(a) == 1))
    _check_sizes(subscripts, inputs, shapes)
    return inputs, output


def _check_sizes(subscripts: str, inputs: Sequence[str], shapes: Sequence[Shape]) -> None:
    sizes = _sizes(inputs, shapes)
    for labels, shape in zip(inputs, shapes, strict=True):
        for a, n in zip(labels, shape, strict=True):
            other = shape[labels.index(a)] if n in (1, sizes[a]) else sizes[a]
            if n != other:
                got = f"{n} and {other} for {a!r} ({subscripts!r}, {', '.join(map(str, shapes))})"
                _refuse("one length for each label", got)


def _refuse(expected: str, got: str) -> None:
    raise ShapeError(explain("einsum", expected, got))
