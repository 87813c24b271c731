"""Three brokers, each of which is lost in turn. Partition leaders and coordinators of transactions and groups move. No record is lost or
repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.connectors.kafka.client import package
from penstock.connectors.kafka.sink.coordinator_client import CoordinatorClient
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until
from tests.integration.kafka.support import counting, fill, new_name, read, records, sink, source, topic, verdict
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka
BROKERS = 3
PARTITIONS = 6


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path / "kafka", BROKERS) as server:
        yield server


class Places:
    """The roles of the brokers for one job."""

    def __init__(self, kafka: KafkaServer, reads: str, writes: str, group: str, prefix: str) -> None:
        self._servers = kafka.inner_servers
        self._topics = reads, writes
        self._prefix = prefix
        self._client = Consumer({"bootstrap.servers": self._servers, "group.id": group, "log_level": 0})

    def _partitions(self) -> dict[tuple[str, int], Any]:
        """Return all partitions of all topics, including Kafka's own. Return none while the cluster cannot answer."""
        try:
            topics = self._client.list_topics(timeout=5).topics
        except KafkaException:
            return {}
        return {(name, number): about for name, of in topics.items() for number, about in of.partitions.items()}

    def led_by(self, node: int) -> set[tuple[str, int]]:
        """Return the job's partitions that this broker leads."""
        return {at for at, about in self._partitions().items() if at[0] in self._topics and about.leader == node}

    def are_in_step(self) -> bool:
        """Return whether each broker is in sync for every partition. Only then, another broker may be stopped."""
        found = self._partitions()
        return bool(found) and all(len(about.isrs) == BROKERS for about in found.values())

    def have_left(self, node: int) -> bool:
        """Return whether every partition has a leader other than this broker."""
        leaders = [about.leader for about in self._partitions().values()]
        return bool(leaders) and node not in leaders and min(leaders) > 0

    def coordinated_by(self, node: int) -> set[str]:
        """Return the transactional ids that this broker coordinates."""
        client = CoordinatorClient({"bootstrap.servers": self._servers}, 60, lambda: None)
        kind = package("aiokafka.client").CoordinationType.TRANSACTION

        async def ask(id: str) -> int:
            return int(await (await client._connected()).coordinator_lookup(kind, id))

        with closing(client):
            return {id for id in client.find(f"{self._prefix}-") if client._run(ask(id)) == node}

    def committed(self) -> int:
        """Return the sum of the group's offsets, or 0 while the cluster cannot answer."""
        partitions = [TopicPartition(self._topics[0], number) for number in range(PARTITIONS)]
        try:
            return sum(max(0, at.offset) for at in self._client.committed(partitions, timeout=5))
        except KafkaException:
            return 0

    def close(self) -> None:
        self._client.close()


def test_each_broker_is_lost_in_turn_with_the_leaders_and_coordinators_that_it_has(
    brokers: KafkaServer, tmp_path: Path
) -> None:
    servers = brokers.bootstrap_servers
    reads, writes = topic(brokers, PARTITIONS, "in"), topic(brokers, PARTITIONS, "out")
    group, prefix = new_name("group"), new_name("prefix")
    env = environment(tmp_path)
    env.set_parallelism(2)
    counting(
        env,
        source(servers, reads).set_group_id(group).build(),
        sink(servers, writes, prefix=prefix).build(),
    )
    master = started(env)
    total = 0
    led, coordinated = set(), set()

    def come() -> None:
        nonlocal total
        fill(servers, reads, records(1_000, total), PARTITIONS)
        total += 1_000

    def all_written() -> bool:
        return len(read(servers, writes)) >= total

    with closing(Places(brokers, reads, writes, group, prefix)) as places:
        for node in brokers.nodes:
            come()
            until(all_written, master)
            until(places.are_in_step, master)
            led |= places.led_by(node)
            coordinated |= places.coordinated_by(node)
            come()
            brokers.kill(node)
            until(lambda lost=node: places.have_left(lost), master)
            come()
            until(all_written, master)
            until(lambda: places.committed() >= total, master)
            if node != brokers.nodes[-1]:
                brokers.restart(node)
    assert {name for name, _ in led} == {reads, writes}
    assert coordinated
    master.request(Operation("cancel"))
    master.wait(30)
    assert verdict(servers, writes, total) == ""
