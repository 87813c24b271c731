"""What a stream drops before it was read is told, and nothing is told that is not so."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.aws import AwsTarget
from penstock.connectors.kinesis import reader as reader_module
from penstock.connectors.kinesis.place import WHOLE, Place
from penstock.connectors.source import ReaderContext, Split
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
    told = {"stream": "s", "shard": "shard-0", "start_ms": 0, "since": now(), "hashes": ["0", str(2**128 - 1)]}
    return Split("s/shard-0", told)


@pytest.mark.parametrize("stands", [False, True])
def test_records_that_were_dropped_are_told_of(service: Kinesis, stands: bool) -> None:
    service.stands = stands
    last = service.put(b"read", ago=30 * HOUR)
    service.put(b"lost", ago=29 * HOUR)
    service.put(b"there", ago=2 * HOUR)
    service.drop()
    reader = opened(Place(last, WHOLE, now() - 30 * HOUR))
    with pytest.raises(SourceError, match=r"does not have \d+ any more.*keeps records for 24 h.*may be lost") as told:
        read_until(reader, 1)
    assert "on_lost='continue'" in str(told.value)
    reader.close()


@pytest.mark.parametrize("stands", [False, True])
def test_who_wants_to_goes_on_with_what_is_there(
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
    assert caplog.text.count("goes on with what is there") == 1
    reader.close()


def test_nothing_is_lost_behind_a_record_that_is_still_there(service: Kinesis) -> None:
    last = service.put(b"read", ago=30 * HOUR)
    service.put(b"there", ago=29 * HOUR)
    reader = opened(Place(last, WHOLE, now() - 30 * HOUR))
    assert read_until(reader, 1) == ["there"]
    assert "AT_SEQUENCE_NUMBER" in service.asked
    reader.close()


def test_a_shard_that_had_nothing_for_long_gives_no_alarm(service: Kinesis) -> None:
    """All was read an hour ago; the last record is older than what the stream keeps."""
    last = service.put(b"read", ago=100 * HOUR)
    service.drop()
    reader = opened(Place(last, WHOLE, now() - HOUR))
    service.put(b"new")
    assert read_until(reader, 1) == ["new"]
    assert "describe" not in service.asked
    reader.close()


def test_the_position_of_a_reader_that_has_all_moves_with_the_time(service: Kinesis) -> None:
    last = service.put(b"read", ago=3 * HOUR)
    reader = opened(None)
    assert read_until(reader, 1) == ["read"]
    begun = now()
    read_until(reader, 1, until=lambda: reader.position["read_to"] >= begun)
    assert reader.position["after"] == last
    assert reader.moves_without_records
    reader.close()


def test_longer_retention_counts(service: Kinesis) -> None:
    service.hours = 168
    last = service.put(b"read", ago=200 * HOUR)
    service.put(b"new", ago=HOUR)
    service.drop()
    reader = opened(Place(last, WHOLE, now() - 100 * HOUR))
    assert read_until(reader, 1) == ["new"]
    reader.close()
    with pytest.raises(SourceError, match="keeps records for 168 h"):
        read_until(opened(Place(last, WHOLE, now() - 169 * HOUR)), 1)


def test_without_the_right_to_ask_a_day_is_taken(service: Kinesis, caplog: pytest.LogCaptureFixture) -> None:
    service.describes = refusal("AccessDeniedException")
    last = service.put(b"read", ago=30 * HOUR)
    service.drop()
    with pytest.raises(SourceError, match="may be lost"):
        read_until(opened(Place(last, WHOLE, now() - 30 * HOUR)), 1)
    assert "taken to keep records for 24 h" in caplog.text


def test_a_shard_that_nothing_was_read_of_in_time_is_told_of(service: Kinesis) -> None:
    service.put(b"there", ago=HOUR)
    with pytest.raises(SourceError, match="none was read before"):
        read_until(opened(None, since=now() - 25 * HOUR), 1)
    assert read_until(opened(None, "continue", since=now() - 25 * HOUR), 1) == ["there"]


def test_half_a_record_that_is_gone_is_lost_whenever_it_was(service: Kinesis) -> None:
    gone = service.put(b"gone")
    service.records.clear()
    with pytest.raises(SourceError, match="may be lost"):
        read_until(opened(Place(gone, 3, now())), 1)


def test_a_shard_that_is_gone_is_over_if_all_of_it_was_read(service: Kinesis) -> None:
    service.is_listed = False
    reader = opened(Place("7", WHOLE, now() - HOUR))
    read_until(reader, 1, until=lambda: reader.finished)
    assert reader.finished
    with pytest.raises(SourceError, match="does not have the shard any more"):
        read_until(opened(Place("7", WHOLE, now() - 30 * HOUR)), 1)
    reader = opened(Place("7", WHOLE, now() - 30 * HOUR), "continue")
    read_until(reader, 1, until=lambda: reader.finished)
    assert reader.finished


def test_a_stream_that_was_made_anew_is_told_of(service: Kinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    service.put(b"there")
    real = service.get_shard_iterator

    def refusing(**request: Any) -> Any:
        if "StartingSequenceNumber" in request:
            raise refusal("InvalidArgumentException")
        return real(**request)

    monkeypatch.setattr(service, "get_shard_iterator", refusing)
    place = Place(str(10**60), WHOLE, now() - HOUR)
    with pytest.raises(SourceError, match="was made anew"):
        read_until(opened(place), 1)
    assert read_until(opened(place, "continue"), 1) == ["there"]


def test_a_reader_far_behind_warns_before_it_is_too_late(service: Kinesis, caplog: pytest.LogCaptureFixture) -> None:
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


def test_on_lost_is_one_of_two_words() -> None:
    with pytest.raises(InvalidJob, match="on_lost='ignore'"):
        KinesisSource("s", SimpleStringSchema(), on_lost="ignore")
