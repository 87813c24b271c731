"""`OpenSearchSink`: documents for each record, under ids of their own.

OpenSearchSink("https://search-1:9200", lambda mean: {"_id": mean.station, "_source": mean}, index="means", user="job", password_file="/secrets/password")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.batching import BatchingWriter
from penstock.connectors.opensearch.actions import Action, Request, requests_of
from penstock.connectors.opensearch.bulk import Bulk
from penstock.connectors.opensearch.cluster import Cluster, Connection, cluster_of
from penstock.connectors.sink import Sink, SinkWriter, WriterContext


class OpenSearchSink(Sink):
    """
    Args:
        hosts: URL of a node, or several, which are asked in turn; or a `Cluster`.
        action: a record -> its action (see `actions`), several in a list, or None.
        index: of actions that name none.
        user, password_file, api_key_file, ca_file: see `Cluster`.
        batch_size: a bulk is sent when there are so many actions,
        batch_bytes: or so many bytes,
        batch_time: or when they have waited so long, and at every checkpoint.
        patience: how long a server may be lost, overloaded or without room until the job fails over.
    """

    def __init__(
        self,
        hosts: str | Sequence[str] | Cluster,
        action: Callable[[Any], Action | Sequence[Action] | None],
        *,
        index: str = "",
        user: str = "",
        password_file: str = "",
        api_key_file: str = "",
        ca_file: str = "",
        batch_size: int = 1_000,
        batch_bytes: int = 5 << 20,
        batch_time: TimeLike = 1_000,
        patience: TimeLike = 30_000,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("batch_bytes", batch_bytes)):
            if value < 1:
                raise InvalidJob(f"{name}={value}", remedy="1 or more")
        who = {"user": user, "password_file": password_file, "api_key_file": api_key_file, "ca_file": ca_file}
        if not isinstance(hosts, Cluster):
            hosts = cluster_of(hosts, **who)
        elif any(who.values()):
            raise InvalidJob(
                f"a Cluster and {', '.join(name for name in who if who[name])}", remedy="give it to the Cluster"
            )
        self.cluster = hosts
        self.action = action
        self.index = index
        self.batch_size = batch_size
        self.batch_bytes = batch_bytes
        self.batch_ms = as_millis(batch_time, "batch_time")
        self.patience_s = as_millis(patience, "patience") / 1000

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return BulkWriter(self)

    def validate(self) -> None:
        """
        Raises:
            SinkError: no server answers or lets us; or it is something else, or too old.
        """
        connection = Connection(self.cluster)
        try:
            connection.check()
        finally:
            connection.close()


class BulkWriter(BatchingWriter):
    """Holds one action for each document: what a later one replaces is not sent, and one that adds to another waits until that is there."""

    def __init__(self, sink: OpenSearchSink) -> None:
        super().__init__(sink.batch_ms)
        self._sink = sink
        self._connection = Connection(sink.cluster)
        self._bulk = Bulk(self._connection, sink.patience_s)
        self._held: dict[Any, Request] = {}
        self._bytes = 0

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        sink = self._sink
        for value in values:
            for request in requests_of(value, sink.action, sink.index):
                self._hold(request)
                if len(self._held) >= sink.batch_size or self._bytes >= sink.batch_bytes:
                    self.flush()

    def _hold(self, request: Request) -> None:
        key = (request.index, request.id) if request.id else object()
        before = self._held.get(key)
        if before is not None:
            if request.replaces:
                del self._held[key]
                self._bytes -= len(before.lines)
            else:
                self.flush()
        self._held[key] = request
        self._bytes += len(request.lines)

    def flush(self) -> None:
        """
        Raises:
            SinkError: the server is lost for long, or refuses an action.
        """
        if self._held:
            held, self._held, self._bytes = list(self._held.values()), {}, 0
            self._bulk.send(held)

    def close(self) -> None:
        self._connection.close()
