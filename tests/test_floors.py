"""The architecture, checked on the source: who imports whom, who asks for a gradient's type.

A module imports from lower floors only. On floor 3 the engine's modules may import each other;
elsewhere modules on one floor are siblings that do not know each other. What a function imports
when it runs, and what only a type checker sees, is exempt.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "tinygrad_sparse"
SOURCE = Path(__file__).parents[1] / PACKAGE
FLOORS = {
    **dict.fromkeys(["errors", "habits"], 0),
    **dict.fromkeys(["backend", "shapes"], 1),
    "slices": 2,
    **dict.fromkeys(
        [
            "gradstore",
            "backward",
            "functional",
            "on_file",
            "report",
            "tensor",
            "tape",
            "rules",
            "saved",
            "primitive",
        ],
        3,
    ),
    "ops": 4,
    **dict.fromkeys(["optim", "nn", "checkpoint", "distributed"], 5),
    **dict.fromkeys(["testing", "viz", "__main__"], 6),
    PACKAGE: 7,  # the package's own __init__: the names that users see
}
MODULES = sorted(SOURCE.rglob("*.py"))
MAY_ASK = {"slices", "primitive"}  # where type tests for IndexedSlices live


def parts_of(path: Path) -> tuple[str, ...]:
    """A file's module name, split: ('tinygrad_sparse', 'ops', 'rows')."""
    parts = (PACKAGE, *path.relative_to(SOURCE).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def part_of(parts: tuple[str, ...]) -> str:
    """The part of the package that has a floor: a module or a folder at its top."""
    return parts[1] if len(parts) > 1 else PACKAGE


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs when the module is imported: not function bodies, not `if TYPE_CHECKING`."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for field in ("orelse",) if checking else ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, field, []))
        for branch in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            yield from statements(branch.body)


def imported(source: str, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(line, part) for each import of this package; `package` is what a leading dot means."""
    for node in statements(ast.parse(source).body):
        if isinstance(node, ast.Import):
            names = [(tuple(alias.name.split(".")), False) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            names = [((*base, alias.name), len(base) == 1) for alias in node.names]
        else:
            continue
        for parts, from_top in names:
            if parts[0] == PACKAGE:
                part = part_of(parts)
                # `from tinygrad_sparse import x` is part x, or a name of the package's __init__
                yield node.lineno, part if part in FLOORS or not from_top else PACKAGE


def upward(source: str, parts: tuple[str, ...], is_package: bool = False) -> list[tuple[int, str]]:
    """The imports that this module may not have."""
    own = part_of(parts)
    floor = FLOORS[own]
    return [
        (line, part)
        for line, part in imported(source, parts if is_package else parts[:-1])
        if part != own and FLOORS[part] >= floor and not FLOORS[part] == floor == 3
    ]


def type_tests(source: str) -> list[int]:
    """Lines that ask whether something is IndexedSlices."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked = node.args[1:]
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        else:
            continue
        names = {n.id for a in asked for n in ast.walk(a) if isinstance(n, ast.Name)}
        names |= {n.attr for a in asked for n in ast.walk(a) if isinstance(n, ast.Attribute)}
        if "IndexedSlices" in names:
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(parts_of(path)[1:]) or PACKAGE)
def test_a_module_imports_from_lower_floors_only(path):
    source = path.read_text(encoding="utf-8")
    assert part_of(parts_of(path)) in FLOORS, f"give {path.name} a floor"
    assert upward(source, parts_of(path), path.name == "__init__.py") == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(parts_of(path)[1:]) or PACKAGE)
def test_a_gradients_type_is_asked_for_in_two_places_only(path):
    if part_of(parts_of(path)) not in MAY_ASK:
        assert type_tests(path.read_text(encoding="utf-8")) == []


def test_every_part_that_the_package_has_today_was_looked_at():
    assert {part_of(parts_of(path)) for path in MODULES} >= {
        "errors",
        "slices",
        "ops",
        "optim",
        "nn",
    }


@pytest.mark.parametrize(
    ("source", "module", "found"),
    [
        ("from tinygrad_sparse.slices import x", "errors", ["slices"]),
        ("from .tensor import Tensor", "slices", ["tensor"]),
        ("from . import ops", "tape", ["ops"]),
        ("import tinygrad_sparse.ops.rows", "primitive", ["ops"]),
        ("import tinygrad_sparse as ts", "nn.linear", [PACKAGE]),
        ("from tinygrad_sparse import parameter", "nn.linear", [PACKAGE]),
        ("from ..nn import Module", "optim.rules", ["nn"]),
        ("from tinygrad_sparse import optim", "nn.module", ["optim"]),
        ("try:\n    pass\nexcept E:\n    from .backward import b", "slices", ["backward"]),
        ("class A:\n    from tinygrad_sparse import testing", "ops.rows", ["testing"]),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    from .nn import Module", "tape", ["nn"]),
        ("from .functional import grad", "tape", []),
        ("from .shape import reshape", "ops.rows", []),
        ("from tinygrad_sparse import ops", "nn.losses", []),
        ("def f():\n    from .nn import Module", "tape", []),
        ("if TYPE_CHECKING:\n    from .nn import Module", "tape", []),
        ("import numpy.testing", "errors", []),
    ],
)  # fmt: skip
def test_the_floor_check_itself(source, module, found):
    assert [part for _, part in upward(source, (PACKAGE, *module.split(".")))] == found


@pytest.mark.parametrize(
    ("source", "asks"),
    [
        ("type(g) is IndexedSlices", True),
        ("type(g) is not slices.IndexedSlices", True),
        ("isinstance(g, (int, IndexedSlices))", True),
        ("match g:\n    case IndexedSlices():\n        pass", True),
        ("IndexedSlices(ids, values, shape)", False),
        ("is_sparse(g)", False),
    ],
)
def test_the_type_test_check_itself(source, asks):
    assert bool(type_tests(source)) == asks
