"""Retries, unknown outcomes, and errors for people, on top of one-attempt stores.

A transient failure is tried again with growing pauses until `RetryPolicy.retry_for` seconds have passed since the
operation began; so a store that is away for half a minute costs a checkpoint half a minute, and one that stays away costs a
clear error, never a hang.

The delicate one is the conditional put. After an attempt without an answer the object may be there because of that very
attempt, so *exists* is no proof of having lost: the object is read and compared (docs/checkpoint-protocol.md, 3.3). Callers put
something into the content that no other writer can have.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.checkpoint.store.fsspec_store import download_and_upload
from penstock.checkpoint.store.object_store import (
    DELETES_AT_ONCE,
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
"""What seems damaged may only have been cut off on the way: it is read this often before that is believed."""
_READS = frozenset({"read", "look at", "copy"})


@dataclass(frozen=True)
class RetryPolicy:
    """Seconds. The pause before attempt n is random between half and all of min(pause · 2^n, max_pause)."""

    retry_for: float = 60.0
    pause: float = 0.1
    max_pause: float = 5.0

    def pause_before(self, attempt: int, jitter: float) -> float:
        """Jitter is 0 to 1.

        >>> RetryPolicy().pause_before(3, 1.0)
        0.8
        """
        longest = min(self.pause * 2.0 ** min(attempt, 30), self.max_pause)
        return longest * (0.5 + 0.5 * jitter)


DEFAULT_POLICY = RetryPolicy()


class RetryingStore:
    """What the rest of the package uses. Thread-safe. Raises `StorageError`s, apart from `ObjectMissing`."""

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
        """True: the object is there with this content, put by this caller. False: somebody else's is there.

        Raises:
            StorageRefused: nothing was put.
            StorageError: there was no answer; an attempt may still have put it, or may yet (`outcome_unknown`).
        """
        try:
            self._retry("put", url, lambda: self.store.put(url, content, if_absent=True))
            return True
        except ObjectExists:
            try:
                return any(self.get(url) == content for _ in range(READ_ATTEMPTS))
            except ObjectMissing:  # deleted since: whoever did so had a claim on the name
                return False
            except StorageError as error:
                error.outcome_unknown = True
                raise

    def put_file(self, local_path: str, url: str) -> None:
        self._retry("upload", url, lambda: self.store.put_file(local_path, url))

    def get(self, url: str) -> bytes:
        """
        Raises:
            ObjectMissing: no such object.
        """
        return self._retry("read", url, lambda: self.store.get(url))

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        """Shorter, or empty, where the object ends before.

        Raises:
            ObjectMissing: no such object.
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
        """Gone afterwards, but for those that are returned, each with why. Many in one request where the store has that."""
        left, failed = [*urls], dict[str, StorageError]()
        for start in range(0, len(left), DELETES_AT_ONCE):
            failed |= self._delete_chunk(left[start : start + DELETES_AT_ONCE])
        return failed

    def _delete_chunk(self, left: list[str]) -> dict[str, StorageError]:
        refused: dict[str, StorageError] = {}

        def delete() -> None:
            failures = self.store.delete_many(left)
            transient = {url: failure for url, failure in failures.items() if isinstance(failure, TransientFailure)}
            for url in failures.keys() - transient.keys():
                refused[url] = _refused("delete", url, failures[url], unknown=False)
            left[:] = transient
            if left:
                raise transient[left[0]]

        try:
            self._retry("delete", left[0], delete)
        except StorageError as error:
            refused |= dict.fromkeys(left, error)
        return refused

    def copy(self, source_url: str, target_url: str, target: RetryingStore | None = None) -> None:
        """On the server, or through this machine when the target is another kind of store."""
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
    """One `RetryingStore` per scheme, opened when it is first needed; all share options and policy."""

    def __init__(self, options: Mapping[str, Any] | None = None, policy: RetryPolicy = DEFAULT_POLICY) -> None:
        self.options = dict(options or {})
        self.policy = policy
        self._by_scheme: dict[str, RetryingStore] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Another process opens connections of its own."""
        return (Stores, (self.options, self.policy))

    def for_url(self, url: str) -> RetryingStore:
        scheme = scheme_of(url)
        found = self._by_scheme.get(scheme)
        if found is None:
            found = self._by_scheme.setdefault(scheme, RetryingStore(open_store(url, self.options), self.policy))
        return found

    def use(self, scheme: str, store: RetryingStore) -> None:
        """Serve a scheme with this store (a test's double)."""
        self._by_scheme[scheme] = store


def _unreachable(verb: str, url: str, failure: StoreFailure, attempts: int, seconds: float) -> StorageError:
    error = StorageError(
        f"cannot {verb} {url}: {failure.reason} (tried {attempts} times in {seconds:g} s)",
        remedy="check that the store is up and reachable from this process (endpoint, DNS, network policy, proxy)",
    )
    error.outcome_unknown = True
    return error


def _refused(verb: str, url: str, failure: StoreFailure, *, unknown: bool) -> StorageError:
    """`unknown`: an earlier attempt, or this one, may have been carried out for all that."""
    kind = StorageError if unknown else StorageRefused
    error = kind(
        f"cannot {verb} {url}: {failure.reason}",
        remedy="check the bucket or path, the credentials and their permissions (get, put, list, delete on this prefix)",
    )
    error.outcome_unknown = unknown
    return error
