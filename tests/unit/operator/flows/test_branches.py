"""What the sweeps over all calls rest on: each fault has a process of its own, which begins where its call is."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world.branches import at_calls, each
from tests.unit.operator.world.faults import Fault, Killed

if TYPE_CHECKING:
    from tests.unit.operator.world.faults import Mode

CALLS = ("create", "apply", "delete")


async def flow(fault: Fault, done: list[str]) -> tuple[str, list[str]]:
    """A call that dies is made again."""
    pending = list(CALLS)
    while pending:
        await asyncio.sleep(0)
        try:
            fault.before(pending[0])
            done.append(pending[0])
            fault.after(pending[0])
            pending.pop(0)
        except Killed:
            done.append("killed")
    fault.is_over()
    fault.before("afterwards")
    return fault.struck, done


@pytest.mark.parametrize("mode", ["die-before", "die-after"])
def test_a_branch_sees_what_a_flow_sees_that_is_played_from_its_start(mode: Mode) -> None:
    fault = Fault(mode=mode)
    branched = at_calls(range(1, 4), fault, partial(flow, fault, []))
    from_the_start = [asyncio.run(flow(Fault(at=n, mode=mode), [])) for n in (1, 2, 3)]
    assert branched == from_the_start
    assert len({struck for struck, _ in branched}) == 3


def test_calls_after_the_end_are_not_struck() -> None:
    fault = Fault()
    assert len(at_calls(range(1, 9), fault, partial(flow, fault, []))) == 3


def test_only_the_calls_that_are_named_are_struck_and_in_a_process_of_their_own() -> None:
    fault, here = Fault(mode="die-before"), os.getpid()

    async def play() -> tuple[str, int]:
        struck, _ = await flow(fault, [])
        return struck, os.getpid()

    [(struck, process)] = at_calls([2], fault, play)
    assert struck == "die-before of call 2: apply"
    assert process != here
    assert (fault.calls, fault.struck) == ([], "")


def test_a_case_that_fails_is_told_with_its_call_and_how_many_there_were() -> None:
    fault = Fault(mode="die-after")

    async def play() -> None:
        struck, _ = await flow(fault, [])
        assert "apply" not in struck, "it repeats the second"

    with pytest.raises(AssertionError, match=r"(?s)1 of 3 cases failed.*call 2: .*it repeats the second"):
        at_calls(range(1, 4), fault, play)


def test_a_flow_that_fails_undisturbed_is_told() -> None:
    fault = Fault(mode="die-after")

    async def play() -> None:
        await flow(fault, [])
        assert fault.struck, "nothing has struck"

    with pytest.raises(AssertionError, match=r"(?s)1 of 4 cases failed.*undisturbed: .*nothing has struck"):
        at_calls(range(1, 9), fault, play)


def test_a_process_that_is_gone_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="1 of 2 cases failed; the first:\nthe process ended without an answer"):
        each([0, 1], lambda case: os._exit(0) if case else None)
