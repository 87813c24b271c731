"""A connection in the server's replication protocol, over libpq's own calls: psycopg has them, and nothing above them for this."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.common.errors import SourceError
from penstock.connectors.postgres.cdc.messages import end_of_timeline, lsn_of, lsn_text, status
from penstock.connectors.postgres.cdc.server_facts import check_slot, slot_of
from penstock.connectors.postgres.client import package, quoted

if TYPE_CHECKING:
    from penstock.connectors.postgres.cdc.source import PostgresCdcSource

_SETTINGS = (
    "-c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3 -c bytea_output=hex -c timezone=UTC -c client_encoding=UTF8 "
    "-c wal_sender_timeout=600s"
)
"""A task that is held up does not answer meanwhile; the server is to wait for it."""

_SILENT_MS = 30_000
"""How long what was sent may be without an answer from the server's machine."""


class SlotBusy(Exception):
    """Somebody reads from the slot."""


class ReplicationLink:
    """Reads from a slot, from a position on.

    Args:
        who: names this reader to the server; one of the same name that holds the slot is what a lost task has left, and is ended.

    Raises:
        SourceError: the slot does not have what is behind the position, or the server does not answer or let us.
        SlotBusy: another one reads from the slot.
    """

    def __init__(
        self, source: PostgresCdcSource, position: int, who: str, system: str | None, timeline: int | None
    ) -> None:
        self._source = source
        self.timeline = timeline
        self._pq = package("psycopg.pq")
        with source.server.connect(SourceError, autocommit=True) as connection:
            slot = slot_of(connection, source.slot)
            check_slot(slot, source, position)
            assert slot is not None
            if slot.active_pid is not None:
                self._end_predecessor(connection, slot.active_pid, who)
        self._link = self._connect(who)
        try:
            self.system = self._system(system, position)
            self._start(position)
        except BaseException:
            self.close()
            raise

    def _end_predecessor(self, connection: Any, pid: int, who: str) -> None:
        found = connection.execute("select application_name from pg_stat_activity where pid = %s", [pid]).fetchone()
        if found is not None and found[0] == who:
            connection.execute("select pg_terminate_backend(%s)", [pid])
            time.sleep(0.05)
            return
        by = f" ({found[0]})" if found is not None else ""
        raise SlotBusy(f"replication slot {self._source.slot!r} is in use by process {pid} of the server{by}")

    def _connect(self, who: str) -> Any:
        source, conninfo = self._source, package("psycopg.conninfo")
        given = conninfo.conninfo_to_dict(source.server.conninfo)
        options = source.server.options(SourceError)
        options |= {
            "tcp_user_timeout": given.get("tcp_user_timeout", _SILENT_MS),
            "replication": "database",
            "application_name": who,
            "options": f"{given.get('options', '')} {_SETTINGS}".strip(),
        }
        link = self._pq.PGconn.connect(conninfo.make_conninfo(source.server.conninfo, **options).encode())
        if link.status != self._pq.ConnStatus.OK:
            error = package().OperationalError(link.get_error_message())
            raise source.server.explained(SourceError, "cannot connect for replication", error) from error
        return link

    def _system(self, known: str | None, position: int) -> str:
        """Which cluster of databases the server is."""
        result = self._link.exec_(b"IDENTIFY_SYSTEM")
        if result.status != self._pq.ExecStatus.TUPLES_OK:
            raise self._failed(result)
        system: str = result.get_value(0, 0).decode()
        if known is not None and known != system:
            raise SourceError(
                f"{self._source.server.shown}: the server is another one (system {system}) than the one whose log was read up to "
                f"{lsn_text(position)} (system {known})",
                remedy="a position in one server's log means nothing in another's: start the job without the state of this source",
            )
        self._check_timeline(int(result.get_value(0, 1)), lsn_of(result.get_value(0, 2).decode()), position)
        return system

    def _check_timeline(self, timeline: int, end: int, position: int) -> None:
        """A replica that takes over, or a backup, begins a timeline where its log ended. What was read behind that is in its log no more, and what is there
        instead, below the position, would not be sent."""
        known, self.timeline = self.timeline, timeline
        if known is not None and known != timeline:
            result = self._link.exec_(f"TIMELINE_HISTORY {timeline}".encode())
            if result.status != self._pq.ExecStatus.TUPLES_OK:
                raise self._failed(result)
            end = min(end, end_of_timeline(result.get_value(0, 1).decode(), known))
        if end < position:
            raise SourceError(
                f"{self._source.server.shown}: its log was read up to {lsn_text(position)}, and this server, a replica that took over or a backup, has "
                f"it up to {lsn_text(end)}: what was read behind that it has not",
                remedy="start the job without the state of this source: it reads all rows again",
            )

    def _start(self, position: int) -> None:
        source = self._source
        name = quoted(source.publication).replace("'", "''")
        command = (
            f'START_REPLICATION SLOT "{source.slot}" LOGICAL {lsn_text(position)} '
            f"(proto_version '1', publication_names '{name}')"
        )
        self._link.send_query(command.encode())
        result = self._link.get_result()
        if result is None or result.status != self._pq.ExecStatus.COPY_BOTH:
            raise self._failed(result)
        self._link.nonblocking = 1

    def _failed(self, result: Any) -> Exception:
        error = self._error(result)
        if "is active for PID" in str(error):
            return SlotBusy(str(error))
        failed = self._source.server.explained(
            SourceError, f"replication slot {self._source.slot!r} cannot be read", error
        )
        failed.__cause__ = error
        return failed

    def _error(self, result: Any) -> Exception:
        """The server's, of the class that it gives; one that the server may do another time, where only the connection says something."""
        if result is not None and result.error_field(self._pq.DiagnosticField.SQLSTATE):
            found: Exception = package("psycopg.errors").error_from_result(result)
            return found
        text = self._link.get_error_message() if result is None else result.get_error_message()
        return package().OperationalError(text or "the server has ended the stream")  # type: ignore[no-any-return]

    def receive(self) -> bytes | None:
        """The next message; None: nothing is there.

        Raises:
            psycopg.Error: the connection or the server has gone, or the server has given up.
        """
        count, data = self._link.get_copy_data(1)
        if count == 0:
            self._link.consume_input()
            count, data = self._link.get_copy_data(1)
        if count > 0:
            return bytes(data)
        if count == 0:
            return None
        raise self._error(self._link.get_result())

    def tell(self, flushed: int, *, asks: bool) -> None:
        """Up to where the log is not needed any more."""
        self._link.put_copy_data(status(flushed, asks=asks))
        self._link.flush()

    def close(self) -> None:
        self._link.finish()
