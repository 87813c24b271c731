"""Test doubles and builders for the checkpoint tests."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.events import JobDescription, SnapshotRequest, SubtaskAck
from penstock.checkpoint.files.manifest import (
    FORMAT_VERSION,
    Manifest,
    OperatorInfo,
    OperatorState,
    SourceState,
    SplitPosition,
)
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.store.faults import FaultyStore
from penstock.checkpoint.store.local_store import LocalStore
from penstock.checkpoint.store.object_store import (
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    StoreFailure,
    scheme_of,
)
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy, Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

QUICK = RetryPolicy(retry_for=0.05, pause=0.001, max_pause=0.002)
JOB_ID = "5f1a2b3c4d5e6f708192a3b4c5d6e7f8"


class DictStore:
    """An object store in a dictionary. Its clock counts puts, so that `modified` is exact."""

    conditional_puts = True

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.time = 0.0
        self._lock = threading.Lock()

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        with self._lock:
            if if_absent and url in self.objects:
                raise ObjectExists(url, "exists already")
            self.time += 10
            self.objects[url] = (bytes(content), self.time)

    def put_file(self, local_path: str, url: str) -> None:
        self.put(url, Path(local_path).read_bytes())

    def get(self, url: str) -> bytes:
        try:
            return self.objects[url][0]
        except KeyError:
            raise ObjectMissing(url, "does not exist") from None

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        return self.get(url)[offset : offset + size]

    def get_file(self, url: str, local_path: str) -> None:
        Path(local_path).write_bytes(self.get(url))

    def head(self, url: str) -> ObjectInfo:
        content = self.get(url)
        return ObjectInfo(url, len(content), self.objects[url][1])

    def list_objects(self, prefix_url: str) -> list[ObjectInfo]:
        with self._lock:
            found = [(url, entry) for url, entry in self.objects.items() if url.startswith(prefix_url + "/")]
        return sorted((ObjectInfo(url, len(c), t) for url, (c, t) in found), key=lambda info: info.url)

    def list_folders(self, url: str) -> list[str]:
        with self._lock:
            rests = [name[len(url) + 1 :] for name in self.objects if name.startswith(url + "/")]
        return sorted({rest.split("/")[0] for rest in rests if "/" in rest})

    def delete(self, url: str) -> None:
        with self._lock:
            self.objects.pop(url, None)

    def delete_many(self, urls: Sequence[str]) -> dict[str, StoreFailure]:
        for url in urls:
            self.delete(url)
        return {}

    def copy(self, source_url: str, target_url: str) -> None:
        self.put(target_url, self.get(source_url))


class ManualExecutor(Executor):
    """An executor that runs submitted calls when the test requests it, in this thread."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_one(self) -> None:
        future, work = self.waiting.pop(0)
        future.set_result(work())

    def run_all(self) -> None:
        while self.waiting:
            self.run_one()


class InlineExecutor(Executor):
    """An executor that runs a call immediately in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def stores_with(store: ObjectStore, scheme: str, policy: RetryPolicy = QUICK) -> Stores:
    stores = Stores(policy=policy)
    stores.use(scheme, RetryingStore(store, policy, sleep=lambda _: None))
    return stores


def faulty_storage(root: Path | str, job_id: str = JOB_ID) -> tuple[CheckpointStorage, FaultyStore]:
    """Return storage on a local folder, or in a dictionary for `dict://…`, behind a store that can inject faults."""
    url = str(root)
    inner: ObjectStore = DictStore() if url.startswith("dict://") else LocalStore(fsync=False)
    faulty = FaultyStore(inner)
    scheme = scheme_of(url) or "file"
    storage = CheckpointStorage(url, job_id, policy=QUICK, stores=stores_with(faulty, scheme))
    return storage, faulty


@contextmanager
def delayed_put(faulty: FaultyStore, match: str, act: Callable[[], object]) -> Iterator[list[object]]:
    """Run `act` in a thread up to its put of `match`, then the block, then the put and the rest of `act`.

    Yield a list that contains the result or the exception of `act` afterwards.
    """
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(act())
        except Exception as error:
            outcome.append(error)

    with faulty.blocked("put", match=match) as put:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        put.wait_until_reached()
        yield outcome
        put.release()
        thread.join(60)


def handle(
    storage: CheckpointStorage | None, groups: tuple[int, int], *contents: bytes, reuse: Iterable[Any] = ()
) -> dict[str, Any]:
    """Write the files of a keyed state handle and return the handle."""
    files = [*reuse]
    uploaded = 0
    if storage is not None:
        for content in contents:
            ref = storage.writer().write(content)
            files.append({"path": ref.path, "size": ref.size, "checksum": ref.checksum})
            uploaded += ref.size
    return {
        "backend": "hashmap",
        "format": 1,
        "key_groups": list(groups),
        "files": files,
        "states": {"count": {"kind": "value", "schema": "int"}},
        "bytes_uploaded": uploaded,
    }


def manifest(
    checkpoint_id: int = 1,
    *,
    epoch: int = 1,
    keyed: list[dict[str, Any]] | None = None,
    commits: dict[str, list[Any]] | None = None,
    job_id: str = JOB_ID,
    operators: list[OperatorInfo] | None = None,
    **changes: Any,
) -> Manifest:
    keyed = keyed or []
    fields: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "kind": "checkpoint",
        "job_id": job_id,
        "job_name": "airports",
        "checkpoint_id": checkpoint_id,
        "leader_epoch": epoch,
        "trigger_timestamp": 1_000 * checkpoint_id,
        "complete_timestamp": 1_000 * checkpoint_id + 100,
        "parallelism": max(1, len(keyed)),
        "max_parallelism": 128,
        "graph_fingerprint": "f00d",
        "operators": operators or [OperatorInfo("count", "Count", max(1, len(keyed)), 128)],
        "sources": {"readings": SourceState([SplitPosition("a.csv", {"path": "a.csv"}, 17)])},
        "states": {"count": OperatorState(keyed=keyed)},
        "commits": commits or {},
        "state_bytes": sum(file["size"] for entry in keyed for file in entry["files"]),
    }
    return Manifest(**(fields | changes))


def job(parallelism: int = 1, uids: tuple[str, ...] = ("count",)) -> JobDescription:
    return JobDescription(
        JOB_ID, "airports", parallelism, 128, "f00d", [OperatorInfo(uid, uid.title(), parallelism, 128) for uid in uids]
    )


def ack(request: SnapshotRequest | int, uid: str = "count", subtask: int = 0, **fields: Any) -> SubtaskAck:
    id = request if isinstance(request, int) else request.checkpoint_id
    return SubtaskAck(id, uid, subtask, **fields)


SOURCES = {"readings": SourceState([SplitPosition("a.csv", {"path": "a.csv"}, 17)])}
