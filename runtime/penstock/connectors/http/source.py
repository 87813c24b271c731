"""`HttpPollSource`: what a URL answers, asked again and again.

HttpPollSource("https://api.example.org/alerts?after={cursor}", JsonLinesFormat(Alert), interval=timedelta(seconds=5),
               records="alerts", cursor=lambda alert: alert.id, start=0)

A server keeps no position for us. With a `cursor` the position is that of the last record: if the server answers with what comes after it, in order, each record comes once. Without one
every answer comes as it is, and after a failure the last one may come again. An answer with the ETag of the one before is left out, if both were to the same cursor: an ETag says
what one URL answers, and a server may give all its pages the same.
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

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.secret_file import read_secret
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.formats.record_format import MalformedBlock, StreamFormat
from penstock.connectors.http.request import NoAnswer, asked
from penstock.connectors.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.records.batch import RowBatch

PATIENCE_S = 60.0
_PAUSE_S = 0.5
_SHOWN = 200


class HttpPollSource(Source):
    """
    Args:
        url: "{cursor}" in it stands for the cursor.
        format: of lines of the answer, and without side output of what cannot be read; with `records`, of the objects in it.
        interval: between two requests.
        records: the answer is JSON, and this is the path to its list of records ("data.items"; "" is the answer itself). None: lines.
        cursor: of a record: a JSON value that the next request begins behind.
        start: the first request's cursor.
        headers: of every request.
        header_files: files with the values of more headers, read at every request, so that secrets are in no payload.
        timeout: of a request, from the first word to the last byte of the answer.
        polls: end after so many answers.
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
                f"url {url!r} {'with' if cursor is None else 'without'} a cursor",
                remedy="give cursor=, and write {cursor} in the URL",
            )
        if not url.startswith(("http://", "https://")) or format.header_lines:
            raise InvalidJob(
                f"{url!r} with {type(format).__name__}", remedy="an http URL, and a format without header line"
            )
        if format.on_error != "fail":
            raise InvalidJob(
                f"HttpPollSource with a format with on_error={format.on_error!r}",
                remedy="leave on_error out: an answer is read whole or not at all, as the cursor of a record that cannot be read is not known",
            )
        try:
            httpx.URL(url.replace("{cursor}", "0"))
        except httpx.InvalidURL as error:
            raise InvalidJob(f"{url!r} is no URL: {error}", remedy="correct it") from error
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
        """Asks once.

        Raises:
            SourceError: no answer, or a refusal.
            RecordFormatError: the answer is not what was declared.
        """
        with ThreadPoolExecutor(1) as thread:  # the caller's may have an event loop
            self.decoded(thread.submit(self.ask, self.start, "").result())

    def ask(self, cursor: Any, etag: str) -> Answer:
        """
        Raises:
            SourceError: there is no answer, or another than with records.
        """
        files = self.header_files.items()
        secrets = {name: read_secret(path, f"header_files[{name!r}]", SourceError) for name, path in files}
        headers = {**self.headers, **secrets}
        if etag:
            headers["If-None-Match"] = etag
        url = self.url.replace("{cursor}", quote(_text(cursor), safe=""))
        answer = asyncio.run(asked(url, headers, self.timeout_s, self._shown))
        if answer.status == httpx.codes.NOT_MODIFIED:
            return Answer(b"", etag, is_same=True)
        return Answer(answer.content, answer.etag, is_same=bool(answer.etag) and answer.etag == etag)

    @property
    def _shown(self) -> str:
        """Without a query, which may hold secrets."""
        return self.url.partition("?")[0]

    def decoded(self, answer: Answer) -> list[Any]:
        """The records of an answer.

        Raises:
            RecordFormatError: it is not what was declared.
        """
        content = answer.content
        try:
            if self.records is not None:
                found = orjson.loads(content)
                for name in filter(None, self.records.split(".")):
                    found = found[name]
                if not isinstance(found, list):
                    raise MalformedBlock(f"{self.records or 'the answer'} is no list")
                content = b"\n".join(map(orjson.dumps, found))
            return list(self.format.decoder(b"")(content).rows().values) if content.strip() else []
        except (MalformedBlock, orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise RecordFormatError(
                f"the answer of {self._shown} cannot be read: {type(error).__name__}: {error}: {answer.content[:_SHOWN]!r}",
                remedy="declare the fields that it has, and the path to its records",
            ) from error


class Answer(NamedTuple):
    content: bytes
    etag: str
    is_same: bool


def _text(cursor: Any) -> str:
    return cursor if isinstance(cursor, str) else "" if cursor is None else json.dumps(cursor)


def _json(cursor: Any, record: Any) -> Any:
    """As it is kept in checkpoints.

    Raises:
        RecordFormatError: JSON has no such value.
    """
    value = cursor.item() if isinstance(cursor, np.generic) else cursor
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        text = repr(record)
        raise RecordFormatError(
            f"the cursor {cursor!r} of {text[:_SHOWN]} is a {type(cursor).__name__}: {error}",
            remedy="let cursor= give text, a number, or a list of such: of a time its isoformat()",
        ) from error
    return value


class _OneSplit(SplitEnumerator):
    forgets_finished = True

    def __init__(self) -> None:
        self._found = False

    def discover(self) -> list[Split]:
        found, self._found = self._found, True
        return [] if found else [Split("poll")]

    def snapshot(self) -> Any:
        return self._found

    def restore(self, state: Any) -> None:
        self._found = bool(state)


class _Reader(SourceReader):
    def __init__(self, source: HttpPollSource) -> None:
        self._source = source

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return PollReader(self._source, position)


class PollReader(SplitReader):
    """Asks in a thread: a server may take its time. The position: `cursor`, `etag` and the cursor `etag_of` that it was the answer to, and how many answers were read whole."""

    def __init__(self, source: HttpPollSource, position: Any) -> None:
        self._source = source
        position = position or {"cursor": source.start, "etag": "", "etag_of": "", "polls": 0}
        self._cursor: Any = position["cursor"]
        self._etag: str = position["etag"]
        self._etag_of: str = position["etag_of"]
        self._polls: int = position["polls"]
        self._thread = ThreadPoolExecutor(1, "http-poll")
        self._asked: Future[Answer] | None = None
        self._waiting: list[Any] = []
        self._given = 0
        """Of those that wait."""
        self._next_etag = self._next_etag_of = ""
        self._due = 0.0
        self._failing_since: float | None = None

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        if not self._waiting and not self.finished:
            self._poll()
        if not self._waiting:
            return None
        values = self._waiting[self._given : self._given + max(1, bounds.max_records)]
        self._given += len(values)
        if self._source.cursor is not None:
            self._cursor = _json(self._source.cursor(values[-1]), values[-1])
        if self._given == len(self._waiting):
            self._waiting, self._given = [], 0
            self._end_answer()
        return RowBatch(values)

    def _poll(self) -> None:
        if self._asked is None:
            if time.time() >= self._due:
                self._next_etag_of = _text(self._cursor)
                etag = self._etag if self._etag_of == self._next_etag_of else ""
                self._asked = self._thread.submit(self._source.ask, self._cursor, etag)
            return
        if not self._asked.done():
            return
        asked, self._asked = self._asked, None
        self._due = time.time() + self._source.interval_ms / 1000
        try:
            answer = asked.result()
        except NoAnswer as error:
            now = time.monotonic()
            self._failing_since = now if self._failing_since is None else self._failing_since
            if now - self._failing_since > PATIENCE_S:
                raise
            self._failing_since += error.after_s  # the server has asked for it
            pause_s = max(_PAUSE_S, min(self._source.interval_ms / 1000, PATIENCE_S / 10))
            self._due = time.time() + max(pause_s, error.after_s)
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
        """None while an answer is awaited."""
        return None if self._asked is not None or self._waiting else int(self._due * 1000)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
