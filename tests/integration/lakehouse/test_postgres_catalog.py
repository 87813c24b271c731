"""Iceberg tables with an SQL catalog in Postgres. They behave like those in SQLite, and the server may be killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.errors import SinkError
from tests.integration.lakehouse.lakes import IcebergLake, committer_of, voted, writer_of
from tests.integration.lakehouse.test_commits import (  # noqa: F401
    test_a_commit_without_an_answer_is_made_once,
    test_only_one_of_two_concurrent_commits_of_a_checkpoint_succeeds,
    test_rows_of_a_faster_writer_remain,
    test_rows_of_all_subtasks_become_visible_together_at_their_commit,
)
from tests.integration.lakehouse.test_upserts import (  # noqa: F401
    test_a_replaced_jobmanager_changes_nothing_after_its_successor,
    test_the_kind_of_a_row_decides_how_it_is_written,
)
from tools.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres


class PostgresLake(IcebergLake):
    """A table whose catalog is a database."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        super().__init__(folder)
        self.server = server

    @property
    def properties(self) -> dict[str, str]:
        uri = self.server.conninfo.replace("postgresql://", "postgresql+psycopg://")
        name = f"lake{abs(hash(self.folder)):x}"
        return {"name": name, "type": "sql", "uri": uri, "warehouse": f"file://{self.folder}/warehouse"}


@pytest.fixture
def lake(postgres: PostgresServer, tmp_path: Path) -> PostgresLake:
    return PostgresLake(tmp_path, postgres)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path / "server") as server:
        yield server


def test_a_killed_catalog_loses_and_repeats_nothing(mortal: PostgresServer, tmp_path: Path) -> None:
    lake = PostgresLake(tmp_path, mortal)
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    committer.commit(voted(writer, 1, 1, 2))
    later = voted(writer, 2, 3)
    mortal.kill()
    with pytest.raises(SinkError):
        committer.commit(later)
    mortal.restart()
    committer.commit(later)
    committer_of(sink).commit(later)
    assert lake.ids() == [1, 2, 3]
    assert lake.commits() == 2


def test_an_error_does_not_show_the_password(postgres: PostgresServer, tmp_path: Path) -> None:
    lake = PostgresLake(tmp_path, postgres)
    wrong = {**lake.properties, "uri": lake.properties["uri"].replace(postgres.password, "wrong-secret")}
    with pytest.raises(SinkError, match="cannot be opened") as error:
        type(lake.sink())(wrong, lake.name, {"id": int}).validate()
    assert "wrong-secret" not in str(error.value)
