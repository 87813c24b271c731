"""Memory of the pods: the limits in the engine's configuration, and the requests of containers for which the spec sets
no requests.

The memory model belongs to the engine (`penstock.common.config.memory`). This module only imports that pure part of
the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.config.memory import MIB, min_job_manager_memory, min_task_manager_memory
from penstock_operator.api.validation import quantity

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec, Resources

LIMIT_OF = {
    "jobmanager.memory.process.size": "spec.master.resources.limits.memory",
    "taskmanager.memory.process.size": "spec.worker.resources.limits.memory",
    "taskmanager.numberOfTaskSlots": "spec.worker.slots",
}
"""Configuration keys of the engine, each with the field of a FlinkJob that replaces it."""
_MASTER_CPU = 100
_WORKER_CPU = 50
_SLOT_CPU = 100
"""The CPU requests are in millicores. In a measurement, a pod with one slot used 160 millicores at 100 records/s."""


def container_limits(spec: FlinkJobSpec) -> dict[str, Any]:
    """Return the configuration keys with the memory limits of the containers. The engine divides this memory.

    For Kubernetes, a limit of 0 means that there is no limit. So a limit of 0 sets no key.
    """
    limits = {
        "jobmanager.memory.process.size": spec.master.resources.limits.get("memory", 0),
        "taskmanager.memory.process.size": spec.worker.resources.limits.get("memory", 0),
    }
    sizes = {key: int(quantity(limit)) for key, limit in limits.items()}
    return {key: f"{size}b" for key, size in sizes.items() if size > 0}


def with_worker_memory(spec: FlinkJobSpec, memory: str | None) -> FlinkJobSpec:
    """Return the spec with another memory limit of the workers. The request does not exceed the limit, and a request that
    was equal to the limit stays equal to it.
    """
    if memory is None:
        return spec
    resources = spec.worker.resources
    own, request = resources.limits.get("memory"), resources.requests.get("memory")
    requests = dict(resources.requests)
    if request is not None and (own == request or quantity(request) > quantity(memory)):
        requests["memory"] = memory
    changed = resources.model_copy(update={"limits": {**resources.limits, "memory": memory}, "requests": requests})
    return spec.model_copy(update={"worker": spec.worker.model_copy(update={"resources": changed})})


def master_resources(spec: FlinkJobSpec) -> dict[str, Any]:
    """Return the resources of the master's container."""
    return _resources(spec.master.resources, _MASTER_CPU, min_job_manager_memory())


def worker_resources(spec: FlinkJobSpec) -> dict[str, Any]:
    """Return the resources of a worker's container."""
    slots = spec.worker.slots
    return _resources(spec.worker.resources, _WORKER_CPU + slots * _SLOT_CPU, min_task_manager_memory(slots))


def _resources(resources: Resources, millicores: int, memory: int) -> dict[str, Any]:
    """Return the resources, with a request for each resource that has neither a request nor a limit.

    A resource with a limit needs no request, because Kubernetes then requests the amount of the limit. The same
    applies to a limit of 0: Kubernetes refuses a request above it.
    """
    least: dict[str, str | int] = {"cpu": f"{millicores}m", "memory": f"{memory // MIB}Mi"}
    missing = {name: least[name] for name in least if name not in resources.limits}
    requests = {**missing, **resources.requests}
    return {
        **({"requests": requests} if requests else {}),
        **({"limits": dict(resources.limits)} if resources.limits else {}),
    }
