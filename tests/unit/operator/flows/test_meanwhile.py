"""Somebody does something else at every single changing call of a flow: the last word counts, and nothing is lost.

An edit can come between any two calls of the operator; so can the death of a master, and so can a write of another
program to the FlinkJob itself, which refuses the operator's next write.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world import World
from tests.unit.operator.world.branches import at_calls, each, some
from tests.unit.operator.world.scenario import begin, edit, go_on, gone, running, suspended
from tests.unit.operator.world.scenarios import SCENARIOS
from tests.unit.operator.world.world import NAME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.operator.world.faults import Mode
    from tests.unit.operator.world.scenario import Scenario

FLOWS = (
    "deploy",
    "upgrade",
    "warm-upgrade",
    "upgrade-last-state",
    "rescale-up",
    "rescale-down",
    "suspend",
    "suspend-and-resume",
    "rollback-of-a-crashing-image",
    "failed-job",
    "master-deleted",
    "savepoint-nonce",
)
QUICK = (
    ("upgrade", "another-edit"),
    ("upgrade", "revert"),
    ("warm-upgrade", "revert"),
    ("rescale-up", "revert"),
    ("suspend", "another-edit"),
)
STRIDE = 6
"""The quick tests look at every sixth call only."""


@dataclass(frozen=True)
class Word:
    """What the user says last, and what must be so in the end."""

    name: str
    act: Callable[[World], None]
    ended: Callable[[World], bool]


WORDS = (
    Word(
        "another-edit",
        edit(image="job:3", job={"parallelism": 3, "state": "running"}),
        lambda w: running(w, image="job:3", parallelism=3),
    ),
    Word(
        "revert",
        edit(image="job:1", job={"parallelism": 2, "state": "running", "savepointTriggerNonce": None}),
        lambda w: running(w, image="job:1", parallelism=2),
    ),
    Word("suspend", edit(image="job:1", job={"state": "suspended"}), suspended),
    Word("delete", lambda w: w.delete(), gone),
)
MOST_SAVEPOINTS = 3
"""One of each operation that may have come to its point of no return: the flow, what undoes it, what was said last."""


def by_name(name: str) -> Scenario:
    return next(s for s in SCENARIOS if s.name == name)


def disturb(
    scenario: Scenario,
    mode: Mode,
    meanwhile: Callable[[World], None],
    then: Callable[[Scenario, World], Awaitable[None]] = go_on,
    *,
    stride: int = 1,
) -> None:
    """At every call of the flow, or every so many, somebody else does something; `then` plays the flow and judges."""
    world = World()
    asyncio.run(begin(scenario, world))
    world.fault.mode, world.fault.meanwhile = mode, lambda: meanwhile(world)

    def undisturbed(_: int) -> int:
        asyncio.run(go_on(scenario, world))
        return len(world.fault.calls)

    async def disturbed() -> None:
        await then(scenario, world)

    [calls] = each([0], undisturbed)
    at_calls(range(1, calls + 1, stride) if stride > 1 else some(calls), world.fault, disturbed)


async def last_word(word: Word, scenario: Scenario, world: World) -> None:
    scenario.act(world)
    pending = list(scenario.then)
    for _ in range(900):
        if world.fault.struck:
            break
        if pending and pending[0][0](world):
            pending.pop(0)[1](world)
        await world.run(1)
    assert world.fault.struck, world.describe()
    await world.until(lambda: word.ended(world))
    await world.run(40)
    story = f"{word.name} after {world.fault.struck}\n{world.describe()}"
    assert word.ended(world), story
    assert not world.two_masters, story
    assert not world.sink.lost, story
    assert not world.sink.repeated, story
    assert len(world.sink.empty_starts) <= 1, story
    assert len(world.savepoints) <= MOST_SAVEPOINTS, story


def word_of(name: str) -> Word:
    return next(w for w in WORDS if w.name == name)


@pytest.mark.parametrize(("flow", "word"), QUICK)
def test_the_last_word_counts_at_some_calls(flow: str, word: str) -> None:
    said = word_of(word)
    disturb(by_name(flow), "meanwhile-after", said.act, partial(last_word, said), stride=STRIDE)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("word", [w.name for w in WORDS])
@pytest.mark.parametrize("flow", FLOWS)
def test_the_last_word_counts(flow: str, word: str) -> None:
    said = word_of(word)
    disturb(by_name(flow), "meanwhile-after", said.act, partial(last_word, said))


def annotate(world: World) -> None:
    """Another program writes to the FlinkJob."""
    if world.cluster.one("FlinkJob", NAME) is not None:
        world.cluster.edit("FlinkJob", "default", NAME, lambda m: m["metadata"].update(annotations={"by": "another"}))


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [s.name for s in SCENARIOS])
def test_another_writer_refuses_any_call_once(name: str) -> None:
    """The resourceVersion has moved: what was decided is thrown away, and decided again."""
    disturb(by_name(name), "meanwhile-before", annotate)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name",
    [
        "upgrade",
        "warm-upgrade",
        "upgrade-last-state",
        "rescale-up",
        "suspend",
        "delete-with-savepoint",
        "savepoint-nonce",
    ],
)
def test_the_master_may_crash_at_any_call(name: str) -> None:
    """A process that is gone takes back what it had not completed; a savepoint that it had begun may be made again."""
    disturb(by_name(name), "meanwhile-after", lambda world: world.crash_master())
