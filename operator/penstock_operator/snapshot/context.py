"""The input of a decision about a FlinkSnapshot."""

from __future__ import annotations

import hashlib
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
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.reconcile.decide.decision import Event


@dataclass(frozen=True)
class OwnJob:
    """The FlinkJob that the snapshot belongs to."""

    uid: str
    spec: FlinkJobSpec | None
    status: FlinkJobStatus
    deleting: bool = False
    revisions: Mapping[str, FlinkJobSpec] = field(default_factory=dict)
    """Specs by the name of their ControllerRevision. Specs that cannot be read are missing."""


@dataclass(frozen=True)
class SnapshotContext:
    """The complete input of a decision."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: FlinkSnapshotSpec
    status: FlinkSnapshotStatus
    now: datetime
    trigger: str = "manual"
    revision: str | None = None
    """The revision of the FlinkJob that made the registered savepoint, if the operator has recorded it."""
    protected: bool = False
    """Whether the finalizer and the labels are set."""
    deleting_since: datetime | None = None
    job: OwnJob | None = None
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The paths from which each FlinkJob of the namespace may still be started, by the name of the FlinkJob. Only set
    while the object is being deleted.
    """
    engine: Engine = field(default_factory=Engine)
    storage: Storage = field(default_factory=Storage)
    opened: StorageAccess | None = None
    """The settings with which storage responded."""
    failure: str = ""
    """Reason why the last action was refused."""
    keys_are_gone: bool = False
    """Whether the Secret for the storage does not exist, and no FlinkJob needs it."""
    disposed: frozenset[str] = frozenset()
    """Paths of the deleted files."""
    settings: Settings = field(default_factory=Settings)
    events: tuple[Event, ...] = ()

    @property
    def kind(self) -> Literal["savepoint", "checkpoint"]:
        """The requested kind of snapshot."""
        return "checkpoint" if self.spec.checkpoint is not None else "savepoint"

    @property
    def ours(self) -> bool:
        """Whether the operator's own record shows that it created files for this object.

        Labels and the spec prove nothing. Users can write them, and a copy of the object has them too. Earlier
        versions of the operator wrote no such record. For their objects, a request id that was derived from the
        object's uid counts as the record.
        """
        status = self.status
        has_own_trigger = status.trigger_id is not None and status.trigger_id in (
            trigger_id(self.uid, attempt) for attempt in range(status.failures + 1)
        )
        return status.made_for == self.uid or (status.made_for is None and has_own_trigger)

    @property
    def job_is_gone(self) -> bool:
        """Whether the snapshot's FlinkJob existed and no longer exists. A new FlinkJob with the same name is a
        different FlinkJob.
        """
        status = self.status
        if self.job is not None:
            return status.job_uid is not None and status.job_uid != self.job.uid
        return status.job_uid is not None or status.job_id is not None

    @property
    def disposes(self) -> bool:
        """Whether the files are deleted together with the object."""
        savepoint = self.spec.savepoint
        return self.ours and savepoint is not None and savepoint.dispose_on_delete

    @property
    def is_made_by_a_stop(self) -> bool:
        """Whether the FlinkJob's status records that the operator stopped the job with the savepoint that is
        registered here.
        """
        path = self.spec.savepoint.path if self.spec.savepoint is not None else None
        if self.job is None or path is None:
            return False
        status = self.job.status
        known = {entry.path for entry in status.requested_savepoints}
        known.add(status.last_savepoint.path if status.last_savepoint else None)
        return path in known

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders of all attempts. The folder of the last attempt comes first. Empty if the files are not deleted
        together with the object.
        """
        status = self.status
        if not self.disposes or self.spec.savepoint is None or self.spec.savepoint.path is not None:
            return ()
        return tuple(folder for folder in (status.target_directory, *reversed(status.former_directories)) if folder)


def trigger_id(uid: str, attempt: int) -> str:
    """Return the request id for an attempt of the FlinkSnapshot with this uid."""
    return hashlib.sha256(f"{uid}|{attempt}".encode()).hexdigest()[:32]
