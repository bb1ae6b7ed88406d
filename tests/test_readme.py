"""The examples in README.md and docs/ run, and print what they say they print."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PRINTS = re.compile(r"^ *print\(.*\) +# -> (.*?) *$", re.MULTILINE)


def run(text: str, name: str) -> None:
    """Run the python blocks of a page, one after the other, in one namespace."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        above = text.count("\n", 0, block.start(1))  # so that a traceback names the page's line
        exec(compile("\n" * above + block[1], name, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_run(page, capsys):
    text = page.read_text(encoding="utf-8")
    run(text, str(page))
    promised = [line for block in BLOCK.findall(text) for line in PRINTS.findall(block)]
    assert capsys.readouterr().out.splitlines() == promised


def test_a_broken_example_is_noticed():
    with pytest.raises(ZeroDivisionError) as error:
        run("text\n\n```python\nx = 0\n```\n\n```python\n1 / x\n```\n", "page.md")
    assert error.traceback[-1].lineno == 7  # counted from 0


def test_readme_opens_with_the_two_commands_and_an_example():
    text = PAGES[0].read_text(encoding="utf-8")
    first = re.search(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert [line.split("#")[0].strip() for line in first[1].splitlines()] == [
        "make demo",
        "make test",
    ]
    assert BLOCK.search(text)
