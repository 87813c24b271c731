"""The watch streams between the API server and the operator: they are late, they break, and they begin anew."""

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
    """Feeds the operator's copy with what changes in a cluster."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lag = timedelta(0)
        """How late events are."""
        self.behind = 0
        """How many of the newest events are held back, however old they are."""
        self.broken = False
        """What happens meanwhile is never told."""
        self.heard = 0
        """Grows with every event that has come."""
        self.listed_at = world.time
        self._waiting: list[tuple[datetime, Manifest, bool]] = []
        world.cluster.watcher = self.note

    def note(self, manifest: Manifest, gone: bool) -> None:
        if self.broken:
            return
        if manifest["kind"] in _WATCHED:
            self._waiting.append((self.world.time, manifest, gone))
        else:
            self.heard += 1
        self.deliver()

    def deliver(self) -> None:
        """What is due."""
        while len(self._waiting) > self.behind and self.world.time - self._waiting[0][0] >= self.lag:
            _, manifest, gone = self._waiting.pop(0)
            self.world.tell(KINDS[manifest["kind"]], manifest, gone=gone)
            self.heard += 1

    def break_off(self) -> None:
        """And what has not come yet never comes."""
        self.broken = True
        self._waiting.clear()

    async def begin_anew(self) -> None:
        """A list of what there is now: of what is gone it says nothing. The operator lists everything itself, if it notices."""
        self.broken, controller = False, self.world.controller
        for kind in WATCHED:
            for manifest in self.world.cluster.select(kind.name, None, {}):
                self.world.tell(kind, manifest, listed=True)
        if controller.doubt.is_set():
            controller.doubt.clear()
            await controller.resync()
            await controller.correct()
        self.heard += 1

    async def resync(self) -> None:
        """As `Controller.resync` does every minute; where nothing can have been missed there is no need."""
        missed = bool(self._waiting) or self.broken
        if missed and self.world.time - self.listed_at >= timedelta(seconds=60):
            self.listed_at = self.world.time
            await self.world.controller.resync()
            self.heard += 1


class Hearing(Controller):
    """The operator's ear: what it is told goes into the copy; the world itself runs the loops."""

    def wake(self, kind: ObjectKind, namespace: str, name: str, *, closer: bool = False) -> None:
        """Whoever is to be woken looks when `Watch.heard` has grown."""
