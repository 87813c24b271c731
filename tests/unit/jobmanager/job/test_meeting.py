"""Whatever may end a job meets whatever else may, at one barrier and at every step of one another.

The job ends or goes on, every request gets one answer, and the output of its transactional sink, read back, has every record
once; after a stop that drained in vain, too. What hangs fails with the state of the machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.unit.jobmanager.job.meeting import Meeting

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
"""Between one event and the next; by then a stop is over."""


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def run(*events: str | int) -> None:
        """Names of events, and how many steps lie between them."""
        meeting = Meeting(monkeypatch)
        try:
            meeting.push()
            meeting.steps(3)
            for event in events:
                if isinstance(event, int):
                    meeting.steps(event)
                else:
                    meeting.happen(event)
            meeting.settle()
            meeting.finish()
        finally:
            meeting.close()

    return run


PAIRS = list(itertools.product(EVENTS, EVENTS))
TRIPLES = list(itertools.product(EVENTS, EVENTS, EVENTS))
A_SHARE_OF = 43
"""Of the triples, one of so many is in every run, each at other steps; it is prime to the number of events."""


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_at_one_barrier(meet: Callable[..., None], first: str, second: str) -> None:
    meet(first, second)


@pytest.mark.parametrize(("number", "pair"), [pytest.param(i, pair, id="-".join(pair)) for i, pair in enumerate(PAIRS)])
def test_one_at_a_step_of_the_other(meet: Callable[..., None], number: int, pair: tuple[str, str]) -> None:
    meet(pair[0], 1 + number % 7, pair[1])


@pytest.mark.parametrize("number", range(0, len(TRIPLES), A_SHARE_OF))
def test_some_triples(meet: Callable[..., None], number: int) -> None:
    first, second, third = TRIPLES[number]
    meet(first, number % 5, second, number % 3, third)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_one_at_every_step_of_the_other(meet: Callable[..., None], first: str, second: str, step: int) -> None:
    meet(first, step, second)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "third"), TRIPLES)
def test_all_triples(meet: Callable[..., None], first: str, second: str, third: str) -> None:
    """At one barrier, and at steps that differ from one to the next."""
    meet(first, second, third)
    number = TRIPLES.index((first, second, third))
    meet(first, number % 8, second, number % 5, third)
