"""The storage endpoints that the operator may connect to. Pure functions.

The author of a FlinkJob chooses `s3.endpoint`, and the operator sends requests to it. The operator may reach networks
that the author cannot reach. So the platform limits the endpoints with `storage.endpoints` of the chart. Without this
setting, the operator connects to every endpoint except link-local addresses, where clouds serve the credentials of the
machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from penstock_operator.errors import StorageError

_METADATA = frozenset({"metadata.google.internal", "metadata.goog", "instance-data"})
"""Host names under which clouds serve credentials."""


@dataclass(frozen=True)
class AllowedEndpoints:
    """The chart's setting `storage.endpoints`. If it is empty, endpoints are not limited."""

    patterns: tuple[str, ...] = ()
    """URLs with scheme, host and port. A host may start with `*.`, which stands for all names below that domain."""

    def check(self, endpoint: str | None) -> None:
        """Raise `StorageError` with the remedy if the operator may not connect to the endpoint. None is the driver's
        default endpoint.

        >>> AllowedEndpoints(("https://*.example.com",)).check("https://s3.example.com/")
        """
        if endpoint is None:
            return
        parts = urlsplit(endpoint)
        host = (parts.hostname or "").rstrip(".").lower()
        if parts.scheme not in ("http", "https") or not host or parts.username or parts.password:
            msg = f"s3.endpoint {endpoint!r} is not the URL of an object store. Write http(s)://HOST[:PORT], without credentials"
            raise StorageError(msg)
        if host in _METADATA or _is_link_local(host):
            msg = f"s3.endpoint {endpoint} is the address of a metadata service, not of an object store. Correct s3.endpoint"
            raise StorageError(msg)
        if self.patterns and not is_listed(endpoint, self.patterns):
            msg = (
                f"s3.endpoint {endpoint} is not among the endpoints that the platform allows. Correct s3.endpoint, or have the "
                "platform add it to storage.endpoints of the operator's chart"
            )
            raise StorageError(msg)


def is_listed(url: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a URL belongs to one of these servers.

    >>> [is_listed(url, ("https://git.example.com",)) for url in ("https://git.example.com/a/b", "http://git.example.com/a/b")]
    [True, False]
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".").lower()
    return any(_matches(pattern, parts.scheme, host, _port(url)) for pattern in patterns)


def _matches(pattern: str, scheme: str, host: str, port: int) -> bool:
    wanted = urlsplit(pattern)
    name = (wanted.hostname or "").lower()
    same = host.endswith(name[1:]) if name.startswith("*.") else host == name
    return same and wanted.scheme == scheme and _port(pattern) == port


def _port(url: str) -> int:
    parts = urlsplit(url)
    try:
        return parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return 0


def _is_link_local(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_link_local
