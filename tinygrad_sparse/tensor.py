"""Tensor: an array and where it stands in the record. Floor 3; no maths here.

May import `errors`, `backend` and `tape`. The operators are attached by `primitive`, which puts
each op's name and its methods in one declaration. Tensor is final, so ``type(x) is Tensor`` is the
only test the engine needs; a parameter is a Tensor that is tracked, not a subclass.
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, final
from weakref import WeakSet

import numpy as np

from tinygrad_sparse.backend import (
    Array,
    adapter_for,
    adapter_of,
    adapter_of_type,
    as_host_array,
    as_ours,
    describe,
    refuse_ids_elsewhere,
    refuse_mixed,
    row_ids,
    xp_of,
)
from tinygrad_sparse.backend.files import map_of
from tinygrad_sparse.errors import (
    DeviceError,
    DtypeError,
    RowIndexError,
    ShapeError,
    TapeError,
    explain,
)
from tinygrad_sparse.habits import HABITS as HABITS
from tinygrad_sparse.habits import LOST as LOST

from . import tape as _tape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tinygrad_sparse.gradstore import GradStore
    from tinygrad_sparse.tape import Tape

    class Pending(Protocol):
        """Rows of a parameter that an optimizer has still to move, once they are read."""

        array: Array  # the table as it lies in memory
        lasting: bool  # whether there may be rows to settle again, once all are
        below: Pending | None  # who settles rows before this one does
        above: Pending | None  # of one that lasts: the uppermost, if not itself

        def settle(self, rows: Any) -> None:
            """Bring these rows up to date: int64 ids, a slice of them, or ... for all."""

        def flush(self) -> None:
            """Write all to where it is kept, if that is not the memory."""

    class Watcher(Protocol):
        """Who goes by what rows of a parameter hold, and has to know before they are set."""

        def before_change(self, rows: Any) -> None:
            """These rows of the first axis, or ... for all, are about to be set."""


_next_id = itertools.count(1).__next__

# Held by whoever moves rows of a parameter: a step of an optimizer, and a reader that settles rows.
# One for all: two optimizers may share a table, and a read settles the rows of either.
moving_rows = threading.RLock()

# Ufuncs that NumPy calls for its operators, with the Tensor methods for (array op Tensor) and back.
_OPERATORS = {
    "add": ("__radd__", "__add__"),
    "subtract": ("__rsub__", "__sub__"),
    "multiply": ("__rmul__", "__mul__"),
    "divide": ("__rtruediv__", "__truediv__"),
    "floor_divide": ("__rfloordiv__", "__floordiv__"),
    "remainder": ("__rmod__", "__mod__"),
    "power": ("__rpow__", "__pow__"),
    "matmul": ("__rmatmul__", "__matmul__"),
    "less": ("__gt__", "__lt__"),
    "less_equal": ("__ge__", "__le__"),
    "greater": ("__lt__", "__gt__"),
    "greater_equal": ("__le__", "__ge__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
}
_NAMES = {  # what NumPy calls an op that has another name here
    "astype": "cast",
    "permute_dims": "transpose",
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "concat": "concatenate",
    "add.reduce": "sum",
    "multiply.reduce": "prod",
    "maximum.reduce": "max",
    "minimum.reduce": "min",
}


@final
class Tensor:
    """An array that a Tape can follow. Made by `parameter`, `tensor` and by every op.

    `data` is a read-only view, so nothing that backward will need can be changed by accident.
    """

    # _node: 0 for a constant, n > 0 for the n-th entry of _tape, -id for a parameter. One integer
    # answers "is it tracked?", "by which entry?" and "is it a leaf?" on the hot path.
    # _data is unset while rows are pending, so that reading it settles them and nobody else pays.
    __slots__ = (
        "__weakref__", "_data", "_id", "_name", "_node", "_pending", "_tape", "_version",
        "_watchers",
    )  # fmt: skip
    __array_priority__ = 1000

    _data: Array
    _pending: Pending | None
    _node: int
    _tape: Tape | None
    _version: int
    _name: str | None
    _watchers: WeakSet[Watcher] | None

    if TYPE_CHECKING:  # attached at import by the declarations in `ops`

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __pos__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...

    def __init_subclass__(cls) -> None:
        raise TypeError("Tensor is final: a parameter is a Tensor, and so is what an op computes")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(
            "Tensor: write ts.tensor(array) for a constant, ts.parameter(array) to train"
        )

    # -- what it holds -----------------------------------------------------------------------

    @property
    def data(self) -> Array:
        """The values now, as a read-only view: ask again after an optimizer's step.

        `assign` sets a parameter's. (CuPy has no read-only arrays: a view on a GPU is not to be
        written to, and nothing stops who does.)
        """
        return adapter_of(self._data).read_only(self._data)

    @data.setter
    def data(self, value: Any) -> NoReturn:
        hint = "a parameter's values are set by x.assign(values)"
        raise AttributeError(explain("x.data = ...", "nothing to be assigned", "values", hint))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array().shape

    @property
    def ndim(self) -> int:
        return self._array().ndim

    @property
    def size(self) -> int:
        return self._array().size

    @property
    def nbytes(self) -> int:
        return self._array().nbytes

    @property
    def dtype(self) -> np.dtype:
        return self._array().dtype

    @property
    def device(self) -> str:
        """Where the array lives: ``"cpu"`` or ``"cuda"``."""
        return adapter_of(self._array()).device

    @property
    def requires_grad(self) -> bool:
        """True for a parameter and for whatever a Tape computed from one."""
        return self._node != 0

    @property
    def id(self) -> int:
        """A number that no other Tensor of this process has; a GradStore's `get_ids` lists them."""
        if self._node < 0:
            return -self._node
        if getattr(self, "_id", None) is None:
            self._id = _next_id()
        return self._id

    @property
    def name(self) -> str:
        """The name given to `parameter`, or a made-up one."""
        name = getattr(self, "_name", None)
        return name if name is not None else f"tensor{self.id}"

    # -- getting values out ------------------------------------------------------------------

    def numpy(self) -> np.ndarray:
        """A fresh NumPy array of the values, yours to write to: the way from a GPU to the host."""
        return np.array(adapter_of(self._data).to_host(self._data))

    def item(self) -> float:
        """The one value of a size-1 tensor, as a Python number."""
        if self.size != 1:
            raise ShapeError(
                explain("item", "one element", f"shape {self.shape}", "index it first")
            )
        return adapter_of(self._data).to_host(self._data).item()

    def detach(self) -> Tensor:
        """The values as a constant, cut off from the record.

        A parameter is copied, since an optimizer writes to it in place, and so is what may be a
        view of one: cut off the rows you need, ``W[ids].detach()``, rather than the table.
        """
        shared = self._node < 0 or self._data.base is not None
        return constant(self._data.copy() if shared else self._data)

    def to(self, device: str) -> Tensor:
        """This tensor on another device, "cpu" or "cuda"; itself if it is there already.

        A parameter gives another parameter, with a gradient of its own; `Module.to` moves those of
        a model. Raises TapeError for what a Tape computed, for a copy would have no gradient, and
        DeviceError for a `parameter_file`, which may be larger than any memory.
        """
        adapter_for(device)
        if self.device == device:
            return self
        if self._node > 0:
            got = f"{self.name} {self.shape}, whose gradient would be lost"
            hint = "x.detach().to(device), or move the parameters that it was computed from"
            raise TapeError(explain("to", "a parameter or a constant", got, hint))
        _refuse_file(self)
        if self._node:
            return parameter(self._data, name=getattr(self, "_name", None), device=device)
        return constant(_moved(self._data, device))

    def backward(self, seed: Any = None, create_graph: bool = False) -> GradStore:
        """``tape.backward(self)`` on the tape that recorded it: returns a GradStore."""
        if self._tape is None:
            why = (
                "a parameter"
                if self._node
                else "a constant, or computed while no Tape was recording"
            )
            raise TapeError(
                explain(
                    "backward",
                    "a tensor computed from parameters inside `with ts.Tape():`",
                    f"{self.name} {self.shape}, which is {why}",
                    None if self._node else LOST,
                )
            )
        return self._tape.backward(self, seed, create_graph)

    def flush(self) -> None:
        """Bring all rows of a parameter up to date; one on a file is written to the disk, too.

        `parameter_file` says what is safe without it.
        """
        with moving_rows:
            lasting = self._lasting()
            if lasting is not None:
                lasting.flush()

    def assign(self, values: Any, rows: Any = None) -> None:
        """Set a parameter's values in place, or those of the rows `rows` of its first axis.

        Shapes: `values` as the parameter; with `rows` (n,), each once, (n, \\*row). An array has to
        have the parameter's dtype, a list takes it. What optimizers keep for the rows stays, and a
        backward that saved the old values will refuse. Raises TapeError for what is no parameter,
        ShapeError, DtypeError and RowIndexError.

        >>> W = parameter(np.zeros((3, 2)))
        >>> W.assign([[1, 2], [3, 4]], rows=[2, 0])
        >>> W.data
        array([[3., 4.],
               [0., 0.],
               [1., 2.]])
        """
        if self._node >= 0:
            got = f"{self.name} {self.shape}, which is none"
            raise TapeError(explain("assign", "a parameter", got, "make a new tensor instead"))
        shape: tuple[int, ...] = self.shape
        if rows is not None:
            if not self.ndim:
                raise ShapeError(explain("assign", "rows of a parameter with axes", "shape ()"))
            rows = unwrap(rows)
            refuse_ids_elsewhere("assign", rows, self)
            rows = row_ids("assign", rows, shape[0], f", {self.name} {shape}").reshape(-1)
            there = adapter_of(rows).to_host(rows)  # where ids out of range are told, too
            if len(np.unique(there)) < len(there):
                raise RowIndexError(explain("assign", "each row once", f"rows {there}"))
            rows = adapter_of(self).beside(self, rows)
            shape = (len(rows), *shape[1:])
        values = unwrap(values)
        refuse_mixed("assign", (self._array(), values))
        if not hasattr(values, "dtype"):
            values = _own(values, "assign", "fiub", self.device).astype(self.dtype)
        values = native(values)
        if values.dtype != self.dtype:
            hint = f"write values.astype({str(self.dtype)!r})"
            raise DtypeError(explain("assign", f"{self.dtype} values", describe(values), hint))
        if values.shape != shape:
            raise ShapeError(explain("assign", f"values of shape {shape}", describe(values)))
        self._overwrite(values, rows)

    def _overwrite(self, values: Array, rows: Any = None) -> None:
        """`assign` without its checks."""
        with moving_rows:
            before_change(self, ... if rows is None else rows)
            self._put(values, rows)

    def _put(self, values: Array, rows: Any = None) -> None:
        """Set values that nobody but optimizers with rows pending has to know of."""
        with moving_rows:
            if rows is None:
                self._data[...] = values
            else:
                pending = pending_of(self)
                if pending is not None:
                    pending.settle(rows)
                self._array()[rows] = values
            self._version += 1

    def _array(self) -> Array:
        """The array as it lies in memory, rows that are pending as they are: for its shape, say."""
        pending = pending_of(self)
        return _held(self) if pending is None else pending.array

    def _leave(self, pending: Pending) -> None:
        """Some rows are not up to date from now on: whoever reads them settles them first."""
        below = pending_of(self)
        if below is not pending:
            pending.below = below
            _tell_lasting(below, pending)
        self._pending = pending
        try:
            del self._data
        except AttributeError:
            pass  # others were pending already

    def _lasting(self) -> Pending | None:
        """Who is left to settle rows of this one when all that optimizers left are up to date."""
        pending = pending_of(self)
        while pending is not None and not pending.lasting:
            self._come_to_rest(pending)
            pending = pending_of(self)
        return pending

    def _come_to_rest(self, pending: Pending) -> None:
        """Nothing is left that `pending`, the uppermost, has to settle."""
        pending.settle(...)
        self._pending = pending.below
        if pending.below is None:
            self._data = pending.array
        _tell_lasting(pending.below, pending.below)

    # -- behaving like an array --------------------------------------------------------------

    def __repr__(self) -> str:
        label = f", name={self.name!r}" if getattr(self, "_name", None) is not None else ""
        tracked = ", requires_grad" if self._node else ""
        try:
            shown = self._shown()
            values = np.array2string(adapter_of(shown).to_host(shown), separator=", ")
        except Exception as error:  # what debuggers and tracebacks print has to be printable
            values = f"shape {self.shape}, whose values raise {type(error).__name__}: {error}"
        return f"Tensor({values}, {self.dtype}{label}{tracked})"

    def _shown(self) -> Array:
        """The values, with those rows settled that printing them shows."""
        pending, options = pending_of(self), np.get_printoptions()
        if pending is None or self.size <= options["threshold"]:
            return self._data
        n, edge = len(self), options["edgeitems"]
        pending.settle(np.unique(np.r_[: min(edge, n), max(0, n - edge) : n]))
        return pending.array

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a 0-d Tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._data)

    def __float__(self) -> float:
        self._refuse_to_leave("float")
        return float(self.item())

    def __int__(self) -> int:
        self._refuse_to_leave("int")
        return int(self.item())

    def __index__(self) -> int:
        return adapter_of(self._data).to_host(self._data).__index__()

    def __round__(self, digits: int | None = None) -> float:
        return round(self.item(), digits)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def _refuse_to_leave(self, function: str) -> None:
        """What Python's or NumPy's functions make of a tracked value has no gradient."""
        if self._node and _tape.state.tape is not None:
            raise TapeError(
                explain(
                    function,
                    "a constant inside a Tape block",
                    f"the tracked {self.name} {self.shape}, whose gradient would be lost",
                    "use an op of tinygrad_sparse; .item() and .detach() say that no gradient "
                    "should flow",
                )
            )

    def __lt__(self, other: Any) -> Array:
        return _compared(operator.lt, self, other)

    def __le__(self, other: Any) -> Array:
        return _compared(operator.le, self, other)

    def __gt__(self, other: Any) -> Array:
        return _compared(operator.gt, self, other)

    def __ge__(self, other: Any) -> Array:
        return _compared(operator.ge, self, other)

    def __eq__(self, other: object) -> Any:
        return _compared(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return _compared(operator.ne, self, other)

    __hash__ = object.__hash__  # tensors are dictionary keys by identity

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._refuse_to_leave("np.asarray")
        if self.device != "cpu":
            got = f"{self.name} {self.shape} on {self.device!r}"
            hint = "x.numpy() copies it to the host"
            raise DeviceError(explain("np.asarray", "a Tensor on the CPU", got, hint))
        return np.array(self.data, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs and ufunc.__name__ in _OPERATORS:
            reflected, direct = _OPERATORS[ufunc.__name__]
            left, right = inputs
            if type(left) is Tensor:
                return getattr(left, direct)(right)
            return getattr(right, reflected)(left)
        refuse_numpy(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        refuse_numpy(func.__name__, func.__module__.replace("numpy", "np", 1))

    def __dlpack__(self, **kwargs: Any) -> Any:
        self._refuse_to_leave("from_dlpack")
        return adapter_of(self._data).copy(self._data).__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise TapeError(
            explain(
                "item assignment",
                "a new tensor",
                "x[...] = value, which would change values that backward may need",
                "ops.index_set(x, index, value) and ops.index_add(x, index, value) give one, "
                "and ops.where(mask, value, x) selects; W.assign(values, rows) sets rows of a "
                "parameter W",
            )
        )

    def _refuse_grad(self, value: Any) -> NoReturn:
        raise AttributeError(f"Tensor has no .grad: {HABITS['grad']}.")

    grad = property(None, _refuse_grad)  # `p.grad = None` too; reading ends in __getattr__

    def __getattr__(self, name: str) -> Any:
        if name == "_data":
            with moving_rows:
                pending = self._lasting()
                if pending is None:  # perhaps another thread has just settled all
                    return _held(self)
                pending.settle(...)
                return pending.array
        if name in HABITS:
            raise AttributeError(f"Tensor has no .{name}: {HABITS[name]}.")
        raise AttributeError(f"Tensor has no attribute {name!r}")

    # A copied slot dictionary would give two tensors one id, and their gradients would mix.
    def __copy__(self) -> Tensor:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: Any) -> Tensor:
        if self._node < 0:
            return parameter(self._data, name=getattr(self, "_name", None))
        return constant(self._data.copy())

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("Tensor: pickle is not supported; save x.numpy() with np.save or np.savez")


_held = Tensor.__dict__["_data"].__get__  # never calls __getattr__, so it settles nothing


def pending_of(x: Tensor) -> Pending | None:
    """Who has rows of x still to move, if anybody."""
    try:
        _held(x)
    except AttributeError:
        return x._pending
    return None


def _tell_lasting(pending: Pending | None, top: Pending | None) -> None:
    """Whoever lasts has to know who is on top of it: it may outlive the tensor that says so."""
    while pending is not None and not pending.lasting:
        pending = pending.below
    if pending is not None:
        pending.above = None if top is pending else top


def watch(x: Tensor, watcher: Watcher) -> None:
    """From now on `watcher` is told before anybody else sets rows of the parameter x."""
    if x._watchers is None:
        x._watchers = WeakSet()
    x._watchers.add(watcher)


def unwatch(x: Tensor, watcher: Watcher) -> None:
    """Tell it no more."""
    if x._watchers is not None:
        x._watchers.discard(watcher)


def before_change(x: Tensor, rows: Any, who: Any = None) -> None:
    """Tell all who watch x, but for the one who is about to set these rows."""
    if x._watchers:
        for watcher in list(x._watchers):
            if watcher is not who:
                watcher.before_change(rows)


def ready(x: Any, rows: Any) -> Any:
    """`x` for an op that reads these rows alone: they are settled, the other pending ones are not.

    Itself if nothing is pending; else a stand-in that is the same node for the tape.
    """
    pending = pending_of(x) if type(x) is Tensor else None
    if pending is None:
        return x
    pending.settle(rows)
    if _tape.state.tape is not None:
        _tape.state.tape._adopt(x)
    stand_in = constant(pending.array)
    stand_in._node = x._node
    return stand_in


def refuse_numpy(name: str, module: str = "np") -> NoReturn:
    """NumPy's functions would lose the gradient: say what to call instead."""
    ours = _NAMES.get(name, name)
    known = callable(getattr(adapter_of_type(Tensor).xp, ours, None))
    hint = f"write ops.{ours}" if known else "no op has this name; x.data has the values"
    got = "a Tensor, whose gradient would be lost"
    raise TypeError(explain(f"{module}.{name}", "arrays", got, hint))


def _compared(compare: Callable[[Any, Any], Any], x: Tensor, y: Any) -> Array:
    """Truth values: an array, for what is chosen has a gradient and the choice has none."""
    data, y = x._data, unwrap(y)
    if isinstance(y, (list, tuple)):
        y = xp_of(data).asarray(as_host_array(compare.__name__, y))
    try:
        return compare(data, y)
    except ValueError:
        got = f"{describe(data)} and {describe(y)}"
        raise ShapeError(explain(compare.__name__, "shapes that fit together", got)) from None
    except TypeError:
        refuse_mixed(compare.__name__, (data, y))
        raise


def unwrap(x: Any) -> Any:
    """The array of a Tensor; anything else as it is."""
    return x._data if type(x) is Tensor else x


def constant(data: Array) -> Tensor:
    """A Tensor around an array that is ours, without a copy."""
    new: Tensor = object.__new__(Tensor)
    new._data = data
    new._node = 0
    new._tape = None
    return new


def recorded(data: Array, node: int, tape: Tape) -> Tensor:
    """The Tensor that entry `node` of `tape` computed."""
    new: Tensor = object.__new__(Tensor)
    new._data = data
    new._node = node
    new._tape = tape
    return new


def tensor(array: Any, *, device: str | None = None) -> Tensor:
    """A constant: no gradient flows to it. The array is copied.

    It stays where it is, or is copied to the `device`, "cpu" or "cuda": see docs/gpu.md.

    >>> tensor([1.0, 2.0]).shape
    (2,)
    """
    return constant(_own(unwrap(array), "tensor", "fiub", device))


def parameter(array: Any, *, name: str | None = None, device: str | None = None) -> Tensor:
    """A trainable leaf holding a copy of `array`, with its float dtype.

    `device` is "cpu" or "cuda"; without it the copy is where `array` is. Raises DtypeError for
    integers and complex numbers: those have no gradient here.

    >>> W = parameter(np.zeros((1000, 8), np.float32), name="table")
    >>> W.requires_grad, W.dtype
    (True, dtype('float32'))
    """
    leaf = constant(_own(unwrap(array), "parameter", "f", device))
    leaf._node = -_next_id()
    leaf._version = 0
    leaf._name = name
    leaf._watchers = None
    return leaf


def native(array: np.ndarray) -> np.ndarray:
    """An array as this machine orders bytes; files and other machines may have it otherwise."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _own(array: Any, op: str, kinds: str, device: str | None) -> Array:
    """A native, contiguous copy of `array` that only we can write to."""
    source = as_ours(op, array)
    if source.dtype.kind not in kinds or source.dtype.itemsize > 8:
        wanted = "a float array (float16, float32, float64)" if kinds == "f" else "real numbers"
        hint = "convert it: array.astype(float)" if source.dtype.kind in "iubf" else None
        if hint is not None and not hasattr(array, "dtype"):
            hint = "write 3.0 for 3"
        raise DtypeError(explain(op, wanted, f"{source.dtype} {source.shape}", hint))
    # By its letter a dtype is NumPy's one object for it, so that the engine may compare with `is`.
    native = source.astype(source.dtype.char, order="C", copy=True)
    return native if device is None else _moved(native, device)


def _moved(array: Array, device: str) -> Array:
    """`array` on a device: itself, or a copy; asked for by name, never on the way."""
    there = adapter_for(device)
    here = adapter_of(array)
    return array if here is there else there.asarray(here.to_host(array))


def _refuse_file(x: Tensor) -> None:
    if map_of(x._array()) is not None:
        got = f"{x.name} {x.shape}, on a file"
        hint = "x[ids].detach().to(device) copies the rows that are wanted"
        raise DeviceError(explain("to", "an array in memory", got, hint))


def move(x: Tensor, device: str) -> None:
    """Put the values of the parameter x on a device: it stays the same parameter."""
    if x.device != device:
        _refuse_file(x)
        with moving_rows:
            before_change(x, ...)
            x._data = _moved(x._data, device)
            x._version += 1
