"""MongoDB in the conformance tests: a job from files to a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pymongo import DeleteOne, MongoClient

from penstock.connectors.mongodb.bulk import MongoBulk
from penstock.datastream.connectors.mongodb import MongoSink
from tests.integration.connectors.connector import Call, Connector


class MongoConnector(Connector):
    """The database `d…`. `address` is the URL of the administrator."""

    name = "mongodb"
    server = "mongodb"
    calls = {"after write": Call(MongoBulk, "send")}
    is_keyed = True

    def __init__(self, folder: Path, address: str = "") -> None:
        super().__init__(folder, address)
        self._database = f"d{self.id}"

    @classmethod
    def address_of(cls, server: Any) -> str:
        return str(server.url)

    def sink(self) -> Any:
        return MongoSink(self.address, self._database, "rows", lambda write: write, batch_time=50, patience=5_000)

    def record_of(self, number: Any, text: str) -> Any:
        return {"_id": number, "key": text}

    def deletion_of(self, number: int) -> Any:
        return DeleteOne({"_id": number})

    def rows(self) -> list[tuple[int, str]]:
        with MongoClient[Any](self.address) as client:
            return [(row["_id"], row["key"]) for row in client[self._database]["rows"].find()]
