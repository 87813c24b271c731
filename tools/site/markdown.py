"""Markdown as GitHub reads it, changed into the dialect of MkDocs. Pure functions on the text of a page."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^( *)((?:[-*+]|\d+\.) +)\S")
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def for_mkdocs(text: str) -> str:
    """Return a page whose lists MkDocs reads as GitHub does.

    MkDocs needs an empty line before a list, and four spaces for each level of a list.

    >>> print(for_mkdocs("Two colours:\\n- red\\n  - dark red"))
    Two colours:
    <BLANKLINE>
    - red
        - dark red
    """
    lines: list[str] = []
    contents: list[int] = []  # the column at which the text of each open list item begins
    was_code = False
    for line, is_code in _with_code(text):
        width = len(line) - len(line.lstrip(" "))
        item = None if is_code else _ITEM.match(line)
        if item:
            if not contents and lines and lines[-1].strip():
                lines.append("")
            contents = [content for content in contents if content <= width]
            line = " " * 4 * len(contents) + line[width:]
            contents.append(width + len(item[2]))
        elif line.strip() and contents and not (is_code and was_code):
            starts_block = is_code or not lines[-1].strip()
            if width >= contents[0] or starts_block:
                contents = [content for content in contents if content <= width]
            line = _inside(line, contents)
        elif is_code and was_code:
            line = _inside(line, contents)
        lines.append(line)
        was_code = is_code
    return "\n".join(lines)


def _inside(line: str, contents: list[int]) -> str:
    """Return a line of a list item, indented for MkDocs."""
    return " " * 4 * len(contents) + line[contents[-1] :] if contents and line[: contents[-1]].strip() == "" else line


def _with_code(text: str) -> Iterator[tuple[str, bool]]:
    """Return each line, and whether the line belongs to a fenced block of code."""
    inside = False
    for line in text.split("\n"):
        is_fence = _FENCE.match(line) is not None
        yield line, inside or is_fence
        inside ^= is_fence


def map_links(text: str, change: Callable[[str], str]) -> str:
    """Return the text with every relative link changed. Links in fenced code and links to other sites stay."""

    def changed(found: re.Match[str]) -> str:
        target = found[2]
        is_relative = "://" not in target and not target.startswith(("#", "mailto:"))
        return found[1] + (change(target) if is_relative else target) + found[3]

    return "\n".join(line if code else _LINK.sub(changed, line) for line, code in _with_code(text))


def page_of(path: str) -> str:
    """Return the page of the site that shows a file or folder of the repository, relative to the site.

    >>> page_of("docs/state.md"), page_of("README.md"), page_of("examples/fraud/job.py")
    ('state.md', 'index.md', 'source/examples/fraud/job.py.md')
    """
    special = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return special.get(path) or f"source/{path}.md"


def relink(text: str, home: str, page: str, is_page: Callable[[str], bool]) -> tuple[str, set[str]]:
    """Return a text of the repository for a page of the site, and the paths outside of `docs/` that it links.

    Args:
        home: folder of the text in the repository, such as `docs/operator`.
        page: page of the site that shows the text.
        is_page: whether a path in `docs/` is a file. Folders lead to the README in them.
    """
    outside: set[str] = set()

    def change(target: str) -> str:
        path, _, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(home, path))
        if place.startswith("docs/") and not is_page(place):
            place += "/README.md"
        elif not place.startswith("docs/"):
            outside.add(place)
        link = posixpath.relpath(page_of(place), posixpath.dirname(page) or ".")
        return f"{link}#{anchor}" if anchor and place.endswith(".md") else link

    return map_links(text, change), outside


def with_fenced_doctests(text: str) -> str:
    """Return a docstring whose examples are blocks of code. Markdown reads `>>>` as a quotation."""
    lines: list[str] = []
    indent: str | None = None
    for line in [*text.split("\n"), ""]:
        if indent is None and line.lstrip().startswith(">>> "):
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}```pycon")
        elif indent is not None and not line.strip():
            lines.append(f"{indent}```")
            indent = None
        lines.append(line)
    return "\n".join(lines[:-1])
