"""The kind FlinkSnapshot: one savepoint or checkpoint. The operator takes and verifies it. When a user deletes a
FlinkSnapshot, the operator also deletes the savepoint files that it created, unless the spec forbids this.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from penstock_operator.api.status.flinkjob_status import Condition
from penstock_operator.api.types import Api, Duration, StorageUri, Time, format_duration

Trigger = Literal["manual", "nonce", "periodic", "upgrade"]


class JobRef(Api):
    """The FlinkJob, in the same namespace."""

    name: str = Field(min_length=1, max_length=45)
    """Name of the FlinkJob."""


class Savepoint(Api):
    """A savepoint."""

    path: StorageUri | None = None
    """Register an existing savepoint at this location instead of taking one. The operator verifies it and never deletes its files."""
    dispose_on_delete: bool = True
    """Delete the files together with this object, if the operator created them for this object. The operator delays the deletion while a restore may need the files."""


class CheckpointRequest(Api):
    """A request to take a checkpoint now. The engine owns the checkpoint and decides when to remove it."""


class FlinkSnapshotSpec(Api):
    """Specification of a snapshot. It has exactly one of savepoint and checkpoint, and it cannot be changed after
    creation.
    """

    job_ref: JobRef
    """The FlinkJob, in the same namespace."""
    savepoint: Savepoint | None = None
    """Take a savepoint, or register an existing one."""
    checkpoint: CheckpointRequest | None = None
    """Take a checkpoint."""
    backoff_limit: int = Field(default=6, ge=-1, le=100)
    """Number of retries before the snapshot is Failed. The pauses between retries are 10 s, 20 s, 40 s and so on, up to 5 min. -1 means no limit."""
    timeout: Duration | None = None
    """Timeout of one attempt, at least 1s. Default: upgrade.savepointTimeout of the job."""

    @field_validator("timeout")
    @classmethod
    def _is_long_enough(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and value < timedelta(seconds=1):
            msg = f"{format_duration(value)} is less than a second: set a timeout that is long enough for a savepoint"
            raise ValueError(msg)
        return value


class StorageAccess(Api):
    """Storage settings with which the files were written. The operator needs these settings to read or delete the
    files.
    """

    secret_name: str | None = None
    """Secret with the credentials."""
    configuration: dict[str, str] = Field(default_factory=dict)
    """The s3.* keys of the job's configuration."""


class FlinkSnapshotStatus(Api):
    """Progress and result of a snapshot."""

    observed_generation: int = 0
    """The generation that this status describes."""
    state: str = "Pending"
    """Pending, InProgress, Completed, Failed (no more retries), or Abandoned (the job no longer exists)."""
    message: str = ""
    """The reason why the snapshot waits, or the last error."""
    job_uid: str | None = None
    """uid of the FlinkJob, recorded when the operator first finds it. The snapshot is Abandoned when that FlinkJob no longer exists."""
    job_id: str | None = None
    """Job id of the incarnation that the snapshot belongs to."""
    trigger_id: str | None = None
    """Id that the operator sends with the request to the engine."""
    request_id: str | None = None
    """Id that the engine returned for the request, if it is not triggerId."""
    target_directory: str | None = None
    """Target folder, chosen before the snapshot is triggered."""
    former_directories: tuple[str, ...] = ()
    """Target folders of earlier attempts. If a snapshot completes late in one of them, it is deleted together with the files of this object."""
    made_for: str | None = None
    """uid of this FlinkSnapshot, recorded when the operator creates files for it. Files are deleted only if this value equals the object's own uid. A copy of the object has a different uid and deletes nothing."""
    path: str | None = None
    """Location of the snapshot."""
    checkpoint_id: int | None = None
    """Number of the checkpoint."""
    storage: StorageAccess | None = None
    """Storage settings for the files. They remain valid after the FlinkJob is changed or deleted."""
    started_at: Time | None = None
    """Start time of the current attempt."""
    completed_at: Time | None = None
    """Time when the snapshot was complete and verified."""
    failures: int = 0
    """Number of failed attempts."""
    next_retry_at: Time | None = None
    """Time of the next attempt."""
    conditions: tuple[Condition, ...] = Field(
        default=(), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    """Conditions: Ready, Reconciling, Stalled."""


def parse_snapshot_status(raw: object) -> FlinkSnapshotStatus:
    """Parse a status. Drop the fields that are not valid, and keep the rest.

    >>> parse_snapshot_status({"failures": "many", "path": "s3://b/sp", "state": "Completed"}).path
    's3://b/sp'
    """
    fields: dict[str, Any] = dict(raw) if isinstance(raw, dict) else {}
    while True:
        try:
            return FlinkSnapshotStatus.model_validate(fields)
        except ValidationError as error:
            known = {str(e["loc"][0]) for e in error.errors() if e["loc"]} & fields.keys()
            fields = {k: v for k, v in fields.items() if known and k not in known}
