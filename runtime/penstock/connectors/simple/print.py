"""`PrintSink`: prints every record as a line of the TaskManager's output."""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any

from penstock.common.type_info.flink_text import printed_text_of
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.common.typeinfo import TypeInformation


class PrintSink(Sink):
    """A sink that prints values with Flink's prefix.

    The prefix is `identifier:3> ` for subtask 3, and `3> ` without an identifier. If there is only one subtask, the prefix has no number.

    Args:
        sink_identifier: the beginning of each line.
        to_stderr: whether to print to the standard error stream.
        text: a function from a value to its text. The default is PyFlink's format for the declared type of the stream. If no type is
            declared, the default is `str`.
    """

    def __init__(
        self, sink_identifier: str = "", *, to_stderr: bool = False, text: Callable[[Any], str] | None = None
    ) -> None:
        self.sink_identifier = sink_identifier
        self.to_stderr = to_stderr
        self.text = text
        self._type_info: TypeInformation | None = None

    def with_input_type(self, type_info: TypeInformation) -> PrintSink:
        bound = copy.copy(self)
        bound._type_info = type_info
        return bound

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        operator = context.operator
        line: Callable[[str], None]
        if self.to_stderr:
            line = _to_stderr
        elif operator is not None and operator.print_line is not None:
            line = operator.print_line
        else:
            line = print
        return PrintWriter(
            prefix(self.sink_identifier, context.subtask, context.parallelism),
            line,
            self.text or printed_text_of(self._type_info),
        )


class PrintWriter(SinkWriter):
    def __init__(self, prefix: str, print_line: Callable[[str], None], text: Callable[[Any], str] = str) -> None:
        self._prefix = prefix
        self._print_line = print_line
        self._text = text

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        prefix, print_line, text = self._prefix, self._print_line, self._text
        for value in values:
            print_line(f"{prefix}{text(value)}")

    def flush(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()


def prefix(identifier: str, subtask: int, parallelism: int) -> str:
    """Return the text that Flink prints before a record.
    >>> prefix("", 0, 1), prefix("", 2, 4), prefix("alerts", 0, 1), prefix("alerts", 2, 4)
    ('', '3> ', 'alerts> ', 'alerts:3> ')
    """
    number = str(subtask + 1) if parallelism > 1 else ""
    label = ":".join(part for part in (identifier, number) if part)
    return f"{label}> " if label else ""


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
