"""A FlinkSnapshot: one savepoint or checkpoint, asked for, made, verified, and removed with its storage if wanted."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError

from penstock_operator.api.status import Condition
from penstock_operator.api.types import Api, Duration, StorageUri, Time

Trigger = Literal["manual", "nonce", "periodic", "upgrade"]


class JobRef(Api):
    """The FlinkJob, in the same namespace."""

    name: str = Field(min_length=1, max_length=45)
    """Its name."""


class Savepoint(Api):
    """A savepoint."""

    path: StorageUri | None = None
    """Register a savepoint that exists already, instead of taking one. It is verified, and never disposed of."""
    dispose_on_delete: bool = True
    """Remove the files when this object is deleted. Waits for as long as a restore may still need them."""


class CheckpointRequest(Api):
    """A checkpoint, taken now. The engine owns and removes it."""


class FlinkSnapshotSpec(Api):
    """Exactly one of savepoint and checkpoint; cannot be changed after creation."""

    job_ref: JobRef
    """The FlinkJob, in the same namespace."""
    savepoint: Savepoint | None = None
    """Take (or register) a savepoint."""
    checkpoint: CheckpointRequest | None = None
    """Take a checkpoint."""
    backoff_limit: int = Field(default=6, ge=-1, le=100)
    """Attempts after the first before it is Failed, with pauses of 10 s, 20 s, 40 s … 5 min. -1: no limit."""
    timeout: Duration | None = None
    """Time for one attempt. Default: the job's upgrade.savepointTimeout."""


class StorageAccess(Api):
    """How to reach files: the settings under which they were written."""

    secret_name: str | None = None
    """Secret with the credentials."""
    configuration: dict[str, str] = Field(default_factory=dict)
    """The job's s3.* keys."""


class FlinkSnapshotStatus(Api):
    """How far it is."""

    observed_generation: int = 0
    """The generation that this status speaks of."""
    state: str = "Pending"
    """Pending, InProgress, Completed, Failed (gave up), or Abandoned (the job is gone)."""
    message: str = ""
    """What it waits for, or what went wrong."""
    job_id: str | None = None
    """The incarnation it is of."""
    trigger_id: str | None = None
    """Id under which the engine was asked."""
    request_id: str | None = None
    """The id the engine answered with, where it chose its own."""
    target_directory: str | None = None
    """Folder chosen before it was triggered."""
    former_directories: tuple[str, ...] = ()
    """Folders of the attempts before; what becomes complete in one of them late is removed with the files of this object."""
    path: str | None = None
    """Where it is."""
    checkpoint_id: int | None = None
    """Its number."""
    storage: StorageAccess | None = None
    """How to reach the files, whatever the FlinkJob says later and when it is gone."""
    started_at: Time | None = None
    """When the current attempt began."""
    completed_at: Time | None = None
    """When it was complete and verified."""
    failures: int = 0
    """Failed attempts."""
    next_retry_at: Time | None = None
    """When the next attempt is made."""
    conditions: tuple[Condition, ...] = Field(
        default=(), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    """Ready, Reconciling, Stalled."""


def parse_snapshot_status(raw: object) -> FlinkSnapshotStatus:
    """Read a status as well as it can be: a field that makes no sense is dropped, and the rest is kept.

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
