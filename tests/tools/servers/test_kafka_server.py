"""Kafka for tests: it starts, keeps its data after a kill, can be paused, and consists only of pinned jars."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.tools.servers.commands import started
from tools.errors import BuildFailed
from tools.mavenjars import MavenJars
from tools.servers.kafka import JARS, KafkaServer

pytestmark = pytest.mark.kafka


def test_acknowledged_messages_survive_a_kill(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as kafka:
        kafka.create_topic("kept", partitions=2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
        producer.produce("kept", b"value", partition=1)
        assert producer.flush(20) == 0
        kafka.kill()
        assert not kafka.runs()
        kafka.restart()
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"})
        consumer.assign([TopicPartition("kept", 1, 0)])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"value"
        consumer.close()


def test_a_paused_broker_does_not_respond_until_it_resumes(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as kafka:
        admin = kafka.admin()
        kafka.pause()
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.5)
        kafka.resume()
        assert admin.list_topics(timeout=20).brokers


def test_brokers_outlive_the_command_that_starts_them(tmp_path: Path) -> None:
    with started("kafka", tmp_path, "--topic", "orders:3") as settings:
        consumer = Consumer({"bootstrap.servers": settings["KAFKA_BOOTSTRAP_SERVERS"], "group.id": "g"})
        assert len(consumer.list_topics("orders", timeout=10).topics["orders"].partitions) == 3
        consumer.close()


def test_a_jar_that_is_not_pinned_is_rejected(tmp_path: Path) -> None:
    folder = JARS.ensure()
    shutil.copytree(folder, tmp_path / "jars")
    jars = MavenJars(JARS.directory)
    jars.check(tmp_path / "jars")
    (tmp_path / "jars" / "slf4j-simple-1.7.36.jar").write_bytes(b"another")
    with pytest.raises(BuildFailed, match=r"slf4j-simple-1\.7\.36\.jar"):
        jars.check(tmp_path / "jars")
