"""`TableResult`: the result of an executed statement."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.common.types import Row
from penstock.datastream.streams.closeable_iterator import CloseableIterator

if TYPE_CHECKING:
    from penstock.common.job_client import JobClient
    from penstock.sql.plan.types import SqlType

_WIDEST = 30
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class TableResult:
    """The rows of a statement, or the job that an INSERT started.

    Args:
        names: names of the columns.
        rows: a function that starts the query and returns its rows.
        changelog: whether rows have kinds.
    """

    def __init__(
        self,
        names: Sequence[str],
        rows: Callable[[], Iterator[Row]],
        *,
        changelog: bool = False,
        job_client: JobClient | None = None,
        job_name: str = "",
        types: Sequence[SqlType] = (),
    ) -> None:
        self.job_name = job_name
        self.types = tuple(types)
        """Types of the columns of a query."""
        self._names = list(names)
        self._rows = rows
        self._changelog = changelog
        self._job_client = job_client

    @staticmethod
    def of_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> TableResult:
        """Return the result of a statement that runs no job."""
        found = [Row(*row) for row in rows]
        return TableResult(names, lambda: iter(found))

    @property
    def is_query(self) -> bool:
        """Whether `collect` runs a job and returns its changes."""
        return self._changelog

    def get_job_client(self) -> JobClient | None:
        """Return the client of the job that an INSERT started, or None."""
        return self._job_client

    def get_column_names(self) -> list[str]:
        return list(self._names)

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the job of an INSERT ends.

        Raises:
            PenstockError: the job failed.
        """
        if self._job_client is not None:
            timeout = None if timeout_ms is None else timeout_ms / 1000
            self._job_client.get_job_execution_result().result(timeout)

    def collect(self) -> Iterator[Row]:
        """Run the query and return its rows. Each row has a kind. Use the result in a `with` statement to close it early."""
        return self._rows()

    def print(self) -> None:
        """Print the rows as a table, as Flink's SQL client does. Run the query first, if the statement is one."""
        if self._changelog:
            self._print_changes()
            return
        rows = [tuple(row) for row in self.collect()]
        if len(rows) == 1 and len(rows[0]) == 1 and "\n" in str(rows[0][0]):
            print(rows[0][0])  # EXPLAIN and SHOW CREATE
            return
        texts = [[shown(value) for value in row] for row in rows]
        widths = [max(cells(text) for text in column) for column in zip(self._names, *texts, strict=True)]
        _print_table(self._names, widths, texts)

    def _print_changes(self) -> None:
        names = ["op", *self._names]
        widths = [_width(index, name) for index, name in enumerate(names)]
        with CloseableIterator(self.collect()) as rows:
            _print_table(names, widths, ([str(row.get_row_kind()), *map(shown, row)] for row in rows))


def _print_table(names: Sequence[str], widths: list[int], rows: Iterable[list[str]]) -> None:
    count = 0
    for row in rows:
        if not count:
            _head(names, widths)
        print(_line(row, widths), flush=True)
        count += 1
    if not count:
        print("Empty set")
        return
    print(_border(widths))
    print(f"{count} row{'' if count == 1 else 's'} in set")


def _width(index: int, name: str) -> int:
    return 2 if index == 0 else max(_WIDEST, cells(name))


def _head(names: Sequence[str], widths: list[int]) -> None:
    print(_border(widths))
    print(_line(names, widths))
    print(_border(widths))


def _border(widths: list[int]) -> str:
    return "+" + "+".join("-" * (width + 2) for width in widths) + "+"


def _line(fields: Sequence[str], widths: list[int]) -> str:
    return "|" + "|".join(f" {_fitted(field, width)} " for field, width in zip(fields, widths, strict=True)) + "|"


def _fitted(text: str, width: int) -> str:
    return fitted(text, width, right=True)


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """Return the text with exactly this width in a terminal, cut or padded.

    >>> fitted("abc", 5), fitted("abcdefgh", 6), fitted("気温", 5, right=True)
    ('abc  ', 'abc...', ' 気温')
    """
    if cells(text[: width + 1]) > width:
        text = text[:width]
        while cells(text) > width - 3:
            text = text[:-1]
        text += "..."
    padding = " " * (width - cells(text))
    return padding + text if right else text + padding


def cells(text: str) -> int:
    """Return the width of a text in a terminal."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def shown(value: Any) -> str:
    """Return the text of a value in a printed result. Control characters are escaped, because a terminal would execute them.

    >>> shown(None), shown(True), shown("a\\x1b[2J")
    ('<NULL>', 'TRUE', 'a\\\\x1b[2J')
    """
    if value is None:
        return "<NULL>"
    if isinstance(value, bool):
        return str(value).upper()
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))
