from __future__ import annotations

import datetime
import decimal
import json
from base64 import b64encode
from dataclasses import dataclass
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
from penstock.cli.state_types import annotation_of
from penstock.common.errors import StateFormatUnsupported
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.backend import KeyContext, KeyGroupRange
from penstock.state.encoding.any_codec import AnyCodec
from penstock.state.encoding.schema import describe, incompatibility
from penstock.state.factory import create_backend

if TYPE_CHECKING:
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


class Model(pydantic.BaseModel):
    n: int
    text: str = "x"


class Tagged(msgspec.Struct, tag="t", array_like=True):
    n: int


READING = Reading(datetime.datetime(2018, 10, 17, 21, 13, 14, tzinfo=datetime.UTC), 1.5)


@pytest.mark.parametrize(
    "annotation",
    [
        int, str, bytes, bool, Any, decimal.Decimal, datetime.timedelta, list[int], set[str], frozenset[int], tuple[int, ...],
        tuple[int, str], dict[str, list[float]], int | None, Literal["a", "b"], Colour, Reading, Pair, Model, Tagged,
        dict[str, Pair | None],
    ],
)  # fmt: skip
def test_every_description_leads_to_a_type_that_reads_the_values(annotation: Any) -> None:
    schema = describe(annotation)
    assert incompatibility(schema, describe(annotation_of(schema))) == ""


def test_a_description_of_a_type_that_contains_itself_is_refused() -> None:
    with pytest.raises(StateFormatUnsupported, match="cannot be shown"):
        annotation_of({"type": "ref", "name": "Tree"})


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
    """A checkpoint written by hand, as two subtasks would."""

    def __init__(self, folder: Path) -> None:
        self.storage = CheckpointStorage(folder.as_uri(), "job-1")
        self.path = f"{folder}/job-1/chk-1"

    def keyed(self, entries: list[tuple[Any, Any]], *states: tuple[StateDescriptor, str, list[Any]]) -> OperatorState:
        """`entries`: (key, namespace); each state's method is called with the value of the same position."""
        handles = []
        for groups in (KeyGroupRange(0, 7), KeyGroupRange(8, 15)):
            at = KeyContext()
            backend: Any = create_backend(
                "hashmap", key_group_range=groups, max_parallelism=GROUPS, key_context=at, clock=Clock()
            )
            for descriptor, method, values in states:
                handle = backend.get_state(descriptor)
                for (key, namespace), value in zip(entries, values, strict=True):
                    if backend_owns(key, groups):
                        at.key, at.namespace = key, namespace
                        arguments = value if method == "put" else (value,)
                        getattr(handle, method)(*arguments)
            handles.append(json.loads(json.dumps(backend.snapshot(1).run(self.storage.writer()))))
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


def test_operator_state_and_source_positions(offline: Terminal, snapshot: Snapshot) -> None:
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


def test_as_a_table_with_a_limit_and_the_states_by_name(offline: Terminal, snapshot: Snapshot) -> None:
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
def test_what_is_not_there_is_answered_with_what_is(
    offline: Terminal, snapshot: Snapshot, words: tuple[str, ...], text: str, remedy: str
) -> None:
    snapshot.write({"op": snapshot.keyed([("k", None)], (ValueStateDescriptor("count", int), "update", [1]))})
    outcome = offline("state", "read", snapshot.path, *words)
    assert outcome.code == 1
    assert text in outcome.err
    assert remedy in outcome.err


def test_verify_says_whether_a_snapshot_is_whole(offline: Terminal, snapshot: Snapshot) -> None:
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


def test_verify_of_nothing_says_what_is_there(offline: Terminal, tmp_path: Path) -> None:
    outcome = offline("savepoint", "verify", str(tmp_path))
    assert outcome.code == 1
    assert "error [SNAPSHOT_NOT_FOUND]" in outcome.err
