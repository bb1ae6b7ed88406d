"""Symbols that an optimizer's formula is run on once, to learn what it computes. Floor 1.

Two kinds. A `Setting` is a plain number of a step (lr, beta1): arithmetic among settings is
Python's own and stays on the host, where each step repeats it; a branch on one is remembered as a
guard. A `Symbol` is a value of an element or of a row: what is done to it becomes a node of a
graph, with the dtypes that NumPy's own resolver gives. Nothing here knows a formula.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.lib.mixins import NDArrayOperatorsMixin

from tinygrad_sparse.errors import TinygradSparseError, explain

ROW, ELEMENT = 0, 1  # what a node has one value for
BOOL = np.dtype(bool)
NUMBERS = (bool, int, float, np.generic)

CALLS = (  # ufuncs of one number, by the name that C has for them
    (np.sqrt, "sqrt"), (np.cbrt, "cbrt"), (np.exp, "exp"), (np.exp2, "exp2"), (np.expm1, "expm1"),
    (np.log, "log"), (np.log2, "log2"), (np.log10, "log10"), (np.log1p, "log1p"), (np.sin, "sin"),
    (np.cos, "cos"), (np.tan, "tan"), (np.arcsin, "asin"), (np.arccos, "acos"), (np.arctan, "atan"),
    (np.sinh, "sinh"), (np.cosh, "cosh"), (np.tanh, "tanh"), (np.arcsinh, "asinh"),
    (np.arccosh, "acosh"), (np.arctanh, "atanh"), (np.floor, "floor"), (np.ceil, "ceil"),
    (np.trunc, "trunc"), (np.rint, "rint"), (np.fabs, "fabs"), (np.power, "pow"),
    (np.arctan2, "atan2"), (np.hypot, "hypot"), (np.copysign, "copysign"), (np.fmax, "fmax"),
    (np.fmin, "fmin"),
)  # fmt: skip
WRITTEN = {  # how the others are written in C
    np.add: "{} + {}", np.subtract: "{} - {}", np.multiply: "{} * {}", np.divide: "{} / {}",
    np.negative: "-{}", np.positive: "{}", np.absolute: "np_abs({})", np.square: "{0} * {0}",
    np.reciprocal: "1 / {}", np.sign: "np_sign({})", np.maximum: "np_maximum({}, {})",
    np.minimum: "np_minimum({}, {})", np.greater: "{} > {}", np.greater_equal: "{} >= {}",
    np.less: "{} < {}", np.less_equal: "{} <= {}", np.equal: "{} == {}", np.not_equal: "{} != {}",
    np.logical_and: "{} && {}", np.logical_or: "{} || {}", np.logical_not: "!{}",
    np.isnan: "np_isnan({})", np.isfinite: "np_isfinite({})", np.isinf: "np_isinf({})",
}  # fmt: skip
OF_BOOLS = {  # for truth values these are the same thing under another name
    np.multiply: np.logical_and, np.add: np.logical_or, np.bitwise_and: np.logical_and,
    np.bitwise_or: np.logical_or, np.invert: np.logical_not, np.bitwise_xor: np.not_equal,
    np.maximum: np.logical_or, np.minimum: np.logical_and,
}  # fmt: skip


class FormulaError(TinygradSparseError, TypeError):
    """A formula that no kernel can be made of: it uses what is not declared here."""


class Node(NamedTuple):
    """One value of the graph: `op` of the nodes `args`, or an input, literal or argument."""

    op: str  # a template, or one of: input, literal, argument, column, sum
    args: tuple[Any, ...]
    dtype: np.dtype
    level: int


class Graph:
    """What a formula did, in order; equal nodes are one node."""

    def __init__(self, name: str, row_shape: tuple[int, ...]) -> None:
        self.name, self.row_shape = name, row_shape
        self.nodes: list[Node] = []
        self.known: dict[Any, int] = {}
        self.host: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []  # the settings' arithmetic
        self.host_text: list[str] = []
        self.kinds: list[type] = []  # of what comes out of it: dtypes follow from them
        self.guards: dict[int, bool] = {}  # places in `host` and their truth
        self.arguments: list[tuple[int, np.dtype]] = []  # places in `host` that the kernel is given
        self.columns: list[tuple[str, np.dtype]] = []  # settings with one number a row

    def fail(self, got: str, hint: str | None = None) -> NoReturn:
        wanted = "NumPy's elementwise functions on p, g, slots and settings"
        raise FormulaError(explain(f"formula {self.name}", wanted, got, hint))

    def add(self, op: str, args: tuple[Any, ...], dtype: Any, level: int) -> Symbol:
        node = Node(op, args, np.dtype(dtype), level)
        key = node._replace(args=tuple(map(_constant, args))) if op == "literal" else node
        if key not in self.known:
            self.known[key] = len(self.nodes)
            self.nodes.append(node)
        return Symbol(self, self.known[key])

    def setting(self, function: Callable[..., Any], args: tuple[Any, ...], text: str) -> Setting:
        """A number that the host computes at each step: `args` may be Settings."""
        values = [a.value if type(a) is Setting else a for a in args]
        value = function(*values)
        if not all(isinstance(x, NUMBERS) for x in (*values, value)):
            self.fail(f"{text}, which is {value!r}", "settings are added to numbers alone")
        key = "host", function, tuple(a.at if type(a) is Setting else _constant(a) for a in args)
        if key not in self.known:
            self.known[key] = len(self.host)
            self.compute(function, args, text, type(value))
        return Setting(self, self.known[key], value)

    def compute(
        self, function: Callable[..., Any], args: tuple[Any, ...], text: str, kind: type
    ) -> None:
        self.host.append((function, args))
        self.host_text.append(text)
        self.kinds.append(kind)

    def as_node(self, x: Any, dtype: np.dtype) -> int:
        """The node that holds an operand in the dtype that it is computed in."""
        if type(x) is Symbol:
            if x.dtype == dtype:
                return x.at
            return self.add("cast", (x.at,), dtype, x.node.level).at
        if type(x) is Setting:
            if (x.at, dtype) not in self.arguments:
                self.arguments.append((x.at, dtype))
            number = self.arguments.index((x.at, dtype))
            return self.add("argument", (number,), dtype, ROW).at
        return self.literal(x, dtype).at

    def literal(self, x: Any, dtype: np.dtype, level: int = ROW) -> Symbol:
        value = float(x) if dtype.kind == "f" else dtype.type(x).item()
        return self.add("literal", (value,), dtype, level)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        dtype = np.result_type(*(given(self, a, weak=True) for a in (x, y)))
        if dtype not in C_TYPES:
            self.fail(f"np.where in {dtype}")
        args: tuple[int, ...] = self.as_node(x, dtype), self.as_node(y, dtype)
        level = max(self.nodes[a].level for a in args)
        if type(condition) is not Symbol:  # still as many numbers, in the dtype of both
            return self.add("{}", (args[0 if condition else 1],), dtype, level)
        if condition.dtype != BOOL:
            self.fail("np.where on numbers", "compare them: np.where(x != 0, ...)")
        args = condition.at, *args
        return self.add("{} ? {} : {}", args, dtype, max(condition.node.level, level))

    def reduce(self, x: Symbol, axis: Any, keepdims: bool, mean: bool) -> Symbol:
        rows = tuple(range(1, x.ndim))
        axes = None if axis is None else tuple(sorted(normalize_axis_tuple(axis, x.ndim)))
        if axes != rows or not keepdims or x.dtype.kind != "f":
            self.fail(f"a sum over axis={axis}, keepdims={keepdims}", "sum whole rows, keepdims")
        if x.node.level == ROW:
            self.fail("a sum over the one number of a row")
        total = self.add("sum", (x.at,), x.dtype, ROW)
        return total / max(1, int(np.prod(self.row_shape))) if mean else total


def _constant(x: Any) -> Any:
    """What a constant is known by: 0.0 and -0.0 are equal, and are not the same one."""
    return type(x), repr(x)


def given(graph: Graph, x: Any, weak: bool = False) -> Any:
    """An operand's dtype; or, for Python's numbers, what NumPy's resolvers take in its place."""
    if type(x) is Symbol or isinstance(x, np.generic):
        return x.dtype
    value = x.value if type(x) is Setting else x
    if isinstance(value, np.generic):
        return value.dtype
    if type(value) is bool:
        return BOOL
    if type(value) in (int, float):
        return value if weak else type(value)
    graph.fail(f"an operand {value!r}")


class Symbol(NDArrayOperatorsMixin):
    """A value of each element, or of each row, of the tables that a kernel runs over."""

    __slots__ = ("at", "graph")

    def __init__(self, graph: Graph, at: int) -> None:
        self.graph, self.at = graph, at

    node = property(lambda self: self.graph.nodes[self.at])
    dtype = property(lambda self: self.node.dtype)
    ndim = property(lambda self: len(self.graph.row_shape) + 1)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The first is nothing to count with: the result may not depend on how many rows came."""
        ones = (1,) * len(self.graph.row_shape)
        return (None, *(ones if self.node.level == ROW else self.graph.row_shape))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        graph = self.graph
        if method != "__call__" or more:
            options = "".join(f", {k}=" for k in more)
            graph.fail(
                f"np.{ufunc.__name__}{'' if method == '__call__' else f'.{method}'}{options}"
            )
        if ufunc is np.power:
            simple = self._simple_power(*inputs)
            if simple is not None:
                return simple
        dtypes = [given(graph, x) for x in inputs]
        if all(d == BOOL for d in dtypes):
            ufunc = OF_BOOLS.get(ufunc, ufunc)
        template = TEMPLATES.get(ufunc)
        if template is None:
            graph.fail(f"np.{ufunc.__name__}")
        try:
            *wanted, result = ufunc.resolve_dtypes((*dtypes, None))
        except TypeError:
            graph.fail(f"np.{ufunc.__name__} of {', '.join(map(str, dtypes))}")
        if not {result, *wanted} <= set(C_TYPES):
            graph.fail(f"np.{ufunc.__name__} in {result}")
        if ufunc in FLOATING and not all(d.kind == "f" for d in wanted):
            graph.fail(f"np.{ufunc.__name__} of {', '.join(map(str, wanted))}")
        args = tuple(graph.as_node(x, d) for x, d in zip(inputs, wanted, strict=True))
        return graph.add(template, args, result, max(graph.nodes[a].level for a in args))

    def _simple_power(self, x: Any, exponent: Any) -> Any:
        """NumPy's own short cuts: a square is a product there."""
        if type(x) is Symbol and x.dtype.kind == "f" and type(exponent) in (int, float):
            functions = {2: np.square, 0.5: np.sqrt, 1: np.positive, -1: np.reciprocal}
            if exponent in functions:
                return functions[exponent](x)
        return None

    def __array_function__(self, function: Any, types: Any, args: Any, more: Any) -> Any:
        handler = FUNCTIONS.get(function)
        if handler is None:
            self.graph.fail(f"np.{function.__name__}")
        return handler(self.graph, *args, **more)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Symbol:
        return self.graph.reduce(self, axis, keepdims, mean=False)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Symbol:
        return self.graph.reduce(self, axis, keepdims, mean=True)

    def clip(self, low: Any = None, high: Any = None) -> Any:
        x = self if low is None else np.maximum(self, low)
        return x if high is None else np.minimum(x, high)

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        if np.dtype(dtype) not in C_TYPES:
            self.graph.fail(f"astype({dtype})")
        return Symbol(self.graph, self.graph.as_node(self, np.dtype(dtype)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.graph.fail(f".{name}")

    def __getitem__(self, key: Any) -> NoReturn:
        self.graph.fail("an index", "a formula sees each element alone")

    def __bool__(self) -> NoReturn:
        self.graph.fail("a branch on an element", "np.where(condition, x, y) chooses for each")

    def _number(self, *_: Any, **__: Any) -> NoReturn:
        self.graph.fail("an element as a plain number", "NumPy's functions, not math's, take them")

    __float__ = __int__ = __index__ = __len__ = __iter__ = __array__ = _number


class Setting:
    """A plain number of a step. Its arithmetic is Python's, done again by the host at each step."""

    __slots__ = ("at", "graph", "value")

    def __init__(self, graph: Graph, at: int, value: Any) -> None:
        self.graph, self.at, self.value = graph, at, value

    text = property(lambda self: self.graph.host_text[self.at])

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        if any(type(x) is Symbol for x in inputs):
            return NotImplemented
        if method != "__call__" or more:
            self.graph.fail(f"np.{ufunc.__name__}")
        words = ", ".join(x.text if type(x) is Setting else repr(x) for x in inputs)
        return self.graph.setting(ufunc, inputs, f"np.{ufunc.__name__}({words})")

    def __bool__(self) -> bool:
        truth = bool(self.value)
        self.graph.guards[self.at] = truth
        return truth

    def _number(self, *_: Any, **__: Any) -> NoReturn:
        hint = "np.sqrt(x) or x ** 0.5 in place of math.sqrt(x)"
        self.graph.fail(f"the setting {self.text} as a fixed number", hint)

    __float__ = __int__ = __index__ = __array__ = _number
    __hash__ = None  # type: ignore[assignment]  # as Python has it for what is not hashed


def _binary(sign: str, function: Callable[..., Any]) -> None:
    def forward(self: Setting, other: Any) -> Any:
        if type(other) is Symbol:
            return NotImplemented
        right = other.text if type(other) is Setting else repr(other)
        return self.graph.setting(function, (self, other), f"({self.text} {sign} {right})")

    def backward(self: Setting, other: Any) -> Any:
        return self.graph.setting(function, (other, self), f"({other!r} {sign} {self.text})")

    name = function.__name__
    setattr(Setting, f"__{name}__", forward)
    if name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Setting, f"__r{name}__", backward)


def _unary(word: str, function: Callable[..., Any]) -> None:
    def forward(self: Setting) -> Setting:
        return self.graph.setting(function, (self,), f"{word}({self.text})")

    setattr(Setting, f"__{function.__name__}__", forward)


for _sign, _f in {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "**": operator.pow, "//": operator.floordiv, "%": operator.mod, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}.items():  # fmt: skip
    _binary(_sign, _f)
for _word, _g in (("-", operator.neg), ("+", operator.pos), ("abs", operator.abs)):
    _unary(_word, _g)

C_TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.int64): "long long",
    BOOL: "bool",
}
TEMPLATES: Mapping[Any, str] = {
    **WRITTEN,
    **{f: f"{name}({', '.join('{}' for _ in range(f.nin))})" for f, name in CALLS},
}
FLOATING = {f for f, _ in CALLS} | {np.reciprocal}  # C has these for floats alone
FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    np.where: Graph.where,
    np.sum: lambda graph, x, axis=None, keepdims=False: x.sum(axis, keepdims),
    np.mean: lambda graph, x, axis=None, keepdims=False: x.mean(axis, keepdims),
    np.clip: lambda graph, x, low=None, high=None: x.clip(low, high),
    np.shape: lambda graph, x: x.shape,
    np.ndim: lambda graph, x: x.ndim,
    np.zeros_like: lambda graph, x: graph.literal(0, x.dtype, x.node.level),
    np.ones_like: lambda graph, x: graph.literal(1, x.dtype, x.node.level),
}
