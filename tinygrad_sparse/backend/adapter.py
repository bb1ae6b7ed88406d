"""What an adapter is: the few functions in which array libraries differ. Floor 1.

An adapter is a module with these names. Here is what each argument means and what each answer is;
the modules say only how they get there. ``mypy`` holds every one of them against the protocols
below, and tests hold their answers against those of the NumPy adapter.

Shapes: a `table` is (V, \\*row), `rows` are int64 ids in [0, V) that were checked at the lookup;
nothing checks them again. Sums of float16 are kept in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Array = Any  # an ndarray of whichever library holds the data; a Tensor where second order runs
Formula = Callable[..., tuple[Array, ...]]  # an optimizer's: (p, g, *slots, **hyper) -> new ones


class Algebra(Protocol):
    """What the gradient algebra needs: Tensors have an adapter of this, by ops that are recorded.

    Row ids are arrays, never Tensors.
    """

    xp: Any  # the namespace with NumPy's names
    records: bool  # whether what it computes is on a tape

    def asarray(self, x: Any, /) -> Array:
        """`x` as an array of this library: itself, if it is one."""

    def copy(self, x: Array, /) -> Array:
        """A contiguous copy that only the caller holds."""

    def read_only(self, x: Array, /) -> Array:
        """A view of `x` not to be written to, which cannot be where the library can say so."""

    def namespace(self, x: Array, /) -> Any:
        """The `xp` of the arrays that `x` consists of: where row ids for it are computed."""

    def beside(self, x: Array, ids: Array, /) -> Array:
        """Checked `ids` on the device of `x`: uploaded if they are on the host and it is not."""

    def take_rows(self, table: Array, rows: Array, lead: int = 1) -> Array:
        """``table[rows]``; `rows` of any rank, ids into the first `lead` axes flattened."""

    def sum_duplicates(
        self, rows: Array, values: Array, size: int | None = None
    ) -> tuple[Array, Array]:
        """Sorted unique rows and, for each, the sum of its values: all repeats are summed here.

        `size` is how many rows there are to be among, for who sorts by as many digits as that has.
        """

    def scatter_rows(self, rows: Array, values: Array, size: int) -> Array:
        """A new array of `size` rows, zero but for the sum of `values` at `rows`."""

    def scatter_add_rows(self, table: Array, rows: Array, values: Array) -> Array:
        """`table` with `values` added at `rows`, in place for an array; repeated rows add up."""


class Adapter(Algebra, Protocol):
    """What a library of arrays needs to have."""

    device: str  # the public name of where its arrays are
    waits: bool  # whether it costs the host a wait to learn how many of something there are

    def to_host(self, x: Array, /) -> Any:
        """`x` where NumPy can read it. Waits for the device, if that is another one."""

    def own_ids(self, op: str, ids: Array, size: int, context: str) -> Array:
        """`ids` of this library as int64 in [0, size): see `backend.row_ids`."""

    def count_rows(self, rows: Array, size: int) -> Array:
        """How often each of `size` ids is among `rows`, which have one axis."""

    def broadcast_to(self, x: Array, shape: tuple[int, ...]) -> Array:
        """A view of `x` repeated to `shape`, not to be written to."""

    def twice_product(self, g: Array, x: Array) -> Array:
        """2·g·x, which overflows only if that does."""

    def max_from(self, x: Array, axis: tuple[int, ...], start: float) -> Array:
        """The largest elements over `axis`, which is kept, or `start` where that is larger."""

    def shortened(
        self, x: Array, max_norm: float, error: Callable[[float], Exception]
    ) -> Array | None:
        """Rows of (n, d), n > 0, with none longer than `max_norm`: x itself, if none is.

        None for lengths whose squares are not in range, if the host knows; else `error` is raised
        for a length that is not finite, when ids are checked.
        """

    def put_rows(self, table: Array, rows: Any, values: Array) -> None:
        """``table[rows] = values``, for rows that are each there once, or ``...`` for all."""

    def max_rows(self, rows: Array, values: Array, size: int) -> Array:
        """A new array of `size` rows: the largest value at each; if none, -inf or the like."""

    def update_rows(
        self, formula: Formula, rows: Any, g: Array, table: Array, slots: list[Array],
        hyper: dict[str, Any], places: Any = None,
    ) -> list[Array]:  # fmt: skip
        """The new rows of `table` and of its `slots` under an optimizer's formula; writes nothing.

        `rows` is an index of the first axis, or of several, or ``...`` for every row; `places` is
        where the slots have these rows, if elsewhere. A number in `hyper` may be an array with one
        for each row. float16 rows are computed in float32, as their slots are kept: there ε is
        not 0.
        """

    def plan_update(
        self, formula: Formula, rows: Any, values: Array, table: Array, slots: list[Array],
        hyper: dict[str, Any], places: Any = None, cap: Any = None,
    ) -> Callable[[], None]:  # fmt: skip
        """Get an update of some rows of `table` and its `slots` ready: calling the answer writes.

        Whatever can fail does so here, so that several tables change together or not at all. `rows`
        are ids of the first axis, repeated ones get the sum of their `values`; or ``...`` for every
        row. `places`, one for each of `rows`, is where the slots have them, if elsewhere. `cap`
        shortens the sums that are longer than its `max_norm`: see optim/clip.py.
        """

    def late_rows(
        self, rows: Array, index: Array | None, stamps: Array, now: int, all_rows: bool
    ) -> tuple[Array, Array, Array]:
        """Those of `rows` whose stamp is before `now`, each once; their places and their stamps.

        A row's stamp is at its place, which is ``index[row] - 1``, and nowhere if that is -1; no
        `index`: the row itself. Stamps of 0 count only if `all_rows` do.
        """

    def settle_rows(
        self, formula: Formula, sure: Callable[..., Any], rows: Array, places: Array, factors: Any,
        columns: Any, table: Array, slots: list[Array],
    ) -> Any:  # fmt: skip
        """Give rows of `table`, and of its `slots` at `places`, their new numbers, in place.

        ``formula((p, *slots), factors)`` answers them, of the row's column of `factors` (k, n),
        which `columns` tells: both are on the host. Rows with an element of which ``sure`` of the
        same is False stay as they are: answers, on the host, which of `rows` do. Each row is there
        once. float16 is computed in float32.
        """

    def bag_of(self, starts: Array, n: int) -> Array:
        """The bag that each of n ids is in; bag b begins at starts[b], the last ends at n."""

    def embedding_bag(
        self, table: Array, rows: Array, starts: Array, weights: Array | None = None,
        mean: bool = False,
    ) -> Array:  # fmt: skip
        """For each bag the sum of its rows of `table`, each times its weight; of none, 0.

        Shapes: rows (n,), starts (B + 1,) -> (B, \\*row); bag b is rows[starts[b]:starts[b + 1]].
        With `mean` the sum is divided by how many rows it is of. float16 is summed in float32.
        """

    def row_products(self, x: Array, y: Array, rows: Array, columns: Array) -> Array:
        """x[rows[s, i]] · y[columns[s, j]]: ids (S, m) and (S, n) of tables (V, d) -> (S, m, n)."""

    def weighted_rows(self, w: Array, y: Array, ids: Array) -> Array:
        """The sum over j of w[s, i, j] · y[ids[s, j]]: (S, m, n), (V, d), (S, n) -> (S, m, d).

        On the host a weight of 0 leaves its row out: no NaN or infinity there shows.
        """

    def logistic_loss(self, x: Array, y: Array, w: Array) -> Array:
        """w · (log(1 + e**x) - y·x)."""

    def logistic_slope(self, x: Array, y: Array, w: Array) -> Array:
        """w · (1 / (1 + e**-x) - y)."""
