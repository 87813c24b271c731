"""State of a snapshot as rows, without the program's classes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import pytest

from penstock.common.errors import CorruptStateFile, StateFormatUnsupported
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.state.factory import create_timer_service
from penstock.state.key_groups import KeyGroupRange, key_group
from penstock.state.reader import StateRow, TimerRow, handles_for_range, read_state, read_timers, states_of
from tests.unit.state.support import MAX_PARALLELISM, VALUE, Backends, at


class Point(NamedTuple):
    x: int
    y: float


@dataclass
class Track:
    name: str
    points: list[Point]
    last: Point | None = None


@dataclass(frozen=True)
class Key:
    country: str
    number: int


def test_records_are_returned_as_dicts(backends: Backends) -> None:
    backend = backends.create(key_type=Key)
    track = backend.get_state(ValueStateDescriptor("track", Track))
    points = backend.get_state(ListStateDescriptor("points", Point))
    by_name = backend.get_state(MapStateDescriptor("by name", str, Point, ttl=timedelta(seconds=5)))
    for i in range(3):
        at(backend, Key("de", i), (0, 10))
        track.update(Track("a", [Point(1, 2.5)], Point(3, 4.0)))
        points.add_all([Point(i, 0.5), Point(i, 1.5)])
        backends.clock.now = i
        by_name["p"] = Point(i, 9.0)
    backends.snapshot(backend, 1)
    at(backend, Key("de", 1), (0, 10))
    points.clear()
    handles = json.loads(json.dumps([backends.snapshot(backend, 2)]))
    assert {name: info.kind for name, info in states_of(handles).items()} == {
        "track": "value", "points": "list", "by name": "map",
    }  # fmt: skip
    key = ("country", "de", "number", 0)
    rows = {row.key: row for row in read_state(handles, "track", backends.storage)}
    assert len(rows) == 3
    assert rows[key] == StateRow(
        key, (0, 10), {"name": "a", "points": [{"x": 1, "y": 2.5}], "last": {"x": 3, "y": 4.0}}
    )
    lists = {row.key: row.value for row in read_state(handles, "points", backends.storage)}
    assert sorted(lists) == [key, ("country", "de", "number", 2)]
    assert lists[key] == [{"x": 0, "y": 0.5}, {"x": 0, "y": 1.5}]
    expiring = sorted(read_state(handles, "by name", backends.storage))
    assert expiring[2] == StateRow(("country", "de", "number", 2), (0, 10), {"p": {"x": 2, "y": 9.0}}, 5002)
    assert list(read_state(handles, "no such state", backends.storage)) == []


def test_all_subtasks_are_read_and_each_one_only_for_its_key_groups(backends: Backends) -> None:
    before = backends.restored([], 2)
    for backend in before:
        for i in range(20):
            if key_group(i, MAX_PARALLELISM) in backend.key_group_range:
                at(backend, i)
                backend.get_state(VALUE).update({"n": (i, {i})})
    handles = [backends.snapshot(backend) for backend in before]
    assert sorted(read_state(handles, "value", backends.storage)) == [
        StateRow(i, None, {"n": (i, {i})}) for i in range(20)
    ]
    wide = backends.restored(handles, 1, owned=True)
    handles = [
        backends.snapshot(backend, 2) for backend in backends.restored([backends.snapshot(wide[0], 2)], 3, owned=True)
    ]
    assert sorted(row.key for row in read_state(handles, "value", backends.storage)) == list(range(20))


def test_subtasks_are_read_one_after_the_other(backends: Backends) -> None:
    before = backends.restored([], 2)
    for backend in before:
        for i in range(20):
            if key_group(i, MAX_PARALLELISM) in backend.key_group_range:
                at(backend, i)
                backend.get_state(VALUE).update(i)
    handles = [backends.snapshot(backend) for backend in before]
    files = [{file["path"] for file in handle["files"]} for handle in handles]
    backends.storage.reads.clear()
    rows = read_state(handles, "value", backends.storage)
    next(rows)
    assert set(backends.storage.reads) == files[0]
    assert len(list(rows)) == 19
    assert set(backends.storage.reads) == files[0] | files[1]


def test_timers_are_returned_as_rows(backends: Backends) -> None:
    backend = backends.create()
    service = create_timer_service(backend)
    at(backend, "b", (0, 5))
    service.register_event_time_timer(20)
    service.register_processing_time_timer(7)
    at(backend, "a")
    service.register_event_time_timer(10)
    assert list(read_timers([backends.snapshot(backend)], backends.storage)) == [
        TimerRow("event-time", 10, "a", None),
        TimerRow("event-time", 20, "b", (0, 5)),
        TimerRow("processing-time", 7, "b", (0, 5)),
    ]


def test_damaged_and_foreign_snapshots_are_refused(backends: Backends) -> None:
    backend = backends.create()
    at(backend, "a")
    backend.get_state(VALUE).update(1)
    handle = backends.snapshot(backend)
    with pytest.raises(StateFormatUnsupported, match="backend 'other'"):
        states_of([handle | {"backend": "other"}])
    backends.storage.files[handle["files"][0]["path"]] = b"damaged"
    with pytest.raises(CorruptStateFile):
        list(read_state([handle], "value", backends.storage))


def test_only_handles_that_overlap_the_range_are_returned() -> None:
    handles = [{"key_groups": [0, 4]}, {"key_groups": [5, 9]}, {"key_groups": [10, 15]}]
    assert handles_for_range(handles, KeyGroupRange(4, 9)) == handles[:2]
    assert handles_for_range(handles, KeyGroupRange(16, 20)) == []
