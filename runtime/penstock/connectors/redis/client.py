"""Connections to Redis, the meaning of its error replies, and whether a retry can help."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.program.extras import import_extra

E = TypeVar("E", bound=PlatformError)
T = TypeVar("T")

CONNECT_S = 5.0
REQUEST_S = 10.0
"""Seconds without an answer after which a request counts as lost."""
_FIRST_WITH_COUNTS = 7
_LONGEST_PAUSE_S = 3.0
_PASSING = ("LOADING", "MASTERDOWN", "READONLY", "OOM", "MISCONF", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS")
"""Prefixes of errors that can end without a user's action: the server starts, fails over, frees memory, or runs a script."""
_WORDS_OF = {
    "ReadOnlyError": "READONLY",
    "BusyLoadingError": "LOADING",
    "OutOfMemoryError": "OOM",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "WRONGPASS",
    "AuthenticationWrongNumberOfArgsError": "WRONGPASS",
    "MovedError": "MOVED",
    "AskError": "MOVED",
    "ClusterCrossSlotError": "CROSSSLOT",
}
"""The error prefixes that redis-py removes from the server's message, by its exception class."""
_REMEDIES = (
    (("WRONGPASS", "NOAUTH"), "check user and password: redis://user@host:6379 and password_file"),
    (("NOPERM",), "grant the job's user the command and the key: ACL SETUSER user +command ~key"),
    (("WRONGTYPE",), "the key holds another type: choose another key, or delete that one"),
    (
        ("OOM",),
        "the server is full: raise its maxmemory, or limit what is kept (ttl=, max_length=)",
    ),
    (("READONLY",), "this is a replica: use the address of the primary, or one that always points to it"),
    (
        ("MOVED", "CROSSSLOT"),
        "this is a Redis Cluster, whose keys are on several servers: use a server (or a proxy) that holds all of them",
    ),
    (("MISCONF",), "the server cannot save to its disk: check its log and free disk space"),
    (("LOADING",), "the server is loading its data: the job tries again when it fails over"),
    (("MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS"), "the server has lost other servers that it needs: check its log"),
)


def package(name: str = "redis") -> Any:
    return import_extra(name, "redis", "Redis")


@dataclass(frozen=True, repr=False)
class Server:
    """The server's address and user. It is picklable, and holds no password except one in `url`."""

    url: str
    password_file: str = ""

    def __post_init__(self) -> None:
        package()
        scheme = self.url.partition("://")[0] if isinstance(self.url, str) else ""
        if scheme not in ("redis", "rediss", "unix"):
            raise InvalidJob(
                f"the url of {self.shown} is invalid",
                remedy="write 'redis://user@host:6379/0', or rediss:// for TLS",
            )

    def __repr__(self) -> str:
        return f"Server({self.shown})"

    def options(self, kind: type[PlatformError], name: str = "") -> dict[str, Any]:
        """Return the client's options that are not in `url`, with the current password of the file. The client's own retries are off.

        A writer to a stream must know about every retry, so only this module retries.

        Raises:
            PlatformError: the file cannot be read. The error's class is `kind`.
        """
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_connect_timeout": CONNECT_S,
            "socket_timeout": REQUEST_S,
            "socket_keepalive": True,
            "retry": package(f"redis{name}.retry").Retry(package("redis.backoff").NoBackoff(), 0),
        }
        if self.password_file:
            options["password"] = read_secret(self.password_file, "password_file", kind)
        return options

    def connect(self, kind: type[PlatformError]) -> Any:
        """Return a client whose server has answered.

        Raises:
            PlatformError: the server does not answer, or refuses access. The error's class is `kind`, and it names the remedy.
        """
        redis = package()
        client = None
        options = self.options(kind)
        try:
            client = redis.Redis.from_url(self.url, **options)
            client.ping()
            return client
        except (redis.RedisError, OSError, ValueError, TypeError) as error:
            if client is not None:
                client.close()
            if not isinstance(error, redis.RedisError | OSError):
                raise InvalidJob(
                    f"the url of {self.shown} is invalid: {type(error).__name__}",
                    remedy="write 'redis://user@host:6379/0', or rediss:// for TLS",
                ) from None  # the cause may contain the password
            raise self.explained(kind, "cannot connect", error) from error

    @property
    def shown(self) -> str:
        """Return host and database, without user and password."""
        try:
            found = urlsplit(self.url)
            return f"Redis {found.hostname or 'localhost'}:{found.port or 6379}{found.path if found.path not in ('/', '/0') else ''}"
        except (ValueError, AttributeError, TypeError):
            return "Redis"

    def explained(self, kind: type[E], problem: str, error: BaseException) -> E:
        text = message_of(error)
        return kind(f"{self.shown}: {problem}: {text}", remedy=_remedy(error, text))

    def check_version(self, client: Any, kind: type[PlatformError]) -> None:
        """Check the server's version.

        Raises:
            PlatformError: the server is too old to count the entries of its streams. The error's class is `kind`.
        """
        version = str(client.info("server").get("redis_version", ""))
        found = re.match(r"\d+", version)
        if found is not None and int(found[0]) < _FIRST_WITH_COUNTS:
            raise kind(f"{self.shown} is Redis {version}", remedy="upgrade the server: streams need Redis 7 or later")


class Connection:
    """A client that reconnects after a lost connection, for a limited time."""

    def __init__(self, server: Server, kind: type[PlatformError], patience: float) -> None:
        self.server = server
        self._kind = kind
        self._patience = patience
        self._client: Any = None
        self.stopped: Callable[[], bool] = lambda: False
        """A function that returns whether the caller no longer waits."""

    def run(self, problem: str, work: Callable[[Any], T]) -> T:
        """Return the result of `work(client)`. Call `work` again after a temporary failure.

        Raises:
            PlatformError: the server is unavailable for too long, or rejects the request. The error's class is the connection's `kind`.
        """
        end, pause = time.monotonic() + self._patience, 0.1
        while True:
            try:
                if self._client is None:
                    self._client = self.server.connect(self._kind)
                return work(self._client)
            except (package().RedisError, OSError, self._kind) as error:
                cause = error.__cause__ if isinstance(error, self._kind) else error
                if not isinstance(cause, package().RedisError | OSError):
                    raise
                if not isinstance(cause, package().ResponseError) or is_passing(cause):
                    self.close()
                if is_passing(cause) and time.monotonic() < end and not self.stopped():
                    time.sleep(pause)
                    pause = min(_LONGEST_PAUSE_S, pause * 2)
                    continue
                if isinstance(error, self._kind):
                    raise
                raise self.server.explained(self._kind, problem, cause) from error

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def word(error: BaseException) -> str:
    """Return the prefix of an error reply, such as "WRONGTYPE"."""
    for kind in type(error).__mro__:
        if kind.__name__ in _WORDS_OF:
            return _WORDS_OF[kind.__name__]
    first = str(error).split(" ", 1)[0]
    return first if first.isupper() else ""


def is_passing(error: BaseException) -> bool:
    """Return whether a retry may succeed without a user's action."""
    redis = package()
    found = word(error)
    if found in ("WRONGPASS", "NOAUTH", "NOPERM"):
        return False  # redis-py treats these as lost connections
    if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        return "CERTIFICATE_VERIFY_FAILED" not in str(error)
    return found in _PASSING


def message_of(error: BaseException) -> str:
    """Return the server's message, including its prefix."""
    text = " ".join((str(error) or type(error).__name__).split())[:1000]
    found = word(error)
    return text if not found or found in text else f"{found} {text}"


def _remedy(error: BaseException, text: str) -> str:
    found = word(error)
    for words, remedy in _REMEDIES:
        if found in words or any(text.startswith(name) or f" {name} " in text for name in words):
            return remedy
    if isinstance(error, package().ResponseError) and not isinstance(error, package().ConnectionError):
        return "correct the command, which the server's message describes"
    return "check that the server runs, and check host, port, TLS settings and the network; the job retries when it fails over"
