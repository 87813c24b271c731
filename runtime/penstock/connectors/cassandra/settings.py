"""Settings of `CassandraTableSink`, which its writers and its committer use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.common.errors import InvalidJob
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.cassandra.cluster import ClusterBuilder, package
from penstock.connectors.cassandra.options import MapperOptions
from penstock.connectors.cassandra.requests import Requests
from penstock.connectors.cassandra.statements import check_statement, insert_into

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.connectors.core.write_ahead import CheckpointCommitter


class CassandraSinkSettings:
    """The settings of a `CassandraTableSink`. The docstring of that class describes the arguments."""

    def __init__(
        self,
        cluster: str | Sequence[str] | ClusterBuilder,
        table: str = "",
        columns: Sequence[str] = (),
        *,
        statement: str = "",
        write_ahead: bool = False,
        committer: CheckpointCommitter | None = None,
        options: MapperOptions | None = None,
        max_in_flight: int = 128,
        patience: TimeLike = 30_000,
    ) -> None:
        package()
        self.cluster = cluster if isinstance(cluster, ClusterBuilder) else ClusterBuilder(cluster)
        self.options = MapperOptions() if options is None else options
        self.columns = tuple(columns)
        if bool(table) == bool(statement):
            raise InvalidJob("a Cassandra sink needs either a table or a statement", remedy="pass exactly one of them")
        if statement:
            check_statement(statement)
            if columns or self.options.only_of_tables:
                setting = "columns" if columns else ", ".join(self.options.only_of_tables)
                raise InvalidJob(
                    f"{setting} cannot be set together with the statement {statement!r}",
                    remedy="write it into the statement",
                )
        self.statement = statement or insert_into(table, columns, self.options)
        if committer is not None and not write_ahead:
            raise InvalidJob(
                "a committer needs write_ahead=True", remedy="remove the committer, or set write_ahead=True"
            )
        self.write_ahead = write_ahead
        self.committer = committer
        if max_in_flight < 1:
            raise InvalidJob(
                f"max_in_flight={max_in_flight} is not a number of requests", remedy="set max_in_flight to at least 1"
            )
        self.max_in_flight = max_in_flight
        self.patience_ms = as_millis(patience, "patience")

    def requests(self, check: Callable[[], None] | None = None) -> Requests:
        return Requests(self.cluster, self.options, self.max_in_flight, self.patience_ms / 1000, check)
