"""Examples of streams, keys and parallelism, as whole jobs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.records.batch import MIN_TIMESTAMP
from penstock.testing import JobHarness
from tests.unit.testing.functions import add, first


class Where(MapFunction):
    """A function that emits (subtask, parallelism, value)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.parallelism = runtime_context.get_number_of_parallel_subtasks()

    def map(self, value: Any) -> tuple[int, int, Any]:
        return self.subtask, self.parallelism, value


class Count(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def map(self, value: Any) -> tuple[Any, int]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return value, count


def running_count(stream: Any, key: Callable[[Any], Any] | str | list[str]) -> Any:
    """Return a stream of (value, number of values of its key so far)."""
    return stream.key_by(key).map(Count())


def hashtags(tweet: str) -> Iterator[tuple[str, int]]:
    for word in tweet.split():
        if word.startswith("#"):
            yield word[1:], 1


def test_hashtags_are_extracted_and_counted() -> None:
    """Two tasks extract hashtags, and two tasks count them."""
    with JobHarness(parallelism=2) as harness:
        tweets = harness.source("tweets", splits=2)
        harness.collect(tweets.flat_map(hashtags).key_by(first).reduce(add), "counts")
        harness.push("tweets", "#a #b")
        harness.push("tweets", "#a", split=1)
        assert sorted(harness.outputs("counts")) == [("a", 1), ("a", 2), ("b", 1)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_union_returns_all_streams_as_one(parallelism: int) -> None:
    """Readings of Paris, Tokyo and Rio are joined. The event time is that of the city with the lowest watermark."""
    cities = ["Paris", "Tokyo", "Rio"]
    with JobHarness(parallelism) as harness:
        paris, tokyo, rio = (harness.source(city) for city in cities)
        harness.collect(paris.union(tokyo, rio), "all")
        for city in cities:
            harness.push(city, (city, 1), (city, 2), timestamp=10)
        harness.advance_watermark("Paris", 30)
        harness.advance_watermark("Rio", 20)
        assert harness.watermark("all") == MIN_TIMESTAMP
        harness.advance_watermark("Tokyo", 40)
        assert harness.watermark("all") == 20
        found = harness.outputs("all")
    assert all([n for name, n in found if name == city] == [1, 2] for city in cities)
    assert len(found) == 6


def negative_to_the_first(key: int, partitions: int) -> int:
    return 0 if key < 0 else random.randrange(partitions)


def test_a_custom_partitioner_chooses_the_task_of_a_record() -> None:
    """Negative numbers go to task 0, others to any task."""
    with JobHarness(parallelism=4) as harness:
        numbers = harness.source("numbers").partition_custom(negative_to_the_first, lambda n: n)
        harness.collect(numbers.map(Where()), "where")
        harness.push("numbers", *range(-100, 100))
        found = harness.outputs("where")
    assert {subtask for subtask, _, number in found if number < 0} == {0}
    assert {subtask for subtask, _, number in found if number >= 0} == {0, 1, 2, 3}
    assert sorted(number for _, _, number in found) == list(range(-100, 100))


def test_an_operator_overrides_the_parallelism_of_the_environment() -> None:
    """The environment sets 4, which applies to the source. The map has 8, and the print has 2."""
    with JobHarness(parallelism=4) as harness:
        numbers = harness.source("numbers", splits=4)
        mapped = numbers.map(Where()).set_parallelism(8)
        mapped.print().set_parallelism(2)
        of_source = numbers.map(Where())
        harness.collect(mapped, "mapped")
        harness.collect(of_source, "of the source")
        for split in range(4):
            harness.push("numbers", *range(10), split=split)
        assert {where[:2] for where in harness.outputs("mapped")} == {(subtask, 8) for subtask in range(8)}
        assert {where[:2] for where in harness.outputs("of the source")} == {(subtask, 4) for subtask in range(4)}
        assert len(harness.lines) == 40
        assert {line.split("> ")[0] for line in harness.lines} == {"1", "2"}


class Birthday(NamedTuple):
    year: int
    month: int
    day: int


class Address(NamedTuple):
    street: str
    zip: str
    country: str


class Person(NamedTuple):
    name: str
    birthday: Birthday
    address: Address


PEOPLE = [
    Person("Alex", Birthday(1976, 5, 1), Address("Broadway", "10007", "US")),
    Person("Wendy", Birthday(1976, 5, 1), Address("Market", "94103", "US")),
    Person("Adam", Birthday(1976, 9, 30), Address("Church", "10007", "US")),
]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("address.zip", [1, 1, 2]),
        (lambda person: person.address.zip, [1, 1, 2]),
        ("birthday.year", [1, 2, 3]),
        ("birthday", [1, 2, 1]),
        (["address.zip", "birthday"], [1, 1, 1]),
    ],
    ids=["address.zip", "lambda", "birthday.year", "birthday", "both"],
)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_keys_may_be_nested_fields(key: Any, expected: list[int], backend: str) -> None:
    """The keys are the zip code, the year of birth, or the whole birthday."""
    with JobHarness(parallelism=3, backend=backend) as harness:
        people = harness.source("people", type_info=Person)
        harness.collect(running_count(people, key), "counts")
        harness.push("people", *PEOPLE)
        found = dict(harness.outputs("counts"))
    assert [found[person] for person in PEOPLE] == expected


def test_keys_may_be_computed() -> None:
    """The key is the greater of two numbers."""
    pairs = [(1, 5), (5, 2), (3, 3), (5, 5), (3, 1)]
    with JobHarness(parallelism=3) as harness:
        harness.collect(running_count(harness.source("pairs"), max), "counts")
        harness.push("pairs", *pairs)
        found = dict(harness.outputs("counts"))
    assert [found[pair] for pair in pairs] == [1, 2, 1, 3, 2]
