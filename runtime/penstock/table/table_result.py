"""`TableResult`: the result of an executed statement."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.common.types import Row

if TYPE_CHECKING:
    from penstock.common.job_client import JobClient

_WIDEST = 30


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
    ) -> None:
        self._names = list(names)
        self._rows = rows
        self._changelog = changelog
        self._job_client = job_client

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
        """Run the query and print its rows as a table, as Flink's SQL client does."""
        names = (["op", *self._names]) if self._changelog else self._names
        rows = self.collect()
        widths: list[int] | None = None
        count = 0
        for row in rows:
            fields = [_shown(value) for value in row]
            if self._changelog:
                fields.insert(0, str(row.get_row_kind()))
            if widths is None:
                widths = [_width(index, name, self._changelog) for index, name in enumerate(names)]
                _head(names, widths)
            print(_line(fields, widths))
            count += 1
        if widths is None:
            print("Empty set")
            return
        print(_border(widths))
        print(f"{count} row{'' if count == 1 else 's'} in set")


def _width(index: int, name: str, changelog: bool) -> int:
    return 2 if changelog and index == 0 else max(_WIDEST, len(name))


def _head(names: Sequence[str], widths: list[int]) -> None:
    print(_border(widths))
    print(_line(names, widths))
    print(_border(widths))


def _border(widths: list[int]) -> str:
    return "+" + "+".join("-" * (width + 2) for width in widths) + "+"


def _line(fields: Sequence[str], widths: list[int]) -> str:
    return "|" + "|".join(f" {_fitted(field, width)} " for field, width in zip(fields, widths, strict=True)) + "|"


def _fitted(text: str, width: int) -> str:
    if _cells(text) > width:
        while _cells(text) > width - 3:
            text = text[:-1]
        text += "..."
    return " " * (width - _cells(text)) + text


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _shown(value: Any) -> str:
    if value is None:
        return "<NULL>"
    return str(value).upper() if isinstance(value, bool) else str(value)
