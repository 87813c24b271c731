"""What the passes over a FlinkJob and over a FlinkSnapshot have in common: steps until nothing is to be done, events, the status.

A step reads the object and decides; it tells, writes the status, and only then acts. The status is written under the
resourceVersion it was decided on: if anybody wrote in between, the API server refuses, and the pass takes another step on
what is there now.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock_operator.errors import Conflict, log_unexpected
from penstock_operator.reconcile.report.events import Teller
from penstock_operator.resources.names import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta

    from penstock_operator.kube.cluster import Kind, Manifest
    from penstock_operator.reconcile.decide.decision import Event
    from penstock_operator.reconcile.ports import Ports

log = logging.getLogger(__name__)

STEPS_PER_PASS = 20
"""After so many steps another object gets its turn."""


class Loop(ABC):
    """Reconciles one object. Its passes never overlap."""

    kind: Kind

    def __init__(
        self, namespace: str, name: str, ports: Ports, complain: Callable[[Exception], None] = log_unexpected
    ) -> None:
        self.namespace, self.name = namespace, name
        self._ports, self._complain = ports, complain
        self._teller = self._new_teller()

    @property
    @abstractmethod
    def job(self) -> str | None:
        """The FlinkJob it belongs to, as far as that is known."""

    async def reconcile(self) -> timedelta | None:
        """Take steps until there is nothing to do.

        Returns:
            the time until the next look; None if nothing is to be done any more, whatever happens elsewhere.
        """
        for _ in range(STEPS_PER_PASS):
            try:
                pause, again = await self._step()
            except Conflict:
                continue
            if not again:
                return pause
        log.warning("%s/%s: %d steps in one pass; going on later", self.namespace, self.name, STEPS_PER_PASS)
        return self._ports.settings.progress

    @abstractmethod
    def look_closer(self) -> None:
        """Something that is looked at only now and then has changed: look at everything next time."""

    def is_echo(self, version: str) -> bool:
        """Whether the object in this resourceVersion is what the loop wrote last."""
        return False

    @abstractmethod
    async def _step(self) -> tuple[timedelta | None, bool]:
        """One step: the time until the next look, and whether there is another step before that."""

    def _new_teller(self) -> Teller:
        return Teller(self.kind.name, self._ports.cluster, self._ports.instance)

    async def _tell(self, uid: str, events: Iterable[Event]) -> None:
        await self._teller.tell(Owner(self.namespace, self.name, uid), events, self._ports.now())

    async def _write(self, manifest: Manifest, status: Mapping[str, Any]) -> Manifest:
        return await self._ports.cluster.replace({**manifest, "status": dict(status)}, subresource="status")
