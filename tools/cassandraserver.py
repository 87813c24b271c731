"""A real Cassandra on this machine, for tests and development.

Apache Cassandra comes as jars (``mavenjars``) and runs as a single node with one token, which is up in some eight seconds.

    with CassandraServer(tmp_path) as server:
        server.execute("create keyspace weather with replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")

From a shell: ``python tools/cassandraserver.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools.errors import NotRunning, Unsupported
from tools.mavenjars import MavenJars
from tools.servercommand import ServerCommand

if TYPE_CHECKING:
    from types import TracebackType

JARS = MavenJars(Path(__file__).resolve().parent / "cassandraserver")
HOST = "127.0.0.1"
READY_TIMEOUT = 180.0
"""Seconds; a node needs eight on an idle machine."""
USER = PASSWORD = "cassandra"
"""Of the superuser, whom Cassandra makes by itself where it asks for passwords."""

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


class CassandraServer:
    """A node that lives as long as the ``with`` block, or between ``start`` and ``stop``.

    ``root`` holds the data and the log (``server.log``); starting again in the same root finds the same tables, under the same port.
    ``settings`` go over those of ``cassandra.yaml`` that are written here; ``passwords``: it asks for them, and for rights.
    """

    def __init__(self, root: Path, *, passwords: bool = False, settings: Mapping[str, Any] | None = None) -> None:
        self.root = Path(root)
        self.passwords = passwords
        self.settings = dict(settings or {})
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._inner_port = 0
        self._connected: tuple[Any, Any] | None = None

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    def start(self) -> Self:
        """Start the node and wait until it answers.

        Raises ``BuildFailed`` when the jars cannot be had, ``NotRunning`` when it does not come up.
        """
        jars = JARS.ensure()
        self.root.mkdir(parents=True, exist_ok=True)
        if not self.port:
            self.port, self._inner_port = _free_ports(2)
        settings = self.root / "cassandra.yaml"
        settings.write_text(json.dumps(self._settings(), indent=1))  # which is YAML
        (self.root / "logback.xml").write_text(_LOGBACK)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(jars, settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.root,
            )
        self._await_ready()
        return self

    def _command(self, jars: Path, settings: Path) -> list[str]:
        java = shutil.which("java")
        if java is None:
            raise Unsupported("there is no java on the PATH", remedy="install a Java 17")
        properties = {
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
        agent = next(jars.glob("jamm-*.jar"))
        return [
            java,
            "-Xms384m",
            "-Xmx384m",
            "-Xss384k",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:ActiveProcessorCount=2",
            "-XX:+PerfDisableSharedMem",
            f"-javaagent:{agent}",
            *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS),
            *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENS),
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp",
            f"{jars}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]

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

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        while True:
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                text = self.log.read_text(errors="replace")[-2500:]
                self.stop()
                raise NotRunning(f"Cassandra did not come up on port {self.port}:\n{text}", remedy=f"see {self.log}")
            if _listens(self.port):
                with suppress(Exception):
                    self.execute("select release_version from system.local")
                    return
                self._disconnect()
            time.sleep(0.1)

    def execute(self, statement: str, values: Any = None) -> list[Any]:
        """As the superuser; by one connection, which is kept."""
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

    def stop(self) -> None:
        """End the node; what it stored stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a machine dies: nothing is written any more; the next start recovers from the log."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.start()

    def pause(self) -> None:
        """Freeze it: connections stand, nothing is answered. It is frozen when this returns."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            raise NotRunning("Cassandra does not run", remedy=f"start it first; its log is {self.log}")
        return self.process

    def _end(self, number: signal.Signals) -> None:
        self._disconnect()
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has now; all held at once, so that no two are the same."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = CassandraServer(options.state_dir).start()
    assert server.process is not None
    return {"CASSANDRA_HOST": HOST, "CASSANDRA_PORT": str(server.port)}, [server.process]


if __name__ == "__main__":
    sys.exit(ServerCommand("cassandraserver", "A real Cassandra for development.", _start).run())
