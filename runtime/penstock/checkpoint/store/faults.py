"""An object store that fails on purpose: the test double for all code that uses a store.

    store = FaultyStore(LocalStore(fsync=False))
    store.inject("put", Fault.TIMEOUT_AFTER, match="_metadata")     # the put succeeded, but the answer was lost
    store.inject("put", Fault.LATE, match="chk-7")                  # the put times out; `land_late()` executes it
    with store.blocked("put", match="chk-7") as put:                # a writer that is stopped in the middle
        put.wait_until_reached(); ...; put.release()

Faults apply in the order in which they were injected, each `times` times. All parts are plain objects of this process,
without threads or clocks.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from penstock.checkpoint.store.object_store import (
    ObjectExists,
    ObjectInfo,
    ObjectStore,
    Refused,
    StoreFailure,
    TransientFailure,
    delete_one_by_one,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


class Fault(Enum):
    """The kinds of faults."""

    TIMEOUT_BEFORE = "no answer, and the request never arrived"
    TIMEOUT_AFTER = "no answer, but the request was carried out"
    LATE = "no answer, and the request is carried out when `land_late` is called"
    CONFLICT = "409 ConditionalRequestConflict"
    EXISTS = "412 PreconditionFailed"
    INTERNAL_ERROR = "500 InternalError"
    UNAVAILABLE = "503 SlowDown"
    DENIED = "403 AccessDenied"
    TRUNCATED = "the read ends in the middle, without an error"
    SLOW = "the answer comes after `FaultyStore.delay` seconds"


@dataclass
class _Rule:
    operation: str
    fault: Fault
    match: str
    remaining: int
    skip: int = 0


@dataclass
class BlockedCall:
    """A call that waits inside the store."""

    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def wait_until_reached(self, timeout: float = 10.0) -> None:
        assert self.reached.wait(timeout), "the call to block never came"

    def release(self) -> None:
        self.released.set()


class FaultyStore:
    """A wrapper of a store. The module's docstring describes it. `calls` lists (operation, url) in order."""

    def __init__(self, inner: ObjectStore, *, delay: float = 0.05) -> None:
        self.inner = inner
        self.delay = delay
        self.conditional_puts = inner.conditional_puts
        self.calls: list[tuple[str, str]] = []
        self.is_away = False
        self._rules: list[_Rule] = []
        self._holds: list[tuple[str, str, BlockedCall]] = []
        self._late: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def inject(self, operation: str, fault: Fault, *, match: str = "", times: int = 1, skip: int = 0) -> None:
        """Inject a fault into `times` calls of `operation` (`put`, `get`, …, `*`) on URLs that contain `match`. Skip
        the first `skip` such calls.
        """
        with self._lock:
            self._rules.append(_Rule(operation, fault, match, times, skip))

    def heal(self) -> None:
        """Remove all faults. Late requests remain late."""
        with self._lock:
            self._rules.clear()
            self.is_away = False

    def land_late(self) -> list[BaseException | None]:
        """Carry out the late requests. Return the error of each, or None. No other caller gets these errors."""
        with self._lock:
            late, self._late = self._late, []
        outcomes: list[BaseException | None] = []
        for request in late:
            try:
                request()
                outcomes.append(None)
            except Exception as error:
                outcomes.append(error)
        return outcomes

    @contextmanager
    def blocked(self, operation: str, *, match: str) -> Iterator[BlockedCall]:
        """Stop the next call of `operation` on a URL that contains `match` just before its execution, until it is
        released.
        """
        hold = BlockedCall()
        with self._lock:
            self._holds.append((operation, match, hold))
        try:
            yield hold
        finally:
            hold.release()

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        self._run("put", url, lambda: self.inner.put(url, content, if_absent=if_absent))

    def put_file(self, local_path: str, url: str) -> None:
        self._run("put", url, lambda: self.inner.put_file(local_path, url))

    def get(self, url: str) -> bytes:
        return self._run("get", url, lambda: self.inner.get(url), truncate=_cut)

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        return self._run("get", url, lambda: self.inner.get_range(url, offset, size), truncate=_cut)

    def get_file(self, url: str, local_path: str) -> None:
        def cut(_: None) -> None:
            with open(local_path, "r+b") as file:
                file.truncate(file.seek(0, 2) // 2)

        self._run("get", url, lambda: self.inner.get_file(url, local_path), truncate=cut)

    def head(self, url: str) -> ObjectInfo:
        return self._run("head", url, lambda: self.inner.head(url))

    def list_objects(self, prefix_url: str) -> list[ObjectInfo]:
        return self._run("list", prefix_url, lambda: self.inner.list_objects(prefix_url))

    def list_folders(self, url: str) -> list[str]:
        return self._run("list", url, lambda: self.inner.list_folders(url))

    def delete(self, url: str) -> None:
        self._run("delete", url, lambda: self.inner.delete(url))

    def delete_many(self, urls: Sequence[str]) -> dict[str, StoreFailure]:
        """Delete objects. A fault affects a single object, as in the answer to S3's DeleteObjects."""
        return delete_one_by_one(self.delete, urls)

    def copy(self, source_url: str, target_url: str) -> None:
        self._run("copy", source_url, lambda: self.inner.copy(source_url, target_url))

    def _run(self, operation: str, url: str, request: Callable[[], T], truncate: Callable[[T], T] | None = None) -> T:
        with self._lock:
            self.calls.append((operation, url))
        hold = self._take_block(operation, url)
        if hold is not None:
            hold.reached.set()
            hold.released.wait()
        if self.is_away:
            raise TransientFailure(url, "no answer (the store is away)")
        fault = self._take(operation, url)
        if fault is None:
            return request()
        if fault is Fault.SLOW:
            time.sleep(self.delay)
            return request()
        if fault is Fault.TRUNCATED:
            result = request()
            return truncate(result) if truncate else result
        if fault is Fault.TIMEOUT_AFTER:
            request()
        if fault is Fault.LATE:
            with self._lock:
                self._late.append(request)
        if fault is Fault.EXISTS:
            raise ObjectExists(url, fault.value)
        if fault is Fault.DENIED:
            raise Refused(url, fault.value)
        raise TransientFailure(url, fault.value)

    def _take(self, operation: str, url: str) -> Fault | None:
        with self._lock:
            for rule in self._rules:
                if rule.remaining and rule.operation in (operation, "*") and rule.match in url:
                    if rule.skip:
                        rule.skip -= 1
                        continue
                    rule.remaining -= 1
                    return rule.fault
        return None

    def _take_block(self, operation: str, url: str) -> BlockedCall | None:
        with self._lock:
            for entry in self._holds:
                if entry[0] == operation and entry[1] in url:
                    self._holds.remove(entry)
                    return entry[2]
        return None
