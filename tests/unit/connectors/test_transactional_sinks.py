"""The adapters for two-phase commit and write-ahead logs, with files and lists as external systems."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import EpochFailed, InvalidJob, SinkError, StateTypeError
from penstock.common.typeinfo import Types
from penstock.common.types import Row
from penstock.connectors.core.sink import Sink, SinkWriter
from penstock.connectors.core.two_phase import TwoPhaseCommitSink, TwoPhaseCommitSinkFunction
from penstock.connectors.core.write_ahead import (
    FileCheckpointCommitter,
    GenericWriteAheadSink,
    ObjectStoreCheckpointCommitter,
)
from penstock.taskmanager.operators.connectors.sink import SinkOperator
from penstock.testing import OperatorHarness
from tests.unit.connectors.support import FileTransactions, snapshot, writer_context


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.sampled_from(["write", "barrier", "barrier without commit", "crash"]),
        max_size=25,
    )
)
def test_transactional_files_are_exactly_once(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    directory = tmp_path_factory.mktemp("txn")
    sink = TwoPhaseCommitSink(FileTransactions(directory))
    committer = sink.create_committer({})
    manifest: dict[str, Any] = {"position": 0, "state": [], "committables": []}
    unconfirmed: list[Any] = []
    writer = sink.create_writer(writer_context(), [])
    position = 0

    def barrier() -> None:
        nonlocal manifest
        committables, state = snapshot(writer, 1)
        unconfirmed.extend(committables)
        manifest = {"position": position, "state": json.loads(json.dumps(state)), "committables": list(unconfirmed)}

    for step in [*steps, "barrier"]:
        if step == "write":
            writer.write([position, position + 1], [0, 0], 0)
            position += 2
        elif step == "crash":
            committer.commit(manifest["committables"])
            unconfirmed.clear()
            position = manifest["position"]
            writer = sink.create_writer(writer_context(), manifest["state"])
        else:
            barrier()
            if step == "barrier":
                committer.commit(manifest["committables"])
                unconfirmed.clear()
    out = directory / "out"
    found = [int(line) for path in (out.iterdir() if out.exists() else ()) for line in path.read_text().split()]
    assert sorted(found) == list(range(position))
    assert len(list((directory / "tmp").iterdir())) <= 1 + steps.count("crash")


def test_a_transaction_without_records_is_replaced(tmp_path: Path) -> None:
    writer = TwoPhaseCommitSink(FileTransactions(tmp_path)).create_writer(writer_context(), [])
    first = writer.snapshot_state(0)
    committables, second = snapshot(writer, 1)
    assert committables == []
    assert first != second
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == second


def test_a_failing_commit_names_the_transaction(tmp_path: Path) -> None:
    class Failing(FileTransactions):
        def commit(self, transaction: Any) -> None:
            raise OSError("away")

    sink = TwoPhaseCommitSink(Failing(tmp_path))
    with pytest.raises(SinkError, match="cannot commit transaction 'txn-9': OSError: away"):
        sink.create_committer({}).commit(["txn-9"])
    sink.create_committer({}).abort(["txn-9"])


class Handles(TwoPhaseCommitSinkFunction):
    """A sink with a single, given handle."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.seen: list[Any] = []

    def begin_transaction(self) -> Any:
        return self.handle

    def invoke(self, transaction: Any, value: Any, context: Any) -> None:
        self.seen.append(transaction)

    def pre_commit(self, transaction: Any) -> None: ...

    def commit(self, transaction: Any) -> None: ...

    def abort(self, transaction: Any) -> None: ...


@pytest.mark.parametrize(
    ("handle", "kept"),
    [
        (np.int64(5), 5),
        (np.str_("a"), "a"),
        (("a", 2**64 - 1, -(2**63)), ["a", 2**64 - 1, -(2**63)]),
        ({"id": np.float32(0.5), "of": [None, True]}, {"id": 0.5, "of": [None, True]}),
    ],
)
def test_a_handle_is_the_same_before_and_after_a_crash(handle: Any, kept: Any) -> None:
    function = Handles(handle)
    writer = TwoPhaseCommitSink(function).create_writer(writer_context(), [])
    writer.write([1], None, 0)
    committables = writer.prepare_commit(1)
    assert function.seen == committables == json.loads(json.dumps(committables)) == [kept]
    assert [type(value) for value in committables] == [type(kept)]


@pytest.mark.parametrize(
    "handle",
    [b"producer-7", {"id": b"x"}, uuid.UUID(int=3), datetime(2026, 1, 1), {1: 2}, 2**64, float("nan"), {3}, object()],
)
def test_a_handle_that_pickling_would_change_is_refused(handle: Any) -> None:
    with pytest.raises(SinkError, match=r"the handle that Handles\.begin_transaction returned has .* of type") as error:
        TwoPhaseCommitSink(Handles(handle)).create_writer(writer_context(), [])
    assert "hex()" in str(error.value.remedy)


class BytesWriter(SinkWriter):
    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None: ...

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        return [{"part": b"1"}]


class BytesSink(Sink):
    def create_writer(self, context: Any, restored: list[Any]) -> SinkWriter:
        return BytesWriter()


def test_a_committable_that_serialization_would_change_is_refused() -> None:
    harness = OperatorHarness(SinkOperator(BytesSink()))
    with pytest.raises(SinkError, match="a committable of BytesWriter has b'1' of type bytes"):
        harness.snapshot()


class Lists(GenericWriteAheadSink):
    sent: list[tuple[int, list[Any]]]
    accepts = True

    def send_values(self, values: Any, checkpoint_id: int, timestamp: int) -> bool:
        if self.accepts:
            self.sent.append((checkpoint_id, list(values)))
        return self.accepts


def lists(directory: Path, type_info: Any = None) -> Lists:
    sink = Lists(FileCheckpointCommitter(str(directory)), type_info)
    sink.sent = []
    return sink


def test_a_checkpoint_sent_by_an_abandoned_committer_is_not_noted(tmp_path: Path) -> None:
    """Otherwise the old note could replace the later note of another attempt, and that checkpoint would be sent again."""
    sink = lists(tmp_path)
    writer = sink.create_writer(writer_context(0, 1), [])
    pieces = []
    for checkpoint_id in (1, 2):
        writer.write([(checkpoint_id,)], None, 0)
        pieces += snapshot(writer, checkpoint_id)[0]
    committer = sink.create_committer({}, job_id="job", uid="sink")
    send = sink.send_values

    def hangs(*values: Any) -> bool:
        committer.give_up()
        return send(*values)

    sink.send_values = hangs  # type: ignore[assignment, method-assign]
    with pytest.raises(EpochFailed, match="given up"):
        committer.commit(pieces)
    assert [checkpoint_id for checkpoint_id, _ in sink.sent] == [1]
    assert not (tmp_path / "job-sink").exists()


def test_records_are_sent_once_after_their_checkpoint_completes(tmp_path: Path) -> None:
    sink = lists(tmp_path)
    writers = [sink.create_writer(writer_context(n, 2), []) for n in range(2)]
    committer = sink.create_committer({}, job_id="job", uid="sink")
    for checkpoint_id in (1, 2):
        for n, writer in enumerate(writers):
            writer.write([(n, checkpoint_id)], None, 0)
            writer.write([(n, "more")], None, 0)
        pieces = [piece for writer in writers for piece in snapshot(writer, checkpoint_id)[0]]
        assert len(sink.sent) == 2 * (checkpoint_id - 1)
        committer.commit(pieces)
        committer.commit(pieces)
    assert sink.sent == [(c, [(n, c), (n, "more")]) for c in (1, 2) for n in (0, 1)]
    assert (tmp_path / "job-sink" / "1").read_text() == "0x0000000000000002"
    again = sink.create_committer({}, job_id="job", uid="sink")
    again.commit(pieces)
    assert len(sink.sent) == 4


def test_records_are_sent_twice_only_if_the_note_is_missing(tmp_path: Path) -> None:
    sink = lists(tmp_path)
    writer = sink.create_writer(writer_context(), [])
    writer.write([1], None, 0)
    pieces, _ = snapshot(writer, 1)
    sink.create_committer({}, job_id="job", uid="sink").commit(pieces)
    (tmp_path / "job-sink" / "0").unlink()
    sink.create_committer({}, job_id="job", uid="sink").commit(pieces)
    assert Counter(checkpoint_id for checkpoint_id, _ in sink.sent) == {1: 2}


def test_notes_in_an_object_store_are_found_by_later_committers(tmp_path: Path) -> None:
    sink = Lists(ObjectStoreCheckpointCommitter(f"file://{tmp_path}/notes"))
    sink.sent = []
    sink.with_object_store_options({"fsync": False}).validate()
    pieces = []
    for checkpoint_id in (9, 10, 300):
        writer = sink.create_writer(writer_context(), [])
        writer.write([checkpoint_id], None, 0)
        pieces.append(snapshot(writer, checkpoint_id)[0])
        sink.create_committer({}, job_id="job", uid="sink").commit(pieces[-1])
    for committed in pieces:
        sink.create_committer({}, job_id="job", uid="sink").commit(committed)
    assert [checkpoint_id for checkpoint_id, _ in sink.sent] == [9, 10, 300]
    notes = tmp_path / "notes" / "job-sink" / "0"
    assert [path.name for path in notes.iterdir()] == [f"{300:016x}"]
    late = ObjectStoreCheckpointCommitter(f"file://{tmp_path}/notes")
    late.commit("job-sink", 0, 10)
    assert late.is_committed("job-sink", 0, 300)
    assert not late.is_committed("job-sink", 0, 301)
    assert not late.is_committed("job-sink", 1, 9)


@pytest.mark.parametrize("sink_id", ["alerts", ""])
def test_each_job_has_separate_checkpoint_notes(tmp_path: Path, sink_id: str) -> None:
    """A second run starts again at checkpoint 1. A run from a savepoint does not use the notes that the first run has written since."""
    sink = Lists(FileCheckpointCommitter(str(tmp_path)), sink_id=sink_id)
    sink.sent = []

    def run(job_id: str, checkpoint_ids: range, restored: Any = ()) -> list[Any]:
        committer = sink.create_committer({}, job_id=job_id, uid="sink")
        committer.commit(list(restored))
        writer = sink.create_writer(replace(writer_context(), job_id=job_id), [])
        taken = []
        for checkpoint_id in checkpoint_ids:
            writer.write([(job_id, checkpoint_id)], None, 0)
            taken.append(snapshot(writer, checkpoint_id)[0])
            committer.commit(taken[-1])
        return taken

    first = run("a", range(1, 5))
    run("b", range(1, 3))
    run("c", range(3, 5), restored=first[1])
    ids = [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1), ("b", 2), ("c", 3), ("c", 4)]
    assert [record for _, [record] in sink.sent] == ids


def test_notes_of_an_earlier_version_are_valid_for_its_checkpoints(tmp_path: Path) -> None:
    for sink_id, notes in (("alerts", "alerts"), ("", "job-sink")):
        sink = Lists(FileCheckpointCommitter(str(tmp_path)), sink_id=sink_id)
        sink.sent = []
        FileCheckpointCommitter(str(tmp_path)).commit(notes, 0, 7)
        writer = sink.create_writer(writer_context(), [])
        for checkpoint_id in (7, 8):
            writer.write([checkpoint_id], None, 0)
            [piece], _ = snapshot(writer, checkpoint_id)
            del piece["job"]
            sink.create_committer({}, job_id="job", uid="sink").commit([piece])
        assert sink.sent == [(8, [8])]


def test_refused_records_are_kept(tmp_path: Path) -> None:
    sink = lists(tmp_path)
    writer = sink.create_writer(writer_context(), [])
    writer.write([1], None, 0)
    pieces, _ = snapshot(writer, 1)
    committer = sink.create_committer({}, job_id="job", uid="sink")
    sink.accepts = False
    with pytest.raises(SinkError, match="refused checkpoint 1 of subtask 0"):
        committer.commit(pieces)
    sink.accepts = True
    committer.commit(pieces)
    assert sink.sent == [(1, [1])]


class Alert(NamedTuple):
    id: str
    celsius: float


@pytest.mark.parametrize(
    ("type_info", "values"),
    [
        (None, [(1, "a"), {"k": [1.5]}, None]),
        (Alert, [Alert("a", 1.0)]),
        (Types.ROW_NAMED(["id"], [Types.STRING()]), [Row(id="a")]),
    ],
)
def test_records_are_restored_unchanged(tmp_path: Path, type_info: Any, values: list[Any]) -> None:
    sink = lists(tmp_path, type_info)
    writer = sink.create_writer(writer_context(), [])
    writer.write(values, None, 0)
    sink.create_committer({}, job_id="j", uid="s").commit(snapshot(writer, 1)[0])
    assert sink.sent == [(1, values)]


def test_a_record_that_cannot_be_stored_is_named(tmp_path: Path) -> None:
    writer = lists(tmp_path).create_writer(writer_context(), [])
    writer.write([object()], None, 0)
    with pytest.raises(StateTypeError, match="write-ahead"):
        writer.prepare_commit(1)
    with pytest.raises(InvalidJob):
        Lists(FileCheckpointCommitter(str(tmp_path)), sink_id="a/b")
