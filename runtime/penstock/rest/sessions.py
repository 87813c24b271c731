"""Sessions of browsers: signed cookies. A rotated token ends all sessions, and a logout ends one session.

A user sends the token once, to `POST /login`. The response sets a cookie with the role and the expiry time, signed with the token. Scripts
of the page cannot read the cookie (HttpOnly), and requests from other sites do not include the cookie (SameSite=Strict). A request that
changes something also needs a value that only a page of this site can know. This value is derived from the cookie, and `GET /session`
returns it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.rest.errors import BadRequest, Forbidden, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.rest.auth import TokenFile

COOKIE = "penstock-session"
CSRF_HEADER = "x-penstock-csrf"
LASTS_S = 12 * 3600
READING = frozenset({"GET", "HEAD", "OPTIONS"})
Role = Literal["admin", "reader"]
_SHAPE = re.compile(r"(admin|reader)\.([0-9]{1,12})\.([0-9a-f]{16})\.([0-9a-f]{64})")
_MAX_ENDED = 10_000


@dataclass(frozen=True)
class Identity:
    """Sender of a request. An empty `cookie` means a program that sends the token itself."""

    role: Role
    cookie: str = ""
    csrf: str = ""


class Access:
    """Tokens and their roles.

    Args:
        admin: token that permits everything. None means that no token is required.
        reader: token that permits only reading. None means that there is no such token.
    """

    def __init__(
        self, admin: TokenFile | None, reader: TokenFile | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.admin = admin
        self.reader = reader
        self._clock = clock
        self._ended = EndedSessions()

    def identify(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Identity:
        """Return the sender of a request.

        Raises:
            Unauthorized: the request has neither a token nor a valid cookie.
            BadRequest: this server never issued the cookie.
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
        """Check the permission of a request.

        Raises:
            Forbidden: a reader tries to change something, or the request does not come from a page of this site.
        """
        if method in READING:
            return
        if identity.role == "reader":
            raise Forbidden("this token is read-only", remedy="log in with the token of the cluster to change the job")
        if identity.cookie and not _equals(headers.get(CSRF_HEADER, ""), identity.csrf):
            raise Forbidden(f"the header {CSRF_HEADER} is missing or wrong", remedy="reload the page")

    def log_in(self, token: str) -> str:
        """Return the value of a new cookie.

        Raises:
            Unauthorized: `token` is not a token of this cluster.
        """
        identity = self.identify({"authorization": f"Bearer {token}"}, {})
        body = f"{identity.role}.{int(self._clock()) + LASTS_S}.{secrets.token_hex(8)}"
        return f"{body}.{self._sign(identity.role, body)}"

    def log_out(self, cookie: str) -> None:
        """End the session of a cookie. An invalid cookie has no session.

        Raises:
            BadRequest: this server never issued the cookie.
        """
        try:
            self._of_cookie(cookie)
        except Unauthorized:
            return
        _, until, name, _ = _parts(cookie)
        self._ended.add(name, int(until), self._clock())

    def _of_cookie(self, cookie: str) -> Identity:
        role, until, name, signature = _parts(cookie)
        body = f"{role}.{until}.{name}"
        if role == "reader" and self.reader is None:
            raise Unauthorized("the read-only token no longer exists", remedy="log in with another token")
        if not _equals(signature, self._sign(role, body)):
            raise Unauthorized("the token has changed since the login", remedy="log in again")
        if int(until) < self._clock() or self._ended.has(name, int(until)):
            raise Unauthorized("the session has expired", remedy="log in again")
        return Identity(role, cookie, self._sign(role, f"csrf {body}"))

    def _sign(self, role: str, text: str) -> str:
        file = self.reader if role == "reader" else self.admin
        assert file is not None
        return hmac.new(file.key(), text.encode(), hashlib.sha256).hexdigest()


class EndedSessions:
    """Sessions that a logout has ended. Each is kept at least until its expiry time. Thread-safe."""

    def __init__(self, limit: int = _MAX_ENDED) -> None:
        self._limit = limit
        self._until: dict[str, int] = {}
        self._all_until = 0
        """All sessions with an expiry time up to this one count as ended, even if `_until` has no name of them."""
        self._lock = threading.Lock()

    def add(self, name: str, until: int, now: float) -> None:
        with self._lock:
            self._until[name] = until
            if len(self._until) > self._limit:
                self._until = {name: until for name, until in self._until.items() if until >= now}
            if len(self._until) > self._limit:  # only a program logs in and out so often
                self._all_until = max(self._until.values())
                self._until.clear()

    def has(self, name: str, until: int) -> bool:
        with self._lock:
            return name in self._until or until <= self._all_until


def _parts(cookie: str) -> tuple[Role, str, str, str]:
    """Return role, expiry time in seconds since the epoch, name of the session, and signature."""
    found = _SHAPE.fullmatch(cookie)
    if found is None:
        raise BadRequest(f"the cookie {COOKIE} cannot be read", remedy="delete the cookie and log in again")
    role: Role = "admin" if found[1] == "admin" else "reader"
    return role, found[2], found[3], found[4]


def _equals(received: str, expected: str) -> bool:
    """Compare in constant time. The received text may contain any characters."""
    return hmac.compare_digest(received.encode("utf-8", "replace"), expected.encode())
