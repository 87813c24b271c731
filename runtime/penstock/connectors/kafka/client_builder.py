"""The client properties that the builders of source and sink share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from penstock.common.errors import InvalidJob
from penstock.connectors.kafka.client import checked


class ClientBuilder:
    """The base class of the builders, with PyFlink's names."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """Set the `host:port` of some brokers, separated by commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_property(self, key: str, value: Any) -> Self:
        """Set a property of the client (librdkafka's names).

        A source also has `partition.discovery.interval.ms` and `commit.offsets.on.checkpoint`, as in Flink.
        """
        self._properties |= checked({key: value})
        return self

    def set_properties(self, props: Mapping[str, Any]) -> Self:
        self._properties |= checked(props)
        return self

    def _check_servers(self, client: str) -> None:
        """Check that brokers are configured.

        Raises:
            InvalidJob: no brokers are named.
        """
        if "bootstrap.servers" not in self._properties:
            raise InvalidJob(
                f"{client} needs the address of a broker", remedy="call set_bootstrap_servers('host:9092')"
            )
