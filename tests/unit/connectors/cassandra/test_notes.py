"""Notes of sent checkpoints. A note covers earlier checkpoints of the same run, and never those of another run.

The table of notes is a fake.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.cassandra.cluster import ClusterBuilder
from penstock.connectors.cassandra.committer import CassandraCommitter, HeldRowsCommitter
from penstock.datastream.connectors.cassandra import CassandraTableSink


class Notes:
    """A fake table with one row for each sink and subtask. The write with the later timestamp wins."""

    def __init__(self) -> None:
        self.rows: dict[Any, tuple[int, SimpleNamespace]] = {}

    def execute(self, statement: str, values: Any = None) -> list[Any]:
        key = values[:2]
        if statement.startswith("SELECT"):
            return [self.rows[key][1]] if key in self.rows else []
        names = re.search(r"\(sink_id, subtask, (.*?)\)", statement)
        at = re.search(r"USING TIMESTAMP (\d+)", statement)
        assert names is not None
        assert at is not None
        if key not in self.rows or self.rows[key][0] <= int(at[1]):
            note = dict(zip(names[1].split(", "), values[2:], strict=True))
            self.rows[key] = int(at[1]), SimpleNamespace(**note)
        return []


@pytest.fixture
def sent() -> list[tuple[int, int]]:
    return []


@pytest.fixture
def committer(monkeypatch: pytest.MonkeyPatch, sent: list[tuple[int, int]]) -> HeldRowsCommitter:
    notes = Notes()
    monkeypatch.setattr(ClusterBuilder, "connect", lambda *arguments, **options: notes)
    monkeypatch.setattr(HeldRowsCommitter, "_send", lambda self, piece: sent.append((piece["checkpoint"], piece["at"])))
    sink = CassandraTableSink("nowhere", "w.t", ["id"], write_ahead=True)
    return HeldRowsCommitter(sink, "uid", CassandraCommitter(sink.cluster, "w"))


def piece(checkpoint: int, at: int, run: str) -> dict[str, Any]:
    return {"job": "j", "subtask": 0, "checkpoint": checkpoint, "at": at, "run": run}


def test_a_checkpoint_and_earlier_ones_are_sent_once(committer: HeldRowsCommitter, sent: Any) -> None:
    first, second = piece(1, 10, "a"), piece(2, 20, "a")
    committer.commit([second, first])
    committer.commit([first, second])
    committer.commit([first])
    assert sent == [(1, 10), (2, 20)]


def test_ids_that_restart_on_a_slow_clock_lose_no_rows(committer: HeldRowsCommitter, sent: Any) -> None:
    committer.commit([piece(9, 10_000_000, "a")])
    committer.commit([piece(1, 8_000_000, "b"), piece(2, 9_000_000, "b")])
    assert sent == [(9, 10_000_000), (1, 8_000_000), (2, 9_000_000)]


def test_a_new_note_of_a_run_does_not_hide_another_run_with_the_same_ids(
    committer: HeldRowsCommitter, sent: Any
) -> None:
    committer.commit([piece(9, 10, "a")])
    committer.commit([piece(3, 20, "b")])
    committer.commit([piece(9, 10, "a"), piece(4, 30, "b")])
    committer.commit([piece(3, 20, "b"), piece(4, 30, "b")])
    assert sent == [(9, 10), (3, 20), (4, 30), (9, 10)]


def test_notes_without_a_run_are_compared_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    monkeypatch.setattr(ClusterBuilder, "connect", lambda *arguments, **options: notes)
    committer = CassandraCommitter(ClusterBuilder("nowhere"), "w")
    committer.commit("sink", 0, 5)
    assert [committer.is_committed("sink", 0, number) for number in (4, 5, 6)] == [True, True, False]
