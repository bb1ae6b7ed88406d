"""Sequential: one after the other. Floor 5."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tinygrad_sparse.errors import ArgumentError, explain

from .module import Module


class Sequential(Module):
    """``f3(f2(f1(x)))`` of the given Modules and functions, in their order.

    >>> import numpy as np, tinygrad_sparse as ts
    >>> from tinygrad_sparse import nn, ops
    >>> model = nn.Sequential(nn.Linear(3, 4, seed=0), ops.relu, nn.Linear(4, 2, seed=1))
    >>> model(np.ones((5, 3), np.float32)).shape, len(model.parameters())
    ((5, 2), 4)
    """

    def __init__(self, *layers: Callable[[Any], Any]) -> None:
        for layer in layers:
            if isinstance(layer, type) or not callable(layer):
                got = f"a {type(layer).__name__}"
                if isinstance(layer, type):
                    got = f"the class {layer.__name__}"
                hint = "Sequential(Linear(3, 4), ops.relu), or Sequential(*layers) of a list"
                raise ArgumentError(explain("Sequential", "Modules and functions", got, hint))
        self.layers = list(layers)

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Callable[[Any], Any]]:
        return iter(self.layers)

    def __getitem__(self, i: int) -> Callable[[Any], Any]:
        return self.layers[i]
