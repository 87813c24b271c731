"""Reading a group's offsets: it succeeds while the coordinator moves, and fails at once after a refusal."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock.common.errors import SourceError
from penstock.connectors.kafka import offsets
from penstock.connectors.kafka.client import CONNECT_S
from penstock.connectors.kafka.offsets import ClusterAway, ClusterView, KafkaTopicPartition
from tests.unit.connectors.kafka.mock_cluster import FIND_COORDINATOR, OFFSET_FETCH, MockCluster

PARTITIONS = [KafkaTopicPartition("readings", number) for number in range(3)]
ASKS = """
import sys
from penstock.connectors.kafka.offsets import ClusterView, KafkaTopicPartition
view = ClusterView({"bootstrap.servers": sys.argv[1], "group.id": "alerts", "log_level": "0"})
print({p.partition: offset for p, offset in view.committed([KafkaTopicPartition("readings", n) for n in range(3)]).items()})
"""
NOT_AVAILABLE, NOT_COORDINATOR = KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster("readings", 3) as cluster:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "alerts"})
        at = [TopicPartition("readings", 0, 7), TopicPartition("readings", 2, 9)]
        consumer.commit(offsets=at, asynchronous=False)
        consumer.close()
        yield cluster


def view(cluster: MockCluster) -> ClusterView:
    return ClusterView({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "alerts", "log_level": "0"})


@pytest.mark.parametrize(
    ("request_kind", "codes"),
    [
        (OFFSET_FETCH, [NOT_COORDINATOR] * 2),
        (OFFSET_FETCH, [NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS]),
        (OFFSET_FETCH, [KafkaError._TRANSPORT]),
        (FIND_COORDINATOR, [NOT_AVAILABLE]),
    ],
)
def test_a_moving_coordinator_does_not_crash_the_process(
    cluster: MockCluster, request_kind: int, codes: list[int]
) -> None:
    """The test uses a separate process, because a failure crashes the process."""
    cluster.answers(request_kind, *codes)
    result = subprocess.run(
        [sys.executable, "-c", ASKS, cluster.bootstrap_servers], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (0, "{0: 7, 2: 9}\n"), result.stderr


def test_a_missing_right_to_the_group_is_an_immediate_error(cluster: MockCluster) -> None:
    began = time.monotonic()
    for request in (FIND_COORDINATOR, OFFSET_FETCH):
        cluster.answers(request, *[KafkaError.GROUP_AUTHORIZATION_FAILED] * 20)
        with pytest.raises(SourceError, match=r"(?s)group 'alerts'.*GROUP_AUTHORIZATION_FAILED.*the right"):
            view(cluster).committed(PARTITIONS)
        cluster.answers(request)
    assert time.monotonic() - began < CONNECT_S / 2


def test_an_unknown_coordinator_counts_as_unreachable(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "CONNECT_S", 1.5)
    cluster.answers(FIND_COORDINATOR, *[NOT_AVAILABLE] * 50)
    with pytest.raises(ClusterAway, match="group 'alerts' cannot be read"):
        view(cluster).committed(PARTITIONS)
