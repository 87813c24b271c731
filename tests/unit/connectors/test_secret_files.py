"""Secret files are relative to the start directory of the process, in any working directory. A file that cannot be read is named."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.common.errors import PenstockError, SinkError, SourceError
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.common.folders.working_folder import work_in
from penstock.connectors.cassandra.cluster import ClusterBuilder
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.registry import SchemaRegistry
from penstock.connectors.http.source import HttpPollSource
from penstock.connectors.iceberg.table import catalog_properties
from penstock.connectors.kafka.client import FROM_FILES, librdkafka, resolved
from penstock.connectors.opensearch.cluster import cluster_of
from penstock.connectors.postgres.client import Server
from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.redis.client import Server as RedisServer
from penstock.connectors.sql.server import Server as SqlServer

FILE = "secrets/one"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Change the working directory of the process to a job's folder."""
    (tmp_path / "start").mkdir()
    (tmp_path / "job").mkdir()
    monkeypatch.chdir(tmp_path / "start")
    work_in(str(tmp_path / "job"), lambda: OwnedFolder(str(tmp_path / "own"), "work-"))
    yield
    work_in("")


def of_kafka() -> str:
    found = resolved({f"{name}.file": FILE for name in FROM_FILES})
    token = librdkafka({"sasl.oauthbearer.token.file": FILE})["oauth_cb"]("")[0]
    assert {*found.values(), token} == {"s3cret"}
    return token


def of_iceberg() -> str:
    found = catalog_properties({"token.file": FILE, "uri.file": FILE}, {}, SourceError)
    assert found["token"] == found["uri"]
    return found["uri"]


def of_postgres() -> str:
    return Server("postgresql://any", password_file=FILE).options(SinkError)["password"]


def of_sql() -> str:
    return SqlServer("mysql://me@any/shop", password_file=FILE).authenticated(SinkError).password


def of_cassandra() -> str:
    return ClusterBuilder(user="me", password_file=FILE)._authentication(SinkError).password


def of_rabbitmq() -> str:
    return RMQConnectionConfig(password_file=FILE).secret(SourceError) or ""


def of_opensearch() -> str:
    return cluster_of("search", api_key_file=FILE).headers()["Authorization"].removeprefix("ApiKey ")


def of_redis() -> str:
    return RedisServer("redis://any", password_file=FILE).options(SinkError)["password"]


def of_avro() -> str:
    request = SchemaRegistry("http://any", user_info_file=FILE)._request("GET", "http://any", None)
    return base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode()


def of_http() -> str:
    sent: list[str] = []

    async def send(client: Any, request: httpx.Request, **_: Any) -> httpx.Response:
        sent.append(request.headers["Authorization"])
        return httpx.Response(200, request=request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx.AsyncClient, "send", send)
        HttpPollSource(
            "http://any", JsonLinesFormat({"id": int}), interval=1, header_files={"Authorization": FILE}
        ).ask(None, "")
    return sent[0]


@pytest.mark.parametrize(
    "read",
    [of_http, of_kafka, of_iceberg, of_postgres, of_cassandra, of_rabbitmq, of_opensearch, of_redis, of_avro, of_sql],
)
def test_a_secret_file_is_relative_to_the_start_directory(tmp_path: Path, read: Callable[[], str]) -> None:
    secret = tmp_path / "start" / FILE
    with pytest.raises(PenstockError, match=f"'{FILE}' cannot be read: No such file"):
        read()
    secret.parent.mkdir()
    secret.write_text("s3cret\n")
    assert read() == "s3cret"
    secret.write_bytes(b"\xff\xfe")
    with pytest.raises(PenstockError, match=f"'{FILE}' cannot be read: it is not UTF-8 text"):
        read()
