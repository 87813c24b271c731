"""State that earlier FlinkJobs of the same name have left in storage, and its use at the first start of a new FlinkJob.
Pure functions.

If a FlinkJob is deleted and its manifest is applied again, the new FlinkJob has a new uid and no status. GitOps,
`kubectl replace --force` and a restored cluster do this. Nothing in the cluster shows that an earlier FlinkJob existed,
but storage does. Job ids of one name share a prefix (`resources.names.incarnation_prefix`), savepoints are in folders
with the name, and FlinkSnapshots outlive their FlinkJob.

    job.startFrom       storage                        first start
    ──────────────────  ─────────────────────────────  ──────────────────────────────────────────────────────────────
    (any)               initialSavepointPath is set    from that path; a warning if newer state of the name exists
    empty               is not read                    empty
    not set             has no state of the name       empty
    not set             has state                      empty, with a warning: an event, and the message of `Ready`
    not set             does not respond               empty; read again until the job is stable, then warn
    latest-of-name      does not respond               wait
    latest-of-name      has state                      fence every incarnation found, and read storage again; then
                                                       `committed_end.origin` uses the newest, or is blocked if it is torn
    latest-of-name      has no state of the name       empty

Without a setting, a new FlinkJob starts empty. The name alone is not a reason to restore state that may belong to
another program. An empty start can be reverted, because the earlier state remains and the warning names it. A start
from the wrong state commits output that cannot be reverted.

Fencing affects all incarnations of this namespace and name below `storage.checkpoints`. Two clusters that share that
folder and run FlinkJobs of the same name would take over each other's jobs. So each cluster needs a separate folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock_operator.api.status.snapshots import Checkpoint, Restore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.storage.snapshots import StoredSnapshot

LATEST = "latest-of-name"
EMPTY = "empty"
NOT_SET = ""
"""Value if the spec sets no source: start empty, with a warning."""
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def source_of(spec: FlinkJobSpec) -> str:
    """Return the source of the state that the spec names for the first start: a path, `empty`, `latest-of-name`, or an
    empty string.
    """
    job = spec.job
    if job.initial_savepoint_path is not None:
        return job.initial_savepoint_path
    if job.start_from is None and job.upgrade_mode == "stateless":
        return EMPTY
    return job.start_from or NOT_SET


def newest_snapshot(snapshots: Iterable[StoredSnapshot]) -> StoredSnapshot | None:
    """Return the newest snapshot of the last incarnation.

    Within an incarnation the checkpoint number decides, because the clock of the master may have been set back. A
    savepoint takes precedence over the checkpoint of which it is a copy, and a complete snapshot over a torn snapshot.
    Between incarnations only the time can decide. The time of a snapshot that cannot be read is not known. The snapshot
    may be the newest, so it counts as the newest.
    """
    last: dict[str, StoredSnapshot] = {}
    times: dict[str, datetime] = {}
    for found in snapshots:
        whose = found.job_id or found.path
        if whose not in last or _rank(found) > _rank(last[whose]):
            last[whose] = found
        times[whose] = max(times.get(whose, _LONG_AGO), found.time or _LONG_AGO)
    unknown = [found for whose, found in last.items() if times[whose] == _LONG_AGO]
    return unknown[0] if unknown else max(last.values(), key=lambda s: times[s.job_id or s.path], default=None)


def _rank(found: StoredSnapshot) -> tuple[int, bool, bool, datetime]:
    number = -1 if found.checkpoint_id is None else found.checkpoint_id
    return number, not found.torn, "/savepoint-" in found.path, found.time or _LONG_AGO


def passed_over(found: StoredSnapshot) -> Checkpoint:
    """Return the entry for the status of a job that was not started from this snapshot."""
    return Checkpoint(path=found.path, id=found.checkpoint_id, job_id=found.job_id, time=found.time)


@dataclass(frozen=True)
class UnusedState:
    """Message about state that was not used."""

    left: Checkpoint
    start: Restore

    def __str__(self) -> str:
        taken = f"from {self.start.path} (job.initialSavepointPath)" if self.start.path else "with empty state"
        when = f", of {self.left.time:%Y-%m-%d %H:%M:%S} UTC," if self.left.time else ""
        newer = "newer state of an" if self.start.path else "state of an"
        return (
            f"it was started {taken}, although {newer} earlier FlinkJob of this name exists in storage: {self.left.path}{when} is the "
            f"newest. To continue from it, set job.initialSavepointPath to {self.left.path} and change "
            f"job.savepointRedeployNonce; job.startFrom ({EMPTY} or {LATEST}) decides this when the next FlinkJob of this name starts for the first time"
        )
