"""The reader reports records that the stream dropped before they were read, and reports no false losses."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.core.aws import AwsTarget
from penstock.connectors.core.source import ReaderContext, Split
from penstock.connectors.kinesis import reader as reader_module
from penstock.connectors.kinesis.place import WHOLE, Place
from penstock.datastream.connectors.kinesis import KinesisSource
from tests.unit.connectors.kinesis.service import HOUR, Kinesis, now, read_until, refusal


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Kinesis:
    made = Kinesis()
    monkeypatch.setattr(AwsTarget, "client", lambda *_, **__: made)
    monkeypatch.setattr(reader_module, "_PAUSE_S", 0.01)
    monkeypatch.setattr(reader_module, "_IDLE_S", 0.02)
    return made


def opened(position: Place | None, on_lost: str = "fail", since: int | None = None) -> Any:
    source = KinesisSource("s", SimpleStringSchema(), start="trim_horizon", on_lost=on_lost, patience=100)
    (split,) = source.create_enumerator().discover() or [_split(source)]
    if since is not None:
        split.properties["since"] = since
    found = source.create_reader(ReaderContext(0, 1, "in"))
    return found.open_split(split, None if position is None else position.position())


def _split(source: KinesisSource) -> Split:
    properties = {"stream": "s", "shard": "shard-0", "start_ms": 0, "since": now(), "hashes": ["0", str(2**128 - 1)]}
    return Split("s/shard-0", properties)


@pytest.mark.parametrize("stands", [False, True])
def test_dropped_records_are_an_error(service: Kinesis, stands: bool) -> None:
    service.stands = stands
    last = service.put(b"read", ago=30 * HOUR)
    service.put(b"lost", ago=29 * HOUR)
    service.put(b"there", ago=2 * HOUR)
    service.drop()
    reader = opened(Place(last, WHOLE, now() - 30 * HOUR))
    with pytest.raises(SourceError, match=r"no longer has \d+.*keeps records for 24 h.*may be lost") as caught:
        read_until(reader, 1)
    assert "on_lost='continue'" in str(caught.value)
    reader.close()


@pytest.mark.parametrize("stands", [False, True])
def test_on_lost_continue_reads_the_remaining_records(
    service: Kinesis, stands: bool, caplog: pytest.LogCaptureFixture
) -> None:
    service.stands = stands
    last = service.put(b"read", ago=30 * HOUR)
    service.put(b"there", ago=2 * HOUR)
    service.drop()
    reader = opened(Place(last, WHOLE, now() - 30 * HOUR), "continue")
    assert read_until(reader, 1) == ["there"]
    service.put(b"new")
    assert read_until(reader, 1) == ["new"]
    assert caplog.text.count("continues with the existing records") == 1
    reader.close()


def test_no_loss_is_reported_if_the_last_record_still_exists(service: Kinesis) -> None:
    last = service.put(b"read", ago=30 * HOUR)
    service.put(b"there", ago=29 * HOUR)
    reader = opened(Place(last, WHOLE, now() - 30 * HOUR))
    assert read_until(reader, 1) == ["there"]
    assert "AT_SEQUENCE_NUMBER" in service.calls
    reader.close()


def test_a_shard_without_new_records_reports_no_loss(service: Kinesis) -> None:
    """The reader read everything an hour ago. The last record is older than the stream's retention."""
    last = service.put(b"read", ago=100 * HOUR)
    service.drop()
    reader = opened(Place(last, WHOLE, now() - HOUR))
    service.put(b"new")
    assert read_until(reader, 1) == ["new"]
    assert "describe" not in service.calls
    reader.close()


def test_the_position_of_an_idle_reader_advances_with_the_time(service: Kinesis) -> None:
    last = service.put(b"read", ago=3 * HOUR)
    reader = opened(None)
    assert read_until(reader, 1) == ["read"]
    started = now()
    read_until(reader, 1, until=lambda: reader.position["read_to"] >= started)
    assert reader.position["after"] == last
    assert reader.moves_without_records
    reader.close()


def test_a_longer_retention_is_respected(service: Kinesis) -> None:
    service.hours = 168
    last = service.put(b"read", ago=200 * HOUR)
    service.put(b"new", ago=HOUR)
    service.drop()
    reader = opened(Place(last, WHOLE, now() - 100 * HOUR))
    assert read_until(reader, 1) == ["new"]
    reader.close()
    with pytest.raises(SourceError, match="keeps records for 168 h"):
        read_until(opened(Place(last, WHOLE, now() - 169 * HOUR)), 1)


def test_the_retention_is_assumed_to_be_a_day_without_the_right_to_read_it(
    service: Kinesis, caplog: pytest.LogCaptureFixture
) -> None:
    service.describes = refusal("AccessDeniedException")
    last = service.put(b"read", ago=30 * HOUR)
    service.drop()
    with pytest.raises(SourceError, match="may be lost"):
        read_until(opened(Place(last, WHOLE, now() - 30 * HOUR)), 1)
    assert "assuming a retention of 24 h" in caplog.text


def test_a_shard_first_read_after_its_retention_is_an_error(service: Kinesis) -> None:
    service.put(b"there", ago=HOUR)
    with pytest.raises(SourceError, match="before the first read"):
        read_until(opened(None, since=now() - 25 * HOUR), 1)
    assert read_until(opened(None, "continue", since=now() - 25 * HOUR), 1) == ["there"]


def test_a_partly_read_record_that_was_dropped_is_always_a_loss(service: Kinesis) -> None:
    gone = service.put(b"gone")
    service.records.clear()
    with pytest.raises(SourceError, match="may be lost"):
        read_until(opened(Place(gone, 3, now())), 1)


def test_a_deleted_shard_is_finished_if_it_was_read_completely(service: Kinesis) -> None:
    service.is_listed = False
    reader = opened(Place("7", WHOLE, now() - HOUR))
    read_until(reader, 1, until=lambda: reader.finished)
    assert reader.finished
    with pytest.raises(SourceError, match="no longer has the shard"):
        read_until(opened(Place("7", WHOLE, now() - 30 * HOUR)), 1)
    reader = opened(Place("7", WHOLE, now() - 30 * HOUR), "continue")
    read_until(reader, 1, until=lambda: reader.finished)
    assert reader.finished


def test_a_recreated_stream_is_an_error(service: Kinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    service.put(b"there")
    real = service.get_shard_iterator

    def refusing(**request: Any) -> Any:
        if "StartingSequenceNumber" in request:
            raise refusal("InvalidArgumentException")
        return real(**request)

    monkeypatch.setattr(service, "get_shard_iterator", refusing)
    place = Place(str(10**60), WHOLE, now() - HOUR)
    with pytest.raises(SourceError, match="was created again"):
        read_until(opened(place), 1)
    assert read_until(opened(place, "continue"), 1) == ["there"]


def test_a_reader_far_behind_warns_before_records_are_dropped(
    service: Kinesis, caplog: pytest.LogCaptureFixture
) -> None:
    real = service.get_records

    def behind(**request: Any) -> Any:
        return {**real(**request), "MillisBehindLatest": 13 * HOUR}

    service.get_records = behind  # type: ignore[method-assign]
    service.put(b"there", ago=13 * HOUR)
    reader = opened(None)
    assert read_until(reader, 1) == ["there"]
    read_until(reader, 1, until=lambda: "13.0 h behind" in caplog.text)
    assert caplog.text.count("the stream drops records after 24 h") == 1
    reader.close()


def test_on_lost_accepts_two_values() -> None:
    with pytest.raises(InvalidJob, match="on_lost='ignore'"):
        KinesisSource("s", SimpleStringSchema(), on_lost="ignore")
