"""Events of FlinkJobs and FlinkSnapshots, which `kubectl describe` shows. The decisions define their content
(`Context.with_event`).
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

from penstock_operator.api.types import format_time
from penstock_operator.api.version import API_VERSION
from penstock_operator.errors import AlreadyExists, KubeError
from penstock_operator.redaction import without_secrets
from penstock_operator.resources.names import MANAGER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from penstock_operator.kube.cluster import Cluster
    from penstock_operator.reconcile.decide.decision import Event
    from penstock_operator.resources.names import Owner

log = logging.getLogger(__name__)

REMEMBERED = 500
"""Maximum number of remembered events. After that, an event may be sent again, but its name prevents a duplicate."""


class EventRecorder:
    """Sender of the events of one object. It remembers the last events, and does not send them again."""

    def __init__(self, kind: str, cluster: Cluster, instance: str) -> None:
        self._kind, self._cluster, self._instance = kind, cluster, instance
        self._sent: dict[str, str] = {}

    def is_sent(self, event: Event) -> bool:
        """Return whether the event was sent before."""
        return self._sent.get(event.key) == event.reason

    async def record(self, owner: Owner, events: Iterable[Event], now: datetime) -> None:
        """Send the events. Call this before the status is written. If the process crashes in between, the next pass sends
        the events again, which creates no second event. In the other order, the events would be lost.
        """
        for event in events:
            if self.is_sent(event):
                continue
            try:
                await self._cluster.create(kube_event(self._kind, owner, event, now, self._instance))
            except AlreadyExists:
                pass
            except KubeError as error:
                log.info("event %s of %s/%s could not be created: %s", event.reason, owner.namespace, owner.name, error)
            self._sent[event.key] = event.reason
            if len(self._sent) > REMEMBERED:
                self._sent.clear()


def kube_event(kind: str, owner: Owner, event: Event, now: datetime, instance: str) -> dict[str, Any]:
    """Return a Kubernetes Event. Its name is derived from its content, so that a repeated event creates no second
    object.
    """
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
        "message": without_secrets(event.message)[:1024],
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "reportingInstance": instance,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
