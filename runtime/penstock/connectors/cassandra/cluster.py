"""Where a Cassandra is and as whom it is asked; connections, prepared statements, and errors in words."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.common.errors import InvalidJob, PlatformError
from penstock.common.extras import module_of_extra
from penstock.common.folders.start_folder import absolute
from penstock.common.secret_file import read_secret
from penstock.connectors.cassandra.options import ConsistencyLevel

E = TypeVar("E", bound=PlatformError)

CONNECT_S = 10.0
PROTOCOL = 4
"""That of Cassandra 2.2 and all later ones: none has to be found out by trying."""
REQUEST_S = 10.0
"""Until a request without an answer counts as lost."""


def package(name: str = "cassandra") -> Any:
    return module_of_extra(name, "cassandra", "Cassandra")


@dataclass(frozen=True)
class ClusterBuilder:
    """
    Args:
        hosts: one name or several, of which one has to answer.
        user: with `password_file`, whose content is read at every connection.
        local_datacenter: whose nodes are asked; that of the first host that answers, unless given.
        ca_file: certificates that sign the servers'; given, connections are encrypted. Certificates must have the servers' addresses, by
            which the driver goes to them, unless `checks_names` is False.
        cert_file, key_file: what the client shows, where servers ask for it.
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
            raise InvalidJob(f"hosts={self.hosts!r} of Cassandra", remedy="name one host, or a list of them")
        if bool(self.user) != bool(self.password_file):
            raise InvalidJob("user and password_file of Cassandra go together", remedy="give both, or neither")

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
        """
        Args:
            asks_replicas: rows go to a node that has them, for which the driver has to read the whole schema first.

        Raises:
            PlatformError: of this kind: no host answers, or lets us.
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

    def explained(self, kind: type[E], what: str, error: BaseException) -> E:
        text = told(error)
        return kind(f"{self.shown}: {what}: {text}", remedy=remedy(error, text))


class Stamps:
    """The times of writes, in microseconds since 1970. One that is given stands until the next."""

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
        """
        Raises:
            DriverException: the driver's.
        """
        return self.session.prepare(statement)

    def execute(self, statement: Any, values: Any = None) -> list[Any]:
        self.stamps.given = None
        return list(self.session.execute(statement, values))

    def close(self) -> None:
        self._cluster.shutdown()


def is_lost(error: BaseException) -> bool:
    """Whether the server may do it another time: it was gone, busy, or had too few replicas; else the statement or a row is wrong."""
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
"""Errors of the driver that have no base in common."""


def told(error: BaseException) -> str:
    """In one line, without Python's repr of every host's error where all say the same."""
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
        return "create the keyspace (create keyspace … with replication = …), or name another one"
    if "table" in low and ("does not exist" in low or "unconfigured" in low):
        return "create the table, and name it 'keyspace.table' as it is in Cassandra"
    if "undefined column" in low or "unknown identifier" in low:
        return "name columns of the table as they are there, or add the column"
    if "primary key" in low or "partition key" in low or "clustering" in low:
        return "a write names all columns of the primary key"
    if name == "Unavailable" or "unavailable" in low or "not enough replicas" in low:
        return "too few replicas are up for the consistency level: start nodes, or ask for fewer (MapperOptions.consistency_level)"
    if name in ("InvalidRequest", "SyntaxException") or "code=2200" in low or "code=2000" in low:
        return "correct the statement, or the rows that it is given"
    if "certificate" in low or "ssl" in low:
        return "check ca_file, cert_file and key_file, and that the server's certificate has the host's name"
    return (
        "check that the server runs, hosts, port, TLS settings and the network; the job tries again when it fails over"
    )
