"""A minute text with three topics, for examples that learn from text."""

import numpy as np

TOPICS = [
    ["cat", "dog", "cow", "hen", "pig", "goat"],
    ["red", "blue", "green", "pink", "brown", "grey"],
    ["iron", "gold", "zinc", "lead", "tin", "silver"],
]


def made_up_text(seed: int = 0, sentences: int = 300) -> str:
    """Sentences of eight words, each from one topic."""
    rng = np.random.default_rng(seed)
    return " ".join(
        " ".join(rng.choice(TOPICS[rng.integers(3)], size=8)) + "." for _ in range(sentences)
    )
