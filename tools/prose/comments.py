"""The passages of files that are neither Python nor Markdown: comments on separate lines, and descriptions in YAML."""

from __future__ import annotations

import inspect
import re

from tools.prose.passages import Kind, Passage, Reading, blocks, exemptions_of, plain

_SLASHES = re.compile(r"^\s*(?://+|/\*+|\*(?!/))\s?(.*?)(?:\*/)?\s*$")
_HASH = re.compile(r"^\s*#(?!!)+(.*)$")
_DESCRIBED = re.compile(r"^\s*-?\s*(?:description|summary|runbook|message): [\"']?(\w.*?)[\"']?$")
_NO_PROSE = re.compile(r"\s*(?:prose:|noqa|eslint|syntax=|shellcheck|@)")
_CODE = re.compile(r"^\s*(?:[\w.-]+:(?:\s|$)|- |\w+=|\})|;$")


def read_comments(text: str, suffix: str) -> Reading:
    """Return the comments of a file; `suffix` says how they are marked."""
    pattern = _SLASHES if suffix in {".java", ".js", ".css", ".go"} else _HASH
    found: list[Passage] = []
    run: list[str] = []
    begin = 0

    def end() -> None:
        nonlocal run
        if run:
            found.extend(blocks(inspect.cleandoc("\n" + "\n".join(run)), begin, Kind.COMMENT))
        run = []

    for number, line in enumerate(text.split("\n"), start=1):
        comment = pattern.match(line)
        if comment is None or _NO_PROSE.match(comment[1]) or _CODE.search(comment[1]):
            end()
            described = _DESCRIBED.match(line) if suffix in {".yaml", ".yml"} else None
            if described:
                words = plain(re.sub(r"\{\{.*?\}\}", "Code1", described[1]))
                found.append(Passage(number, Kind.MESSAGE, words, number))
            continue
        if not run:
            begin = number
        run.append(comment[1])
    end()
    return Reading(tuple(found), exemptions_of(text), tuple(text.split("\n")))
