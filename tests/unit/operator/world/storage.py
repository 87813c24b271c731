"""Checkpoint storage in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock_operator.errors import StorageError
from penstock_operator.storage.snapshots import Beginning, Left, StoredSnapshot, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from tests.unit.operator.world.faults import Fault


@dataclass(frozen=True)
class Stored:
    path: str
    id: int
    job_id: str
    position: int
    time: datetime
    uid: str = ""


@dataclass
class FakeStorage:
    """The store of the fake engine and the operator's view of it."""

    fault: Fault
    root: str = "s3://bucket/checkpoints"
    down: str = ""
    lost: str = ""
    """The reason why neither the operator nor the engine reaches it. `down` only affects the operator."""
    crashes: bool = False
    """Whether masters without storage end at their start, instead of reporting that their job is FAILED."""
    unusable: str = ""
    """The reason why masters cannot use storage, although the operator can."""
    disposable: bool = True
    """Whether the operator may delete from it."""
    found: dict[str, Stored] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)
    disposed: list[str] = field(default_factory=list)
    listings: int = 0
    """The number of requests for the remaining snapshots of a name."""
    leaders: dict[str, int] = field(default_factory=dict)
    started_jobs: dict[str, str] = field(default_factory=dict)
    """The path that the first master restored by job id, or an empty text for none."""
    completed: set[str] = field(default_factory=set)
    """Ids of jobs that have completed a checkpoint."""
    released: dict[str, str] = field(default_factory=dict)
    """The path with which a standby job was released, by job id."""
    ended: dict[str, str] = field(default_factory=dict)
    """Ids of jobs that have reached a terminal state."""
    input_read: set[str] = field(default_factory=set)
    """Ids of the jobs among them that have read all of their input."""
    opened: Callable[[FlinkJobSpec, Mapping[str, str]], FakeStorage | None] = lambda spec, secret: None
    """The store that the operator opens with these settings, or None for this one."""

    def put(self, snapshot: Stored) -> None:
        self.found[snapshot.path] = snapshot

    def of_job(self, job_id: str) -> list[Stored]:
        """Return the checkpoints (not savepoints) of an incarnation, oldest first."""
        mine = [s for s in self.found.values() if s.path.startswith(f"{self.root}/{job_id}/chk-")]
        return sorted(mine, key=lambda s: s.id)

    def __call__(self, spec: FlinkJobSpec, secret: Mapping[str, str], tenant: str = "") -> FakeStorage:
        return self.opened(spec, secret) or self

    def _check(self, *, delete: bool = False) -> None:
        if self.down or self.lost:
            raise StorageError(self.down or self.lost)
        if delete and not self.disposable:
            raise StorageError("AccessDenied")

    async def newest_complete(self, root: str, job_id: str) -> StoredSnapshot | None:
        self._check()
        mine = self.of_job(job_id) if root == self.root else []
        if not mine:
            return None
        newest = mine[-1]
        torn = f"{newest.path}: files are missing" if newest.path in self.torn else ""
        whole = [s.path for s in mine if s.path not in self.torn]
        return StoredSnapshot(
            newest.path, newest.id, job_id, newest.time, torn=torn, older=whole[-1] if whole else None
        )

    async def beginning(self, root: str, job_id: str) -> Beginning:
        self._check()
        return Beginning(
            f"{root}/{job_id}",
            led=job_id in self.started_jobs,
            path=self.started_jobs.get(job_id) or None,
            released=self.released.get(job_id),
            completed=job_id in self.completed,
            ended=job_id in self.ended,
        )

    async def verify(self, path: str) -> Verdict:
        self._check()
        snapshot = self.found.get(path)
        if snapshot is None:
            return Verdict(path, ok=False, reason="no object is at that path")
        if path in self.torn:
            return Verdict(path, ok=False, reason="files are missing")
        return Verdict(path, ok=True, checkpoint_id=snapshot.id, time=snapshot.time)

    async def savepoints(self, directory: str) -> list[StoredSnapshot]:
        self._check()
        inside = [
            s for s in self.found.values() if s.path.startswith(f"{directory}/savepoint-") and s.path not in self.torn
        ]
        return [StoredSnapshot(s.path, s.id, s.job_id, s.time) for s in sorted(inside, key=lambda s: -s.id)]

    async def left_by(self, root: str, prefix: str, savepoints: str, folder: str) -> Left:
        self._check()
        self.listings += 1
        pattern = re.compile(rf"{re.escape(savepoints)}/{re.escape(folder)}.{{8}}/[^/]+/savepoint-[^/]+")
        made = [s for s in self.found.values() if pattern.fullmatch(s.path)]
        ids = {s.path.split("/")[4] for s in self.found.values() if s.path.startswith(f"{self.root}/")}
        ids = {i for i in ids | self.leaders.keys() if i.startswith(prefix) or i in {s.job_id for s in made}}
        newest = [await self.newest_complete(root, job_id) for job_id in sorted(ids)]
        torn = "files are missing"
        savepoint = [
            StoredSnapshot(s.path, s.id, s.job_id, s.time, torn=torn if s.path in self.torn else "") for s in made
        ]
        return Left(tuple(sorted(ids)), (*(s for s in newest if s is not None), *savepoint))

    async def fence(self, root: str, job_id: str) -> None:
        self._check()
        self.fault.before(f"storage fence {job_id}")
        self.leaders[job_id] = self.leaders.get(job_id, 0) + 1
        self.fault.after(f"storage fence {job_id}")

    async def release(self, root: str, job_id: str, path: str) -> None:
        self._check()
        self.fault.before(f"storage release {job_id}")
        if self.released.setdefault(job_id, path) != path:
            raise StorageError(f"released before, from {self.released[job_id]}")
        self.fault.after(f"storage release {job_id}")

    async def dispose(self, path: str) -> None:
        self._check(delete=True)
        self.fault.before(f"storage dispose {path}")
        self.found.pop(path, None)
        self.disposed.append(path)
        self.fault.after(f"storage dispose {path}")

    async def dispose_job(self, root: str, job_id: str) -> None:
        self._check(delete=True)
        self.fault.before(f"storage dispose-job {job_id}")
        for snapshot in self.of_job(job_id):
            del self.found[snapshot.path]
        self.disposed.append(job_id)
        self.fault.after(f"storage dispose-job {job_id}")
