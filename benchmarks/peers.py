"""A training step on one table, by this package and by each peer that is installed.

Peers are installed by hand: `torch`, and beside torch 2.13 `fbgemm-gpu-cpu==1.8.0`.
"""

import warnings
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

import tinygrad_sparse as ts

Step = Callable[[np.ndarray], None]

OPTIMIZERS = ("SGD", "Adagrad", "Adam")
RATE = 1e-3


def tinygrad_sparse(table: np.ndarray, optimizer: str) -> Step:
    """Lookup, sum of squares, backward and an optimizer's step on the ids that it is given."""
    W = ts.parameter(table)
    settings = {"sparse": "lazy"} if optimizer == "Adam" else {}
    opt = getattr(ts.optim, optimizer)([W], lr=RATE, **settings)

    def step(ids: np.ndarray) -> None:
        with ts.Tape() as tape:
            rows = W[ids]
            loss = (rows * rows).sum()
        opt.step(tape.backward(loss))

    return step


def pytorch(table: np.ndarray, optimizer: str) -> Step:
    """The same step by `Embedding(sparse=True)`; Adam is SparseAdam."""
    import torch

    embedding = torch.nn.Embedding.from_pretrained(
        torch.from_numpy(table.copy()), freeze=False, sparse=True
    )
    name = "SparseAdam" if optimizer == "Adam" else optimizer
    opt = getattr(torch.optim, name)(embedding.parameters(), lr=RATE)

    def step(ids: np.ndarray) -> None:
        opt.zero_grad()
        rows = embedding(torch.from_numpy(ids))
        (rows * rows).sum().backward()
        opt.step()

    return step


def fbgemm(table: np.ndarray, optimizer: str) -> Step | None:
    """The same step by FBGEMM's tables, whose backward is the update; on the CPU without Adam."""
    if optimizer == "Adam":
        return None
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    bags = SplitTableBatchedEmbeddingBagsCodegen(
        [(*table.shape, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        optimizer=getattr(EmbOptimType, f"EXACT_{optimizer.upper()}"),
        learning_rate=RATE,
    )
    bags.split_embedding_weights()[0].data.copy_(torch.from_numpy(table))

    def step(ids: np.ndarray) -> None:
        rows = bags(torch.from_numpy(ids), torch.arange(len(ids) + 1))  # bags of one
        (rows * rows).sum().backward()

    return step


def installed() -> dict[str, Callable[[np.ndarray, str], Step | None]]:
    """The peers that can be imported, by name and version."""
    peers: dict[str, Callable[[np.ndarray, str], Step | None]] = {}
    if find_spec("torch") is None:
        return peers
    import torch

    peers[f"PyTorch {torch.__version__.partition('+')[0]}"] = pytorch
    if find_spec("fbgemm_gpu") is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it speaks of a GPU that is not there
            import fbgemm_gpu

        peers[f"FBGEMM {fbgemm_gpu.__version__}"] = fbgemm
    return peers


def set_num_threads(n: int) -> None:
    """Let everybody use up to n threads."""
    ts.set_num_threads(n)
    if find_spec("torch") is not None:
        import torch

        torch.set_num_threads(n)
