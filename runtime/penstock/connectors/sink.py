"""Sinks: a writer in every subtask, and one committer in the JobManager (two-phase commit, K6-K8).

At a barrier each writer *pre-commits*: everything written since the last barrier becomes a durable, invisible piece,
described by JSON-able *committables* that go into the checkpoint's manifest. When the manifest is complete the
JobManager's committer makes them visible. Commit is idempotent: after a crash the committables of the restored
manifest are committed again before the job goes on. What no manifest names was never visible and is removed.
"""

# ruff: noqa: B027 - methods a connector may leave out are empty here

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.common.errors import EpochFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.checkpoint.files.state_files import StateFileReader
    from penstock.common.typeinfo import TypeInformation
    from penstock.connectors.source import SparkAccess
    from penstock.functions.operator_context import OperatorContext
    from penstock.records.batch import Batch


@dataclass(frozen=True)
class WriterContext:
    """Where a writer runs. `attempt` counts the job's starts from 0; `object_store_options` are fsspec's, of the job's settings."""

    subtask: int
    parallelism: int
    attempt: int
    uid: str
    job_id: str
    object_store_options: dict[str, Any] = field(default_factory=dict)
    operator: OperatorContext | None = None
    """The task's context: clock, metrics, `print_line`, `results`; None where a writer is used without a task."""


@dataclass(frozen=True)
class StagedCommittable:
    """A committable with a content too large for the manifest: rows that wait for their commit.

    The task writes the content to a file of the job's checkpoint folder, behind the barrier, and the manifest names it: the
    committable becomes `about` with `staged_file`, {"path", "size", "checksum"}; or with `content` in base64 where the file
    could not be written, which fails the checkpoint but must not lose the rows.
    """

    about: dict[str, Any]
    content: Callable[[], bytes]
    """Called from another thread."""


@dataclass(frozen=True)
class CommitEnvironment:
    """What the JobManager gives a committer that needs more than its committables."""

    files: StateFileReader
    """Reads staged files."""
    spark: SparkAccess | None = None


class SinkWriter(ABC):
    """Writes records; one per sink subtask; driven from one thread."""

    def write_batch(self, batch: Batch, watermark: int) -> None:
        """What the sink operator calls. Writers that take columns override it."""
        rows = batch.rows()
        self.write(rows.values, rows.timestamps, watermark)

    @abstractmethod
    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        """Take records in order. `watermark` is the operator's current one (ms)."""

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        """The vote of the two-phase commit: after it, commit must succeed even after a crash (K7).

        Every committable is returned once. Those of a checkpoint that was abandoned while the job went on belong to the
        next one: the coordinator carries them over (a lost completion notice loses nothing). A `StagedCommittable` is
        taken as well.
        """
        return []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete; the JobManager commits. Notices may be lost: the next one covers them."""

    def notify_committed(self, checkpoint_id: int) -> None:
        """The JobManager's committer has carried out what this checkpoint promised, of all before it, too: it will not be
        asked to again by this attempt."""

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """Items of operator list state (split evenly on rescale); called after `prepare_commit`."""
        return []

    def advance_processing_time(self, now: int) -> None: ...

    def next_processing_time(self, now: int) -> int | None:
        """When (ms) `advance_processing_time` should be called at the latest; None: not without records.

        A writer that has an `advance_processing_time` of its own is called every second unless it says better.
        """
        if type(self).advance_processing_time is SinkWriter.advance_processing_time:
            return None
        return now + 1000

    def finish(self) -> None:
        """Bounded input has ended: the next `prepare_commit` is the last and must leave nothing open."""

    def flush(self) -> None:
        """End of an epoch without a barrier: make what can be durable durable (at-least-once sinks)."""

    def close(self) -> None: ...


class Committer(ABC):
    """Runs in the JobManager. Every method may be called again with the same arguments (idempotent)."""

    environment: CommitEnvironment | None = None
    """Set by the JobManager before each `commit`."""
    _is_given_up = False

    @abstractmethod
    def commit(self, committables: list[Any]) -> None:
        """Make them visible. One that takes them one by one calls `check_wanted` before each."""

    def check_wanted(self) -> None:
        """Between two committables, and between a commit and what is noted of it.

        Raises:
            EpochFailed: this call took too long, or the job had to end. Somebody else may have committed all of it meanwhile.
        """
        if self._is_given_up:
            raise EpochFailed("the commit was given up: what is left of it is another attempt's")

    def give_up(self) -> None:
        """Nobody waits for the call that runs, and this committer gets no other: begin nothing more (from another thread)."""
        self._is_given_up = True

    def abort(self, committables: list[Any]) -> None:
        """A checkpoint was abandoned, and the job failed over or ended: its pieces will never be committed."""

    def interrupt(self) -> None:
        """`commit` does not return and was given up: end what can be ended of it (from another thread).

        The checkpoint that promised the commit stays, so that it can be carried out once more.
        """

    def close(self) -> None:
        """The job is over, or this committer is used no more: let go of connections."""

    def discard_unreferenced(self, keep: list[Any], below_attempt: int | None = None) -> None:
        """Remove in-progress pieces of earlier attempts that no committable in `keep` names.

        Called after a restore, before the new attempt's writers start, and when the job has ended for good. `keep`: the committables of every snapshot
        that may still be restored (all retained checkpoints and the savepoints known). `below_attempt`: only pieces of
        attempts before this one may go: a JobManager that was superseded must not touch its successor's.
        """


class Sink(ABC):
    """What a user passes to `stream.sink_to`. Picklable."""

    needs_spark: bool = False
    """True: runs DataFrames on the job's cluster, which only the batched runner leaves room for."""

    @abstractmethod
    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        """`restored`: this subtask's share of what `snapshot_state` returned."""

    def create_committer(
        self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = ""
    ) -> Committer | None:
        """The committer of this sink in this job, or None if nothing is to be committed.

        `job_id` and `uid` say whose in-progress pieces `discard_unreferenced` may remove: another job may write into
        the same directory.
        """
        return None

    def with_input_type(self, type_info: TypeInformation) -> Sink:
        """This sink for a stream that was declared with this type; for sinks whose text depends on it."""
        return self

    def with_object_store_options(self, options: dict[str, Any]) -> Sink:
        """This sink with what the job's configuration says of object stores, for `validate`; see `Source`."""
        return self

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        """Whether this sink can keep its promise with the job's checkpoints; before the job starts.

        Args:
            interval_ms: between two of them; 0: there are none.
            bounded: all of the job's input ends, and with it the job, by a last checkpoint.

        Raises:
            InvalidJob: it cannot.
        """

    def exclusive_names(self) -> tuple[str, ...]:
        """What no other sink of the job may have: "transactional_id_prefix 'alerts'"."""
        return ()

    def validate(self) -> None:
        """Checks on the client what can be checked before anything runs."""
