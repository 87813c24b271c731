"""Who may ask: the bearer token (`security.rest.token-file`), and no page of another site."""

from __future__ import annotations

import hmac
import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.common.errors import ClusterError
from penstock.rest.errors import Forbidden, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Mapping

EXEMPT = frozenset({"/healthz", "/readyz"})
"""Paths that answer without a token: probes have none."""


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
