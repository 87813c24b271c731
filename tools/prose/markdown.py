"""The passages of a Markdown page: headings, paragraphs, list items and the cells of tables. Code is left out."""

from __future__ import annotations

import re

from tools.prose.passages import Kind, Passage, Reading, exemptions_of, plain

_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r"^#{1,6}\s+(.*)$")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(.*)$")
_RULE = re.compile(r"^[\s|:-]+$")


def read_markdown(text: str) -> Reading:
    """Return the passages of a page."""
    found: list[Passage] = []
    lines: list[str] = []
    begin = 0
    kind = Kind.PARAGRAPH
    fenced = False
    table = 0

    def end(last: int) -> None:
        nonlocal lines
        words = plain("\n".join(lines))
        if words:
            found.append(Passage(begin, kind, words, last))
        lines = []

    for number, raw in enumerate(text.split("\n"), start=1):
        if _FENCE.match(raw):
            end(number - 1)
            fenced = not fenced
        elif fenced:
            continue
        elif not raw.strip():
            end(number - 1)
        elif raw.startswith("    ") and not lines and not _ITEM.match(raw):
            continue
        elif heading := _HEADING.match(raw):
            end(number - 1)
            found.append(Passage(number, Kind.HEADING, plain(heading[1]), number))
        elif raw.lstrip().startswith("|"):
            end(number - 1)
            table = table or number
            found.extend(_cells(raw, number, table))
            continue
        elif item := _ITEM.match(raw):
            end(number - 1)
            begin, kind, lines = number, Kind.ITEM, [item[1]]
        elif lines:
            lines.append(raw.strip().removeprefix(">"))
        else:
            begin, kind, lines = number, Kind.PARAGRAPH, [raw.strip().removeprefix(">")]
        table = 0
    end(text.count("\n") + 1)
    return Reading(tuple(found), exemptions_of(text), tuple(text.split("\n")))


def _cells(row: str, number: int, table: int) -> list[Passage]:
    if _RULE.match(row):
        return []
    cells = (plain(cell) for cell in re.split(r"(?<!\\)\|", row.strip().strip("|")))
    kind = Kind.HEADING if number == table else Kind.FRAGMENT
    return [Passage(number, kind, cell, number, block=(table, number)) for cell in cells if " " in cell]
