from __future__ import annotations

import datetime
import decimal
import json
from base64 import b64encode
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest

from penstock.checkpoint.files.codec import encode_manifest
from penstock.checkpoint.files.manifest import (
    FORMAT_VERSION,
    Manifest,
    OperatorInfo,
    OperatorState,
    SourceState,
    SplitPosition,
)
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.common.types import Row
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.encoding.any_codec import AnyCodec
from penstock.state.factory import create_backend, create_timer_service
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import KeyGroupRange

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.unit.cli.terminal import Terminal

GROUPS = 16


@dataclass
class Reading:
    at: datetime.datetime
    value: float
    note: str = ""


class Pair(NamedTuple):
    left: int
    right: Reading | None


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(NamedTuple):
    country: str
    number: int


@dataclass(frozen=True)
class Station:
    country: str
    number: int


@dataclass
class Tree:
    n: int
    under: list[Tree] = field(default_factory=list)


class Model(pydantic.BaseModel):
    n: int
    text: str = "x"


class Tagged(msgspec.Struct, tag="t", array_like=True):
    n: int


READING = Reading(datetime.datetime(2018, 10, 17, 21, 13, 14, tzinfo=datetime.UTC), 1.5)


SHOWN: list[tuple[Any, Any, Any]] = [
    (int, 5, 5),
    (bool, True, True),
    (str, "x", "x"),
    (bytes, b"xy", "eHk="),
    (Any, {"a": (1, {2})}, {"a": [1, [2]]}),
    (Any, {(1, 2): datetime.date(2020, 1, 2)}, {"[1, 2]": "2020-01-02"}),
    (decimal.Decimal, decimal.Decimal("1.50"), "1.50"),
    (datetime.timedelta, datetime.timedelta(days=1, seconds=3), "P1DT3S"),
    (frozenset[int], frozenset({1}), [1]),
    (tuple[int, ...], (1, 2), [1, 2]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (dict[str, list[float]], {"a": [1]}, {"a": [1.0]}),
    (dict[datetime.date, int], {datetime.date(2020, 1, 2): 1}, {"2020-01-02": 1}),
    (dict[Place, int], {Place("de", 1): 2}, {'["de", 1]': 2}),
    (Literal["a", "b"], "b", "b"),
    (Colour, Colour.RED, "red"),
    (Reading, READING, {"at": "2018-10-17T21:13:14Z", "value": 1.5, "note": ""}),
    (dict[str, Pair | None], {"a": Pair(1, READING)}, {"a": [1, {"at": "2018-10-17T21:13:14Z", "value": 1.5, "note": ""}]}),
    (Model, Model(n=1), {"n": 1, "text": "x"}),
    (Tagged, Tagged(1), ["t", 1]),
    (Tree, Tree(1, [Tree(2)]), {"n": 1, "under": [{"n": 2, "under": []}]}),
    (Any, Row(a=1), "Row(a=1)"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_values_of_every_type_are_shown_without_their_classes(offline: Terminal, snapshot: Snapshot, kind: str) -> None:
    states = [(ValueStateDescriptor(f"s{n}", type_), "update", [value]) for n, (type_, value, _) in enumerate(SHOWN)]
    snapshot.write({"op": snapshot.keyed([("k", None)], *states, kind=kind)})
    shown = [rows(offline, snapshot, "op", f"s{n}") for n in range(len(SHOWN))]
    assert shown == [[{"key": "k", "value": value}] for _, _, value in SHOWN]
    assert [type(row["value"]) for (row,) in shown] == [type(value) for _, _, value in SHOWN]


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("key_type", "key", "shown"),
    [
        (Station, Station("de", 1), {"country": "de", "number": 1}),
        (Place, Place("de", 1), ["de", 1]),
        (tuple[Station, bool], (Station("de", 1), True), [{"country": "de", "number": 1}, True]),
        (Colour, Colour.RED, "red"),
        (float, 2.0, 2.0),
        (decimal.Decimal, decimal.Decimal(2), "2"),
        (None, ("a", None), ["a", None]),
        (None, None, None),
    ],
)
def test_keys_of_every_type_are_shown(
    offline: Terminal, snapshot: Snapshot, kind: str, key_type: Any, key: Any, shown: Any
) -> None:
    value, by_key = ValueStateDescriptor("value", int), MapStateDescriptor("map", key_type, int)
    states = ((value, "update", [1]), (by_key, "put", [(key, 2)]))
    snapshot.write({"op": snapshot.keyed([(key, None)], *states, kind=kind, key_type=key_type)})
    (row,) = rows(offline, snapshot, "op", "value")
    assert row == {"key": shown, "value": 1}
    assert type(row["key"]) is type(shown)
    as_text = shown if isinstance(shown, str) else json.dumps(shown)
    assert rows(offline, snapshot, "op", "map") == [{"key": shown, "value": {as_text: 2}}]


def test_records_as_dictionary_keys_are_refused_by_name(offline: Terminal, snapshot: Snapshot) -> None:
    state = ValueStateDescriptor("seen", dict[Station, int])
    snapshot.write({"op": snapshot.keyed([("k", None)], (state, "update", [{Station("de", 1): 2}]))})
    outcome = offline("state", "read", snapshot.path, "--uid", "op", "--name", "seen")
    assert outcome.code == 1
    assert "error [STATE_FORMAT_UNSUPPORTED]: state 'seen' cannot be read" in outcome.err
    assert "a job that declares it" in outcome.err


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_values_with_a_ttl_are_shown_with_their_expiry_time(offline: Terminal, snapshot: Snapshot, kind: str) -> None:
    ttl = datetime.timedelta(seconds=5)
    states = (
        (ValueStateDescriptor("value", Pair, ttl=ttl), "update", [Pair(1, None)]),
        (MapStateDescriptor("map", str, int, ttl=ttl), "put", [("a", 1)]),
    )
    snapshot.write({"op": snapshot.keyed([("k", (0, 10))], *states, kind=kind)})
    entry = {"key": "k", "namespace": [0, 10], "expiry": 5000}
    assert rows(offline, snapshot, "op", "value") == [entry | {"value": [1, None]}]
    assert rows(offline, snapshot, "op", "map") == [entry | {"value": {"a": 1}}]


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb"])
def test_timers_are_read_by_time_domain(offline: Terminal, snapshot: Snapshot, kind: str) -> None:
    state = (ValueStateDescriptor("count", int), "update", [1])
    snapshot.write({"op": snapshot.keyed([("k", (0, 10))], state, kind=kind, timers=[9])})
    timer = {"domain": "event-time", "timestamp": 9, "key": "k", "namespace": [0, 10]}
    assert rows(offline, snapshot, "op", "timers (event-time)") == [timer]
    assert rows(offline, snapshot, "op", "timers (processing-time)") == []


class Clock:
    def now_ms(self) -> int:
        return 0


class Sum:
    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return one[0] + other[0], one[1] + other[1]


class Snapshot:
    """A checkpoint as two subtasks would write it."""

    def __init__(self, folder: Path) -> None:
        self.storage = CheckpointStorage(folder.as_uri(), "job-1")
        self.path = f"{folder}/job-1/chk-1"

    def keyed(
        self,
        entries: list[tuple[Any, Any]],
        *states: tuple[StateDescriptor, str, list[Any]],
        kind: str = "hashmap",
        key_type: Any = None,
        timers: Sequence[int] = (),
    ) -> OperatorState:
        """Write keyed state. `entries` contains (key, namespace).

        The method of each state is called with the value at the same position.
        `timers` contains event-time timers for the key and namespace at the same position.
        """
        handles = []
        for groups in (KeyGroupRange(0, 7), KeyGroupRange(8, 15)):
            at = KeyContext()
            backend: Any = create_backend(
                kind,
                key_group_range=groups,
                max_parallelism=GROUPS,
                key_context=at,
                clock=Clock(),
                key_type=key_type,
            )
            service = create_timer_service(backend)
            for descriptor, method, values in states:
                handle = backend.get_state(descriptor)
                for (key, namespace), value in zip(entries, values, strict=True):
                    if backend_owns(key, groups):
                        at.key, at.namespace = key, namespace
                        arguments = value if method == "put" else (value,)
                        getattr(handle, method)(*arguments)
            for (key, namespace), timestamp in zip(entries, timers, strict=False):
                if backend_owns(key, groups):
                    at.key, at.namespace = key, namespace
                    service.register_event_time_timer(timestamp)
            handles.append(json.loads(json.dumps(backend.snapshot(1).run(self.storage.writer()))))
            backend.close()
        return OperatorState(keyed=handles)

    def write(self, states: dict[str, OperatorState], sources: dict[str, SourceState] | None = None) -> None:
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            kind="checkpoint",
            job_id="job-1",
            job_name="count",
            checkpoint_id=1,
            leader_epoch=1,
            trigger_timestamp=0,
            complete_timestamp=0,
            parallelism=2,
            max_parallelism=GROUPS,
            graph_fingerprint="",
            operators=[OperatorInfo(uid, uid, 2, GROUPS) for uid in states],
            sources=sources or {},
            states=states,
        )
        self.storage.put("chk-1/_metadata", encode_manifest(manifest))


def backend_owns(key: Any, groups: KeyGroupRange) -> bool:
    from penstock.state.key_groups import key_group

    return key_group(key, GROUPS) in groups


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return Snapshot(tmp_path)


def rows(terminal: Terminal, snapshot: Snapshot, uid: str, name: str) -> list[Any]:
    outcome = terminal("state", "read", snapshot.path, "--uid", uid, "--name", name, "--format", "json")
    assert outcome.code == 0, outcome.err
    return sorted((json.loads(line) for line in outcome.lines), key=json.dumps)


def test_every_kind_of_keyed_state_is_read_from_all_subtasks(offline: Terminal, snapshot: Snapshot) -> None:
    keys = [(f"k{n}", None) for n in range(6)]
    snapshot.write(
        {
            "op": snapshot.keyed(
                keys,
                (ValueStateDescriptor("value", Reading), "update", [READING] * 6),
                (ListStateDescriptor("list", int), "update", [[n, n + 1] for n in range(6)]),
                (MapStateDescriptor("map", str, Pair), "put", [("a", Pair(n, None)) for n in range(6)]),
                (ReducingStateDescriptor("reducing", max, int), "add", list(range(6))),
                (AggregatingStateDescriptor("aggregating", Sum(), tuple[int, int]), "add", list(range(6))),
            )
        }
    )
    reading = {"at": "2018-10-17T21:13:14Z", "value": 1.5, "note": ""}
    assert rows(offline, snapshot, "op", "value") == [{"key": k, "value": reading} for k, _ in keys]
    assert rows(offline, snapshot, "op", "list")[2] == {"key": "k2", "value": [2, 3]}
    assert rows(offline, snapshot, "op", "map")[2] == {"key": "k2", "value": {"a": [2, None]}}
    assert rows(offline, snapshot, "op", "reducing")[5] == {"key": "k5", "value": 5}
    assert rows(offline, snapshot, "op", "aggregating")[5] == {"key": "k5", "value": [5, 1]}


def test_windows_are_shown_as_namespaces(offline: Terminal, snapshot: Snapshot) -> None:
    entries = [("k", (0, 1000)), ("k", (1000, 2000))]
    snapshot.write({"win": snapshot.keyed(entries, (ValueStateDescriptor("sum", int), "update", [1, 2]))})
    assert rows(offline, snapshot, "win", "sum") == [
        {"key": "k", "namespace": [0, 1000], "value": 1},
        {"key": "k", "namespace": [1000, 2000], "value": 2},
    ]


def test_operator_state_and_source_positions_are_shown(offline: Terminal, snapshot: Snapshot) -> None:
    def item(value: Any) -> str:
        return b64encode(AnyCodec("s", "").encode(value)).decode()

    parts = [
        {
            "pending": {"mode": "split", "items": [item(1)]},
            "rules": {"mode": "broadcast", "items": [item("a"), item(7)]},
        },
        {"pending": {"mode": "split", "items": [item(2), item(3)]}},
    ]
    split = SplitPosition("part-0", {"path": "x"}, position=42)
    snapshot.write({"op": OperatorState(operator=parts)}, {"src": SourceState([split])})
    assert rows(offline, snapshot, "op", "pending") == [
        {"subtask": 0, "value": 1},
        {"subtask": 1, "value": 2},
        {"subtask": 1, "value": 3},
    ]
    assert rows(offline, snapshot, "op", "rules") == [{"subtask": 0, "key": "a", "value": 7}]
    (found,) = rows(offline, snapshot, "src", "splits")
    assert (found["id"], found["position"]) == ("part-0", 42)


def test_a_table_has_a_limit_and_shows_states_by_name(offline: Terminal, snapshot: Snapshot) -> None:
    keys = [(n, None) for n in range(6)]
    snapshot.write({"op": snapshot.keyed(keys, (ValueStateDescriptor("count", int), "update", list(range(6))))})
    listed = offline("state", "read", snapshot.path, "--uid", "op").lines
    assert [line.split() for line in listed] == [["name", "kind"], ["count", "keyed", "value"]]
    shown = offline("state", "read", snapshot.path, "--uid", "op", "--name", "count", "--limit", "2").lines
    assert shown[0].split() == ["key", "value"]
    assert len(shown) == 3


@pytest.mark.parametrize(
    ("words", "text", "remedy"),
    [
        (("--uid", "none"), "holds no state of an operator 'none'", "it has state of: op"),
        (("--uid", "op", "--name", "none"), "operator 'op' has no state 'none'", "it has: count"),
    ],
)
def test_the_error_for_an_unknown_name_lists_the_known_names(
    offline: Terminal, snapshot: Snapshot, words: tuple[str, ...], text: str, remedy: str
) -> None:
    snapshot.write({"op": snapshot.keyed([("k", None)], (ValueStateDescriptor("count", int), "update", [1]))})
    outcome = offline("state", "read", snapshot.path, *words)
    assert outcome.code == 1
    assert text in outcome.err
    assert remedy in outcome.err


def test_verify_reports_whether_a_snapshot_is_complete(offline: Terminal, snapshot: Snapshot) -> None:
    snapshot.write({"op": snapshot.keyed([("k", None)], (ValueStateDescriptor("count", int), "update", [1]))})
    outcome = offline("savepoint", "verify", snapshot.path, "--checksums")
    assert outcome.code == 0, outcome.err
    assert outcome.lines[0].endswith("chk-1 is complete.")
    for info in snapshot.storage.list_objects("shared"):
        snapshot.storage.delete(info.url.removeprefix(snapshot.storage.url + "/"))
    broken = offline("savepoint", "verify", snapshot.path)
    assert broken.code == 1
    assert "error [SNAPSHOT_TORN]" in broken.err
    assert "missing: shared/" in broken.err


def test_verify_of_a_missing_path_lists_the_snapshots_beside_it(offline: Terminal, tmp_path: Path) -> None:
    outcome = offline("savepoint", "verify", str(tmp_path))
    assert outcome.code == 1
    assert "error [SNAPSHOT_NOT_FOUND]" in outcome.err
