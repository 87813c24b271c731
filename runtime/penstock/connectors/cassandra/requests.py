"""Many requests on their way at once, so many at most; what is lost is sent again, with the time it had.

Of two writes of one key the one with the later time stands, whichever comes last: so rows need no order on their way, and one that is sent a second time
changes nothing that was written after it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import SinkError
from penstock.connectors.cassandra.cluster import is_lost, package, remedy, told
from penstock.connectors.cassandra.values import UNSET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.connectors.cassandra.cluster import ClusterBuilder, Connection
    from penstock.connectors.cassandra.options import MapperOptions

_LONGEST_PAUSE_S = 3.0


class Write(NamedTuple):
    """`at`: microseconds since 1970. `values`: as they go over the wire. `record`: for errors."""

    at: int
    values: Sequence[Any]
    record: Any


class Clock:
    """Times of writes: those of the machine's clock, each later than the one before."""

    def __init__(self) -> None:
        self._last = 0

    def take(self, count: int) -> int:
        """The first of so many microseconds in a row that nobody else gets."""
        first = max(self._last + 1, time.time_ns() // 1000)
        self._last = first + count - 1
        return first


class Pauses:
    """Between tries: longer and longer ones, until nothing has come of them for so many seconds."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.begin_anew()

    def begin_anew(self) -> None:
        self._end = time.monotonic() + self._patience
        self._next = 0.1

    def wait(self) -> bool:
        """False: there is no patience left."""
        if time.monotonic() > self._end:
            return False
        time.sleep(self._next)
        self._next = min(_LONGEST_PAUSE_S, self._next * 2)
        return True


class Requests:
    """
    Args:
        patience: seconds in which nothing was taken by the server until the job fails over.
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
        """
        Raises:
            SinkError: the server is not there, or does not take the statement.
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
            what = "does not answer" if is_lost(error) else f"{statement!r} is not taken"
            raise self._builder.explained(SinkError, what, error) from error
        self._prepared[statement] = found
        return found

    def send(self, statement: str, writes: list[Write]) -> None:
        """Send them, or hold those for which there is no room; they are there when `flush` returns.

        Raises:
            SinkError: a row was refused, or the server is lost for long.
        """
        prepared = self._prepared.get(statement) if self._connection is not None else None
        for index, write in enumerate(writes):
            if prepared is None or not self._room():
                self._carry_out(statement, writes[index:])
                return
            self._ask(prepared, write)

    def _room(self) -> bool:
        """Whether one more may go; False: something has failed."""
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
        """Wait until all is taken.

        Raises:
            SinkError: as `send`.
        """
        self._carry_out(statement, [])

    def _carry_out(self, statement: str, writes: list[Write]) -> None:
        """Until all of it is taken, also what has failed before."""
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
                pauses.begin_anew()

    def _settled(self) -> list[tuple[Write, BaseException]]:
        """What failed, when nothing is under way any more."""
        with self._changed:
            while self._under_way:
                self._changed.wait()
            failed, self._failed = self._failed, []
        return failed

    def _refused(self, write: Write, error: BaseException) -> SinkError:
        text = told(error)
        return SinkError(f"{self._builder.shown} refuses {str(write.record)[:300]}: {text}", remedy=remedy(error, text))

    def _lost(self, count: int, error: BaseException) -> SinkError:
        return self._builder.explained(SinkError, f"{count} rows were not taken for {self._patience:g} s", error)

    @property
    def has_failed(self) -> bool:
        return bool(self._failed)

    def forget(self) -> None:
        """What has failed is somebody else's now."""
        self._settled()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
