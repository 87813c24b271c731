"""What a group has committed, as its coordinator tells.

It is asked by a consumer. librdkafka's admin client has a call for it, too (`list_consumer_group_offsets`), which ends the whole
process by SIGSEGV when the broker that it asks is not the group's coordinator (any more, or yet): it then wakes the group of a
consumer, and an admin client has none (librdkafka's issue 5040, there in 2.16.0). Coordinators move when brokers are lost, which
is when attempts begin.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.client import Complaints, Properties, librdkafka, package

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST_S = 1.0
"""How long the first answer is waited for, and the next ones twice as long as the one before: a slow broker answers, too."""
_LISTEN_S = 0.1
_SETTINGS = {"enable.auto.commit": "false", "isolation.level": "read_uncommitted"}
"""What a transaction has not committed yet is not waited for."""


class GroupClient:
    """A consumer that reads nothing.

    Raises:
        KafkaException: the client refuses its properties.
    """

    def __init__(self, properties: Properties, complaints: Complaints) -> None:
        self._kafka = package("confluent_kafka")
        self._consumer = self._kafka.Consumer(librdkafka({**properties, **_SETTINGS}, complaints))

    def committed(self, partitions: Sequence[tuple[str, int]], within_s: float) -> list[Any]:
        """`TopicPartition` for each of these; its offset is negative where there is none.

        Raises:
            KafkaException: the coordinator does not answer, is another one by now, or refuses.
        """
        asked = [self._kafka.TopicPartition(*partition) for partition in partitions]
        timeout, deadline = min(_FIRST_S, within_s), time.monotonic() + within_s
        while True:
            try:
                found: list[Any] = self._consumer.committed(asked, timeout=timeout)
                break
            except self._kafka.KafkaException as error:
                # A refusal to name the coordinator comes by a poll only; the question itself waits for a better answer.
                told = self._consumer.poll(_LISTEN_S)
                if told is not None and told.error() is not None and not told.error().retriable():
                    raise self._kafka.KafkaException(told.error()) from error
                left = deadline - time.monotonic()
                if error.args[0].code() != self._kafka.KafkaError._TIMED_OUT or left <= 0:
                    raise
                timeout = min(2 * timeout, max(left, _FIRST_S))
        for at in found:
            if at.error is not None:
                raise self._kafka.KafkaException(at.error)
        return found

    def close(self) -> None:
        self._consumer.close()
