"""TaskManagers as REST shows them: what the cluster knows of its workers, put together with what jobs say of their slots.

A TaskManager is a Spark worker with its executor, in which all its slots are. Spark knows which there are and when they were last
heard of; what their machine has is told by the Python workers with their acks, so it is known of machines that a job has
run on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.rest import facts
from penstock.taskmanager.hardware import Hardware


@dataclass(frozen=True)
class Worker:
    """A worker that is registered.

    Attributes:
        port: of its RPC.
        slots: their names in the cluster; those that can take a task now.
        last_heartbeat: ms since the epoch.
        heap: memory of its executor (bytes); 0: it has none.
    """

    id: str
    host: str
    port: int
    slots: tuple[str, ...]
    last_heartbeat: int = 0
    heap: int = 0


@dataclass(frozen=True)
class SlotUse:
    """A slot of a job: where it is, and what its Python workers said last; `memory_used` (bytes) and `cpu_seconds` are theirs."""

    job_id: str
    task_manager: str
    memory_used: int = 0
    hardware: Hardware | None = None
    cpu_seconds: float = 0.0


def hardware_of(workers: Sequence[Worker], uses: Sequence[SlotUse]) -> dict[str, Hardware]:
    """What is known of machines, by host."""
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
    """
    Args:
        uses: the slots of all jobs; those in workers that are gone count for nothing.
        machines: hardware by host.
        memory: how the memory of each worker is shared out.

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
