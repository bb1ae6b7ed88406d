"""Pages made from the code are as new as the code."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_operator_table_is_up_to_date():
    made = runpy.run_path(str(DOCS / "make_operators.py"))["page"]()
    assert (DOCS / "operators.md").read_text(encoding="utf-8") == made, (
        "run: python docs/make_operators.py"
    )
