"""Sources with Flink's split model (FLIP-27), reduced so that both runners can drive them.

A *SplitEnumerator* lives in the JobManager and finds splits (files, partitions, ranges). The JobMaster assigns the splits to
source subtasks. For each split, the JobMaster remembers the position that the reader reported in its last ack. Positions are part of the
checkpoint, and no other component stores them. A *SourceReader* lives in the task and opens one `SplitReader` per split.
Readers remain open between epochs. The JobMaster assigns all known splits at once. A subtask reads its splits interleaved,
the split with the lowest watermark first, so that event time advances evenly over the splits.

Everything that crosses a process border (splits, positions, enumerator state) can be encoded as JSON.
"""

# ruff: noqa: B027 - methods a connector may leave out are empty here

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.common.program.one_time_warning import warn_deprecated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.functions.operator_context import OperatorContext
    from penstock.records.batch import Batch


@dataclass(frozen=True)
class Split:
    """A part of a source that one subtask reads in order. `id` is unique within the source and never reused."""

    id: str
    properties: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    """Bytes or records, to balance the assignment; 0 means unknown."""
    files: list[dict[str, Any]] = field(default_factory=list)
    """State files that contain the split's data ({"path", "size", "checksum"}). Snapshots name and keep them."""
    root: str = ""
    """URL that the paths of the files are relative to. The JobMaster sets it."""


class FileHolds(Protocol):
    """Holds on files of the job's `shared/` folder that no checkpoint names yet (`checkpoint.coordinator.coordinator`)."""

    def expect_files(self, prefix: str) -> None: ...

    def hold_files(self, holder: str, paths: Iterable[str]) -> None: ...

    def release_files(self, holder: str) -> None: ...


class SparkAccess(Protocol):
    """The Spark cluster that the job runs on, for DataFrames at the job's sources and sinks."""

    def session(self) -> Any:
        """Return the SparkSession."""
        ...

    def exclusive(self) -> AbstractContextManager[Callable[[], None]]:
        """Reserve the cluster's slots for DataFrames. No epoch runs during the block, so the DataFrames take no slot that an epoch needs.

        The context manager yields a function that releases the slots before the end of the block. Any thread may call it.
        """
        ...


@dataclass(frozen=True)
class EnumeratorContext:
    """Resources that the JobManager gives an enumerator in addition to its source."""

    uid: str
    storage: CheckpointStorage
    """Folder of the job's checkpoints."""
    holds: FileHolds
    spark: SparkAccess | None = None
    """Access to Spark, or None if the job does not run on Spark (`penstock.testing`)."""


class SplitEnumerator(ABC):
    """An enumerator that finds splits. It runs in the JobManager, on one thread."""

    discovery_interval_ms: int | None = None
    """Interval in ms at which `discover` is called while the job runs; None means once."""
    parallelism: int = 1
    """Number of subtasks that will read. The JobMaster sets it before the first `discover`. A source that can be cut anywhere,
    such as a range of numbers, makes one split for each subtask. A rescale does not change existing splits."""
    forgets_finished: bool = False
    """Whether the enumerator itself ensures that it never returns a finished split again. Otherwise, if discovery continues, every
    checkpoint contains the ids of all finished splits."""

    def start(self, context: EnumeratorContext, /) -> None:
        """Prepare the enumerator. Called once, before `restore` and the first `discover`."""

    @abstractmethod
    def discover(self) -> list[Split]:
        """Return the splits that were not returned before, in the order in which they should be read.

        Raises:
            SourceError: the source cannot be read (path missing, broker down). The error names the resource and the remedy.
        """

    def is_finished(self) -> bool:
        """Return True when no further split will ever be found.

        The splits that were found may be unbounded. `Source.bounded` says whether a source ends at all."""
        return self.discovery_interval_ms is None

    def snapshot(self) -> Any:
        """Return the state for the checkpoint, as JSON values."""
        return None

    def restore(self, state: Any, /) -> None: ...

    def outdated(self, splits: Sequence[Split], /) -> set[str]:
        """Return the ids of splits to stop reading, because the data that they name no longer exists.

        Called once after `restore`, before any assignment, with the snapshot's unfinished splits. If it returns ids, `discover` is
        always called.

        Raises:
            SourceError: the other splits cannot be read.
        """
        return set()

    def on_split_finished(self, split_id: str, /) -> None: ...

    def on_split_ended(self, split: Split, position: Any, /) -> None:
        """Handle the end of a split at its last position, for a source that `needs_last_positions`. The default calls `on_split_finished`."""
        self.on_split_finished(split.id)

    def close(self) -> None: ...


class OneTimeEnumerator(SplitEnumerator):
    """An enumerator that finds all splits at once. The snapshot records whether the enumerator has found the splits."""

    forgets_finished = True

    def __init__(self) -> None:
        self._is_found = False

    @abstractmethod
    def find_splits(self) -> list[Split]:
        """Return all splits, in the order in which they should be read.

        Raises:
            SourceError: the source cannot be read.
        """

    def discover(self) -> list[Split]:
        if self._is_found:
            return []
        splits = self.find_splits()
        self._is_found = True
        return splits

    def snapshot(self) -> Any:
        return self._is_found

    def restore(self, state: Any, /) -> None:
        self._is_found = bool(state)


@dataclass(frozen=True)
class ReadBounds:
    """The soft limits of one call of `read`. A single record or row group may exceed them."""

    max_records: int = 10_000
    max_bytes: int = 4 * 1024 * 1024


class SplitReader(ABC):
    """A reader of one split, in order from a position."""

    moves_without_records: bool = False
    """Whether the position can change while no record is read. If True, every checkpoint queries the position."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "has_given_all" in vars(cls):
            # The frames of this method and of ABCMeta come before the line of the user's class.
            warn_deprecated("SplitReader.has_given_all", "SplitReader.is_caught_up", "0.5", stacklevel=4)

    @abstractmethod
    def read(self, bounds: ReadBounds, /) -> Batch | None:
        """Return the next records, or None if no record is available now.

        An unbounded split may have records later. A split whose records were all returned is `finished`. If there are no records,
        the call must not block longer than a few ms. Timestamps in the batch are the source's own (Kafka's record time), or None.

        Raises:
            RecordFormatError: a record cannot be decoded, and the format does not name a side output for it.
        """

    @property
    @abstractmethod
    def position(self) -> Any:
        """Return the position, as JSON values.

        A reader that is opened at this position returns exactly the records that this reader has not returned yet.
        """

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Return True when every record of the split was returned."""

    def take_rejected(self) -> list[Any]:
        """Return the malformed records since the last call, for the side output that `Source.side_output_tags` names.

        The engine calls this after every `read`, even if `read` returned None. `position` also covers
        malformed records: a reader that is opened at `position` does not return the malformed records before it again.
        """
        return []

    def watermark(self) -> int | None:
        """Return the event time (ms) that the source itself guarantees, such as a `SourceFunction`'s, or None if unknown."""
        return None

    def take_watermarks(self) -> list[tuple[int, int]]:
        """Return the source's own watermarks among the records just read. An entry has the number of records before the
        watermark, and the watermark's time (ms).

        Called once after every batch. The list is in order, and its last watermark is equal to `watermark`.
        """
        return []

    def is_idle(self) -> bool:
        """Return True while the source declares itself idle. The split then does not hold back event time."""
        return False

    def lag(self) -> int | None:
        """Return the number of records or bytes not yet read, for the metrics, or None if unknown."""
        return None

    def next_record_at(self) -> int | None:
        """Return the wall clock in ms when the next record is due (rate-limited generators). None means unknown, or now."""
        return None

    def is_caught_up(self) -> bool:
        """Return True if the last `read` returned all records that had arrived until then.

        The split is read again when buffers may be sent, or after about 20 ms if other splits always have records. So records
        that arrive one by one are read together. A batch of one record costs as much as a batch of a hundred.
        """
        return self.has_given_all()

    def has_given_all(self) -> bool:
        """Return the same as `is_caught_up`, which replaces this name. Release 0.5 removes the old name."""
        return False

    def close(self) -> None: ...


class NotingSplitReader(SplitReader):
    """A reader whose `read` sets its position, watermark, idleness and end as attributes."""

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
    """The environment of a reader. `object_store_options` are the fsspec options of the job's settings."""

    subtask: int
    parallelism: int
    uid: str
    object_store_options: dict[str, Any] = field(default_factory=dict)
    operator: OperatorContext | None = None
    """The task's context: clock, metrics, job parameters. None if the reader runs without a task."""


class SourceReader(ABC):
    """A reader that opens splits. Each source subtask has one."""

    @abstractmethod
    def open_split(self, split: Split, position: Any, /) -> SplitReader:
        """Open a split when it is first read. `position` is None for a new split, else a value of `SplitReader.position`."""

    def lag_of(self, split: Split, position: Any, /) -> int | None:
        """Return the lag of a split that is not open yet, as `SplitReader.lag` would return it, or None if unknown."""
        return None

    def snapshot(self, checkpoint_id: int, /) -> None:
        """Handle a checkpoint's barrier. The checkpoint will contain the present positions of all readers."""

    def notify_checkpoint_complete(self, checkpoint_id: int, /) -> None:
        """Handle a complete checkpoint, for example to report the progress to a server. After a lost notice, the next
        notice covers both checkpoints."""

    def close(self) -> None: ...


class Source(ABC):
    """A source that a user passes to `env.from_source`. It is picklable and holds no open resources."""

    bounded: bool = True
    """Whether every split ends. If True, a subtask without splits has read all of its input. If False, a subtask without splits is
    idle. The source then ends only if all its splits were read to their end and no more are found."""
    in_order: bool = False
    """Whether a subtask reads one split to its end before it begins the next split. If False, it reads its splits in
    turns, so that no split waits for another to end. The split with the lowest event time always comes first. A bounded
    source with a watermark strategy is always read in order."""
    needs_last_positions: bool = False
    """Whether the enumerator needs the position at which a split ended, because later splits depend on it."""
    excluded_from_watermarks: bool = False
    """Whether the source never holds back the event time of the streams in its union. It still ends with the final watermark."""
    needs_spark: bool = False
    """Whether the source runs DataFrames on the job's cluster. Only the batched runner leaves slots for them."""
    counts_lag_in_records: bool = True
    """Whether `SplitReader.lag` returns records. If False, the autoscaler does not use it."""

    @property
    def sole_use(self) -> str | None:
        """Return how errors name the resource that only one source of a job may read. Return None if there is no such resource."""
        return None

    def with_object_store_options(self, options: dict[str, Any], /) -> Source:
        """Return this source with the job's object store options (keys of `fsspec`), for `validate` and the enumerator.

        Readers get the same options through their context. The source's own options take precedence."""
        return self

    @abstractmethod
    def create_enumerator(self) -> SplitEnumerator: ...

    @abstractmethod
    def create_reader(self, context: ReaderContext, /) -> SourceReader: ...

    def produced_type(self) -> Any:
        """Return the type of the records: a TypeInformation, a Python type, or None if unknown."""
        return None

    def state_meaning(self) -> dict[str, Any]:
        """Describe the splits and positions of this source in a snapshot, as JSON values that a restore compares.

        `connector` names the library class that the source is or extends.
        """
        return {"connector": library_class(type(self), Source)}

    def side_output_tags(self) -> tuple[str, ...]:
        """Return the ids of the readers' side outputs (malformed records). See `taskmanager.operators.connectors.source`."""
        return ()

    def validate(self) -> None:
        """Run the checks that are possible on the client before the job runs (paths exist, options fit)."""

    def check_checkpoints(self, interval_ms: int, /) -> None:
        """Check before the job starts that this source works without checkpoints. A job with checkpoints needs no check.

        Args:
            interval_ms: the checkpoint interval; 0 means no checkpoints.

        Raises:
            InvalidJob: the source needs checkpoints.
        """


def library_class(kind: type, base: type) -> str:
    """Return the name of the library class that a connector is or extends, or "custom" for a class that the user wrote.

    >>> library_class(type("Mine", (Source,), {"__module__": "job"}), Source)
    'custom'
    """
    found = (c for c in kind.__mro__ if c.__module__.startswith("penstock.") and c is not base)
    return next((c.__qualname__ for c in found), "custom")
