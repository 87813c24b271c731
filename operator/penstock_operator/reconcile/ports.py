"""The outside world as the loops see it: the cluster, the jobs' masters, storage, the clock. Tests give their own."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from penstock_operator.kube.watched import WatchedObjects
from penstock_operator.reconcile.ownership import Shard
from penstock_operator.reconcile.presets.config_maps import NoPresets, Presets
from penstock_operator.resources.children import OperatorIdentity
from penstock_operator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock_operator.engine.client import EngineClient
    from penstock_operator.kube.cluster import Cluster
    from penstock_operator.storage.protocol import StorageFactory


class EngineDirectory(Protocol):
    """Finds the master of a job."""

    def __call__(self, namespace: str, name: str, token: str | None) -> EngineClient:
        """A client for the REST Service of a FlinkJob."""


def utc_now() -> datetime:
    """Now, in whole seconds, as times are stored."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True)
class Ports:
    """Everything that is not pure."""

    cluster: Cluster
    engines: EngineDirectory
    storages: StorageFactory
    watched: WatchedObjects = field(default_factory=WatchedObjects)
    """What the watch streams feed; as long as that is nothing, all is read anew."""
    shard: Shard = field(default_factory=Shard)
    """Which FlinkJobs are looked after."""
    settings: Settings = field(default_factory=Settings)
    identity: OperatorIdentity = field(default_factory=OperatorIdentity)
    presets: Presets = field(default_factory=NoPresets)
    instance: str = "penstock-operator"
    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic
