"""Elasticsearch under PyFlink's names. See `penstock.connectors.opensearch`, which writes to Elasticsearch and OpenSearch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Self, TypeAlias

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.program.one_time_warning import warn_no_effect
from penstock.connectors.core.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.opensearch.cluster import cluster_of
from penstock.connectors.opensearch.sink import OpenSearchSink
from penstock.datastream.not_built import not_built

ElasticsearchSink: TypeAlias = OpenSearchSink
_LEAST_PATIENCE_MS = 30_000


class FlushBackoffType(Enum):
    CONSTANT = "CONSTANT"
    EXPONENTIAL = "EXPONENTIAL"
    NONE = "NONE"


class ElasticsearchEmitter:
    """Emitter that creates actions from dicts or from Rows with names, as PyFlink's emitter does from maps.

    Args:
        index: function from a record to its index.
        key_field: field that contains the document id.
    """

    def __init__(self, index: Callable[[Mapping[str, Any]], str], key_field: str | None) -> None:
        self._index = index
        self._key_field = key_field

    @staticmethod
    def static_index(index: str, key_field: str | None = None, doc_type: str | None = None) -> ElasticsearchEmitter:
        """Return an emitter that writes all documents to one index."""
        _check_type(doc_type)
        return ElasticsearchEmitter(lambda record: index, key_field)

    @staticmethod
    def dynamic_index(
        index_field: str, key_field: str | None = None, doc_type: str | None = None
    ) -> ElasticsearchEmitter:
        """Return an emitter that writes each document to the index that its field `index_field` names."""
        _check_type(doc_type)
        return ElasticsearchEmitter(lambda record: str(_field(record, index_field)), key_field)

    def __call__(self, record: Any) -> dict[str, Any]:
        fields = record.as_dict() if hasattr(record, "as_dict") else record
        if not isinstance(fields, Mapping):
            raise SinkError(
                f"ElasticsearchEmitter got a {type(record).__name__}: {str(record)[:200]}",
                remedy="map records to dicts, or pass your own function to OpenSearchSink",
            )
        action: dict[str, Any] = {"_index": self._index(fields), "_source": fields}
        if self._key_field is not None:
            action["_id"] = _field(fields, self._key_field)
        return action


def _field(record: Mapping[str, Any], name: str) -> Any:
    value = record.get(name)
    if value is None:
        raise SinkError(f"a record without {name!r}: {str(record)[:200]}", remedy="filter it out, or give it the field")
    return value


def _check_type(doc_type: str | None) -> None:
    if doc_type is not None:
        warn_no_effect(f"doc_type={doc_type!r}", "documents have had no types since Elasticsearch 7")


class ElasticsearchSinkBuilderBase:
    """PyFlink's builder of a sink. `OpenSearchSink` takes the same settings in one call."""

    def __init__(self) -> None:
        self._emitter: Callable[[Any], Any] | None = None
        self._hosts: list[str] = []
        self._prefix = ""
        self._cluster: dict[str, Any] = {}
        self._sink: dict[str, Any] = {}

    def set_emitter(self, emitter: Callable[[Any], Any]) -> Self:
        """Set the emitter.

        Args:
            emitter: an `ElasticsearchEmitter`, or a function from a record to its action.
        """
        self._emitter = emitter
        return self

    def set_hosts(self, hosts: list[str]) -> Self:
        self._hosts = list(hosts)
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> Self:
        """Set the delivery guarantee.

        Raises:
            InvalidJob: the guarantee is exactly once, which Flink rejects too.
        """
        if delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            raise InvalidJob(
                "Elasticsearch sinks are not exactly once",
                remedy="give each document an id (key_field). A document that is written twice then exists once",
            )
        return self

    def set_bulk_flush_max_actions(self, num_max_actions: int) -> Self:
        """Set the number of actions in one bulk request.

        Args:
            num_max_actions: maximum, or -1 for no limit except the size in bytes.
        """
        self._sink["batch_size"] = 1 << 20 if num_max_actions == -1 else num_max_actions
        return self

    def set_bulk_flush_max_size_mb(self, max_size_mb: int) -> Self:
        self._sink["batch_bytes"] = 64 << 20 if max_size_mb == -1 else max_size_mb << 20
        return self

    def set_bulk_flush_interval(self, interval_millis: int) -> Self:
        self._sink["batch_time"] = 1_000 if interval_millis == -1 else interval_millis
        return self

    def set_bulk_flush_backoff_strategy(
        self, flush_backoff_type: FlushBackoffType, max_retries: int, delay_millis: int
    ) -> Self:
        """Set how long the sink retries failed requests. The minimum is 30 s. The sink chooses the pauses between the retries itself."""
        tries = range(max_retries) if flush_backoff_type is not FlushBackoffType.NONE else ()
        grows = flush_backoff_type is FlushBackoffType.EXPONENTIAL
        self._sink["patience"] = max(
            _LEAST_PATIENCE_MS, sum(delay_millis * (2**number if grows else 1) for number in tries)
        )
        return self

    def set_connection_username(self, username: str) -> Self:
        self._cluster["user"] = username
        return self

    def set_connection_password(self, password: str) -> Self:
        self._cluster["password"] = password
        return self

    def set_connection_path_prefix(self, prefix: str) -> Self:
        self._prefix = prefix.strip("/")
        return self

    def set_connection_request_timeout(self, timeout: int) -> Self:
        """Accept a timeout, which has no effect. Each subtask has its own connection, so it never waits for a connection."""
        return self

    def set_connection_timeout(self, timeout: int) -> Self:
        """Set the timeout of connects.

        Args:
            timeout: the timeout in ms.
        """
        self._cluster["connect_timeout_s"] = timeout / 1000
        return self

    def set_socket_timeout(self, timeout: int) -> Self:
        """Set the timeout of reads.

        Args:
            timeout: the timeout in ms.
        """
        self._cluster["timeout_s"] = timeout / 1000
        return self

    def build(self) -> OpenSearchSink:
        """Return the sink.

        Raises:
            InvalidJob: the emitter or the hosts are missing.
        """
        if self._emitter is None:
            raise InvalidJob("an Elasticsearch sink without emitter", remedy="call set_emitter()")
        hosts = [f"{host.rstrip('/')}/{self._prefix}".rstrip("/") for host in self._hosts]
        return OpenSearchSink(cluster_of(hosts, **self._cluster), self._emitter, **self._sink)


class Elasticsearch7SinkBuilder(ElasticsearchSinkBuilderBase):
    """Builder of a sink for Elasticsearch 7 and later, and for OpenSearch."""


Elasticsearch6SinkBuilder = not_built(
    "Elasticsearch6SinkBuilder", __name__, "use Elasticsearch7SinkBuilder. Versions before 7 are not supported"
)

__all__ = [
    "DeliveryGuarantee",
    "Elasticsearch6SinkBuilder",
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "ElasticsearchSinkBuilderBase",
    "FlushBackoffType",
]
