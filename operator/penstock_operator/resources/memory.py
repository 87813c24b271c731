"""Memory of the pods: what the engine is told of limits, and what is requested where a spec says nothing.

The model itself is the engine's (`penstock.common.config.memory`); this is the only module besides `storage` that imports engine
code, and only that pure part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.config.memory import MIB, least_job_manager, least_task_manager
from penstock_operator.api.validation import quantity

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec, Resources

LIMIT_OF = {
    "jobmanager.memory.process.size": "spec.master.resources.limits.memory",
    "taskmanager.memory.process.size": "spec.worker.resources.limits.memory",
    "taskmanager.numberOfTaskSlots": "spec.worker.slots",
}
"""What the engine calls it → what it is in a FlinkJob."""
_MASTER_CPU = 100
_WORKER_CPU = 50
_SLOT_CPU = 100
"""Millicores; a pod of one slot was seen to use 160 at 100 records/s."""


def container_limits(spec: FlinkJobSpec) -> dict[str, Any]:
    """Configuration keys by which master and workers share out what their containers may use. For Kubernetes a limit of 0 is none."""
    limits = {
        "jobmanager.memory.process.size": spec.master.resources.limits.get("memory", 0),
        "taskmanager.memory.process.size": spec.worker.resources.limits.get("memory", 0),
    }
    sizes = {key: int(quantity(limit)) for key, limit in limits.items()}
    return {key: f"{size}b" for key, size in sizes.items() if size > 0}


def master_resources(spec: FlinkJobSpec) -> dict[str, Any]:
    """Of the master's container."""
    return _resources(spec.master.resources, _MASTER_CPU, least_job_manager())


def worker_resources(spec: FlinkJobSpec) -> dict[str, Any]:
    """Of a worker's container."""
    slots = spec.worker.slots
    return _resources(spec.worker.resources, _WORKER_CPU + slots * _SLOT_CPU, least_task_manager(slots))


def _resources(given: Resources, millicores: int, memory: int) -> dict[str, Any]:
    """With a request for what has neither request nor limit: where there is a limit, Kubernetes requests as much.

    Of a limit of 0, too, and refuses a request above it.
    """
    least: dict[str, str | int] = {"cpu": f"{millicores}m", "memory": f"{memory // MIB}Mi"}
    missing = {name: least[name] for name in least if name not in given.limits}
    requests = {**missing, **given.requests}
    return {
        **({"requests": requests} if requests else {}),
        **({"limits": dict(given.limits)} if given.limits else {}),
    }
