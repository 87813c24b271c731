"""One commit for each checkpoint, even if answers are lost or other writers commit too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.common.errors import EpochFailed, SinkError
from penstock.connectors.lakehouse import commits
from penstock.connectors.lakehouse.commits import TableLog
from tests.integration.lakehouse.lakes import Lake, committer_of, voted, writer_of


def test_rows_of_all_subtasks_become_visible_together_at_their_commit(lake: Lake) -> None:
    sink = lake.sink()
    committer = committer_of(sink)
    pieces = voted(writer_of(sink, 0), 1, 1, 2) + voted(writer_of(sink, 1), 1, 3)
    assert lake.ids() == []
    committer.commit(pieces)
    assert lake.ids() == [1, 2, 3]
    assert lake.commits() == 1
    assert lake.by_duckdb("select count(*), sum(id), min(key) from files") == [(3, 6, "k0")]


def test_no_job_commits_a_committed_checkpoint_again(lake: Lake) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    first, second = voted(writer, 1, 1), voted(writer, 2, 2)
    committer.commit(first)
    committer.commit(first + second)
    committer_of(sink).commit(first + second)
    committer_of(sink, job="a job that began from its savepoint").commit(second)
    assert lake.ids() == [1, 2]
    assert lake.commits() == 2


def log_of(committer: Any) -> TableLog:
    return committer._log


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_without_an_answer_is_made_once(lake: Lake, monkeypatch: pytest.MonkeyPatch, happened: bool) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    append, calls = log_of(committer).append, 0

    def torn(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            append(*arguments)
            return
        if happened:
            append(*arguments)
        raise TimeoutError("no answer")

    monkeypatch.setattr(log_of(committer), "append", torn)
    committer.commit(voted(writer, 1, 1, 2))
    committer.commit(voted(writer, 2, 3))
    assert lake.ids() == [1, 2, 3]
    assert lake.commits() == 2


def test_rows_of_a_faster_writer_remain(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    look, others = log_of(committer).look, iter(range(100, 103))

    def overtaken() -> None:
        look()
        for n in list(others)[:1]:
            lake.write(pa.table({"id": [n], "key": ["other"]}))

    monkeypatch.setattr(log_of(committer), "look", overtaken)
    committer.commit(voted(writer, 1, 1))
    assert lake.ids() == [1, 100]


def test_only_one_of_two_concurrent_commits_of_a_checkpoint_succeeds(lake: Lake) -> None:
    """One JobManager was replaced while it paused between its look and its commit. The other one is its successor."""
    sink = lake.sink()
    zombie, successor = committer_of(sink), committer_of(sink)
    pieces = voted(writer_of(sink), 1, 1)
    log_of(zombie).look()
    assert log_of(zombie).last_checkpoint("penstock/job/sink") is None
    successor.commit(pieces)
    with pytest.raises(Exception, match=r"."):
        log_of(zombie).append("penstock/job/sink", 1, "digest", pieces[0]["files"])
    zombie.commit(pieces)
    assert lake.ids() == [1]


def test_checkpoints_are_committed_in_their_order_and_abandoned_ones_with_the_next(lake: Lake) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    pieces = [piece for number in range(1, 12) for piece in voted(writer, number, number)]
    committer.commit(pieces[::-1])
    assert lake.ids() == list(range(1, 12))
    assert lake.commits() == 11


def test_a_checkpoint_without_rows_makes_no_commit(lake: Lake) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    assert voted(writer, 1) == []
    committer.commit([])
    assert lake.commits() == 0


def test_files_of_an_aborted_checkpoint_are_removed_and_committed_ones_remain(lake: Lake) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    kept, lost = voted(writer, 1, 1), voted(writer, 2, 2)
    committer.commit(kept)
    assert len(lake.data_files()) == 2
    committer.abort(kept + lost)
    committer.abort(kept + lost)
    assert len(lake.data_files()) == 1
    assert lake.ids() == [1]


def test_a_writer_that_ends_without_a_barrier_leaves_no_file(lake: Lake) -> None:
    sink = lake.sink()
    committer_of(sink)
    writer = writer_of(sink)
    writer.write([{"id": 1, "key": "a"}], None, 0)
    writer.close()
    assert lake.data_files() == []


@pytest.mark.parametrize("again", [1, 2])
def test_restarted_checkpoint_ids_are_distinguished_from_a_retry(lake: Lake, again: int) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    committer.commit(voted(writer, 1, 1))
    committer.commit(voted(writer, 3, 3))
    with pytest.raises(SinkError, match="ids have restarted"):
        committer_of(sink).commit(voted(writer_of(sink), again, 2))
    assert lake.ids() == [1, 3]


def test_a_commit_is_found_without_the_tables_history(lake: Lake) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    pieces = voted(writer, 1, 1)
    committer.commit(pieces)
    lake.write(pa.table({"id": [100], "key": ["other"]}))
    lake.forget_history()
    committer_of(sink).commit(pieces)
    assert lake.ids() == [1, 100]


def test_files_that_another_program_has_removed_are_not_committed(lake: Lake) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    committer.commit(voted(writer, 1, 1))
    named = {*lake.data_files()}
    late, lost = voted(writer, 2, 2), voted(writer, 3, 3)
    for piece in late + lost:
        for file in piece["files"]:
            file["modified"] -= 8 * 24 * 3_600_000
    committer.commit(late)
    for path in {*lake.data_files()} - named:
        if path.name in str(lost):
            path.unlink()
    with pytest.raises(SinkError, match=r"1 files with rows of checkpoint 3 .* are gone"):
        committer.commit(lost)
    assert lake.ids() == [1, 2]


def test_restarted_ids_do_not_match_old_commits_without_history(lake: Lake) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    first, second, third = (voted(writer, number, number) for number in (1, 2, 3))
    committer.commit(first)
    committer.commit(second)
    committer.commit(third)
    lake.write(pa.table({"id": [100], "key": ["other"]}))
    lake.forget_history()
    committer_of(sink).commit(second + third)
    committer_of(sink, job="a job that began from an old savepoint").commit(first)
    with pytest.raises(SinkError, match="ids have restarted"):
        committer_of(sink).commit(voted(writer_of(sink), 1, 200))
    assert lake.ids() == [1, 2, 3, 100]


def test_an_abandoned_committer_starts_no_further_commit(lake: Lake) -> None:
    sink = lake.sink()
    committer = committer_of(sink)
    committer.give_up()
    with pytest.raises(EpochFailed):
        committer.commit(voted(writer_of(sink), 1, 1))
    assert lake.ids() == []


def test_a_table_that_accepts_no_commit_is_an_error_with_its_reason(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.sink()
    committer = committer_of(sink)
    committer._tries = 2

    def refused(*_: Any) -> None:
        raise PermissionError("read only")

    monkeypatch.setattr(log_of(committer), "append", refused)
    with pytest.raises(
        SinkError, match=r"checkpoint 1 cannot be committed.* after 2 tries: PermissionError: read only"
    ):
        committer.commit(voted(writer_of(sink), 1, 1))


def test_many_small_files_are_logged_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commits, "_MANY_FILES", 3)
    monkeypatch.setattr(commits, "_HINT_EVERY", 1)
    sink = lake.sink()
    committer, writer = committer_of(sink), writer_of(sink)
    for number in (1, 2):
        committer.commit(voted(writer, number, number))
    assert "Compact it" not in caplog.text
    for number in (3, 4):
        committer.commit(voted(writer, number, number))
    assert caplog.text.count("has 3 files of 0 KB on average, which makes it slow to read. Compact it") == 1
