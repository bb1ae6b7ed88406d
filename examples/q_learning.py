"""Tabular Q-learning (Watkins, 1989) on the windy cliff, in one file.

    python -m examples.q_learning

``Q[s, a]`` looks single entries up: a step touches one for each of the agents side by side.
"""

import numpy as np
from tqdm import trange

import tinygrad_sparse as ts
from tinygrad_sparse import optim

HEIGHT, WIDTH = 4, 12
START, GOAL = 36, 47  # bottom left and bottom right, between them the cliff
MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])  # up, right, down, left


def step(s: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each agent gets to, its reward, and whether that ends its episode."""
    row = np.clip(s // WIDTH + MOVES[a, 0], 0, HEIGHT - 1)
    column = np.clip(s % WIDTH + MOVES[a, 1], 0, WIDTH - 1)
    after = row * WIDTH + column
    fell = (after > START) & (after < GOAL)  # back to the start, at a price
    return np.where(fell, START, after), np.where(fell, -100.0, -1.0), after == GOAL


def train(steps: int = 4000, agents: int = 16, lr: float = 0.5, seed: int = 1) -> np.ndarray:
    """The learned table, (states, actions)."""
    rng = np.random.default_rng(seed)
    Q = ts.parameter(np.zeros((HEIGHT * WIDTH, 4)), name="Q")
    optimizer, s = optim.SGD([Q], lr=lr), np.full(agents, START)
    for n in trange(steps, unit=" steps"):
        explore = max(0.05, 1 - 2 * n / steps)
        a = np.where(
            rng.random(agents) < explore, rng.integers(0, 4, agents), Q[s].numpy().argmax(1)
        )
        after, reward, done = step(s, a)
        best = np.where(done, 0.0, Q[after].numpy().max(1))
        share = 1.0 / np.bincount(s * 4 + a)[s * 4 + a]  # agents at one entry average, not add
        with ts.Tape(densify="raise") as tape:
            loss = (share * (reward + best - Q[s, a]) ** 2).sum() / 2
        optimizer.step(tape.backward(loss))
        s = np.where(done, START, after)
    return Q.numpy()


def path(Q: np.ndarray) -> list[int]:
    """The states that the greedy agent passes, at most 100 of them."""
    states = [START]
    while states[-1] != GOAL and len(states) < 100:
        states += step(np.array(states[-1:]), Q[states[-1:]].argmax(1))[0].tolist()
    return states


if __name__ == "__main__":
    taken, cells = path(train()), np.array(list("." * START + "S" + "#" * (WIDTH - 2) + "G"))
    cells[taken[1:-1]] = "*"
    print(f"{len(taken) - 1} steps of 13", *map("".join, cells.reshape(HEIGHT, WIDTH)), sep="\n")
