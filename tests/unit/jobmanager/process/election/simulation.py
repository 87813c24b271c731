"""Processes of an election under a simulated clock: they pause, lose storage, die and start again, and their clocks jump."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from penstock.common.errors import StorageError
from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.elector import ElectionTimes, Elector, Role

TIMES = ElectionTimes(lease_s=5.0, interval_s=1.0, deadline_s=60.0)
TICK_S = 0.25


@dataclass
class Register:
    """The place of the claims, as an object store or the Kubernetes API: it orders all calls."""

    newest: Holder | None = None
    leaders: dict[int, str] = field(default_factory=dict)
    """Id of the process that has won each term."""


class Access:
    """A process's access to the register, which may be cut off."""

    def __init__(self, register: Register) -> None:
        self.register = register
        self.is_cut = False
        self.loses_answers = False
        """Whether calls have an effect and no answer."""

    def current(self) -> Holder | None:
        self._check()
        return self.register.newest

    def claim(self, candidate: Holder, over: Holder | None) -> bool:
        if self.is_cut:
            raise StorageError("cut off")
        newest = self.register.newest
        won = candidate.term == (0 if newest is None else newest.term) + 1
        if won:
            assert candidate.term not in self.register.leaders
            self.register.leaders[candidate.term] = candidate.id
            self.register.newest = candidate
        self._check()
        return won

    def renew(self, holder: Holder) -> bool:
        self._check()
        newest = self.register.newest
        assert newest is not None
        if newest.term != holder.term:
            return False
        self.register.newest = holder
        return True

    def release(self, holder: Holder) -> None:
        self.renew(msgspec.structs.replace(holder, released=True))

    def _check(self) -> None:
        if self.is_cut or self.loses_answers:
            raise StorageError("no answer")


class Process:
    """A process that steps once per interval of simulated time."""

    def __init__(self, name: str, register: Register, world: World) -> None:
        self.access = Access(register)
        self._world = world
        self._next_s = world.now_s
        self.paused_until_s = 0.0
        self.elector = Elector(self.access, Holder(name), TIMES, lambda: world.now_s)
        self.led_from_s: float | None = None

    @property
    def is_paused(self) -> bool:
        return self._world.now_s < self.paused_until_s

    @property
    def leads(self) -> bool:
        return self.elector.role is Role.LEADING

    def run(self) -> None:
        if self.is_paused or self._world.now_s < self._next_s:
            return
        self._next_s = self._world.now_s + TIMES.interval_s
        before = self.elector.role
        try:
            self.elector.step()
        except StorageError:
            return
        if self.leads and before is not Role.LEADING:
            self.led_from_s = self._world.now_s


class World:
    """Two places for processes. A process that dies or loses is replaced by a new one, as Kubernetes and systemd do."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.register = Register()
        self.count = 0
        self.processes = [self._process(), self._process()]

    def _process(self) -> Process:
        self.count += 1
        return Process(f"p{self.count}", self.register, self)

    def replace(self, place: int) -> None:
        """Kill the process at a place, and start another one there."""
        self.processes[place] = self._process()

    def run(self, seconds: float) -> None:
        end = self.now_s + seconds
        while self.now_s < end:
            self.now_s += TICK_S
            for place, process in enumerate(self.processes):
                process.run()
                if process.elector.role is Role.LOST:
                    self.replace(place)

    @property
    def leaders(self) -> list[Process]:
        return [process for process in self.processes if process.leads]
