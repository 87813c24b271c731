"""Implementation of checkpoint storage with the engine's own code (`penstock.checkpoint`).

Only this module imports that code, and only when storage is first used. So an operator that lacks this code or a driver
can still report the problem. A call blocks as long as the object store takes. Calls run in limited pools of threads,
one pool for each endpoint (`bulkheads`), and never in the event loop.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock_operator.api.limits.endpoints import AllowedEndpoints
from penstock_operator.api.limits.own_identity import OwnIdentity
from penstock_operator.errors import StorageError, StorageMissing
from penstock_operator.fence import no_fence
from penstock_operator.resources.names import UID_SHOWN
from penstock_operator.storage.bulkheads import THREADS, Bulkheads
from penstock_operator.storage.concurrency import few_at_a_time
from penstock_operator.storage.snapshots import Beginning, Left, StoredSnapshot, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.fence import Fence
    from penstock_operator.storage.protocol import Storage

T = TypeVar("T")

CALL_TIMEOUT = 45.0
"""Timeout of a call in seconds, including the wait for a thread. The thread itself ends when the timeouts of the
driver expire.
"""
MAX_READ_BYTES = 32 << 20
"""Maximum number of bytes that are read from one object. The operator reads manifests, but never state."""
OPEN = 8
"""Maximum number of open storages. An S3 client needs 12 MB, and 0.2 s of CPU time to open."""
IDLE = 600.0
"""Seconds without use after which a storage is dropped. For example, a storage has no more use after its keys have
changed.
"""
_RESULT = "result"
"""Name of the record that a job writes when it ends (`docs/checkpoint-protocol.md`)."""
RETRY_FOR = 10.0
"""Seconds for which the driver retries a request."""


def driver_options(spec: FlinkJobSpec, secret: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of the storage driver: endpoint and region from the configuration, keys from the Secret."""
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
    """Factory of storages. It keeps the clients of recently used options, one client for each set of options. Storages
    with the same endpoint share threads.

    A storage that is dropped remains usable for its current users. Its client is closed when no user is left. The
    number of threads limits the number of clients of dropped storages.
    """

    def __init__(
        self,
        threads: int = THREADS,
        fence: Fence = no_fence,
        own_identity: OwnIdentity | None = None,
        clock: Callable[[], float] = time.monotonic,
        endpoints: AllowedEndpoints | None = None,
    ) -> None:
        self._fence, self._own_identity = fence, own_identity or OwnIdentity()
        self._endpoints = endpoints or AllowedEndpoints()
        self._pool = Bulkheads(threads)
        self._clock = clock
        self._open: dict[str, tuple[PenstockStorage, float]] = {}
        """Storages by options, each with the time of its last use. The most recently used storage is last."""

    def __call__(self, spec: FlinkJobSpec, secret: Mapping[str, str], tenant: str = "") -> Storage:
        """Open a storage, as `storage.protocol.StorageFactory` defines."""
        options = driver_options(spec, secret)
        self._endpoints.check(options.get("endpoint_url"))
        key = repr((tenant, sorted(options.items(), key=str)))
        storage, _ = self._open.pop(key, (None, 0.0))
        now = self._clock()
        if storage is None:
            storage = PenstockStorage(options, self._pool, self._fence, self._own_identity, tenant)
        self._open[key] = storage, now
        for spare, (_, used) in list(self._open.items()):
            if len(self._open) > OPEN or now - used > IDLE:
                del self._open[spare]
        return storage

    @property
    def open(self) -> int:
        """Number of open storages."""
        return len(self._open)

    def close(self) -> None:
        """Shut down the threads."""
        self._pool.close()


@dataclass
class PenstockStorage:
    """The storage of one job. The engine's own code reads the manifests, so the operator and the engine agree on
    which snapshots are complete.
    """

    options: Mapping[str, Any]
    pool: Bulkheads
    guard: Fence = no_fence
    limits: OwnIdentity | None = None
    """Limits for access with the operator's identity and to its local file system. None means no limits."""
    tenant: str = ""
    """Namespace of the job."""
    _stores: Any = None

    async def newest_complete(self, root: str, job_id: str) -> StoredSnapshot | None:
        """Implement `Storage.newest_complete`."""
        return await self._run(root, lambda: self._newest(root, job_id))

    async def beginning(self, root: str, job_id: str) -> Beginning:
        """Implement `Storage.beginning`."""
        return await self._run(root, lambda: self._beginning(root, job_id))

    async def verify(self, path: str) -> Verdict:
        """Implement `Storage.verify`."""
        return await self._run(path, lambda: self._verify(path))

    async def savepoints(self, directory: str) -> list[StoredSnapshot]:
        """Implement `Storage.savepoints`."""
        return await self._run(directory, lambda: self._savepoints(directory))

    async def left_by(self, root: str, prefix: str, savepoints: str, folder: str) -> Left:
        """Implement `Storage.left_by`.

        Each incarnation gets a separate call with its own timeout, because a name may have hundreds of incarnations.
        """
        owners = await self._run(root, lambda: self._owners(savepoints, folder))
        found = await few_at_a_time(partial(self._run, root, partial(self._savepoints_of, owner)) for owner in owners)
        snapshots = [snapshot for of_owner in found for snapshot in of_owner]
        makers = {snapshot.job_id for snapshot in snapshots}
        folders = await self._run(root, lambda: self._shared().for_url(root).list_folders(root))
        ids = tuple(name for name in folders if name.startswith(prefix) or name in makers)
        newest = await few_at_a_time(partial(self._run, root, partial(self._newest, root, job_id)) for job_id in ids)
        return Left(ids, (*(last for last in newest if last is not None), *snapshots))

    async def fence(self, root: str, job_id: str) -> None:
        """Implement `Storage.fence`."""
        await self._run(root, lambda: self._change(lambda: self._fence(root, job_id)))

    async def release(self, root: str, job_id: str, path: str) -> None:
        """Implement `Storage.release`."""
        await self._run(root, lambda: self._change(lambda: self._release(root, job_id, path)))

    async def dispose(self, path: str) -> None:
        """Implement `Storage.dispose`."""
        await self._run(path, lambda: self._change(lambda: self._dispose(path)))

    async def dispose_job(self, root: str, job_id: str) -> None:
        """Implement `Storage.dispose_job`."""
        await self._run(root, lambda: self._dispose_job(root, job_id))

    async def _run(self, location: str, call: Callable[[], T]) -> T:
        is_local = location.startswith("file://")
        if self.limits is not None and (is_local or "key" not in self.options):
            self.limits.check(location, None if is_local else self.options.get("endpoint_url"))
        endpoint = "file://" if is_local else str(self.options.get("endpoint_url") or location.partition("://")[0])
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                return await asyncio.wrap_future(self.pool.submit(endpoint, partial(_translated, call), self.tenant))
        except TimeoutError as error:
            msg = f"checkpoint storage did not respond within {CALL_TIMEOUT:.0f} s"
            raise StorageError(msg) from error

    def _change(self, change: Callable[[], T]) -> T:
        """Execute a change after the fence permits it. Check the fence in the thread, because the call may have
        waited for a thread.
        """
        self.guard()
        return change()

    def _shared(self) -> Any:
        if self._stores is None:
            from penstock.checkpoint.store.retrying_store import RetryPolicy, Stores

            self._stores = Stores({**self.options, "read_limit": MAX_READ_BYTES}, RetryPolicy(retry_for=RETRY_FOR))
        return self._stores

    def _newest(self, root: str, job_id: str) -> StoredSnapshot | None:
        from penstock.checkpoint.savepoint.snapshots import newest_complete

        found = newest_complete(root, job_id, stores=self._shared())
        torn = [info for info in found.skipped if not info.problem.startswith("void")]
        older = found.snapshot
        if torn:
            problem = f"{torn[0].url}: {torn[0].problem}"
            known = torn[0].complete_timestamp or (older.manifest.complete_timestamp if older else 0)
            return StoredSnapshot(
                torn[0].url,
                torn[0].checkpoint_id,
                job_id,
                _moment(known),
                torn=problem,
                older=older.url if older else None,
            )
        if older is None:
            return None
        manifest = older.manifest
        return StoredSnapshot(older.url, manifest.checkpoint_id, manifest.job_id, _moment(manifest.complete_timestamp))

    def _beginning(self, root: str, job_id: str) -> Beginning:
        from penstock.checkpoint.files.layout import LATEST
        from penstock.checkpoint.files.storage import CheckpointStorage
        from penstock.checkpoint.leadership.fencing import read_bases
        from penstock.checkpoint.leadership.release import read_release
        from penstock.checkpoint.store.object_store import ObjectMissing

        storage = CheckpointStorage(root, job_id, stores=self._shared())

        def exists(name: str) -> bool:
            try:
                storage.read(name)
            except ObjectMissing:
                return False
            return True

        bases, release = read_bases(storage), read_release(storage)
        newest = bases[max(bases)] if bases else None
        return Beginning(
            storage.url,
            led=newest is not None,
            # If a request has the token of the last request, the engine skips it and starts from the newest checkpoint.
            path=(newest.token or newest.path) if newest is not None and newest.path else None,
            released=release.restore if release is not None else None,
            completed=any(base.checkpoint is not None for base in bases.values()) or exists(LATEST),
            ended=exists(_RESULT),
        )

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
        """Return the folders with savepoints of FlinkJobs of this name, one folder for each FlinkJob."""
        parent, _, start = f"{savepoints}/{folder}".rpartition("/")
        found = self._shared().for_url(parent).list_folders(parent)
        return [f"{parent}/{name}" for name in found if name.startswith(start) and len(name) == len(start) + UID_SHOWN]

    def _savepoints_of(self, owner: str) -> list[StoredSnapshot]:
        """Return the savepoints of one FlinkJob, including torn savepoints. Skip savepoints without a manifest, because
        they were never complete.
        """
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
    """Split the URLs into groups for one delete request each."""
    from penstock.checkpoint.store.object_store import MAX_DELETES

    return (urls[start : start + MAX_DELETES] for start in range(0, len(urls), MAX_DELETES))


def _translated(call: Callable[[], T]) -> T:
    """Run a call and convert the engine's errors to errors of the operator. A missing package raises
    `StorageMissing`.
    """
    try:
        return call()
    except ImportError as error:
        msg = f"the operator cannot read checkpoint storage: {error}. Use an image of the operator with penstock and the driver of the storage"
        raise StorageMissing(msg) from error
    except Exception as error:
        from penstock.common.errors import PenstockError

        if isinstance(error, PenstockError):
            msg = f"{error.message}{'; ' + error.remedy if error.remedy else ''}"
            raise StorageError(msg) from error
        raise


def _moment(millis: int) -> datetime | None:
    return datetime.fromtimestamp(millis / 1000, UTC).replace(microsecond=0) if millis > 0 else None
