"""The whole protocol under every interleaving that a seeded scheduler finds: no record is lost or duplicated.

Several JobManagers run the real recovery, coordinator and fencing against one store, one at a time. At each request to
the store and each action on the sink, a scheduler decides which JobManager runs next. It also decides the fate of the
request, which may be lost, unanswered or late. Its sender may also die before or after the request. A JobManager that
the scheduler skips for a while is a stopped process, and a zombie when it resumes.

The job reads the numbers 0 to N-1 and writes them in pieces through a two-phase commit sink. Its state is a set of
files that each checkpoint partly reuses. At the end one JobManager runs alone. Each number must then be visible once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from penstock.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.checkpoint.coordinator.settings import CheckpointSettings
from penstock.checkpoint.events import CheckpointCompleted, JobMustFail
from penstock.checkpoint.files.codec import encode_manifest
from penstock.checkpoint.files.manifest import SourceState, SplitPosition
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.recovery.takeover import Recovery, take_over
from penstock.checkpoint.store.object_store import ObjectInfo, StoreFailure, TransientFailure, delete_one_by_one
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy, Stores
from penstock.common.errors import CorruptStateFile, Fenced, SnapshotNotFound, SnapshotTorn, StorageError
from penstock.state.files import FileRef
from tests.unit.checkpoint.simulated_sink import Piece, SimulatedSink
from tests.unit.checkpoint.support import DictStore, InlineExecutor, ack, job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

NUMBERS = 40
PER_EPOCH = 3
JOBMANAGERS = 5
SEEDS = 150
_GONE_ERRORS = (SnapshotTorn, SnapshotNotFound, CorruptStateFile)


class Killed(BaseException):
    """The death of the process."""


@dataclass
class Actor:
    """A JobManager process."""

    name: str
    world: World
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    verdict: str = "go"
    is_dead: bool = False
    is_done: bool = False
    failure: BaseException | None = None

    def step(self, action: str, request: Callable[[], T]) -> T:
        """Wait for the scheduler, then run the request with the fate that the scheduler chose."""
        if self.is_dead:
            raise Killed
        self.world.waiting.release()
        self.gate.acquire()
        self.world.log.append((self.name, action, self.verdict))
        match self.verdict:
            case "die before":
                self.is_dead = True
                raise Killed
            case "die after":
                self.is_dead = True
                request()
                raise Killed
            case "die, lands late":
                self.is_dead = True
                self.world.late.append(request)
                raise Killed
            case "lost":
                raise TransientFailure(action, "no answer")
            case "no answer":
                request()
                raise TransientFailure(action, "no answer")
            case "late":
                self.world.late.append(request)
                raise TransientFailure(action, "no answer")
        return request()


class SteppedStore:
    """The store as one JobManager sees it. Each request is a step."""

    conditional_puts = True

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.inner = actor.world.store

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        self.actor.step(f"put {url}", lambda: self.inner.put(url, content, if_absent=if_absent))

    def get(self, url: str) -> bytes:
        return self.actor.step(f"get {url}", lambda: self.inner.get(url))

    def head(self, url: str) -> ObjectInfo:
        return self.actor.step(f"head {url}", lambda: self.inner.head(url))

    def list_objects(self, prefix_url: str) -> list[ObjectInfo]:
        return self.actor.step(f"list {prefix_url}", lambda: self.inner.list_objects(prefix_url))

    def list_folders(self, url: str) -> list[str]:
        return self.actor.step(f"list {url}", lambda: self.inner.list_folders(url))

    def delete(self, url: str) -> None:
        self.actor.step(f"delete {url}", lambda: self.inner.delete(url))

    def delete_many(self, urls: Sequence[str]) -> dict[str, StoreFailure]:
        """Delete one key in each step. Some keys may be deleted when the sender dies or receives no answer."""
        return delete_one_by_one(self.delete, urls)

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        return self.actor.step(f"get {url}", lambda: self.inner.get_range(url, offset, size))

    # The protocol only writes and reads objects. The simulation could not divide a call of these methods into steps.

    def put_file(self, local_path: str, url: str) -> None:
        raise AssertionError(f"{local_path} is put to {url} as a file")

    def get_file(self, url: str, local_path: str) -> None:
        raise AssertionError(f"{url} is read to {local_path} as a file")

    def copy(self, source_url: str, target_url: str) -> None:
        raise AssertionError(f"{source_url} is copied to {target_url}")


class World(SimulatedSink):
    """The store, the sink and the scheduler."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.store = DictStore()
        self.late: list[Callable[[], object]] = []
        self.waiting = threading.Semaphore(0)
        self.log: list[tuple[str, str, str]] = []
        self.completed = 0
        self.fenced = 0

    def run(self, actors: list[Actor], *, faults: float) -> None:
        """Run until all actors are done or dead. The later ones start while the earlier ones run."""
        started: list[Actor] = []
        due = list(actors)
        favourite: Actor | None = None
        while due or any(not actor.is_done for actor in started):
            running = [actor for actor in started if not actor.is_done]
            if due and (not running or self.random.random() < 0.02):
                actor = due.pop(0)
                started.append(actor)
                threading.Thread(target=jobmanager, args=(actor,), daemon=True).start()
                self.waiting.acquire()
                continue
            if self.late and self.random.random() < 0.05:
                self._land(self.late.pop(self.random.randrange(len(self.late))))
            if favourite not in running or self.random.random() < 0.1:
                favourite = self.random.choice(running)
            assert favourite is not None
            favourite.verdict = self._verdict(faults)
            favourite.gate.release()
            self.waiting.acquire()

    def _verdict(self, faults: float) -> str:
        if self.random.random() >= faults:
            return "go"
        kinds = ["lost", "no answer", "late", "die before", "die after", "die, lands late"]
        return self.random.choices(kinds, [8, 8, 8, 1, 1, 1])[0]

    def _land(self, request: Callable[[], object]) -> None:
        try:
            request()
        except Exception:
            pass  # the answer is lost

    def land_all(self) -> None:
        while self.late:
            self._land(self.late.pop())


def jobmanager(actor: Actor) -> None:
    try:
        run_job(actor)
    except Fenced:
        actor.world.fenced += 1
    except (Killed, StorageError):
        pass
    except BaseException as error:
        actor.failure = error
    finally:
        actor.is_done = True
        actor.world.waiting.release()


def run_job(actor: Actor) -> None:
    world = actor.world
    ticks = [0.0]

    def sleep(_: float) -> None:
        ticks[0] += 1

    policy = RetryPolicy(retry_for=2, pause=0, max_pause=0)
    stores = Stores(policy=policy)
    stores.use("dict", RetryingStore(SteppedStore(actor), policy, sleep=sleep, clock=lambda: ticks[0]))
    storage = CheckpointStorage("dict://root", "job", policy=policy, stores=stores)
    recovery = recover(actor, storage)
    position, files = restore(actor, recovery)
    settings = CheckpointSettings(retained=1 + world.random.randrange(2), tolerable_failures=10**6)
    coordinator = CheckpointCoordinator(storage, settings, InlineExecutor())
    coordinator.begin(recovery, job(), 0)
    rounds = 0
    while position < NUMBERS:
        rounds += 1
        numbers = list(range(position, min(position + PER_EPOCH, NUMBERS)))
        piece = f"piece-{recovery.epoch}-{actor.name}-{rounds}"
        world.pieces[piece] = Piece(recovery.epoch, numbers)
        position = numbers[-1] + 1
        new_files = [*files[-2:], write_file(storage, position)]
        if checkpoint(actor, coordinator, position, new_files, piece):
            files = new_files
    while not checkpoint(actor, coordinator, position, [*files[-2:], write_file(storage, position)], None):
        pass  # the last checkpoint must be complete before the job is finished


def recover(actor: Actor, storage: CheckpointStorage) -> Recovery:
    try:
        recovery = take_over(storage, name=actor.name)
        recovery.begin()
    except _GONE_ERRORS as error:
        actor.world.violations.append(f"{actor.name} cannot restore: {error}")
        raise
    return recovery


def restore(actor: Actor, recovery: Recovery) -> tuple[int, list[dict[str, Any]]]:
    world = actor.world
    commits = [id for ids in recovery.commits.values() for id in ids]
    sink_action(actor, "commit", lambda: world.commit(commits))
    sink_action(actor, "discard", lambda: world.discard(recovery.epoch, set(commits)))
    if recovery.snapshot is None:
        return 0, []
    stored = recovery.snapshot.manifest
    files = list(stored.states["count"].keyed[0]["files"])
    try:
        contents = [recovery.storage.reader().read(FileRef(f["path"], f["size"], f["checksum"])) for f in files]
    except _GONE_ERRORS as error:
        recovery.leadership.check()
        world.violations.append(f"{actor.name} cannot read its state: {error}")
        raise
    position = stored.sources["numbers"].splits[0].position
    if contents[-1] != b"up to %d" % position:
        world.violations.append(f"state and position differ: {contents[-1]!r}, {position}")
    return position, files


def sink_action(actor: Actor, name: str, action: Callable[[], None]) -> None:
    try:
        actor.step(name, action)
    except TransientFailure as failure:
        raise StorageError(f"the sink did not answer: {failure}") from failure  # this process gives up


def write_file(storage: CheckpointStorage, position: int) -> dict[str, Any]:
    while True:
        try:
            ref = storage.writer().write(b"up to %d" % position)
        except StorageError:
            continue
        return {"path": ref.path, "size": ref.size, "checksum": ref.checksum}


def checkpoint(
    actor: Actor, coordinator: CheckpointCoordinator, position: int, files: list[dict[str, Any]], piece: str | None
) -> bool:
    world = actor.world
    coordinator.trigger_checkpoint()
    request = coordinator.next_trigger(0)
    assert request is not None
    coordinator.on_barrier(request.checkpoint_id, {"numbers": SourceState([SplitPosition("numbers", {}, position)])})
    keyed = {"key_groups": [0, 127], "files": files, "states": {}}
    coordinator.on_ack(ack(request, keyed=keyed, committables=[piece] if piece else []), 0)
    is_complete = False
    while coordinator.is_in_progress or not is_complete:
        events = coordinator.tick(0)
        for event in events:
            if isinstance(event, JobMustFail):
                raise event.error
            if isinstance(event, CheckpointCompleted):
                is_complete = True
                world.completed += 1
                pieces = [id for ids in event.commits.values() for id in ids]
                sink_action(actor, "commit", partial(world.commit, pieces))
                coordinator.on_committed(event.checkpoint_id)
        if not coordinator.is_in_progress and not is_complete:
            return False
    return True


def simulate(seed: int) -> World:
    world = World(seed)
    faults = world.random.choice([0.0, 0.01, 0.03, 0.1, 0.4])
    actors = [Actor(f"jm{number}", world) for number in range(JOBMANAGERS)]
    world.run(actors, faults=faults)
    if world.random.random() < 0.5:
        world.land_all()
    last = Actor("last", world)
    world.run([last], faults=0.0)
    for actor in [*actors, last]:
        if actor.failure is not None:
            raise AssertionError(f"seed {seed}: {actor.name} failed") from actor.failure
    return world


def report(seed: int, world: World) -> str:
    lines = [
        f"seed {seed}",
        *world.violations,
        *(f"{name}: {action}: {verdict}" for name, action, verdict in world.log),
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("block", [*range(4), *(pytest.param(block, marks=pytest.mark.slow) for block in range(4, 10))])
def test_every_number_is_visible_exactly_once(block: int) -> None:
    completed = fenced = 0
    for seed in range(block * SEEDS // 10, (block + 1) * SEEDS // 10):
        world = simulate(seed)
        assert world.violations == [], report(seed, world)
        assert world.visible() == Counter(range(NUMBERS)), report(seed, world)
        completed += world.completed
        fenced += world.fenced
    assert completed > 100, "the simulation must do something"
    assert fenced > 0, "and have zombies"


def test_the_simulation_detects_a_leader_without_a_second_check_after_its_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that cannot fail proves nothing.

    Without the second check, the simulation must find duplicates and losses.
    """
    from penstock.checkpoint.leadership import fencing

    def publish_without_second_check(self: fencing.Leadership, manifest: Any) -> fencing.PublishOutcome:
        self.check()
        url = self.storage.url_of(f"chk-{manifest.checkpoint_id}/_metadata")
        won = self.storage.store.put_if_absent(url, encode_manifest(manifest))
        return fencing.PublishOutcome.COMPLETE if won else fencing.PublishOutcome.NUMBER_TAKEN

    monkeypatch.setattr(fencing.Leadership, "publish", publish_without_second_check)
    assert any(is_wrong(seed) for seed in range(SEEDS))


def test_the_simulation_detects_a_successor_that_writes_no_base(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.checkpoint.leadership import fencing

    monkeypatch.setattr(fencing.Leadership, "begin", lambda self, base: self.check())
    assert any(is_wrong(seed) for seed in range(SEEDS))


def test_the_simulation_detects_a_sink_that_cleans_up_without_checking_the_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def discard(self: World, epoch: int, keep: set[str]) -> None:
        for id, piece in self.pieces.items():
            if piece.state == "open" and id not in keep:
                piece.state = "removed"

    monkeypatch.setattr(World, "discard", discard)
    assert any(is_wrong(seed) for seed in range(SEEDS))


def is_wrong(seed: int) -> bool:
    try:
        world = simulate(seed)
    except AssertionError:
        return True
    return bool(world.violations) or world.visible() != Counter(range(NUMBERS))
