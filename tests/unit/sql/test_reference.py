"""docs/sql.md lists what the code implements. `UPDATE_GOLDEN=1` writes the list."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.sql.reference import as_markdown

PAGE = Path(__file__).parents[3] / "docs" / "sql.md"
BEGIN, END = "<!-- generated: penstock.sql.reference -->\n", "<!-- end -->"


def test_the_page_lists_what_the_code_implements():
    before, _, rest = PAGE.read_text().partition(BEGIN)
    listed, _, after = rest.partition(END)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(f"{before}{BEGIN}\n{as_markdown()}\n{END}{after}")
        return
    assert listed == f"\n{as_markdown()}\n"
