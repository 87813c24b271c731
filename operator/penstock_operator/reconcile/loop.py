"""The common part of the loops of FlinkJobs and FlinkSnapshots: steps until nothing is left to do, events, and the
status.

A step reads the object and decides. It then emits events, writes the status, and only then acts. The status is
written with the resourceVersion that the decision used. If another client wrote in between, the API server refuses
the write, and the pass continues with a new step on the current object.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock_operator.errors import Conflict, log_unexpected
from penstock_operator.reconcile.report.events import EventRecorder
from penstock_operator.resources.names import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta

    from penstock_operator.kube.cluster import Kind, Manifest
    from penstock_operator.reconcile.decide.decision import Event
    from penstock_operator.reconcile.ports import Ports

log = logging.getLogger(__name__)

STEPS_PER_PASS = 20
"""Maximum number of steps in one pass. Other objects get their turn after that."""


class Loop(ABC):
    """Reconcile loop of one object. Its passes never overlap."""

    kind: Kind

    def __init__(
        self, namespace: str, name: str, ports: Ports, report_error: Callable[[Exception], None] = log_unexpected
    ) -> None:
        self.namespace, self.name = namespace, name
        self._ports, self._report_error = ports, report_error
        self._event_recorder = self._new_event_recorder()

    @property
    @abstractmethod
    def job(self) -> str | None:
        """Name of the FlinkJob that the object belongs to, or None if it is not known yet."""

    async def reconcile(self) -> timedelta | None:
        """Take steps until nothing is left to do.

        Returns:
            the time until the next pass. None if only a change of the object itself requires another pass.
        """
        for _ in range(STEPS_PER_PASS):
            try:
                pause, again = await self._step()
            except Conflict:
                continue
            if not again:
                return pause
        log.warning("%s/%s: %d steps in one pass; the next pass continues", self.namespace, self.name, STEPS_PER_PASS)
        return self._ports.settings.progress

    @abstractmethod
    def read_all_objects(self) -> None:
        """Read everything in the next pass, because an object that is only read periodically has changed."""

    def is_echo(self, version: str) -> bool:
        """Return whether this loop's last write of the object has this resourceVersion."""
        return False

    @abstractmethod
    async def _step(self) -> tuple[timedelta | None, bool]:
        """Take one step. Return the time until the next pass, and whether another step follows before that."""

    def _new_event_recorder(self) -> EventRecorder:
        return EventRecorder(self.kind.name, self._ports.cluster, self._ports.instance)

    async def _record_events(self, uid: str, events: Iterable[Event]) -> None:
        await self._event_recorder.record(Owner(self.namespace, self.name, uid), events, self._ports.now())

    async def _write(self, manifest: Manifest, status: Mapping[str, Any]) -> Manifest:
        return await self._ports.cluster.replace({**manifest, "status": dict(status)}, subresource="status")
