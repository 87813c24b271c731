"""The matcher against a second definition of matches, with random patterns and events."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from penstock.cep.compiler import compile_pattern
from penstock.cep.matcher import Matcher, Memory
from penstock.common.errors import InvalidJob
from tests.unit.cep.brute_force import Case, Element, Taken
from tests.unit.cep.cases import case

SEQUENCES = int(os.environ.get("PENSTOCK_CEP_SEQUENCES", "8000"))
FIRST_SEED = int(os.environ.get("PENSTOCK_CEP_FIRST_SEED", "0"))
END = 10**9
Found = list[tuple[Taken, int]]


def fed(case: Case) -> tuple[Found, Memory]:
    """Return the matches, each with the number of events after which it was found, and the memory at the end."""
    matcher, memory = Matcher(compile_pattern(case.pattern())), Memory()
    found: Found = []
    for position, (event, time) in enumerate(zip(case.events, case.times, strict=True)):
        matches = matcher.advance(memory, time)[0]
        matches += matcher.feed(memory, Tagged(event, position), time)
        check_references(memory)
        found += [(positions(match), position) for match in matches]
    matches = matcher.advance(memory, END)[0]
    check_references(memory)
    return found + [(positions(match), len(case.events)) for match in matches], memory


class Tagged(str):
    """An event that knows its position."""

    position: int

    def __new__(cls, event: str, position: int) -> Tagged:
        found = super().__new__(cls, event)
        found.position = position
        return found


def positions(match: dict[str, list[Any]]) -> Taken:
    pairs = [(name, event.position) for name, events in match.items() for event in events]
    return tuple(sorted(pairs, key=lambda pair: pair[1]))


def check_references(memory: Memory) -> None:
    """Check that the memory has exactly the events and entries that partial matches need, with the right numbers of references."""
    expected: Counter[tuple[int, int]] = Counter()
    for _, number, slot, *_ in memory.runs + memory.complete:
        expected[number, slot] += 1
    paths: Any = memory.paths
    for number in sorted(paths, reverse=True):
        for slot, (_, previous, previous_slot, references) in paths[number].items():
            assert references == expected[number, slot] > 0
            if previous >= 0:
                expected[previous, previous_slot] += 1
    assert set(expected) == {(number, slot) for number in paths for slot in paths[number]}
    events: Any = memory.events
    assert set(paths) == set(events)


def repeats_loops(elements: list[Element], *, inside: bool = False) -> bool:
    """Return whether a loop is in a loop. Then the same events can be a match in several ways."""
    return any(
        (element.is_loop and inside)
        or (bool(element.parts) and repeats_loops(element.parts, inside=inside or element.is_loop))
        or (inside and element.optional)
        for element in elements
    )


def compare(case: Case) -> None:
    found, memory = fed(case)
    expected = list(case.found())
    if case.skip.is_skip_strategy:
        compare_skips(case, found, expected)
    elif repeats_loops(case.elements):
        assert set(found) == set(expected)
    else:
        assert sorted(found) == sorted(expected)
    if case.within:
        assert memory == Memory(next_event=memory.next_event)


def compare_skips(case: Case, found: Found, expected: Found) -> None:
    """Check that the strategy kept the right matches of all matches, which are known without it.

    If two matches with the same start are complete at once, the strategy may choose one of them.
    """
    left = sorted(set(expected), key=rank)
    keep = 0
    for match in dict.fromkeys(match for match, _ in found):
        left = [other for other in left if other[0][0][1] >= keep]
        assert left, f"{match} was to be skipped"
        first = [other for other, at in left if rank((other, at)) == rank(left[0])]
        assert match in first, f"{first[0]} comes before {match}"
        left = [other for other in left if other[0] != match]
        numbers: dict[str, list[int]] = {}
        for name, at in match:
            numbers.setdefault(name, []).append(at)
        keep = max(keep, case.skip.first_start_to_keep(match[0][1], match[-1][1], lambda numbers=numbers: numbers))
    assert [other for other in left if other[0][0][1] >= keep] == []


def rank(found: tuple[Taken, int]) -> tuple[int, int]:
    match, completed_at = found
    return match[0][1], completed_at


@pytest.mark.parametrize("part", range(8))
def test_the_matches_are_those_of_a_search_through_all_subsequences(part: int) -> None:
    for seed in range(FIRST_SEED + part, FIRST_SEED + SEQUENCES, 8):
        found = case(Random(seed))
        try:
            compare(found)
        except InvalidJob as error:
            raise AssertionError(f"seed {seed}: {found}") from error
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{found}") from error
