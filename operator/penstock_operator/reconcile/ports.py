"""The interfaces of the loops to the outside world: the cluster, the jobs' masters, storage, the clock. Tests replace
them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock_operator.kube.watched import WatchedObjects
from penstock_operator.reconcile.clock import SteadyClock
from penstock_operator.reconcile.ownership import Shard
from penstock_operator.reconcile.presets.config_maps import NoPresets, Presets
from penstock_operator.reconcile.program_source import RefResolver, resolve_on_server
from penstock_operator.resources.children import OperatorIdentity
from penstock_operator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from penstock_operator.engine.client import EngineClient, MasterTls
    from penstock_operator.kube.cluster import Cluster
    from penstock_operator.storage.protocol import StorageFactory


class EngineDirectory(Protocol):
    """Factory of the clients of the jobs' masters."""

    def __call__(self, namespace: str, name: str, token: str | None, tls: MasterTls | None = None) -> EngineClient:
        """Return a client for the REST Service of a FlinkJob. `tls` is None if the master serves plain HTTP."""


@dataclass(frozen=True)
class Ports:
    """All parts of the loops that are not pure functions."""

    cluster: Cluster
    engines: EngineDirectory
    storages: StorageFactory
    watched: WatchedObjects = field(default_factory=WatchedObjects)
    """The copy that the watch streams update. While it is empty, all reads are fresh."""
    shard: Shard = field(default_factory=Shard)
    """The FlinkJobs that this operator manages."""
    settings: Settings = field(default_factory=Settings)
    identity: OperatorIdentity = field(default_factory=OperatorIdentity)
    presets: Presets = field(default_factory=NoPresets)
    resolve_ref: RefResolver = resolve_on_server
    """Function that asks a git server for the commit of a branch or tag."""
    instance: str = "penstock-operator"
    now: Callable[[], datetime] = field(default_factory=SteadyClock)
    """The current time in whole seconds, the precision of stored times."""
    monotonic: Callable[[], float] = time.monotonic
