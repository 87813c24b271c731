"""HTTP source: polls a URL and emits its responses."""

from penstock.connectors.http.source import HttpPollSource

__all__ = ["HttpPollSource"]
