"""How good are vectors? Word pairs that people have judged, and analogies, in their usual files."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from .keyed_vectors import KeyedVectors

AMONG = 30_000  # words among which the answer to an analogy is looked for


class PairScore(NamedTuple):
    """Spearman's ρ between cosines and people's judgements, over the pairs of known words."""

    rho: float
    used: int
    total: int
    unknown: list[str]  # words of the file without a vector


class AnalogyScore(NamedTuple):
    """How many analogies of a section were completed right, of those whose words are known."""

    section: str
    right: int
    asked: int
    total: int


def rows_of(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a UTF-8 file that say something: no empty ones, no `#` comments.

    Raises ValueError for another encoding, with the line.
    """
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                got = f"line {number}: expected UTF-8, got {raw[:40]!r}"
                raise ValueError(f"{path}, {got}") from error
            if line and not line.startswith("#"):
                yield number, line


def known(kv: KeyedVectors, words: Iterable[str]) -> list[str | None]:
    """Each word as the vocabulary has it, as it is or in lower case; None if it does not."""
    return [next((w for w in (word, word.lower()) if w in kv), None) for word in words]


def with_vectors(kv: KeyedVectors, words: Iterable[str]) -> list[str | None]:
    """As `known`; words outside the vocabulary as they are, if their n-grams make them a vector."""
    words = list(words)
    found = zip(words, known(kv, words), strict=True)
    return [k if k is not None or not kv.has_vector(w) else w for w, k in found]


def word_pairs(kv: KeyedVectors, path: Path) -> PairScore:
    """Judge by a file of lines "word <tab> word <tab> judgement ...", as WordSim-353 has them.

    Commas will do for tabs. A first line whose third field is no number is taken for a heading.
    """
    judged, cosines, unknown, total = [], [], set(), 0
    for place, (number, line) in enumerate(rows_of(path)):
        fields = [field.strip() for field in line.split("\t" if "\t" in line else ",")]
        try:
            judgement = float(fields[2])
            if not math.isfinite(judgement):
                raise ValueError
        except (IndexError, ValueError):
            if place == 0:
                continue
            got = f"line {number}: expected two words and a number, got {line[:60]!r}"
            raise ValueError(f"{path}, {got}") from None
        total += 1
        a, b = with_vectors(kv, fields[:2])
        unknown.update(w for w, k in zip(fields, (a, b), strict=False) if k is None)
        if a is not None and b is not None:
            judged.append(judgement)
            cosines.append(kv.similarity(a, b))
    if not total:
        raise ValueError(f"{path}: expected lines of two words and a number, got none")
    several = len(set(judged)) > 1 and len(set(cosines)) > 1
    rho = float(spearmanr(judged, cosines).statistic) if several else float("nan")
    return PairScore(rho, len(judged), total, sorted(unknown))


def analogies(kv: KeyedVectors, path: Path, among: int | None = AMONG) -> list[AnalogyScore]:
    """Complete a : b = c : ? for lines "a b c d" under headings ": section", section by section.

    The answer is the word nearest to b - a + c (unit vectors; Mikolov et al., 2013), of the `among`
    most frequent; those three are no answers. Questions with other words are not asked.
    """
    sections: list[tuple[str, list[list[str | None]]]] = []
    for number, line in rows_of(path):
        if line.startswith(":"):
            sections.append((line[1:].strip(), []))
            continue
        words = line.split()
        if len(words) != 4 or not sections:
            wanted = "four words under a heading" if len(words) == 4 else "four words"
            raise ValueError(f"{path}, line {number}: expected {wanted}, got {line[:60]!r}")
        sections[-1][1].append(known(kv, words))
    if not any(asked for _, asked in sections):
        raise ValueError(f"{path}: expected lines of four words under headings, got none")
    return [AnalogyScore(name, *_right(kv, asked, among), len(asked)) for name, asked in sections]


def _right(
    kv: KeyedVectors, questions: list[list[str | None]], among: int | None
) -> tuple[int, int]:
    """How many of the questions are answered right, and how many can be asked."""
    ids = np.array([[kv.index[w] for w in q] for q in questions if None not in q], np.int64)
    ids = ids.reshape(-1, 4)
    ids = ids[ids.max(axis=1, initial=-1) < len(kv.unit[:among])]
    a, b, c, d = ids.T
    unit = kv.unit
    answers = kv.nearest(unit[b] - unit[a] + unit[c], ids[:, :3], 1, among)
    right = [
        bool(found) and kv.index[found[0][0]] == i for found, i in zip(answers, d, strict=True)
    ]
    return sum(map(bool, right)), len(ids)
