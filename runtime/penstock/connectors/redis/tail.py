"""A thread that reads streams behind a place in each, as far as there is room, and waits with the server while there is nothing.

Each read is a transaction that also asks how the stream stands. Redis counts what was ever added to a stream, and a place knows the how manieth its entry was: so
it is seen when entries behind it were trimmed before they were read, and not taken for that when only what was read has gone.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from functools import partial
from typing import Any, NamedTuple

from penstock.common.errors import PenstockError, SourceError
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
    """Behind an entry: its id, and the how manieth it was of all that were added to its stream; None: not known."""

    id: str
    number: int | None


class Entry(NamedTuple):
    place: Place
    """Behind it."""
    fields: dict[bytes, bytes]

    @property
    def time(self) -> int:
        """Milliseconds since 1970, by the server's clock unless the producer chose the id."""
        return int(self.place.id.partition("-")[0])

    @property
    def size(self) -> int:
        return _ENTRY_BYTES + sum(len(name) + len(value) for name, value in self.fields.items())


class TailedStream:
    """A stream, and what was read of it ahead."""

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
        """Behind some entries that were read, closer to each other the later they were."""
        self._tail = tail
        self._waiting: deque[Entry] = deque()
        self._bytes = 0

    def take(self, most: int, most_bytes: int) -> list[Entry]:
        """What was read, in order; does not wait.

        Raises:
            SourceError: the stream cannot be read any more.
        """
        taken: list[Entry] = []
        size = 0
        while self._waiting and len(taken) < most and size < most_bytes:
            entry = self._waiting.popleft()
            taken.append(entry)
            size += entry.size
        if taken:
            with self._tail.changed:
                self._bytes -= size
                self._tail.changed.notify()
        elif self._tail.error is not None:
            raise self._tail.error
        return taken

    @property
    def waiting(self) -> int:
        """How many have come and were not taken."""
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        return len(self._waiting) < _MOST_WAITING and self._bytes < _MOST_BYTES

    def put(self, entries: list[Entry]) -> None:
        size = sum(entry.size for entry in entries)
        with self._tail.changed:
            self._bytes += size
        self._waiting.extend(entries)
        if entries:
            self.count = max(1, min(_MOST_FETCHED, _FETCH_BYTES * len(entries) // size))

    @property
    def is_over(self) -> bool:
        """Whether a bounded stream was read and taken."""
        return self.is_read and not self._waiting

    @property
    def lag(self) -> int | None:
        if self.added is None or self.place.number is None:
            return None
        return max(0, self.added - self.place.number) + len(self._waiting)

    def leave(self) -> None:
        self.is_left = True


class Tail:
    """Of one subtask. `goes_on`: with what is there, when something was lost before it was read."""

    def __init__(self, connection: Connection, name: str, *, goes_on: bool) -> None:
        self.error: PenstockError | None = None
        self.changed = threading.Condition()
        self._connection = connection
        self._goes_on = goes_on
        self._name = name
        self._streams: list[TailedStream] = []
        self._is_closed = False
        connection.stopped = lambda: self._is_closed
        self._thread: threading.Thread | None = None

    def follow(self, name: str, place: Place, up_to: str | None, marks: list[Place]) -> TailedStream:
        stream = TailedStream(self, name, place, up_to)
        stream.marks = marks
        with self.changed:
            self._streams.append(stream)
            self.changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        return stream

    def close(self) -> None:
        """The thread ends by itself, when the server answers."""
        with self.changed:
            self._is_closed = True
            self.changed.notify()

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
        except PenstockError as error:
            self.error = error
        except Exception as error:  # nobody else would hear of it
            self.error = self._connection.server.explained(SourceError, "streams cannot be read", error)
        finally:
            self._connection.close()

    def _wanted(self) -> list[TailedStream]:
        """Those for which there is room, when there are some."""
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
        """Until one of them has something, or for so long."""
        asked = {stream.name: stream.place.id for stream in streams}
        found = self._connection.run(
            f"streams {', '.join(map(repr, asked))[:300]} cannot be read",
            lambda client: client.xread(asked, count=1, block=wait_ms),
        )
        names = {name.decode() for name, _ in found or []}
        for stream in streams:
            stream.has_more = stream.name in names

    def _fetch(self, stream: TailedStream) -> None:
        about, entries = self._connection.run(
            f"stream {stream.name!r} cannot be read", lambda client: self._ask(client, stream)
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

    def _ask(self, client: Any, stream: TailedStream) -> tuple[dict[str, Any] | None, list[Any]]:
        """How the stream stands (None: there is none), and what is behind the place, at one moment."""
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
        """Where to go on: at the stream's place, unless what is behind it was lost and that is borne.

        Raises:
            SourceError: it was lost.
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
            told = f"ends with {last}: it was made anew, or the server has forgotten entries"
            return self._lost(stream, told, Place(last, added), Place(BEGIN, gone))
        if number is not None and added < number:
            told = f"has had {added} entries, of which {number} were read: it was made anew, or the server has forgotten entries"
            return self._lost(stream, told, Place(place.id, gone), Place(BEGIN, gone))
        is_behind = not length or first is None or number_of(first[0].decode()) > number_of(place.id)
        if number is not None and is_behind and gone < number:  # what was read would be gone from this one
            return self._lost(stream, "was made anew", Place(place.id, gone))
        if number is not None and is_behind and gone > number:
            here = Place(place.id, gone)
            # what somebody has removed by its id (XDEL) is no loss, and the server tells the greatest of those
            removed = number_of(about["max-deleted-entry-id"].decode()) > number_of(place.id)
            if removed and gone - number == 1:
                return here
            told = f"was trimmed: {gone - number} entries were gone before they were read"
            return self._lost(stream, f"{told} (some by XDEL, how many is not known)" if removed else told, here)
        return place

    def _lost(self, stream: TailedStream, told: str, place: Place, begin: Place | None = None) -> Place:
        """Where to go on: at `place`; at `begin`, if that is given and the stream is another one."""
        text = f"{self._connection.server.shown}: stream {stream.name!r} {told}; the job had read it up to {stream.place.id}"
        if not self._goes_on:
            raise SourceError(
                text,
                remedy="keep entries for longer than the job may stand still (MAXLEN, MINID), have the server write each to its disk (appendfsync "
                "always), or go on without them: on_lost='continue'",
            )
        LOGGER.warning("%s; it goes on with what is there", text)
        stream.place = place if begin is None or self._has_what_was_read(stream) else begin
        return stream.place

    def _has_what_was_read(self, stream: TailedStream) -> bool:
        """Whether an entry that was read is there: the server has forgotten what came behind it. Else the stream was made anew."""
        marks = list(stream.marks)
        what = f"stream {stream.name!r} cannot be read"
        return any(
            self._connection.run(what, partial(_entry, name=stream.name, id=mark.id)) for mark in reversed(marks)
        )


def _entry(client: Any, name: str, id: str) -> Any:
    return client.xrange(name, id, id, 1)


def number_of(id: str) -> tuple[int, int]:
    """Ids in their order.

    >>> number_of("1700000000000-10") > number_of("1700000000000-9")
    True
    """
    time, _, number = id.partition("-")
    return int(time), int(number or 0)


def marked(marks: list[Place], place: Place) -> list[Place]:
    """With one more, if it is a second behind the last; of those that are long ago every other one goes.

    >>> marks = [Place("1000-0", 1)]
    >>> marked(marks, Place("1999-0", 2)) == marks, [mark.id for mark in marked(marks, Place("2000-0", 2))]
    (True, ['1000-0', '2000-0'])
    """
    if marks and number_of(place.id)[0] - number_of(marks[-1].id)[0] < _MARK_MS:
        return marks
    found = [*marks, place]
    return found if len(found) <= _MOST_MARKS else found[: _MOST_MARKS // 2 : 2] + found[_MOST_MARKS // 2 :]
