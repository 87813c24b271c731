"""At-least-once into any system, one checkpoint's records at a time: `GenericWriteAheadSink` (K4, K5).

Records are kept until their checkpoint is complete; then they are sent in one call, and the checkpoint's id is noted in a
store outside the job, the `CheckpointCommitter`, so that a checkpoint that was sent is not sent again after a restore.
Records come twice in two cases only: a crash inside `send_values`, and one between it and the note.

Here the kept records are part of the checkpoint's committables and the JobManager sends them: what a checkpoint holds
should stay small. They are encoded with msgpack by their type, as all state is.
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
from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.state.encoding.serializers import codec_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.checkpoint.store.retrying_store import RetryingStore
    from penstock.state.encoding.codec import Codec


class CheckpointCommitter(ABC):
    """Remembers outside the job which checkpoints of which subtask were sent (K5). `sink_id`: of a sink and a job. Picklable."""

    @abstractmethod
    def is_committed(self, sink_id: str, subtask: int, checkpoint_id: int) -> bool: ...

    @abstractmethod
    def commit(self, sink_id: str, subtask: int, checkpoint_id: int) -> None: ...

    def with_object_store_options(self, options: dict[str, Any]) -> CheckpointCommitter:
        """This committer with what the job's configuration says of object stores."""
        return self

    def validate(self) -> None:  # noqa: B027 - most have nothing to look at
        """Checks on the client that notes can be read."""


class FileCheckpointCommitter(CheckpointCommitter):
    """Notes the last id in a local file `<directory>/<sink id>/<subtask>`, as `0x` and 16 hex digits.

    The directory must be on the JobManager's machine and survive it: what a pod has of its own does not (`ObjectStoreCheckpointCommitter`).
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
    """Notes ids in an object store, or a directory that all machines see: an empty object `<url>/<sink id>/<subtask>/<16 hex digits>` for the last one.

    Objects are never written over: a note that comes late is an older name beside the newest, which counts.

    Args:
        url: "s3://bucket/folder", "file:///mnt/shared/folder", or any URL that fsspec knows; reached as the job's checkpoints are.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url = normalize_url(url)
        self._stores = Stores(options)

    def with_object_store_options(self, options: dict[str, Any]) -> ObjectStoreCheckpointCommitter:
        return ObjectStoreCheckpointCommitter(self.url, {**options, **self._stores.options})

    def validate(self) -> None:
        """
        Raises:
            StorageError: it cannot be listed.
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
    """Base of the user's class, which says how records are sent.

    Args:
        committer: where sent checkpoints are noted.
        type_info: what the records are; builtins need no type, other values are encoded by it.
        sink_id: names this sink in the committer's store, before the id of the job that took the checkpoint; the sink's uid, behind it, unless given.
    """

    def __init__(self, committer: CheckpointCommitter, type_info: Any = None, *, sink_id: str = "") -> None:
        if "/" in sink_id:
            raise InvalidJob(f"sink_id={sink_id!r}", remedy="give a name without '/'")
        self.committer = committer
        self.type_info = type_info
        self.sink_id = sink_id
        self.codec()

    def codec(self) -> Codec:
        """How records are kept."""
        return codec_for(self.type_info, state=self.sink_id or "write-ahead", operator=type(self).__name__)

    @abstractmethod
    def send_values(self, values: Sequence[Any], checkpoint_id: int, timestamp: int) -> bool:
        """Send a checkpoint's records of one subtask, in order. `timestamp`: ms, when the checkpoint was taken.

        Returns:
            Whether they were taken; if not, the job fails and they are sent again after the restore.
        """

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return WriteAheadWriter(self.codec(), context)

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        notes = self.committer.with_object_store_options(object_store_options)
        return WriteAheadCommitter(self, job_id, uid, notes)

    def id_of_notes(self, job_id: str, uid: str) -> str:
        """Under which the checkpoints of a job are noted. Each job counts its own: one restored from a savepoint may give an id again that another gave since."""
        return (f"{self.sink_id}-{job_id}" if self.sink_id else f"{job_id}-{uid}").replace("/", "_")

    def with_object_store_options(self, options: dict[str, Any]) -> GenericWriteAheadSink:
        sink = copy.copy(self)
        sink.committer = self.committer.with_object_store_options(options)
        return sink

    def validate(self) -> None:
        self.committer.validate()


class WriteAheadWriter(SinkWriter):
    """Keeps the records of the current checkpoint."""

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
        # a piece of an earlier version does not say whose it is: its checkpoint, if it was sent, is noted by these names
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
                    remedy="its records are kept and sent again; make the system take them",
                )
            self.check_wanted()  # a late note would hide what another attempt has noted since
            self._notes.commit(notes_id, subtask, checkpoint_id)
