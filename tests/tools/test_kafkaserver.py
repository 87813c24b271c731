"""The tests' Kafka: it comes up, keeps what it has over a kill, stands still when told, and is made of pinned jars only."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tools.errors import BuildFailed
from tools.kafkacommand import main
from tools.kafkaserver import JARS, KafkaServer
from tools.mavenjars import MavenJars

pytestmark = pytest.mark.kafka


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
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


def test_a_paused_broker_answers_nothing_until_it_goes_on(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as kafka:
        admin = kafka.admin()
        kafka.pause()
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.5)
        kafka.resume()
        assert admin.list_topics(timeout=20).brokers


def test_brokers_of_the_command_line_outlive_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--state-dir", str(tmp_path)]
    try:
        assert main(["start", *where, "--topic", "orders:3"]) == 0
        exported = capsys.readouterr().out.strip()
        assert main(["status", *where]) == 0
        assert capsys.readouterr().out.strip() == exported
        consumer = Consumer({"bootstrap.servers": exported.partition("=")[2], "group.id": "g"})
        assert len(consumer.list_topics("orders", timeout=10).topics["orders"].partitions) == 3
        consumer.close()
    finally:
        main(["stop", *where])
    assert main(["status", *where]) == 1


def test_a_jar_that_is_not_pinned_is_refused(tmp_path: Path) -> None:
    folder = JARS.ensure()
    shutil.copytree(folder, tmp_path / "jars")
    jars = MavenJars(JARS.directory)
    jars.check(tmp_path / "jars")
    (tmp_path / "jars" / "slf4j-simple-1.7.36.jar").write_bytes(b"another")
    with pytest.raises(BuildFailed, match=r"slf4j-simple-1\.7\.36\.jar"):
        jars.check(tmp_path / "jars")
