"""Factory of state backends and timer services. Only this module knows all backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.state.hashmap.backend import HashMapStateBackend
from penstock.state.timers.table_timer_service import TimerService

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.metrics import MetricGroup
    from penstock.state.backend import KeyedStateBackend
    from penstock.state.key_context import KeyContext
    from penstock.state.key_groups import KeyGroupRange
    from penstock.state.timers.internal_timer_service import InternalTimerService
    from penstock.state.ttl.expiry import Clock


def create_backend(
    kind: str,
    *,
    key_group_range: KeyGroupRange,
    max_parallelism: int,
    key_context: KeyContext,
    clock: Clock,
    work_dir: str = "",
    options: Mapping[str, Any] | None = None,
    operator_name: str = "",
    key_type: Any = None,
    metrics: MetricGroup | None = None,
) -> KeyedStateBackend:
    """Return the backend of one operator in one subtask.

    Args:
        kind: `hashmap` or `rocksdb`.
        key_group_range: key groups that the subtask owns.
        work_dir: a separate directory of this backend for local files (rocksdb). Empty means a temporary directory.
        options: options of the backend; see `docs/state.md`.
        key_type: type of the keys. It is needed if the keys are dataclasses, NamedTuples or Enums.
        metrics: metric group of the operator.

    Raises:
        InvalidJob: the backend or an option does not exist.
    """
    if kind == "hashmap":
        return HashMapStateBackend(
            key_group_range=key_group_range,
            max_parallelism=max_parallelism,
            key_context=key_context,
            clock=clock,
            operator_name=operator_name,
            key_type=key_type,
        )
    if kind == "rocksdb":
        from penstock.state.rocksdb.backend import RocksDBStateBackend

        return RocksDBStateBackend(
            key_group_range=key_group_range,
            max_parallelism=max_parallelism,
            key_context=key_context,
            clock=clock,
            work_dir=work_dir,
            options=options or {},
            operator_name=operator_name,
            key_type=key_type,
            metrics=metrics,
        )
    raise InvalidJob(
        f"the state backend {kind!r} does not exist",
        remedy="set state.backend.type to hashmap or rocksdb",
        operator=operator_name,
    )


def create_timer_service(backend: KeyedStateBackend) -> InternalTimerService:
    """Return the timers of the operator that the backend serves. The timers are part of the backend's snapshots."""
    owner: Any = backend
    return TimerService(owner.event_time_timers, owner.processing_time_timers, backend.key_context, owner.clock)
