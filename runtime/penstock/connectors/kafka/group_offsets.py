"""The committed offsets of a consumer group, as its coordinator reports them.

This module requests the offsets with a consumer, and not with librdkafka's admin client. The admin client's call
(`list_consumer_group_offsets`) ends the whole process by SIGSEGV if the broker is not the group's coordinator at this
moment. The reason is that the call then wakes a consumer's group, but an admin client has no group (librdkafka's issue
5040, present in 2.16.0). The loss of a broker moves coordinators and also starts new attempts, so a new attempt would
often meet this defect.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.client import Complaints, Properties, librdkafka, package

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST_S = 1.0
"""Timeout of the first request in s. Each later timeout is twice as long, so that a slow broker can answer, too."""
_LISTEN_S = 0.1
_SETTINGS = {"enable.auto.commit": "false", "isolation.level": "read_uncommitted"}
"""Settings of the consumer. It does not wait for uncommitted transactions."""


class GroupClient:
    """A consumer that reads no records.

    Raises:
        KafkaException: the client refuses its properties.
    """

    def __init__(self, properties: Properties, complaints: Complaints) -> None:
        self._kafka = package("confluent_kafka")
        self._consumer = self._kafka.Consumer(librdkafka({**properties, **_SETTINGS}, complaints))

    def committed(self, partitions: Sequence[tuple[str, int]], within_s: float) -> list[Any]:
        """Return a `TopicPartition` for each partition. The offset is negative if the group has committed none.

        Raises:
            KafkaException: the coordinator does not answer, has moved, or refuses the request.
        """
        wanted = [self._kafka.TopicPartition(*partition) for partition in partitions]
        timeout, deadline = min(_FIRST_S, within_s), time.monotonic() + within_s
        while True:
            try:
                found: list[Any] = self._consumer.committed(wanted, timeout=timeout)
                break
            except self._kafka.KafkaException as error:
                # If the cluster refuses to name the coordinator, only a poll returns this error. The request itself
                # continues to wait.
                event = self._consumer.poll(_LISTEN_S)
                if event is not None and event.error() is not None and not event.error().retriable():
                    raise self._kafka.KafkaException(event.error()) from error
                remaining_s = deadline - time.monotonic()
                if error.args[0].code() != self._kafka.KafkaError._TIMED_OUT or remaining_s <= 0:
                    raise
                timeout = min(2 * timeout, max(remaining_s, _FIRST_S))
        for at in found:
            if at.error is not None:
                raise self._kafka.KafkaException(at.error)
        return found

    def close(self) -> None:
        self._consumer.close()
