"""Iceberg tables whose SQL catalog is a Postgres: what holds for one in SQLite holds here, and it may be killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.errors import SinkError
from tests.integration.lakehouse.lakes import IcebergLake, committer_of, voted, writer_of
from tests.integration.lakehouse.test_commits import (  # noqa: F401
    test_a_commit_without_an_answer_is_made_once,
    test_of_two_who_commit_one_checkpoint_at_the_same_time_only_one_does,
    test_rows_of_all_subtasks_are_seen_at_once_and_not_before_their_commit,
    test_rows_of_another_writer_who_was_faster_stay,
)
from tests.integration.lakehouse.test_upserts import (  # noqa: F401
    test_a_jobmanager_that_was_given_up_changes_nothing_behind_its_successor,
    test_kinds_of_rows_say_what_becomes_of_them,
)
from tools.postgresserver import PostgresServer

pytestmark = pytest.mark.postgres


class PostgresLake(IcebergLake):
    """Its catalog is a database."""

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


def test_a_catalog_that_dies_loses_and_repeats_nothing(mortal: PostgresServer, tmp_path: Path) -> None:
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


def test_a_password_is_not_told(postgres: PostgresServer, tmp_path: Path) -> None:
    lake = PostgresLake(tmp_path, postgres)
    wrong = {**lake.properties, "uri": lake.properties["uri"].replace(postgres.password, "wrong-secret")}
    with pytest.raises(SinkError, match="cannot be opened") as error:
        type(lake.sink())(wrong, lake.name, {"id": int}).validate()
    assert "wrong-secret" not in str(error.value)
