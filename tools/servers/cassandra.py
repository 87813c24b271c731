"""A real Cassandra on this machine, for tests and development.

Apache Cassandra comes as jars (``mavenjars``). It runs as a single node with one token and starts in about eight seconds.

    with CassandraServer(tmp_path) as server:
        server.execute("create keyspace weather with replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")

From a shell: ``python -m tools.servers cassandra start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tools.mavenjars import MavenJars
from tools.servers.base.probes import listens
from tools.servers.base.process import ServerProcess, free_port
from tools.servers.base.programs import java
from tools.servers.base.server import HOST

JARS = MavenJars(Path(__file__).resolve().parent / "artifacts" / "cassandra")
USER = PASSWORD = "cassandra"
"""The superuser that Cassandra creates if it requires passwords."""

_EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/java.lang.ref",
    "java.base/java.lang.reflect",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)
_LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


class CassandraServer(ServerProcess):
    """A single node. A killed node recovers from its commit log at the next start.

    Args:
        passwords: the node requires a password and checks permissions.
        settings: entries of ``cassandra.yaml`` that override those of this module.
    """

    title = "Cassandra"
    patience = 180.0
    """Seconds; a node needs eight on an idle machine."""
    patience_to_stop = 15.0

    def __init__(self, root: Path, *, passwords: bool = False, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(root)
        self.passwords = passwords
        self.settings = dict(settings or {})
        self._inner_port = 0
        self._connected: tuple[Any, Any] | None = None

    def exports(self) -> dict[str, str]:
        return {"CASSANDRA_HOST": HOST, "CASSANDRA_PORT": str(self.port)}

    def _command(self) -> list[str]:
        jars = JARS.ensure()
        self._inner_port = self._inner_port or free_port()
        settings = self.root / "cassandra.yaml"
        settings.write_text(json.dumps(self._settings(), indent=1))  # JSON is valid YAML
        (self.root / "logback.xml").write_text(_LOGBACK)
        return [
            *java("384m", "-Xms384m", "-Xss384k"),
            f"-javaagent:{next(jars.glob('jamm-*.jar'))}",
            *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS),
            *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS),
            *(f"-D{name}={value}" for name, value in self._properties(settings).items()),
            "-cp",
            f"{jars}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def _properties(self, settings: Path) -> dict[str, str]:
        return {
            "cassandra.config": settings.as_uri(),
            "cassandra.storagedir": str(self.root / "storage"),
            "cassandra.logdir": str(self.root),
            "logback.configurationFile": str(self.root / "logback.xml"),
            "cassandra-foreground": "yes",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.ring_delay_ms": "0",
            "cassandra.superuser_setup_delay_ms": "0",
            "cassandra.auth_bcrypt_gensalt_log2_rounds": "4",
            "cassandra.ignore_dc": "true",
            "io.netty.tryReflectionSetAccessible": "true",
            "io.netty.eventLoopThreads": "2",
            "java.net.preferIPv4Stack": "true",
        }

    def _settings(self) -> dict[str, Any]:
        seeds = {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider"}
        asking = {
            "authenticator": "PasswordAuthenticator",
            "authorizer": "CassandraAuthorizer",
            "permissions_validity": "0ms",
        }
        return {
            "cluster_name": "penstock",
            "num_tokens": 1,
            "initial_token": "0",
            "auto_bootstrap": False,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "seed_provider": [{**seeds, "parameters": [{"seeds": f"{HOST}:{self._inner_port}"}]}],
            "listen_address": HOST,
            "rpc_address": HOST,
            "storage_port": self._inner_port,
            "native_transport_port": self.port,
            "start_native_transport": True,
            "commitlog_sync": "batch",
            "commitlog_segment_size": "4MiB",
            "commitlog_total_space": "64MiB",
            "memtable_heap_space": "32MiB",
            "memtable_offheap_space": "32MiB",
            "file_cache_size": "16MiB",
            "key_cache_size": "1MiB",
            "counter_cache_size": "1MiB",
            "concurrent_reads": 4,
            "concurrent_writes": 8,
            "concurrent_compactors": 1,
            "hinted_handoff_enabled": False,
            "auto_snapshot": False,
            "dynamic_snitch": False,
            **(asking if self.passwords else {}),
            **self.settings,
        }

    def _responds(self) -> bool:
        if listens(self.port):
            with suppress(Exception):
                self.execute("select release_version from system.local")
                return True
            self._disconnect()
        return False

    def execute(self, statement: str, values: Any = None) -> list[Any]:
        """Run a statement as the superuser, on one connection that stays open."""
        if self._connected is None:
            self._connected = self._connect()
        return list(self._connected[1].execute(statement, values))

    def _connect(self) -> tuple[Any, Any]:
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import RoundRobinPolicy

        logging.getLogger("cassandra").setLevel(logging.CRITICAL)
        user = PlainTextAuthProvider(USER, PASSWORD) if self.passwords else None
        profile = ExecutionProfile(RoundRobinPolicy(), request_timeout=30)
        cluster = Cluster(
            [HOST],
            port=self.port,
            auth_provider=user,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            schema_metadata_enabled=False,
            protocol_version=4,
        )
        try:
            return cluster, cluster.connect()
        except BaseException:
            cluster.shutdown()
            raise

    def _disconnect(self) -> None:
        connected, self._connected = self._connected, None
        if connected is not None:
            connected[0].shutdown()

    def _end(self, number: signal.Signals) -> None:
        self._disconnect()
        super()._end(number)
