"""What an answer that does not come says of the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.common.errors import SourceError
from penstock.connectors.kafka.offsets import ClusterAway, ClusterView


class Silent:
    def poll(self, timeout: float) -> None:
        pass


def asked(code: int, monkeypatch: pytest.MonkeyPatch) -> Exception:
    view = ClusterView({"bootstrap.servers": "localhost:1"})
    monkeypatch.setattr(view, "_client", Silent)

    def question(client: Any) -> Any:
        raise KafkaException(KafkaError(code))

    with pytest.raises(SourceError) as caught:
        view._ask("topic 'readings' cannot be read", question)
    return caught.value


@pytest.mark.parametrize(
    "code",
    [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT],
)
def test_brokers_that_are_away_may_come_back(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(asked(code, monkeypatch), ClusterAway)


def test_what_a_broker_refuses_stays_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(asked(KafkaError.TOPIC_AUTHORIZATION_FAILED, monkeypatch), ClusterAway)
