"""Optimizers written plainly and independently, on dense gradients: what ours are held against.

Each is a generator of steps on one float64 array, spelled out from the papers (and PyTorch where
the two differ in detail), with nothing shared with `tinygrad_sparse.optim`.
"""

import numpy as np


class Reference:
    """Holds the parameter `p` and whatever a rule keeps; `step(g, **settings)` moves p."""

    def __init__(self, p):
        self.p = np.array(p)
        self.t = 0
        self.kept = {}

    def get(self, name, value=0.0):
        if name not in self.kept:
            self.kept[name] = np.full(self.p.shape, value, self.p.dtype)
        return self.kept[name]

    def step(self, g, maximize=False, **settings):
        self.t += 1
        self.move(-g if maximize else g, **settings)


class SGD(Reference):
    def move(self, g, lr, momentum=0.0, weight_decay=0.0, dampening=0.0, nesterov=False):
        g = g + weight_decay * self.p
        if momentum:
            b = self.get("b")
            b = g.copy() if self.t == 1 else momentum * b + (1 - dampening) * g
            self.kept["b"] = b
            g = g + momentum * b if nesterov else b
        self.p = self.p - lr * g


class Adagrad(Reference):
    def move(self, g, lr=0.01, eps=1e-10, lr_decay=0.0, weight_decay=0.0, initial=0.0):
        g = g + weight_decay * self.p
        h = self.kept["h"] = self.get("h", initial) + g**2
        rate = lr / (1 + (self.t - 1) * lr_decay)
        self.p = self.p - rate * g / (h**0.5 + eps)


class RowwiseAdagrad(Reference):
    def move(self, g, lr=0.01, eps=1e-10, initial=0.0):
        h = self.get("h", initial)
        for i in range(len(g)):
            h[i] += (g[i] ** 2).mean()
            self.p[i] -= lr * g[i] / (h[i] ** 0.5 + eps)


class RMSprop(Reference):
    def move(self, g, lr=0.01, alpha=0.99, eps=1e-8, momentum=0.0, centered=False):
        v = self.kept["v"] = alpha * self.get("v") + (1 - alpha) * g**2
        if centered:
            a = self.kept["a"] = alpha * self.get("a") + (1 - alpha) * g
            v = np.where(v - a**2 > 0, v - a**2, 0)
        b = g / (v**0.5 + eps)
        if momentum:
            b = self.kept["b"] = momentum * self.get("b") + b
        self.p = self.p - lr * b


class Adadelta(Reference):
    def move(self, g, lr=1.0, rho=0.9, eps=1e-6):
        v = self.kept["v"] = rho * self.get("v") + (1 - rho) * g**2
        delta = (self.get("u") + eps) ** 0.5 / (v + eps) ** 0.5 * g
        self.kept["u"] = rho * self.get("u") + (1 - rho) * delta**2
        self.p = self.p - lr * delta


class FTRL(Reference):
    def move(self, g, lr=0.1, beta=1.0, l1=0.0, l2=0.0):
        z, n = self.get("z"), self.get("n")
        for i in np.ndindex(g.shape):
            if g[i] == 0:
                continue
            sigma = ((n[i] + g[i] ** 2) ** 0.5 - n[i] ** 0.5) / lr
            z[i] += g[i] - sigma * self.p[i]
            n[i] += g[i] ** 2
            if abs(z[i]) <= l1:
                self.p[i] = 0.0
            else:
                self.p[i] = -(z[i] - np.sign(z[i]) * l1) / ((beta + n[i] ** 0.5) / lr + l2)


class Adam(Reference):
    decoupled = False

    def move(
        self, g, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False
    ):  # fmt: skip
        if self.decoupled:
            self.p = self.p - lr * weight_decay * self.p
        else:
            g = g + weight_decay * self.p
        m = self.kept["m"] = betas[0] * self.get("m") + (1 - betas[0]) * g
        v = self.kept["v"] = betas[1] * self.get("v") + (1 - betas[1]) * g**2
        if amsgrad:
            v = self.kept["top"] = np.maximum(self.get("top"), v)
        m_hat = m / (1 - betas[0] ** self.t)
        v_hat = v / (1 - betas[1] ** self.t)
        self.p = self.p - lr * m_hat / (v_hat**0.5 + eps)


class AdamW(Adam):
    decoupled = True

    def move(self, g, weight_decay=0.01, **settings):
        super().move(g, weight_decay=weight_decay, **settings)


class NAdam(Reference):
    def move(
        self, g, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, momentum_decay=4e-3
    ):  # fmt: skip
        self.p = self.p - lr * weight_decay * self.p
        mus = [betas[0] * (1 - 0.5 * 0.96 ** (t * momentum_decay)) for t in range(self.t + 2)]
        product = np.prod(mus[1 : self.t + 1])
        m = self.kept["m"] = betas[0] * self.get("m") + (1 - betas[0]) * g
        v = self.kept["v"] = betas[1] * self.get("v") + (1 - betas[1]) * g**2
        root = (v / (1 - betas[1] ** self.t)) ** 0.5 + eps
        nesterov = mus[self.t + 1] * m / (1 - product * mus[self.t + 1])
        plain = (1 - mus[self.t]) * g / (1 - product)
        self.p = self.p - lr * (nesterov + plain) / root


class Lion(Reference):
    def move(self, g, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        m = self.get("m")
        c = np.sign(betas[0] * m + (1 - betas[0]) * g)
        self.p = self.p - lr * (c + weight_decay * self.p)
        self.kept["m"] = betas[1] * m + (1 - betas[1]) * g
