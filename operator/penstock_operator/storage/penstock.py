"""Checkpoint storage, read and changed by the engine's own code (`penstock.checkpoint`).

This is the only module that imports the engine's code, and it does so when storage is first used: an operator that
cannot read a storage must still be able to say so. Calls block for as long as an object store takes; they run in a
bounded pool of threads, never in the event loop.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock_operator.api.own_identity import OwnIdentity
from penstock_operator.errors import StorageError, StorageMissing
from penstock_operator.fence import no_fence
from penstock_operator.resources.names import UID_SHOWN
from penstock_operator.storage.concurrency import few_at_a_time
from penstock_operator.storage.snapshots import Left, StoredSnapshot, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.fence import Fence
    from penstock_operator.storage.protocol import Storage

T = TypeVar("T")

THREADS = 8
CALL_TIMEOUT = 45.0
"""Seconds after which a call is given up; its thread ends by itself when the driver's own timeouts strike."""
OPEN = 8
"""Storages that are kept open: an S3 client takes 12 MB, and 0.2 s of CPU time to open."""
IDLE = 600.0
"""Seconds after which one that was not asked for is given up: of keys that have changed, say."""
RETRY_FOR = 10.0
"""Seconds for which the driver retries by itself."""


def driver_options(spec: FlinkJobSpec, secret: Mapping[str, str]) -> dict[str, Any]:
    """Options of the storage driver: endpoint and region from the configuration, keys from the Secret."""
    options: dict[str, Any] = {}
    endpoint = spec.configuration.get("s3.endpoint") or secret.get("AWS_ENDPOINT_URL")
    if endpoint:
        options["endpoint_url"] = str(endpoint)
    if "AWS_ACCESS_KEY_ID" in secret:
        options |= {"key": secret["AWS_ACCESS_KEY_ID"], "secret": secret.get("AWS_SECRET_ACCESS_KEY", "")}
    if "AWS_SESSION_TOKEN" in secret:
        options["token"] = secret["AWS_SESSION_TOKEN"]
    region = spec.configuration.get("s3.endpoint.region") or secret.get("AWS_REGION")
    if region:
        options["client_kwargs"] = {"region_name": str(region)}
    return options


class PenstockStorages:
    """Opens storages that share one pool of threads: one client per set of options, the last few that were asked for.

    One that is given up goes on for whoever has it, and is closed when nobody does: no more than threads can.
    """

    def __init__(
        self,
        threads: int = THREADS,
        fence: Fence = no_fence,
        own_identity: OwnIdentity | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fence, self._own_identity = fence, own_identity or OwnIdentity()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="storage")
        self._clock = clock
        self._open: dict[str, tuple[PenstockStorage, float]] = {}
        """The one that was asked for last at the end, each with when that was."""

    def __call__(self, spec: FlinkJobSpec, secret: Mapping[str, str]) -> Storage:
        """See `storage.protocol.StorageFactory`."""
        options = driver_options(spec, secret)
        key = repr(sorted(options.items(), key=str))
        storage, _ = self._open.pop(key, (None, 0.0))
        now = self._clock()
        if storage is None:
            storage = PenstockStorage(options, self._pool, self._fence, self._own_identity)
        self._open[key] = storage, now
        for spare, (_, asked) in list(self._open.items()):
            if len(self._open) > OPEN or now - asked > IDLE:
                del self._open[spare]
        return storage

    @property
    def open(self) -> int:
        """How many are kept."""
        return len(self._open)

    def close(self) -> None:
        """Give the threads up."""
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass
class PenstockStorage:
    """Reads manifests by the engine's own code, so that both always agree on what is complete."""

    options: Mapping[str, Any]
    pool: ThreadPoolExecutor
    guard: Fence = no_fence
    limits: OwnIdentity | None = None
    """What may be reached with the operator's own identity, or lies on its own file system; None: everything."""
    _stores: Any = None

    async def newest_complete(self, root: str, job_id: str) -> StoredSnapshot | None:
        """See `Storage`."""
        return await self._run(root, lambda: self._newest(root, job_id))

    async def verify(self, path: str) -> Verdict:
        """See `Storage`."""
        return await self._run(path, lambda: self._verify(path))

    async def savepoints(self, directory: str) -> list[StoredSnapshot]:
        """See `Storage`."""
        return await self._run(directory, lambda: self._savepoints(directory))

    async def left_by(self, root: str, prefix: str, savepoints: str, folder: str) -> Left:
        """See `Storage`. A name may have been used hundreds of times: each incarnation has the time of a call to itself."""
        owners = await self._run(root, lambda: self._owners(savepoints, folder))
        found = await few_at_a_time(partial(self._run, root, partial(self._savepoints_of, owner)) for owner in owners)
        made = [snapshot for of_owner in found for snapshot in of_owner]
        makers = {snapshot.job_id for snapshot in made}
        folders = await self._run(root, lambda: self._shared().for_url(root).list_folders(root))
        ids = tuple(name for name in folders if name.startswith(prefix) or name in makers)
        newest = await few_at_a_time(partial(self._run, root, partial(self._newest, root, job_id)) for job_id in ids)
        return Left(ids, (*(last for last in newest if last is not None), *made))

    async def fence(self, root: str, job_id: str) -> None:
        """See `Storage`."""
        await self._run(root, lambda: self._change(lambda: self._fence(root, job_id)))

    async def release(self, root: str, job_id: str, path: str) -> None:
        """See `Storage`."""
        await self._run(root, lambda: self._change(lambda: self._release(root, job_id, path)))

    async def dispose(self, path: str) -> None:
        """See `Storage`."""
        await self._run(path, lambda: self._change(lambda: self._dispose(path)))

    async def dispose_job(self, root: str, job_id: str) -> None:
        """See `Storage`."""
        await self._run(root, lambda: self._dispose_job(root, job_id))

    async def _run(self, location: str, call: Callable[[], T]) -> T:
        is_local = location.startswith("file://")
        if self.limits is not None and (is_local or "key" not in self.options):
            self.limits.check(location, None if is_local else self.options.get("endpoint_url"))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                return await loop.run_in_executor(self.pool, _translated, call)
        except TimeoutError as error:
            msg = f"checkpoint storage did not answer within {CALL_TIMEOUT:.0f} s"
            raise StorageError(msg) from error

    def _change(self, change: Callable[[], T]) -> T:
        """Asked in the thread: it may have waited for one."""
        self.guard()
        return change()

    def _shared(self) -> Any:
        if self._stores is None:
            from penstock.checkpoint.store.retrying_store import RetryPolicy, Stores

            self._stores = Stores(self.options, RetryPolicy(retry_for=RETRY_FOR))
        return self._stores

    def _newest(self, root: str, job_id: str) -> StoredSnapshot | None:
        from penstock.checkpoint.savepoint.snapshots import newest_complete

        found = newest_complete(root, job_id, stores=self._shared())
        torn = [info for info in found.skipped if not info.problem.startswith("void")]
        older = found.snapshot
        if torn:
            what = f"{torn[0].url}: {torn[0].problem}"
            known = torn[0].complete_timestamp or (older.manifest.complete_timestamp if older else 0)
            return StoredSnapshot(
                torn[0].url,
                torn[0].checkpoint_id,
                job_id,
                _moment(known),
                torn=what,
                older=older.url if older else None,
            )
        if older is None:
            return None
        manifest = older.manifest
        return StoredSnapshot(older.url, manifest.checkpoint_id, manifest.job_id, _moment(manifest.complete_timestamp))

    def _verify(self, path: str) -> Verdict:
        from penstock.checkpoint.savepoint.snapshots import verify
        from penstock.common import errors

        definite = (
            errors.SnapshotNotFound,
            errors.SnapshotTorn,
            errors.CorruptStateFile,
            errors.StateFormatUnsupported,
            errors.RestoreRefused,
        )
        try:
            report = verify(path, stores=self._shared())
        except definite as error:
            return Verdict(path, ok=False, reason=f"{error.message}{'; ' + error.remedy if error.remedy else ''}")
        manifest = report.snapshot.manifest
        time = _moment(manifest.complete_timestamp)
        problems = "; ".join(report.problems()[:5])
        return Verdict(path, report.is_complete, problems, manifest.checkpoint_id, time)

    def _savepoints(self, directory: str) -> list[StoredSnapshot]:
        from penstock.checkpoint.savepoint.snapshots import list_savepoints

        found = list_savepoints(directory, stores=self._shared())
        return [
            StoredSnapshot(info.url, info.checkpoint_id, info.job_id, _moment(info.complete_timestamp))
            for info in found
            if info.is_usable
        ]

    def _owners(self, savepoints: str, folder: str) -> list[str]:
        """The folders of savepoints of one name: one for each FlinkJob."""
        parent, _, start = f"{savepoints}/{folder}".rpartition("/")
        found = self._shared().for_url(parent).list_folders(parent)
        return [f"{parent}/{name}" for name in found if name.startswith(start) and len(name) == len(start) + UID_SHOWN]

    def _savepoints_of(self, owner: str) -> list[StoredSnapshot]:
        """Savepoints of one FlinkJob, torn ones included; without a manifest one was never complete."""
        from penstock.checkpoint.savepoint.snapshots import list_savepoints

        found = []
        for attempt in self._shared().for_url(owner).list_folders(owner):
            listed = list_savepoints(f"{owner}/{attempt}", stores=self._shared())
            found += [info for info in listed if not info.problem.startswith("incomplete")]
        return [
            StoredSnapshot(s.url, s.checkpoint_id, s.job_id or None, _moment(s.complete_timestamp), torn=s.problem)
            for s in found
        ]

    def _fence(self, root: str, job_id: str) -> None:
        from penstock.checkpoint.files.storage import CheckpointStorage
        from penstock.checkpoint.leadership.fencing import Leadership

        Leadership.take(CheckpointStorage(root, job_id, stores=self._shared()), "penstock-operator")

    def _release(self, root: str, job_id: str, path: str) -> None:
        from penstock.checkpoint.files.storage import CheckpointStorage
        from penstock.checkpoint.leadership.release import ReleaseRecord, release

        release(CheckpointStorage(root, job_id, stores=self._shared()), ReleaseRecord(path))

    def _dispose(self, path: str) -> None:
        from penstock.checkpoint.savepoint.savepoints import dispose
        from penstock.common.errors import SnapshotNotFound

        try:
            dispose(path, stores=self._shared())
        except SnapshotNotFound:
            return

    def _dispose_job(self, root: str, job_id: str) -> None:
        from penstock.checkpoint.files.layout import METADATA
        from penstock.checkpoint.files.storage import CheckpointStorage

        storage = CheckpointStorage(root, job_id, stores=self._shared())
        urls = [info.url for info in storage.list_objects()]
        manifests = [url for url in urls if url.endswith(METADATA)]
        for chunk in (*_chunks(manifests), *_chunks([url for url in urls if not url.endswith(METADATA)])):
            self.guard()
            for error in storage.store.delete_many(chunk).values():
                raise error


def _chunks(urls: list[str]) -> Iterator[list[str]]:
    """For one request each."""
    from penstock.checkpoint.store.object_store import DELETES_AT_ONCE

    return (urls[start : start + DELETES_AT_ONCE] for start in range(0, len(urls), DELETES_AT_ONCE))


def _translated(call: Callable[[], T]) -> T:
    """The engine's errors as ours; what is missing from the image is said as such."""
    try:
        return call()
    except ImportError as error:
        msg = (
            f"the operator cannot read checkpoint storage: {error}. Use an image with penstock and the storage's driver"
        )
        raise StorageMissing(msg) from error
    except Exception as error:
        from penstock.common.errors import PenstockError

        if isinstance(error, PenstockError):
            msg = f"{error.message}{'; ' + error.remedy if error.remedy else ''}"
            raise StorageError(msg) from error
        raise


def _moment(millis: int) -> datetime | None:
    return datetime.fromtimestamp(millis / 1000, UTC).replace(microsecond=0) if millis > 0 else None
