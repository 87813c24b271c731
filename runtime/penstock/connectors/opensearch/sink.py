"""`OpenSearchSink`: write documents for each record, under unique ids.

OpenSearchSink("https://search-1:9200", lambda mean: {"_id": mean.station, "_source": mean}, index="means", user="job", password_file="/secrets/password")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.bulk import DocumentWriter
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.opensearch.actions import Action, Request, requests_of
from penstock.connectors.opensearch.bulk import ActionBulk
from penstock.connectors.opensearch.cluster import Cluster, Connection, cluster_of


class OpenSearchSink(Sink):
    """A sink that writes documents for each record, under unique ids.

    Args:
        hosts: the URL of a node, several URLs, or a `Cluster`. Each request goes to the next node.
        action: a function from a record to its action (see `actions`), a list of actions, or None.
        index: the index of actions without `_index`.
        user, password_file, api_key_file, ca_file: see `Cluster`.
        batch_size: the number of actions after which a bulk is sent.
        batch_bytes: the size in bytes after which a bulk is sent.
        batch_time: the maximum time that actions wait before the sink sends them. The sink also sends them at every checkpoint.
        patience: how long the sink retries if a server is lost, overloaded or out of space. After this time, the job fails over.
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
                raise InvalidJob(f"{name}={value} is too small", remedy=f"set {name} to at least 1")
        who = {"user": user, "password_file": password_file, "api_key_file": api_key_file, "ca_file": ca_file}
        if not isinstance(hosts, Cluster):
            hosts = cluster_of(hosts, **who)
        elif any(who.values()):
            raise InvalidJob(
                f"{', '.join(name for name in who if who[name])} cannot be set together with a Cluster",
                remedy="pass it to the Cluster",
            )
        self.cluster = hosts
        self.action = action
        self.index = index
        self.batch_size = batch_size
        self.batch_bytes = batch_bytes
        self.batch_ms = as_millis(batch_time, "batch_time")
        self.patience_s = as_millis(patience, "patience") / 1000

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return ActionWriter(self)

    def validate(self) -> None:
        """Check before the job starts that a server is accessible and its version is supported.

        Raises:
            SinkError: no server answers or grants access, or a server runs another product or a version that is too old.
        """
        connection = Connection(self.cluster)
        try:
            connection.check()
        finally:
            connection.close()


class ActionWriter(DocumentWriter[Request]):
    """A writer of the actions of each record."""

    def __init__(self, sink: OpenSearchSink) -> None:
        bulk = ActionBulk(Connection(sink.cluster), sink.patience_s)
        super().__init__(bulk, sink.batch_ms, sink.batch_size, sink.batch_bytes)
        self._sink = sink

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        for value in values:
            for request in requests_of(value, self._sink.action, self._sink.index):
                self._hold(request)
