"""Who may ask: the bearer token (`security.rest.token-file`), and no page of another site.

A page of another site can have a browser send requests here, which `check_origin` tells from the dashboard's own. And its
author can let the page's own name point to this machine, once it is loaded (DNS rebinding): to the browser, this API is
then the page's own site. It still asks for that name, which `AllowedHosts` does not know.
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
"""Paths that answer without a token: probes have none, and the page asks a person for it."""
PAGE = "/ui/"
"""Below it the page's own files lie, the same for everybody."""


def is_open(path: str) -> bool:
    """Whether a path answers without a token."""
    return path in OPEN or path.startswith(PAGE)


def check_origin(method: str, headers: Mapping[str, str]) -> None:
    """Refuse what another site's page has a browser do here; an API without a token has no other defence against it.

    Raises:
        Forbidden: something is to be changed, and the `Origin` is not the host that was asked.
    """
    origin = headers.get("origin")
    if origin is None or method in ("GET", "HEAD", "OPTIONS"):
        return
    asked = (headers.get("host"), headers.get("x-forwarded-host"))
    if origin.rpartition("//")[2] not in asked:
        raise Forbidden(
            f"a page of {origin} may not change anything here",
            remedy="open the dashboard at the address it is served from",
        )


class AllowedHosts:
    """Names by which this API may be asked for: addresses, which nobody can rebind, `localhost`, this machine's name, and

    Args:
        names: others; `*.example.com` stands for all below that, `*` for all.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        given = {name.strip().lower().rstrip(".") for name in names}
        self._names = {"localhost", socket.gethostname().lower(), *given}
        self._domains = (".localhost", *(name[1:] for name in given if name.startswith("*.")))
        self._any = "*" in given

    def check(self, header: str | None) -> None:
        """
        Raises:
            Forbidden: the `Host` header is another name. Without the header it was no browser that asked.
        """
        if header is None or self._any:
            return
        host = _without_port(header).lower().rstrip(".")
        if host in self._names or host.endswith(self._domains) or _is_address(host):
            return
        raise Forbidden(
            f"this API was asked for as {host!r}",
            remedy="ask for it as localhost or by its address, or add the name to security.rest.allowed-hosts",
        )


def _without_port(header: str) -> str:
    """
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
    """A token in a file, read again when the file changes, so that a mounted secret can be rotated.

    Raises:
        ClusterError: the file cannot be read or is empty. Nobody may be let in by a mistake in the set-up.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._version: tuple[int, int] | None = None
        self._token = b""
        self._read()

    def is_given(self, header: str | None) -> bool:
        """Whether the `Authorization` header has this token."""
        try:
            self.check(header)
        except Unauthorized:
            return False
        return True

    def key(self) -> bytes:
        """The token as it is now, to sign with."""
        self._read()
        return self._token

    def check(self, header: str | None) -> None:
        """
        Raises:
            Unauthorized: the `Authorization` header is not `Bearer <token>` with the token of the file.
        """
        self._read()
        scheme, _, given = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise Unauthorized(
                "this API needs a token",
                remedy="send the header 'Authorization: Bearer <token>' with the cluster's token",
            )
        if not hmac.compare_digest(given.strip().encode(), self._token):
            raise Unauthorized("the token is not this cluster's", remedy="take it from the secret of this cluster")

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
                remedy="let security.rest.token-file name a readable file with one line",
            ) from None
        if not token:
            raise ClusterError(f"the token file {self.path} is empty", remedy="write the token into it")
        self._token, self._version = token.encode(), version
