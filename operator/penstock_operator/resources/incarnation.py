"""The input from which pods are created, and the number of worker pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_operator.api.flinkjob import workers_for

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.snapshots import Restore


SERVICE_SUFFIXES = ("-1", "-2")
"""Suffixes of the names of a master's Services. These Services have a cluster IP, so their names resolve before a master
exists.

The name of a headless Service without pods does not resolve. DNS servers cache this answer for 5 to 30 s. Workers
that start before the master would wait that long.
"""
FORMER_SERVICE_SUFFIXES = ("", "-b")
"""Suffixes that earlier versions of the operator used, for headless Services. A headless Service cannot be given a
cluster IP, so the new Services need other names.
"""


def other_service_suffix(service_suffix: str) -> str:
    """Return the suffix for the next incarnation. Two incarnations that exist at the same time never have the same
    suffix.

    >>> [other_service_suffix(service_suffix) for service_suffix in ("-1", "-2", "", "-b")]
    ['-2', '-1', '-1', '-1']
    """
    return SERVICE_SUFFIXES[1] if service_suffix == SERVICE_SUFFIXES[0] else SERVICE_SUFFIXES[0]


@dataclass(frozen=True)
class Incarnation:
    """The input from which pods are created: a revision, a job id, and the source of the state."""

    revision: str
    spec: FlinkJobSpec
    job_id: str
    restore: Restore
    parallelism: int
    allow_non_restored_state: tuple[str, ...] = ()
    warm: bool = False
    """Whether the master starts without a snapshot, and waits until the operator names the snapshot to restore. `restore`
    is then only information for users.
    """
    checks: bool = False
    """Whether the master checks its program before the release. Only the master of a first deployment does so."""
    service_suffix: str = ""
    """Suffix of the name of the master's Service. If two incarnations exist, it selects the master that the workers
    connect to. See `SERVICE_SUFFIXES`.
    """


def worker_count(base: FlinkJobSpec, desired: FlinkJobSpec, parallelism: int) -> int:
    """Return the number of worker pods for a parallelism. The slots come from the running spec (`base`), and the spare
    pods from the spec that the user wants (`desired`).
    """
    worker = desired.worker.model_copy(update={"slots": base.worker.slots})
    return workers_for(desired.model_copy(update={"worker": worker}), parallelism)
