"""What earlier FlinkJobs of the same name have left in storage, and what the first start of a new one does about it. Pure.

Delete and apply again (GitOps, `kubectl replace --force`, a restored cluster) makes a new FlinkJob, with a new uid and without a
status: nothing in the cluster says that there was one before. Storage does. Job ids of one name share a prefix
(`resources.names.incarnation_prefix`), savepoints lie in folders of the name, and FlinkSnapshots outlive their FlinkJob.

    job.startFrom       storage                        the first start
    ──────────────────  ─────────────────────────────  ──────────────────────────────────────────────────────────────
    (any)               initialSavepointPath is named  from there; a warning if the name has left something newer
    empty               is not asked                   empty
    not set             has nothing of the name        empty
    not set             has something                  empty, with a warning: an event, and the message of `Ready`
    not set             does not answer                empty; it is asked again until the job is stable, and then warned
    latest-of-name      does not answer                waits
    latest-of-name      has something                  every incarnation that is found is fenced off; then storage is read
                                                       again, and `committed_end.origin` takes the newest, or is blocked if it is torn
    latest-of-name      has nothing of the name        empty

Without a word of the person a new FlinkJob starts empty: state of a program that may have been another one is not taken over
because of a name, what an empty start does can be taken back (what was left stays where it is, and is named), while
a start from the wrong state commits output that cannot.

What is fenced off are all incarnations of namespace and name below `storage.checkpoints`. Two clusters that share that folder, and run FlinkJobs
of one name, would take them from each other; each cluster needs a folder of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock_operator.api.status import Checkpoint, Restore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.storage.snapshots import StoredSnapshot

LATEST = "latest-of-name"
EMPTY = "empty"
ASKED = ""
"""Nothing is said: empty, with a warning."""
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def source_of(spec: FlinkJobSpec) -> str:
    """What a spec says of where the first start gets its state from: a path, `empty`, `latest-of-name` or nothing."""
    job = spec.job
    if job.initial_savepoint_path is not None:
        return job.initial_savepoint_path
    if job.start_from is None and job.upgrade_mode == "stateless":
        return EMPTY
    return job.start_from or ASKED


def newest_left(snapshots: Iterable[StoredSnapshot]) -> StoredSnapshot | None:
    """The newest snapshot of the incarnation that came last.

    Within an incarnation numbers decide, since its clock may have been set back; a savepoint goes before the checkpoint that it
    is a copy of, and what is whole before what is torn. Between incarnations only the time is left; one that cannot
    be read, so that nobody knows its time, may be the newest, and counts as that.
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
    """As it is kept in the status of a job that was not started from it."""
    return Checkpoint(path=found.path, id=found.checkpoint_id, job_id=found.job_id, time=found.time)


@dataclass(frozen=True)
class Words:
    """What is said of state that was not taken."""

    left: Checkpoint
    start: Restore

    def __str__(self) -> str:
        taken = f"from {self.start.path} (job.initialSavepointPath)" if self.start.path else "empty"
        when = f", of {self.left.time:%Y-%m-%d %H:%M:%S} UTC," if self.left.time else ""
        newer = "newer state of an" if self.start.path else "state of an"
        return (
            f"it was started {taken}, although {newer} earlier FlinkJob of this name lies in storage: {self.left.path}{when} is the "
            f"newest. To go on from it, set job.initialSavepointPath to {self.left.path} and change "
            f"job.savepointRedeployNonce; job.startFrom ({EMPTY} or {LATEST}) decides it before the next first start"
        )
