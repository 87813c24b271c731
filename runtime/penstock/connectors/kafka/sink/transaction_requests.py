"""Requests of Kafka's protocol that no Python client has, defined in the form of aiokafka's own requests.

Source: the message definitions of Apache Kafka, DescribeTransactions and ListTransactions (KIP-664, brokers from 3.0 on).
"""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

_TEXT = CompactString("utf-8")


class DescribeTransactionsResponse_v0(Response):  # type: ignore[misc]  # noqa: N801 - named as aiokafka's are
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transactions",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", _TEXT),
                ("state", _TEXT),
                ("timeout_ms", Int32),
                ("start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class DescribeTransactionsRequest_v0(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 65
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeTransactionsResponse_v0
    SCHEMA = Schema(("transactional_ids", CompactArray(_TEXT)), ("tags", TaggedFields))


class DescribeTransactionsRequest(Request[DescribeTransactionsRequest_v0]):  # type: ignore[misc]
    API_KEY = 65

    def __init__(self, transactional_ids: list[str]) -> None:
        self._ids = transactional_ids

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._ids, {})


class ListTransactionsResponse_v0(Response):  # type: ignore[misc]  # noqa: N801
    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_state_filters", CompactArray(_TEXT)),
        (
            "transactions",
            CompactArray(("transactional_id", _TEXT), ("producer_id", Int64), ("state", _TEXT), ("tags", TaggedFields)),
        ),
        ("tags", TaggedFields),
    )


class ListTransactionsRequest_v0(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 66
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListTransactionsResponse_v0
    SCHEMA = Schema(
        ("state_filters", CompactArray(_TEXT)), ("producer_id_filters", CompactArray(Int64)), ("tags", TaggedFields)
    )


class ListTransactionsRequest(Request[ListTransactionsRequest_v0]):  # type: ignore[misc]
    API_KEY = 66

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([], [], {})
