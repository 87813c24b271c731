"""The passages of a Python module: docstrings, comments, messages, help texts and the names of tests."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import replace

from tools.prose.passages import CODE, Kind, Passage, Reading, blocks, exemptions_of, plain

_MESSAGE_KEYWORDS = frozenset({"remedy", "help", "description", "doc", "summary", "short_help", "epilog", "reason"})
_LOGGED = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_PRINTED = frozenset({"echo", "secho", "print"})
_OPTIONS = frozenset({"ConfigOption", "Option", "Argument"})
_NO_PROSE = re.compile(r"\s*(?:type:|noqa|pragma|ruff:|mypy:|prose:|pyright:|fmt:|!|-\*-|:)")
_CODE_LINE = re.compile(r"^\s*(?:[\w.]+ ?=[^=]|[\w.]+\(|import |from \w+ import|return |def |@)")
_COMMENT = re.compile(r"""^((?:[^#'"]|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")*)#(.*)$""")
_PROPERTY = re.compile(r"property|attr|fixture|provide")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def read_python(text: str) -> Reading:
    """Return the passages of a module. A module that cannot be parsed raises `SyntaxError`."""
    reader = _Reader(text)
    reader.read(ast.parse(text))
    passages = [*reader.passages, *_comments(text, reader.strings)]
    lines = text.split("\n")
    marks = [mark for mark in exemptions_of(text) if _is_comment(lines[mark.line - 1], mark.line, reader.strings)]
    return Reading(tuple(sorted(passages, key=lambda passage: passage.line)), tuple(marks), tuple(lines))


def _is_comment(line: str, number: int, strings: list[tuple[int, int, int]]) -> bool:
    """Return whether the marker on a line is in a comment, and not in a string."""
    if any(first <= number < last for first, last, _ in strings):
        return False
    start = next((column for _, last, column in strings if last == number), 0)
    comment = _COMMENT.match(line[start:])
    return comment is not None and "prose: allow" in comment[2]


class _Reader:
    def __init__(self, text: str) -> None:
        self.passages: list[Passage] = []
        self.strings: list[tuple[int, int, int]] = []
        """Strings of several lines: first line, last line, and the column after the end."""
        self._messages: set[int] = set()

    def read(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr):
                self._string(node)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Raise):
                if isinstance(node.exc, ast.Call):
                    self._texts([*node.exc.args, *(word.value for word in node.exc.keywords)])
            elif isinstance(node, ast.Module | ast.ClassDef | _Function):
                self._body(node)

    def _string(self, node: ast.Constant | ast.JoinedStr) -> None:
        is_text = isinstance(node, ast.JoinedStr) or isinstance(node.value, str | bytes)
        if is_text and node.end_lineno is not None and node.end_lineno > node.lineno:
            self.strings.append((node.lineno, node.end_lineno, node.end_col_offset or 0))

    def _body(self, node: ast.Module | ast.ClassDef | _Function) -> None:
        is_test = isinstance(node, _Function) and node.name.startswith("test")
        if is_test and isinstance(node, _Function):
            self.passages.append(Passage(node.lineno, Kind.TEST_NAME, node.name.replace("_", " "), node.lineno))
        previous: ast.stmt | None = None
        for place, statement in enumerate(node.body):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                value = statement.value.value
                describes = place == 0 or isinstance(previous, ast.Assign | ast.AnnAssign)
                if isinstance(value, str) and describes:
                    kind = Kind.DOCSTRING
                    if place == 0 and isinstance(node, _Function) and not is_test and not _is_noun(node):
                        kind = Kind.FUNCTION_DOCSTRING
                    whole = (statement.lineno, statement.end_lineno or statement.lineno)
                    found = blocks(inspect.cleandoc(value), statement.lineno, kind)
                    self.passages += [replace(passage, block=whole) for passage in found]
            previous = statement

    def _call(self, node: ast.Call) -> None:
        name = ""
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
        elif isinstance(node.func, ast.Name):
            name = node.func.id
        if name in _LOGGED and isinstance(node.func, ast.Attribute) and "log" in ast.unparse(node.func.value).lower():
            self._texts(node.args[:2])
        elif name in _PRINTED or name in _OPTIONS:
            self._texts(node.args)
        self._texts([word.value for word in node.keywords if word.arg in _MESSAGE_KEYWORDS])

    def _texts(self, nodes: list[ast.expr]) -> None:
        for node in nodes:
            if isinstance(node, ast.IfExp):
                self._texts([node.body, node.orelse])
                continue
            text = _literal(node)
            if text is None or id(node) in self._messages:
                continue
            self._messages.add(id(node))
            words = plain(text)
            if len(re.findall(r"[a-z]{2,}", words)) >= 3 and not re.search(r"[{}<>]|==|SELECT|CREATE", words):
                self.passages.append(Passage(node.lineno, Kind.MESSAGE, words, node.end_lineno or node.lineno))


def _is_noun(node: _Function) -> bool:
    """Return whether a function reads like an attribute, so that its docstring may be a noun."""
    return any(_PROPERTY.search(ast.unparse(decorator)) for decorator in node.decorator_list)


def _literal(node: ast.expr) -> str | None:
    """Return the text of a string or an f-string, with one word for each value; None for anything else."""
    if isinstance(node, ast.Constant):
        return re.sub(r"%(?:\(\w+\))?[-+.\d]*[sdrfxg]", CODE, node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else CODE
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        left = _literal(node.left)
        return left if left is None or isinstance(node.op, ast.Mod) else left + (_literal(node.right) or CODE)
    return None


def _comments(text: str, strings: list[tuple[int, int, int]]) -> list[Passage]:
    """Return the comments. Comments on lines that follow each other are one text."""
    inside = {line for first, last, _ in strings for line in range(first, last)}
    behind = {last: column for _, last, column in strings}
    found: list[Passage] = []
    run: list[str] = []
    begin = 0

    def end() -> None:
        nonlocal run
        if run:
            found.extend(blocks(inspect.cleandoc("\n" + "\n".join(run)), begin, Kind.COMMENT))
        run = []

    for number, line in enumerate(text.split("\n"), start=1):
        if "#" not in line or number in inside:
            end()
            continue
        if number in behind:
            line = " " * behind[number] + line.encode()[behind[number] :].decode(errors="replace")
        matched = _COMMENT.match(line)
        if matched is None or _NO_PROSE.match(matched[2]):
            end()
        elif matched[1].strip() or number in behind:
            end()
            words = plain(matched[2])
            if words:
                found.append(Passage(number, Kind.TRAILING_COMMENT, words, number))
        elif _CODE_LINE.match(matched[2]):
            end()
        else:
            if not run:
                begin = number
            run.append(matched[2])
    end()
    return found
