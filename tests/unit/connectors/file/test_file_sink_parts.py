"""Parts of the file sink: rolling, buckets, and errors for a path that is not writable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, SinkError, UserFunctionError
from penstock.connectors.file.sink.bucket import BucketAssigner, BucketContext
from penstock.connectors.file.sink.file_sink import FileSink
from penstock.connectors.file.sink.part_file import OutputFileConfig
from penstock.connectors.file.sink.rolling import RollingPolicy
from penstock.taskmanager.worker import ManualClock
from tests.unit.connectors.support import START, TEXT, snapshot, task, visible, writer_context


def test_parts_end_by_size_age_and_inactivity(tmp_path: Path) -> None:
    clock = ManualClock(START)
    policy = RollingPolicy.default_rolling_policy(10, 5000, 2000)
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(policy).build()
    writer = sink.create_writer(writer_context(operator=task(clock)), [])
    committer = sink.create_committer({})
    writer.write([1] * 12, None, 0)
    committables, _ = snapshot(writer, 1)
    assert [c["size"] for c in committables if c["kind"] == "finished"] == [10, 10]
    committer.commit(committables)
    assert [p.stat().st_size for p in visible(tmp_path)] == [10, 10]

    def tick(ms: int) -> int:
        clock.set(clock.now_ms() + ms)
        writer.advance_processing_time(clock.now_ms())
        committer.commit(snapshot(writer, 2)[0])
        return len(visible(tmp_path))

    assert tick(1900) == 2
    assert tick(1000) == 3
    for _ in range(4):
        writer.write([1], None, 0)
        assert tick(1000) == 3
    writer.write([1], None, 0)
    assert tick(1000) == 4


def test_part_counters_continue_after_a_restore(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(RollingPolicy(on_checkpoint=True)).build()
    committer = sink.create_committer({})
    state: list[Any] = []
    for attempt in range(3):
        writer = sink.create_writer(writer_context(attempt=attempt), state)
        writer.write([attempt], None, 0)
        committables, state = snapshot(writer, attempt)
        committer.commit(committables)
    assert [path.name.split("-")[:3] for path in visible(tmp_path)] == [["part", "0", str(n)] for n in range(3)]


def test_buckets_are_directories(tmp_path: Path) -> None:
    builder = FileSink.for_row_format(str(tmp_path), lambda value: f"<{value[1]}>")
    config = OutputFileConfig.builder().with_part_prefix("n").with_part_suffix(".txt").build()
    sink = builder.with_bucket_assigner(lambda value: f"id={value[0]}/x").with_output_file_config(config).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([("a", 1), ("b", 2), ("a", 3)], None, 0)
    writer.finish()
    sink.create_committer({}).commit(snapshot(writer, 1)[0])
    found = {str(path.relative_to(tmp_path).parent): path.read_text() for path in visible(tmp_path)}
    assert found == {"id=a/x": "<1>\n<3>\n", "id=b/x": "<2>\n"}
    assert all(path.name.startswith("n-0-") and path.name.endswith(".txt") for path in visible(tmp_path))


@pytest.mark.parametrize("bucket", ["../up", "/abs", "a//b", ".hidden", "a/.b", 5, "a/"])
def test_a_bucket_outside_the_base_path_is_refused(tmp_path: Path, bucket: Any) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_bucket_assigner(lambda value: bucket).build()
    with pytest.raises(UserFunctionError, match="is not a bucket"):
        sink.create_writer(writer_context(), []).write([1], None, 0)


def test_date_buckets_use_processing_or_event_time(tmp_path: Path) -> None:
    hour = 3_600_000
    by_processing = BucketAssigner.date_time_bucket_assigner()
    assert by_processing.assign([1, 2], [0, 0], BucketContext(processing_time=30 * hour)) == "1970-01-02--06"
    by_event = BucketAssigner.date_time_bucket_assigner("yyyy/MM/dd", "America/New_York", event_time=True)
    assert by_event.assign([1, 2], [4 * hour, 6 * hour], BucketContext()) == ["1969/12/31", "1970/01/01"]
    with pytest.raises(UserFunctionError, match="no timestamp"):
        by_event.assign([1], None, BucketContext())
    for pattern, zone in (("QQQ", None), ("yyyy", "Mars/North")):
        with pytest.raises(InvalidJob):
            BucketAssigner.date_time_bucket_assigner(pattern, zone)


def test_a_path_that_is_not_writable_is_found_on_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot create"):
        FileSink.for_row_format(str(tmp_path / "file" / "below"), TEXT).build().validate()
    sink = FileSink.for_row_format(str(tmp_path / "new"), TEXT).build()
    sink.validate()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SinkError, match="permission denied"):
        sink.validate()
