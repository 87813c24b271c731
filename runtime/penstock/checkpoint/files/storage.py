"""A job's folder in checkpoint storage.

`CheckpointStorage` is cheap and picklable: each process opens its own connections at the first use. Subtasks take a
`StateFileWriter` and a `StateFileReader` from it, and the JobManager uses everything else. The Kubernetes operator
imports this module, too, so the code that needs the engine's types is in `state_files`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.checkpoint.files.codec import decode_manifest
from penstock.checkpoint.files.layout import (
    checkpoint_folder,
    metadata_url,
    parse_checkpoint_folder,
)
from penstock.checkpoint.store.object_store import (
    ObjectInfo,
    ObjectMissing,
    join_url,
    normalize_url,
    relative_url,
    scheme_of,
)
from penstock.checkpoint.store.retrying_store import DEFAULT_POLICY, READ_ATTEMPTS, RetryingStore, RetryPolicy, Stores
from penstock.common.errors import SnapshotNotFound, SnapshotTorn, StorageError
from penstock.common.folders.storage_names import is_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.checkpoint.files.manifest import Manifest
    from penstock.checkpoint.files.state_files import StateFileReader, StateFileWriter

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")


class CheckpointStorage:
    """The folder `<root>/<job id>`. docs/checkpoint-protocol.md describes its content. Thread-safe.

    `options`: arguments of the storage driver (S3: `key`, `secret`, `endpoint_url`, …). Without options, the driver
    uses the environment.

    >>> storage = CheckpointStorage("memory://doc/storage", "job-1")
    >>> storage.put_if_absent("leader/1", b"me"), storage.put_if_absent("leader/1", b"you")
    (True, False)
    >>> storage.read("leader/1")
    b'me'
    """

    def __init__(
        self,
        root_url: str,
        job_id: str,
        options: Mapping[str, Any] | None = None,
        *,
        policy: RetryPolicy = DEFAULT_POLICY,
        stores: Stores | None = None,
    ) -> None:
        if not is_segment(job_id):
            raise StorageError(f"{job_id!r} cannot be a job id", remedy="use letters, digits, '-', '_' and '.'")
        self.root_url = normalize_url(root_url)
        self.job_id = job_id
        self.url = join_url(self.root_url, job_id)
        self.options = dict(options or {})
        self.policy = policy
        self.stores = stores if stores is not None else Stores(self.options, policy)

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self.root_url, self.job_id, self.options, self.policy))

    @property
    def store(self) -> RetryingStore:
        return self.stores.for_url(self.url)

    def with_policy(self, policy: RetryPolicy) -> CheckpointStorage:
        """Return the same folder with another retry policy, over the same connections."""
        stores = Stores(self.options, policy)
        stores.use(scheme_of(self.url), RetryingStore(self.store.store, policy))
        return CheckpointStorage(self.root_url, self.job_id, self.options, policy=policy, stores=stores)

    def url_of(self, path: str) -> str:
        return join_url(self.url, path)

    def put(self, path: str, content: bytes) -> None:
        self.store.put(self.url_of(path), content)

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Write an object if it is absent. Return True if the object has this caller's content, False if another writer was first.

        Raises:
            StorageError: the outcome is unknown (no answer for as long as the policy allows), or the store refused.
        """
        return self.store.put_if_absent(self.url_of(path), content)

    def read(self, path: str) -> bytes:
        """Read an object.

        Raises:
            ObjectMissing: the object does not exist.
        """
        return self.store.get(self.url_of(path))

    def list_objects(self, path: str = "") -> list[ObjectInfo]:
        """Return all objects under a folder of the job, with full URLs."""
        return self.store.list_objects(self.url_of(path) if path else self.url)

    def list_names(self, folder: str) -> list[str]:
        """Return the paths of the objects under a folder, relative to the folder."""
        url = self.url_of(folder)
        return [relative_url(info.url, url) for info in self.store.list_objects(url)]

    def delete(self, path: str) -> None:
        self.store.delete(self.url_of(path))

    def delete_many(self, paths: Iterable[str]) -> dict[str, StorageError]:
        """Delete objects. Return those that may still exist, each with its error."""
        by_url = {self.url_of(path): path for path in paths}
        return {by_url[url]: error for url, error in self.store.delete_many(by_url).items()}

    def copy(self, path: str, target_url: str) -> None:
        """Copy an object of this job to another place. The server copies if both places are in the same kind of store."""
        self.store.copy(self.url_of(path), target_url, self.stores.for_url(target_url))

    def checkpoint_ids(self) -> list[int]:
        """Return the numbers of all `chk-<n>` folders, ascending. `lineage` decides whether they count."""
        ids = (parse_checkpoint_folder(name) for name in self.store.list_folders(self.url))
        return sorted(id for id in ids if id is not None)

    def read_manifest(self, checkpoint_id: int) -> Manifest:
        """Read the manifest of a checkpoint.

        Raises:
            SnapshotNotFound: the checkpoint does not exist.
            SnapshotTorn, StateFormatUnsupported: see `codec.decode_manifest`.
        """
        url = metadata_url(self.url_of(checkpoint_folder(checkpoint_id)))
        try:
            return read_manifest(self.store, url)
        except ObjectMissing as missing:
            raise SnapshotNotFound(
                f"checkpoint {checkpoint_id} of job {self.job_id} has no manifest at {url}",
                remedy="`penstock checkpoints` lists the existing checkpoints",
            ) from missing

    def writer(self) -> StateFileWriter:
        from penstock.checkpoint.files.state_files import StateFileWriter

        return StateFileWriter(self.store, self.url)

    def reader(self, base_url: str | None = None) -> StateFileReader:
        """Return a reader of a snapshot's files. `base_url`: the folder to which their paths are relative; None means
        this job's folder.
        """
        from penstock.checkpoint.files.state_files import StateFileReader

        return StateFileReader(self.stores, normalize_url(base_url) if base_url else self.url)


def _reopen(root_url: str, job_id: str, options: dict[str, Any], policy: RetryPolicy) -> CheckpointStorage:
    return CheckpointStorage(root_url, job_id, options, policy=policy)


def read_manifest(store: RetryingStore, url: str) -> Manifest:
    """Read and decode a manifest.

    Raises:
        ObjectMissing, SnapshotTorn, StateFormatUnsupported.
    """
    return _read_complete(store, url, decode_manifest)


def read_record(storage: CheckpointStorage, path: str, type: type[R], remedy: str) -> R:
    """Read and decode a small JSON record of a job's folder.

    Raises:
        ObjectMissing: the record does not exist.
        SnapshotTorn: the record cannot be decoded. The error has `remedy`.
    """

    def decode(content: bytes, url: str) -> R:
        try:
            return msgspec.json.decode(content, type=type)
        except msgspec.MsgspecError as error:
            raise SnapshotTorn(
                f"{url} is not a readable record ({len(content)} bytes): {error}", remedy=remedy
            ) from error

    return _read_complete(storage.store, storage.url_of(path), decode)


def _read_complete(store: RetryingStore, url: str, decode: Callable[[bytes, str], T]) -> T:
    """Read and decode an object. If that fails, read the object again, because only the answer may have been cut off."""
    for _ in range(READ_ATTEMPTS - 1):
        try:
            return decode(store.get(url), url)
        except SnapshotTorn:
            continue
    return decode(store.get(url), url)
