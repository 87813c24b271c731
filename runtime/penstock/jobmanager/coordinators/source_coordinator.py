"""The splits of one source: discovery, assignment to subtasks, and positions. It is the JobManager's part of a source (FLIP-27).

Positions exist only here and in checkpoints. The acknowledgement of an epoch contains the position that each reader reached. A
checkpoint stores the positions after the epoch that its barrier ended, so they match the state of the operators. A new attempt assigns
every unfinished split again, from its position, with the current parallelism of the source.

A split that was read to its end is removed. The coordinator keeps the split's id if the enumerator forgets finished splits and could
discover the split again (`SplitEnumerator.forgets_finished`). In an epoch, the coordinator works only on the splits that have changed in
this epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heapreplace
from typing import Any

from penstock.checkpoint.files.layout import new_shared_path
from penstock.checkpoint.files.manifest import SourceState, SplitPosition
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.store.object_store import join_url
from penstock.common.watermark_strategy import WatermarkAlignment
from penstock.connectors.core.source import EnumeratorContext, Source, Split, SplitEnumerator
from penstock.connectors.simple.feedback import FeedbackEnumerator, FeedbackSource
from penstock.jobmanager.coordinators.enumerator_calls import EnumeratorCalls
from penstock.jobmanager.coordinators.watermark_alignment import AlignedSource
from penstock.records.batch import MIN_TIMESTAMP
from penstock.rest.facts import SourceFacts, SplitFacts
from penstock.taskmanager.protocol import SourceProgress, SplitAssignment

BEGINNING = "beginning"
DISCOVERING = "discovering splits"
NOTING = "noting a split that is finished"
SNAPSHOTTING = "taking a snapshot"
CLOSING = "closing"
_LONG_AGO = -(1 << 62)
"""A time before every reading of the monotonic clock. 0 would be too late, because the clock may have started just now."""
TAKING_ROWS = "taking feedback records"


@dataclass
class _Tracked:
    split: Split
    owner: int | None = None
    position: Any = None
    watermark: int | None = None
    lag: int | None = None
    generator: Any = None
    files: list[dict[str, Any]] = field(default_factory=list)

    @property
    def load(self) -> int:
        return max(self.split.size, 1)


class SourceCoordinator:
    """Coordinator of one source. The JobMaster's thread calls it.

    Args:
        call_limit_s: time limit of a call of the enumerator, in seconds. 0 means no limit.
    """

    def __init__(
        self,
        uid: str,
        source: Source,
        object_store_options: dict[str, Any] | None = None,
        *,
        name: str = "",
        location: str = "",
        alignment: WatermarkAlignment | None = None,
        call_limit_s: float = 0.0,
    ) -> None:
        self.uid = uid
        self.name = name
        self._alignment = alignment
        self._call = EnumeratorCalls(name, location, call_limit_s)
        self.source = source.with_object_store_options(object_store_options or {})
        self._enumerator: SplitEnumerator
        """Enumerator of the attempt. `start_attempt` sets it before its first use."""
        self._is_open = False
        self._splits: dict[str, _Tracked] = {}
        """Splits that are not read to their end."""
        self._unassigned: list[_Tracked] = []
        self._finished: dict[str, None] = {}
        self._discovered_at: int | None = None
        self._fed_at: int | None = None
        self._load: list[int] = []
        self._parallelism = 1
        self._root = ""
        self._subtasks: dict[int, SourceProgress] = {}

    # --- reports ----------------------------------------------------------------------------------------------

    def describe(self, most: int) -> SourceFacts:
        """Return at most `most` splits. Any thread may call it, so parts of the result may be older than others."""
        splits = list(self._splits.values())
        lags = [progress.lag for progress in list(self._subtasks.values()) if progress.lag is not None]
        return SourceFacts(
            self.uid,
            self.name or self.uid,
            split_count=len(splits),
            unassigned=len(self._unassigned),
            lag=sum(lags) if lags else None,
            splits=[
                SplitFacts(
                    tracked.split.id,
                    -1 if tracked.owner is None else tracked.owner,
                    "" if tracked.position is None else str(tracked.position)[:200],
                    tracked.split.size,
                    tracked.watermark,
                    tracked.lag,
                )
                for tracked in splits[:most]
            ],
        )

    # --- attempts ---------------------------------------------------------------------------------------------

    def start_attempt(
        self,
        parallelism: int,
        restored: SourceState | None,
        context: EnumeratorContext | None = None,
        restored_root: str = "",
    ) -> None:
        """Schedule all unfinished splits for assignment, from the given positions.

        Args:
            restored: state from the manifest. None means to start from the beginning.
            restored_root: URL to which the paths in the manifest are relative.
        """
        self._root = context.storage.url if context is not None else ""
        self._parallelism = parallelism
        self._load = [0] * parallelism
        self._subtasks = {}
        self._splits = {}
        self._unassigned = []
        self._finished = {}
        self._discovered_at = None
        self._fed_at = None
        self._close_enumerator()
        self._enumerator = self._call(lambda: self._new_enumerator(context), BEGINNING)
        self._is_open = True
        if restored is None:
            return
        enumerator = restored.enumerator or {}
        self._call(lambda: self._enumerator.restore(enumerator.get("state")), BEGINNING)
        if enumerator.get("discovered"):
            self._discovered_at = _LONG_AGO
        for position in restored.splits:
            if position.finished:
                self._remember_finished(position.id)
                continue
            tracked = _Tracked(
                Split(position.id, position.properties, position.size),
                position=position.position,
                watermark=position.watermark,
                generator=position.generator,
                files=position.files,
            )
            if position.files and context is not None and restored_root not in ("", self._root):
                tracked.files = _adopted(position.files, context.storage, restored_root)
            self._track(tracked)
        self._drop_outdated()

    def _drop_outdated(self) -> None:
        splits = [tracked.split for tracked in self._unassigned]
        outdated = self._call(lambda: self._enumerator.outdated(splits), BEGINNING) if splits else set()
        if outdated:
            self._splits = {id: tracked for id, tracked in self._splits.items() if id not in outdated}
            self._unassigned = list(self._splits.values())
            self._discovered_at = None

    def _new_enumerator(self, context: EnumeratorContext | None) -> SplitEnumerator:
        enumerator = self.source.create_enumerator()
        enumerator.parallelism = self._parallelism
        if context is not None:
            enumerator.start(context)
        return enumerator

    def _track(self, tracked: _Tracked) -> None:
        self._splits[tracked.split.id] = tracked
        self._unassigned.append(tracked)

    def _remember_finished(self, split_id: str) -> None:
        if not self._enumerator.forgets_finished and not self.no_more_splits:
            self._finished[split_id] = None

    def discover(self, now_ms: int) -> None:
        """Request new splits from the enumerator if the discovery interval has passed."""
        interval = self._enumerator.discovery_interval_ms
        if self._discovered_at is not None and (interval is None or now_ms < self._discovered_at + interval):
            return
        for split in self._call(self._enumerator.discover, DISCOVERING):
            if split.id not in self._splits and split.id not in self._finished:
                self._track(_Tracked(split, files=split.files))
        self._discovered_at = now_ms
        if self.no_more_splits:
            self._finished = {}

    # --- iterations -------------------------------------------------------------------------------------------

    @property
    def loop_id(self) -> str:
        """Return the id of the iteration whose rows the source reads, or an empty string for other sources."""
        return self.source.loop.id if isinstance(self.source, FeedbackSource) else ""

    def feed(self, pieces: list[bytes], now_ms: int) -> None:
        """Add rows that a subtask sent back. The next epoch reads these rows, and every checkpoint until then contains them."""
        enumerator = self._enumerator
        assert isinstance(enumerator, FeedbackEnumerator)
        split = self._call(lambda: enumerator.split_of(pieces), TAKING_ROWS)
        self._track(_Tracked(split, files=split.files))
        self._fed_at = now_ms

    @property
    def was_fed(self) -> bool:
        """Return whether fed rows exist that no epoch has started to read."""
        return bool(self._unassigned) and self._fed_at is not None

    @property
    def has_splits(self) -> bool:
        return bool(self._splits)

    def end_loop(self) -> None:
        """End the iteration, because it has no more rows, and no other source has more records."""
        assert isinstance(self._enumerator, FeedbackEnumerator)
        self._enumerator.end()

    def next_discovery(self) -> int | None:
        if self.was_fed:
            return self._fed_at
        interval = self._enumerator.discovery_interval_ms
        if interval is None or self._discovered_at is None:
            return None
        return self._discovered_at + interval

    @property
    def no_more_splits(self) -> bool:
        """Return whether the enumerator finds no more splits. An unbounded source may still read from its splits without end."""
        return self._discovered_at is not None and self._enumerator.is_finished()

    @property
    def ends_without_splits(self) -> bool:
        """Return whether a subtask without a split has ended. If False, the subtask waits for its next split.

        It is True for a bounded source whose splits are all known. An unbounded source ends only as a whole, when every split was read to
        its end and no more splits appear.
        """
        return self.no_more_splits and (self.source.bounded or not self._splits)

    def take_assignments(self) -> dict[int, list[SplitAssignment]]:
        """Assign each split without an owner to the subtask with the smallest load."""
        assignments: dict[int, list[SplitAssignment]] = {}
        unassigned, self._unassigned = self._unassigned, []
        loads = [(load, subtask) for subtask, load in enumerate(self._load)]
        heapify(loads)
        for tracked in unassigned:
            load, owner = loads[0]
            self._load[owner] = load + tracked.load
            heapreplace(loads, (self._load[owner], owner))
            tracked.owner = owner
            assignments.setdefault(owner, []).append(
                SplitAssignment(
                    id=tracked.split.id,
                    properties=tracked.split.properties,
                    size=tracked.split.size,
                    position=tracked.position,
                    watermark=tracked.watermark,
                    generator=tracked.generator,
                    files=tracked.files,
                    root=self._root,
                )
            )
        return assignments

    # --- progress ---------------------------------------------------------------------------------------------

    def on_progress(self, subtask: int, progress: SourceProgress) -> None:
        self._subtasks[subtask] = progress
        for split_id, position in progress.positions.items():
            tracked = self._splits[split_id]
            tracked.position = position
            tracked.watermark = progress.watermarks.get(split_id, tracked.watermark)
            tracked.generator = progress.generators.get(split_id, tracked.generator)
        for split_id, lag in progress.lags.items():
            self._splits[split_id].lag = lag
        for split_id in progress.finished:
            finished = self._splits.pop(split_id)
            self._load[subtask] -= finished.load
            self._remember_finished(split_id)
            self._call(partial(self._enumerator.on_split_ended, finished.split, finished.position), NOTING)

    def aligned(self) -> AlignedSource | None:
        """Return the data for the source's alignment group, or None if it has no group."""
        if self._alignment is None:
            return None
        marks = tuple(p.watermark for p in self._subtasks.values() if p.watermark is not None)
        if not self._subtasks:
            marks = (MIN_TIMESTAMP,)  # nothing was read yet, so let each split read a first batch and no more
        return AlignedSource(self.uid, self._alignment.group, self._alignment.max_drift_ms, marks)

    @property
    def exhausted(self) -> bool:
        """Return whether discovery has ended and every split was read to its end."""
        return self.no_more_splits and not self._splits

    @property
    def had_input(self) -> bool:
        return any(progress.positions or progress.finished for progress in self._subtasks.values())

    @property
    def lag(self) -> int | None:
        lags = [p.lag for p in self._subtasks.values() if p.lag is not None]
        return sum(lags) if lags else None

    def next_record_at(self) -> int | None:
        times = [p.next_record_at for p in self._subtasks.values() if p.next_record_at is not None]
        return min(times, default=None)

    def snapshot(self) -> SourceState:
        """Return the state after the acknowledgements of the last epoch."""
        enumerator = self._call(self._enumerator.snapshot, SNAPSHOTTING)
        return SourceState(
            splits=[
                SplitPosition(
                    id=t.split.id,
                    properties=t.split.properties,
                    size=t.split.size,
                    position=t.position,
                    watermark=t.watermark,
                    generator=t.generator,
                    files=t.files,
                )
                for t in self._splits.values()
            ]
            + [SplitPosition(id=split_id, properties={}, finished=True) for split_id in self._finished],
            enumerator={"state": enumerator, "discovered": self._discovered_at is not None},
        )

    def give_up(self) -> None:
        """Stop waiting for the enumerator, because the job must end. Another thread calls it."""
        self._call.give_up()

    def close(self, limit_s: float | None = None) -> None:
        """Close the enumerator. If it hangs, abandon it.

        Args:
            limit_s: time limit for closing it, in seconds. None means the limit of all its calls.
        """
        self._close_enumerator(limit_s)
        self._call.close()

    def _close_enumerator(self, limit_s: float | None = None) -> None:
        was_open, self._is_open = self._is_open, False
        if was_open and not self._call.is_stuck:
            self._call(self._enumerator.close, CLOSING, limit_s)


def _adopted(files: list[dict[str, Any]], storage: CheckpointStorage, root: str) -> list[dict[str, Any]]:
    """Copy the files of a savepoint or of another job. A checkpoint of this job must reference only files of this job."""
    adopted = []
    for file in files:
        path = new_shared_path()
        source = join_url(root, file["path"])
        target = storage.url_of(path)
        storage.stores.for_url(source).copy(source, target, storage.store)
        adopted.append(file | {"path": path})
    return adopted
