"""Real Kafka brokers on this machine, for tests, demos and benchmarks.

A fake of Kafka lacks its transactions: fencing by epochs, the last stable offset, timeouts that abort. Apache Kafka
comes as jars (``mavenjars``) and runs as KRaft nodes. Each node is broker and controller, and starts in about five seconds.

    with KafkaServer(tmp_path) as kafka:
        kafka.create_topic("readings", partitions=4)
        Producer({"bootstrap.servers": kafka.bootstrap_servers})

Clients use the listener ``CLIENT``, which can have security. The brokers and this module's admin client use a second
listener without security, so that a test can revoke the clients' access.

From a shell: ``python -m tools.servers kafka start|stop|status --state-dir DIR``.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from tools.errors import NotRunning, ToolError
from tools.mavenjars import MavenJars
from tools.servers.base.probes import listens
from tools.servers.base.process import ServerProcess, free_ports
from tools.servers.base.programs import java
from tools.servers.base.server import HOST, Server

JARS = MavenJars(Path(__file__).resolve().parent / "artifacts" / "kafka")


class Broker(ServerProcess):
    """One node of a cluster: a broker and a controller. ``port`` is that of the clients' listener."""

    patience = 120.0
    """Seconds; a broker needs five on an idle machine."""
    patience_to_stop = 10.0
    advice = "check that the ports are free and the properties are valid"

    def __init__(self, root: Path, node: int, host: str, ports: tuple[int, int, int]) -> None:
        port, self.inner_port, self.controller_port = ports
        super().__init__(root, port, host)
        self.title = f"Broker {node}"
        self.node = node
        self.properties = self.root / f"broker-{node}.properties"
        self.wanted = 1
        """The number of brokers that this broker must know to be ready."""

    @property
    def log(self) -> Path:
        return self.root / f"broker-{self.node}.log"

    def _command(self) -> list[str]:
        return [*_java("384m"), "kafka.Kafka", str(self.properties)]

    def _responds(self) -> bool:
        """Return whether the broker reports that it is part of the cluster."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if not listens(self.port, self.host):
            return False
        client = AdminClient({"bootstrap.servers": f"{HOST}:{self.inner_port}", "log_level": 0})
        try:
            return len(client.list_topics(timeout=2).brokers) >= self.wanted
        except KafkaException:
            return False


class KafkaServer(Server):
    """A cluster of brokers. ``root`` also holds their logs (``broker-1.log``). Nodes are numbered from 1.

    Args:
        properties: broker properties that override those of this module.
        transaction_version: Kafka's feature of this name. 2 means that every transaction raises the producer's epoch (KIP-890).
        security: protocol of the clients' listener, such as ``SASL_PLAINTEXT``. Its settings are in ``properties``.
        host: address of the clients' listener.
    """

    title = "Kafka"

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
        super().__init__(root)
        self.host = host
        self.security = security
        self.nodes = list(range(1, brokers + 1))
        ports = iter(free_ports(3 * brokers))
        self._brokers = {
            node: Broker(self.root, node, host, (next(ports), next(ports), next(ports))) for node in self.nodes
        }
        self._properties = dict(properties or {})
        self._transaction_version = transaction_version
        self._admin: Any = None

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--brokers", type=int, default=1, help="number of brokers (1)")
        parser.add_argument("--host", default=HOST, help=f"address of the brokers for clients ({HOST})")
        parser.add_argument(
            "--topic", action="append", default=[], help="topic to create, as NAME:PARTITIONS; can be repeated"
        )

    @classmethod
    def with_options(cls, options: argparse.Namespace) -> Self:
        return cls(options.state_dir, options.brokers, host=options.host)

    def set_up(self, options: argparse.Namespace) -> None:
        for topic in options.topic:
            name, _, partitions = topic.partition(":")
            self.create_topic(name, int(partitions or 1))

    def exports(self) -> dict[str, str]:
        return {"KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers}

    def running(self) -> list[subprocess.Popen[bytes]]:
        return [process for broker in self._brokers.values() for process in broker.running()]

    @property
    def bootstrap_servers(self) -> str:
        """The ``host:port`` of every broker, for clients."""
        return ",".join(f"{self.host}:{broker.port}" for broker in self._brokers.values())

    @property
    def inner_servers(self) -> str:
        """The ``host:port`` of every broker on the listener without security."""
        return ",".join(f"{HOST}:{broker.inner_port}" for broker in self._brokers.values())

    def start(self) -> Self:
        """Start every node that is not running, and wait until all brokers respond.

        Raises ``BuildFailed`` if the jars cannot be fetched, and ``NotRunning`` if a broker does not start.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self._format()
        self._launch(self._brokers.values())
        return self

    def restart(self, node: int = 1) -> None:
        """Start a broker that was killed or stopped, and wait until it responds."""
        self._launch([self._brokers[node]])

    def _launch(self, brokers: Iterable[Broker]) -> None:
        """Start the brokers that are not running, and wait until every running broker is part of the cluster."""
        for broker in brokers:
            if not broker.is_running():
                broker.launch()
        running = [broker for broker in self._brokers.values() if broker.is_running()]
        for broker in running:
            broker.wanted = len(running)
            broker.wait_until_ready()

    def stop(self) -> None:
        """Stop all brokers, with SIGKILL if necessary. Their data stays in ``root``."""
        for process in self.running():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for broker in self._brokers.values():
            broker.stop()

    def runs(self, node: int = 1) -> bool:
        return self._brokers[node].is_running()

    def kill(self, node: int = 1) -> None:
        """Kill the broker with SIGKILL. It writes nothing more and does not notify the other brokers."""
        self._brokers[node].kill()

    def pause(self, node: int = 1) -> None:
        """Freeze the broker with SIGSTOP: it accepts connections and does not respond. Return after it is frozen."""
        self._brokers[node].pause()

    def resume(self, node: int = 1) -> None:
        """Resume a paused broker. It then answers the requests that arrived during the pause."""
        self._brokers[node].resume()

    def log(self, node: int = 1) -> Path:
        """Return the log file of the broker."""
        return self._brokers[node].log

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic on all brokers and wait until every partition has a leader.

        ``config`` holds the topic's settings, with ``_`` for ``.`` in their names.
        """
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
        raise ToolError(
            f"topic {name!r} has no leader for every partition after 30 s", remedy=f"see the logs in {self.root}"
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no broker knows it."""
        admin = self.admin()
        for future in admin.delete_topics([name]).values():
            future.result(30)
        while name in admin.list_topics(timeout=10).topics:
            time.sleep(0.05)

    def limit_clients(self, **rates: int) -> None:
        """Set quotas, such as ``producer_byte_rate``, for every client that has none. Without arguments, remove them."""
        names = "producer_byte_rate,consumer_byte_rate"
        change = (
            ["--add-config", ",".join(f"{n}={r}" for n, r in rates.items())] if rates else ["--delete-config", names]
        )
        program = [*_java("256m"), "kafka.admin.ConfigCommand", "--bootstrap-server", self.inner_servers]
        command = [*program, "--alter", "--entity-type", "clients", "--entity-default", *change]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise ToolError(f"the quota was not set: {done.stdout[-1000:]}", remedy=f"see {self.log()}")

    def admin(self) -> Any:
        """Return an ``AdminClient`` on the listener without security. All callers share the client, because pending
        requests end when a client is deleted.
        """
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.inner_servers, "log_level": 0})
        return self._admin

    def _format(self) -> None:
        """Create the nodes' folders and write their settings."""
        cluster = self.root / "cluster.id"
        if not cluster.exists():
            cluster.write_text(urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        formatting = []
        for node, broker in self._brokers.items():
            broker.properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings(broker).items()))
            if (self.root / f"data-{node}" / "meta.properties").exists():
                continue
            # The option and its value are joined by "=". One id in 64 begins with a dash and would otherwise be read as an option.
            identified = f"--cluster-id={cluster.read_text()}"
            command = [*_java("256m"), "kafka.tools.StorageTool", "format", identified]
            feature = ["--feature", f"transaction.version={self._transaction_version}"]
            formatting.append(
                subprocess.Popen(
                    [*command, "-c", str(broker.properties), *feature], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
            )
        for process in formatting:
            output, _ = process.communicate()
            if process.returncode:
                raise NotRunning(
                    f"a broker's folder could not be created:\n{output.decode(errors='replace')[-1500:]}",
                    remedy=f"check that {self.root} has space",
                )

    def _settings(self, broker: Broker) -> dict[str, str]:
        copies = str(min(3, len(self.nodes)))
        listeners = f"CLIENT://{self.host}:{broker.port},INNER://{HOST}:{broker.inner_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(broker.node),
            "controller.quorum.voters": ",".join(
                f"{b.node}@{HOST}:{b.controller_port}" for b in self._brokers.values()
            ),
            "listeners": f"{listeners},CONTROLLER://{HOST}:{broker.controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"CLIENT:{self.security},INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.root / f"data-{broker.node}"),
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


def _java(heap: str) -> list[str]:
    """Return the start of a command that runs a program of Kafka's jars."""
    logging = [f"-Dorg.slf4j.simpleLogger.{option}" for option in ("defaultLogLevel=warn", "showDateTime=true")]
    return [*java(heap, *logging), "-cp", f"{JARS.ensure()}/*"]
