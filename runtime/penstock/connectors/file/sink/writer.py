"""The writer of a FileSink: buckets, each with at most one open part.

write             records -> bucket -> encoder -> part; a full part is closed and a new one begins
prepare_commit    closes the parts that end at this barrier, and persists the others. Returns the committables of all parts closed since
                  the last barrier, and a marker for each open part
snapshot_state    returns the open parts and the part counter
restore           continues each open part from the checkpoint. A rescale may give a subtask two parts of one bucket: the
                  second is closed at once. After a change of the sink, a part of another format or directory is closed, too
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from penstock.common.serialization import Encoder
from penstock.connectors.core.sink import SinkWriter
from penstock.connectors.file.sink.bucket import BucketAssigner, BucketContext
from penstock.connectors.file.sink.recoverable import PartStream, RecoverableStore, open_marker
from penstock.connectors.formats.bulk import BulkWriter, ColumnsWriterFactory
from penstock.connectors.formats.encode import header_of
from penstock.records.batch import Batch, ColumnBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.connectors.file.sink.compact import Compaction
    from penstock.connectors.file.sink.part_file import PartNames
    from penstock.connectors.file.sink.rolling import RollingPolicy

_PART, _COUNTER = "part", "counter"


class OpenPart:
    """An open part with its encoder or bulk writer. Times are in ms of the monotonic clock."""

    def __init__(
        self, stream: PartStream, bulk: BulkWriter | None, created: int, written: int, *, persisted: bool = False
    ) -> None:
        self.stream = stream
        self.bulk = bulk
        self.created = created
        self.written = written
        self.persisted = persisted
        """Whether a snapshot may hold the part open. The part is then needed even if the checkpoint that closes it is abandoned."""
        self.file_start = 0
        """Part size at which the current file of the rolling policy begins; 0 unless files are merged."""
        self.is_between = False
        """Whether the rolling policy has ended a file of this part, and the next file has not started."""
        self.checkpoints = 0
        """Number of checkpoints since the part was made."""

    @property
    def size(self) -> int:
        return self.stream.size + (0 if self.bulk is None else self.bulk.buffered_bytes)

    def close(self) -> dict[str, Any]:
        if self.bulk is not None:
            self.bulk.finish()
        return {**self.stream.close_for_commit(), "persisted": self.persisted}

    def persist(self) -> dict[str, Any]:
        self.persisted = True
        return self.stream.persist()


class FileWriter(SinkWriter):
    """A writer of one subtask's records.

    Args:
        format: an encoder of rows, or a factory of bulk writers.
        directory_of: bucket -> its directory.
        check_interval_ms: how often the age of parts is checked.
    """

    def __init__(
        self,
        store: RecoverableStore,
        format: Encoder | ColumnsWriterFactory,
        directory_of: Callable[[str], str],
        names: PartNames,
        assigner: BucketAssigner,
        policy: RollingPolicy,
        now_ms: Callable[[], int],
        *,
        check_interval_ms: int,
        compaction: Compaction | None = None,
        monotonic_ms: Callable[[], int] | None = None,
    ) -> None:
        self._store = store
        self._compaction = compaction
        self._encoder = format if isinstance(format, Encoder) else None
        self._format = "" if self._encoder is None else self._encoder.format_name()
        self._factory = format if isinstance(format, ColumnsWriterFactory) else None
        self._directory_of = directory_of
        self._names = names
        self._assigner = assigner
        self._policy = policy if store.resumable and self._factory is None else policy.ending_at_checkpoints()
        self._now_ms = now_ms
        self._check_interval_ms = check_interval_ms
        self._elapsed_ms = now_ms if monotonic_ms is None else monotonic_ms
        """Clock for the ages of parts. It is monotonic, because the machine's clock may be set."""
        self._next_check = self._elapsed_ms() + check_interval_ms
        self._parts: dict[str, OpenPart] = {}
        self._closed: list[dict[str, Any]] = []
        self._states: list[dict[str, Any]] = []
        self._is_finishing = False
        self._attempt = 0
        self._context = BucketContext()

    def restore(self, items: list[Any], attempt: int) -> None:
        self._attempt = attempt
        for item in items:
            if item["type"] == _COUNTER:
                self._names.counter = max(self._names.counter, item["value"])
                continue
            stream = self._store.resume(item["stream"], attempt - item.get("attempt", 0))
            if stream is None:
                continue
            part = OpenPart(stream, None, *(self._since(item[at]) for at in ("created", "written")), persisted=True)
            part.file_start, part.is_between, part.checkpoints = item.get("merging", (0, False, 0))
            if item["bucket"] in self._parts or stream.is_full or not self._can_continue(item):
                self._closed.append(part.close())
            else:
                self._parts[item["bucket"]] = part

    def _can_continue(self, item: dict[str, Any]) -> bool:
        """Return True if the restored part has the folder, suffix and format of this writer. Older snapshots contain no format."""
        if self._encoder is None:
            return False
        directory, name = posixpath.split(item["stream"]["path"])
        own_directory = self._directory_of(item["bucket"])
        is_of_format = item.get("format", self._format) == self._format
        return bool(is_of_format and name.endswith(self._names.suffix) and directory == own_directory.rstrip("/"))

    def write_batch(self, batch: Batch, watermark: int) -> None:
        if self._factory is not None and isinstance(batch, ColumnBatch) and self._assigner.ignores_records:
            self._write_bulk(self._assigner.get_bucket_id(None, self._bucket_context(watermark)), batch)
            return
        rows = batch.rows()
        self.write(rows.values, rows.timestamps, watermark)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if not values:
            return
        buckets = self._assigner.assign(values, timestamps, self._bucket_context(watermark))
        write = self._write_rows if self._encoder is not None else self._write_bulk
        if isinstance(buckets, str):
            write(buckets, values)
            return
        grouped: defaultdict[str, list[Any]] = defaultdict(list)
        for bucket, value in zip(buckets, values, strict=True):
            grouped[bucket].append(value)
        for bucket, group in grouped.items():
            write(bucket, group)

    def _bucket_context(self, watermark: int) -> BucketContext:
        context = self._context
        context.processing_time, context.watermark, context.timestamp = self._now_ms(), watermark, None
        return context

    def _write_rows(self, bucket: str, values: Sequence[Any]) -> None:
        """Write the records. Each part gets as many records as fit, but at least one."""
        assert self._encoder is not None
        data = self._encoder.encode_batch(values)
        part = self._part(bucket)
        limit = self._policy.part_size
        if limit and part.size - part.file_start + len(data) > limit and len(values) > 1:
            middle = len(values) // 2
            self._write_rows(bucket, values[:middle])
            self._write_rows(bucket, values[middle:])
            return
        if part.is_between:
            self._begin_file(part)
        part.stream.write(data)
        part.written = self._elapsed_ms()
        if part.stream.is_full:
            self._close(bucket)
        elif self._policy.is_full(part.size - part.file_start):
            self._roll(bucket)

    def _begin_file(self, part: OpenPart) -> None:
        """Begin the next of the files that are merged into the part."""
        assert self._compaction is not None
        assert self._encoder is not None
        part.stream.write(self._compaction.delimiter + header_of(self._encoder))
        part.is_between, part.file_start, part.created = False, part.size, self._elapsed_ms()

    def _write_bulk(self, bucket: str, values: Sequence[Any] | ColumnBatch) -> None:
        part = self._part(bucket)
        assert part.bulk is not None
        if isinstance(values, ColumnBatch):
            part.bulk.add_columns(values)
        else:
            part.bulk.add(values)
        part.written = self._elapsed_ms()
        if part.stream.is_full or self._policy.is_full(part.size):
            self._close(bucket)

    def _part(self, bucket: str) -> OpenPart:
        part = self._parts.get(bucket)
        if part is None:
            now = self._elapsed_ms()
            stream = self._store.open(self._directory_of(bucket), self._names.next())
            bulk = None if self._factory is None else self._factory.create(stream)
            part = self._parts[bucket] = OpenPart(stream, bulk, now, now)
            if self._encoder is not None:
                stream.write(header_of(self._encoder))
        return part

    def _roll(self, bucket: str) -> None:
        """End the rolling policy's file. End the part, too, unless it is merged with later files."""
        part, compaction = self._parts[bucket], self._compaction
        if compaction is None or compaction.strategy.is_due(0, part.size):
            self._close(bucket)
        else:
            part.is_between = True

    def _close(self, bucket: str) -> None:
        self._closed.append(self._parts.pop(bucket).close())

    @property
    def _offset_ms(self) -> int:
        """Return the difference between the time since the epoch and the monotonic time. Snapshots store times since the epoch."""
        return self._now_ms() - self._elapsed_ms()

    def _since(self, moment_ms: int) -> int:
        """Convert a time since the epoch to the monotonic clock. A time in the future becomes the present."""
        return min(moment_ms, self._now_ms()) - self._offset_ms

    def advance_processing_time(self, now: int) -> None:
        now = self._elapsed_ms()
        if now < self._next_check:
            return
        self._next_check = now + self._check_interval_ms
        for bucket, part in list(self._parts.items()):
            if not part.is_between and self._policy.is_due(now, part.created, part.written):
                self._roll(bucket)

    def next_processing_time(self, now: int) -> int | None:
        return now + self._next_check - self._elapsed_ms() if self._parts else None

    def finish(self) -> None:
        self._is_finishing = True

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        if self._is_finishing:
            for bucket in list(self._parts):
                self._close(bucket)
        elif self._policy.on_checkpoint:
            for bucket in list(self._parts):
                self._roll(bucket)
        self._merge()
        self._states = [
            {
                "type": _PART,
                "attempt": self._attempt,
                "bucket": bucket,
                "created": part.created + self._offset_ms,
                "written": part.written + self._offset_ms,
                "format": self._format,
                "stream": part.persist(),
                **({"merging": (part.file_start, part.is_between, part.checkpoints)} if self._compaction else {}),
            }
            for bucket, part in self._parts.items()
        ]
        closed, self._closed = self._closed, []
        return closed + [open_marker(state["stream"]) for state in self._states]

    def _merge(self) -> None:
        """End the parts whose files have waited long enough, including a file that is being written."""
        if self._compaction is None:
            return
        for bucket, part in list(self._parts.items()):
            part.checkpoints += 1
            if self._compaction.strategy.is_due(part.checkpoints, part.size):
                self._close(bucket)

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return [{"type": _COUNTER, "value": self._names.counter}, *self._states]

    def close(self) -> None:
        for part in self._parts.values():
            if part.bulk is not None:
                part.bulk.discard()
            part.stream.dispose()
        self._parts.clear()
