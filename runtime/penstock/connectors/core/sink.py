"""Sinks: a writer in every subtask, and one committer in the JobManager (two-phase commit).

At a barrier each writer *pre-commits*: everything written since the last barrier becomes a durable, invisible piece.
*Committables* describe these pieces as JSON values. The checkpoint's manifest contains the committables. When the manifest is complete, the
JobManager's committer makes the pieces visible. Commit is idempotent: after a crash the committer commits the committables of
the restored manifest again before the job continues. A piece that no manifest names was never visible, and is removed.
"""

# ruff: noqa: B027 - methods a connector may leave out are empty here

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.common.errors import EpochFailed
from penstock.connectors.core.source import library_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.checkpoint.files.state_files import StateFileReader
    from penstock.common.typeinfo import TypeInformation
    from penstock.connectors.core.source import SparkAccess
    from penstock.functions.operator_context import OperatorContext
    from penstock.records.batch import Batch


@dataclass(frozen=True)
class WriterContext:
    """The environment of a writer.

    `attempt` is the number of the job's attempt, from 1. `object_store_options` are the fsspec options of the job's settings.
    """

    subtask: int
    parallelism: int
    attempt: int
    uid: str
    job_id: str
    object_store_options: dict[str, Any] = field(default_factory=dict)
    operator: OperatorContext | None = None
    """The task's context: clock, metrics, `print_line`, `results`. None if the writer runs without a task."""


@dataclass(frozen=True)
class StagedCommittable:
    """A committable whose content is too large for the manifest. The content is rows that wait for their commit.

    After the barrier, the task writes the content to a file in the job's checkpoint folder. The manifest then contains `about` with the
    additional key `staged_file`, {"path", "size", "checksum"}. If the file cannot be written, the checkpoint fails. `about` then has the
    additional key `content` in base64, so that the rows are not lost.
    """

    about: dict[str, Any]
    content: Callable[[], bytes]
    """Function that returns the content. Another thread calls it."""


@dataclass(frozen=True)
class CommitEnvironment:
    """Resources that the JobManager gives a committer in addition to its committables."""

    files: StateFileReader
    """Reader of staged files."""
    spark: SparkAccess | None = None


class SinkWriter(ABC):
    """A writer of records. Each sink subtask has one, and drives it from one thread."""

    def write_batch(self, batch: Batch, watermark: int, /) -> None:
        """Write a batch. The sink operator calls this method. Writers that take columns override it."""
        rows = batch.rows()
        self.write(rows.values, rows.timestamps, watermark)

    @abstractmethod
    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int, /) -> None:
        """Write the records in order. `watermark` is the operator's current watermark (ms)."""

    def prepare_commit(self, checkpoint_id: int, /) -> list[Any]:
        """Vote in the two-phase commit. After this call the commit must succeed even after a crash.

        Return every committable once. If a checkpoint is abandoned while the job continues, the coordinator adds the
        checkpoint's committables to the next checkpoint. A committable may be a `StagedCommittable`.
        """
        return []

    def notify_checkpoint_complete(self, checkpoint_id: int, /) -> None:
        """Handle the notice that a checkpoint is complete, so that the JobManager commits it.

        After a lost notice, the next notice covers both checkpoints.
        """

    def notify_committed(self, checkpoint_id: int, /) -> None:
        """Handle the notice that the committer has committed this checkpoint and all before it.

        This attempt will not commit these checkpoints again.
        """

    def snapshot_state(self, checkpoint_id: int, /) -> list[Any]:
        """Return the items of operator list state, which a rescale splits evenly. Called after `prepare_commit`."""
        return []

    def advance_processing_time(self, now: int, /) -> None: ...

    def next_processing_time(self, now: int, /) -> int | None:
        """Return the time (ms) by which to call `advance_processing_time`, or None if no call is due before the next record.

        By default, if a writer overrides `advance_processing_time`, this method is called every second.
        """
        if type(self).advance_processing_time is SinkWriter.advance_processing_time:
            return None
        return now + 1000

    def finish(self) -> None:
        """Handle the end of bounded input. The next `prepare_commit` is the last and must leave no piece open."""

    def flush(self) -> None:
        """Make the written records durable (at-least-once sinks). Called at every barrier, before `prepare_commit`."""

    def close(self) -> None: ...


class Committer(ABC):
    """A committer that runs in the JobManager. Every method is idempotent: it may be called again with the same arguments."""

    environment: CommitEnvironment | None = None
    """Environment that the JobManager sets before each `commit`."""
    _is_given_up = False

    @abstractmethod
    def commit(self, committables: list[Any], /) -> None:
        """Make the committables visible. An implementation that commits them one by one calls `check_wanted` before each of them."""

    def check_wanted(self) -> None:
        """Check that this committer may continue. Call it between two committables, and before a commit is recorded.

        Raises:
            EpochFailed: the call took too long, or the job had to end. Another attempt may have committed everything in this time.
        """
        if self._is_given_up:
            raise EpochFailed("the commit was given up: another attempt is responsible for the rest")

    def give_up(self) -> None:
        """Give up the running call, whose caller no longer waits, and start no new work. Another thread calls this method."""
        self._is_given_up = True

    def abort(self, committables: list[Any], /) -> None:
        """Drop the pieces of an abandoned checkpoint, after the job failed over or ended. These pieces will never be committed."""

    def interrupt(self) -> None:
        """Try to end a `commit` that was given up but does not return. Another thread calls this method.

        The JobManager keeps the checkpoint with the committables, so that the commit can be repeated.
        """

    def close(self) -> None:
        """Close connections. The job is over, or no longer uses this committer."""

    def discard_unreferenced(self, keep: list[Any], below_attempt: int | None = None, /) -> None:
        """Remove in-progress pieces of earlier attempts, except pieces that a committable in `keep` names.

        Called after a restore, before the new attempt's writers start, and at the final end of the job.

        Args:
            keep: the committables of every snapshot that may still be restored: all retained checkpoints and known savepoints.
            below_attempt: remove only pieces of attempts before this attempt. So a superseded JobManager does not touch
                the pieces of its successor.
        """


class Sink(ABC):
    """A sink that a user passes to `stream.sink_to`. It is picklable."""

    needs_spark: bool = False
    """Whether the sink runs DataFrames on the job's cluster. Only the batched runner leaves slots for them."""

    @abstractmethod
    def create_writer(self, context: WriterContext, restored: list[Any], /) -> SinkWriter:
        """Return the writer of a subtask. `restored` is this subtask's share of the state that `snapshot_state` returned."""

    def create_committer(
        self, object_store_options: dict[str, Any], /, *, job_id: str = "", uid: str = ""
    ) -> Committer | None:
        """Return the committer of this sink in this job, or None if the sink commits nothing.

        `job_id` and `uid` identify the in-progress pieces that `discard_unreferenced` may remove. This is necessary because
        another job may write into the same directory.
        """
        return None

    def state_meaning(self) -> dict[str, Any]:
        """Describe the writers' state and the committables in a snapshot, as JSON values that a restore compares.

        `connector` names the library class that the sink is or extends.
        """
        return {"connector": library_class(type(self), Sink)}

    def with_input_type(self, type_info: TypeInformation, /) -> Sink:
        """Return this sink for a stream of the declared type. Sinks that write text override this method if the text depends on the type."""
        return self

    def with_object_store_options(self, options: dict[str, Any], /) -> Sink:
        """Return this sink with the job's object store options, for `validate`. See `Source`."""
        return self

    def check_checkpoints(self, interval_ms: int, /, *, bounded: bool) -> None:
        """Check, before the job starts, that this sink can keep its guarantee with the job's checkpoints.

        Args:
            interval_ms: the checkpoint interval; 0 means no checkpoints.
            bounded: whether all input ends. If True, the job ends with a last checkpoint.

        Raises:
            InvalidJob: the sink cannot keep its guarantee.
        """

    def exclusive_names(self) -> tuple[str, ...]:
        """Return names that no other sink of the job may use, such as "transactional_id_prefix 'alerts'"."""
        return ()

    def validate(self) -> None:
        """Run the checks that are possible on the client before the job runs."""
