"""What a backward pass did, op by op, as a table. Floor 3; may import `slices`.

Only a Tape made with ``profile=True`` keeps these figures: the reverse loop itself is not slowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinygrad_sparse.slices import Gradient, is_sparse


@dataclass
class Cost:
    """Sums over all the entries of one op."""

    calls: int = 0
    sparse: int = 0  # of the calls, how many had a row-sparse cotangent to pull back
    rows: int = 0  # the rows in those
    table: int = 0  # the rows that their dense arrays would have had
    densified: int = 0  # bytes
    seconds: float = 0.0

    def add(self, g: Gradient, densified: int, seconds: float) -> None:
        """One more entry: the cotangent of its output, and what pulling it back cost."""
        self.calls += 1
        if is_sparse(g):
            self.sparse += 1
            self.rows += len(g.indices)
            self.table += math.prod(g.shape[: g.lead])
        self.densified += densified
        self.seconds += seconds


def table(costs: dict[str, Cost]) -> str:
    """The costs by op, dearest first, with a line of sums."""
    total = Cost()
    for cost in costs.values():
        for name in vars(total):
            setattr(total, name, getattr(total, name) + getattr(cost, name))
    head = f"{'op':<16}{'calls':>8}{'sparse':>8}{'rows kept':>12}{'of rows':>14}"
    lines = [head + f"{'densified bytes':>17}{'backward ms':>13}"]
    ranked = sorted(costs.items(), key=lambda item: -item[1].seconds)
    for name, cost in [*ranked, ("all", total)]:
        lines.append(
            f"{name:<16}{cost.calls:>8,}{cost.sparse:>8,}{cost.rows:>12,}{cost.table:>14,}"
            f"{cost.densified:>17,}{cost.seconds * 1e3:>13.3f}"
        )
    return "\n".join(lines)
