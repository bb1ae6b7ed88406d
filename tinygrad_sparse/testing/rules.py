"""The laws that every optimizer's rule obeys; `check_rule` runs them all on one. Floor 6."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from tinygrad_sparse.errors import ArgumentError, explain
from tinygrad_sparse.gradstore import GradStore
from tinygrad_sparse.optim import Optimizer, Rule
from tinygrad_sparse.optim.history import BLOCK
from tinygrad_sparse.slices import IndexedSlices
from tinygrad_sparse.tensor import Tensor, parameter

V, D, STEPS = 30, 3, 200
MANY, FEW = 4096, 100  # rows for which a backend may compile, and too few for it

Make = Callable[..., Optimizer]
RuleLaw = Callable[[Make], None]


def row_step(make: Make) -> None:
    """A step of touched rows is the dense step on them, and leaves the others alone when lazy."""
    rng = np.random.default_rng(0)
    rows, dense, start = _pair(make, rng, "lazy")
    for _ in range(4):
        g = IndexedSlices([7, 2, 7], rng.normal(size=(3, D)), (V, D))
        _step(rows, g)
        _step(dense, g.to_dense())
    _same(rows[0].data[[2, 7]], dense[0].data[[2, 7]], "rows [2, 7]")
    others = np.delete(np.arange(V), [2, 7])
    _same(rows[0].data[others], start[others], "rows that were not touched", exactly=True)


def rows_apart(make: Make) -> None:
    """What a row becomes does not depend on other rows: a formula is given a table in parts."""
    rng = np.random.default_rng(4)
    start = rng.normal(size=(V, D))
    whole, part = parameter(start), parameter(start[: V // 2])
    runs = (whole, make([whole])), (part, make([part]))
    for _ in range(4):
        g = rng.normal(size=(V, D))
        _step(runs[0], g)
        _step(runs[1], g[: V // 2])
    _same(part.data, whole.data[: V // 2], "half of the rows, and these rows among all")


def exact_is_dense(make: Make) -> None:
    """Rows under the exact meaning are what a dense run gives, after many steps and any gaps.

    Random rows with repeats, gradients of many sizes, a changing learning rate, reads in between;
    the second half touches a row a step, so that gaps get long. Nothing to check of a rule that
    takes no rows under this meaning: one without `rest` that is not still.
    """
    rng = np.random.default_rng(1)
    rows, dense, _ = _pair(make, rng, "exact")
    if not (rows[1].rule.still or rows[1].rule.rest):
        return
    lr = rows[1].groups[0].get("lr")
    for t in range(STEPS):
        if isinstance(lr, Real):
            rows[1].lr = dense[1].lr = lr * (1.0 + 0.5 * np.sin(t / 9))
        g = _slices(rng, 6 if t < STEPS // 2 else 1) * float(10.0 ** rng.integers(-6, 1))
        _step(rows, g)
        _step(dense, g.to_dense())
        if t % 7 == 3:
            ids = rng.integers(0, V, 5)
            _same(rows[0][ids].data, dense[0].data[ids], f"rows {ids.tolist()} at step {t + 1}")
    _same(rows[0].data, dense[0].data, f"the table after {STEPS} steps")


def still(make: Make) -> None:
    """Where a rule says `still=True`, a zero gradient moves neither p nor any of its state."""
    rng = np.random.default_rng(2)
    (W, opt), _, _ = _pair(make, rng, "exact")
    if not opt.rule.still:
        return
    for _ in range(3):
        _step((W, opt), rng.normal(size=(V, D)))
    before = [W.numpy(), *opt.state_dict()["slots"][0]]
    _step((W, opt), np.zeros((V, D)))
    after = [W.data, *opt.state_dict()["slots"][0]]
    for name, was, now in zip(("p", *opt.rule.slots), before, after, strict=True):
        _same(now, was, f"{name} after a zero gradient", exactly=True)


def round_trip(make: Make) -> None:
    """Training goes on bit for bit from a state_dict."""
    for meaning in ("exact", "lazy"):
        rng = np.random.default_rng(3)
        (W, opt), _, _ = _pair(make, rng, meaning)
        dense = meaning == "exact" and not (opt.rule.still or opt.rule.rest)
        # Rows that rest for longer than History sums their steps up in one go.
        gs: list[Any] = [_slices(rng, 4) for _ in range(20)]
        gs += [_slices(rng, 1) for _ in range(3 * BLOCK)]
        gs = [g.to_dense() for g in gs] if dense else gs
        for g in gs[:20]:
            _step((W, opt), g)
        saved = opt.state_dict()
        E = parameter(W.numpy())
        again = make([E], sparse=meaning)
        again.load_state_dict(saved)
        for g in gs[20:]:
            _step((W, opt), g)
            _step((E, again), g)
        _same(E.data, W.data, f"training from a state_dict, {meaning}", exactly=True)


def many_rows(make: Make) -> None:
    """Rows of a large float32 table, which a backend may compile for, move as those of a small one.

    Under the exact meaning, where the rule has it: half of the rows rest at a step, and catch up.
    """
    rng = np.random.default_rng(5)
    start = rng.normal(size=(MANY, D)).astype(np.float32)
    many, few = parameter(start), parameter(start[:FEW])
    rule = make([parameter(start[:1])]).rule
    meaning = "exact" if rule.still or rule.rest else "lazy"
    runs = (many, make([many], sparse=meaning)), (few, make([few], sparse=meaning))
    for _ in range(8):
        ids = rng.permutation(MANY)[: MANY // 2]
        values = rng.normal(size=(len(ids), D)).astype(np.float32)
        _step(runs[0], IndexedSlices(ids, values, (MANY, D)))
        mine = ids < FEW
        _step(runs[1], IndexedSlices(ids[mine], values[mine], (FEW, D)))
    what = f"the first {FEW} rows in float32, among {MANY} rows and alone"
    np.testing.assert_allclose(many.data[:FEW], few.data, rtol=1e-4, atol=1e-5, err_msg=what)


RULE_LAWS: dict[str, RuleLaw] = {
    "row_step": row_step,
    "rows_apart": rows_apart,
    "exact_is_dense": exact_is_dense,
    "still": still,
    "round_trip": round_trip,
    "many_rows": many_rows,
}


def check_rule(rule: Rule | Make, **settings: Any) -> None:
    """Run every law on an optimizer's rule under these settings; raises where one is broken.

    `rule` is what ``optim.rule`` made, or an optimizer: a class, or a function
    ``make(params, **settings)``. A row step is the dense step on its rows; no row depends on
    another; rows under the exact meaning are a dense run, where the rule has a `rest` or is
    `still`; what is said to be still is;
    a state_dict is all that training needs to go on; a large float32 table moves as a small one. An
    AssertionError names the law, and a note of any other error does.

    >>> from tinygrad_sparse import optim
    >>> @optim.rule(slots=("m",), rest=optim.linear)
    ... def heavy_ball(p, g, m, *, lr, beta):
    ...     m = beta * m + g
    ...     return p - lr * m, m
    >>> check_rule(heavy_ball, lr=0.1, beta=0.9)
    >>> check_rule(optim.Adam, lr=0.01)
    """
    given = rule
    if isinstance(rule, Optimizer) or not (isinstance(rule, Rule) or callable(rule)):
        got = (
            f"{type(rule).__name__}, made already"
            if callable(getattr(rule, "step", 0))
            else f"{rule!r}"
        )
        hint = "check_rule(optim.Adam, lr=0.1): each law makes optimizers of its own"
        raise ArgumentError(explain("check_rule", "a Rule, or what makes an optimizer", got, hint))

    def make(params: list[Tensor], **common: Any) -> Optimizer:
        if isinstance(given, Rule):
            return Optimizer(given, params, **settings, **common)
        return given(params, **settings, **common)

    name = given.formula.__name__ if isinstance(given, Rule) else getattr(given, "__name__", "rule")
    for law, check in RULE_LAWS.items():
        try:
            check(make)
        except AssertionError as error:
            raise AssertionError(f"{name}, law {law}: {error}") from error
        except Exception as error:
            error.add_note(f"{name}, law {law}")
            raise


Run = tuple[Tensor, Optimizer]


def _pair(make: Make, rng: np.random.Generator, meaning: str) -> tuple[Run, Run, np.ndarray]:
    """A table to step by rows and one to step densely, from the same start."""
    start = rng.normal(size=(V, D))
    W, E = parameter(start), parameter(start)
    return (W, make([W], sparse=meaning)), (E, make([E])), start


def _slices(rng: np.random.Generator, n: int) -> IndexedSlices:
    return IndexedSlices(rng.integers(0, V, n), rng.normal(size=(n, D)), (V, D))


def _step(run: Run, g: Any) -> None:
    p, opt = run
    grads = GradStore()
    grads[p] = g
    opt.step(grads)


def _same(got: Any, wanted: Any, what: str, exactly: bool = False) -> None:
    rtol, atol = (0.0, 0.0) if exactly else (1e-10, 1e-12)
    np.testing.assert_allclose(got, wanted, rtol, atol, err_msg=what)
