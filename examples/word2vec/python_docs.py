"""The running Python's own documentation as a corpus, for whoever has no text at hand.

It is real prose, about half a million words, and every machine that can run this example already
holds it. Source files are parsed with `ast`, never imported, so nothing of the standard library
runs, and the text depends on the Python version alone.
"""

import ast
import os
import re
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from .corpus import Sentence, split_sentences

# A `#` line inside a string matches too. That is documentation of the same kind, and this scan
# takes a twentieth of the time of `tokenize`.
COMMENT = re.compile(r"^[ \t]*#[!:#]*(.*)\n?", re.MULTILINE)
COMMENT_BLOCK = re.compile(r"(?:^[ \t]*#.*\n?)+", re.MULTILINE)

# Tests repeat boilerplate; `encodings` is one generated module many times over.
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings"}


def python_docs() -> Iterator[Sentence]:
    """Sentences of the running Python's help topics, docstrings and comment blocks."""
    library = Path(sysconfig.get_path("stdlib"))
    for text in help_topics(library / "pydoc_data" / "topics.py"):
        yield from split_sentences(text)
    for path in tqdm(source_files(library), desc="reading", unit=" files", delay=1):
        if (source := read_source(path)) is not None:
            for text in (*docstrings(source), *comment_blocks(source)):
                yield from split_sentences(text)


def source_files(library: Path) -> list[Path]:
    """The modules under a folder in sorted order, without tests and installed packages."""
    paths = []
    for folder, subfolders, names in os.walk(library):
        subfolders[:] = [name for name in subfolders if name not in SKIPPED]
        paths += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(paths)


def read_source(path: Path) -> str | None:
    """The text of a module in its declared encoding; None if it is not to be read as such."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def help_topics(path: Path) -> list[str]:
    """What `help("...")` shows for each topic; nothing where a split Python lacks the file."""
    source = read_source(path) or ""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics = ast.literal_eval(node.value)
            return [topics[name] for name in sorted(topics)]
    return []


HAS_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
HOLDS_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


def docstrings(source: str) -> Iterator[str]:
    """The docstrings of a module, its classes and functions; none if it is not valid Python."""
    try:
        todo: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError, RecursionError):
        return
    while todo:
        node = todo.pop()
        if isinstance(node, HAS_DOCSTRING) and (text := ast.get_docstring(node)):
            yield text
        # Definitions stand in statements: leaving expressions out saves two thirds of the walk.
        children = [n for n in ast.iter_child_nodes(node) if isinstance(n, HOLDS_STATEMENTS)]
        todo += reversed(children)


def comment_blocks(source: str) -> Iterator[str]:
    """Each run of comment lines as one text, without the `#` signs."""
    for block in COMMENT_BLOCK.findall(source):
        yield COMMENT.sub(r"\1\n", block)
