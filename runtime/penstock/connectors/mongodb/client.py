"""Clients of MongoDB, the meaning of its errors, and whether a retry can help."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.program.extras import import_extra

E = TypeVar("E", bound=PlatformError)
T = TypeVar("T")

DUPLICATE_KEY = 11000
_CONNECT_MS, _REQUEST_MS = 5_000, 20_000
_LONGEST_PAUSE_S = 3.0
_DEFAULTS = {
    "serverSelectionTimeoutMS": _CONNECT_MS,
    "connectTimeoutMS": _CONNECT_MS,
    "socketTimeoutMS": _REQUEST_MS,
    "w": "majority",
    "appName": "penstock",
}
"""Options that apply unless the URL sets other values."""
_PASSING = frozenset(
    (
        *(6, 7, 24, 46, 50, 64, 89, 91, 112, 133, 134, 189, 202, 262, 290, 317, 358, 384),
        *(9001, 10058, 10107, 11600, 11601, 11602, 13388, 13435, 13436, 14031, 16500),
    )
)
"""Codes of errors that can end without a user's action: no primary, a shutdown, locks, time limits, a full disk
(https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml)."""
_REMEDIES = (
    ((18,), "check user and password: mongodb://user@host, password_file, and authSource= of the URL"),
    (
        (13, 8000),
        "check that the URL names the job's user, and grant the user the role readWrite, or read, on the database",
    ),
    ((DUPLICATE_KEY,), "another document has this value of a unique index: correct the records, or the index"),
    ((121,), "map records to documents that the collection's validator accepts, or change the validator"),
    ((66,), "the _id of a document cannot be changed: leave it out, or use it as the key"),
    ((79, 100), "the servers cannot confirm writes with w= of the URL: correct w="),
    ((14031,), "the server's disk is full: free disk space"),
    ((26,), "check the names of database and collection"),
)


@cache
def package(name: str = "pymongo") -> Any:
    import_extra("pymongo", "mongodb", "MongoDB")
    return import_extra(name, "mongodb", "MongoDB")


@dataclass(frozen=True, repr=False)
class Server:
    """The server's address and user. It is picklable, and holds no password except one in `url`."""

    url: str
    password_file: str = ""

    def __post_init__(self) -> None:
        package()
        scheme = self.url.partition("://")[0] if isinstance(self.url, str) else ""
        if scheme not in ("mongodb", "mongodb+srv"):
            raise InvalidJob(
                f"the url of {self.shown} is invalid",
                remedy="write 'mongodb://user@host:27017/', or mongodb+srv://",
            )
        if self.password_file and not self.user:
            raise InvalidJob(
                f"password_file={self.password_file!r} without a user",
                remedy="write the user into the url: mongodb://user@host",
            )

    def __repr__(self) -> str:
        return f"Server({self.shown})"

    @property
    def user(self) -> str:
        return self.url.partition("://")[2].rpartition("@")[0].partition(":")[0]

    @property
    def shown(self) -> str:
        """Return the hosts, without user and password."""
        if not isinstance(self.url, str):
            return "MongoDB"
        hosts = self.url.partition("://")[2].rpartition("@")[2]
        return f"MongoDB {hosts.partition('?')[0].partition('/')[0]}"

    def option(self, name: str) -> str | None:
        """Return an option of the URL, or None if it is not set. Names are case-insensitive."""
        pairs = (option.partition("=") for option in self.url.partition("?")[2].split("&"))
        return next((value for key, _, value in pairs if key.lower() == name.lower()), None)

    def options(self, kind: type[PlatformError]) -> dict[str, Any]:
        """Return the client's options that are not in `url`, with the current password of the file.

        Raises:
            PlatformError: the file cannot be read. The error's class is `kind`.
        """
        options: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if self.option(name) is None}
        if self.password_file:
            options["password"] = read_secret(self.password_file, "password_file", kind)
        return options

    def connect(self, kind: type[PlatformError]) -> Any:
        """Return a client whose server has answered.

        Raises:
            PlatformError: the server does not answer, or refuses access. The error's class is `kind`, and it names the remedy.
        """
        client = None
        errors = package("pymongo.errors")
        options = self.options(kind)
        try:
            client = package().MongoClient(self.url, **options)
            client.admin.command("ping")
            return client
        except (errors.PyMongoError, OSError, ValueError, TypeError) as error:
            if client is not None:
                client.close()
            if client is None and not isinstance(error, OSError):
                detail = f": {error}" if isinstance(error, errors.ConfigurationError) else f": {type(error).__name__}"
                raise InvalidJob(
                    f"the url of {self.shown} is invalid{detail}",
                    remedy="write 'mongodb://user@host:27017/?option=value', special characters of the user as %40",
                ) from None  # the cause may contain the password
            raise self.explained(kind, "cannot connect", error) from error

    def explained(self, kind: type[E], problem: str, error: BaseException) -> E:
        return kind(f"{self.shown}: {problem}: {message_of(error)}", remedy=remedy(error))


class Connection:
    """A client that reconnects after a lost connection, for a limited time."""

    def __init__(self, server: Server, kind: type[PlatformError], patience: float) -> None:
        self.server = server
        self._kind = kind
        self._patience = patience
        self._client: Any = None

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
            except (package("pymongo.errors").PyMongoError, OSError, self._kind) as error:
                cause = error.__cause__ if isinstance(error, self._kind) else error
                if cause is None or not is_passing(cause):
                    self.close()
                elif time.monotonic() < end:
                    time.sleep(pause)
                    pause = min(_LONGEST_PAUSE_S, pause * 2)
                    continue
                if isinstance(error, self._kind):
                    raise
                raise self.server.explained(self._kind, problem, error) from error

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def look_up(client: Any, server: Server, database: str, name: str, kind: type[E]) -> None:
    """Check that the collection exists and has documents with ids.

    Raises:
        PlatformError: the collection does not exist, or is a view or a time series, whose `_id` is not a key. The error's class is
        `kind`.
    """
    try:
        options = {"nameOnly": True, "authorizedCollections": True}
        found = list(client[database].list_collections(filter={"name": name}, **options))
    except (package("pymongo.errors").PyMongoError, OSError) as error:
        raise server.explained(kind, f"collection {database}.{name} cannot be looked up", error) from error
    if not found:
        raise kind(
            f"{server.shown} has no collection {database}.{name}", remedy="check both names, or create the collection"
        )
    collection_kind = str(found[0].get("type", "collection"))
    if collection_kind != "collection":
        raise kind(
            f"{server.shown}: {database}.{name} is a {collection_kind}",
            remedy="use a collection whose documents have an _id",
        )


def is_passing(error: BaseException) -> bool:
    """Return whether a retry may succeed without a user's action."""
    errors = package("pymongo.errors")
    if isinstance(error, errors.OperationFailure):
        return passes(error.code) or error.has_error_label("RetryableWriteError")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return False
    return isinstance(error, errors.ConnectionFailure | OSError)


def passes(code: int | None) -> bool:
    return code in _PASSING


def message_of(error: BaseException) -> str:
    """Return the server's message, with the name of its code."""
    details = getattr(error, "details", None)
    if isinstance(details, dict) and details.get("errmsg"):
        return words_of(details)
    return (
        " ".join((str(error) or type(error).__name__).split())
        .partition(" (configured")[0]
        .partition(", Timeout: ")[0][:1000]
    )


def words_of(details: Any) -> str:
    """Return the message of an answer that has the field `errmsg`, such as the result of one write."""
    name = details.get("codeName") or details.get("code", "")
    more = f" {details['errInfo']}" if details.get("errInfo") else ""
    return f"{' '.join(str(details.get('errmsg', '')).split())[:700]} ({name}){more[:500]}"


def remedy(error: BaseException) -> str:
    if isinstance(error, package("pymongo.errors").OperationFailure):
        return remedy_of(error.code)
    return "check that the server runs, and check hosts, ports, TLS and replicaSet of the URL; the job retries when it fails over"


def remedy_of(code: int | None) -> str:
    return next(
        (found for codes, found in _REMEDIES if code in codes),
        "correct the request, which the server's message describes",
    )
