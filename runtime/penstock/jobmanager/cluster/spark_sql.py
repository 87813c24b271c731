"""DataFrames and epochs on one cluster: the session, and a lock that schedules them.

A task of an epoch must run on the executor with its state. If DataFrame tasks occupied all cores of the executor, Spark would send the task
to another executor after the locality wait. So epochs and DataFrames take turns: epochs share the cluster with each other (`shared`), and a
DataFrame has it exclusively (`exclusive`). An exclusive request takes precedence. Otherwise, a job with short epochs would never let the
DataFrame run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sized

    from penstock.jobmanager.cluster.spark_settings import ClusterConfig

POLL_S = 0.5
"""Interval at which a waiting caller checks whether its request is still needed, in seconds."""


class SharedLock:
    """Lock with many sharers or one owner. A waiting owner takes precedence over new sharers.

    >>> access_lock = SharedLock()
    >>> with access_lock.shared(), access_lock.shared(): pass
    >>> with access_lock.exclusive() as leave:
    ...     leave()
    ...     with access_lock.shared() as holds:
    ...         print(holds)
    True
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._sharers = 0
        self._owner: object | None = None
        self._owners_waiting = 0

    @contextmanager
    def shared(self, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[bool]:
        """Acquire the lock shared. Yield True, or False if `is_wanted` returned False before the lock was acquired."""
        with self._condition:
            while (self._owner or self._owners_waiting) and is_wanted():
                self._condition.wait(POLL_S)
            holds = not (self._owner or self._owners_waiting)
            self._sharers += holds
        try:
            yield holds
        finally:
            with self._condition:
                self._sharers -= holds
                self._condition.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[Callable[[], None]]:
        """Acquire the lock exclusively. Yield a function that releases it early from any thread, so that a stuck owner does not block
        others.
        """
        turn = object()
        with self._condition:
            self._owners_waiting += 1
            while self._owner or self._sharers:
                self._condition.wait(POLL_S)
            self._owners_waiting -= 1
            self._owner = turn
        try:
            yield lambda: self._leave(turn)
        finally:
            self._leave(turn)

    def _leave(self, turn: object) -> None:
        with self._condition:
            if self._owner is turn:
                self._owner = None
                self._condition.notify_all()


class SqlCluster(Protocol):
    """The part of a `SparkCluster` that its SparkSession needs."""

    config: ClusterConfig

    context: Any
    """The SparkContext. It exists as soon as the cluster has started."""

    def all_slots(self) -> Sized: ...


class SparkSql:
    """SparkSession of a cluster, which the first job that needs it creates. Thread-safe."""

    def __init__(self, cluster: SqlCluster) -> None:
        self._cluster = cluster
        self._session: Any = None
        self._lock = threading.Lock()
        self.access_lock = SharedLock()

    def session(self) -> Any:
        """Return the SparkSession of the cluster's context."""
        with self._lock:
            if self._session is None:
                from pyspark.sql import SparkSession

                self._session = SparkSession(self._cluster.context)
                settings = self._cluster.config.extra_conf
                for key, value in self._defaults().items():
                    if key not in settings:
                        self._session.conf.set(key, value)
            return self._session

    def _defaults(self) -> dict[str, str]:
        slots = str(max(1, len(self._cluster.all_slots())))
        return {
            "spark.sql.shuffle.partitions": slots,
            "spark.sql.leafNodeDefaultParallelism": slots,
            "spark.sql.streaming.stopTimeout": "20s",
            # List files in the driver, so that listing takes no slot while an epoch runs.
            "spark.sql.sources.parallelPartitionDiscovery.threshold": str(2**31 - 1),
        }

    @contextmanager
    def exclusive(self) -> Iterator[Callable[[], None]]:
        with self.access_lock.exclusive() as leave:
            yield leave
