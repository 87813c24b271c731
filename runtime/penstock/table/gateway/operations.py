"""`Operation`: one statement of a session, its state, and the pages of its result."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, PenstockError
from penstock.sql.plan.types import SqlType
from penstock.table.gateway.values import type_of_values

if TYPE_CHECKING:
    from penstock.common.types import Row
    from penstock.table.table_result import TableResult

PAGE_ROWS = 1000
BUFFERED_ROWS = 5000
"""Rows that wait for the client. The query waits until the client has fetched them."""
WAIT_S = 0.5
"""Time in seconds for which a request waits for the first row of its page."""


@dataclass(frozen=True)
class Page:
    """A page of a result.

    Args:
        kind: `NOT_READY`, `PAYLOAD`, or `EOS` after the last page.
        next: token of the next page; None after the last page.
    """

    kind: str
    next: int | None
    names: list[str] = field(default_factory=list)
    types: list[SqlType] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    is_query: bool = False
    job_id: str | None = None


class Operation:
    """A statement that runs in its own thread.

    Args:
        execute: function that executes the statement. Statements of a session exclude each other, but running queries do not.
    """

    def __init__(self, execute: Callable[[], TableResult]) -> None:
        self.id = str(uuid.uuid4())
        self.status = "RUNNING"
        self._execute = execute
        self._changed = threading.Condition()
        self._result: TableResult | None = None
        self._types: list[SqlType] = []
        self._rows: deque[Row] = deque()
        self._values: Any = None
        self._error: BaseException | None = None
        self._is_done = False
        self._is_cancelled = False
        self._token = 0
        self._last: Page | None = None
        self._thread = threading.Thread(target=self._run, name=f"sql-{self.id[:8]}", daemon=True)

    def start(self) -> Operation:
        self._thread.start()
        return self

    @property
    def is_active(self) -> bool:
        """Whether the statement or its query still runs."""
        return self._thread.is_alive()

    def cancel(self) -> None:
        """Cancel the statement or its query. A job that an INSERT has started continues."""
        with self._changed:
            self._is_cancelled = True
            if not self._is_done and self.status in ("RUNNING", "FINISHED"):
                self.status = "CANCELED"
            values = self._values
            self._changed.notify_all()
        if values is not None:
            values.cancel()

    def fetch(self, token: int) -> Page:
        """Return a page. The previous page can be fetched again, in case its response was lost.

        Raises:
            InvalidJob: the token is not the one of the next or the previous page.
            PenstockError: the statement or its query failed.
        """
        with self._changed:
            if token == self._token - 1 and self._last is not None:
                return self._last
            if token != self._token:
                raise InvalidJob(
                    f"SQL: the result has no page {token}", remedy="follow nextResultUri of the previous page"
                )
            self._changed.wait_for(lambda: self._rows or self._is_done or self._is_cancelled, WAIT_S)
            if self._error is not None and not self._rows:
                raise self._error
            if self._is_cancelled:
                raise InvalidJob("SQL: the operation is cancelled", remedy="execute the statement again")
            if self._result is None:
                return Page("NOT_READY", token)
            page = self._next_page(self._result)
            if page.next is not None:
                self._token, self._last = page.next, page
            self._changed.notify_all()
            return page

    def _next_page(self, result: TableResult) -> Page:
        rows = [self._rows.popleft() for _ in range(min(PAGE_ROWS, len(self._rows)))]
        is_end = not rows and self._is_done and self._token > 0
        client = result.get_job_client()
        return Page(
            "EOS" if is_end else "PAYLOAD",
            None if is_end else self._token + 1,
            result.get_column_names(),
            self._types,
            rows,
            result.is_query,
            None if client is None else str(client.get_job_id()),
        )

    def _run(self) -> None:
        try:
            result = self._execute()
            if result.is_query:
                self._read(result)
            else:
                self._keep(result)
        except BaseException as error:  # the client that fetches the result gets it
            with self._changed:
                self._error = error
                if self.status != "CANCELED":
                    self.status = "ERROR"
        finally:
            with self._changed:
                self._is_done = True
                self._changed.notify_all()

    def _keep(self, result: TableResult) -> None:
        rows = list(result.collect())
        columns = list(zip(*rows, strict=True)) or [()] * len(result.get_column_names())
        with self._changed:
            self._types = [type_of_values(list(column)) for column in columns]
            self._rows.extend(rows)
            self._result = result
            self._finish()

    def _read(self, result: TableResult) -> None:
        values: Any = result.collect()
        try:
            with self._changed:
                self._types = list(result.types)
                self._result, self._values = result, values
                self._finish()
                if self._is_cancelled:
                    return
            for row in values:
                with self._changed:
                    self._changed.wait_for(lambda: len(self._rows) < BUFFERED_ROWS or self._is_cancelled)
                    if self._is_cancelled:
                        return
                    self._rows.append(row)
                    self._changed.notify_all()
        finally:
            values.close()

    def _finish(self) -> None:
        if self.status == "RUNNING":
            self.status = "FINISHED"


def error_text(error: BaseException) -> str:
    """Return an error as one text, with its remedy."""
    if isinstance(error, PenstockError):
        return f"{error.message}\n{error.remedy}".strip()
    return f"{type(error).__name__}: {error}"
