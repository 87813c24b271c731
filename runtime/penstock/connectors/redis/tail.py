"""A thread that reads several streams ahead. It reads each stream from the stream's place while the stream's buffer has space.

While no stream has new entries, the thread waits in a blocking request to the server.

Each read is a transaction that also requests the stream's state. Redis counts all entries that were ever added to a stream, and a place
contains its entry's number in this count. So the thread detects unread entries that were trimmed. The thread does not
confuse these entries with trimmed entries that it had already read.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Any, NamedTuple

from penstock.common.errors import PenstockError, SourceError
from penstock.connectors.messages.inbox import Background, Inbox
from penstock.connectors.redis.client import Connection, package

LOGGER = logging.getLogger("penstock.connectors.redis")
BEGIN = "0-0"
_MOST_WAITING = 5_000
_MOST_BYTES = 8 * 1024 * 1024
_FETCH_BYTES = 2 * 1024 * 1024
_MOST_FETCHED = 2_000
_SHORTEST_WAIT_MS, _LONGEST_WAIT_MS = 20, 1_000
_ENTRY_BYTES = 64
_MARK_MS = 1_000
_MOST_MARKS = 16


class Place(NamedTuple):
    """A place after an entry: the entry's id, and its number among all entries ever added to the stream (None means unknown)."""

    id: str
    number: int | None


class Entry(NamedTuple):
    place: Place
    """The place after this entry."""
    fields: dict[bytes, bytes]

    @property
    def time(self) -> int:
        """Return milliseconds since 1970, by the server's clock unless the producer chose the id."""
        return int(self.place.id.partition("-")[0])

    @property
    def size(self) -> int:
        return _ENTRY_BYTES + sum(len(name) + len(value) for name, value in self.fields.items())


class TailedStream:
    """A stream and the entries that were read ahead."""

    def __init__(self, tail: Tail, name: str, place: Place, up_to: str | None) -> None:
        self.name = name
        self.place = place
        self.up_to = up_to
        self.is_read = up_to is not None and number_of(up_to) <= number_of(place.id)
        self.is_left = False
        self.has_more = True
        self.count = 100
        self.added: int | None = None
        self.marks: list[Place] = []
        """Places after some read entries. Places after newer entries are closer together."""
        self.inbox = Inbox[Entry](tail, lambda entry: entry.size)

    @property
    def has_room(self) -> bool:
        return len(self.inbox) < _MOST_WAITING and self.inbox.bytes < _MOST_BYTES

    def put(self, entries: list[Entry]) -> None:
        self.inbox.put(entries)
        if entries:
            size = sum(entry.size for entry in entries)
            self.count = max(1, min(_MOST_FETCHED, _FETCH_BYTES * len(entries) // size))

    @property
    def is_over(self) -> bool:
        """Return whether the stream is bounded and all its entries were read and taken."""
        return self.is_read and not self.inbox

    @property
    def lag(self) -> int | None:
        if self.added is None or self.place.number is None:
            return None
        return max(0, self.added - self.place.number) + len(self.inbox)

    def leave(self) -> None:
        self.is_left = True


class Tail(Background):
    """The streams of one subtask. `accepts_loss`: whether to continue with the remaining entries after a loss of unread entries."""

    def __init__(self, connection: Connection, name: str, *, accepts_loss: bool) -> None:
        super().__init__()
        self._connection = connection
        self._accepts_loss = accepts_loss
        self._name = name
        self._streams: list[TailedStream] = []
        connection.stopped = lambda: self._is_closed
        self._thread: threading.Thread | None = None

    def follow(self, name: str, place: Place, up_to: str | None, marks: list[Place]) -> TailedStream:
        stream = TailedStream(self, name, place, up_to)
        stream.marks = marks
        with self.changed:
            self._streams.append(stream)
            self.changed.notify()
            if self._thread is None:
                self._thread = self._start(self._name, self._run)
        return stream

    def close(self) -> None:
        """Stop the thread, which ends when the server answers its current request."""
        self._stop()

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        wait_ms = _SHORTEST_WAIT_MS
        try:
            while not self._is_closed:
                wanted = self._wanted()
                ready = [stream for stream in wanted if stream.has_more]
                for stream in ready:
                    self._fetch(stream)
                if ready:
                    wait_ms = _SHORTEST_WAIT_MS
                elif wanted:
                    self._wait(wanted, wait_ms)
                    wait_ms = min(_LONGEST_WAIT_MS, wait_ms * 2)
        finally:
            self._connection.close()

    def _explained(self, error: Exception) -> PenstockError:
        return self._connection.server.explained(SourceError, "streams cannot be read", error)

    def _wanted(self) -> list[TailedStream]:
        """Wait until some streams have space, and return them."""
        with self.changed:
            while not self._is_closed:
                found = [
                    stream for stream in self._streams if stream.has_room and not stream.is_read and not stream.is_left
                ]
                if found:
                    return found
                self.changed.wait()
        return []

    def _wait(self, streams: list[TailedStream], wait_ms: int) -> None:
        """Wait until one of the streams has a new entry, or until the time is up."""
        positions = {stream.name: stream.place.id for stream in streams}
        found = self._connection.run(
            f"streams {', '.join(map(repr, positions))[:300]} cannot be read",
            lambda client: client.xread(positions, count=1, block=wait_ms),
        )
        names = {name.decode() for name, _ in found or []}
        for stream in streams:
            stream.has_more = stream.name in names

    def _fetch(self, stream: TailedStream) -> None:
        about, entries = self._connection.run(
            f"stream {stream.name!r} cannot be read", lambda client: self._read(client, stream)
        )
        place = self._checked(stream, about)
        read: list[Entry] = []
        number = place.number
        for id, fields in entries:
            number = None if number is None else number + 1
            read.append(Entry(Place(id.decode(), number), fields or {}))
        reached_end = len(entries) < stream.count
        if about is not None:
            stream.added = int(about["entries-added"])
            if reached_end and stream.up_to is None:
                number = stream.added
                if read:
                    read[-1] = read[-1]._replace(place=Place(read[-1].place.id, number))
        stream.place = Place(read[-1].place.id if read else place.id, number)
        stream.put(read)
        stream.has_more = not reached_end
        if stream.up_to is not None and reached_end:
            stream.is_read = True

    def _read(self, client: Any, stream: TailedStream) -> tuple[dict[str, Any] | None, list[Any]]:
        """Return the stream's state (None if it does not exist) and the entries after the place, read at one moment."""
        pipeline = client.pipeline(transaction=True)
        pipeline.xinfo_stream(stream.name)
        pipeline.xrange(stream.name, f"({stream.place.id}", stream.up_to or "+", stream.count)
        about, entries = pipeline.execute(raise_on_error=False)
        if isinstance(about, package().ResponseError) and "no such key" in str(about):
            return None, []
        for answer in (about, entries):
            if isinstance(answer, Exception):
                raise answer
        return about, entries

    def _checked(self, stream: TailedStream, about: dict[str, Any] | None) -> Place:
        """Return the place to continue from: the stream's place, with its number corrected if a user deleted an entry.

        If entries were lost and `accepts_loss` is set, return a place before the remaining entries.

        Raises:
            SourceError: entries were lost.
        """
        place, number = stream.place, stream.place.number
        if about is None:
            if place.id == BEGIN and number_of(stream.up_to or BEGIN) <= number_of(BEGIN):
                return place
            return self._lost(stream, "was removed", Place(BEGIN, 0))
        last, first = about["last-generated-id"].decode(), about["first-entry"]
        added, length = int(about["entries-added"]), int(about["length"])
        gone = added - length
        if place.id != BEGIN and number_of(last) < number_of(place.id):
            change = f"ends with {last}: it was created again, or the server has lost entries"
            return self._lost(stream, change, Place(last, added), Place(BEGIN, gone))
        if number is not None and added < number:
            change = f"has had {added} entries, but the job has read {number}: it was created again, or the server has lost entries"
            return self._lost(stream, change, Place(place.id, gone), Place(BEGIN, gone))
        is_behind = not length or first is None or number_of(first[0].decode()) > number_of(place.id)
        # If the stream starts after the place, it must have removed all entries that the job has read.
        if number is not None and is_behind and gone < number:
            return self._lost(stream, "was created again", Place(place.id, gone))
        if number is not None and is_behind and gone > number:
            here = Place(place.id, gone)
            # A user may delete an entry by its id (XDEL), which is not a loss. The server reports the greatest deleted id.
            removed = number_of(about["max-deleted-entry-id"].decode()) > number_of(place.id)
            if removed and gone - number == 1:
                return here
            change = f"was trimmed: {gone - number} entries were removed before they were read"
            return self._lost(stream, f"{change} (an unknown number of them by XDEL)" if removed else change, here)
        return place

    def _lost(self, stream: TailedStream, change: str, place: Place, begin: Place | None = None) -> Place:
        """Return the place to continue from: `place`, or `begin` if `begin` is given and a new stream now has this name."""
        text = f"{self._connection.server.shown}: stream {stream.name!r} {change}; the job had read it up to {stream.place.id}"
        if not self._accepts_loss:
            raise SourceError(
                text,
                remedy="keep entries for longer than the job may be stopped (MAXLEN, MINID). Or make the server write each entry to disk "
                "(appendfsync always), or set on_lost='continue'",
            )
        LOGGER.warning("%s; the job continues with the remaining entries", text)
        stream.place = place if begin is None or self._has_what_was_read(stream) else begin
        return stream.place

    def _has_what_was_read(self, stream: TailedStream) -> bool:
        """Return whether a read entry still exists. If so, the server has lost later entries. If not, the stream was created again."""
        marks = list(stream.marks)
        problem = f"stream {stream.name!r} cannot be read"
        return any(
            self._connection.run(problem, partial(_entry, name=stream.name, id=mark.id)) for mark in reversed(marks)
        )


def _entry(client: Any, name: str, id: str) -> Any:
    return client.xrange(name, id, id, 1)


def number_of(id: str) -> tuple[int, int]:
    """Convert an id to numbers, which sort like the entries.

    >>> number_of("1700000000000-10") > number_of("1700000000000-9")
    True
    """
    time, _, number = id.partition("-")
    return int(time), int(number or 0)


def marked(marks: list[Place], place: Place) -> list[Place]:
    """Return the marks, and also `place` if it is at least one second after the last mark.

    If there are too many marks, drop every second mark of the older half.

    >>> marks = [Place("1000-0", 1)]
    >>> marked(marks, Place("1999-0", 2)) == marks, [mark.id for mark in marked(marks, Place("2000-0", 2))]
    (True, ['1000-0', '2000-0'])
    """
    if marks and number_of(place.id)[0] - number_of(marks[-1].id)[0] < _MARK_MS:
        return marks
    found = [*marks, place]
    return found if len(found) <= _MOST_MARKS else found[: _MOST_MARKS // 2 : 2] + found[_MOST_MARKS // 2 :]
