"""The TaskManagers of REST, derived from workers and the slots of jobs."""

from __future__ import annotations

from penstock.jobmanager.cluster.task_managers import SlotUse, Worker, describe_cluster, hardware_of
from penstock.taskmanager.hardware import Hardware

MACHINE = Hardware(4, 8 * 2**30, 6 * 2**30)
WORKERS = [
    Worker("worker-1", "10.0.0.1", 7079, ("0", "1", "2"), last_heartbeat=17, heap=3 * 2**29),
    Worker("worker-2", "10.0.0.2", 7079, ("3",)),
]


def test_slots_of_several_jobs_are_summed() -> None:
    uses = [
        SlotUse("a", "worker-1", 100, MACHINE),
        SlotUse("a", "worker-2", 10),
        SlotUse("b", "worker-1", 200, MACHINE),
    ]
    cluster = describe_cluster(WORKERS, uses, hardware_of(WORKERS, uses))
    assert (cluster.slots_total, cluster.slots_available) == (4, 1)
    first, second = cluster.task_managers
    assert (first.id, first.host, first.port, first.last_heartbeat) == ("worker-1", "10.0.0.1", 7079, 17)
    assert (first.slots, first.free_slots, first.slots_by_job) == (3, 1, {"a": 1, "b": 1})
    assert (first.memory_used, first.heap) == (300, 3 * 2**29)
    assert (first.cpu_cores, first.memory, first.memory_free) == (4, 8 * 2**30, 6 * 2**30)
    assert (second.slots, second.free_slots, second.memory_used, second.cpu_cores) == (1, 0, 10, 0)


def test_slots_in_a_lost_worker_are_ignored() -> None:
    uses = [SlotUse("a", "worker-0", 100, MACHINE), SlotUse("a", "worker-2", 10)]
    cluster = describe_cluster(WORKERS, uses, hardware_of(WORKERS, uses))
    assert (cluster.slots_total, cluster.slots_available) == (4, 3)
    assert hardware_of(WORKERS, uses) == {}


def test_an_executor_that_has_just_ended_leaves_no_negative_slots() -> None:
    (manager,) = describe_cluster([Worker("w", "h", 1, ())], [SlotUse("a", "w")], {}).task_managers
    assert (manager.slots, manager.free_slots) == (0, 0)


def test_all_workers_of_a_host_have_its_hardware() -> None:
    workers = [Worker("w1", "127.0.0.1", 1, ("0",)), Worker("w2", "127.0.0.1", 2, ("1",))]
    uses = [SlotUse("a", "w1", 5, MACHINE)]
    cluster = describe_cluster(workers, uses, hardware_of(workers, uses))
    assert [(m.cpu_cores, m.memory_used) for m in cluster.task_managers] == [(4, 5), (4, 0)]
