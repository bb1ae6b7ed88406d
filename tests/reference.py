"""A second engine, to hold ours against: naive, dense, forward. They share no code and no idea.

Every value carries its first and second derivatives by all N numbers of all leaves, as full arrays:
value (*shape), slope (*shape, N), curve (*shape, N, N). An op is one of three things: a linear map,
a product, or a function of each element; their rules are those of calculus, and nothing is saved,
reversed, or sparse. The cost is absurd, which is the point.
"""

import math

import numpy as np


class Jet:
    """A value with its derivatives; ``curve`` is None where only the first are known."""

    def __init__(self, value, slope, curve):
        self.value, self.slope, self.curve = value, slope, curve

    @property
    def shape(self):
        return self.value.shape

    @property
    def n(self):
        return self.slope.shape[-1]


def constant(value, n):
    """A value that depends on nothing."""
    value = np.asarray(value, np.float64)
    return Jet(value, np.zeros((*value.shape, n)), np.zeros((*value.shape, n, n)))


def leaf(value, start, n):
    """The numbers `start`, `start` + 1, ... of n."""
    jet = constant(value, n)
    for k, at in enumerate(np.ndindex(jet.shape)):
        jet.slope[(*at, start + k)] = 1.0
    return jet


def linear(f, *jets):
    """f of arrays, linear in all of them together: it maps derivatives as it maps values."""

    def each(parts, axes):
        count = math.prod(axes)
        flat = [p.reshape(*j.shape, count) for p, j in zip(parts, jets, strict=True)]
        columns = np.stack([f(*(p[..., k] for p in flat)) for k in range(count)], axis=-1)
        return columns.reshape(*columns.shape[:-1], *axes)

    n = jets[0].n
    unknown = any(j.curve is None for j in jets)
    return Jet(
        f(*(j.value for j in jets)),
        each([j.slope for j in jets], (n,)),
        None if unknown else each([j.curve for j in jets], (n, n)),
    )


def elementwise(x, f, slope, curve):
    """f(x) for each element, given f' and f''."""
    s, c = slope(x.value)[..., None], curve(x.value)[..., None, None]
    bent = c * x.slope[..., :, None] * x.slope[..., None, :]
    return Jet(f(x.value), s * x.slope, None if x.curve is None else bent + s[..., None] * x.curve)


def product(x, y):
    """x · y elementwise, broadcast."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    x, y = (
        j if j.shape == shape else linear(lambda v: np.broadcast_to(v, shape), j) for j in (x, y)
    )
    u, v = x.value[..., None], y.value[..., None]
    curve = None
    if x.curve is not None and y.curve is not None:
        cross = x.slope[..., :, None] * y.slope[..., None, :]
        curve = u[..., None] * y.curve + v[..., None] * x.curve + cross + cross.swapaxes(-1, -2)
    return Jet(x.value * y.value, u * y.slope + v * x.slope, curve)


def add(x, y):
    return linear(np.add, x, y)


def total(x, axis=None, keepdims=False):
    return linear(lambda v: v.sum(axis=axis, keepdims=keepdims), x)


def reciprocal(x):
    return elementwise(x, lambda v: 1 / v, lambda v: -(v**-2), lambda v: 2 * v**-3)


def tanh(x):
    def slope(v):
        return 1 - np.tanh(v) ** 2

    return elementwise(x, np.tanh, slope, lambda v: -2 * np.tanh(v) * slope(v))


def exp(x):
    return elementwise(x, np.exp, np.exp, np.exp)


def plus_one(x):
    return Jet(x.value + 1, x.slope, x.curve)


def sigmoid(x):
    """1 / (1 + e**-x)."""
    return reciprocal(plus_one(exp(linear(np.negative, x))))


def matmul(x, y):
    """Of two matrices: Σ over the inner axis of a product."""
    left = linear(lambda v: v[:, :, None], x)
    right = linear(lambda v: v[None, :, :], y)
    return total(product(left, right), axis=1)


def gradient(x, weights):
    """The gradient of Σ weights · x by all leaves: a value with one more derivative."""
    flat, n = np.asarray(weights, np.float64).reshape(-1), x.n
    curve = np.full((x.value.size, n, n), np.nan) if x.curve is None else x.curve
    second = flat @ curve.reshape(-1, n * n)
    return Jet(flat @ x.slope.reshape(-1, n), second.reshape(n, n), None)
