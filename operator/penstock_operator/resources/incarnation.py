"""What pods are made from, and how many of them there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_operator.api.flinkjob import workers_for

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status import Restore


DOORS = ("-1", "-2")
"""A Service with an address of its own, that answers to its name before there is a master. Of one without, a name server says that the name
does not exist, and says so again for 5 to 30 s whatever has come meanwhile: for that long workers would wait, who are up first."""
FORMER_DOORS = ("", "-b")
"""Of incarnations that an operator has started which knew no others. Such a Service cannot be given an address."""


def other_door(door: str) -> str:
    """Two incarnations are never there with the same one.

    >>> [other_door(door) for door in ("-1", "-2", "", "-b")]
    ['-2', '-1', '-1', '-1']
    """
    return DOORS[1] if door == DOORS[0] else DOORS[0]


@dataclass(frozen=True)
class Incarnation:
    """What pods are made from: a revision, a job id, and where its state comes from."""

    revision: str
    spec: FlinkJobSpec
    job_id: str
    restore: Restore
    parallelism: int
    allow_non_restored_state: tuple[str, ...] = ()
    warm: bool = False
    """Its master waits until it is told where the state comes from; `restore` says so to people only."""
    door: str = ""
    """Behind the name of the master's Service: which of two incarnations that are there at a time its workers go to. See `DOORS`."""


def worker_count(base: FlinkJobSpec, desired: FlinkJobSpec, parallelism: int) -> int:
    """Worker pods for a parallelism: slots from what runs, spares from the current spec."""
    worker = desired.worker.model_copy(update={"slots": base.worker.slots})
    return workers_for(desired.model_copy(update={"worker": worker}), parallelism)
