"""Forward and gradient of each op that PyTorch also has, over random and special inputs.

    python -m benchmarks.parity.ops

A cell is compared in float64, float32 and, where PyTorch computes in it, float16. Where we chose
another value than PyTorch at a point without a derivative, `CHOSEN` says so, and the cell must
differ; nothing else may.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

import tinygrad_sparse as ts
from tinygrad_sparse import nn, ops

RNG = np.random.default_rng(0)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 20.0, -20.0, 1e-4, -1e-4, 30.0])
TOLERANCE = {np.float64: 1e-10, np.float32: 2e-4, np.float16: 2e-2}


class Pair(NamedTuple):
    """One op here and there, and arrays to try it on; the rest of the arguments are inside."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: list[np.ndarray]


def normal(*shape: int) -> np.ndarray:
    """Random numbers."""
    return RNG.normal(size=shape)


def positive(*shape: int) -> np.ndarray:
    """Random numbers in [0.2, 3)."""
    return RNG.uniform(0.2, 3.0, shape)


def inside(*shape: int) -> np.ndarray:
    """Random numbers in (-0.9, 0.9)."""
    return RNG.uniform(-0.9, 0.9, shape)


def unary() -> list[Pair]:
    """Functions of one array, on random numbers and on special ones inside their domain."""
    everywhere = [
        "abs", "absolute", "arctan", "arcsinh", "ceil", "cos", "erf", "exp2", "expm1", "floor",
        "negative", "positive", "relu", "sigmoid", "sign", "sin", "sinh", "cosh", "square", "tan",
        "tanh", "trunc", "exp",
    ]  # fmt: skip
    pairs = []
    for name in everywhere:
        data = SPECIAL if name not in {"exp", "expm1", "exp2", "sinh", "cosh"} else SPECIAL / 4
        for array in (normal(7), data):
            pairs.append(Pair(name, getattr(ops, name), getattr(torch, name), [array]))
    for name in ("log", "log2", "log10", "log1p", "sqrt", "reciprocal"):
        pairs.append(Pair(name, getattr(ops, name), getattr(torch, name), [positive(9)]))
    for name in ("arcsin", "arccos", "arctanh"):
        pairs.append(Pair(name, getattr(ops, name), getattr(torch, name), [inside(9)]))
    pairs.append(Pair("arccosh", ops.arccosh, torch.arccosh, [positive(9) + 1]))
    pairs.append(Pair("sqrt at 0", ops.sqrt, torch.sqrt, [np.array([0.0, 1.0])]))
    for name, theirs in (
        ("softplus", F.softplus), ("silu", F.silu), ("elu", F.elu), ("leaky_relu", F.leaky_relu),
        ("gelu", F.gelu), ("log_sigmoid", F.logsigmoid),
    ):  # fmt: skip
        if hasattr(ops, name):
            for array in (normal(9), SPECIAL / 2):
                pairs.append(Pair(name, getattr(ops, name), theirs, [array]))
    return pairs


def binary() -> list[Pair]:
    """Functions of two arrays, broadcast, and with ties."""
    pairs = []
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "hypot", "arctan2",
                 "logaddexp", "copysign", "fmod"):  # fmt: skip
        for shapes in (((4, 3), (4, 3)), ((4, 3), (3,)), ((4, 1), (1, 3))):
            arrays = [normal(*shape) for shape in shapes]
            pairs.append(Pair(name, getattr(ops, name), getattr(torch, name), arrays))
    tie = np.array([1.0, 2.0, 0.0])
    for name in ("maximum", "minimum"):
        pairs.append(
            Pair(f"{name}, ties", getattr(ops, name), getattr(torch, name), [tie, tie.copy()])
        )
    zeros = np.zeros(2)
    pairs.append(Pair("arctan2 at 0", ops.arctan2, torch.arctan2, [zeros, zeros.copy()]))
    pairs.append(Pair("power", ops.power, torch.pow, [positive(4, 3), normal(3)]))
    pairs.append(Pair("power at 0", ops.power, torch.pow, [np.zeros(3), np.array([0.0, 1.0, 2.0])]))
    pairs.append(
        Pair("clip", lambda x: ops.clip(x, -1, 1), lambda x: torch.clip(x, -1, 1), [SPECIAL])
    )
    mask = np.array([True, False, True])
    pairs.append(
        Pair("where", lambda x, y: ops.where(mask, x, y),
             lambda x, y: torch.where(torch.tensor(mask), x, y), [normal(2, 3), normal(3)])
    )  # fmt: skip
    return pairs


def reductions() -> list[Pair]:
    """Reductions, scans and the softmax family over each axis."""
    pairs = []
    for axis in (0, -1, (0, 2)):
        for name, theirs in (
            ("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax), ("min", torch.amin),
            ("logsumexp", torch.logsumexp), ("var", lambda x, a: torch.var(x, a, correction=0)),
            ("std", lambda x, a: torch.std(x, a, correction=0)),
        ):  # fmt: skip
            pairs.append(
                Pair(f"{name} {axis}", lambda x, n=name, a=axis: getattr(ops, n)(x, a),
                     lambda x, t=theirs, a=axis: t(x, a), [normal(3, 4, 2)])
            )  # fmt: skip
    for name, theirs in (
        ("prod", torch.prod), ("cumsum", torch.cumsum), ("cumprod", torch.cumprod),
        ("softmax", torch.softmax), ("log_softmax", torch.log_softmax),
    ):  # fmt: skip
        for array in (normal(3, 4), np.array([[2.0, 0.0, 3.0, 4.0], [0.0, 0.0, 1.0, 2.0]])):
            pairs.append(
                Pair(name, lambda x, n=name: getattr(ops, n)(x, axis=-1),
                     lambda x, t=theirs: t(x, -1), [array])
            )  # fmt: skip
    for ord in (1, 2, 3, np.inf):
        pairs.append(
            Pair(f"norm {ord}", lambda x, o=ord: ops.norm(x, o, -1),
                 lambda x, o=ord: torch.linalg.vector_norm(x, o, -1), [normal(3, 4)])
        )  # fmt: skip
    pairs.append(Pair("norm of 0", lambda x: ops.norm(x), lambda x: torch.linalg.vector_norm(x),
                      [np.zeros(3)]))  # fmt: skip
    pairs.append(Pair("std of equals", lambda x: ops.std(x),
                      lambda x: torch.std(x, correction=0), [np.ones(3)]))  # fmt: skip
    pairs.append(Pair("max, ties", lambda x: ops.max(x, 0), lambda x: torch.amax(x, 0),
                      [np.array([1.0, 2.0, 2.0])]))  # fmt: skip
    return pairs


def linear() -> list[Pair]:
    """Products, decompositions and convolutions."""
    square = normal(2, 3, 3) + 3 * np.eye(3)
    spd = square @ np.swapaxes(square, -1, -2)
    pairs = [
        Pair(f"matmul {x} {y}", ops.matmul, torch.matmul, [normal(*x), normal(*y)])
        for x, y in [((4, 3), (3, 2)), ((3,), (3, 2)), ((4, 3), (3,)), ((3,), (3,)),
                     ((2, 4, 3), (2, 3, 2)), ((2, 4, 3), (3, 2)), ((3,), (2, 3, 2))]
    ]  # fmt: skip
    pairs += [
        Pair(f"einsum {s}", lambda *xs, s=s: ops.einsum(s, *xs),
             lambda *xs, s=s: torch.einsum(s, *xs),
             [normal(*shape) for shape in shapes])
        for s, shapes in [("ij,jk->ik", ((2, 3), (3, 4))), ("bij,bjk->bik", ((2, 2, 3), (2, 3, 2))),
                          ("ii->i", ((3, 3),)), ("ij,ik,il->jkl", ((3, 2), (3, 2), (3, 4)))]
    ]  # fmt: skip
    pairs += [
        Pair("inv", ops.inv, torch.linalg.inv, [square]),
        Pair("det", ops.det, torch.linalg.det, [square]),
        Pair("cholesky", ops.cholesky, torch.linalg.cholesky, [spd]),
        Pair("solve", ops.solve, torch.linalg.solve, [square, normal(2, 3, 2)]),
        Pair("outer", ops.outer, torch.outer, [normal(3), normal(4)]),
        Pair("trace", ops.trace, torch.trace, [normal(3, 3)]),
        Pair("triu", ops.triu, torch.triu, [normal(3, 3)]),
        Pair("tril", ops.tril, torch.tril, [normal(3, 3)]),
        Pair("conv1d", lambda x, w: ops.conv1d(x, w, stride=2, padding=1),
             lambda x, w: F.conv1d(x, w, stride=2, padding=1), [normal(2, 3, 9), normal(4, 3, 3)]),
        Pair("conv2d", lambda x, w: ops.conv2d(x, w, padding=1, groups=2),
             lambda x, w: F.conv2d(x, w, padding=1, groups=2),
             [normal(2, 4, 5, 5), normal(4, 2, 3, 3)]),
    ]  # fmt: skip
    return pairs


def shapes() -> list[Pair]:
    """Ops that move elements, and lookups."""
    ids = np.array([2, 0, 2])
    tids = torch.tensor(ids)
    return [
        Pair("reshape", lambda x: ops.reshape(x, (3, 4)), lambda x: x.reshape(3, 4),
             [normal(4, 3)]),
        Pair("transpose", lambda x: ops.transpose(x, (1, 0, 2)), lambda x: x.permute(1, 0, 2),
             [normal(2, 3, 2)]),
        Pair("flip", lambda x: ops.flip(x, 0), lambda x: torch.flip(x, (0,)), [normal(4, 3)]),
        Pair("roll", lambda x: ops.roll(x, 1, 0), lambda x: torch.roll(x, 1, 0), [normal(4, 3)]),
        Pair("tile", lambda x: ops.tile(x, (2, 1)), lambda x: torch.tile(x, (2, 1)),
             [normal(2, 3)]),
        Pair("repeat", lambda x: ops.repeat(x, 2, 0), lambda x: torch.repeat_interleave(x, 2, 0),
             [normal(2, 3)]),
        Pair("concatenate", lambda x, y: ops.concatenate([x, y]), lambda x, y: torch.cat([x, y]),
             [normal(2, 3), normal(1, 3)]),
        Pair("stack", lambda x, y: ops.stack([x, y], 1), lambda x, y: torch.stack([x, y], 1),
             [normal(2, 3), normal(2, 3)]),
        Pair("take", lambda x: x[ids], lambda x: x[tids], [normal(4, 3)]),
        Pair("getitem", lambda x: x[1:, ::2], lambda x: x[1:, ::2], [normal(4, 3)]),
        Pair("take_along_axis", lambda x: ops.take_along_axis(x, ids[:, None], 1),
             lambda x: torch.take_along_dim(x, tids[:, None], 1), [normal(3, 3)]),
        Pair("sort", lambda x: ops.sort(x), lambda x: torch.sort(x)[0], [normal(3, 4)]),
        Pair("topk", lambda x: ops.topk(x, 2)[0], lambda x: torch.topk(x, 2)[0], [normal(3, 4)]),
    ]  # fmt: skip


def losses() -> list[Pair]:
    """Losses as functions of their first argument."""
    ids, labels = np.array([2, 0, 1]), np.array([[0.0, 1.0, 0.3]] * 3)
    tids = torch.tensor(ids)

    def like(x: Any) -> Any:
        return torch.tensor(labels, dtype=x.dtype)

    return [
        Pair("cross_entropy", lambda x: nn.cross_entropy(x, ids),
             lambda x: F.cross_entropy(x, tids), [normal(3, 4)]),
        Pair("cross_entropy, smoothed", lambda x: nn.cross_entropy(x, ids, label_smoothing=0.1),
             lambda x: F.cross_entropy(x, tids, label_smoothing=0.1), [normal(3, 4)]),
        Pair("bce_with_logits", lambda x: nn.bce_with_logits(x, labels),
             lambda x: F.binary_cross_entropy_with_logits(x, like(x)), [normal(3, 3)]),
        Pair("mse", lambda x: nn.mse(x, labels), lambda x: F.mse_loss(x, like(x)), [normal(3, 3)]),
        Pair("l1", lambda x: nn.l1(x, labels), lambda x: F.l1_loss(x, like(x)), [normal(3, 3)]),
        Pair("huber", lambda x: nn.huber(x, labels), lambda x: F.huber_loss(x, like(x)),
             [normal(3, 3)]),
        Pair("layer_norm", lambda x: nn.layer_norm(x), lambda x: F.layer_norm(x, x.shape[-1:]),
             [normal(3, 5)]),
    ]  # fmt: skip


CHOSEN = {"logsumexp of nothing": "0, not NaN"}


def chosen() -> list[Pair]:
    """Points at which our slope is not PyTorch's."""
    return [
        Pair("logsumexp of nothing", lambda x: ops.logsumexp(x), lambda x: torch.logsumexp(x, 0),
             [np.full(2, -np.inf)]),
    ]  # fmt: skip


def compare(pair: Pair, dtype: Any) -> str | None:
    """What differs, or None; "skipped" where PyTorch does not compute in this dtype."""
    arrays = [a.astype(dtype) for a in pair.inputs]
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    try:
        theirs = pair.theirs(*leaves)
        seed = np.linspace(0.5, 1.5, theirs.numel()).reshape(theirs.shape).astype(dtype)
        theirs.backward(torch.tensor(seed))
    except RuntimeError as error:  # PyTorch has it for other dtypes alone
        return f"skipped: {str(error).splitlines()[0][:60]}"
    parameters = [ts.parameter(a) for a in arrays]
    with ts.Tape("allow"):
        ours = pair.ours(*parameters)
        if not ours.requires_grad:
            ours = ours * 1.0
        grads = ours.backward(seed=seed) if ours.requires_grad else ts.GradStore()
    pairs = [("value", ours.numpy(), theirs.detach().numpy())]
    for k, (p, leaf) in enumerate(zip(parameters, leaves, strict=True)):
        g = grads.get(p)
        g = np.zeros(p.shape) if g is None else g
        g = g.to_dense() if isinstance(g, ts.IndexedSlices) else g
        wanted = np.zeros(p.shape) if leaf.grad is None else leaf.grad.numpy()
        pairs.append((f"gradient {k}", g, wanted))
    for what, got, wanted in pairs:
        tolerance = TOLERANCE[dtype]
        scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
        if not np.allclose(
            got.astype(float), wanted.astype(float), tolerance, tolerance * scale, equal_nan=True
        ):
            return f"{what}: {got.ravel()[:6]} against {wanted.ravel()[:6]}"
    return None


def main() -> int:
    """Print what differs and the counts; the exit code is 1 if something does."""
    warnings.simplefilter("ignore")
    pairs = [*unary(), *binary(), *reductions(), *linear(), *shapes(), *losses(), *chosen()]
    agreed = skipped = differed = otherwise = 0
    for pair in pairs:
        for dtype in TOLERANCE:
            result = compare(pair, dtype)
            if pair.name in CHOSEN and result is not None:
                otherwise += 1
                print(
                    f"{pair.name:24}{np.dtype(dtype).name:9}chosen: {CHOSEN[pair.name]}; {result}"
                )
            elif result is None and pair.name not in CHOSEN:
                agreed += 1
            elif result is not None and result.startswith("skipped"):
                skipped += 1
            else:
                differed += 1
                print(f"{pair.name:24}{np.dtype(dtype).name:9}{result}")
    names = {pair.name.partition(",")[0].partition(" ")[0] for pair in pairs}
    print(
        f"PyTorch {torch.__version__}: {len(names)} ops, {len(pairs)} inputs: {agreed} cells "
        f"agree, {differed} differ, {otherwise} chosen otherwise, {skipped} not computed by PyTorch"
    )
    return int(differed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
