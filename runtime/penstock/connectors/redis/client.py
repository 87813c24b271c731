"""Connections to Redis, what its refusals mean, and whether another try would help."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.extras import module_of_extra
from penstock.common.secret_file import read_secret

E = TypeVar("E", bound=PlatformError)
T = TypeVar("T")

CONNECT_S = 5.0
REQUEST_S = 10.0
"""Until a request without an answer counts as lost."""
_FIRST_WITH_COUNTS = 7
_LONGEST_PAUSE_S = 3.0
_PASSING = ("LOADING", "MASTERDOWN", "READONLY", "OOM", "MISCONF", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS")
"""How refusals begin that may end without anybody's doing: the server starts, fails over, makes room, or is busy with a script."""
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
"""redis-py takes some words away from what the server said."""
_REMEDIES = (
    (("WRONGPASS", "NOAUTH"), "check user and password: redis://user@host:6379 and password_file"),
    (("NOPERM",), "grant the job's user the command and the key: ACL SETUSER user +command ~key"),
    (("WRONGTYPE",), "the key holds another type: name another key, or remove that one"),
    (
        ("OOM",),
        "the server is full: raise its maxmemory, or bound what is kept (ttl=, max_length=)",
    ),
    (("READONLY",), "this is a replica: name the primary, or the address that follows it"),
    (
        ("MOVED", "CROSSSLOT"),
        "this is a Redis Cluster, whose keys are on several servers: name a server (or a proxy) that holds all of them",
    ),
    (("MISCONF",), "the server cannot save to its disk: look at its log, give it room"),
    (("LOADING",), "the server reads its data: the job tries again when it fails over"),
    (("MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS"), "the server has lost others that it needs: look at its log"),
)


def package(name: str = "redis") -> Any:
    return module_of_extra(name, "redis", "Redis")


@dataclass(frozen=True, repr=False)
class Server:
    """Where, and as whom. Picklable; holds no password but what `url` itself has."""

    url: str
    password_file: str = ""

    def __post_init__(self) -> None:
        package()
        scheme = self.url.partition("://")[0] if isinstance(self.url, str) else ""
        if scheme not in ("redis", "rediss", "unix"):
            raise InvalidJob(
                f"the url of {self.shown} cannot be understood",
                remedy="write 'redis://user@host:6379/0', or rediss:// for TLS",
            )

    def __repr__(self) -> str:
        return f"Server({self.shown})"

    def options(self, kind: type[PlatformError], name: str = "") -> dict[str, Any]:
        """Beside `url`, with the password as its file has it now. Nothing is tried again but by us: who adds to a stream must know.

        Raises:
            PlatformError: of this kind: the file cannot be read.
        """
        given: dict[str, Any] = {
            "protocol": 2,
            "socket_connect_timeout": CONNECT_S,
            "socket_timeout": REQUEST_S,
            "socket_keepalive": True,
            "retry": package(f"redis{name}.retry").Retry(package("redis.backoff").NoBackoff(), 0),
        }
        if self.password_file:
            given["password"] = read_secret(self.password_file, "password_file", kind)
        return given

    def connect(self, kind: type[PlatformError]) -> Any:
        """A client whose server has answered.

        Raises:
            PlatformError: of this kind: the server does not answer, or does not let us; says what to do.
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
                    f"the url of {self.shown} cannot be understood: {type(error).__name__}",
                    remedy="write 'redis://user@host:6379/0', or rediss:// for TLS",
                ) from None  # it may show the password
            raise self.explained(kind, "cannot connect", error) from error

    @property
    def shown(self) -> str:
        """Host and database, without user and password."""
        try:
            found = urlsplit(self.url)
            return f"Redis {found.hostname or 'localhost'}:{found.port or 6379}{found.path if found.path not in ('/', '/0') else ''}"
        except (ValueError, AttributeError, TypeError):
            return "Redis"

    def explained(self, kind: type[E], what: str, error: BaseException) -> E:
        text = told(error)
        return kind(f"{self.shown}: {what}: {text}", remedy=_remedy(error, text))

    def check_version(self, client: Any, kind: type[PlatformError]) -> None:
        """
        Raises:
            PlatformError: of this kind: the server does not count the entries of its streams.
        """
        version = str(client.info("server").get("redis_version", ""))
        found = re.match(r"\d+", version)
        if found is not None and int(found[0]) < _FIRST_WITH_COUNTS:
            raise kind(f"{self.shown} is Redis {version}", remedy="streams are read and written of Redis 7 and later")


class Connection:
    """A client that is made anew when it was lost, and how long that is borne."""

    def __init__(self, server: Server, kind: type[PlatformError], patience: float) -> None:
        self.server = server
        self._kind = kind
        self._patience = patience
        self._client: Any = None
        self.stopped: Callable[[], bool] = lambda: False
        """Whether nobody waits any more."""

    def run(self, what: str, work: Callable[[Any], T]) -> T:
        """What `work` makes of a client; it is called again when that has failed in passing.

        Raises:
            PlatformError: of this connection's kind: the server is lost for long, or refuses it.
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
                raise self.server.explained(self._kind, what, cause) from error

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def word(error: BaseException) -> str:
    """What a refusal begins with: "WRONGTYPE"."""
    for kind in type(error).__mro__:
        if kind.__name__ in _WORDS_OF:
            return _WORDS_OF[kind.__name__]
    first = str(error).split(" ", 1)[0]
    return first if first.isupper() else ""


def is_passing(error: BaseException) -> bool:
    """Whether another try may succeed without anybody doing anything."""
    redis = package()
    found = word(error)
    if found in ("WRONGPASS", "NOAUTH", "NOPERM"):
        return False  # redis-py takes them for lost connections
    if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        return "CERTIFICATE_VERIFY_FAILED" not in str(error)
    return found in _PASSING


def told(error: BaseException) -> str:
    """The server's own words, with the one they begin with."""
    text = " ".join((str(error) or type(error).__name__).split())[:1000]
    found = word(error)
    return text if not found or found in text else f"{found} {text}"


def _remedy(error: BaseException, text: str) -> str:
    found = word(error)
    for words, remedy in _REMEDIES:
        if found in words or any(text.startswith(name) or f" {name} " in text for name in words):
            return remedy
    if isinstance(error, package().ResponseError) and not isinstance(error, package().ConnectionError):
        return "correct what the job asks of the server"
    return (
        "check that the server runs, host, port, TLS settings and the network; the job tries again when it fails over"
    )
