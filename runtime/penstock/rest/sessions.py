"""Who is logged in with a browser: signed cookies, so that nothing is kept here and a rotated token ends them all.

A person gives the token once, to `POST /login`. The cookie that comes back says which role it has and until when, signed with the
token; scripts of the page cannot read it (HttpOnly), other sites cannot have it sent (SameSite=Strict). What changes
something needs, besides, a word that only a page of this site can know: derived from the cookie, told by `GET /session`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.rest.errors import Forbidden, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.rest.auth import TokenFile

COOKIE = "penstock-session"
CSRF_HEADER = "x-penstock-csrf"
LASTS_S = 12 * 3600
READING = frozenset({"GET", "HEAD", "OPTIONS"})
Role = Literal["admin", "reader"]


@dataclass(frozen=True)
class Identity:
    """Whom a request is from. `cookie` empty: from a program, with the token itself."""

    role: Role
    cookie: str = ""
    csrf: str = ""


class Access:
    """Which token lets in as what.

    Args:
        admin: may do everything; None: nobody needs a token.
        reader: may only look; None: there is no such token.
    """

    def __init__(
        self, admin: TokenFile | None, reader: TokenFile | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.admin = admin
        self.reader = reader
        self._clock = clock

    def identify(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Identity:
        """
        Raises:
            Unauthorized: there is neither a token nor a cookie that counts.
        """
        if self.admin is None:
            return Identity("admin")
        authorization, cookie = headers.get("authorization"), cookies.get(COOKIE)
        if authorization is None and cookie is not None:
            return self._of_cookie(cookie)
        if self.reader is not None and self.reader.is_given(authorization):
            return Identity("reader")
        self.admin.check(authorization)
        return Identity("admin")

    def check(self, identity: Identity, method: str, headers: Mapping[str, str]) -> None:
        """
        Raises:
            Forbidden: a reader wants to change something, or what wants to is no page of this site.
        """
        if method in READING:
            return
        if identity.role == "reader":
            raise Forbidden("this token may only look", remedy="log in with the cluster's token to change something")
        if identity.cookie and not hmac.compare_digest(headers.get(CSRF_HEADER, ""), identity.csrf):
            raise Forbidden(f"the header {CSRF_HEADER} is missing or wrong", remedy="load the page again")

    def log_in(self, token: str) -> str:
        """The cookie's value.

        Raises:
            Unauthorized: it is no token of this cluster.
        """
        identity = self.identify({"authorization": f"Bearer {token}"}, {})
        body = f"{identity.role}.{int(self._clock()) + LASTS_S}.{secrets.token_hex(8)}"
        return f"{body}.{self._sign(identity.role, body)}"

    def _of_cookie(self, cookie: str) -> Identity:
        body, _, signature = cookie.rpartition(".")
        role, _, rest = body.partition(".")
        until = rest.partition(".")[0]
        if role not in ("admin", "reader") or not until.isdecimal():
            raise Unauthorized("the session cannot be read", remedy="log in again")
        if role == "reader" and self.reader is None:
            raise Unauthorized("the token that only reads is no more", remedy="log in with another one")
        if not hmac.compare_digest(signature, self._sign(role, body)):
            raise Unauthorized("the token has changed since the log-in", remedy="log in again")
        if int(until) < self._clock():
            raise Unauthorized("the session is over", remedy="log in again")
        return Identity(role, cookie, self._sign(role, f"csrf {body}"))  # type: ignore[arg-type]

    def _sign(self, role: str, text: str) -> str:
        file = self.reader if role == "reader" else self.admin
        assert file is not None
        return hmac.new(file.key(), text.encode(), hashlib.sha256).hexdigest()
