"""The examples in README.md and on every page of docs/ run, and print what the page says.

What a block prints is promised in one of two ways: ``print(...)  # -> text`` on a line, or a
```text block right below it, whose lines may be broken anywhere between words.
"""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
PRINTS = re.compile(r"^ *print\(.*\) +# -> (.*?) *$", re.MULTILINE)


def run(text: str, name: str) -> None:
    """Run the python blocks of a page, one after the other, in one namespace."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        above = text.count("\n", 0, block.start(1))  # so that a traceback names the page's line
        code = compile("\n" * above + block[1], name, "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        promised = "\n".join([*PRINTS.findall(block[1]), block[2] or ""])
        assert printed.getvalue().split() == promised.split(), f"{name}, line {above + 1}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_run(page, request):
    text = page.read_text(encoding="utf-8")
    if '="cuda"' in "".join(block[1] for block in BLOCK.finditer(text)):
        request.getfixturevalue("gpu")
    run(text, str(page))


def test_a_broken_example_is_noticed():
    with pytest.raises(ZeroDivisionError) as error:
        run("text\n\n```python\nx = 0\n```\n\n```python\n1 / x\n```\n", "page.md")
    assert error.traceback[-1].lineno == 7  # counted from 0


@pytest.mark.parametrize(
    ("page", "right"),
    [
        ("```python\nprint(1)  # -> 1\n```\n", True),
        ("```python\nprint(1)  # -> 2\n```\n", False),
        ("```python\nprint(1)\n```\n", False),
        ("```python\nprint('a b c')\n```\n\n```text\na b\nc\n```\n", True),
        ("```python\nprint('a b c')\n```\n\n```text\na b\n```\n", False),
        ("```python\nx = 1\n```\n\nprose\n\n```text\nno promise\n```\n", True),
    ],
)
def test_a_promise_is_kept_or_noticed(page, right):
    with contextlib.nullcontext() if right else pytest.raises(AssertionError, match=r"page\.md"):
        run(page, "page.md")


def test_readme_opens_with_the_two_commands_and_an_example():
    text = PAGES[0].read_text(encoding="utf-8")
    first = re.search(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert [line.split("#")[0].strip() for line in first[1].splitlines()] == [
        "make demo",
        "make test",
    ]
    assert BLOCK.search(text)
