"""Two writers. `DirectWriter` sends records, and waits at a barrier until the server has the records. `HoldingWriter`
stores records in the checkpoint."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.common.errors import SinkError
from penstock.connectors.cassandra.records import values_of
from penstock.connectors.cassandra.requests import Clock, Write
from penstock.connectors.cassandra.scalars import Misfit
from penstock.connectors.cassandra.values import Parameters
from penstock.connectors.core.sink import SinkWriter, StagedCommittable, WriterContext

if TYPE_CHECKING:
    from penstock.connectors.cassandra.settings import CassandraSinkSettings


class EncodingWriter(SinkWriter):
    """A writer that converts records to writes with a time and encoded values."""

    def __init__(self, sink: CassandraSinkSettings) -> None:
        self._sink = sink
        self._clock = Clock()
        self._requests = sink.requests()
        try:
            prepared = self._requests.prepare(sink.statement)
        except BaseException:
            self._requests.close()
            raise
        self._parameters = Parameters(prepared, saves_null=sink.options.nulls)
        self._values = values_of(sink.columns or self._parameters.names)

    def _writes(self, records: list[Any]) -> list[Write]:
        """Return the writes of the records.

        Raises:
            SinkError: a record does not fit the statement.
        """
        first = self._clock.take(len(records))
        values, encode = self._values, self._parameters.encode
        found = []
        for index, record in enumerate(records):
            try:
                found.append(Write(first + index, encode(tuple(values(record))), record))
            except Misfit as error:
                raise SinkError(
                    f"a record does not fit {self._sink.statement!r}: {error}; the record: {str(record)[:300]}",
                    remedy="correct or filter out such records before the sink, or change the table to accept them",
                ) from error
        return found

    def close(self) -> None:
        self._requests.close()


class DirectWriter(EncodingWriter):
    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if values:
            self._requests.send(self._sink.statement, self._writes(values))

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        self.flush()
        return []

    def flush(self) -> None:
        self._requests.flush(self._sink.statement)

    def advance_processing_time(self, now: int) -> None:
        """Retry failed writes, and report errors, even if no record arrives."""
        if self._requests.has_failed:
            self.flush()


class HoldingWriter(EncodingWriter):
    """A writer that puts the encoded rows into the checkpoint."""

    def __init__(self, sink: CassandraSinkSettings, context: WriterContext) -> None:
        super().__init__(sink)
        self._requests.close()  # this writer sends nothing
        self._subtask, self._job_id = context.subtask, context.job_id
        self._run = secrets.token_hex(8)
        self._buffered: list[Write] = []

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self._buffered.extend(self._writes(values))

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        writes, self._buffered = self._buffered, []
        if not writes:
            return []
        about = {
            "job": self._job_id,
            "subtask": self._subtask,
            "run": self._run,
            "checkpoint": checkpoint_id,
            "statement": self._sink.statement,
            "at": writes[-1].at,
        }
        return [
            StagedCommittable(about, lambda: msgspec.msgpack.encode([(write.at, write.values) for write in writes]))
        ]
