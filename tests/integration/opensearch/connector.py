"""OpenSearch in the conformance tests: a job from files to an index."""

from __future__ import annotations

from typing import Any

import httpx

from penstock.connectors.opensearch.bulk import ActionBulk
from penstock.datastream.connectors.opensearch import OpenSearchSink
from tests.integration.connectors.connector import Call, Connector


class OpenSearchConnector(Connector):
    """The index `i…`, which accepts only integers as `n`. `address` is the server's URL."""

    name = "opensearch"
    server = "opensearch"
    calls = {"after write": Call(ActionBulk, "send")}
    is_keyed = True
    refused = "is rejected"

    @classmethod
    def address_of(cls, server: Any) -> str:
        return str(server.url)

    @property
    def _index(self) -> str:
        return f"{self.address}/i{self.id}"

    def set_up(self) -> None:
        super().set_up()
        httpx.put(self._index, json={"mappings": {"properties": {"n": {"type": "integer"}}}}).raise_for_status()

    def sink(self) -> Any:
        return OpenSearchSink(self.address, lambda action: action, index=f"i{self.id}", batch_time=50, patience=5_000)

    def record_of(self, number: Any, text: str) -> Any:
        return {"_id": number, "n": number, "key": text}

    def deletion_of(self, number: int) -> Any:
        return {"_op_type": "delete", "_id": number}

    def rows(self) -> list[tuple[int, str]]:
        httpx.post(f"{self._index}/_refresh").raise_for_status()
        found = httpx.post(f"{self._index}/_search", json={"size": 1_000}).raise_for_status().json()
        return [(int(hit["_id"]), hit["_source"]["key"]) for hit in found["hits"]["hits"]]
