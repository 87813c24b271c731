"""Authorization of requests: the bearer token (`security.rest.token-file`), and a check against pages of other sites.

A page of another site can make a browser send requests to this server. `check_origin` distinguishes such requests from the dashboard's
requests. Also, the author of a page can change the address of the page's host name to this machine after the page is
loaded (DNS rebinding). The browser then treats this API as the page's own site. The requests still contain that host
name, which `AllowedHosts` refuses.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.common.errors import ClusterError
from penstock.rest.errors import Forbidden, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PROBES = frozenset({"/healthz", "/readyz"})
OPEN = PROBES | {"/", "/login", "/logout", "/session", "/favicon.ico"}
"""Paths that need no token: probes do not send a token, and the page asks the user for the token."""
PAGE = "/ui/"
"""Path of the page's files, which are the same for all users."""


def is_open(path: str) -> bool:
    """Return whether a path needs no token."""
    return path in OPEN or path.startswith(PAGE)


def check_origin(method: str, headers: Mapping[str, str]) -> None:
    """Refuse requests that a page of another site sends through a browser. An API without a token has no other protection against such
    requests.

    Raises:
        Forbidden: the request changes something, and its `Origin` differs from the requested host.
    """
    origin = headers.get("origin")
    if origin is None or method in ("GET", "HEAD", "OPTIONS"):
        return
    hosts = (headers.get("host"), headers.get("x-forwarded-host"))
    if origin.rpartition("//")[2] not in hosts:
        raise Forbidden(
            f"a web page of {origin} may not send changes to this API",
            remedy="open the dashboard at the address of the JobManager",
        )


class AllowedHosts:
    """Host names that requests may use. `localhost`, this machine's name and IP addresses are always allowed. DNS rebinding needs a host
    name, so IP addresses are safe.

    Args:
        names: further names. `*.example.com` allows all names below `example.com`, and `*` allows all names.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        allowed = {name.strip().lower().rstrip(".") for name in names}
        self._names = {"localhost", socket.gethostname().lower(), *allowed}
        self._domains = (".localhost", *(name[1:] for name in allowed if name.startswith("*.")))
        self._any = "*" in allowed

    def check(self, header: str | None) -> None:
        """Check the host name of a request.

        Raises:
            Forbidden: the `Host` header contains another name. A request without the header does not come from a browser and is allowed.
        """
        if header is None or self._any:
            return
        host = _without_port(header).lower().rstrip(".")
        if host in self._names or host.endswith(self._domains) or _is_address(host):
            return
        raise Forbidden(
            f"the host name {host!r} in the request is not allowed",
            remedy="use localhost or an IP address, or add the name to security.rest.allowed-hosts",
        )


def _without_port(header: str) -> str:
    """Return the host name without the port.

    >>> [_without_port(header) for header in ("a:80", "a", "[::1]:80", "[::1]", "")]
    ['a', 'a', '::1', '::1', '']
    """
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class TokenFile:
    """Token in a file, which is read again when the file changes, so that a mounted secret can be rotated.

    Raises:
        ClusterError: the file cannot be read or is empty. A configuration error must not grant access.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._version: tuple[int, int] | None = None
        self._token = b""
        self._read()

    def is_given(self, header: str | None) -> bool:
        """Return whether the `Authorization` header contains this token."""
        try:
            self.check(header)
        except Unauthorized:
            return False
        return True

    def key(self) -> bytes:
        """Return the current token as a key for signatures."""
        self._read()
        return self._token

    def check(self, header: str | None) -> None:
        """Check the token of a request.

        Raises:
            Unauthorized: the `Authorization` header is not `Bearer <token>` with the token of the file.
        """
        self._read()
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized(
                "this API requires a token",
                remedy="send the header 'Authorization: Bearer <token>' with the token of the cluster",
            )
        if not hmac.compare_digest(token.strip().encode(), self._token):
            raise Unauthorized(
                "the token is not valid for this cluster", remedy="use the token in the Secret of this cluster"
            )

    def _read(self) -> None:
        try:
            found = os.stat(self.path)
            version = (found.st_mtime_ns, found.st_ino)
            if version == self._version:
                return
            token = Path(self.path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterError(
                f"the token file {self.path} cannot be read: {error}",
                remedy="set security.rest.token-file to a readable file with one line",
            ) from None
        if not token:
            raise ClusterError(f"the token file {self.path} is empty", remedy="write the token into the file")
        self._token, self._version = token.encode(), version
