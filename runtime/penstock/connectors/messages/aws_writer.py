"""Writers for services whose requests have many entries. Such a service accepts or rejects each entry."""

from __future__ import annotations

from abc import abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.common.errors import SinkError
from penstock.connectors.core.batching import BatchingWriter

if TYPE_CHECKING:
    from penstock.connectors.core.aws import AwsTarget

Entry = dict[str, Any]


class AwsWriter(BatchingWriter):
    """A writer that collects entries and sends requests from several threads.

    Args:
        batch_ms: the longest time in ms that an entry waits.
        most: maximum number of entries of a request.
        most_bytes: maximum bytes of the entries of a request. A larger entry is sent alone.
        threads: the number of threads. A single thread keeps the order of entries.
        most_requests: maximum number of requests that are sent or wait for a thread.
    """

    def __init__(
        self, target: AwsTarget, batch_ms: int, *, most: int, most_bytes: int, threads: int, most_requests: int
    ) -> None:
        super().__init__(batch_ms)
        self._target = target
        self._most, self._most_bytes, self._most_requests = most, most_bytes, most_requests
        self._client = target.client(SinkError, threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=target.service)
        self._buffered: list[Entry] = []
        self._bytes = 0
        self._requests: list[Future[None]] = []
        self._is_closed = False

    @abstractmethod
    def _request(self, entries: list[Entry]) -> tuple[list[Entry], str]:
        """Send a request once. Return the rejected entries, which are sent again, and the reason for the first
        rejection.

        Raises:
            SinkError: the service rejects an entry, and a retry cannot help.
        """

    @property
    def holds(self) -> bool:
        return bool(self._buffered or self._requests)

    def _add(self, entry: Entry, size: int) -> None:
        if len(self._buffered) == self._most or (self._buffered and self._bytes + size > self._most_bytes):
            self._start_request()
        self._buffered.append(entry)
        self._bytes += size

    def _start_request(self) -> None:
        entries, self._buffered, self._bytes = self._buffered, [], 0
        while len(self._requests) >= self._most_requests:
            self._requests.pop(0).result()
        self._requests.append(self._pool.submit(self._send_now, entries))

    def _send_now(self, entries: list[Entry]) -> None:
        """Send the entries. Send rejected entries again."""
        rejected = entries

        def send() -> None:
            nonlocal rejected
            rejected, reason = self._request(rejected)
            if rejected:  # the service has accepted the other entries
                raise OSError(f"{len(rejected)} of {len(entries)} rejected: {reason}")

        self._target.retry(SinkError, "does not accept records", send, lambda: self._is_closed)

    def flush(self) -> None:
        if self._buffered:
            self._start_request()
        requests, self._requests = self._requests, []
        for request in requests:
            request.result()

    def finish(self) -> None:
        self.flush()

    def close(self) -> None:
        self._is_closed = True
        self._pool.shutdown(cancel_futures=True)
