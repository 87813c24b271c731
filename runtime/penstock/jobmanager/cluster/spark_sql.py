"""DataFrames beside epochs on one cluster: the session, and whose turn it is.

An epoch's task must run where its state is. If tasks of a DataFrame had taken all of its executor's cores, it would be
sent elsewhere after the locality wait. So they take turns: epochs share the cluster with each other (`shared`), a DataFrame
has it alone (`exclusive`). Whoever waits for it alone goes first, or a job of short epochs would never let it in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.jobmanager.cluster.spark_cluster import SparkCluster

POLL_S = 0.5
"""How often one who waits looks whether it is still wanted."""


class Turns:
    """A lock with many sharers or one owner; owners that wait go before new sharers.

    >>> turns = Turns()
    >>> with turns.shared(), turns.shared(): pass
    >>> with turns.exclusive() as leave:
    ...     leave()
    ...     with turns.shared() as holds:
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
        """Gives True when it holds; False when `is_wanted` said no before its turn came."""
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
        """Gives what ends it before its block does, from any thread: one who does not come back must not keep all others out."""
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


class SparkSql:
    """One per cluster; made when the first job needs it. Thread-safe."""

    def __init__(self, cluster: SparkCluster) -> None:
        self._cluster = cluster
        self._session: Any = None
        self._lock = threading.Lock()
        self.turns = Turns()

    def session(self) -> Any:
        """The SparkSession over the cluster's context."""
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
            # Listing files is the driver's work: it must not take a slot while an epoch runs.
            "spark.sql.sources.parallelPartitionDiscovery.threshold": str(2**31 - 1),
        }

    @contextmanager
    def exclusive(self) -> Iterator[Callable[[], None]]:
        with self.turns.exclusive() as leave:
            yield leave
