"""Our optimizers beside PyTorch's, where the same rule exists, over 200 steps.

    python -m benchmarks.parity.optimizers

Ours get row-sparse gradients under the exact meaning, PyTorch's the dense ones: that is the claim.
Where our rule has no closed form for rows at rest, both get dense ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

import tinygrad_sparse as ts
from tinygrad_sparse import optim

V, D, K, STEPS = 50, 4, 4, 200


class Pair(NamedTuple):
    """One rule here and there, with the same settings under each one's names."""

    name: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    dense: bool = False


ADAM = {"lr": 0.01, "eps": 1e-8}
PAIRS = [
    Pair("SGD", {"lr": 0.1}, {"lr": 0.1}),
    Pair("SGD", {"lr": 0.01, "weight_decay": 0.1}, {"lr": 0.01, "weight_decay": 0.1}),
    *(
        Pair("SGD", settings, settings)
        for settings in (
            {"lr": 0.01, "momentum": 0.9},
            {"lr": 0.01, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1},
            {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            {"lr": 0.01, "momentum": 0.9, "maximize": True},
        )
    ),
    Pair(
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.01, "initial": 0.1},
        {"lr": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.1},
    ),
    Pair("Adagrad", {"lr": 0.1, "weight_decay": 0.1}, {"lr": 0.1, "weight_decay": 0.1}, dense=True),
    Pair("RMSprop", {"lr": 0.01}, {"lr": 0.01}),
    Pair(
        "RMSprop",
        {"lr": 0.01, "momentum": 0.9, "centered": True, "eps": 1e-3},
        {"lr": 0.01, "momentum": 0.9, "centered": True, "eps": 1e-3},
    ),
    Pair("Adadelta", {"lr": 1.0}, {"lr": 1.0}),
    Pair("Adam", ADAM, ADAM),
    Pair("Adam", {**ADAM, "eps": 0.1}, {**ADAM, "eps": 0.1}),
    Pair("Adam", {**ADAM, "betas": (0.5, 0.9)}, {**ADAM, "betas": (0.5, 0.9)}),
    Pair("Adam", {**ADAM, "weight_decay": 0.1}, {**ADAM, "weight_decay": 0.1}, dense=True),
    Pair("Adam", {**ADAM, "amsgrad": True}, {**ADAM, "amsgrad": True}),
    Pair("AdamW", {**ADAM, "weight_decay": 0.1}, {**ADAM, "weight_decay": 0.1}),
    Pair("AdamW", {**ADAM, "amsgrad": True}, {**ADAM, "amsgrad": True}),
    Pair("NAdam", ADAM, ADAM),
    Pair(
        "NAdam",
        {**ADAM, "weight_decay": 0.1},
        {**ADAM, "weight_decay": 0.1, "decoupled_weight_decay": True},
    ),
    # SparseAdam adds eps to an uncorrected root: where eps counts, it is not Adam.
    Pair("SparseAdam", {"lr": 0.01, "eps": 1e-18, "sparse": "lazy"}, {"lr": 0.01, "eps": 1e-18}),
]


def difference(pair: Pair, dtype: Any) -> float:
    """The largest difference after all steps, relative to the parameter's scale."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(V, D)).astype(dtype)
    W, P = ts.parameter(start), torch.tensor(start, requires_grad=True)
    lazy = pair.name == "SparseAdam"
    ours = getattr(optim, "Adam" if lazy else pair.name)([W], **pair.ours)
    theirs = getattr(torch.optim, pair.name)([P], **pair.theirs)
    base = pair.ours["lr"]
    for t in range(STEPS):
        ours.lr = theirs.param_groups[0]["lr"] = base * (1 + 0.5 * np.sin(t / 9))
        ids = rng.integers(0, V, K)
        scale = float(10.0 ** rng.integers(-4, 1))
        values = (rng.normal(size=(K, D)) * scale).astype(dtype)
        g = ts.IndexedSlices(ids, values, (V, D))
        grads = ts.GradStore()
        grads[W] = g.to_dense() if pair.dense else g
        ours.step(grads)
        if lazy:
            P.grad = torch.sparse_coo_tensor(
                ids[None], torch.tensor(values), (V, D), check_invariants=True
            )
        else:
            P.grad = torch.tensor(g.to_dense())
        theirs.step()
        if t % 20 == 7:
            W[ids]  # a read in between
    return float(abs(W.data - P.detach().numpy()).max() / abs(start).max())


def main() -> None:
    """Print the differences; fail where they are more than rounding."""
    print(f"{'rule':12}{'settings':64}{'float64':>10}{'float32':>10}")
    worst = {np.float64: 0.0, np.float32: 0.0}
    for pair in PAIRS:
        found = {dtype: difference(pair, dtype) for dtype in worst}
        worst = {dtype: max(worst[dtype], found[dtype]) for dtype in worst}
        settings = ", ".join(f"{k}={v}" for k, v in pair.theirs.items())
        print(f"{pair.name:12}{settings:64}{found[np.float64]:10.1e}{found[np.float32]:10.1e}")
    # PyTorch keeps NAdam's product of momenta in float32: hence its 1e-10
    assert worst[np.float64] < 1e-10 and worst[np.float32] < 1e-5, worst


if __name__ == "__main__":
    main()
