"""Splits of one source: discovery, assignment to subtasks, positions. The JobManager's half of a source (FLIP-27).

Positions live here and in checkpoints only. An ack of an epoch brings the position each reader reached; a checkpoint
takes them as they are after the epoch that ended with its barrier, so they agree with the operators' state. A new attempt
assigns every unfinished split anew, from its position, at whatever parallelism the source then has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.manifest import SourceState, SplitPosition
from penstock.connectors.source import Source, Split, SplitEnumerator
from penstock.taskmanager.protocol import SourceProgress, SplitAssignment


@dataclass
class _Tracked:
    split: Split
    owner: int | None = None
    position: Any = None
    watermark: int | None = None
    generator: Any = None
    finished: bool = False


class SourceCoordinator:
    """One per source of the job; called from the JobMaster's thread."""

    def __init__(self, uid: str, source: Source, object_store_options: dict[str, Any] | None = None) -> None:
        self.uid = uid
        self.source = source.with_object_store_options(object_store_options or {})
        self._enumerator: SplitEnumerator = self.source.create_enumerator()
        self._splits: dict[str, _Tracked] = {}
        self._discovered_at: int | None = None
        self._load: list[int] = [0]
        self._parallelism = 1
        self._subtasks: dict[int, SourceProgress] = {}

    # --- attempts ---------------------------------------------------------------------------------------------

    def start_attempt(self, parallelism: int, restored: SourceState | None) -> None:
        """All unfinished splits are to be assigned again, from the positions given.

        Args:
            restored: from the manifest; None: from the beginning.
        """
        self._parallelism = parallelism
        self._load = [0] * parallelism
        self._subtasks = {}
        self._splits = {}
        self._discovered_at = None
        self._enumerator.close()
        self._enumerator = self.source.create_enumerator()
        self._enumerator.parallelism = parallelism
        if restored is None:
            return
        enumerator = restored.enumerator or {}
        self._enumerator.restore(enumerator.get("state"))
        if enumerator.get("discovered"):
            self._discovered_at = 0
        for position in restored.splits:
            self._splits[position.id] = _Tracked(
                Split(position.id, position.properties, position.size),
                position=position.position,
                watermark=position.watermark,
                generator=position.generator,
                finished=position.finished,
            )

    def discover(self, now_ms: int) -> None:
        """Ask the enumerator for new splits, when it is due."""
        interval = self._enumerator.discovery_interval_ms
        if self._discovered_at is not None and (interval is None or now_ms < self._discovered_at + interval):
            return
        for split in self._enumerator.discover():
            self._splits.setdefault(split.id, _Tracked(split))
        self._discovered_at = now_ms

    def next_discovery(self) -> int | None:
        interval = self._enumerator.discovery_interval_ms
        if interval is None or self._discovered_at is None:
            return None
        return self._discovered_at + interval

    @property
    def no_more_splits(self) -> bool:
        return self._discovered_at is not None and self._enumerator.is_finished()

    def take_assignments(self) -> dict[int, list[SplitAssignment]]:
        """Assign what has no owner: to the subtask with the least to read, then the fewest splits."""
        assignments: dict[int, list[SplitAssignment]] = {}
        for tracked in self._splits.values():
            if tracked.owner is not None or tracked.finished:
                continue
            owner = min(range(self._parallelism), key=self._load.__getitem__)
            self._load[owner] += max(tracked.split.size, 1)
            tracked.owner = owner
            assignments.setdefault(owner, []).append(
                SplitAssignment(
                    id=tracked.split.id,
                    properties=tracked.split.properties,
                    size=tracked.split.size,
                    position=tracked.position,
                    watermark=tracked.watermark,
                    generator=tracked.generator,
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
        for split_id in progress.finished:
            self._splits[split_id].finished = True
            self._enumerator.on_split_finished(split_id)

    @property
    def exhausted(self) -> bool:
        """Nothing is left: discovery has ended and every split was read to its end."""
        return self.no_more_splits and all(tracked.finished for tracked in self._splits.values())

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
        """As of the last epoch's acks. Finished splits are kept only while discovery could find them again."""
        keep_finished = not self.no_more_splits
        return SourceState(
            splits=[
                SplitPosition(
                    id=t.split.id,
                    properties=t.split.properties,
                    size=t.split.size,
                    position=t.position,
                    watermark=t.watermark,
                    generator=t.generator,
                    finished=t.finished,
                )
                for t in self._splits.values()
                if keep_finished or not t.finished
            ],
            enumerator={"state": self._enumerator.snapshot(), "discovered": self._discovered_at is not None},
        )

    def close(self) -> None:
        self._enumerator.close()
