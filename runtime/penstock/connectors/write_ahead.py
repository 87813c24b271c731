"""At-least-once into any system, one checkpoint's records at a time: `GenericWriteAheadSink` (K4, K5).

Records are kept until their checkpoint is complete; then they are sent in one call, and the checkpoint's id is noted in a
store outside the job, the `CheckpointCommitter`, so that a checkpoint that was sent is not sent again after a restore.
Records come twice in two cases only: a crash inside `send_values`, and one between it and the note.

Here the kept records are part of the checkpoint's committables and the JobManager sends them: what a checkpoint holds
should stay small. They are encoded with msgpack by their type, as all state is.
"""

from __future__ import annotations

import base64
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.state.encoding.serializers import codec_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.state.encoding.codec import Codec


class CheckpointCommitter(ABC):
    """Remembers outside the job which checkpoints of which subtask were sent (K5). Picklable."""

    @abstractmethod
    def is_committed(self, sink_id: str, subtask: int, checkpoint_id: int) -> bool: ...

    @abstractmethod
    def commit(self, sink_id: str, subtask: int, checkpoint_id: int) -> None: ...


class FileCheckpointCommitter(CheckpointCommitter):
    """Notes the last id in a local file `<directory>/<sink id>/<subtask>`, as `0x` and 16 hex digits.

    The directory must be on the JobManager's machine and survive it.
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


class GenericWriteAheadSink(Sink):
    """Base of the user's class, which says how records are sent.

    Args:
        committer: where sent checkpoints are noted.
        type_info: what the records are; builtins need no type, other values are encoded by it.
        sink_id: names this sink in the committer's store; job id and uid unless given. Two jobs must not share one.
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
        return WriteAheadCommitter(self, self.sink_id or f"{job_id}-{uid}".replace("/", "_"))


class WriteAheadWriter(SinkWriter):
    """Keeps the records of the current checkpoint."""

    def __init__(self, codec: Codec, context: WriterContext) -> None:
        self._codec = codec
        self._subtask = context.subtask
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
                "subtask": self._subtask,
                "checkpoint": checkpoint_id,
                "timestamp": self._now,
                "code": code,
                "records": base64.b64encode(records).decode("ascii"),
            }
        ]


class WriteAheadCommitter(Committer):
    def __init__(self, sink: GenericWriteAheadSink, sink_id: str) -> None:
        self._sink = sink
        self._id = sink_id
        self._codec = sink.codec()

    def commit(self, committables: list[Any]) -> None:
        sink = self._sink
        for piece in sorted(committables, key=lambda p: (p["checkpoint"], p["subtask"])):
            self.check_wanted()
            subtask, checkpoint_id = piece["subtask"], piece["checkpoint"]
            if sink.committer.is_committed(self._id, subtask, checkpoint_id):
                continue
            values = self._codec.decode_column(piece["code"], base64.b64decode(piece["records"]))
            if not sink.send_values(values, checkpoint_id, piece["timestamp"]):
                raise SinkError(
                    f"{type(sink).__name__}.send_values refused checkpoint {checkpoint_id} of subtask {subtask}",
                    remedy="its records are kept and sent again; make the system take them",
                )
            self.check_wanted()  # a late note would hide what another attempt has noted since
            sink.committer.commit(self._id, subtask, checkpoint_id)
