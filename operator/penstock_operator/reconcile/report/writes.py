"""The rule that decides when a status is written to the API server. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus


def weighty(status: FlinkJobStatus) -> dict[str, Any]:
    """Return the status without the fields that change all the time. If this part is unchanged, a write can wait."""
    return _weighty(status, status.to_manifest())


def _weighty(status: FlinkJobStatus, manifest: dict[str, Any]) -> dict[str, Any]:
    for key in ("lastCheckpoint", "restarts"):
        manifest.pop(key, None)
    for part, counters in (("health", ("restarts", "restartsAt")), ("ends", ("restarts", "countedRestarts"))):
        for key in counters:
            manifest.get(part, {}).pop(key, None)
    for key in ("wanted", "reason", "message", "slotsAvailable", "inputs", "decisions"):
        manifest.get("autoscaling", {}).pop(key, None)
    if not (status.ends and status.ends.counted):
        manifest.pop("ends", None)
    if status.operation is None and status.running is not None:
        manifest.pop("nextRestore", None)
    return manifest


def write_due(
    before: FlinkJobStatus, after: FlinkJobStatus, *, since: datetime | None, now: datetime, pause: timedelta
) -> bool:
    """Return whether the new status must be written to the API server now."""
    if before == after:
        return False
    then, next_one = before.to_manifest(), after.to_manifest()
    if then == next_one:
        return False
    return _weighty(before, then) != _weighty(after, next_one) or since is None or now - since >= pause
