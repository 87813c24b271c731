"""The address and credentials of a Cassandra cluster, connections, prepared statements, and readable errors."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.common.credentials.secret_file import read_secret
from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.folders.start_folder import absolute
from penstock.common.program.extras import import_extra
from penstock.connectors.cassandra.options import ConsistencyLevel

E = TypeVar("E", bound=PlatformError)

CONNECT_S = 10.0
PROTOCOL = 4
"""Protocol version of Cassandra 2.2 and later. A fixed version avoids trying several."""
REQUEST_S = 10.0
"""Seconds without an answer after which a request counts as lost."""


def package(name: str = "cassandra") -> Any:
    return import_extra(name, "cassandra", "Cassandra")


@dataclass(frozen=True)
class ClusterBuilder:
    """The address and the credentials of a Cassandra cluster.

    Args:
        hosts: one host name or several. At least one host must answer.
        user: the user's name. It needs `password_file`, the file of the password, which is read at every connection.
        local_datacenter: the data center whose nodes get requests. The default is the data center of the first host
            that answers.
        ca_file: the certificate authority of the servers' certificates. If given, connections are encrypted. Unless
            `checks_names` is False, the certificates must contain the servers' addresses that the driver uses.
        cert_file, key_file: the client's certificate and key, if servers require them.
    """

    hosts: str | Sequence[str] = "127.0.0.1"
    port: int = 9042
    user: str = ""
    password_file: str = ""
    local_datacenter: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    checks_names: bool = True

    def __post_init__(self) -> None:
        package()
        hosts = (self.hosts,) if isinstance(self.hosts, str) else tuple(self.hosts)
        object.__setattr__(self, "hosts", hosts)
        if not hosts or not all(isinstance(host, str) and host for host in hosts):
            raise InvalidJob(
                f"hosts={self.hosts!r} names no host of Cassandra", remedy="pass one host, or a list of hosts"
            )
        if bool(self.user) != bool(self.password_file):
            raise InvalidJob(
                "Cassandra needs user and password_file together, and got one of them", remedy="pass both, or neither"
            )

    @property
    def shown(self) -> str:
        return f"Cassandra {','.join(self.hosts)}:{self.port}"

    def connect(
        self,
        kind: type[PlatformError],
        level: ConsistencyLevel = ConsistencyLevel.LOCAL_QUORUM,
        *,
        asks_replicas: bool = False,
    ) -> Connection:
        """Return a connection.

        Args:
            asks_replicas: send rows directly to a replica. The driver has to read the whole schema first.

        Raises:
            PlatformError: no host answers or grants access. The error's class is `kind`.
        """
        driver, policies = package("cassandra.cluster"), package("cassandra.policies")
        stamps = Stamps()
        balancing = policies.TokenAwarePolicy(policies.DCAwareRoundRobinPolicy(self.local_datacenter))
        profile = driver.ExecutionProfile(
            load_balancing_policy=balancing, consistency_level=level.value, request_timeout=REQUEST_S
        )
        options = {
            "execution_profiles": {driver.EXEC_PROFILE_DEFAULT: profile},
            "auth_provider": self._authentication(kind),
            "ssl_context": self._encryption(kind),
            "timestamp_generator": stamps,
            "connect_timeout": CONNECT_S,
            "control_connection_timeout": CONNECT_S,
            "idle_heartbeat_interval": 5,
            "idle_heartbeat_timeout": 5,
            "reconnection_policy": policies.ExponentialReconnectionPolicy(0.2, 5.0),
            "schema_metadata_enabled": asks_replicas,
            "protocol_version": PROTOCOL,
            "compression": False,
        }
        cluster = None
        try:
            cluster = driver.Cluster(list(self.hosts), port=self.port, **options)
            return Connection(cluster, cluster.connect(), stamps)
        except Exception as error:
            if cluster is not None:
                cluster.shutdown()
            raise self.explained(kind, "cannot connect", error) from error

    def _authentication(self, kind: type[PlatformError]) -> Any:
        if not self.user:
            return None
        password = read_secret(self.password_file, "password_file", kind)
        return package("cassandra.auth").PlainTextAuthProvider(self.user, password)

    def _encryption(self, kind: type[PlatformError]) -> ssl.SSLContext | None:
        if not self.ca_file:
            return None
        try:
            context = ssl.create_default_context(cafile=absolute(self.ca_file))
            context.check_hostname = self.checks_names
            if self.cert_file:
                context.load_cert_chain(absolute(self.cert_file), absolute(self.key_file) if self.key_file else None)
        except (OSError, ValueError) as error:
            raise kind(
                f"certificates of {self.shown} cannot be read: {error}",
                remedy="mount ca_file, cert_file and key_file where the job runs, in PEM",
            ) from error
        return context

    def explained(self, kind: type[E], problem: str, error: BaseException) -> E:
        text = message_of(error)
        return kind(f"{self.shown}: {problem}: {text}", remedy=remedy(error, text))


class Stamps:
    """The timestamps of writes, in microseconds since 1970. A given timestamp stays in effect until another timestamp
    is given.
    """

    def __init__(self) -> None:
        self.given: int | None = None

    def __call__(self) -> int:
        return time.time_ns() // 1000 if self.given is None else self.given


class Connection:
    def __init__(self, cluster: Any, session: Any, stamps: Stamps) -> None:
        self._cluster = cluster
        self.session = session
        self.stamps = stamps

    def prepare(self, statement: str) -> Any:
        """Return the prepared statement.

        Raises:
            DriverException: the driver's error.
        """
        return self.session.prepare(statement)

    def execute(self, statement: Any, values: Any = None) -> list[Any]:
        self.stamps.given = None
        return list(self.session.execute(statement, values))

    def close(self) -> None:
        self._cluster.shutdown()


def is_lost(error: BaseException) -> bool:
    """Return whether a retry can succeed because the server was unavailable, busy or lacked replicas. Otherwise the request is wrong."""
    errors, driver = package(), package("cassandra.cluster")
    if isinstance(error, driver.NoHostAvailable):
        inner = getattr(error, "errors", None)
        reasons = list(inner.values()) if isinstance(inner, dict) else []
        return not reasons or any(not isinstance(reason, Exception) or is_lost(reason) for reason in reasons)
    if isinstance(error, errors.RequestExecutionException | errors.OperationTimedOut | OSError):
        return not isinstance(error, ssl.SSLError)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return not kinds.isdisjoint(_BUSY)


_BUSY = frozenset(
    {
        "ConnectionException",
        "IsBootstrappingErrorMessage",
        "NoConnectionsAvailable",
        "OverloadedErrorMessage",
        "ServerError",
        "UnresolvableContactPoints",
    }
)
"""Driver errors that have no common base class."""


def message_of(error: BaseException) -> str:
    """Return the error in one line. Equal errors of several hosts are merged, without Python's repr."""
    inner = getattr(error, "errors", None)
    if type(error).__name__ == "NoHostAvailable" and isinstance(inner, dict) and inner:
        return "; ".join(sorted({f"{host}: {_line(reason)}" for host, reason in inner.items()}))[:1000]
    return _line(error)


def _line(error: object) -> str:
    text = " ".join(str(error).split())[:1000]
    return text if text.strip("{}") else type(error).__name__


def remedy(error: BaseException, text: str) -> str:
    name, low = type(error).__name__, text.lower()
    if (
        "authenticationfailed" in low
        or "bad credentials" in low
        or "provided username" in low
        or "requires authentication" in low
    ):
        return "check user and password_file"
    if "has no" in low and "permission" in low:
        return "grant the job's role SELECT and MODIFY on the table"
    if "keyspace" in low and "does not exist" in low:
        return "create the keyspace (create keyspace … with replication = …), or use another one"
    if "table" in low and ("does not exist" in low or "unconfigured" in low):
        return "create the table, and write 'keyspace.table' exactly as in Cassandra"
    if "undefined column" in low or "unknown identifier" in low:
        return "write the column names exactly as in the table, or add the column"
    if "primary key" in low or "partition key" in low or "clustering" in low:
        return "add all columns of the primary key to the write"
    if name == "Unavailable" or "unavailable" in low or "not enough replicas" in low:
        return "too few replicas are up for the consistency level: start nodes, or require fewer (MapperOptions.consistency_level)"
    if name in ("InvalidRequest", "SyntaxException") or "code=2200" in low or "code=2000" in low:
        return "correct the statement or its rows"
    if "certificate" in low or "ssl" in low:
        return "check ca_file, cert_file and key_file, and that the server's certificate has the host's name"
    return "check that the server runs, and check hosts, port, TLS settings and the network; the job retries when it fails over"
