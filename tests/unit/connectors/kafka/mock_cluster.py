"""librdkafka's mock cluster, in this process. Tests choose its answers, which is not possible with a real broker.

confluent_kafka has no interface for it. This module calls the functions of the loaded library directly (rdkafka_mock.h).
"""

from __future__ import annotations

from ctypes import CDLL, c_char_p, c_int, c_int16, c_size_t, c_void_p
from typing import Self

from confluent_kafka import cimpl

OFFSET_FETCH, FIND_COORDINATOR = 9, 10
"""Kafka's numbers of the request kinds."""
_PRODUCER = 0


class MockCluster:
    def __init__(self, topic: str, partitions: int = 1, brokers: int = 3) -> None:
        self._library = library = CDLL(cimpl.__file__)
        library.rd_kafka_conf_new.restype = c_void_p
        library.rd_kafka_new.restype = c_void_p
        library.rd_kafka_mock_cluster_new.restype = c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = c_char_p
        conf = c_void_p(library.rd_kafka_conf_new())
        library.rd_kafka_conf_set(conf, b"log_level", b"0", None, c_size_t(0))
        self._client = c_void_p(library.rd_kafka_new(_PRODUCER, conf, None, c_size_t(0)))
        self._cluster = c_void_p(library.rd_kafka_mock_cluster_new(self._client, brokers))
        self.bootstrap_servers: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, brokers)

    def answers(self, request: int, *codes: int) -> None:
        """Answer the next requests of this kind with these errors."""
        library, kind = self._library, c_int16(request)
        library.rd_kafka_mock_clear_request_errors(self._cluster, kind)
        library.rd_kafka_mock_push_request_errors_array(
            self._cluster, kind, c_size_t(len(codes)), (c_int * len(codes))(*codes)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)
