"""One table step beside TensorFlow's IndexedSlices and JAX, which are too slow for the whole grid.

TensorFlow: ``tf.gather`` and a Keras optimizer, compiled by ``tf.function``. JAX: ``jax.grad``,
whose gradient of a lookup is a table, and the update of all of it, compiled and in place. PyTorch
and FBGEMM stand in `benchmarks.grid`.
"""

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle

import numpy as np

from benchmarks import peers
from benchmarks.timing import heading, medians

TABLES = ((10_000, 64), (100_000, 64), (1_000_000, 64))
K = 4096


def tensorflow(table: np.ndarray, optimizer: str) -> peers.Step:
    """Lookup, sum of squares, gradient (IndexedSlices) and a Keras optimizer."""
    import tensorflow as tf

    W = tf.Variable(table)
    opt = getattr(tf.keras.optimizers, optimizer)(learning_rate=peers.RATE)
    opt.build([W])

    @tf.function
    def run(ids: object) -> None:
        with tf.GradientTape() as tape:
            rows = tf.gather(W, ids)
            loss = tf.reduce_sum(rows * rows)
        opt.apply_gradients([(tape.gradient(loss, W), W)])

    return lambda ids: run(tf.constant(ids))


def jax(table: np.ndarray, optimizer: str) -> peers.Step | None:
    """The same with jax.grad; SGD and Adagrad written out, as they are in textbooks."""
    if optimizer == "Adam":
        return None
    import jax
    import jax.numpy as jnp

    def loss(W: jax.Array, ids: jax.Array) -> jax.Array:
        rows = W[ids]
        return (rows * rows).sum()

    def update(W: jax.Array, h: jax.Array, ids: jax.Array) -> tuple[jax.Array, jax.Array]:
        g = jax.grad(loss)(W, ids)
        if optimizer == "SGD":
            return W - peers.RATE * g, h
        h = h + g * g
        return W - peers.RATE * g / (jnp.sqrt(h) + 1e-10), h

    run = jax.jit(update, donate_argnums=(0, 1))
    kept = [jnp.asarray(table), jnp.zeros_like(table) if optimizer != "SGD" else jnp.zeros(1)]

    def step(ids: np.ndarray) -> None:
        kept[:] = run(*kept, ids)
        kept[0].block_until_ready()

    return step


def main() -> None:
    """Print milliseconds of a step, and how many times longer the others take."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # it speaks of GPUs that are not there
    others: dict[str, Callable[[np.ndarray, str], peers.Step | None]] = {}
    for name, make in (("tensorflow", tensorflow), ("jax", jax)):
        if find_spec(name):
            others[f"{name} {import_module(name).__version__}"] = make
    heading(f"Table step in other frameworks: k = {K:,}, float32, all cores")
    print(f"{'':10}{'V':>12}{'d':>5}{'ours ms':>10}" + "".join(f"{name:>28}" for name in others))
    rng = np.random.default_rng(0)
    for optimizer in peers.OPTIMIZERS:
        for V, d in TABLES:
            table = rng.standard_normal((V, d), np.float32)
            made = {"ours": peers.tinygrad_sparse(table, optimizer)}
            made |= {name: step for name, m in others.items() if (step := m(table, optimizer))}
            draws = [rng.integers(0, V, K) for _ in range(8)]
            batches = {name: cycle(draws) for name in made}
            runs = {
                name: lambda step=step, ids=batches[name]: step(next(ids))
                for name, step in made.items()
            }
            times = medians(runs, 15)
            cells = [f"{times['ours'] * 1e3:10.2f}"]
            for name in others:
                cell = "" if name not in times else (
                    f"{times[name] * 1e3:14.2f} ms {times[name] / times['ours']:7.1f}x"
                )  # fmt: skip
                cells.append(f"{cell:>28}")
            print(f"{optimizer:10}{V:12,}{d:5}" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
