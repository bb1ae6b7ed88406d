"""A pytest plugin: laws as tests, and one line a law at the end. Floor 6.

Opt in with ``pytest_plugins = ["tinygrad_sparse.testing.pytest"]`` in the topmost conftest.py.
There is no entry point, so nobody pays for it unasked. A test module with a list CASES and a test
that takes `case` and `law` then has a test for each pair:

    CASES = [Case(cube, [normal(5, 3)], commutes=(0,))]

    def test_law(case, law):
        law(case)

A number recorded as "planted faults" by ``record_property`` is added up and printed below the laws.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from .laws import LAWS


def pytest_generate_tests(metafunc: Any) -> None:
    """Every law on every case of the module."""
    if {"case", "law"} <= set(metafunc.fixturenames):
        metafunc.parametrize("case", metafunc.module.CASES, ids=str)
        metafunc.parametrize("law", LAWS, ids=lambda law: law.__name__)


def pytest_itemcollected(item: Any) -> None:
    """Send the law's name along with the report, from whichever process runs the test."""
    law = getattr(item, "callspec", None) and item.callspec.params.get("law")
    if law in LAWS:
        item.user_properties.append(("law", law.__name__))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line a law: how many cases, how many failed, what it says."""
    counts: dict[str, Counter[str]] = {outcome: Counter() for outcome in ("passed", "failed")}
    faults = 0
    for outcome, counted in counts.items():
        for report in terminalreporter.stats.get(outcome, []):
            properties = dict(getattr(report, "user_properties", ()))
            counted[properties.get("law", "")] += 1
            faults += properties.get("planted faults", 0)
    ran = [law for law in LAWS if counts["passed"][law.__name__] + counts["failed"][law.__name__]]
    if ran or faults:
        terminalreporter.section("laws of tinygrad_sparse")
    for law in ran:
        passed, failed = (counts[outcome][law.__name__] for outcome in ("passed", "failed"))
        verdict = f"{failed} of {passed + failed} FAILED" if failed else f"{passed} cases"
        promise = (law.__doc__ or "").partition("\n")[0]
        terminalreporter.line(f"{law.__name__:<24}{verdict:<18}{promise}")
    if faults:
        terminalreporter.line(f"{'planted faults':<24}{faults:<18}Every one was seen by a law.")
