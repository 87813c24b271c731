"""What a TaskManager and its JobManager say to each other, for as long as both live.

One sealed connection (`taskmanager.control.sealed_channel`) under the cluster's secret. The TaskManager says who it is, and
is told which executor to start. It starts that one, says so when it ends, and is told of the next. The end of the connection is
the end of the other: its executor is of no use any more.
"""

from __future__ import annotations

import msgspec

from penstock.common.stacks.listener import Question
from penstock.common.stacks.sampling import Place, Sample
from penstock.jobmanager.cluster.executor.executor_process import Launch

PURPOSE = b"penstock resource manager 6"
"""Of the secret here; the number changes with what is said."""
BEAT_S = 3.0
"""How often a TaskManager says that it lives."""
MOST_BYTES = 256 * 1024
"""Of what a TaskManager says at once."""
MOST_LOG_BYTES = 128 * 1024
"""Of a log in one answer."""
MOST_STACK_BYTES = 128 * 1024
"""Of stacks in one answer."""


class Register(msgspec.Struct, frozen=True, tag=True):
    """First frame of a TaskManager. `heap` is that of its executor, bytes."""

    id: str
    host: str
    slots: int
    heap: int


class Beat(msgspec.Struct, frozen=True, tag=True):
    """The TaskManager lives."""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """An executor has ended by itself."""

    executor_id: str
    code: int


class Killed(msgspec.Struct, frozen=True, tag=True):
    """The system has killed something of the TaskManager's container for memory; `limit` is the container's, bytes, or 0."""

    limit: int


class Start(msgspec.Struct, frozen=True, tag=True):
    """To a TaskManager: start this executor, in the place of the one that it has."""

    launch: Launch


class Running(msgspec.Struct, frozen=True, tag=True):
    """To a TaskManager: the driver has its executor."""

    executor_id: str


class AskLog(msgspec.Struct, frozen=True, tag=True):
    """To a TaskManager: what of this log there is from `start` on; which logs there are, without a name."""

    request: int
    name: str = ""
    start: int = 0
    most: int = 0


class LogAnswer(msgspec.Struct, frozen=True, tag=True):
    """Answer to `AskLog`: names with sizes and times (ms), or a part of one (`common.logs.log_file.LogPart`)."""

    request: int
    files: list[tuple[str, int, int]] = []
    start: int = 0
    end: int = 0
    size: int = 0
    data: bytes = b""
    missing: str = ""
    """Why there is no answer."""


class AskStacks(msgspec.Struct, frozen=True, tag=True):
    """To a TaskManager: what the threads of its Python workers do. Everything, or one vertex of a job."""

    request: int
    question: Question
    of: Place = Place()
    """`subtask` -1: of all."""


class StacksAnswer(msgspec.Struct, frozen=True, tag=True):
    """Answer to `AskStacks`: the most frequent first, as many as go into an answer."""

    request: int
    samples: list[Sample] = []


class AskReadings(msgspec.Struct, frozen=True, tag=True):
    """To a TaskManager: what its executor's JVM says of itself."""

    request: int


class ReadingsAnswer(msgspec.Struct, frozen=True, tag=True):
    """Answer to `AskReadings`, for `JvmReadings.parse`."""

    request: int
    text: str = ""


FromTaskManager = Beat | Ended | Killed | LogAnswer | StacksAnswer | ReadingsAnswer
ToTaskManager = Start | Running | AskLog | AskStacks | AskReadings
