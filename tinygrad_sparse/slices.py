"""IndexedSlices: a gradient that is rows of a table, and the algebra of gradients. Floor 2.

A gradient is only ever added, scaled or sent through a linear
map, so repeated rows may wait; whatever is not linear (norm, square, max, an optimizer) coalesces
first. The values may be Tensors: then everything here is recorded, which is how second order works.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Number, Real
from typing import Any, NoReturn

import numpy as np

from tinygrad_sparse.backend import (
    Array,
    adapter_of,
    adapter_of_all,
    as_array,
    describe,
    refuse_mixed,
    row_ids,
    xp_of,
)
from tinygrad_sparse.errors import DtypeError, ShapeError, SparsityError, explain
from tinygrad_sparse.shapes import whole_number, whole_numbers

Gradient = Any  # an array, a Tensor, or IndexedSlices


PARTS = "g.indices and g.values have the rows, g.coalesce() sums repeats, g.to_dense() is an array"


class IndexedSlices:
    """Rows of a mostly-zero array: the sum over i of ``values[i]`` placed at row ``indices[i]``.

    Shapes: `indices` (n,), `values` (n, \\*row), `shape` (V, \\*row). With ``lead=2`` a row is
    addressed by the first two axes, flattened: `shape` (S, A, \\*row), ids in [0, S*A). `indices`
    are integers of any width, negative ones count from the end, and may repeat; they are kept as
    int64. Raises RowIndexError and ShapeError.

    >>> g = IndexedSlices([2, 0, 2], np.array([[1.0], [2.0], [3.0]]), shape=(4, 1))
    >>> g.coalesce().indices, g.to_dense().ravel()
    (array([0, 2]), array([2., 0., 4., 0.]))
    """

    __slots__ = ("_limit", "_merged", "_parts", "_sorted", "lead", "shape")
    __array_priority__ = 1000

    def __init__(self, indices: Any, values: Array, shape: tuple[int, ...], lead: int = 1) -> None:
        shape = whole_numbers("IndexedSlices", "a shape: a tuple of sizes", shape, least=0)
        lead = whole_number("IndexedSlices", "a whole number as lead", lead)
        if not 1 <= lead <= len(shape):
            raise ShapeError(
                explain("IndexedSlices", f"1 <= lead <= {len(shape)} for shape {shape}", str(lead))
            )
        values = as_array("IndexedSlices", values, "fiub")
        indices = row_ids(
            "IndexedSlices", indices, math.prod(shape[:lead]), f", dense shape {shape}", values
        )
        wanted = (*indices.shape, *shape[lead:])
        if indices.ndim != 1 or tuple(values.shape) != wanted:
            raise ShapeError(
                explain(
                    "IndexedSlices",
                    f"indices (n,) and values (n, *{shape[lead:]})",
                    f"indices {indices.shape} and values {tuple(values.shape)}",
                )
            )
        self._set([(indices, values)], shape, lead)

    def _set(self, parts: list[tuple[Array, Array]], shape: tuple[int, ...], lead: int) -> None:
        self._parts = parts
        self.shape = shape
        self.lead = lead
        self._merged: IndexedSlices | None = None
        self._sorted = False  # known to be coalesced; not self._merged = self, which is a cycle
        self._limit = math.prod(shape[:lead])

    # -- what it holds -----------------------------------------------------------------------

    @property
    def indices(self) -> Array:
        """The row ids, int64 (n,); they may repeat."""
        return self._join()[0]

    @property
    def values(self) -> Array:
        """The rows, (n, \\*row): ``values[i]`` belongs at row ``indices[i]``."""
        return self._join()[1]

    def _join(self) -> tuple[Array, Array]:
        """All parts as one."""
        if len(self._parts) == 1:
            return self._parts[0]
        rows, values = zip(*self._parts, strict=True)
        joined = adapter_of_all(values).xp.concatenate(values)
        part = read_only(adapter_of(rows[0]).xp.concatenate(rows), joined)
        if not _unrecorded(values, joined):
            self._parts = [part]
        return part

    @property
    def dtype(self) -> np.dtype:
        return self._parts[0][1].dtype

    @property
    def ndim(self) -> int:
        """Axes of the dense array it stands for."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements of the dense array it stands for."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes really held: ids and values, not the dense array's."""
        return sum(r.nbytes + v.size * v.dtype.itemsize for r, v in self._parts)

    @property
    def is_coalesced(self) -> bool:
        """True if the ids are sorted and each occurs once."""
        indices = self.indices
        return self._sorted or bool((indices[1:] > indices[:-1]).all())

    def __repr__(self) -> str:
        rows = sum(len(r) for r, _ in self._parts)
        lead = "" if self.lead == 1 else f", lead={self.lead}"
        return f"IndexedSlices({rows} rows of {self.shape} {self.dtype}{lead})"

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise SparsityError(
            explain(
                "np.asarray",
                "a dense array",
                repr(self),
                "write .to_dense() to build the whole table, or use .indices and .values",
            )
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """An array on the left of an operator defers to us; nothing is written into arrays."""
        reflected = _REFLECTED.get(ufunc.__name__)
        if method == "__call__" and not kwargs and reflected and inputs[0] is not self:
            return reflected(self, inputs[0])
        raise SparsityError(
            explain(
                f"np.{ufunc.__name__}",
                "dense arrays",
                repr(self),
                "opt.step(grads) steps rows of a parameter; g.to_dense() is the whole table; for "
                "an array x of yours np.subtract.at(x, g.indices, g.values) costs its rows alone",
            )
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"IndexedSlices has no attribute {name!r}: {PARTS}")

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError(f"IndexedSlices is not indexed, as it is no array: {PARTS}")

    def __eq__(self, other: object) -> Any:
        if other is self or not (isinstance(other, Number) or hasattr(other, "shape")):
            return other is self  # among other things, in a list say
        raise TypeError(f"IndexedSlices are not compared, as they are no array: {PARTS}")

    __hash__ = object.__hash__

    # -- what can be done with it ------------------------------------------------------------

    def coalesce(self) -> IndexedSlices:
        """The same gradient with sorted, unique ids: repeats are summed by `sum_duplicates`."""
        if self._merged is None:
            indices, values = self.indices, self.values
            # to look at ids is to wait where they are not on the host, as to sum them is
            self._sorted = self._sorted or (not adapter_of(indices).waits and self.is_coalesced)
            if self._sorted:
                return self
            size = math.prod(self.shape[: self.lead])
            rows, sums = read_only(*adapter_of(values).sum_duplicates(indices, values, size))
            merged = rows_of(rows, sums, self.shape, self.lead)
            merged._sorted = True
            if _unrecorded([values], sums):
                return merged
            self._merged = merged
        return self._merged

    def to_dense(self) -> Array:
        """The dense array of `shape`: the one way to get it, and always asked for by name."""
        values = self.values
        flat = adapter_of(values).scatter_rows(
            self.indices, values, math.prod(self.shape[: self.lead])
        )
        return flat.reshape(self.shape)

    def norm(self) -> Array:
        """The 2-norm of the gradient, √(Σ g²), after summing repeats; its slope at 0 is 0.

        Of values over their largest, in float64: squares neither overflow nor vanish.
        """
        values = self.coalesce().values
        xp = adapter_of(values).xp
        wide = values.astype(np.float64)
        top = largest(wide)
        scaled = wide / top
        total = (scaled * scaled).sum()
        root = xp.where(total > 0, xp.sqrt(xp.where(total > 0, total, 1.0)), total)
        return (top * root).astype(self.dtype)

    def astype(self, dtype: Any) -> IndexedSlices:
        """The same rows with values of another dtype."""
        return self._map(lambda v: v.astype(dtype))

    def reshape(self, shape: tuple[int, ...]) -> Gradient:
        """The same gradient for an array of another shape, with rows as large as fit it.

        A row of one is a block of rows of the other, or becomes a part of one; nothing is padded.
        An array without axes has no rows: its gradient is dense.

        >>> g = IndexedSlices([1], np.ones((1, 6)), shape=(2, 6))
        >>> g.reshape((4, 3)).indices, g.reshape((2, 2, 3)).indices
        (array([2, 3]), array([1]))
        """
        shape = tuple(shape)
        if math.prod(shape) != self.size:
            wanted = f"a shape of {self.size} elements for {self.shape}"
            raise ShapeError(explain("IndexedSlices.reshape", wanted, f"{shape}"))
        rows = math.prod(self.shape[: self.lead])
        if not shape:
            return self.to_dense().reshape(shape)
        if not rows:
            return rows_of(self.indices, self.values.reshape((0, *shape[1:])), shape)
        lead = 1
        while math.prod(shape[:lead]) % rows:
            lead += 1
        block = math.prod(shape[:lead]) // rows
        indices = blocks(self.indices, block)
        return rows_of(indices, self.values.reshape((len(indices), *shape[lead:])), shape, lead)

    def _map(self, f: Callable[[Array], Array]) -> IndexedSlices:
        new: IndexedSlices = object.__new__(IndexedSlices)
        new._set([(r, f(v)) for r, v in self._parts], self.shape, self.lead)
        return new

    def __neg__(self) -> IndexedSlices:
        return self._map(lambda v: -v)

    def __mul__(self, scalar: Any) -> IndexedSlices:
        factor = as_factor("IndexedSlices *", scalar)
        return self._map(lambda v: v * factor)

    __rmul__ = __mul__

    def __truediv__(self, scalar: Any) -> IndexedSlices:
        factor = as_factor("IndexedSlices /", scalar)
        return self._map(lambda v: v / factor)

    def __add__(self, other: Gradient) -> Gradient:
        if type(other) is IndexedSlices:
            self._check_like(other)
            dtype = np.result_type(other.dtype, self.dtype)
            return accumulate(self.astype(dtype), other.astype(dtype), owned=True)
        if not hasattr(other, "shape") or tuple(other.shape) != self.shape:
            got = describe(other)
            raise ShapeError(explain("IndexedSlices +", f"a gradient of shape {self.shape}", got))
        refuse_mixed("IndexedSlices +", (some_values(self), other))
        dtype = np.result_type(other.dtype, self.dtype)
        return accumulate(other.astype(dtype), self.astype(dtype), owned=True)

    __radd__ = __add__

    def __sub__(self, other: Gradient) -> Gradient:
        return self + (-other)

    def __rsub__(self, other: Gradient) -> Gradient:
        return (-self) + other

    def _check_like(self, other: IndexedSlices) -> None:
        if other.shape != self.shape:
            raise ShapeError(explain("IndexedSlices +", f"shape {self.shape}", f"{other.shape}"))
        refuse_mixed("IndexedSlices +", (some_values(self), some_values(other)))


_REFLECTED = {
    "add": IndexedSlices.__radd__,
    "subtract": IndexedSlices.__rsub__,
    "multiply": IndexedSlices.__rmul__,
}


def rows_of(indices: Array, values: Array, shape: tuple[int, ...], lead: int = 1) -> IndexedSlices:
    """IndexedSlices without the checks of its constructor, for ids that passed them already."""
    new: IndexedSlices = object.__new__(IndexedSlices)
    new._set([(indices, values)], shape, lead)
    return new


def _unrecorded(values: Sequence[Array], made: Array) -> bool:
    """True for what was made of recorded values while recording paused: not to be kept."""
    tracked = any(getattr(v, "requires_grad", False) for v in values)
    return tracked and not made.requires_grad


def as_factor(op: str, x: Any) -> Any:
    """`x` as a factor that widens no dtype: only a number treats every row alike.

    Raises SparsityError for what has a shape, DtypeError for what is no number.
    """
    if isinstance(x, Real):
        return float(x)
    if type(x) is IndexedSlices or getattr(x, "shape", None) or isinstance(x, (list, tuple)):
        hint = "scale .values row by row, or write .to_dense()"
        got = repr(x) if type(x) is IndexedSlices else describe(x)
        raise SparsityError(explain(op, "a real number", got, hint))
    if not hasattr(x, "dtype") or x.dtype.kind not in "fiu":
        raise DtypeError(explain(op, "a real number", describe(x)))
    return x if adapter_of(x).records else x.item()


def largest(values: Array) -> float:
    """The largest absolute value, as a plain number to scale by: 1 if that is 0 or not finite."""
    size = abs(values)
    top = float(size.max().item()) if size.size else 0.0
    return top if 0.0 < top < math.inf else 1.0


def some_values(g: Gradient) -> Array:
    """Values of `g`, not all if it is in parts: to ask on which device it is."""
    return g._parts[0][1] if type(g) is IndexedSlices else g


def is_sparse(g: Gradient) -> bool:
    """True for IndexedSlices: the type test that code outside this module and `pull` may use."""
    return type(g) is IndexedSlices


def accumulate(total: Gradient, g: Gradient, owned: bool) -> Gradient:
    """``total + g``, written into `total` where `owned` says that nobody else can see it.

    Sparse + sparse appends, and merges once the pending rows outnumber the table's (or twice
    what was left by the last merge, so that merging stays cheap for each row that came in).
    Dense + sparse ends in one dense buffer: V rows, never V + n slices.
    """
    if type(g) is not IndexedSlices:
        if type(total) is IndexedSlices:
            return accumulate(g, total, owned=False)
        if owned:
            total += g
            return total
        return total + g
    if type(total) is not IndexedSlices:
        return add_rows(total if owned else adapter_of(total).copy(total), g)
    if total.lead != g.lead:
        g, total = finer(g, max(g.lead, total.lead)), finer(total, max(g.lead, total.lead))
        owned = False
    if not owned:
        total = total._map(lambda v: v)
    total._parts.extend(g._parts)
    total._merged, total._sorted = None, False
    if sum(len(r) for r, _ in total._parts) > total._limit:
        merged = total.coalesce()
        total._parts, total._merged = list(merged._parts), None
        total._limit = max(total._limit, 2 * len(merged.indices))
    return total


def add_rows(dense: Array, g: IndexedSlices) -> Array:
    """`dense` with the rows of `g` added: in place for an array that the caller owns."""
    values = g.values
    if type(values) is not type(dense):  # a constant and a recorded one: the sum is recorded
        return dense + g.to_dense()
    flat = dense.reshape((math.prod(g.shape[: g.lead]), *g.shape[g.lead :]))
    return adapter_of(values).scatter_add_rows(flat, g.indices, values).reshape(g.shape)


def finer(g: IndexedSlices, lead: int) -> IndexedSlices:
    """The same gradient with rows cut smaller, so that `lead` axes address one."""
    if g.lead == lead:
        return g
    indices = blocks(g.indices, math.prod(g.shape[g.lead : lead]))
    return rows_of(indices, g.values.reshape((len(indices), *g.shape[lead:])), g.shape, lead)


def coarser(g: IndexedSlices, lead: int) -> IndexedSlices:
    """The same gradient, coalesced, in the larger rows that `lead` axes address.

    A row that was touched in part is filled up with zeros: what it holds is what the touched rows
    of that size hold, whatever the rest of the array is.
    """
    if g.lead == lead:
        return g
    inner, row = math.prod(g.shape[lead : g.lead]), g.shape[lead:]
    if not inner or not len(g.indices):
        return rows_of(g.indices[:0], g.values.reshape(-1)[:0].reshape((0, *row)), g.shape, lead)
    rows, place = xp_of(g.indices).unique(g.indices // inner, return_inverse=True)
    parts = adapter_of(g.values).scatter_rows(
        place.reshape(-1) * inner + g.indices % inner, g.values, len(rows) * inner
    )
    return rows_of(rows, parts.reshape((len(rows), *row)), g.shape, lead)


def rows_at_lead(g: IndexedSlices, rows: Array, lead: int) -> Array:
    """Sorted `rows` of g as rows that `lead` axes address, each once."""
    if lead > g.lead:
        return blocks(rows, math.prod(g.shape[g.lead : lead]))
    return xp_of(rows).unique(rows // math.prod(g.shape[lead : g.lead]))


def blocks(indices: Array, size: int) -> Array:
    """The ids of the `size` small rows that each large row is cut into."""
    if size == 1:
        return indices
    return (indices[:, None] * size + xp_of(indices).arange(size)).reshape(-1)


def sealed(g: Gradient) -> Gradient:
    """`g` with its arrays read-only: a cotangent that no rule changed shares memory with others."""
    if type(g) is not IndexedSlices:
        return adapter_of(g).read_only(g)
    new: IndexedSlices = object.__new__(IndexedSlices)
    new._set([read_only(*part) for part in g._parts], g.shape, g.lead)
    return new


def read_only(rows: Array, values: Array) -> tuple[Array, Array]:
    """Both so that they cannot be written to: they are kept for the next one who asks."""
    return adapter_of(rows).read_only(rows), adapter_of(values).read_only(values)


def touched(g: Gradient) -> tuple[Any, Array]:
    """(rows, values) with each row once. A dense gradient touches every row: ``(..., g)``."""
    if type(g) is not IndexedSlices:
        return ..., g
    merged = g.coalesce()
    return merged.indices, merged.values


def parts_of(g: Gradient) -> tuple[Any, Array]:
    """(rows, values) with rows as they came, repeats among them; ``(..., g)`` for a dense g.

    For who sums repeats on the way; what was summed already is not summed again.
    """
    if type(g) is not IndexedSlices:
        return ..., g
    g = g._merged or g
    return g.indices, g.values


def map_rows(g: Gradient, f: Callable[[Array], Array]) -> Gradient:
    """`f` of the rows of `g`, repeats summed first, so that `f` need not be linear; f(0) is 0."""
    if type(g) is not IndexedSlices:
        return f(g)
    merged = g.coalesce()
    new = rows_of(merged.indices, f(merged.values), g.shape, g.lead)
    new._sorted = True
    return new


def inner(g: Gradient, v: Array) -> Array:
    """Σ g · v, over the touched rows alone where `g` is rows; `v` has the shape of `g`."""
    if tuple(v.shape) != tuple(g.shape):
        raise ShapeError(explain("inner", f"a vector of shape {tuple(g.shape)}", describe(v)))
    if type(g) is not IndexedSlices:
        return (g * v).sum()
    flat = v.reshape((-1, *g.shape[g.lead :]))
    return (g.values * adapter_of(v).take_rows(flat, g.indices)).sum()


def densify(g: Gradient) -> Array:
    """`g` as a dense array, whatever it is."""
    return g.to_dense() if type(g) is IndexedSlices else g
