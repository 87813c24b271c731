"""`SlotSharingGroup`: operators that may share a slot, and the resources of their slot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.common.program.user_location import refusal

RESOURCES = "a resource of a SlotSharingGroup"
NO_RESOURCES = (
    "slots are sized when the cluster is set up (taskmanager.memory.process.size, taskmanager.numberOfTaskSlots)"
)


@dataclass(frozen=True, order=True)
class MemorySize:
    """A size in bytes.

    >>> MemorySize.of_mebi_bytes(64).get_bytes()
    67108864
    """

    bytes_size: int = 0

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        return MemorySize(mebi_bytes * 2**20)

    def get_bytes(self) -> int:
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        return self.bytes_size // 2**10

    def get_mebi_bytes(self) -> int:
        return self.bytes_size // 2**20

    def get_gibi_bytes(self) -> int:
        return self.bytes_size // 2**30

    def get_tebi_bytes(self) -> int:
        return self.bytes_size // 2**40

    def get_java_memory_size(self) -> None:
        raise refusal("a MemorySize has no Java object", "use get_bytes()")


@dataclass(frozen=True)
class SlotSharingGroup:
    """Named group of operators. Operators of different groups are never chained.

    The getters return the resources of the group. Resources have no effect, because the setup of the cluster determines the size of the
    slots. A warning says this.

    >>> group = SlotSharingGroup.builder("model").set_cpu_cores(2.0).set_task_heap_memory_mb(512).build()
    >>> group.get_name(), group.get_task_heap_memory().get_mebi_bytes()
    ('model', 512)
    """

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        return SlotSharingGroup.Builder(name)

    @property
    def has_resources(self) -> bool:
        requested = (self.cpu_cores, self.task_heap_memory, self.task_off_heap_memory, self.managed_memory)
        return any(each is not None for each in requested) or bool(self.external_resources)

    def get_name(self) -> str:
        return self.name

    def get_managed_memory(self) -> MemorySize | None:
        return self.managed_memory

    def get_task_heap_memory(self) -> MemorySize | None:
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        return self.task_off_heap_memory

    def get_cpu_cores(self) -> float | None:
        return self.cpu_cores

    def get_external_resources(self) -> dict[str, float]:
        return dict(self.external_resources)

    def get_java_slot_sharing_group(self) -> None:
        raise refusal(f"slot sharing group {self.name!r} has no Java object", "pass the group itself")

    class Builder:
        """Builder of a slot sharing group."""

        def __init__(self, name: str) -> None:
            if not name:
                raise refusal("a slot sharing group needs a name")
            self._group = SlotSharingGroup(name)

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            if cpu_cores <= 0:
                raise refusal(f"cpu_cores must be positive, got {cpu_cores}")
            self._group = replace(self._group, cpu_cores=cpu_cores)
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            self._group = replace(self._group, task_heap_memory=task_heap_memory)
            return self

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            self._group = replace(self._group, task_off_heap_memory=task_off_heap_memory)
            return self

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            self._group = replace(self._group, managed_memory=managed_memory)
            return self

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            resources = {**self._group.external_resources, name: value}
            self._group = replace(self._group, external_resources=resources)
            return self

        def build(self) -> SlotSharingGroup:
            """Return the group.

            Raises:
                InvalidJob: some resources are given, but the CPU or the heap memory is missing.
            """
            group = self._group
            if group.has_resources:
                if group.cpu_cores is None or group.task_heap_memory is None:
                    raise refusal(
                        f"slot sharing group {group.name!r} has resources, but not both of cpu_cores and task_heap_memory",
                        "set both, or no resources",
                    )
                if group.task_heap_memory.bytes_size <= 0:
                    raise refusal(f"the task heap memory of slot sharing group {group.name!r} must be positive")
            return group
