"""Every event that may end a job meets every other one, at one barrier and at every step of each other.

The job ends or continues, and every request gets one answer. The output of its transactional sink contains every record
once, even after a stop whose drain failed. A hung job fails the test with the state of the machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.unit.jobmanager.job.event_interleaving import EventInterleaving

EVENTS = (
    "savepoint",
    "stop",
    "stop --drain",
    "cancel",
    "suspend",
    "rescale",
    "end of input",
    "user failure",
    "lost slot",
    "refused manifest",
    "storage away",
    "lost answer",
    "timeout",
)
STEPS = range(8)
"""The number of steps between two events. A stop is over after the largest."""


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def run(*events: str | int) -> None:
        """Run a job with the events. A number is the count of steps between two of them."""
        event_interleaving = EventInterleaving(monkeypatch)
        try:
            event_interleaving.push()
            event_interleaving.steps(3)
            for event in events:
                if isinstance(event, int):
                    event_interleaving.steps(event)
                else:
                    event_interleaving.happen(event)
            event_interleaving.settle()
            event_interleaving.finish()
        finally:
            event_interleaving.close()

    return run


PAIRS = list(itertools.product(EVENTS, EVENTS))
TRIPLES = list(itertools.product(EVENTS, EVENTS, EVENTS))
FRACTION = 43
"""The share of the triples that are in every run, at different steps each. It is prime to the number of events."""


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_events_at_one_barrier(meet: Callable[..., None], first: str, second: str) -> None:
    meet(first, second)


@pytest.mark.parametrize(
    ("number", "pair"), [pytest.param(i, pair, id="-".join(pair)) for i, pair in enumerate(PAIRS) if i % 3 == 0]
)
def test_one_event_at_a_step_of_another_for_some_pairs(
    meet: Callable[..., None], number: int, pair: tuple[str, str]
) -> None:
    meet(pair[0], 1 + number % 7, pair[1])


@pytest.mark.parametrize("number", range(0, len(TRIPLES), FRACTION))
def test_some_triples_of_events(meet: Callable[..., None], number: int) -> None:
    first, second, third = TRIPLES[number]
    meet(first, number % 5, second, number % 3, third)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_one_event_at_every_step_of_another(meet: Callable[..., None], first: str, second: str, step: int) -> None:
    meet(first, step, second)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "third"), TRIPLES)
def test_all_triples_of_events(meet: Callable[..., None], first: str, second: str, third: str) -> None:
    """Let three events occur at one barrier, and at steps that vary between the triples."""
    meet(first, second, third)
    number = TRIPLES.index((first, second, third))
    meet(first, number % 8, second, number % 5, third)
