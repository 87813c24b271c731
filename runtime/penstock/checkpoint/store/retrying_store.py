"""Retries, unknown outcomes, and errors for people, on top of stores that make one attempt.

A transient failure is retried with growing pauses until `RetryPolicy.retry_for` seconds have passed since the start of
the operation. If a store is unavailable for half a minute, a checkpoint takes half a minute longer. If it remains
unavailable, the result is a clear error and never a hang.

The conditional put needs care. After an attempt without an answer, the object may exist because of that attempt. The
answer *exists* does not prove that another writer was first, so the object is read and compared
(docs/checkpoint-protocol.md, 3.3). The content must have a part that no other writer can have.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.checkpoint.store.fsspec_store import download_and_upload
from penstock.checkpoint.store.object_store import (
    MAX_DELETES,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    Refused,
    StoreFailure,
    TransientFailure,
    scheme_of,
)
from penstock.checkpoint.store.schemes import open_store
from penstock.common.errors import StorageError, StorageRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
READ_ATTEMPTS = 3
"""Number of reads before content counts as damaged. The answer may only have been cut off."""
_READS = frozenset({"read", "look at", "copy"})


@dataclass(frozen=True)
class RetryPolicy:
    """The policy in seconds. The pause before attempt n is random between half and all of min(pause · 2^n, max_pause)."""

    retry_for: float = 60.0
    pause: float = 0.1
    max_pause: float = 5.0

    def pause_before(self, attempt: int, jitter: float) -> float:
        """Return the pause before an attempt in seconds. Jitter is 0 to 1.

        >>> RetryPolicy().pause_before(3, 1.0)
        0.8
        """
        longest = min(self.pause * 2.0 ** min(attempt, 30), self.max_pause)
        return longest * (0.5 + 0.5 * jitter)


DEFAULT_POLICY = RetryPolicy()


class RetryingStore:
    """The store that the rest of the package uses. Thread-safe. It raises `StorageError`s, except for `ObjectMissing`."""

    def __init__(
        self,
        store: ObjectStore,
        policy: RetryPolicy = DEFAULT_POLICY,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.policy = policy
        self._sleep = sleep
        self._clock = clock

    @property
    def conditional_puts(self) -> bool:
        return self.store.conditional_puts

    def put(self, url: str, content: bytes) -> None:
        self._retry("put", url, lambda: self.store.put(url, content))

    def put_if_absent(self, url: str, content: bytes) -> bool:
        """Put an object if it is absent. Return True if it has this content from this caller, False if another writer was first.

        Raises:
            StorageRefused: nothing was put.
            StorageError: the store did not respond. An attempt may have put the object, or still may
                (`outcome_unknown`).
        """
        try:
            self._retry("put", url, lambda: self.store.put(url, content, if_absent=True))
            return True
        except ObjectExists:
            try:
                return any(self.get(url) == content for _ in range(READ_ATTEMPTS))
            except ObjectMissing:  # the object was deleted in between, so another process owns the name
                return False
            except StorageError as error:
                error.outcome_unknown = True
                raise

    def put_file(self, local_path: str, url: str) -> None:
        self._retry("upload", url, lambda: self.store.put_file(local_path, url))

    def get(self, url: str) -> bytes:
        """Read an object.

        Raises:
            ObjectMissing: the object does not exist.
        """
        return self._retry("read", url, lambda: self.store.get(url))

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        """Return a part of an object. It is shorter, or empty, if the object ends before.

        Raises:
            ObjectMissing: the object does not exist.
        """
        return self._retry("read", url, lambda: self.store.get_range(url, offset, size))

    def get_file(self, url: str, local_path: str) -> None:
        self._retry("read", url, lambda: self.store.get_file(url, local_path))

    def head(self, url: str) -> ObjectInfo:
        return self._retry("look at", url, lambda: self.store.head(url))

    def list_objects(self, prefix_url: str) -> list[ObjectInfo]:
        return self._retry("list", prefix_url, lambda: self.store.list_objects(prefix_url))

    def list_folders(self, url: str) -> list[str]:
        return self._retry("list", url, lambda: self.store.list_folders(url))

    def delete(self, url: str) -> None:
        self._retry("delete", url, lambda: self.store.delete(url))

    def delete_many(self, urls: Iterable[str]) -> dict[str, StorageError]:
        """Delete objects, many in one request if the store has such a request. Return those that may still exist, each with its error."""
        remaining, failed = [*urls], dict[str, StorageError]()
        for start in range(0, len(remaining), MAX_DELETES):
            failed |= self._delete_chunk(remaining[start : start + MAX_DELETES])
        return failed

    def _delete_chunk(self, remaining: list[str]) -> dict[str, StorageError]:
        refused: dict[str, StorageError] = {}

        def delete() -> None:
            failures = self.store.delete_many(remaining)
            transient = {url: failure for url, failure in failures.items() if isinstance(failure, TransientFailure)}
            for url in failures.keys() - transient.keys():
                refused[url] = _refused("delete", url, failures[url], unknown=False)
            remaining[:] = transient
            if remaining:
                raise transient[remaining[0]]

        try:
            self._retry("delete", remaining[0], delete)
        except StorageError as error:
            refused |= dict.fromkeys(remaining, error)
        return refused

    def copy(self, source_url: str, target_url: str, target: RetryingStore | None = None) -> None:
        """Copy on the server, or through this machine if the target is another kind of store."""
        if target is None or target is self:
            self._retry("copy", source_url, lambda: self.store.copy(source_url, target_url))
        else:
            download_and_upload(self.get_file, target.put_file, source_url, target_url)

    def _retry(self, verb: str, url: str, operation: Callable[[], T]) -> T:
        deadline = self._clock() + self.policy.retry_for
        attempt = 0
        while True:
            try:
                return operation()
            except ObjectExists:
                raise
            except ObjectMissing as failure:
                if verb in _READS:
                    raise
                raise _refused(verb, url, failure, unknown=attempt > 0) from failure
            except TransientFailure as failure:
                pause = self.policy.pause_before(attempt, random.random())
                attempt += 1
                if self._clock() + pause > deadline:
                    raise _unreachable(verb, url, failure, attempt, self.policy.retry_for) from failure
                self._sleep(pause)
            except StoreFailure as failure:
                raise _refused(verb, url, failure, unknown=attempt > 0 or not isinstance(failure, Refused)) from failure


class Stores:
    """One `RetryingStore` per scheme, opened at its first use. All share options and policy."""

    def __init__(self, options: Mapping[str, Any] | None = None, policy: RetryPolicy = DEFAULT_POLICY) -> None:
        self.options = dict(options or {})
        self.policy = policy
        self._by_scheme: dict[str, RetryingStore] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Reduce to options and policy, because another process opens its own connections."""
        return (Stores, (self.options, self.policy))

    def for_url(self, url: str) -> RetryingStore:
        scheme = scheme_of(url)
        found = self._by_scheme.get(scheme)
        if found is None:
            found = self._by_scheme.setdefault(scheme, RetryingStore(open_store(url, self.options), self.policy))
        return found

    def use(self, scheme: str, store: RetryingStore) -> None:
        """Serve a scheme with this store (a test double)."""
        self._by_scheme[scheme] = store


def _unreachable(verb: str, url: str, failure: StoreFailure, attempts: int, seconds: float) -> StorageError:
    error = StorageError(
        f"cannot {verb} {url}: {failure.reason} (tried {attempts} times in {seconds:g} s)",
        remedy="check that the store is up and reachable from this process (endpoint, DNS, network policy, proxy)",
    )
    error.outcome_unknown = True
    return error


def _refused(verb: str, url: str, failure: StoreFailure, *, unknown: bool) -> StorageError:
    """Return the error of a failed attempt. `unknown`: this attempt or an earlier one may have succeeded."""
    kind = StorageError if unknown else StorageRefused
    error = kind(
        f"cannot {verb} {url}: {failure.reason}",
        remedy="check the bucket or path, the credentials and their permissions (get, put, list, delete on this prefix)",
    )
    error.outcome_unknown = unknown
    return error
