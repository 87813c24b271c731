"""Errors of requests to the cluster: some are temporary, others are not."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.common.errors import SourceError
from penstock.connectors.kafka.offsets import ClusterAway, ClusterView


class Silent:
    def poll(self, timeout: float) -> None:
        pass


def error_of(code: int, monkeypatch: pytest.MonkeyPatch) -> Exception:
    view = ClusterView({"bootstrap.servers": "localhost:1"})
    monkeypatch.setattr(view, "_client", Silent)

    def question(client: Any) -> Any:
        raise KafkaException(KafkaError(code))

    with pytest.raises(SourceError) as caught:
        view._query("topic 'readings' cannot be read", question)
    return caught.value


@pytest.mark.parametrize(
    "code",
    [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT],
)
def test_unreachable_brokers_are_retried(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(error_of(code, monkeypatch), ClusterAway)


def test_a_refusal_of_a_broker_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(error_of(KafkaError.TOPIC_AUTHORIZATION_FAILED, monkeypatch), ClusterAway)
