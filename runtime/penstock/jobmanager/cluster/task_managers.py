"""TaskManagers in the REST API: the cluster's data about workers, joined with the slots of jobs.

A TaskManager has one executor, which has all its slots. The registry (`members.registry`) contains the TaskManagers and their last
heartbeats. The Python workers report the hardware of their machine with their acknowledgements. So the hardware is known only for machines
on which a job has run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.rest import facts
from penstock.taskmanager.hardware import Hardware


@dataclass(frozen=True)
class Worker:
    """Worker that is registered.

    Attributes:
        port: port of its RPC.
        slots: names, in the cluster, of the slots that can take a task now.
        last_heartbeat: ms since the epoch.
        heap: heap of its executor in bytes, or 0 if it is not known.
    """

    id: str
    host: str
    port: int
    slots: tuple[str, ...]
    last_heartbeat: int = 0
    heap: int = 0


@dataclass(frozen=True)
class SlotUse:
    """Slot of a job: its worker, and the last report of its Python workers. `memory_used` (bytes) and `cpu_seconds` are sums over these
    Python workers.
    """

    job_id: str
    task_manager: str
    memory_used: int = 0
    hardware: Hardware | None = None
    cpu_seconds: float = 0.0


def hardware_of(workers: Sequence[Worker], uses: Sequence[SlotUse]) -> dict[str, Hardware]:
    """Return the known hardware of machines, by host."""
    host_of = {worker.id: worker.host for worker in workers}
    return {
        host_of[use.task_manager]: use.hardware
        for use in uses
        if use.hardware is not None and use.task_manager in host_of
    }


def describe_cluster(
    workers: Sequence[Worker],
    uses: Sequence[SlotUse],
    machines: Mapping[str, Hardware],
    memory: Mapping[str, int] | None = None,
) -> facts.Cluster:
    """Return the cluster with its TaskManagers.

    Args:
        uses: slots of all jobs. Slots in workers that no longer exist are ignored.
        machines: hardware by host.
        memory: memory parts of each worker.

    >>> workers = [Worker("w1", "10.0.0.1", 7079, ("0", "1")), Worker("w2", "10.0.0.2", 7079, ("2",))]
    >>> cluster = describe_cluster(workers, [SlotUse("a", "w1"), SlotUse("b", "w1")], {})
    >>> cluster.slots_total, cluster.slots_available, [w.free_slots for w in cluster.task_managers]
    (3, 1, [0, 1])
    """
    by_worker: dict[str, list[SlotUse]] = defaultdict(list)
    for use in uses:
        by_worker[use.task_manager].append(use)
    managers = [_describe(worker, by_worker[worker.id], machines.get(worker.host), memory or {}) for worker in workers]
    return facts.Cluster(
        sum(manager.slots for manager in managers), sum(manager.free_slots for manager in managers), managers
    )


def _describe(
    worker: Worker, uses: Sequence[SlotUse], machine: Hardware | None, memory: Mapping[str, int]
) -> facts.TaskManager:
    machine = machine or Hardware()
    return facts.TaskManager(
        id=worker.id,
        host=worker.host,
        port=worker.port,
        slots=len(worker.slots),
        free_slots=max(0, len(worker.slots) - len(uses)),
        last_heartbeat=worker.last_heartbeat,
        cpu_cores=machine.cpu_cores,
        memory=machine.memory,
        memory_free=machine.memory_free,
        memory_used=sum(use.memory_used for use in uses),
        cpu_seconds=sum(use.cpu_seconds for use in uses),
        heap=worker.heap,
        slots_by_job=Counter(use.job_id for use in uses),
        memory_configuration=memory,
    )
