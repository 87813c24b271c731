"""`HttpPollSource`: polls a URL, and reads the records of the responses.

For example:

    HttpPollSource("https://api.example.org/alerts?after={cursor}", JsonLinesFormat(Alert), interval=timedelta(seconds=5),
                   records="alerts", cursor=lambda alert: alert.id, start=0)

The server stores no position for the source. If the source has a `cursor`, its position is the cursor of the last record. The source reads
each record once if the server returns the records after the cursor, in order. If the source has no cursor, it reads every response. After a
failure it may read the last response again.

A response is skipped if it has the same ETag as the previous response to the same cursor. A response to another cursor is never skipped,
because a server may give all of its pages the same ETag.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import numpy as np
import orjson

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.source import (
    OneTimeEnumerator,
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.formats.record_format import MalformedBlock, StreamFormat
from penstock.connectors.http.request import NoAnswer, fetch
from penstock.records.batch import RowBatch

PATIENCE_S = 60.0
_PAUSE_S = 0.5
_SHOWN = 200


class HttpPollSource(Source):
    """Source that polls a URL.

    Args:
        url: the URL. "{cursor}" in it is replaced by the cursor.
        format: the format of the response's lines, or of the objects in `records`. It must not have a side output for malformed records.
        interval: time between two requests.
        records: path to the list of records in a JSON response ("data.items"; "" is the response itself). None means that each line is a record.
        cursor: a record -> its cursor, a JSON value. The next request reads the records after this cursor.
        start: cursor of the first request.
        headers: headers of every request.
        header_files: files with the values of additional headers, read at every request. Secrets are thus not part of the program.
        timeout: timeout of a request until the last byte of the response.
        polls: number of responses after which the source ends.
    """

    def __init__(
        self,
        url: str,
        format: StreamFormat,
        *,
        interval: TimeLike,
        records: str | None = None,
        cursor: Callable[[Any], Any] | None = None,
        start: Any = None,
        headers: Mapping[str, str] | None = None,
        header_files: Mapping[str, str] | None = None,
        timeout: TimeLike = 30_000,
        polls: int | None = None,
    ) -> None:
        if ("{cursor}" in url) != (cursor is not None):
            raise InvalidJob(
                f"url {url!r} {'has {cursor}, but cursor= is not set' if cursor is None else 'does not have {cursor}, but cursor= is set'}",
                remedy="set cursor= and write {cursor} in the URL, or do neither",
            )
        if not url.startswith(("http://", "https://")) or format.header_lines:
            raise InvalidJob(
                f"HttpPollSource cannot read {url!r} with {type(format).__name__}",
                remedy="give an http or https URL, and a format without a header line",
            )
        if format.on_error != "fail":
            raise InvalidJob(
                f"HttpPollSource does not support a format with on_error={format.on_error!r}, because a malformed record has no cursor",
                remedy="remove on_error: the source reads a response completely or not at all",
            )
        try:
            httpx.URL(url.replace("{cursor}", "0"))
        except httpx.InvalidURL as error:
            raise InvalidJob(f"{url!r} is not a valid URL: {error}", remedy="correct the URL") from error
        self.url = url
        self.format = format
        self.interval_ms = as_millis(interval, "interval")
        self.records = records
        self.cursor = cursor
        self.start = start
        self.headers = dict(headers or {})
        self.header_files = dict(header_files or {})
        self.timeout_s = as_millis(timeout, "timeout") / 1000
        self.polls = polls
        self.bounded = polls is not None

    def create_enumerator(self) -> SplitEnumerator:
        return _OneSplit()

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _Reader(self)

    def produced_type(self) -> Any:
        return self.format.produced_type()

    def validate(self) -> None:
        """Send one request and read its records.

        Raises:
            SourceError: the server does not respond, or refuses the request.
            RecordFormatError: the response does not have the declared form.
        """
        with ThreadPoolExecutor(1) as thread:  # the caller's thread may run an event loop
            self.decoded(thread.submit(self.ask, self.start, "").result())

    def ask(self, cursor: Any, etag: str) -> Answer:
        """Send a request and return the response.

        Raises:
            SourceError: the server does not respond, or refuses the request.
        """
        files = self.header_files.items()
        secrets = {name: read_secret(path, f"header_files[{name!r}]", SourceError) for name, path in files}
        headers = {**self.headers, **secrets}
        if etag:
            headers["If-None-Match"] = etag
        url = self.url.replace("{cursor}", quote(_text(cursor), safe=""))
        answer = asyncio.run(fetch(url, headers, self.timeout_s, self._shown))
        if answer.status == httpx.codes.NOT_MODIFIED:
            return Answer(b"", etag, is_same=True)
        return Answer(answer.content, answer.etag, is_same=bool(answer.etag) and answer.etag == etag)

    @property
    def _shown(self) -> str:
        """Return the URL without its query, which may contain secrets."""
        return self.url.partition("?")[0]

    def decoded(self, answer: Answer) -> list[Any]:
        """Return the records of a response.

        Raises:
            RecordFormatError: the response does not have the declared form.
        """
        content = answer.content
        try:
            if self.records is not None:
                found = orjson.loads(content)
                for name in filter(None, self.records.split(".")):
                    found = found[name]
                if not isinstance(found, list):
                    raise MalformedBlock(f"{self.records or 'the response'} is not a list")
                content = b"\n".join(map(orjson.dumps, found))
            return list(self.format.decoder(b"")(content).rows().values) if content.strip() else []
        except (MalformedBlock, orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise RecordFormatError(
                f"the response of {self._shown} cannot be read: {type(error).__name__}: {error}: {answer.content[:_SHOWN]!r}",
                remedy="declare the fields of the response, and the path to its records",
            ) from error


class Answer(NamedTuple):
    content: bytes
    etag: str
    is_same: bool


def _text(cursor: Any) -> str:
    return cursor if isinstance(cursor, str) else "" if cursor is None else json.dumps(cursor)


def _json(cursor: Any, record: Any) -> Any:
    """Return the cursor as a JSON value for checkpoints.

    Raises:
        RecordFormatError: JSON cannot represent the cursor.
    """
    value = cursor.item() if isinstance(cursor, np.generic) else cursor
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        text = repr(record)
        raise RecordFormatError(
            f"the cursor {cursor!r} of {text[:_SHOWN]} is a {type(cursor).__name__}, which JSON cannot represent: {error}",
            remedy="let cursor= return text, a number, or a list of these; for a time return its isoformat()",
        ) from error
    return value


class _OneSplit(OneTimeEnumerator):
    def find_splits(self) -> list[Split]:
        return [Split("poll")]


class _Reader(SourceReader):
    def __init__(self, source: HttpPollSource) -> None:
        self._source = source

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return PollReader(self._source, position)


class PollReader(SplitReader):
    """Reader that sends requests in a thread, because a server may be slow. The position of the reader has:

    - `cursor`: the cursor of the next request,
    - `etag` and `etag_of`: the ETag of the last response, and the cursor of its request,
    - `polls`: the number of responses that were read completely.
    """

    def __init__(self, source: HttpPollSource, position: Any) -> None:
        self._source = source
        position = position or {"cursor": source.start, "etag": "", "etag_of": "", "polls": 0}
        self._cursor: Any = position["cursor"]
        self._etag: str = position["etag"]
        self._etag_of: str = position["etag_of"]
        self._polls: int = position["polls"]
        self._thread = ThreadPoolExecutor(1, "http-poll")
        self._pending: Future[Answer] | None = None
        self._waiting: list[Any] = []
        self._returned = 0
        """Number of records of `_waiting` that are already returned."""
        self._next_etag = self._next_etag_of = ""
        self._due = 0.0
        self._failing_since: float | None = None

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        if not self._waiting and not self.finished:
            self._poll()
        if not self._waiting:
            return None
        values = self._waiting[self._returned : self._returned + max(1, bounds.max_records)]
        self._returned += len(values)
        if self._source.cursor is not None:
            self._cursor = _json(self._source.cursor(values[-1]), values[-1])
        if self._returned == len(self._waiting):
            self._waiting, self._returned = [], 0
            self._end_answer()
        return RowBatch(values)

    def _poll(self) -> None:
        if self._pending is None:
            if time.monotonic() >= self._due:
                self._next_etag_of = _text(self._cursor)
                etag = self._etag if self._etag_of == self._next_etag_of else ""
                self._pending = self._thread.submit(self._source.ask, self._cursor, etag)
            return
        if not self._pending.done():
            return
        pending, self._pending = self._pending, None
        self._due = time.monotonic() + self._source.interval_ms / 1000
        try:
            answer = pending.result()
        except NoAnswer as error:
            now = time.monotonic()
            self._failing_since = now if self._failing_since is None else self._failing_since
            if now - self._failing_since > PATIENCE_S:
                raise
            self._failing_since += (
                error.after_s
            )  # the server has requested this pause, so it does not count as a failure
            pause_s = max(_PAUSE_S, min(self._source.interval_ms / 1000, PATIENCE_S / 10))
            self._due = time.monotonic() + max(pause_s, error.after_s)
            return
        self._failing_since = None
        self._next_etag = answer.etag
        self._waiting = [] if answer.is_same else self._source.decoded(answer)
        if not self._waiting:
            self._end_answer()

    def _end_answer(self) -> None:
        self._etag, self._etag_of = self._next_etag, self._next_etag_of
        self._polls += 1

    @property
    def position(self) -> Any:
        return {"cursor": self._cursor, "etag": self._etag, "etag_of": self._etag_of, "polls": self._polls}

    @property
    def finished(self) -> bool:
        return self._source.polls is not None and self._polls >= self._source.polls and not self._waiting

    def next_record_at(self) -> int | None:
        """Return the time of the next request in ms, or None while a response is pending or records wait."""
        if self._pending is not None or self._waiting:
            return None
        return int((time.time() + max(0.0, self._due - time.monotonic())) * 1000)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
