"""What one decision about a FlinkSnapshot is made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock_operator.reconcile.observation import Engine, Storage
from penstock_operator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from typing import Literal

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.flinksnapshot import FlinkSnapshotSpec, FlinkSnapshotStatus, StorageAccess
    from penstock_operator.api.status import FlinkJobStatus
    from penstock_operator.reconcile.decide.decision import Event


@dataclass(frozen=True)
class OwnJob:
    """The FlinkJob that the snapshot is of."""

    uid: str
    spec: FlinkJobSpec | None
    status: FlinkJobStatus
    deleting: bool = False
    revisions: Mapping[str, FlinkJobSpec] = field(default_factory=dict)
    """Name of a ControllerRevision → the spec in it, where that can be read."""


@dataclass(frozen=True)
class SnapshotContext:
    """All that the decision may know."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: FlinkSnapshotSpec
    status: FlinkSnapshotStatus
    now: datetime
    trigger: str = "manual"
    revision: str | None = None
    """The revision of the FlinkJob that made what is registered, if the operator has noted it."""
    protected: bool = False
    """Finalizer and labels are set."""
    deleting_since: datetime | None = None
    job: OwnJob | None = None
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """FlinkJobs of the namespace → paths that they may still be started from; known while it is being deleted."""
    engine: Engine = field(default_factory=Engine)
    storage: Storage = field(default_factory=Storage)
    opened: StorageAccess | None = None
    """The settings with which storage answered."""
    failure: str = ""
    """Why the last action was refused."""
    disposed: frozenset[str] = frozenset()
    """Paths of files that were deleted."""
    settings: Settings = field(default_factory=Settings)
    events: tuple[Event, ...] = ()

    @property
    def kind(self) -> Literal["savepoint", "checkpoint"]:
        """What is asked for."""
        return "checkpoint" if self.spec.checkpoint is not None else "savepoint"

    @property
    def ours(self) -> bool:
        """The operator made the files (and did not only register them)."""
        savepoint = self.spec.savepoint
        return savepoint is not None and (savepoint.path is None or self.trigger == "upgrade")

    @property
    def folders(self) -> tuple[str, ...]:
        """What its attempts have written to, the last one first, if that is to go with it."""
        savepoint, status = self.spec.savepoint, self.status
        if savepoint is None or savepoint.path is not None or not savepoint.dispose_on_delete:
            return ()
        return tuple(folder for folder in (status.target_directory, *reversed(status.former_directories)) if folder)
