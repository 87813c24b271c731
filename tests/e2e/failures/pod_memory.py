"""The memory of the processes of a job's pods, read on the node, which is this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tools import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.flinkjob import Job

GROUPS = Path("/sys/fs/cgroup")


def pss_of(job: Job, role: str) -> list[float]:
    """Return the MiB of each pod of this role. A page that n processes share counts one n-th for each."""
    return [sum(map(processes.memory, _processes(pod["metadata"]["uid"]))) / 2**20 for pod in job.pods(role)]


def _processes(uid: str) -> set[int]:
    """Return the processes of all of a pod's containers, with cgroup v1 or v2."""
    return {int(pid) for file in _lists(uid) for pid in file.read_text().split()}


def _lists(uid: str) -> Iterator[Path]:
    for root in (GROUPS / "memory", GROUPS):
        if root.is_dir():
            for folder in root.glob(f"*/kubepods*/**/pod{uid}"):
                yield from folder.rglob("cgroup.procs")
            return
