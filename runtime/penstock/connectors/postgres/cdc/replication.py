"""A connection in the replication protocol, with direct calls of libpq. psycopg has no higher interface for this protocol."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.common.errors import SourceError
from penstock.connectors.postgres.cdc.messages import end_of_timeline, lsn_of, lsn_text, status
from penstock.connectors.postgres.cdc.server_facts import check_slot, slot_of
from penstock.connectors.postgres.client import package, quoted

if TYPE_CHECKING:
    from penstock.connectors.postgres.cdc.settings import CdcSettings

_SETTINGS = (
    "-c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3 -c bytea_output=hex -c timezone=UTC -c client_encoding=UTF8 "
    "-c wal_sender_timeout=600s"
)
"""Settings of the session. The long `wal_sender_timeout` is for a task under backpressure, which does not respond for a while."""

_SILENT_MS = 30_000
"""Time in ms. The connection ends if sent data gets no TCP acknowledgement within this time."""


class SlotBusy(Exception):
    """Another process reads from the slot."""


class ReplicationLink:
    """Connection that reads from a slot, starting at a position.

    Args:
        who: name of this reader on the server. If a process with the same name holds the slot, that process belongs to a lost task. The
            link terminates the process.

    Raises:
        SourceError: the slot no longer has the log after the position, or the server does not respond or refuses the user.
        SlotBusy: another process reads from the slot.
    """

    def __init__(self, source: CdcSettings, position: int, who: str, system: str | None, timeline: int | None) -> None:
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
        parameters = conninfo.conninfo_to_dict(source.server.conninfo)
        options = source.server.options(SourceError)
        options |= {
            "tcp_user_timeout": parameters.get("tcp_user_timeout", _SILENT_MS),
            "replication": "database",
            "application_name": who,
            "options": f"{parameters.get('options', '')} {_SETTINGS}".strip(),
        }
        link = self._pq.PGconn.connect(conninfo.make_conninfo(source.server.conninfo, **options).encode())
        if link.status != self._pq.ConnStatus.OK:
            error = package().OperationalError(link.get_error_message())
            raise source.server.explained(SourceError, "cannot connect for replication", error) from error
        return link

    def _system(self, known: str | None, position: int) -> str:
        """Return the system identifier of the server, after checking that it is the known server and timeline."""
        result = self._link.exec_(b"IDENTIFY_SYSTEM")
        if result.status != self._pq.ExecStatus.TUPLES_OK:
            raise self._failed(result)
        system: str = result.get_value(0, 0).decode()
        if known is not None and known != system:
            raise SourceError(
                f"{self._source.server.shown} is not the server (system {system}) whose log was read up to "
                f"{lsn_text(position)} (system {known}). Positions in the log of one server are not valid in another",
                remedy="start the job without the state of this source: it reads all rows again",
            )
        self._check_timeline(int(result.get_value(0, 1)), lsn_of(result.get_value(0, 2).decode()), position)
        return system

    def _check_timeline(self, timeline: int, end: int, position: int) -> None:
        """Check that the server's log still contains the position.

        A promoted replica or a restored backup starts a new timeline at the end of its log. Changes that this job read after that point are
        not in the log of the new timeline. The new log may have other changes before the job's position. The server would not send them.
        """
        known, self.timeline = self.timeline, timeline
        if known is not None and known != timeline:
            result = self._link.exec_(f"TIMELINE_HISTORY {timeline}".encode())
            if result.status != self._pq.ExecStatus.TUPLES_OK:
                raise self._failed(result)
            end = min(end, end_of_timeline(result.get_value(0, 1).decode(), known))
        if end < position:
            raise SourceError(
                f"{self._source.server.shown}: the log was read up to {lsn_text(position)}, but this server, a promoted replica or a backup, has "
                f"it only up to {lsn_text(end)}. It does not have the later changes",
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
        """Return the server's error in psycopg's class for its code. If the connection failed without such an error,
        return a retryable error."""
        if result is not None and result.error_field(self._pq.DiagnosticField.SQLSTATE):
            found: Exception = package("psycopg.errors").error_from_result(result)
            return found
        text = self._link.get_error_message() if result is None else result.get_error_message()
        return package().OperationalError(text or "the server has ended the stream")  # type: ignore[no-any-return]

    def receive(self) -> bytes | None:
        """Return the next message, or None if none has arrived.

        Raises:
            psycopg.Error: the connection or the server is lost, or the server has ended the stream.
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
        """Report to the server the position up to which the job no longer needs the log."""
        self._link.put_copy_data(status(flushed, asks=asks))
        self._link.flush()

    def close(self) -> None:
        self._link.finish()
