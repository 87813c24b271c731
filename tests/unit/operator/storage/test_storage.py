"""The operator's view of real checkpoints, written by the engine's own code."""

from __future__ import annotations

import asyncio
import gc
import shutil
import time
import weakref
from typing import TYPE_CHECKING

import msgspec
import pytest

from penstock.checkpoint.files.manifest import Manifest
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.savepoint.savepoints import write_savepoint
from penstock.checkpoint.store.retrying_store import Stores
from penstock.common.errors import Fenced
from penstock.jobmanager.job.ending.job_result import RESULT
from penstock_operator.api.limits.own_identity import OwnIdentity
from penstock_operator.errors import NotLeader, StorageError
from penstock_operator.storage import penstock as storage_module
from penstock_operator.storage.penstock import IDLE, OPEN, PenstockStorage, PenstockStorages, driver_options
from penstock_operator.storage.snapshots import Beginning
from tests.unit.operator.contexts import make_spec

if TYPE_CHECKING:
    from pathlib import Path

JOB = "d" * 32
LOCAL = OwnIdentity(locations=("file:///",))


def manifest(number: int, epoch: int) -> Manifest:
    now = int(time.time() * 1000)
    return Manifest(
        format_version=1,
        kind="checkpoint",
        job_id=JOB,
        job_name="weather",
        checkpoint_id=number,
        leader_epoch=epoch,
        trigger_timestamp=now,
        complete_timestamp=now,
        parallelism=1,
        max_parallelism=128,
        graph_fingerprint="f",
        operators=[],
        sources={},
        states={},
    )


class Stage:
    """A job's checkpoints in a folder."""

    def __init__(self, folder: Path) -> None:
        self.root = f"file://{folder}/checkpoints"
        self.savepoints = f"file://{folder}/savepoints"
        self.folder = folder
        self.job = CheckpointStorage(self.root, JOB)
        self.recovery = take_over(self.job, name="test")
        self.recovery.begin()
        self.storage = PenstockStorages(own_identity=LOCAL)(make_spec(), {})

    def checkpoint(self, number: int) -> Manifest:
        made = manifest(number, self.recovery.epoch)
        self.recovery.leadership.publish(made)
        return made

    def savepoint(self, number: int) -> str:
        copy = msgspec.structs.replace(self.checkpoint(number), kind="savepoint")
        return write_savepoint(copy, self.job.url, self.savepoints, Stores({}))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_newest_checkpoint_is_found(stage: Stage) -> None:
    assert asyncio.run(stage.storage.newest_complete(stage.root, JOB)) is None
    stage.checkpoint(1)
    stage.checkpoint(2)
    found = asyncio.run(stage.storage.newest_complete(stage.root, JOB))
    assert found is not None
    assert (found.checkpoint_id, found.job_id, found.torn) == (2, JOB, "")
    assert found.path.endswith(f"{JOB}/chk-2")
    assert found.time is not None


def test_a_job_without_checkpoints_has_none(stage: Stage) -> None:
    assert asyncio.run(stage.storage.newest_complete(stage.root, "e" * 32)) is None


def test_a_torn_newest_checkpoint_is_reported_with_the_one_before(stage: Stage) -> None:
    stage.checkpoint(1)
    stage.checkpoint(2)
    (stage.folder / "checkpoints" / JOB / "chk-2" / "_metadata").write_bytes(b'{"half')
    found = asyncio.run(stage.storage.newest_complete(stage.root, JOB))
    assert found is not None
    assert found.torn
    assert found.older is not None
    assert found.older.endswith("chk-1")


def test_the_start_of_an_incarnation_is_read_from_its_leader_files(tmp_path: Path) -> None:
    first = Stage(tmp_path)
    first.checkpoint(1)
    path = f"{first.root}/{JOB}/chk-1/"  # as a person writes it

    async def beginning(of: str) -> Beginning:
        return await first.storage.beginning(first.root, of)

    unknown = CheckpointStorage(first.root, "e" * 32)
    assert asyncio.run(beginning("e" * 32)) == Beginning(unknown.url)
    asyncio.run(first.storage.fence(first.root, "e" * 32))
    assert not asyncio.run(beginning("e" * 32)).led, "a claim of the operator begins nothing"
    take_over(unknown, restore_path=path).begin()
    take_over(unknown, restore_path=path).begin()
    assert asyncio.run(beginning("e" * 32)) == Beginning(unknown.url, led=True, path=path)
    take_over(unknown).begin()  # a master that is started with --restore-latest
    assert asyncio.run(beginning("e" * 32)).path == path
    empty = asyncio.run(beginning(JOB))
    assert (empty.led, empty.path, empty.completed) == (True, None, False)
    take_over(first.job).begin()
    assert asyncio.run(beginning(JOB)).completed, "its second leader has gone on from a checkpoint of its own"
    asyncio.run(first.storage.release(first.root, "f" * 32, path))
    CheckpointStorage(first.root, "f" * 32).put("latest", b"chk-1")
    CheckpointStorage(first.root, "f" * 32).put(RESULT, b"{}")
    released = asyncio.run(beginning("f" * 32))
    assert (released.led, released.released, released.completed, released.ended) == (False, path, True, True)


def test_savepoints_are_listed_verified_and_disposed_of(stage: Stage) -> None:
    path = stage.savepoint(3)

    async def ask() -> None:
        [found] = await stage.storage.savepoints(stage.savepoints)
        assert (found.path, found.checkpoint_id) == (path, 3)
        verdict = await stage.storage.verify(path)
        assert (verdict.ok, verdict.checkpoint_id) == (True, 3)
        await stage.storage.dispose(path)
        assert await stage.storage.savepoints(stage.savepoints) == []
        await stage.storage.dispose(path)
        gone = await stage.storage.verify(path)
        assert not gone.ok
        assert path in gone.reason

    asyncio.run(ask())


def test_an_empty_folder_has_no_savepoints(stage: Stage) -> None:
    assert asyncio.run(stage.storage.savepoints(f"{stage.savepoints}/nothing/here")) == []


def test_a_checkpoint_is_not_disposed_of_as_a_savepoint(stage: Stage) -> None:
    stage.checkpoint(1)
    with pytest.raises(StorageError, match="not a savepoint"):
        asyncio.run(stage.storage.dispose(f"{stage.root}/{JOB}/chk-1"))


def test_all_checkpoints_of_a_job_are_removed(stage: Stage) -> None:
    stage.checkpoint(1)
    savepoint = stage.savepoint(2)
    asyncio.run(stage.storage.dispose_job(stage.root, JOB))
    assert asyncio.run(stage.storage.newest_complete(stage.root, JOB)) is None
    assert asyncio.run(stage.storage.verify(savepoint)).ok


def test_an_operator_without_leadership_changes_nothing_and_stops_in_the_middle(stage: Stage) -> None:
    stage.checkpoint(1)
    savepoint, objects = stage.savepoint(2), len(list(stage.job.list_objects()))
    allowed = 1  # the manifests, but not the files that are deleted after them

    def fence() -> None:
        nonlocal allowed
        allowed -= 1
        if allowed < 0:
            raise NotLeader("another leads")

    storage = PenstockStorages(fence=fence, own_identity=LOCAL)(make_spec(), {})
    with pytest.raises(NotLeader):
        asyncio.run(storage.dispose_job(stage.root, JOB))
    assert 0 < len(list(stage.job.list_objects())) < objects, "the lease was lost while it deleted"
    for change in (storage.dispose(savepoint), storage.fence(stage.root, JOB)):
        with pytest.raises(NotLeader):
            asyncio.run(change)
    assert asyncio.run(storage.verify(savepoint)).ok


def test_a_scheme_without_a_driver_is_an_error_and_not_an_absence(stage: Stage) -> None:
    with pytest.raises(StorageError):
        asyncio.run(stage.storage.newest_complete("nosuchscheme://bucket/x", JOB))


def test_driver_options_are_passed() -> None:
    spec = make_spec(configuration={"s3.endpoint": "http://s3:9000", "s3.endpoint.region": "eu-1"})
    found = driver_options(spec, {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_SESSION_TOKEN": "t"})
    assert found == {
        "endpoint_url": "http://s3:9000",
        "key": "id",
        "secret": "key",
        "token": "t",
        "client_kwargs": {"region_name": "eu-1"},
    }
    assert driver_options(make_spec(), {}) == {}


def test_a_fenced_incarnation_completes_no_more_checkpoints(stage: Stage) -> None:
    stage.checkpoint(1)
    asyncio.run(stage.storage.fence(stage.root, JOB))
    with pytest.raises(Fenced):
        stage.checkpoint(2)
    found = asyncio.run(stage.storage.newest_complete(stage.root, JOB))
    assert found is not None
    assert (found.checkpoint_id, found.torn) == (1, ""), "what it wrote before still counts"


def test_the_folder_can_be_moved(stage: Stage) -> None:
    path = stage.savepoint(4)
    shutil.move(path.removeprefix("file://"), stage.folder / "savepoint-dddddd-0123456789ab")
    assert asyncio.run(stage.storage.verify(f"file://{stage.folder}/savepoint-dddddd-0123456789ab")).ok


NAME_ID = "ab" * 6
FOLDER = "default/weather-"


class Namesake(Stage):
    """An incarnation of a FlinkJob named weather, and the folder of its savepoints."""

    def __init__(self, folder: Path, job_id: str, uid: str) -> None:
        self.job_id = job_id
        super().__init__(folder)
        self.savepoints = f"{self.savepoints}/default/weather-{uid}/op-1"

    def checkpoint(self, number: int) -> Manifest:
        made = msgspec.structs.replace(manifest(number, self.recovery.epoch), job_id=self.job_id)
        self.recovery.leadership.publish(made)
        return made


def test_remaining_snapshots_of_a_name_are_found_and_none_of_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def namesake(job_id: str, uid: str) -> Namesake:
        monkeypatch.setattr("tests.unit.operator.storage.test_storage.JOB", job_id)
        return Namesake(tmp_path, job_id, uid)

    first = namesake(NAME_ID + "0" * 20, "11111111")
    first.checkpoint(1)
    saved = first.savepoint(2)
    second = namesake(NAME_ID + "1" * 20, "22222222")
    second.checkpoint(5)
    namesake(NAME_ID + "2" * 20, "33333333")
    stranger = namesake("c" * 32, "2-44444444")
    stranger.savepoint(3)
    unfinished = tmp_path / "savepoints" / "default" / "weather-22222222" / "op-2" / "savepoint-ababab-0123456789ab"
    unfinished.mkdir(parents=True)
    (unfinished / "data").write_bytes(b"half")

    async def ask() -> None:
        root, savepoints = first.root, f"file://{tmp_path}/savepoints"
        left = await first.storage.left_by(root, NAME_ID, savepoints, FOLDER)
        assert left.incarnations == tuple(NAME_ID + digit * 20 for digit in "012")
        found = {(s.job_id, s.checkpoint_id, "/savepoint-" in s.path, bool(s.torn)) for s in left.snapshots}
        ends = {(NAME_ID + "0" * 20, 2, False, False), (NAME_ID + "1" * 20, 5, False, False)}
        assert found == ends | {(NAME_ID + "0" * 20, 2, True, False)}
        assert saved in {s.path for s in left.snapshots}
        (tmp_path / saved.removeprefix(f"file://{tmp_path}/") / "_metadata").write_bytes(b"{")
        again = await first.storage.left_by(root, NAME_ID, savepoints, FOLDER)
        assert {s.path for s in again.snapshots if s.torn} == {saved}
        nothing = await first.storage.left_by(root, "e" * 12, savepoints, "default/other-")
        assert (nothing.incarnations, nothing.snapshots) == ((), ())

    asyncio.run(ask())


def test_the_number_of_clients_of_many_tenants_is_bounded() -> None:
    now = 0.0
    storages = PenstockStorages(clock=lambda: now)
    spec = make_spec()

    def opened(tenant: int) -> object:
        return storages(spec, {"AWS_ACCESS_KEY_ID": f"key-{tenant}"})

    first, second = opened(0), opened(1)
    assert opened(0) is first
    for tenant in range(2, OPEN + 1):
        opened(tenant)
    assert storages.open == OPEN
    assert opened(0) is first, "it was asked for later than the second"
    assert opened(1) is not second
    for tenant in range(1000):
        opened(tenant)
    assert storages.open == OPEN
    now = IDLE + 1
    opened(0)
    assert storages.open == 1, "keys that have changed are not kept for ever"
    storages.close()


def test_an_evicted_client_answers_its_current_users_and_is_then_closed(stage: Stage) -> None:
    storages = PenstockStorages(own_identity=LOCAL)
    evicted = storages(make_spec(), {})
    asyncio.run(evicted.savepoints(stage.savepoints))
    for tenant in range(OPEN):
        storages(make_spec(), {"AWS_ACCESS_KEY_ID": f"key-{tenant}"})
    assert storages(make_spec(), {}) is not evicted
    assert asyncio.run(evicted.savepoints(stage.savepoints)) == []
    assert isinstance(evicted, PenstockStorage)
    client = weakref.ref(evicted._stores)
    del evicted
    gc.collect()
    assert client() is None
    storages.close()


def test_remaining_snapshots_of_a_frequently_used_name_are_found(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each incarnation takes several requests, so all of them together take longer than the timeout of one call."""
    ids = [f"abcdef{number:026x}" for number in range(40)]
    for job_id in ids:
        (stage.folder / "checkpoints" / job_id).mkdir()
    requests: list[str] = []

    def slow(self: PenstockStorage, root: str, job_id: str) -> None:
        time.sleep(0.05)
        requests.append(job_id)

    monkeypatch.setattr(PenstockStorage, "_newest", slow)
    monkeypatch.setattr(storage_module, "CALL_TIMEOUT", 0.4)
    left = asyncio.run(stage.storage.left_by(stage.root, "abcdef", stage.savepoints, "default/weather-"))
    assert sorted(left.incarnations) == ids == sorted(requests)


def test_one_incarnation_that_does_not_answer_makes_the_result_unknown(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.folder / "checkpoints" / ("abcdef" + "1" * 26)).mkdir()

    def hangs(self: PenstockStorage, root: str, job_id: str) -> None:
        time.sleep(0.3)

    monkeypatch.setattr(PenstockStorage, "_newest", hangs)
    monkeypatch.setattr(storage_module, "CALL_TIMEOUT", 0.1)
    with pytest.raises(StorageError, match="did not respond"):
        asyncio.run(stage.storage.left_by(stage.root, "abcdef", stage.savepoints, "default/weather-"))
