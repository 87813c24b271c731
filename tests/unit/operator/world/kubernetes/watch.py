"""The watch streams between the API server and the operator, which can be late, break, and restart."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock_operator.kube.cluster import KINDS
from penstock_operator.kube.watched import WATCHED
from penstock_operator.process.controller import Controller

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.process.controller import ObjectKind
    from tests.unit.operator.world.world import World

_WATCHED = {kind.name for kind in WATCHED}


class Watch:
    """A watch that updates the operator's cache with the changes of a cluster."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lag = timedelta(0)
        """The delay of events."""
        self.behind = 0
        """The number of newest events that are held back regardless of their age."""
        self.broken = False
        """Whether events are lost."""
        self.event_count = 0
        """A number that grows with every received event."""
        self.listed_at = world.time
        self._waiting: list[tuple[datetime, Manifest, bool]] = []
        world.cluster.watcher = self.note

    def note(self, manifest: Manifest, deleted: bool) -> None:
        if self.broken:
            return
        if manifest["kind"] in _WATCHED:
            self._waiting.append((self.world.time, manifest, deleted))
        else:
            self.event_count += 1
        self.deliver()

    def deliver(self) -> None:
        """Deliver the events that are due."""
        while len(self._waiting) > self.behind and self.world.time - self._waiting[0][0] >= self.lag:
            _, manifest, deleted = self._waiting.pop(0)
            self.world.deliver_event(KINDS[manifest["kind"]], manifest, deleted=deleted)
            self.event_count += 1

    def break_off(self) -> None:
        """Break the stream and drop the events that have not arrived."""
        self.broken = True
        self._waiting.clear()

    async def restart(self) -> None:
        """Restart with a list of the existing objects, which omits deleted ones.

        The operator lists all objects itself if it detects the restart.
        """
        self.broken, controller = False, self.world.controller
        for kind in WATCHED:
            for manifest in self.world.cluster.select(kind.name, None, {}):
                self.world.deliver_event(kind, manifest, listed=True)
        if controller.relist_due.is_set():
            controller.relist_due.clear()
            await controller.resync()
            await controller.correct_copy()
        self.event_count += 1

    async def resync(self) -> None:
        """List as `Controller.resync` does every minute, unless no event can have been missed."""
        missed = bool(self._waiting) or self.broken
        if missed and self.world.time - self.listed_at >= timedelta(seconds=60):
            self.listed_at = self.world.time
            await self.world.controller.resync()
            self.event_count += 1


class EventReceiver(Controller):
    """The controller that receives events. It updates the cache, and the world itself runs the loops."""

    def wake(self, kind: ObjectKind, namespace: str, name: str, *, read_all: bool = False) -> None:
        """Do nothing. The loops check whether `Watch.event_count` has grown."""
