"""`split`: the statements of an SQL text. A semicolon in a string, a comment or a statement set ends no statement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*(?!\+).*?(?:\*/|\Z))
    | (?P<hint>/\*\+.*?(?:\*/|\Z))
    | (?P<quoted>'(?:[^']|'')*(?:'|\Z)|`(?:[^`]|``)*(?:`|\Z))
    | (?P<word>[^\W\d]\w*)
    | (?P<end>;)
    | (?P<space>\s+)
    | (?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_BLOCK = ("STATEMENT", "SET", "BEGIN")
"""Words after which statements of a set follow, until END."""
_OLD_BLOCK = ("BEGIN", "STATEMENT", "SET")
"""The statement that begins a set in the form of older versions of Flink."""


@dataclass(frozen=True)
class Statement:
    """One statement without its semicolon.

    Args:
        text: from the first word on. Comments in front of it are removed.
        line, column: position of the first word in the whole text, from 1.
    """

    text: str
    line: int = 1
    column: int = 1

    @property
    def placed(self) -> str:
        """The statement after empty lines and spaces, so that a position in it is a position in the whole text.

        >>> Statement("SELECT 1", 2, 3).placed
        '\\n  SELECT 1'
        """
        return "\n" * (self.line - 1) + " " * (self.column - 1) + self.text


@dataclass(frozen=True)
class Split:
    """The complete statements of a text, and the rest after the last semicolon.

    Args:
        rest: the last statement, whose semicolon is missing; None if only spaces and comments follow the last semicolon.
        is_open: whether the text ends inside of a string or a comment.
    """

    statements: list[Statement]
    rest: Statement | None
    is_open: bool = False

    @property
    def all(self) -> list[Statement]:
        """All statements. The last statement of a script needs no semicolon."""
        return [*self.statements, *([self.rest] if self.rest else [])]


def split(text: str) -> Split:
    """Split a text into its statements.

    >>> [statement.text for statement in split("SET 'a' = ';'; -- a; b\\nSELECT 1").all]
    ["SET 'a' = ';'", 'SELECT 1']
    >>> split("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END;").rest is None
    True
    """
    found: list[Statement] = []
    start: int | None = None
    words: list[str] = []
    """The words and semicolons of the current statement."""
    is_open = False
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        is_open = _is_open(kind, token[0])
        if kind in ("space", "comment"):
            continue
        if kind == "end" and start is None:
            continue  # an empty statement
        if kind == "end" and not _is_in_block(words):
            found.append(_statement(text, start or 0, token.start()))
            start, words = None, []
            continue
        start = token.start() if start is None else start
        words.append(token[0].upper() if kind in ("word", "end") else "?")
    rest = None if start is None else _statement(text, start, len(text))
    return Split(found, rest, is_open)


def _is_open(kind: str | None, token: str) -> bool:
    if kind == "quoted":
        return len(token) == 1 or token[-1] != token[0] or token.count(token[0]) % 2 == 1
    return kind in ("comment", "hint") and token.startswith("/*") and not (token.endswith("*/") and len(token) > 3)


def _is_in_block(words: list[str]) -> bool:
    """Return whether a semicolon after these words separates statements of a set."""
    is_block = tuple(words[:3]) == _OLD_BLOCK or any(
        tuple(words[i : i + 3]) == _BLOCK for i in _indexes(words, "STATEMENT")
    )
    return is_block and words[-2:] != [";", "END"]


def _indexes(words: list[str], word: str) -> Iterator[int]:
    return (index for index, found in enumerate(words[:12]) if found == word)


def _statement(text: str, start: int, end: int) -> Statement:
    line = text.count("\n", 0, start) + 1
    return Statement(text[start:end].rstrip(), line, start - text.rfind("\n", 0, start))
