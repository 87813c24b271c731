"""Threads for calls to storage, with a separate pool for each endpoint. An endpoint that hangs only delays the jobs
that use it.

A call of a driver blocks its thread until the timeouts of the driver expire. Suppose that all endpoints shared one
pool, and an endpoint of one tenant accepted connections but never responded. The calls to this endpoint would then
block all threads. A limit also applies to the number of endpoints that one tenant (a namespace) waits for at the same
time. The other endpoints remain free for other tenants.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from penstock_operator.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

T = TypeVar("T")

THREADS = 8
"""Number of threads for one endpoint."""
MOST_ENDPOINTS = 32
"""Maximum number of endpoints with unfinished calls. Idle endpoints do not count."""

MOST_OF_A_TENANT = 4
"""Maximum number of endpoints at which one tenant has unfinished calls."""


class Bulkheads:
    """One pool of threads for each recently used endpoint."""

    def __init__(
        self, threads: int = THREADS, most: int = MOST_ENDPOINTS, most_of_a_tenant: int = MOST_OF_A_TENANT
    ) -> None:
        self._threads, self._most, self._most_of_a_tenant = threads, most, most_of_a_tenant
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        """Pools by endpoint. The most recently used pool is last."""
        self._calls: Counter[tuple[str, str]] = Counter()
        """Number of unfinished calls for each tenant and endpoint. It includes calls whose caller has stopped waiting."""

    def submit(self, endpoint: str, call: Callable[[], T], tenant: str = "") -> Future[T]:
        """Run a call of a tenant in a thread of its endpoint.

        Raises:
            StorageError: too many other endpoints do not respond. The limits apply to this tenant and to all tenants.
        """
        with self._lock:
            self._check(tenant, endpoint)
            pool = self._pool(endpoint)
            future = pool.submit(call)
            self._calls[tenant, endpoint] += 1
        future.add_done_callback(lambda _: self._over(tenant, endpoint))
        return future

    @property
    def endpoints(self) -> int:
        """Number of endpoints that have a pool."""
        return len(self._pools)

    def close(self) -> None:
        """Shut down all pools without waiting for their threads."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _check(self, tenant: str, endpoint: str) -> None:
        others = {called for of, called in self._calls if of == tenant and called != endpoint}
        if len(others) >= self._most_of_a_tenant:
            msg = (
                f"{len(others)} other storage endpoints of namespace {tenant} have not responded yet. The operator tries again. "
                "Correct s3.endpoint of the FlinkJobs in that namespace"
            )
            raise StorageError(msg)

    def _pool(self, endpoint: str) -> ThreadPoolExecutor:
        pool = self._pools.pop(endpoint, None)
        if pool is None:
            if len(self._pools) >= self._most:
                self._give_up_an_idle_one()
            pool = ThreadPoolExecutor(self._threads, thread_name_prefix="storage")
        self._pools[endpoint] = pool
        return pool

    def _give_up_an_idle_one(self) -> None:
        busy = {endpoint for _, endpoint in self._calls}
        idle = next((endpoint for endpoint in self._pools if endpoint not in busy), None)
        if idle is None:
            msg = (
                f"{self._most} other storage endpoints have not responded yet. The operator tries again. Limit the endpoints "
                "of FlinkJobs with storage.endpoints of the operator's chart"
            )
            raise StorageError(msg)
        self._pools.pop(idle).shutdown(wait=False)

    def _over(self, tenant: str, endpoint: str) -> None:
        with self._lock:
            self._calls[tenant, endpoint] -= 1
            if not self._calls[tenant, endpoint]:
                del self._calls[tenant, endpoint]
