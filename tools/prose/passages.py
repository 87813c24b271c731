"""A passage is one text that a person reads: a paragraph, a list item, a docstring, a comment, a message, a test name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The place of a passage, which decides which rules apply to the passage."""

    PARAGRAPH = "paragraph"
    ITEM = "list item"
    FRAGMENT = "table cell or argument"
    HEADING = "heading"
    DOCSTRING = "docstring"
    FUNCTION_DOCSTRING = "docstring of a function"
    COMMENT = "comment"
    TRAILING_COMMENT = "comment behind code"
    MESSAGE = "message"
    TEST_NAME = "test name"


@dataclass(frozen=True)
class Passage:
    """One text with the line of its file on which it starts and ends (from 1)."""

    line: int
    kind: Kind
    text: str
    last_line: int = 0
    starts: bool = True
    """False for the later paragraphs of a docstring. Their first word is not the docstring's."""
    block: tuple[int, int] = (0, 0)
    """First and last line of the table or docstring that the passage is a part of."""


@dataclass(frozen=True)
class Exemption:
    """A marker `prose: allow RULE, RULE: REASON`.

    After other text it covers the passage of that line. On a separate line it covers the passage below it, or the whole
    table or docstring below it.
    """

    line: int
    is_alone: bool
    rules: frozenset[str]
    reason: str


@dataclass(frozen=True)
class Reading:
    """The passages and exemptions of one file."""

    passages: tuple[Passage, ...]
    exemptions: tuple[Exemption, ...] = ()
    lines: tuple[str, ...] = ()

    @staticmethod
    def covers(mark: Exemption, passage: Passage) -> bool:
        """Return whether an exemption is beside a passage."""
        first, last = passage.block
        if mark.is_alone:
            return mark.line + 1 in {passage.line, first}
        return passage.line <= mark.line <= passage.last_line or mark.line == last

    def line_of(self, passage: Passage, sentence: str) -> int:
        """Return the line on which a sentence of a passage starts; the passage's line if that is not clear."""
        start = sentence.partition(CODE)[0].split()[:3]
        for words in (start, start[:2]):
            shown = " ".join(words)
            for line in range(passage.line, passage.last_line + 1):
                if len(shown) > 3 and shown in self.lines[line - 1]:
                    return line
        return passage.line


_MARKER = re.compile(
    r"(?<!`)(?:#|//|<!--)\s*prose: allow ([a-z, -]*[a-z])(?::[ \t]*([^\n]*?))?[ \t]*(?:-->|$)", re.MULTILINE
)
_LIST = re.compile(r"(?:[-*+•]|\d+[.)])\s+|[\w.`/-]+(?: [\w.`/-]+)? {2,}(?=\S)")
_DIAGRAM = re.compile(r"[─-╿▀-◿←-⇿]|\+--|-->|==>|\|\s.*\||^\s*(?:>>>|\.\.\. )")
_SECTION = re.compile(r"(Args|Arguments|Attributes|Returns|Raises|Yields|Example|Examples|Note|Notes|Warning):$")
_ENTRY = re.compile(r"[`*]{0,2}[\w.*]+`{0,2}(?: \([^)]*\))?: +(?=\S)")
CODE = "Code1"
"""A placeholder for text in backquotes or braces: one word that no rule knows."""


def exemptions_of(text: str) -> tuple[Exemption, ...]:
    """Return the markers of a file."""
    if "prose: allow" not in text:
        return ()
    return tuple(
        Exemption(
            text.count("\n", 0, found.start()) + 1,
            not text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip(),
            frozenset(re.split(r",\s*", found[1])),
            (found[2] or "").strip(),
        )
        for found in _MARKER.finditer(text)
    )


def plain(text: str) -> str:
    """Return the text without markup: code becomes one word, a link its label."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"(`+)(.+?)\1", CODE, text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", text)
    text = re.sub(r"<?https?://[^\s>)]+>?", CODE, text)
    text = re.sub(r"(?<!\w)[*_]{1,3}(?=[^\s*_])|(?<=[\w.!?,;:)'\"])[*_]{1,3}(?!\w)", "", text)
    return " ".join(text.split())


def blocks(text: str, line: int, kind: Kind) -> list[Passage]:
    """Split the text of a docstring or a comment into paragraphs, list items and entries such as `name: text`.

    Diagrams, tables, examples and code are left out.

    Args:
        text: without the indentation of its surroundings.
        line: the line of the file on which the text starts.
    """
    splitter = _Splitter(kind)
    for number, raw in enumerate(text.expandtabs().split("\n"), start=line):
        splitter.add(number, raw)
    splitter.end(line + text.count("\n"))
    return splitter.found


class _Splitter:
    """The passages of a text so far, and the passage that the next line may continue."""

    def __init__(self, kind: Kind) -> None:
        self.found: list[Passage] = []
        self._kind = self._current = kind
        self._lines: list[str] = []
        self._begin = 0
        self._section = ""
        self._code_indent: int | None = None
        """Lines with at least this indentation are code."""
        self._is_fenced = False

    def add(self, number: int, raw: str) -> None:
        """Read the next line of the text."""
        stripped = raw.strip()
        indent = len(raw) - len(raw.lstrip())
        if self._is_left_out(number, raw, stripped, indent):
            return
        if _SECTION.match(stripped):
            self.end(number - 1)
            self._section = stripped
            return
        if self._section and indent == 0:
            self._section = ""
            self.end(number - 1)
        self._add_words(number, stripped, indent)
        if self._lines and stripped.endswith("::"):
            self.end(number)
            self._code_indent = indent + 1

    def end(self, last: int) -> None:
        """End the current passage at a line."""
        words = plain(" ".join(self._lines))
        if words:
            self.found.append(Passage(self._begin, self._current, words, last, starts=not self.found))
        self._lines = []

    def _is_left_out(self, number: int, raw: str, stripped: str, indent: int) -> bool:
        """Return whether the line is empty, code or part of a diagram. Such a line ends the passage before it."""
        if stripped.startswith(("```", "~~~")):
            self.end(number - 1)
            self._is_fenced = not self._is_fenced
            return True
        if self._is_fenced:
            return True
        if not stripped:
            self.end(number - 1)
            return True
        if self._code_indent is not None and indent >= self._code_indent:
            return True
        self._code_indent = None
        if stripped.startswith(">>>"):
            self.end(number - 1)
            self._code_indent = indent
            return True
        if _DIAGRAM.search(raw) or re.fullmatch(r"[-=~+|: ]+", stripped):
            self.end(number - 1)
            return True
        return False

    def _add_words(self, number: int, stripped: str, indent: int) -> None:
        """Start a list item, an entry or a paragraph, or continue the current passage."""
        section = self._section
        if _LIST.match(stripped):
            self._start(number, Kind.ITEM, _LIST.sub("", stripped, count=1))
        elif (section and section not in {"Returns:", "Yields:"} and _ENTRY.match(stripped)) or (
            section and not self._lines
        ):
            self._start(number, Kind.FRAGMENT, _ENTRY.sub("", stripped, count=1))
        elif self._lines:
            self._lines.append(stripped)
        elif indent >= 4 and self._kind is not Kind.COMMENT and not section:
            self._code_indent = indent
        else:
            self._start(number, self._kind, stripped)

    def _start(self, number: int, kind: Kind, words: str) -> None:
        self.end(number - 1)
        self._begin, self._current, self._lines = number, kind, [words]
