"""A bounded number of concurrent requests. Lost requests are retried with their original time.

If two writes have the same key, the write with the later time wins, in any order of arrival. So rows may be sent in any
order. A repeated write changes nothing that was written after the original.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import SinkError
from penstock.connectors.cassandra.cluster import is_lost, message_of, package, remedy
from penstock.connectors.cassandra.values import UNSET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.connectors.cassandra.cluster import ClusterBuilder, Connection
    from penstock.connectors.cassandra.options import MapperOptions

_LONGEST_PAUSE_S = 3.0


class Write(NamedTuple):
    """One write. `at`: microseconds since 1970. `values`: the encoded values. `record`: the record, for errors."""

    at: int
    values: Sequence[Any]
    record: Any


class Clock:
    """A source of write times: the machine's clock, strictly increasing."""

    def __init__(self) -> None:
        self._last = 0

    def take(self, count: int) -> int:
        """Reserve `count` consecutive microseconds, and return the first of them."""
        first = max(self._last + 1, time.time_ns() // 1000)
        self._last = first + count - 1
        return first


class Pauses:
    """The pauses between retries. The pauses grow. After retries have failed for `patience` seconds, no other retry
    follows.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.restart()

    def restart(self) -> None:
        self._end = time.monotonic() + self._patience
        self._next = 0.1

    def wait(self) -> bool:
        """Sleep for the next pause. If `patience` seconds have passed, return False instead."""
        if time.monotonic() > self._end:
            return False
        time.sleep(self._next)
        self._next = min(_LONGEST_PAUSE_S, self._next * 2)
        return True


class Requests:
    """The concurrent requests of one session. Their number is bounded, and lost requests are retried.

    Args:
        patience: seconds without an accepted write after which the job fails over.
    """

    def __init__(
        self,
        builder: ClusterBuilder,
        options: MapperOptions,
        max_in_flight: int,
        patience: float,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._builder = builder
        self._options = options
        self._most = max_in_flight
        self._patience = patience
        self._check = check
        self._connection: Connection | None = None
        self._prepared: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._under_way = 0
        self._failed: list[tuple[Write, BaseException]] = []
        self._taken_count = 0

    def prepare(self, statement: str) -> Any:
        """Return a prepared statement.

        Raises:
            SinkError: the server is unavailable, or rejects the statement.
        """
        found = self._prepared.get(statement)
        if found is not None and self._connection is not None:
            return found
        if self._connection is None:
            self._connection = self._builder.connect(SinkError, self._options.level, asks_replicas=True)
            self._prepared.clear()
        try:
            found = self._connection.prepare(statement)
        except Exception as error:
            problem = "does not answer" if is_lost(error) else f"{statement!r} is not accepted"
            raise self._builder.explained(SinkError, problem, error) from error
        self._prepared[statement] = found
        return found

    def send(self, statement: str, writes: list[Write]) -> None:
        """Send the writes. Wait while the maximum number of requests is in flight. After `flush`, the server has
        accepted all writes.

        Raises:
            SinkError: the server rejects a row, or is unavailable for too long.
        """
        prepared = self._prepared.get(statement) if self._connection is not None else None
        for index, write in enumerate(writes):
            if prepared is None or not self._room():
                self._carry_out(statement, writes[index:])
                return
            self._ask(prepared, write)

    def _room(self) -> bool:
        """Wait until another request may be sent. Return False if a request has failed."""
        with self._changed:
            while self._under_way >= self._most and not self._failed:
                self._changed.wait()
            return not self._failed

    def _ask(self, prepared: Any, write: Write) -> None:
        connection, query = self._connection, package("cassandra.query")
        assert connection is not None
        bound = query.BoundStatement(prepared)
        bound.values = [query.UNSET_VALUE if value is UNSET else value for value in write.values]
        bound.is_idempotent = True
        connection.stamps.given = write.at if self._options.written_at is None else self._options.written_at
        with self._changed:
            self._under_way += 1
        try:
            future = connection.session.execute_async(bound, trace=self._options.traced)
        except Exception as error:
            self._missed(error, write)
            return
        future.add_callbacks(self._taken, self._missed, errback_args=(write,))

    def _taken(self, rows: Any) -> None:
        with self._changed:
            self._under_way -= 1
            self._taken_count += 1
            self._changed.notify_all()

    def _missed(self, error: BaseException, write: Write) -> None:
        with self._changed:
            self._under_way -= 1
            self._failed.append((write, error))
            self._changed.notify_all()

    def flush(self, statement: str) -> None:
        """Wait until the server has accepted all writes.

        Raises:
            SinkError: see `send`.
        """
        self._carry_out(statement, [])

    def _carry_out(self, statement: str, writes: list[Write]) -> None:
        """Send the writes, and earlier writes that failed, until the server has accepted all of them."""
        pauses, waiting = Pauses(self._patience), deque(writes)
        while True:
            failed = self._settled()
            if not failed and not waiting:
                return
            refused = next((miss for miss in failed if not is_lost(miss[1])), None)
            if refused is not None:
                raise self._refused(*refused)
            waiting.extendleft(write for write, _ in reversed(failed))
            if failed and not pauses.wait():
                raise self._lost(len(waiting), failed[0][1])
            if self._check is not None:
                self._check()
            try:
                prepared = self.prepare(statement)
            except SinkError as error:
                self.close()
                if error.__cause__ is None or not is_lost(error.__cause__) or not pauses.wait():
                    raise
                continue
            taken = self._taken_count
            while waiting and self._room():
                self._ask(prepared, waiting.popleft())
            if self._taken_count > taken:
                pauses.restart()

    def _settled(self) -> list[tuple[Write, BaseException]]:
        """Wait until no request is in flight, and return the failed writes."""
        with self._changed:
            while self._under_way:
                self._changed.wait()
            failed, self._failed = self._failed, []
        return failed

    def _refused(self, write: Write, error: BaseException) -> SinkError:
        text = message_of(error)
        return SinkError(f"{self._builder.shown} rejects {str(write.record)[:300]}: {text}", remedy=remedy(error, text))

    def _lost(self, count: int, error: BaseException) -> SinkError:
        return self._builder.explained(SinkError, f"{count} rows were not accepted within {self._patience:g} s", error)

    @property
    def has_failed(self) -> bool:
        return bool(self._failed)

    def forget(self) -> None:
        """Wait for the requests in flight, and forget failed writes. Another attempt is responsible for these writes."""
        self._settled()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
