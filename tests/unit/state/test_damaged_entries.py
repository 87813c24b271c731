"""Entries of a damaged or hostile snapshot that are decoded late: a read returns a value or raises a coded error."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.errors import CorruptStateFile, LocalDiskError, PenstockError
from penstock.common.time import Time
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.state.factory import create_timer_service
from penstock.state.peek.stored import NotPeekable
from penstock.state.rocksdb.rows import family_name, sized, space_prefix
from penstock.state.rocksdb.timers import FAMILY as TIMERS
from tests.unit.state.hostile import damaged
from tests.unit.state.support import KINDS, Backends, Mean, at


@dataclass
class Account:
    name: str
    balance: Decimal


class Point(NamedTuple):
    x: int
    y: float = 0.0


def _with_ttl(descriptor: Any) -> Any:
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(10)).cleanup_incrementally(3).build())
    return descriptor


DESCRIPTORS: dict[str, Callable[[], Any]] = {
    "any": lambda: ValueStateDescriptor("any"),
    "point": lambda: ValueStateDescriptor("point", Point),
    "expiring": lambda: _with_ttl(ValueStateDescriptor("expiring", Point)),
    "list": lambda: ListStateDescriptor("list", Point),
    "map": lambda: MapStateDescriptor("map", str, Account),
    "any-map": lambda: MapStateDescriptor("any-map"),
    "expiring-map": lambda: _with_ttl(MapStateDescriptor("expiring-map", str, int)),
    "sum": lambda: ReducingStateDescriptor("sum", lambda a, b: a + b, int),
    "mean": lambda: AggregatingStateDescriptor("mean", Mean()),
}
VALUES: dict[str, Any] = {
    "any": {"n": (1, "x")},
    "point": Point(1, 2.0),
    "expiring": Point(3),
    "list": [Point(1), Point(2)],
    "map": {"m": Account("b", Decimal(2)), "n": Account("c", Decimal(3))},
    "any-map": {("m", 1): [1, (2,)], "n": None},
    "expiring-map": {"a": 1, "b": 2},
    "sum": 5,
    "mean": 5,
}
NAMESPACES = (None, (0, 10))
KEYS = ["key-0", "key-1", 2, ("k", 3)]


def fill(backend: Any) -> None:
    timers = create_timer_service(backend)
    for key in KEYS:
        for namespace in NAMESPACES:
            at(backend, key, namespace)
            for name, make in DESCRIPTORS.items():
                state, value = backend.get_state(make()), VALUES[name]
                if isinstance(value, dict) and hasattr(state, "put_all"):
                    state.put_all(value)
                elif hasattr(state, "update"):
                    state.update(value)
                else:
                    state.add(value)
            timers.register_event_time_timer(5)


def readers(backend: Any) -> Iterator[Callable[[], Any]]:
    """Read restored state in each way that user code and operators have."""
    states: dict[str, Any] = {}

    def get_state(name: str) -> None:
        states[name] = backend.get_state(DESCRIPTORS[name]())

    for name in DESCRIPTORS:
        yield partial(get_state, name)
    for key, namespace in product(KEYS, NAMESPACES):
        at(backend, key, namespace)
        for name, state in states.items():
            yield from _reads(state, VALUES[name])
    for name in states:
        yield partial(_drained, backend.namespaces, name)
        for namespace in NAMESPACES:
            yield partial(_drained, backend.keys, name, namespace)
        for key in KEYS[:2]:
            yield partial(backend.peek, name, key)
    if "point" in states:
        table = backend.raw_table(DESCRIPTORS["point"]())
        for key in KEYS:
            yield partial(table.get, key)
        for namespace in NAMESPACES:
            yield partial(_drained, table.pop_namespace, namespace)
    timers = create_timer_service(backend)
    timers.set_callbacks(lambda *timer: None, lambda *timer: None)
    yield partial(timers.advance_watermark, 100)
    yield backend.entry_count


def _reads(state: Any, value: Any) -> Iterator[Callable[[], Any]]:
    if hasattr(state, "put"):
        for map_key in value:
            yield partial(state.get, map_key)
            yield partial(state.contains, map_key)
    elif hasattr(state, "get"):
        yield state.get
    for method in ("value", "items", "keys", "values"):
        if hasattr(state, method):
            yield partial(_drained, getattr(state, method))


def _drained(read: Callable[..., Any], *arguments: Any) -> Any:
    found = read(*arguments)
    return list(found) if isinstance(found, Iterator) else found


def read_all(backend: Any) -> list[PenstockError]:
    """Read everything, and return the coded errors. Other errors are raised."""
    errors = []
    for read in readers(backend):
        try:
            read()
        except NotPeekable:
            pass
        except PenstockError as error:
            errors.append(error)
    return errors


@pytest.fixture(params=KINDS)
def reading_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    backends = Backends("rocksdb", tmp_path_factory.mktemp("written"))
    yield Written(backends)
    backends.close()


class Written:
    """A RocksDB backend with entries in every state. Each test damages some rows for one snapshot."""

    def __init__(self, backends: Backends) -> None:
        self.backends = backends
        self.backend = backends.create()
        fill(self.backend)
        self._snapshots = 1
        self.backend.snapshot(1).run(backends.storage)  # writes the timers, which later snapshots do not write again

    def family(self, name: str) -> Any:
        return self.backend._database.family(name)

    def rows(self, family: str) -> list[tuple[bytes, bytes]]:
        return list(self.family(family).items())

    def snapshot(self, damage: dict[tuple[str, bytes], bytes]) -> dict[str, Any]:
        """Return the handle of a snapshot whose rows have other contents, by family and row."""
        before = {(family, row): self.family(family).get(row) for family, row in damage}
        for (family, row), content in damage.items():
            self.family(family)[row] = content
        self._snapshots += 1
        handle = self.backends.snapshot(self.backend, self._snapshots)
        for (family, row), content in before.items():
            if content is None:
                del self.family(family)[row]
            else:
                self.family(family)[row] = content
        return handle

    def read(self, handle: dict[str, Any], kind: str) -> list[PenstockError]:
        """Restore and read everything, and return the coded errors. Other errors are raised."""
        backend = self.backends.create(kind=kind)
        try:
            backend.restore([handle], self.backends.storage)
            return read_all(backend)
        except PenstockError as error:
            return [error]
        finally:
            backend.close()


def test_undamaged_entries_are_read(written: Written, reading_kind: str) -> None:
    assert written.read(written.snapshot({}), reading_kind) == []


def test_bytes_that_cannot_be_decoded_cause_an_error_with_state_and_operator(
    written: Written, reading_kind: str
) -> None:
    names = [name for name in DESCRIPTORS if reading_kind == "rocksdb" or not name.startswith("expiring")]
    damage = {(family, row): b"\xc1" for family in map(family_name, names) for row, _ in written.rows(family)}
    errors = written.read(written.snapshot(damage), reading_kind)
    assert errors
    for error in errors:
        assert isinstance(error, CorruptStateFile)
        assert (error.operator, error.remedy) == (
            "the operator",
            "restore another checkpoint or savepoint by naming its path",
        )
    text = "\n".join(error.message for error in errors)
    assert [name for name in names if f"state {name!r} cannot be decoded: " not in text] == []


def test_an_incomplete_expiry_time_causes_an_error_with_its_state(written: Written, reading_kind: str) -> None:
    family = family_name("expiring")
    errors = written.read(written.snapshot({(family, row): b"\0" for row, _ in written.rows(family)}), reading_kind)
    assert errors
    assert {error.code for error in errors} == {"CORRUPT_STATE_FILE"}
    assert all("state 'expiring' cannot be decoded: " in error.message for error in errors)


HOSTILE_ROWS = {
    "empty": b"",
    "short": b"\x00",
    "namespace beyond the end": b"\x00\x01\xff\xff",
    "key beyond the end": space_prefix(1, None) + b"\x00\x00\xff\xffk",
    "key that is no msgpack": space_prefix(1, None) + sized(b"\xc1"),
    "key that cannot be hashed": space_prefix(1, None) + sized(b"\x81\x01\x02"),
    "namespace that is no msgpack": b"\x00\x01\x00\x01\xc1" + sized(b"\xa1k"),
    "namespace in another form": b"\x00\x01\x00\x03\xcd\x00\x05" + sized(b"\xa1k"),
    "rest of another layout": space_prefix(1, None) + sized(b"\xa1k") + b"\xc1",
}


@pytest.mark.parametrize("hostile", HOSTILE_ROWS)
def test_a_hostile_row_causes_neither_a_raw_error_nor_an_endless_loop(
    written: Written, reading_kind: str, hostile: str
) -> None:
    families = map(family_name, ("point", "list", "map", "expiring"))
    written.read(written.snapshot({(family, HOSTILE_ROWS[hostile]): b"\x01" for family in families}), reading_kind)


_AT_0 = b"\x80" + bytes(7)


@pytest.mark.parametrize(
    "row", [b"\0", b"\0" + _AT_0, b"\x07" + _AT_0 + space_prefix(1, None) + sized(b"\xa1k"),
            *(b"\0" + _AT_0 + HOSTILE_ROWS[name] for name in ("key beyond the end", "key that is no msgpack", "namespace that is no msgpack"))]
)  # fmt: skip
def test_a_hostile_timer_causes_a_coded_error(written: Written, reading_kind: str, row: bytes) -> None:
    errors = written.read(written.snapshot({(TIMERS, row): b""}), reading_kind)
    assert [(error.code, error.operator) for error in errors] == [("CORRUPT_STATE_FILE", "the operator")]
    assert "timers cannot be decoded: " in errors[0].message


def test_an_unreadable_database_file_is_an_error_of_the_local_disk(written: Written) -> None:
    (restored,) = written.backends.restored([written.snapshot({})])
    for path in Path(restored._work_dir).rglob("*.sst"):
        content = path.read_bytes()
        path.write_bytes(b"\xff" * 200 + content[200:])
    errors = read_all(restored)
    assert errors
    assert {type(error) for error in errors} == {LocalDiskError}


FUZZ = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(seed=st.integers(0, 2**32))
def test_damaged_rows_are_read_as_values_or_cause_coded_errors(written: Written, seed: int) -> None:
    chance = random.Random(seed)
    damage = {}
    for _ in range(chance.randint(1, 6)):
        family = chance.choice([*map(family_name, DESCRIPTORS), TIMERS])
        row, content = chance.choice(written.rows(family))
        if content and chance.random() < 0.7:
            damage[family, row] = damaged(content, chance)
        else:
            damage[family, damaged(row, chance)] = content
    handle = written.snapshot(damage)
    for kind in KINDS:
        written.read(handle, kind)
