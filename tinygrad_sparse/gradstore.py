"""GradStore: what backward returns and an optimizer takes. Floor 3.

May import everything on its floor but `backward` and `functional`, and below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, NoReturn

import numpy as np

from tinygrad_sparse.backend import describe, refuse_mixed
from tinygrad_sparse.errors import (
    ArgumentError,
    DtypeError,
    MissingGradientError,
    ShapeError,
    TapeError,
    explain,
)
from tinygrad_sparse.slices import (
    Gradient,
    accumulate,
    as_factor,
    densify,
    is_sparse,
    rows_at_lead,
    sealed,
    some_values,
    touched,
)
from tinygrad_sparse.tensor import Tensor, unwrap


class GradStore:
    """Gradients by parameter: what `backward` returns and an optimizer takes.

    `get_ids()` lists the ids of the parameters that got a gradient (candle's meaning of the name);
    `touched_rows(p)` lists the rows of one parameter. It holds trainable leaves only.

    >>> import tinygrad_sparse as ts
    >>> W = ts.parameter(np.ones((5, 2))); b = ts.parameter(np.zeros(2))
    >>> with ts.Tape():
    ...     grads = (W[[1, 3]] + b).sum().backward()
    >>> grads.get_ids() == [W.id, b.id], grads.touched_rows(W), grads[b]
    (True, array([1, 3]), array([2., 2.]))
    """

    __slots__ = ("_grads", "_lost", "_params")
    __array_ufunc__ = None  # a NumPy number on the left of an operator defers to us

    def __init__(self) -> None:
        self._params: dict[int, Tensor] = {}
        self._grads: dict[int, Gradient] = {}
        self._lost: dict[int, str] = {}  # recorded parameters that the loss does not depend on

    # -- reading -----------------------------------------------------------------------------

    def get_ids(self) -> list[int]:
        """Ids of the parameters that got a gradient, ascending; costs what it lists."""
        return sorted(self._grads)

    def get_by_id(self, id: int) -> Gradient:
        """The gradient of the parameter with this id."""
        return self[self._params[id]] if id in self._params else self._missing(f"id {id}", id)

    def parameter(self, id: int) -> Tensor:
        """The parameter with this id."""
        return self._params[id] if id in self._params else self._missing(f"id {id}", id)

    def __getitem__(self, p: Tensor) -> Gradient:
        id = _id_of(p)
        if id not in self._grads:
            self._missing(f"{p.name} {p.shape}", id, leaf=p._node < 0)
        return self._grads[id]

    def _missing(self, what: str, id: int, leaf: bool = True) -> Any:
        if not leaf:
            why = f"{what}, which is not a parameter"
        elif id in self._lost:
            why = f"{what}: it went into {self._lost[id]}, whose result the loss does not depend on"
        else:
            why = f"{what}, which no op of this Tape used as a tracked tensor"
        raise MissingGradientError(
            explain(
                "GradStore",
                "a parameter that the loss depends on",
                why,
                "grads.get(p) gives None instead; .detach(), .data and no_grad cut the path",
            )
        )

    def __contains__(self, p: Tensor) -> bool:
        return _id_of(p) in self._grads

    def __iter__(self) -> Iterator[Tensor]:
        return (self._params[id] for id in self.get_ids())

    def __len__(self) -> int:
        return len(self._grads)

    def items(self) -> Iterator[tuple[Tensor, Gradient]]:
        """(parameter, gradient) pairs in the order of `get_ids`."""
        return ((self._params[id], self._grads[id]) for id in self.get_ids())

    def get(self, p: Tensor, default: Any = None) -> Gradient:
        """The gradient of p, or `default` if it got none."""
        return self._grads.get(_id_of(p), default)

    def touched_rows(self, p: Tensor, lead: int | None = None) -> np.ndarray | None:
        """Sorted unique int64 rows with a gradient, zero or not; None if the gradient is dense.

        A row is what `lead` axes address: if None, as many as the gradient has (one, for lookups by
        rows). Rows of several axes come as flat ids, which `np.unravel_index` takes apart; with
        ``lead=1`` they are the rows of the first axis that were touched in any part. Raises
        ShapeError for a `lead` that p does not have.

        >>> import tinygrad_sparse as ts
        >>> Q = ts.parameter(np.zeros((100, 4)))
        >>> with ts.Tape():
        ...     grads = Q[[7, 99, 7], [0, 3, 2]].sum().backward()
        >>> grads.touched_rows(Q), grads.touched_rows(Q, lead=1)
        (array([ 28,  30, 399]), array([ 7, 99]))
        >>> states, actions = np.unravel_index(grads.touched_rows(Q), Q.shape)
        >>> states, actions
        (array([ 7,  7, 99]), array([0, 2, 3]))
        """
        g = self[p]
        if lead is not None and not 1 <= lead <= p.ndim:
            raise ShapeError(explain("touched_rows", f"1 <= lead <= {p.ndim}", repr(lead)))
        rows, _ = touched(g)
        if rows is ...:
            return None
        return sealed(rows if lead in (None, g.lead) else rows_at_lead(g, rows, lead))

    @property
    def nbytes(self) -> int:
        """Bytes that the gradients hold."""
        return sum(g.nbytes for g in self._grads.values())

    def norm(self, ord: float = 2) -> float:
        """The p-norm over all gradients together, repeated rows summed first; `ord` may be inf.

        Computed in float64 and scaled by the largest element, so that squares do not overflow.
        """
        if not isinstance(ord, Real) or not ord > 0:
            raise ArgumentError(explain("norm", "ord > 0, or inf", repr(ord)))
        flat = [self._flat(g) for g in self._grads.values()]
        top = max((float(abs(v).max()) for v in flat if v.size), default=0.0)
        if ord == math.inf or not 0.0 < top < math.inf:
            return top
        return top * float(sum(float(((abs(v) / top) ** ord).sum()) for v in flat)) ** (1 / ord)

    @staticmethod
    def _flat(g: Gradient) -> np.ndarray:
        values = touched(g)[1]
        if type(values) is Tensor:
            values._refuse_to_leave("GradStore.norm")
            values = unwrap(values)
        return values.astype(np.float64).ravel()

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{p.name}: {g if is_sparse(g) else describe(g)}" for p, g in list(self.items())[:8]
        )
        more = ", ..." if len(self) > 8 else ""
        return f"GradStore({shown}{more})"

    # -- changing ----------------------------------------------------------------------------

    def __setitem__(self, p: Tensor, g: Gradient) -> None:
        id = _id_of(p)
        if p._node >= 0:
            raise TapeError(explain("GradStore", "a parameter as key", f"{p.name} {p.shape}"))
        if not hasattr(g, "shape") or tuple(g.shape) != p.shape:
            raise ShapeError(
                explain("GradStore", f"a gradient of shape {p.shape} for {p.name}", describe(g))
            )
        if g.dtype != p.dtype:
            raise DtypeError(
                explain("GradStore", f"a gradient of {p.dtype} for {p.name}", str(g.dtype))
            )
        refuse_mixed("GradStore", (p._array(), some_values(g)))
        self._params[id] = p
        self._grads[id] = sealed(g)

    def pop(self, p: Tensor, *default: Any) -> Gradient:
        """Take the gradient of p out."""
        if default and p not in self:
            return default[0]
        g = self[p]
        del self._grads[p.id], self._params[p.id]
        return g

    def to_dense(self) -> GradStore:
        """The same store with every gradient dense."""
        return self.map(densify)

    def map(self, f: Callable[[Gradient], Gradient]) -> GradStore:
        """A new store with f of each gradient; f keeps shape and dtype."""
        new = GradStore()
        new._lost = self._lost
        for p, g in self.items():
            new[p] = f(g)
        return new

    def __mul__(self, c: float) -> GradStore:
        factor = as_factor("GradStore *", c)
        return self.map(lambda g: g * factor)

    __rmul__ = __mul__

    def __truediv__(self, c: float) -> GradStore:
        factor = as_factor("GradStore /", c)
        return self.map(lambda g: g / factor)

    def __add__(self, other: GradStore) -> GradStore:
        """Accumulation over micro-batches: row-sparse gradients stay so."""
        if type(other) is not GradStore:
            return NotImplemented
        new = self.map(lambda g: g)
        new._lost = {**other._lost, **self._lost}
        for p, g in other.items():
            if p in new:
                refuse_mixed("GradStore +", (some_values(new[p]), some_values(g)))
                g = accumulate(new[p], g, owned=False)
            new[p] = g
        return new

    def __radd__(self, other: Any) -> GradStore:
        """0 + grads, where ``sum([grads, more])`` begins."""
        return self.__copy__() if type(other) is int and other == 0 else NotImplemented

    def __copy__(self) -> GradStore:
        """A store of its own for the same parameters; the gradients are read-only, and shared."""
        return self.map(lambda g: g)

    def __deepcopy__(self, memo: Any) -> GradStore:
        # a copied parameter would be another one, and no optimizer would find its gradient
        return self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("GradStore: pickle is not supported; save the arrays of .items()")


def _id_of(p: Any) -> int:
    if type(p) is not Tensor:
        raise TapeError(explain("GradStore", "a parameter as key", repr(p)))
    return p.id
