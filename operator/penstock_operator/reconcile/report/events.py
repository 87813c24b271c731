"""Events of FlinkJobs and FlinkSnapshots: what `kubectl describe` shows. What one says stands where it is decided (`ctx.tell`)."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

from penstock_operator.api.types import format_time
from penstock_operator.api.version import API_VERSION
from penstock_operator.errors import AlreadyExists, KubeError
from penstock_operator.resources.names import MANAGER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from penstock_operator.kube.cluster import Cluster
    from penstock_operator.reconcile.decide.decision import Event
    from penstock_operator.resources.names import Owner

log = logging.getLogger(__name__)

REMEMBERED = 500
"""Events; after that they are told once more, which makes no second one."""


class Teller:
    """Tells events of one object, each once as far as this process remembers."""

    def __init__(self, kind: str, cluster: Cluster, instance: str) -> None:
        self._kind, self._cluster, self._instance = kind, cluster, instance
        self._told: dict[str, str] = {}

    def is_told(self, event: Event) -> bool:
        """Whether it was told before."""
        return self._told.get(event.key) == event.reason

    async def tell(self, owner: Owner, events: Iterable[Event], now: datetime) -> None:
        """To be called before the status is written: an event told twice is one event, an event never told is lost."""
        for event in events:
            if self.is_told(event):
                continue
            try:
                await self._cluster.create(kube_event(self._kind, owner, event, now, self._instance))
            except AlreadyExists:
                pass
            except KubeError as error:
                log.info("event %s of %s/%s is not told: %s", event.reason, owner.namespace, owner.name, error)
            self._told[event.key] = event.reason
            if len(self._told) > REMEMBERED:
                self._told.clear()


def kube_event(kind: str, owner: Owner, event: Event, now: datetime, instance: str) -> dict[str, Any]:
    """A Kubernetes Event. Its name follows from what it tells, so that telling it again makes no second one."""
    digest = hashlib.sha256(f"{owner.uid}|{event.key}|{event.reason}".encode()).hexdigest()[:16]
    time = format_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{owner.name}.{digest}", "namespace": owner.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": kind,
            "name": owner.name,
            "namespace": owner.namespace,
            "uid": owner.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "reportingInstance": instance,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
