"""The Cassandra sink under PyFlink's class names, and `CassandraTableSink`. See `penstock.connectors.cassandra`."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self

from penstock.common.errors import InvalidJob
from penstock.connectors.cassandra.cluster import ClusterBuilder
from penstock.connectors.cassandra.committer import CassandraCommitter
from penstock.connectors.cassandra.options import ConsistencyLevel, MapperOptions
from penstock.connectors.cassandra.sink import CassandraTableSink

if TYPE_CHECKING:
    from penstock.common.time import TimeLike
    from penstock.connectors.core.write_ahead import CheckpointCommitter
    from penstock.datastream.data_stream import DataStream
    from penstock.datastream.streams.data_stream_sink import DataStreamSink


class CassandraFailureHandler:
    """Handler for failed writes. A failed write always triggers a failover of the job, and no record is dropped."""

    @staticmethod
    def no_op() -> CassandraFailureHandler:
        """Return the default handler, which fails the job as in Flink."""
        return CassandraFailureHandler()


class CassandraSink:
    """Sink of a stream, with the settings of the sink's operator. `CassandraSink.add_sink(stream)` returns a builder of the sink.

    CassandraSink.add_sink(stream).set_query("INSERT INTO weather.means (station, celsius) VALUES (?, ?)").set_host("cassandra-1").build()
    """

    def __init__(self, sink: DataStreamSink) -> None:
        self._sink = sink

    def name(self, name: str) -> Self:
        self._sink.name(name)
        return self

    def uid(self, uid: str) -> Self:
        self._sink.uid(uid)
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        self._sink.set_uid_hash(uid_hash)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        self._sink.set_parallelism(parallelism)
        return self

    def disable_chaining(self) -> Self:
        self._sink.disable_chaining()
        return self

    def slot_sharing_group(self, slot_sharing_group: Any) -> Self:
        self._sink.slot_sharing_group(slot_sharing_group)
        return self

    @staticmethod
    def add_sink(input: DataStream[Any]) -> CassandraSink.CassandraSinkBuilder:
        """Return the builder for a stream.

        Tuples and `Row`s supply the query's values by position. Dicts, named tuples and objects supply them by column name.
        """
        return CassandraSink.CassandraSinkBuilder(input)

    class CassandraSinkBuilder:
        def __init__(self, input: DataStream[Any]) -> None:
            self._stream = input
            self._query = ""
            self._cluster: ClusterBuilder | None = None
            self._options = MapperOptions()
            self._write_ahead = False
            self._committer: CheckpointCommitter | None = None
            self._keeps_null = True
            self._limits: dict[str, Any] = {}

        def set_query(self, query: str) -> Self:
            """Set the INSERT, UPDATE or DELETE statement, with `?` for each value."""
            self._query = query
            return self

        def set_host(self, host: str, port: int = 9042) -> Self:
            return self._reached(ClusterBuilder(host, port))

        def set_cluster_builder(self, builder: ClusterBuilder) -> Self:
            if not isinstance(builder, ClusterBuilder):
                raise InvalidJob(
                    f"set_cluster_builder takes a ClusterBuilder, got {builder!r}",
                    remedy="pass ClusterBuilder(hosts, port, user=…)",
                )
            return self._reached(builder)

        def _reached(self, cluster: ClusterBuilder) -> Self:
            if self._cluster is not None:
                raise InvalidJob(
                    "the cluster of the Cassandra sink is already set",
                    remedy="call set_host or set_cluster_builder once",
                )
            self._cluster = cluster
            return self

        def enable_write_ahead_log(self, committer: CheckpointCommitter | None = None) -> Self:
            """Write rows only when their checkpoint completes.

            Args:
                committer: an object that stores which rows were written. Default: a `CassandraCommitter` in the table's keyspace.
            """
            self._write_ahead, self._committer = True, committer
            return self

        def set_mapper_options(self, options: MapperOptions) -> Self:
            self._options = options
            return self

        def set_failure_handler(self, failure_handler: CassandraFailureHandler) -> Self:
            if not isinstance(failure_handler, CassandraFailureHandler):
                raise InvalidJob(
                    f"set_failure_handler({failure_handler!r})", remedy="filter records that do not fit before the sink"
                )
            return self

        def set_max_concurrent_requests(self, max_concurrent_requests: int, duration: TimeLike | None = None) -> Self:
            """Set the number of concurrent requests.

            Args:
                duration: how long the sink retries while the server accepts no writes. After this time, the job fails over.
            """
            self._limits = {"max_in_flight": max_concurrent_requests}
            if duration is not None:
                self._limits["patience"] = duration
            return self

        def enable_ignore_null_fields(self) -> Self:
            """Leave a column unchanged if its value is None."""
            self._keeps_null = False
            return self

        def build(self) -> CassandraSink:
            if not self._query:
                raise InvalidJob(
                    "a Cassandra sink needs a query",
                    remedy="call set_query('INSERT INTO …'), or use stream.sink_to(CassandraTableSink(host, table, columns))",
                )
            if self._cluster is None:
                raise InvalidJob("a Cassandra sink needs a host", remedy="call set_host or set_cluster_builder")
            sink = CassandraTableSink(
                self._cluster,
                statement=self._query,
                write_ahead=self._write_ahead,
                committer=self._committer,
                options=self._options if self._keeps_null else copy.deepcopy(self._options).save_null_fields(False),
                **self._limits,
            )
            return CassandraSink(self._stream.sink_to(sink))


__all__ = [
    "CassandraCommitter",
    "CassandraFailureHandler",
    "CassandraSink",
    "CassandraTableSink",
    "ClusterBuilder",
    "ConsistencyLevel",
    "MapperOptions",
]
