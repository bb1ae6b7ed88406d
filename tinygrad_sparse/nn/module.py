"""Module: a tree of parameters with names. Floor 5."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tinygrad_sparse.backend import adapter_of, as_host_array, describe
from tinygrad_sparse.errors import ArgumentError, CheckpointError, DtypeError, TapeError, explain
from tinygrad_sparse.habits import HABITS
from tinygrad_sparse.tensor import Tensor, move, native

from .generators import state_of, words_of


class Module:
    """Base of everything that has parameters: subclass it, assign them, write ``__call__``.

    Parameters and Modules are found in attributes, also inside lists, tuples and dicts; the name of
    one is its path, as in ``layers.0.weight``. A parameter that is shared is listed once. A
    ``np.random.Generator`` in an attribute, as Dropout has one, is a part of the state.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> class Model(ts.nn.Module):
    ...     def __init__(self):
    ...         self.table = ts.nn.Embedding(10, 4, seed=0)
    ...         self.out = ts.nn.Linear(4, 2, seed=1)
    ...     def __call__(self, ids):
    ...         return self.out(self.table(ids))
    >>> Model()
    Model of 50 numbers in 3 parameters
      table.weight  float32 (10, 4)
      out.weight    float32 (4, 2)
      out.bias      float32 (2,)
    """

    training = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{type(self).__name__}: a Module needs its own __call__")

    def __setattr__(self, name: str, value: Any) -> None:
        old = vars(self).get(name)
        if _is_parameter(old) and not (value is None or _is_parameter(value)):
            wanted = f"a parameter or None as {name}, which is a parameter"
            hint = (
                f"model.{name}.assign(values) sets its values, ts.parameter(values) is another, "
                f"vars(model).update({name}=x) puts any x there"
            )
            got = f"{describe(value)}, which no optimizer would train"
            raise TapeError(explain(type(self).__name__, wanted, got, hint))
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in HABITS:
            raise AttributeError(f"{type(self).__name__} has no .{name}: {HABITS[name]}.")
        return object.__getattribute__(self, name)  # raises what it raised before

    def __repr__(self) -> str:
        named = list(self.named_parameters())
        width = max((len(name) for name, _ in named), default=0)
        lines = [f"  {name:{width}}  {p.dtype} {p.shape}" for name, p in named]
        total = sum(p.size for _, p in named)
        return "\n".join(
            [f"{type(self).__name__} of {total:,} numbers in {len(named)} parameters", *lines]
        )

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(path, parameter) pairs in the order of assignment."""
        seen: set[int] = set()
        names: set[str] = set()
        for name, value in _walk(self, ""):
            if type(value) is Tensor and value.id not in seen:
                if name in names:  # by a dict key with a dot in it
                    raise ArgumentError(
                        explain(type(self).__name__, "a name for each parameter", f"{name!r} twice")
                    )
                seen.add(value.id)
                names.add(name)
                yield name, value

    def parameters(self) -> list[Tensor]:
        """The parameters, for an optimizer."""
        return [p for _, p in self.named_parameters()]

    def train(self, mode: bool = True) -> Module:
        """Set training mode here and below."""
        for _, value in _walk(self, ""):
            if isinstance(value, Module):
                value.training = mode
        return self

    def eval(self) -> Module:
        """Set evaluation mode here and below."""
        return self.train(False)

    def to(self, device: str) -> Module:
        """Move every parameter to a device, "cpu" or "cuda"; they stay the same parameters.

        Before an optimizer is made: what it keeps is where the parameters were.
        """
        for p in self.parameters():
            move(p, device)
        return self

    def constants(self) -> dict[str, np.ndarray]:
        """Arrays by name that a subclass computes with and does not train: saved, never loaded."""
        return {}

    def _named_constants(self) -> dict[str, np.ndarray]:
        return {
            f"{path}.{name}" if path else name: a
            for path, value in _walk(self, "")
            if isinstance(value, Module)
            for name, a in value.constants().items()
        }

    def _named_generators(self) -> dict[str, np.random.Generator]:
        found: dict[int, tuple[str, np.random.Generator]] = {}
        for path, value in _walk(self, ""):
            if isinstance(value, np.random.Generator):
                found.setdefault(id(value), (path, value))  # one that is shared is saved once
        return dict(found.values())

    def state_dict(self) -> dict[str, np.ndarray]:
        """A copy of every parameter and constant by name, NumPy's whatever the device.

        Of random generators the state, as uint64 numbers: with it training goes on bit for bit.

        >>> import tinygrad_sparse as ts
        >>> model = ts.nn.Sequential(ts.nn.Linear(2, 2), ts.nn.Dropout(seed=1))
        >>> {name: a.shape for name, a in model.state_dict().items()}
        {'layers.0.weight': (2, 2), 'layers.0.bias': (2,), 'layers.1.rng': (9,)}
        """
        state = {name: p.numpy() for name, p in self.named_parameters()} | self._named_constants()
        return state | {name: words_of(rng) for name, rng in self._named_generators().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Overwrite the parameters. Checks all names, shapes and dtypes before it changes one.

        A constant has to be what it is here: with another, the parameters would mean another thing.
        A generator that the state has nothing of, as one saved by an earlier version, is left as it
        is.
        """
        parameters = dict(self.named_parameters())
        constants = self._named_constants()
        generators = self._named_generators()
        mine: dict[str, Any] = parameters | constants
        if not isinstance(state, Mapping):
            got = type(state).__name__
            raise CheckpointError(explain("load_state_dict", "arrays by name", got))
        missing, extra = set(mine) - set(state), set(state) - set(mine) - set(generators)
        if missing or extra:
            names = sorted(set(mine) | set(generators))
            got = f"missing {sorted(missing)}, unknown {sorted(extra)}"
            raise CheckpointError(explain("load_state_dict", f"exactly the names {names}", got))
        try:
            arrays = {k: native(as_host_array("load_state_dict", x)) for k, x in state.items()}
        except DtypeError as error:  # ragged lists
            raise CheckpointError(str(error)) from error
        for name, p in mine.items():
            a = arrays[name]
            if a.shape != p.shape or a.dtype != p.dtype:
                raise CheckpointError(
                    explain(
                        "load_state_dict", f"{name} {p.dtype} {p.shape}", f"{a.dtype} {a.shape}"
                    )
                )
        for name, here in constants.items():
            if not np.array_equal(arrays[name], here):
                got = f"{arrays[name]}"
                raise CheckpointError(explain("load_state_dict", f"{name} {here} as here", got))
        drawn = {k: state_of(k, arrays[k], rng) for k, rng in generators.items() if k in arrays}
        for name, new in drawn.items():
            generators[name].bit_generator.state = new
        for name, p in parameters.items():
            p._overwrite(adapter_of(p._array()).asarray(arrays[name]))


def _is_parameter(x: Any) -> bool:
    return type(x) is Tensor and x._node < 0


def _walk(value: Any, path: str, above: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Depth first, in order of assignment: every Tensor, Module and generator, with its path.

    What refers back to something `above` it, as a child to its parent, is not entered again.
    """
    if type(value) is Tensor:
        if _is_parameter(value):
            yield path, value
        return
    if any(value is one for one in above):
        return
    if isinstance(value, np.random.Generator):
        yield path, value
        return
    if isinstance(value, Module):
        yield path, value
        children: Any = vars(value).items()
    elif isinstance(value, dict):
        children = value.items()
    elif isinstance(value, (list, tuple)):
        children = enumerate(value)
    else:
        return
    for key, child in children:
        yield from _walk(child, f"{path}.{key}" if path else str(key), (*above, value))
