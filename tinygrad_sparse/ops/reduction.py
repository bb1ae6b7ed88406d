"""The row rule of every reduction. Floor 4; no op is declared here.

Reduced within its rows, a table keeps them apart. Reduced over an axis in front of them, as in
``ops.mean(tables, 0)[ids]``, a row of the result came from one row of each table, and so does its
gradient: rows of x again, addressed by more axes, and none of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinygrad_sparse.backend import xp_of
from tinygrad_sparse.primitive import rows_at
from tinygrad_sparse.rules import RowRule, fixed_axes, ids_of, places_of, rowwise
from tinygrad_sparse.slices import IndexedSlices, rows_of


def reduction(vjp: Callable[..., Any]) -> RowRule:
    """The rule of an op that takes `axis` and `keepdims`, whose VJP is ``vjp(g, out, x, ...)``."""

    def across(
        g: IndexedSlices, out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool, **static: Any
    ) -> Any:
        """All that was reduced into the touched rows."""
        shape = tuple(x.shape)
        if not len(g.indices):
            return rows_of(g.indices, g.values.reshape((0, *shape[1:])), shape)
        left = [a for a in range(len(shape)) if a not in axis]
        small, g = tuple(shape[a] for a in left), g.coalesce()
        if len(g.indices) == math.prod(g.shape[: g.lead]):  # of every row: dense as it is
            g = g.values.reshape(g.shape)
            return vjp(g, out, x, axis=axis, keepdims=keepdims, **static)
        g = g.reshape(small)
        # x's axes up to the last that addresses a row of g: its own ones, and reduced ones between
        lead = left[g.lead - 1] + 1
        between = [a for a in sorted(axis) if a < lead]
        cut = tuple(shape[a] for a in between)
        n, each = len(g.indices), math.prod(cut)
        places = dict(
            zip(left, (p[:, None] for p in places_of(g.indices, small[: g.lead])), strict=False)
        )
        xp = xp_of(g.indices)
        places.update(zip(between, places_of(xp.arange(each), cut), strict=True))
        ids = ids_of([places[a] for a in range(lead)], shape[:lead])
        ids = xp.broadcast_to(ids, (n, each)).reshape(-1)
        rows = rows_at(x, ids, lead)
        local = (*range(1, 1 + len(cut)), *[1 + len(cut) + a - lead for a in axis if a >= lead])
        values = vjp(
            g.values,
            rows_at(out.reshape(small), g.indices, g.lead).reshape(g.values.shape),
            rows.reshape((n, *cut, *shape[lead:])),
            axis=local,
            keepdims=False,
            **static,
        )
        return rows_of(ids, values.reshape((len(ids), *shape[lead:])), shape, lead)

    across.__wrapped__ = vjp  # type: ignore[attr-defined]  # of x and out it reads what that reads
    words = "(r) within rows; over the first axes: all that was reduced into the touched rows"
    return rowwise("r", when=fixed_axes)._replace(remap=(across,), words=words, dense="never")
