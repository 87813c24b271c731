"""MongoDB for tests: it starts, keeps its data after a kill, and can be paused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.errors import ConnectionFailure

from tests.tools.servers.commands import started
from tools.servers.mongodb import MongoServer

pytestmark = pytest.mark.mongodb


def test_written_data_survives_a_kill_and_a_paused_server_does_not_respond(tmp_path: Path) -> None:
    with MongoServer(tmp_path) as server, server.client() as client:
        client["db"]["kept"].insert_one({"_id": 7})
        server.kill()
        refused(server)
        server.restart()
        assert list(client["db"]["kept"].find()) == [{"_id": 7}]
        server.pause()
        refused(server)
        server.resume()
        assert list(client["db"]["kept"].find()) == [{"_id": 7}]


def refused(server: MongoServer) -> None:
    with MongoClient(server.url, serverSelectionTimeoutMS=500) as client, pytest.raises(ConnectionFailure):
        client.admin.command("ping")


def test_a_server_outlives_the_command_that_starts_it(tmp_path: Path) -> None:
    with started("mongodb", tmp_path) as settings, MongoClient(settings["MONGODB_URL"]) as client:
        assert client.admin.command("ping")["ok"] == 1
