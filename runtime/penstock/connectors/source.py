"""Sources by Flink's split model (FLIP-27), cut so that both runners can drive them.

A *SplitEnumerator* lives in the JobManager: it finds splits (files, partitions, ranges). The JobMaster assigns them to
source subtasks and remembers, per split, the position the reader reported in its last ack; positions are part of the
checkpoint and nothing else remembers them (S31, K12). A *SourceReader* lives in the task and opens one `SplitReader`
per split; readers stay open between epochs. All splits known are assigned at once and read interleaved, the one with
the lowest watermark first, so that event time advances evenly over them (A46, T27).

Everything that crosses a process border (splits, positions, enumerator state) is JSON-able.
"""

# ruff: noqa: B027 - methods a connector may leave out are empty here

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.functions.operator_context import OperatorContext
    from penstock.records.batch import Batch


@dataclass(frozen=True)
class Split:
    """A part of a source that one subtask reads in order. `id` is unique within the source, for ever."""

    id: str
    properties: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    """Bytes or records, to balance the assignment; 0 = unknown."""
    files: list[dict[str, Any]] = field(default_factory=list)
    """State files the split is read from ({"path", "size", "checksum"}); snapshots name and keep them."""
    root: str = ""
    """URL that the files' paths are relative to; the JobMaster sets it."""


class FileHolds(Protocol):
    """Keeps files of the job's `shared/` folder that no checkpoint names yet (`checkpoint.coordinator.coordinator`)."""

    def expect_files(self, prefix: str) -> None: ...

    def hold_files(self, holder: str, paths: Iterable[str]) -> None: ...

    def release_files(self, holder: str) -> None: ...


class SparkAccess(Protocol):
    """The Spark cluster that the job runs on, for DataFrames at its borders."""

    def session(self) -> Any:
        """The SparkSession."""
        ...

    def exclusive(self) -> AbstractContextManager[Callable[[], None]]:
        """Hold the cluster's slots: no epoch runs meanwhile, so that no task of Spark's stands where state is needed.

        Gives what lets go of them before the block has ended, from any thread.
        """
        ...


@dataclass(frozen=True)
class EnumeratorContext:
    """What the JobManager gives an enumerator that needs more than its source."""

    uid: str
    storage: CheckpointStorage
    """The job's folder of checkpoints."""
    holds: FileHolds
    spark: SparkAccess | None = None
    """None where the job does not run on Spark (`penstock.testing`)."""


class SplitEnumerator(ABC):
    """Finds splits; runs in the JobManager, from one thread."""

    discovery_interval_ms: int | None = None
    """None: `discover` is called once; else at this interval for as long as the job runs."""
    parallelism: int = 1
    """How many subtasks will read; the JobMaster sets it before the first `discover`, so that a source that can be cut
    anywhere (a range of numbers) makes as many splits. Splits stay as they are when the job is rescaled."""
    forgets_finished: bool = False
    """True: the enumerator never finds a split again that was read to its end, so nobody else needs to remember it. If False
    and splits are found for as long as the job runs, the ids of all that were finished stay in every checkpoint."""

    def start(self, context: EnumeratorContext) -> None:
        """Called once, before `restore` and the first `discover`."""

    @abstractmethod
    def discover(self) -> list[Split]:
        """Splits that were not returned before, in the order in which they should be read.

        Raises:
            SourceError: the source cannot be read (path missing, broker away); names the thing and the remedy.
        """

    def is_finished(self) -> bool:
        """True when no further split will ever be found (a bounded source after its first discovery)."""
        return self.discovery_interval_ms is None

    def snapshot(self) -> Any:
        """JSON-able state for the checkpoint."""
        return None

    def restore(self, state: Any) -> None: ...

    def outdated(self, splits: Sequence[Split]) -> set[str]:
        """Ids of those that are not to be read on, because what they name is not there any more.

        Called once behind `restore`, before anything is assigned, with the snapshot's splits that were not read to their end.
        If there are any, `discover` is called in any case.

        Raises:
            SourceError: what is left of them cannot be read.
        """
        return set()

    def on_split_finished(self, split_id: str) -> None: ...

    def on_split_ended(self, split: Split, position: Any) -> None:
        """As `on_split_finished`, which it calls, with the position at its end (of a source that `tells_last_positions`)."""
        self.on_split_finished(split.id)

    def close(self) -> None: ...


@dataclass(frozen=True)
class ReadBounds:
    """How much one call of `read` may return at most. Soft: a single record or row group may exceed them."""

    max_records: int = 10_000
    max_bytes: int = 4 * 1024 * 1024


class SplitReader(ABC):
    """Reads one split in order from a position."""

    moves_without_records: bool = False
    """True: the position changes also when nothing is read; every checkpoint asks for it."""

    @abstractmethod
    def read(self, bounds: ReadBounds) -> Batch | None:
        """The next records, or None if there are none *now* (an unbounded split) or none any more (`finished`).

        Must not block longer than a few ms when nothing is there. Timestamps in the batch are the source's own
        (Kafka's record time), or None.

        Raises:
            RecordFormatError: a record cannot be decoded and the format does not say where to put it.
        """

    @property
    @abstractmethod
    def position(self) -> Any:
        """JSON-able; a reader opened at it gives exactly the records after those that were returned so far."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """True when every record of the split was returned."""

    def take_rejected(self) -> list[Any]:
        """Malformed records met since the last call, for the side output that `Source.side_output_tags` names.

        Taken after every `read`, also after one that returned None. They belong to the position as records do: a
        reader opened at `position` gives again exactly those that come after it.
        """
        return []

    def watermark(self) -> int | None:
        """Event time (ms) that the source itself promises, such as a `SourceFunction`'s; None = it does not know."""
        return None

    def take_watermarks(self) -> list[tuple[int, int]]:
        """Watermarks of the source's own that stand among the records just read: how many of those are before it, and its
        time (ms). Taken once after every batch; in order. `watermark` is the last one.
        """
        return []

    def is_idle(self) -> bool:
        """True while the source itself says that nothing comes for a time; the split does not hold the clock back."""
        return False

    def lag(self) -> int | None:
        """Records or bytes not yet read, for the metrics; None = unknown."""
        return None

    def next_record_at(self) -> int | None:
        """Wall clock in ms when the next record is due (rate-limited generators); None = unknown or now."""
        return None

    def has_given_all(self) -> bool:
        """True: the last `read` gave all that had come until then. The split is read again when buffers may go, or after some 20 ms
        where others have records all the time. So what comes one by one is not read one by one: a batch of a single record costs as much
        as one of a hundred.
        """
        return False

    def close(self) -> None: ...


class NotingSplitReader(SplitReader):
    """A reader whose `read` notes how far it is and what the source has said of its event time."""

    def __init__(self, position: Any) -> None:
        self._position = position
        self._finished = False
        self._watermark: int | None = None
        self._idle = False

    @property
    def position(self) -> Any:
        return self._position

    @property
    def finished(self) -> bool:
        return self._finished

    def watermark(self) -> int | None:
        return self._watermark

    def is_idle(self) -> bool:
        return self._idle


@dataclass(frozen=True)
class ReaderContext:
    """Where a reader runs. `object_store_options` are fsspec's, of the job's settings."""

    subtask: int
    parallelism: int
    uid: str
    object_store_options: dict[str, Any] = field(default_factory=dict)
    operator: OperatorContext | None = None
    """The task's context: clock, metrics, job parameters; None where a reader is used without a task."""


class SourceReader(ABC):
    """Opens splits; one per source subtask."""

    @abstractmethod
    def open_split(self, split: Split, position: Any) -> SplitReader:
        """`position` is None for a new split, else what `SplitReader.position` gave. Called when the split is read first."""

    def lag_of(self, split: Split, position: Any) -> int | None:
        """What `SplitReader.lag` would say of a split that is not open yet; None = unknown."""
        return None

    def snapshot(self, checkpoint_id: int) -> None:
        """At a checkpoint's barrier: the positions of all readers are those that the checkpoint will have."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete: for telling others how far the job is. Notices may be lost: the next one covers them."""

    def close(self) -> None: ...


class Source(ABC):
    """What a user passes to `env.from_source`. Picklable; holds no open resources."""

    bounded: bool = True
    in_order: bool = False
    """True: without event time, a subtask reads its splits one after the other instead of in turns."""
    tells_last_positions: bool = False
    """True: the enumerator is told at which position a split has ended, where what follows depends on it."""
    keeps_no_time: bool = False
    """True: it never holds back the clock of what it is united with; it ends with the final watermark as every source."""
    needs_spark: bool = False
    """True: runs DataFrames on the job's cluster, which only the batched runner leaves room for."""

    @property
    def sole_use(self) -> str | None:
        """What only one source of a job may read, as an error names it."""
        return None

    def with_object_store_options(self, options: dict[str, Any]) -> Source:
        """This source with what the job's configuration says of object stores (keys of `fsspec`), for `validate` and
        for the enumerator; readers get the same by their context. Options of the source's own go first."""
        return self

    @abstractmethod
    def create_enumerator(self) -> SplitEnumerator: ...

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader: ...

    def produced_type(self) -> Any:
        """A TypeInformation, a Python type, or None if unknown."""
        return None

    def side_output_tags(self) -> tuple[str, ...]:
        """Ids of side outputs the readers fill (malformed records); see `taskmanager.operators.connectors.source`."""
        return ()

    def validate(self) -> None:
        """Checks on the client what can be checked before anything runs (paths exist, options fit)."""

    def check_checkpoints(self, interval_ms: int) -> None:
        """Whether this source can do without checkpoints, if there are none; before the job starts.

        Args:
            interval_ms: between two of them; 0: there are none.

        Raises:
            InvalidJob: it cannot.
        """
