"""At-least-once writes into any system, one checkpoint's records at a time: `GenericWriteAheadSink`.

The sink keeps records until their checkpoint is complete, and then sends them in one call. It records the checkpoint's id in a
store outside the job, the `CheckpointCommitter`. So a restore does not send the checkpoint again. Records are sent twice in
two cases only: after a crash inside `send_values`, and after a crash between `send_values` and the record of the id.

The kept records are part of the checkpoint's committables, and the JobManager sends them. So the records of one checkpoint
should be few. The records are encoded with msgpack by their type, like all state.
"""

from __future__ import annotations

import base64
import copy
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.store.object_store import base_name, join_url, normalize_url
from penstock.checkpoint.store.retrying_store import Stores
from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.state.encoding.serializers import codec_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.checkpoint.store.retrying_store import RetryingStore
    from penstock.state.encoding.codec import Codec


class CheckpointCommitter(ABC):
    """A store outside the job that remembers which checkpoints of which subtask were sent.

    `sink_id` identifies a sink and a job. Implementations are picklable.
    """

    @abstractmethod
    def is_committed(self, sink_id: str, subtask: int, checkpoint_id: int, /) -> bool: ...

    @abstractmethod
    def commit(self, sink_id: str, subtask: int, checkpoint_id: int, /) -> None: ...

    def with_object_store_options(self, options: dict[str, Any], /) -> CheckpointCommitter:
        """Return this committer with the job's object store options."""
        return self

    def validate(self) -> None:  # noqa: B027 - most stores need no check
        """Check on the client that the store can be read."""


class FileCheckpointCommitter(CheckpointCommitter):
    """A committer that writes the last id to a local file `<directory>/<sink id>/<subtask>`, as `0x` and 16 hex digits.

    The directory must be on the JobManager's machine and survive a failure of the JobManager. A pod's own disk does not survive. In a
    pod, use `ObjectStoreCheckpointCommitter`.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def is_committed(self, sink_id: str, subtask: int, checkpoint_id: int) -> bool:
        path = self._path(sink_id, subtask)
        return path.exists() and checkpoint_id <= int(path.read_text(), 16)

    def commit(self, sink_id: str, subtask: int, checkpoint_id: int) -> None:
        path = self._path(sink_id, subtask)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}")
        with draft.open("w") as file:
            file.write(f"0x{checkpoint_id:016x}")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def _path(self, sink_id: str, subtask: int) -> Path:
        return Path(self.directory, sink_id, str(subtask))


class ObjectStoreCheckpointCommitter(CheckpointCommitter):
    """A committer that records ids in an object store, or in a directory that all machines share.

    An empty object `<url>/<sink id>/<subtask>/<16 hex digits>` records the last id. Objects are never overwritten. If a
    record is written late, its object has a lower number. Only the highest number counts.

    Args:
        url: "s3://bucket/folder", "file:///mnt/shared/folder", or any URL that fsspec knows. The job's checkpoint settings apply.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url = normalize_url(url)
        self._stores = Stores(options)

    def with_object_store_options(self, options: dict[str, Any]) -> ObjectStoreCheckpointCommitter:
        return ObjectStoreCheckpointCommitter(self.url, {**options, **self._stores.options})

    def validate(self) -> None:
        """Check that the store can be listed.

        Raises:
            StorageError: the store cannot be listed.
        """
        self._store.list_objects(self.url)

    @property
    def _store(self) -> RetryingStore:
        return self._stores.for_url(self.url)

    def is_committed(self, sink_id: str, subtask: int, checkpoint_id: int) -> bool:
        return any(base_name(url) >= _digits(checkpoint_id) for url in self._notes(sink_id, subtask))

    def commit(self, sink_id: str, subtask: int, checkpoint_id: int) -> None:
        name = _digits(checkpoint_id)
        self._store.put(join_url(self.url, sink_id, str(subtask), name), b"")
        older = [url for url in self._notes(sink_id, subtask) if base_name(url) < name]
        self._store.delete_many(older)

    def _notes(self, sink_id: str, subtask: int) -> list[str]:
        return [found.url for found in self._store.list_objects(join_url(self.url, sink_id, str(subtask)))]


def _digits(checkpoint_id: int) -> str:
    return f"{checkpoint_id:016x}"


class GenericWriteAheadSink(Sink):
    """Base class of the user's sink, which implements how records are sent.

    Args:
        committer: the store that records the sent checkpoints.
        type_info: the type of the records. Builtin values need no type.
        sink_id: the name of this sink. The committer's store records checkpoints under this name followed by the job's id. By default
            it records them under the job's id followed by the sink's uid.
    """

    def __init__(self, committer: CheckpointCommitter, type_info: Any = None, *, sink_id: str = "") -> None:
        if "/" in sink_id:
            raise InvalidJob(f"sink_id={sink_id!r} contains '/'", remedy="pass a name without '/'")
        self.committer = committer
        self.type_info = type_info
        self.sink_id = sink_id
        self.codec()

    def codec(self) -> Codec:
        """Return the codec of the kept records."""
        return codec_for(self.type_info, state=self.sink_id or "write-ahead", operator=type(self).__name__)

    @abstractmethod
    def send_values(self, values: Sequence[Any], checkpoint_id: int, timestamp: int, /) -> bool:
        """Send a checkpoint's records of one subtask, in order. `timestamp` (ms) is when the checkpoint was taken.

        Returns:
            Whether the system took the records. If False, the job fails, and the restore sends the records again.
        """

    def create_writer(self, context: WriterContext, restored: list[Any], /) -> SinkWriter:
        return WriteAheadWriter(self.codec(), context)

    def create_committer(
        self, object_store_options: dict[str, Any], /, *, job_id: str = "", uid: str = ""
    ) -> Committer:
        notes = self.committer.with_object_store_options(object_store_options)
        return WriteAheadCommitter(self, job_id, uid, notes)

    def id_of_notes(self, job_id: str, uid: str, /) -> str:
        """Return the id under which the store records the sent checkpoints of a job.

        The id contains the job, because each job counts its own checkpoints. A job restored from a savepoint may use a checkpoint
        id that another job has used since then.
        """
        return (f"{self.sink_id}-{job_id}" if self.sink_id else f"{job_id}-{uid}").replace("/", "_")

    def with_object_store_options(self, options: dict[str, Any], /) -> GenericWriteAheadSink:
        sink = copy.copy(self)
        sink.committer = self.committer.with_object_store_options(options)
        return sink

    def validate(self) -> None:
        self.committer.validate()


class WriteAheadWriter(SinkWriter):
    """A writer that keeps the records of the current checkpoint."""

    def __init__(self, codec: Codec, context: WriterContext) -> None:
        self._codec = codec
        self._subtask = context.subtask
        self._job_id = context.job_id
        self._values: list[Any] = []
        self._now = 0

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self._values.extend(values)

    def advance_processing_time(self, now: int) -> None:
        self._now = now

    def next_processing_time(self, now: int) -> int | None:
        return None

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        values, self._values = self._values, []
        if not values:
            return []
        code, records = self._codec.encode_column(self._codec.freeze(values))
        return [
            {
                "job": self._job_id,
                "subtask": self._subtask,
                "checkpoint": checkpoint_id,
                "timestamp": self._now,
                "code": code,
                "records": base64.b64encode(records).decode("ascii"),
            }
        ]


class WriteAheadCommitter(Committer):
    def __init__(self, sink: GenericWriteAheadSink, job_id: str, uid: str, notes: CheckpointCommitter) -> None:
        self._sink = sink
        self._notes = notes
        self._job_id, self._uid = job_id, uid
        self._codec = sink.codec()

    def _id(self, piece: dict[str, Any]) -> str:
        if "job" in piece:
            return self._sink.id_of_notes(piece["job"], self._uid)
        # Pieces of earlier versions have no job id. If the checkpoint was sent, the store has recorded it under one of these ids.
        return self._sink.sink_id or self._sink.id_of_notes(self._job_id, self._uid)

    def commit(self, committables: list[Any]) -> None:
        sink = self._sink
        for piece in sorted(committables, key=lambda p: (p["checkpoint"], p["subtask"])):
            self.check_wanted()
            subtask, checkpoint_id = piece["subtask"], piece["checkpoint"]
            notes_id = self._id(piece)
            if self._notes.is_committed(notes_id, subtask, checkpoint_id):
                continue
            values = self._codec.decode_column(piece["code"], base64.b64decode(piece["records"]))
            if not sink.send_values(values, checkpoint_id, piece["timestamp"]):
                raise SinkError(
                    f"{type(sink).__name__}.send_values refused checkpoint {checkpoint_id} of subtask {subtask}",
                    remedy="the job keeps the records and sends them again; make the system accept them",
                )
            self.check_wanted()  # recording this checkpoint late would hide what a newer attempt has recorded
            self._notes.commit(notes_id, subtask, checkpoint_id)
