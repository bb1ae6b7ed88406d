"""PyTorch's steps, for `gpu_stages` to time beside ours: on the memory that they are given.

Nothing here knows of CuPy: arrays come by DLPack, so the steps run on PyTorch's CPU too.
"""

from collections.abc import Callable
from typing import Any

Run = Callable[[Any], object]


def loaded() -> Any:
    """PyTorch, or None where it is not installed or has no GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def version() -> str:
    torch = loaded()
    return "none" if torch is None else torch.__version__


def bare(step: str, values: Any, table: Any) -> Run:
    """A step from ids and the rows of their gradient, as a sparse tensor: no autograd."""
    import torch

    g, p = torch.from_dlpack(values), torch.nn.Parameter(torch.from_dlpack(table))
    if step == "lookup":
        return lambda ids: torch.nn.functional.embedding(ids, p.detach())
    made: dict[str, Callable[[], Any]] = {
        "sgd": lambda: torch.optim.SGD([p], lr=0.1),
        "adagrad": lambda: torch.optim.Adagrad([p], lr=0.1),
        "adam": lambda: torch.optim.SparseAdam([p], lr=0.01),
    }
    optimizer = made[step]() if step in made else None

    def run(ids: Any) -> None:
        gradient = torch.sparse_coo_tensor(ids[None], g, p.shape, check_invariants=False)
        if optimizer is None:
            gradient.coalesce()
            return
        p.grad = gradient
        optimizer.step()

    return run


def whole(step: str, table: Any, c: Any) -> Run:
    """`Embedding`, a loss, its backward and an optimizer; "dense adam": all rows at every step."""
    import torch

    table, c = torch.from_dlpack(table), torch.from_dlpack(c)
    layer = torch.nn.Embedding(*table.shape, sparse=step != "dense adam", _weight=table)
    made: dict[str, Callable[[], Any]] = {
        "sgd": lambda: torch.optim.SGD(layer.parameters(), lr=1e-3),
        "adam": lambda: torch.optim.SparseAdam(layer.parameters(), lr=1e-3),
        "dense adam": lambda: torch.optim.Adam(layer.parameters(), lr=1e-3, fused=True),
    }
    optimizer = made[step]()

    def run(ids: Any) -> None:
        optimizer.zero_grad()
        (layer(ids) * c).sum().backward()
        optimizer.step()

    return run
