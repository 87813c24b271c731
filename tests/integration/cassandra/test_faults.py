"""A sink without a job under faults. Write-ahead rows are visible only after their checkpoint, and are sent once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import EpochFailed, SinkError
from penstock.connectors.cassandra.committer import NOTES, CassandraCommitter
from penstock.connectors.core.write_ahead import FileCheckpointCommitter
from tests.committables import settled
from tests.integration.cassandra.tables import KEYSPACE, Table, ends
from tools.servers.cassandra import CassandraServer

pytestmark = pytest.mark.cassandra


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraServer]:
    """Start a separate server that the test kills and pauses."""
    with CassandraServer(tmp_path_factory.mktemp("killed")) as server:
        yield server


def voted(writer: Any, checkpoint: int, *rows: Any) -> list[Any]:
    writer.write(list(rows), None, 0)
    return settled(writer.prepare_commit(checkpoint))


def test_staged_rows_are_visible_only_after_their_checkpoint_and_are_sent_once(own: CassandraServer) -> None:
    table = Table(own)
    sink = table.sink(write_ahead=True)
    writer, committer = ends(sink, table.name)
    first, second = voted(writer, 1, (1, "a"), (2, "b"), (1, "c")), voted(writer, 2, (2, "d"))
    assert table.rows() == {}
    committer.commit(first)
    assert table.rows() == {1: "c", 2: "b"}
    committer.commit(second)
    own.execute(f"TRUNCATE {table.name}")
    committer.commit(second + first)
    ends(sink, table.name)[1].commit(first + second)
    assert table.rows() == {}


def test_rows_that_are_sent_again_after_newer_ones_change_nothing(own: CassandraServer) -> None:
    table = Table(own)
    sink = table.sink(write_ahead=True)
    writer, committer = ends(sink, table.name)
    first, second = voted(writer, 1, (1, "a")), voted(writer, 2, (1, "b"))
    committer.commit(first)
    committer.commit(second)
    own.execute(f"TRUNCATE {KEYSPACE}.{NOTES}")
    committer.commit(first)
    assert table.rows() == {1: "b"}


def test_checkpoints_are_sent_after_their_ids_restart(own: CassandraServer) -> None:
    table = Table(own)
    sink = table.sink(write_ahead=True)
    writer, committer = ends(sink, table.name)
    committer.commit(voted(writer, 50, (1, "a")))
    committer.commit(voted(writer, 1, (2, "b")))
    assert table.rows() == {1: "a", 2: "b"}


def test_a_commit_that_was_given_up_notes_nothing(own: CassandraServer) -> None:
    table = Table(own)
    writer, committer = ends(table.sink(write_ahead=True), table.name)
    votes = voted(writer, 1, (1, "a"))
    committer.give_up()
    with pytest.raises(EpochFailed):
        committer.commit(votes)
    _, successor = ends(table.sink(write_ahead=True), table.name)
    successor.commit(votes)
    assert table.rows() == {1: "a"}


def test_notes_are_stored_in_the_configured_keyspace(own: CassandraServer, tmp_path: Path) -> None:
    table = Table(own)
    own.execute(
        "CREATE KEYSPACE IF NOT EXISTS notes WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    elsewhere = CassandraCommitter.default_checkpoint_committer(table.cluster, "notes")
    for number, committer in enumerate((elsewhere, FileCheckpointCommitter(str(tmp_path)))):
        sink = table.sink(write_ahead=True, committer=committer)
        writer, commits = ends(sink, table.name)
        votes = voted(writer, 7, (number, "a"))
        commits.commit(votes)
        own.execute(f"TRUNCATE {table.name}")
        ends(sink, table.name)[1].commit(votes)
        assert table.rows() == {}
    [note] = own.execute(f"SELECT * FROM notes.{NOTES}")
    assert (note.sink_id, note.subtask, note.checkpoint_id) == (f"{table.name}-sink", 0, 7)


@pytest.mark.parametrize("write_ahead", [False, True])
def test_the_sink_waits_for_a_server_that_is_unavailable_for_some_seconds(
    own: CassandraServer, write_ahead: bool
) -> None:
    table = Table(own)
    writer, committer = ends(table.sink(write_ahead=write_ahead, patience=60_000), table.name)
    own.kill()
    back = threading.Timer(1.0, own.restart)
    back.start()
    votes = voted(writer, 1, *((n, "a") for n in range(500)))
    if committer is not None:
        committer.commit(votes)
        committer.close()
    writer.close()
    back.join()
    assert len(table.rows()) == 500


def test_a_server_that_remains_unavailable_fails_the_job_over(own: CassandraServer) -> None:
    table = Table(own)
    writer, _ = ends(table.sink(patience=500))
    writer.write([(0, "a")], None, 0)
    writer.prepare_commit(1)
    own.kill()
    try:
        with pytest.raises(SinkError, match=r"Cassandra 127.0.0.1:\d+: ") as caught:
            voted(writer, 2, (1, "b"))
        assert "check that the server runs" in str(caught.value)
        writer.close()
    finally:
        own.restart()
