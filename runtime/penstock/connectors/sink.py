"""Sinks: a writer in every subtask, and one committer in the JobManager (two-phase commit, K6-K8).

At a barrier each writer *pre-commits*: everything written since the last barrier becomes a durable, invisible piece,
described by JSON-able *committables* that go into the checkpoint's manifest. When the manifest is complete the
JobManager's committer makes them visible. Commit is idempotent: after a crash the committables of the restored
manifest are committed again before the job goes on. What no manifest names was never visible and is removed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class WriterContext:
    subtask: int
    parallelism: int
    attempt: int
    uid: str
    job_id: str
    object_store_options: dict[str, Any] = field(default_factory=dict)


class SinkWriter(ABC):
    """Writes records; one per sink subtask; driven from one thread."""

    @abstractmethod
    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        """Take records in order. `watermark` is the operator's current one (ms)."""

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        """The vote of the two-phase commit: after it, commit must succeed even after a crash (K7)."""
        return []

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """Items of operator list state (split evenly on rescale); called after `prepare_commit`."""
        return []

    def advance_processing_time(self, now: int) -> None: ...

    def flush(self) -> None:
        """End of an epoch without a barrier: make what can be durable durable (at-least-once sinks)."""

    def close(self) -> None: ...


class Committer(ABC):
    """Runs in the JobManager. Every method may be called again with the same arguments (idempotent)."""

    @abstractmethod
    def commit(self, committables: list[Any]) -> None: ...

    def abort(self, committables: list[Any]) -> None:
        """A checkpoint was abandoned and the job failed over: its pieces will never be committed."""

    def discard_unreferenced(self, keep: list[Any]) -> None:
        """After a restore: remove in-progress pieces of earlier attempts that no committable in `keep` names."""


class Sink(ABC):
    """What a user passes to `stream.sink_to`. Picklable."""

    @abstractmethod
    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        """`restored`: this subtask's share of what `snapshot_state` returned."""

    def create_committer(self, object_store_options: dict[str, Any]) -> Committer | None:
        return None

    def validate(self) -> None:
        """Checks on the client what can be checked before anything runs."""
