"""Write docs/operators.md from the declarations: nothing in that page is typed by hand.

    python docs/make_operators.py

A test fails when the page is older than the code.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tinygrad_sparse import ops

PAGE = Path(__file__).with_name("operators.md")

INTRODUCTION = """# Operators

Made from the declarations in `tinygrad_sparse/ops` by `docs/make_operators.py`.

- **VJP**: the cotangent of each differentiable argument, from `g`, the cotangent of the result
  `out`. "–": no gradient flows to this argument. A broadcast argument's cotangent is summed over
  the axes along which it was stretched; that is the engine's and not written here.
- **Rows**: what becomes of a row-sparse `g`. *elementwise*: stays sparse for every argument that
  has a row for each row of the result; one that all rows share gets a dense cotangent of its own
  (small) shape. *rowwise (r, s)*: likewise, r being an argument with rows and s a shared one.
  *reindexed*: the ids are rewritten, the rows move with the op.
- **Turns dense**: when a row-sparse `g` becomes a dense one, which the Tape notes, warns of or
  refuses. Tests hold both columns to what the ops do: of some rows in, exactly those that they
  depend on come out, and nothing turns dense that is not said to.
- **Kinks**: points without a derivative, and the value taken there for an upstream of ones.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for module in ops.MODULES:
        parts.append(f"\n## {(module.__doc__ or '').partition('. ')[0].rstrip('.')}\n")
        columns = ("op", "NumPy", "what", "VJP", "rows", "turns dense", "kinks")
        parts.append(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
        sources = declarations(module)
        for name, f in ops.declared(module).items():
            if f.__name__ == name:
                parts.append(row(name, f, module, sources))
    return "\n".join(parts) + "\n"


def row(name: str, f: Any, module: ModuleType, sources: dict[str, ast.FunctionDef]) -> str:
    """One op's line."""
    others = [n for n, g in ops.declared(module).items() if g is f and n != name]
    label = f"`{name}`" + "".join(f", `{n}`" for n in others)
    what = cell((inspect.getdoc(f) or "").split("\n\n")[0].replace("\n", " "))
    # A function that checks its arguments for an op of the same name is that op.
    declared = name if hasattr(f, "op") else f"_{name}"
    op = getattr(getattr(module, declared, None), "op", None)
    if op is None:
        vjp = f"composed of {calls(sources[name], module, sources)}"
        rows = dense = "as its parts"
    else:
        vjp, rows, dense = vjps(sources[declared], sources), rule(op), turns_dense(op)
    kinks = "; ".join(kink(k) for k in getattr(f, "kinks", ()))
    return f"| {label} | {numpy_name(name)} | {what} | {vjp} | {rows} | {dense} | {kinks} |"


def numpy_name(name: str) -> str:
    """NumPy's name for it, if there is one."""
    for prefix, namespace in (("np", np), ("np.linalg", np.linalg)):
        if hasattr(namespace, name):
            return f"`{prefix}.{name}`"
    return ""


def declarations(module: ModuleType) -> dict[str, ast.FunctionDef]:
    """The functions of a module as syntax, by name."""
    tree = ast.parse(inspect.getsource(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def vjps(node: ast.FunctionDef, sources: dict[str, ast.FunctionDef]) -> str:
    """The `vjp=` of a declaration: lambdas written out, named rules by their last line."""
    (value,) = (
        keyword.value
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
        if keyword.arg == "vjp"
    )
    rules = value.elts if isinstance(value, ast.Tuple) else [value]
    return ";<br>".join(formula(r, sources) for r in rules)


def formula(rule: ast.expr, sources: dict[str, ast.FunctionDef]) -> str:
    """A VJP as text."""
    if isinstance(rule, ast.Constant) and rule.value is None:
        return "–"
    if isinstance(rule, ast.Lambda):
        return code(rule.body)
    if isinstance(rule, ast.Name) and rule.id in sources:
        *steps, last = [n for n in sources[rule.id].body if not is_docstring(n)]
        straight = all(isinstance(n, ast.Assign) for n in steps)
        if straight and isinstance(last, ast.Return) and last.value is not None:
            where = ", ".join(code(n) for n in steps)
            return code(last.value) + (f" with {where}" if where else "")
        return f"by cases: `{rule.id}`"
    return code(rule)


def is_docstring(node: ast.stmt) -> bool:
    """True for a string that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def calls(node: ast.FunctionDef, module: ModuleType, sources: dict[str, ast.FunctionDef]) -> str:
    """The ops that a composed one calls, by itself and through helpers beside it."""
    found: dict[str, None] = {}
    todo, seen = [node], {node.name}
    while todo:
        for call in ast.walk(todo.pop(0)):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
                continue
            name = call.func.id
            f, public = getattr(module, name, None), name.strip("_")
            if (
                public != node.name
                and public in ops.__all__
                and (hasattr(f, "op") or f is getattr(ops, public))
            ):
                found[public] = None
            elif name in sources and name not in seen:
                seen.add(name)
                todo.append(sources[name])
    return ", ".join(f"`{n}`" for n in found) or "array operations"


def rule(op: Any) -> str:
    """The row rule in words."""
    return "–" if op.rows is None else cell(op.rows.describe())


def turns_dense(op: Any) -> str:
    """When a row-sparse cotangent does not stay so, in words."""
    if not any(op.vjp[k] for k in range(1 if op.variadic else len(op.vjp))):
        return "no gradient"
    return "always" if op.rows is None else cell(op.rows.dense)


def kink(k: Any) -> str:
    """A kink as `point → cotangents`."""
    static = ", ".join(f"{n}={v!r}" for n, v in k.static.items())
    point = ", ".join(str(a) for a in k.args) + (f", {static}" if static else "")
    values = ", ".join("–" if c is None else str(c) for c in k.cotangents)
    return f"{point} → {values}"


def code(node: ast.AST) -> str:
    """An expression in code font, safe inside a table."""
    return "`" + ast.unparse(node).replace("|", "\\|") + "`"


def cell(text: str) -> str:
    """Text that is safe inside a table."""
    return text.replace("|", "\\|").replace("\\*", "*")


if __name__ == "__main__":
    main()
