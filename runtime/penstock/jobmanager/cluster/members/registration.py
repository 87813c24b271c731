"""The protocol between a TaskManager and its JobManager.

The protocol uses one connection, encrypted with the cluster's secret (`taskmanager.control.sealed_channel`). The TaskManager registers, and
the JobManager answers with the executor to start. The TaskManager starts the executor, reports its end, and receives the next executor to
start. If the connection ends, each side treats the other side as lost, and the executor is no longer used.

If masters elect a leader, a TaskManager is connected to the leader and to a master on standby. Each master first sends its role. Only the
leader's executor runs tasks:

1. The TaskManager may ask a standby for an executor (`AskWarm`). This executor registers with the driver of the standby and waits.
2. The standby sends `Leads` when it becomes the leader.
3. The TaskManager ends the executors of earlier leaders, and then sends `Follows`. Only then can the new leader use its slots. So the tasks of
   two leaders never run in one slot.
"""

from __future__ import annotations

import msgspec

from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
from penstock.common.stacks.listener import Question
from penstock.common.stacks.sampling import Place, Sample
from penstock.jobmanager.cluster.executor.executor_process import Launch

PURPOSE = b"penstock resource manager 7"
"""Purpose of the secret in this protocol. The number changes with the protocol."""
BEAT_S = 3.0
"""Interval of a TaskManager's heartbeats, in seconds."""
MAX_BYTES = 256 * 1024
"""Maximum size of a TaskManager's message, in bytes."""
MAX_LOG_BYTES = 128 * 1024
"""Maximum part of a log in one response, in bytes."""
MAX_STACK_BYTES = 128 * 1024
"""Maximum size of stacks in one response, in bytes."""


class Register(msgspec.Struct, frozen=True, tag=True):
    """First frame of a TaskManager. `heap` is the heap of its executor in bytes."""

    id: str
    host: str
    slots: int
    heap: int
    masters: tuple[str, ...] = ()
    """Masters to which the TaskManager is connected. Such a master answers with its role and does nothing else. Several masters may have one
    address, so the TaskManager does not know which of them it reaches.
    """


class Beat(msgspec.Struct, frozen=True, tag=True):
    """Heartbeat of a TaskManager."""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Report that an executor ended by itself."""

    executor_id: str
    code: int


class Killed(msgspec.Struct, frozen=True, tag=True):
    """Report of an out-of-memory kill in the TaskManager's container. `limit` is the container's memory limit in bytes, or 0."""

    limit: int


class Start(msgspec.Struct, frozen=True, tag=True):
    """Request to a TaskManager: start this executor in place of the current executor."""

    launch: Launch


class OnStandby(msgspec.Struct, frozen=True, tag=True):
    """First message of a master that does not lead."""

    master: str
    """Id of the master's process."""


class Leads(msgspec.Struct, frozen=True, tag=True):
    """First message of an elected leader. A standby sends it when it becomes the leader."""

    master: str
    term: int
    """Term of the leadership. A TaskManager follows the leader with the highest term."""


class Follows(msgspec.Struct, frozen=True, tag=True):
    """Message of a TaskManager to the leader: the executors of earlier leaders have ended."""


class AskWarm(msgspec.Struct, frozen=True, tag=True):
    """Request of a TaskManager to a standby: assign an executor, which waits until the standby leads."""


class Running(msgspec.Struct, frozen=True, tag=True):
    """Message to a TaskManager: its executor is registered with the driver."""

    executor_id: str


class BeatAnswer(msgspec.Struct, frozen=True, tag=True):
    """Response to `Beat` if masters elect a leader. A frozen master does not respond, but its connection stays open."""

    patience_s: float
    """Time in seconds without a message after which the TaskManager looks for another master."""


class AskLog(msgspec.Struct, frozen=True, tag=True):
    """Request to a TaskManager: return this log from `start` on. Without a name, list the logs."""

    request: int
    name: str = ""
    start: int = 0
    most: int = 0


class LogAnswer(msgspec.Struct, frozen=True, tag=True):
    """Response to `AskLog`: names with sizes and times (ms), or a part of a log (`common.logs.log_file.LogPart`)."""

    request: int
    files: list[tuple[str, int, int]] = []
    start: int = 0
    end: int = 0
    size: int = 0
    data: bytes = b""
    missing: str = ""
    """Reason for an empty response."""


class AskStacks(msgspec.Struct, frozen=True, tag=True):
    """Request to a TaskManager: sample the threads of all its Python workers, or only of those that run one vertex of a job."""

    request: int
    question: Question
    of: Place = Place()
    """Tasks to sample. `subtask` -1 means all subtasks."""


class StacksAnswer(msgspec.Struct, frozen=True, tag=True):
    """Response to `AskStacks`: the most frequent stacks first, up to the size limit."""

    request: int
    samples: list[Sample] = []


class AskRecords(msgspec.Struct, frozen=True, tag=True):
    """Request to a TaskManager: wait for records on an edge."""

    request: int
    question: EdgeQuestion


class RecordsAnswer(msgspec.Struct, frozen=True, tag=True):
    """Response to `AskRecords`: the last records on the edge."""

    request: int
    records: list[EdgeRecord] = []


class AskReadings(msgspec.Struct, frozen=True, tag=True):
    """Request to a TaskManager: return the metrics of its executor's JVM."""

    request: int


class ReadingsAnswer(msgspec.Struct, frozen=True, tag=True):
    """Response to `AskReadings`, for `JvmReadings.parse`."""

    request: int
    text: str = ""


FromTaskManager = Beat | Follows | AskWarm | Ended | Killed | LogAnswer | StacksAnswer | RecordsAnswer | ReadingsAnswer
ToTaskManager = Start | OnStandby | Leads | Running | BeatAnswer | AskLog | AskStacks | AskRecords | AskReadings
