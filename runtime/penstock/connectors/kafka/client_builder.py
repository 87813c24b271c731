"""What the builders of source and sink share: the properties of their clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from penstock.common.errors import InvalidJob
from penstock.connectors.kafka.client import checked


class ClientBuilder:
    """Under PyFlink's names."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """`host:port` of some brokers, with commas between them."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_property(self, key: str, value: Any) -> Self:
        """A property of the client (librdkafka's names); of a source also `partition.discovery.interval.ms` and
        `commit.offsets.on.checkpoint`, as in Flink."""
        self._properties |= checked({key: value})
        return self

    def set_properties(self, props: Mapping[str, Any]) -> Self:
        self._properties |= checked(props)
        return self

    def _check_servers(self, what: str) -> None:
        """
        Raises:
            InvalidJob: no brokers are named.
        """
        if "bootstrap.servers" not in self._properties:
            raise InvalidJob(f"{what} without brokers", remedy="set_bootstrap_servers('host:9092')")
