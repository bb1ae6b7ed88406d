"""From an optimizer's formula to the C function that a kernel calls. Floor 1.

The formula is the one that NumPy runs and numba compiles: a Python function, written once. Here it
is run on symbols; what it did to elements is printed as C, what it did to settings alone stays
Python's arithmetic on the host. A formula that branches on a setting has one text for each way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from tinygrad_sparse.errors import ShapeError, explain

from .symbols import C_TYPES, ELEMENT, ROW, FormulaError, Graph, Node, Setting, Symbol, given


class Generated(NamedTuple):
    """A formula's C text, and how the host gets a kernel's numbers from a step's settings."""

    name: str
    text: str  # defines ARRAYS, SETTINGS and the function that applies the formula
    whole_rows: bool  # it sums over rows, or has slots with one number a row
    columns: tuple[tuple[str, np.dtype], ...]  # settings that come as one number for each row
    graph: Graph
    fixed: Mapping[str, Any]  # settings that are no numbers, or the types of those that are

    def numbers(self, hyper: Mapping[str, Any]) -> list[Any] | None:
        """The kernel's numbers for these settings; None if the formula would take another way."""
        if any(_kind(hyper[name]) != kind for name, kind in self.fixed.items()):
            return None
        graph = self.graph
        values: list[Any] = []
        try:
            for at, (function, args) in enumerate(graph.host):
                if function is _setting:
                    value = hyper[args[0]]
                else:
                    value = function(*(values[a.at] if type(a) is Setting else a for a in args))
                # At once: what comes after a branch may have no meaning on the other one.
                truth = graph.guards.get(at)
                if type(value) is not graph.kinds[at] or truth not in (None, bool(value)):
                    return None
                values.append(value)
            return [dtype.type(values[at]) for at, dtype in graph.arguments]
        except ArithmeticError:
            return None


def _setting(name: str) -> Any:
    """The host's first operations: a setting itself. Replaced by its value."""
    raise NotImplementedError  # it only stands in a graph, and is never called


def _kind(x: Any) -> Any:
    """What of a setting a text depends on: its type; of what is no number, all."""
    if isinstance(x, np.ndarray) or hasattr(x, "ndim"):
        return ("column", np.dtype(x.dtype)) if x.ndim else type(x)
    return type(x) if isinstance(x, (bool, int, float)) else x


_known: WeakKeyDictionary[Callable[..., Any], dict[Any, list[Generated]]] = WeakKeyDictionary()


def generate(
    formula: Callable[..., tuple[Any, ...]],
    hyper: Mapping[str, Any],
    dtype: Any,
    row_shape: tuple[int, ...] = (1,),
    per_row: Sequence[bool] = (),
    stored: bool = False,
) -> tuple[Generated, list[Any]]:
    """The C text for a formula, and the numbers that its kernel is given at this step.

    `per_row` says of each slot whether it has one number a row. A setting may be an array with one
    number for each row. `stored`: the kernel reads the numbers from an array of float64 on the
    device, so that a captured graph sees new ones. Raises FormulaError, naming the function, for
    what C has no meaning for.
    """
    key = np.dtype(dtype), row_shape, tuple(per_row), stored, frozenset(hyper)
    ways = _known.setdefault(formula, {}).setdefault(key, [])
    for way in ways:
        numbers = way.numbers(hyper)
        if numbers is not None:
            return way, numbers
    way = _trace(formula, hyper, np.dtype(dtype), row_shape, tuple(per_row), stored)
    numbers = way.numbers(hyper)
    if numbers is None:
        way.graph.fail(f"a setting that {np.dtype(dtype)} does not hold")
    ways.append(way)
    return way, numbers


def _trace(
    formula: Callable[..., tuple[Any, ...]],
    hyper: Mapping[str, Any],
    dtype: np.dtype,
    row_shape: tuple[int, ...],
    per_row: tuple[bool, ...],
    stored: bool,
) -> Generated:
    graph = Graph(getattr(formula, "__name__", type(formula).__name__), row_shape)
    p, g = (graph.add("input", (name,), dtype, ELEMENT) for name in ("p", "g"))
    slots = [
        graph.add("input", (f"s{k}",), dtype, ROW if alone else ELEMENT)
        for k, alone in enumerate(per_row)
    ]
    settings: dict[str, Any] = {}
    for name, value in hyper.items():
        kind = _kind(value)
        if isinstance(kind, tuple):
            if kind[1] not in C_TYPES:
                graph.fail(f"the setting {name}, an array of {kind[1]}")
            graph.columns.append((name, kind[1]))
            settings[name] = graph.add("column", (len(graph.columns) - 1,), kind[1], ROW)
        elif isinstance(kind, type):
            graph.compute(_setting, (name,), name, kind)
            settings[name] = Setting(graph, len(graph.host) - 1, value)
        else:
            settings[name] = value
    old = [p, *slots]
    try:
        new = formula(p, g, *slots, **settings)
    except FormulaError:
        raise
    except Exception as error:  # of what symbols cannot do, or of the formula's own: arrays tell
        graph.fail(f"{type(error).__name__}: {error}")
    several = isinstance(new, (tuple, list))
    if not several or len(new) != len(old):
        got = f"{len(new)} results" if several else type(new).__name__
        raise ShapeError(explain(f"formula {graph.name}", f"a tuple of {len(old)} results", got))
    results = [_result(graph, x, dtype, a) for x, a in zip(new, old, strict=True)]
    writes = tuple(x != a.at for x, a in zip(results, old, strict=True))
    printer = _Printer(graph, stored)
    used = printer.needed([a for a, w in zip(results, writes, strict=True) if w])
    whole = any(per_row) or any(graph.nodes[i].op == "sum" for i in used)
    text = (_row_text if whole else _element_text)(printer, results, old, g, writes)
    fixed = {name: _kind(value) for name, value in hyper.items()}
    return Generated(graph.name, text, whole, tuple(graph.columns), graph, fixed)


def _result(graph: Graph, x: Any, dtype: np.dtype, old: Symbol) -> int:
    """The node of a new value, which has as many numbers as the old one."""
    given(graph, x)  # refuses what is no number: arrays tell what was wrong
    level = x.node.level if type(x) is Symbol else ROW
    if level != old.node.level and math.prod(graph.row_shape) != 1:
        kinds = "one number a row", "one number an element"
        name = f"formula {graph.name}"
        raise ShapeError(explain(name, kinds[old.node.level], kinds[level]))
    return graph.as_node(x, dtype)


class _Printer:
    """C for nodes: each that is more than a name gets a local of its own."""

    def __init__(self, graph: Graph, stored: bool) -> None:
        self.graph, self.stored = graph, stored

    def needed(self, wanted: Sequence[int], stop: Sequence[int] = ()) -> list[int]:
        """The nodes that some depend on, in order; without what only those in `stop` need."""
        found: set[int] = set()
        left = list(wanted)
        while left:
            at = left.pop()
            if at in found or at in stop:
                continue
            found.add(at)
            node = self.graph.nodes[at]
            if node.op not in ("input", "literal", "argument", "column"):
                left += node.args
        return sorted(found)

    def name(self, at: int) -> str:
        node = self.graph.nodes[at]
        if node.op == "input":
            return f"{node.args[0]}_"
        if node.op == "literal":
            return _literal(node)
        if node.op == "argument":
            return f"c{node.args[0]}"
        if node.op == "column":
            return f"column{node.args[0]}_"
        return f"{'r' if node.op == 'sum' else 'v'}{at}"

    def lines(self, nodes: Sequence[int]) -> list[str]:
        """Declarations of those that are operations."""
        lines = []
        for at in nodes:
            node = self.graph.nodes[at]
            if node.op in ("input", "literal", "argument", "column", "sum"):
                continue
            kind = C_TYPES[node.dtype]
            lines.append(f"const {kind} {self.name(at)} = {self.expression(node)};")
        return lines

    def expression(self, node: Node) -> str:
        names = [self.name(a) for a in node.args]
        if node.op == "cast":
            return f"({C_TYPES[node.dtype]}){names[0]}"
        call = node.op.split("(")[0]
        single = self.graph.nodes[node.args[-1]].dtype == np.float32
        if call and call.isidentifier() and not call.startswith("np_") and single:
            return node.op.replace(call, f"{call}f", 1).format(*names)
        return node.op.format(*names)


def _literal(node: Node) -> str:
    value, kind = node.args[0], C_TYPES[node.dtype]
    if kind == "bool":
        return "true" if value else "false"
    if kind == "long long":
        return f"{value}LL"
    if value != value:
        return f"({kind})NOT_A_NUMBER"
    if value in (np.inf, -np.inf):
        return f"({kind}){'-' if value < 0 else ''}INFINITE"
    return f"({kind}){value!r}" if value >= 0 else f"({kind})({value!r})"


def _header(printer: _Printer, names: Sequence[str]) -> str:
    """The macros with which the kernels of source/ name a formula's own arguments."""
    graph = printer.graph
    numbers = [f"const {C_TYPES[kind]} c{k}" for k, (_, kind) in enumerate(graph.arguments)]
    if printer.stored:
        numbers = ["const double* __restrict__ numbers"]
    columns = [f"const {C_TYPES[kind]}* column{k}" for k, (_, kind) in enumerate(graph.columns)]
    declared = [*numbers, *columns]
    lines = [f"// {graph.name}, printed from its Python function. What the host computes of it:"]
    lines += [f"// c{k} = {graph.host_text[at]}" for k, (at, _) in enumerate(graph.arguments)]
    lines += [f"// column{k} = {name}, a number a row" for k, (name, _) in enumerate(graph.columns)]
    lines += [
        f"#define ARRAYS {', '.join(f'T* __restrict__ {name}' for name in names)}",
        f"#define ARRAY_NAMES {', '.join(names)}",
        f"#define SETTINGS {''.join(f', {one}' for one in declared)}".rstrip(),
        f"#define SETTING_NAMES {''.join(f', {one.split()[-1]}' for one in declared)}".rstrip(),
    ]
    return "\n".join(lines)


def _settings(printer: _Printer) -> list[str]:
    """Where the numbers are not arguments: reading them."""
    graph, lines = printer.graph, []
    if printer.stored:
        for k, (_, kind) in enumerate(graph.arguments):
            lines.append(f"    const {C_TYPES[kind]} c{k} = ({C_TYPES[kind]})numbers[{k}];")
    for k, (_, kind) in enumerate(graph.columns):
        lines.append(f"    const {C_TYPES[kind]} column{k}_ = column{k}[i];")
    return lines


def _element_text(
    printer: _Printer, results: Sequence[int], given: Sequence[Symbol], g: Symbol,
    writes: Sequence[bool],
) -> str:  # fmt: skip
    """`apply` for a pack of neighbouring elements of a row."""
    wanted = [a for a, w in zip(results, writes, strict=True) if w]
    used = printer.needed(wanted)
    names = ["p", *(f"s{k}" for k in range(len(given) - 1))]
    place = {"p": "row"}
    lines = [_header(printer, names), _APPLY, *_settings(printer)]
    for name in names:
        where = place.get(name, "place")
        lines.append(f"    T* {name}at = {name} + {where} * d + column;")
    for name, old in zip(names, given, strict=True):
        lines.append(f"    Pack {name}pack{f' = load({name}at)' if old.at in used else ''};")
    lines += ["    #pragma unroll", "    for (int lane = 0; lane < VEC; lane++) {"]
    for name, old in zip(names, given, strict=True):
        if old.at in used:
            lines.append(f"        const T {name}_ = {name}pack.x[lane];")
    if g.at in used:
        lines.append("        const T g_ = gradient.x[lane];")
    lines += [f"        {line}" for line in printer.lines(used)]
    for name, at, written in zip(names, results, writes, strict=True):
        if written:
            lines.append(f"        {name}pack.x[lane] = {printer.name(at)};")
    lines.append("    }")
    lines += [f"    store({n}at, {n}pack);" for n, w in zip(names, writes, strict=True) if w]
    return "\n".join([*lines, "}"])


_APPLY = """
__device__ __forceinline__ void apply(ARRAYS, const long long row, const long long place,
    const long long i, const int column, const int d, const Pack gradient SETTINGS)
{"""

_APPLY_ROW = """
__device__ __forceinline__ void apply_row(ARRAYS, const T* g, const long long row,
    const long long place, const long long i, const int d, const int lane SETTINGS)
{"""


def _row_text(
    printer: _Printer, results: Sequence[int], given: Sequence[Symbol], g: Symbol,
    writes: Sequence[bool],
) -> str:  # fmt: skip
    """`apply_row` for a warp: a loop for each sum over the row, then one for the new elements."""
    graph = printer.graph
    names = ["p", *(f"s{k}" for k in range(len(given) - 1))]
    alone = {n for n, old in zip(names, given, strict=True) if old.node.level == ROW}
    lines = [_header(printer, names), _APPLY_ROW, *_settings(printer)]
    for name in names:
        where = "row" if name == "p" else "place"
        if name in alone:
            lines.append(f"    const T {name}_ = {name}[{where}];")
        else:
            lines.append(f"    T* {name}row = {name} + {where} * d;")
    wanted = [a for a, w in zip(results, writes, strict=True) if w]
    printed: set[int] = set()  # what is known outside of the loops

    def print_rows(nodes: Sequence[int]) -> None:
        fresh = [i for i in nodes if graph.nodes[i].level == ROW and i not in printed]
        lines.extend(f"    {line}" for line in printer.lines(fresh))
        printed.update(fresh)

    def loop(nodes: Sequence[int], last: Sequence[str]) -> None:
        lines.append("    for (int column = lane; column < d; column += 32) {")
        inside = [i for i in nodes if graph.nodes[i].level == ELEMENT]
        for name, old in zip(names, given, strict=True):
            if old.at in inside:
                lines.append(f"        const T {name}_ = {name}row[column];")
        if g.at in inside:
            lines.append("        const T g_ = g[i * d + column];")
        lines.extend(f"        {line}" for line in [*printer.lines(inside), *last])
        lines.append("    }")

    for at in printer.needed(wanted):
        node = graph.nodes[at]
        if node.op == "sum":
            nodes, name = printer.needed(node.args, stop=tuple(printed)), printer.name(at)
            print_rows(nodes)
            lines.append(f"    {C_TYPES[node.dtype]} {name} = 0;")
            loop(nodes, [f"{name} += {printer.name(node.args[0])};"])
            lines.append(f"    {name} = warp_sum({name});")
            printed.add(at)
    nodes = printer.needed(wanted, stop=tuple(printed))
    print_rows(nodes)
    done = list(zip(names, results, writes, strict=True))
    loop(nodes, [f"{n}row[column] = {printer.name(a)};" for n, a, w in done
                 if w and n not in alone])  # fmt: skip
    ends = [f"{n}[place] = {printer.name(a)};" for n, a, w in done if w and n in alone]
    if ends:
        lines.append("    __syncwarp();")
        lines += [f"    if (lane == 0) {end}" for end in ends]
    return "\n".join([*lines, "}"])
