"""A simulated cluster: processes with their own clocks, a network that fails, and one object store. Time is virtual.

A *strand* is a thread of a simulated process. Only one strand runs at a time. A strand gives control back when it sleeps or sends a request.
The world then continues with the strand or the request that is due next. So a seed determines the whole life.

A request is executed by the store even if its sender is killed or frozen in between, as in reality.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.checkpoint.store.object_store import ObjectInfo, StoreFailure, TransientFailure, delete_one_by_one
from tests.unit.checkpoint.support import DictStore

T = TypeVar("T")

REQUEST_TIMEOUT_S = 2.0
_running = threading.local()


class Killed(BaseException):
    """The death of the process of this strand."""


class World:
    """Virtual time, and the events that are due."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = 1_000.0
        self.store = StoreWithClock(self)
        self.latency_s = 0.02
        """Mean time of one way of a request."""
        self.log: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.back = threading.Semaphore(0)
        """Released by a strand that gives control back."""

    def at(self, time_s: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time_s, self._count, event))

    def run(self, until: Callable[[], bool], deadline_s: float) -> bool:
        """Execute events until the condition holds. Return False at the deadline."""
        while not until():
            if not self._events or self._events[0][0] > deadline_s:
                return False
            due_s, _, event = heapq.heappop(self._events)
            self.now_s = max(self.now_s, due_s)
            event()
        return True

    def run_for(self, seconds: float) -> None:
        end = self.now_s + seconds
        self.run(lambda: False, end)
        self.now_s = end

    def note(self, text: str) -> None:
        self.log.append(f"{self.now_s - 1_000:8.3f} {text}")


class StoreWithClock(DictStore):
    """The object store. Its clock, which stamps objects, may jump."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.jump_s = 0.0

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        super().put(url, content, if_absent=if_absent)
        self.objects[url] = (self.objects[url][0], self._world.now_s + self.jump_s)


@dataclass
class Host:
    """A process, with its network and its clock."""

    name: str
    world: World
    is_dead: bool = False
    frozen_until_s: float = 0.0
    is_cut: bool = False
    loses_answers: bool = False
    error_rate: float = 0.0
    clock_offset_s: float = 0.0
    """Time for which the clock stood still, because the machine was suspended."""
    clock_rate: float = 1.0
    strands: list[Strand] = field(default_factory=list)

    def monotonic(self) -> float:
        return (self.world.now_s - self.clock_offset_s) * self.clock_rate

    def freeze(self, seconds: float, *, with_clock: bool) -> None:
        """Stop the process, as SIGSTOP does, or the whole machine with its clock."""
        self.frozen_until_s = max(self.frozen_until_s, self.world.now_s + seconds)
        if with_clock:
            self.clock_offset_s += seconds

    def kill(self) -> None:
        self.is_dead = True

    def start(self, work: Callable[[], None]) -> None:
        strand = Strand(self, work)
        self.strands.append(strand)
        self.world.at(self.world.now_s, strand.resume)


class Strand:
    """A thread of a process."""

    def __init__(self, host: Host, work: Callable[[], None]) -> None:
        self.host = host
        self._work = work
        self._gate = threading.Semaphore(0)
        self.failure: BaseException | None = None
        self.is_done = False
        threading.Thread(target=self._run, daemon=True).start()

    def resume(self) -> None:
        """Continue the strand now, or when its process is no longer frozen. Called by the world."""
        world = self.host.world
        if self.is_done:
            return
        if not self.host.is_dead and world.now_s < self.host.frozen_until_s:
            world.at(self.host.frozen_until_s, self.resume)
            return
        self._gate.release()
        world.back.acquire()

    def _run(self) -> None:
        self._gate.acquire()
        _running.strand = self
        try:
            if not self.host.is_dead:
                self._work()
        except Killed:  # the strand ends with its process
            pass
        except BaseException as error:
            self.failure = error
        finally:
            self.is_done = True
            self.host.world.back.release()

    def pause(self, seconds: float) -> None:
        """Give control back for some time."""
        world = self.host.world
        if self.host.is_dead:
            raise Killed
        world.at(world.now_s + seconds, self.resume)
        world.back.release()
        self._gate.acquire()
        if self.host.is_dead:
            raise Killed

    def request(self, action: str, call: Callable[[], T]) -> T:
        """Send a request, and wait for its answer."""
        host, world = self.host, self.host.world
        answer: list[T | BaseException] = []

        def execute() -> None:
            try:
                answer.append(call())
            except Exception as error:
                answer.append(error)

        fate = self._fate()
        if fate == "lost":
            self.pause(REQUEST_TIMEOUT_S)
            raise TransientFailure(action, "no answer")
        way_s = world.random.expovariate(1 / world.latency_s)
        if fate == "late":
            way_s += world.random.uniform(0, 60)
        world.at(world.now_s + way_s, execute)
        self.pause(min(REQUEST_TIMEOUT_S, way_s + world.random.expovariate(1 / world.latency_s)))
        if fate == "no answer" or host.is_cut or host.loses_answers or not answer:
            raise TransientFailure(action, "no answer")
        if isinstance(answer[0], BaseException):
            raise answer[0]
        return answer[0]

    def _fate(self) -> str:
        if self.host.is_cut:
            return "lost"
        if self.host.world.random.random() < self.host.error_rate:
            return self.host.world.random.choice(["lost", "no answer", "late"])
        return "go"


def strand() -> Strand:
    """Return the strand that runs."""
    found: Strand = _running.strand
    return found


class Network:
    """The store as the running process sees it."""

    conditional_puts = True

    def __init__(self, inner: DictStore) -> None:
        self._inner = inner

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        strand().request(f"put {url}", lambda: self._inner.put(url, content, if_absent=if_absent))

    def get(self, url: str) -> bytes:
        return strand().request(f"get {url}", lambda: self._inner.get(url))

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        return strand().request(f"get {url}", lambda: self._inner.get_range(url, offset, size))

    def head(self, url: str) -> ObjectInfo:
        return strand().request(f"head {url}", lambda: self._inner.head(url))

    def list_objects(self, prefix_url: str) -> list[ObjectInfo]:
        return strand().request(f"list {prefix_url}", lambda: self._inner.list_objects(prefix_url))

    def list_folders(self, url: str) -> list[str]:
        return strand().request(f"list {url}", lambda: self._inner.list_folders(url))

    def delete(self, url: str) -> None:
        strand().request(f"delete {url}", lambda: self._inner.delete(url))

    def delete_many(self, urls: Sequence[str]) -> dict[str, StoreFailure]:
        return delete_one_by_one(self.delete, urls)

    def copy(self, source_url: str, target_url: str) -> None:
        strand().request(f"copy {source_url}", lambda: self._inner.copy(source_url, target_url))

    # The protocol only writes and reads objects.

    def put_file(self, local_path: str, url: str) -> Any:
        raise AssertionError(f"{local_path} is put to {url} as a file")

    def get_file(self, url: str, local_path: str) -> Any:
        raise AssertionError(f"{url} is read to {local_path} as a file")
