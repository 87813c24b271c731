"""Real Kafka brokers on this machine, for tests, demos and benchmarks.

No fake of Kafka has its transactions: fencing by epochs, the last stable offset, time-outs that abort. Apache Kafka itself
comes as jars (``mavenjars``) and runs as KRaft nodes, each broker and controller at once; one is up in some five seconds.

    with KafkaServer(tmp_path) as kafka:
        kafka.create_topic("readings", partitions=4)
        Producer({"bootstrap.servers": kafka.bootstrap_servers})

Clients use the listener ``CLIENT``, whose security may be set; the brokers among themselves and this module's own admin
client use another one without any, so that a test can lock itself out.

From a shell: ``python tools/kafkaserver.py start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if not __package__:  # run as a script: the package is beside this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tools.errors import NotRunning, ToolError, Unsupported
from tools.mavenjars import MavenJars

if TYPE_CHECKING:
    from types import TracebackType

JARS = MavenJars(Path(__file__).resolve().parent / "kafkaserver")
READY_TIMEOUT = 120.0
"""Seconds; a broker needs five on an idle machine."""
HOST = "127.0.0.1"
_HEAP = "-Xmx384m"


class KafkaServer:
    """Brokers that live as long as the ``with`` block, or between ``start`` and ``stop``.

    ``root`` holds what the brokers store and their logs (``broker-1.log``); starting again in the same root finds the same
    topics, under the same ports. Nodes are numbered from 1. ``properties`` are the brokers' own and go over those set here;
    ``transaction_version`` is Kafka's feature of that name (2: every transaction raises the producer's epoch, KIP-890).
    ``security``: protocol of the clients' listener, such as ``SASL_PLAINTEXT``; what it needs is in ``properties``. ``host``:
    the address of that listener.
    """

    def __init__(
        self,
        root: Path,
        brokers: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        transaction_version: int = 2,
        security: str = "PLAINTEXT",
        host: str = HOST,
    ) -> None:
        self.root = Path(root)
        self.host = host
        self.nodes = list(range(1, brokers + 1))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.security = security
        self._properties = dict(properties or {})
        self._transaction_version = transaction_version
        self._ports: dict[int, tuple[int, int, int]] = {}
        self._admin: Any = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, for clients; known once the server was started."""
        return ",".join(f"{self.host}:{self._ports[node][0]}" for node in self.nodes)

    @property
    def inner_servers(self) -> str:
        """The same of the listener without security."""
        return ",".join(f"{HOST}:{self._ports[node][1]}" for node in self.nodes)

    def start(self) -> Self:
        """Start every node that does not run and wait until all brokers answer.

        Raises ``BuildFailed`` when the jars cannot be had, ``NotRunning`` when a broker does not come up.
        """
        jars = JARS.ensure()
        self.root.mkdir(parents=True, exist_ok=True)
        if not self._ports:
            ports = iter(_free_ports(3 * len(self.nodes)))
            self._ports = {node: (next(ports), next(ports), next(ports)) for node in self.nodes}
        self._format(jars)
        for node in self.nodes:
            if not self.runs(node):
                self._launch(node, jars)
        self._await_ready()
        return self

    def stop(self) -> None:
        """End all brokers, by force if need be; what they stored stays in ``root``."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def runs(self, node: int = 1) -> bool:
        process = self.processes.get(node)
        return process is not None and process.poll() is None

    def kill(self, node: int = 1) -> None:
        """SIGKILL: the broker writes nothing more and says goodbye to nobody."""
        process = self._signal(node, signal.SIGKILL)
        process.wait()

    def restart(self, node: int = 1) -> None:
        """Start a broker that was killed or stopped, and wait until it answers."""
        if not self.runs(node):
            self._launch(node, JARS.ensure())
        self._await_ready()

    def pause(self, node: int = 1) -> None:
        """Freeze it: connections are taken, nothing is answered. It is frozen when this returns."""
        process = self._signal(node, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self, node: int = 1) -> None:
        """Let a paused broker go on; it then answers what it was asked meanwhile."""
        self._signal(node, signal.SIGCONT)

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic on all brokers. ``config``: the topic's, with ``_`` for ``.``; waits until every leader is known."""
        from confluent_kafka.admin import NewTopic

        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=len(self.nodes), config=settings)
        admin = self.admin()
        for future in admin.create_topics([topic]).values():
            future.result(30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            known = admin.list_topics(timeout=10).topics.get(name)
            if known and len(known.partitions) == partitions and all(p.leader > 0 for p in known.partitions.values()):
                return
            time.sleep(0.05)
        raise ToolError(f"topic {name!r} has no leaders after 30 s", remedy=f"see the logs in {self.root}")

    def delete_topic(self, name: str) -> None:
        """Remove a topic and wait until no broker knows it."""
        admin = self.admin()
        for future in admin.delete_topics([name]).values():
            future.result(30)
        while name in admin.list_topics(timeout=10).topics:
            time.sleep(0.05)

    def limit_clients(self, **rates: int) -> None:
        """Quotas of every client without one of its own, such as ``producer_byte_rate``; none: there are no bounds any more."""
        names = "producer_byte_rate,consumer_byte_rate"
        change = (
            ["--add-config", ",".join(f"{n}={r}" for n, r in rates.items())] if rates else ["--delete-config", names]
        )
        java = [
            *_java(JARS.ensure(), "-Xmx256m"),
            "kafka.admin.ConfigCommand",
            "--bootstrap-server",
            self.inner_servers,
        ]
        command = [*java, "--alter", "--entity-type", "clients", "--entity-default", *change]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise ToolError(f"no quota was set: {done.stdout[-1000:]}", remedy=f"see {self.log()}")

    def admin(self) -> Any:
        """An ``AdminClient`` on the listener without security: one for all, since what it was asked ends with it."""
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.inner_servers, "log_level": 0})
        return self._admin

    def log(self, node: int = 1) -> Path:
        """What the broker wrote."""
        return self.root / f"broker-{node}.log"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _format(self, jars: Path) -> None:
        """Make the nodes' folders and write their settings."""
        cluster = self.root / "cluster.id"
        if not cluster.exists():
            cluster.write_text(urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        formatting = []
        for node in self.nodes:
            settings = self.root / f"broker-{node}.properties"
            settings.write_text("".join(f"{key}={value}\n" for key, value in self._settings(node).items()))
            if (self.root / f"data-{node}" / "meta.properties").exists():
                continue
            # Joined by "=": one identifier in 64 begins with a dash and is else read as an option.
            identified = f"--cluster-id={cluster.read_text()}"
            command = [*_java(jars, "-Xmx256m"), "kafka.tools.StorageTool", "format", identified]
            feature = ["--feature", f"transaction.version={self._transaction_version}"]
            formatting.append(
                subprocess.Popen(
                    [*command, "-c", str(settings), *feature], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
            )
        for process in formatting:
            output, _ = process.communicate()
            if process.returncode:
                raise NotRunning(
                    f"a broker's folder could not be made:\n{output.decode(errors='replace')[-1500:]}",
                    remedy=f"is there space in {self.root}?",
                )

    def _settings(self, node: int) -> dict[str, str]:
        client, inner, controller = self._ports[node]
        copies = str(min(3, len(self.nodes)))
        listeners = f"CLIENT://{self.host}:{client},INNER://{HOST}:{inner}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": ",".join(f"{n}@{HOST}:{self._ports[n][2]}" for n in self.nodes),
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"CLIENT:{self.security},INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.root / f"data-{node}"),
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": "1",
            "default.replication.factor": copies,
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "controlled.shutdown.enable": "false",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.dedupe.buffer.size": "10000000",
            **self._properties,
        }

    def _launch(self, node: int, jars: Path) -> None:
        with self.log(node).open("ab") as log:
            self.processes[node] = subprocess.Popen(
                [*_java(jars, _HEAP), "kafka.Kafka", str(self.root / f"broker-{node}.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _await_ready(self) -> None:
        """Until every broker that runs is in the cluster, by its own word."""
        deadline = time.monotonic() + READY_TIMEOUT
        waiting = {node for node in self.nodes if self.runs(node)}
        wanted = len(waiting)
        while waiting:
            for node in sorted(waiting):
                if not self.runs(node):
                    raise NotRunning(
                        f"broker {node} ended at once with code {self.processes[node].returncode}:\n"
                        + self.log(node).read_text(errors="replace")[-2500:],
                        remedy="are the ports free, are the properties right?",
                    )
                if _listens(self.host, self._ports[node][0]) and self._sees(node, wanted):
                    waiting.discard(node)
            if time.monotonic() > deadline:
                raise NotRunning(
                    f"broker {min(waiting)} did not answer within {READY_TIMEOUT:.0f} s", remedy=f"see {self.log()}"
                )
            time.sleep(0.05)

    def _sees(self, node: int, wanted: int) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": f"{HOST}:{self._ports[node][1]}", "log_level": 0})
        try:
            return len(client.list_topics(timeout=2).brokers) >= wanted
        except KafkaException:
            return False

    def _signal(self, node: int, number: signal.Signals) -> subprocess.Popen[bytes]:
        if not self.runs(node):
            raise NotRunning(f"broker {node} does not run", remedy=f"start it first; its log is {self.log(node)}")
        process = self.processes[node]
        process.send_signal(number)
        return process


def _java(jars: Path, heap: str) -> list[str]:
    """Options that make a short life cheap: no second compiler, the collector with the fewest threads."""
    java = shutil.which("java")
    if java is None:
        raise Unsupported("there is no java on the PATH", remedy="install a Java 17 or newer")
    return [
        java,
        heap,
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:ActiveProcessorCount=2",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-cp",
        f"{jars}/*",
    ]


def _free_ports(count: int) -> Iterable[int]:
    """Ports that nobody has now; all held at once, so that no two are the same."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


if __name__ == "__main__":
    from tools.kafkacommand import main

    sys.exit(main())
