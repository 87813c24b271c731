"""Keyed state declared as attributes of a function's class."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.common.errors import KeyedStateNotAvailable, StateTypeError
from penstock.common.typeinfo import Types
from penstock.datastream.functions import KeyedProcessFunction, MapFunction
from penstock.datastream.state import list_state, map_state, value_state
from penstock.testing import JobHarness


class Seen(KeyedProcessFunction):
    count = value_state(int, default=0)
    before = value_state(str)
    words = list_state(str)
    lengths = map_state(str, int)

    def process_element(self, value: tuple[str, str], ctx: Any) -> Iterator[Any]:
        word = value[1]
        self.count += 1
        yield self.count, self.before, list(self.words), dict(self.lengths.items())
        self.before = word
        self.words.add(word)
        self.lengths[word] = len(word)
        if word == "clear":
            del self.before
            self.words = []  # type: ignore[assignment]
            self.lengths = {"left": 4}  # type: ignore[assignment]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_attributes_are_state_of_the_key_and_survive_a_crash(backend: str) -> None:
    with JobHarness(backend=backend) as harness:
        harness.collect(harness.source("words").key_by(0).process(Seen()), "seen")
        harness.push("words", ("a", "x"), ("b", "y"))
        harness.run()
        harness.snapshot()
        harness.take("seen")
        harness.crash()
        harness.push("words", ("a", "clear"), ("a", "z"))
        assert harness.take("seen") == [(2, "x", ["x"], {"x": 1}), (3, None, [], {"left": 4})]


class Numbered(MapFunction):
    count = value_state(int, default=0)

    def map(self, value: Any) -> Any:
        self.count += 1
        return (value, self.count)


@pytest.mark.parametrize("output_type", [None, Types.ROW([Types.STRING(), Types.INT()])])
def test_any_function_of_a_keyed_stream_may_have_state_attributes(output_type: Any) -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("words").key_by(lambda word: word).map(Numbered(), output_type), "numbered")
        harness.push("words", "a", "a", "b")
        assert [tuple(result) for result in harness.outputs("numbered")] == [("a", 1), ("a", 2), ("b", 1)]


def test_state_attributes_are_refused_without_a_key_before_the_job_runs() -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("words").map(Numbered()), "numbered")
        with pytest.raises(KeyedStateNotAvailable, match="'count'"):
            harness.run()


class Unstorable(MapFunction):
    lock = value_state(type(lambda: None))

    def map(self, value: Any) -> Any:
        return value


def test_a_type_that_cannot_be_stored_is_refused_before_the_job_runs() -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("words").key_by(lambda word: word).map(Unstorable()), "out")
        with pytest.raises(StateTypeError, match="'lock'"):
            harness.run()


class Halves(MapFunction):
    half = value_state(int)

    def map(self, value: int) -> int:
        self.half = value / 2  # type: ignore[assignment]
        return value


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_value_of_another_type_than_declared_is_reported_at_the_line_that_stores_it(backend: str) -> None:
    with JobHarness(backend=backend) as harness:
        halves = harness.source("numbers").key_by(lambda number: 0).map(Halves()).name("halves")
        harness.collect(halves, "out")
        harness.push("numbers", 1)
        with pytest.raises(StateTypeError, match=r"'half'.*test_state_attributes.py:\d+ in map") as caught:
            harness.run()
    assert caught.value.operator == "halves"
    assert "test_state_attributes.py" in caught.value.location


def test_an_attribute_of_a_closed_function_raises_an_error() -> None:
    with pytest.raises(KeyedStateNotAvailable, match="only after the function is opened"):
        Numbered().count += 1


class Forgetful(MapFunction):
    count = value_state(int, default=0, ttl=timedelta(minutes=1))

    def map(self, value: Any) -> int:
        self.count += 1
        return self.count


def test_state_attributes_expire_after_their_ttl() -> None:
    with JobHarness() as harness:
        harness.collect(harness.source("words").key_by(lambda word: word).map(Forgetful()), "counts")
        harness.push("words", "a", "a")
        harness.run()
        harness.advance_processing_time(by=timedelta(minutes=2))
        harness.push("words", "a")
        assert harness.outputs("counts") == [1, 2, 1]


def test_inspect_receives_values_and_forwards_them() -> None:
    seen: list[int] = LOOKED_AT
    seen.clear()
    with JobHarness() as harness:
        harness.collect(harness.source("numbers").inspect(look), "numbers out")
        harness.push("numbers", 1, 2)
        assert harness.outputs("numbers out") == seen == [1, 2]


LOOKED_AT: list[int] = []


def look(value: int) -> None:
    LOOKED_AT.append(value)
