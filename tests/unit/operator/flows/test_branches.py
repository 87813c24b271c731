"""The base of the sweeps over all calls: each fault runs in a separate process, which forks at its call."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.unit.operator.world.faults import Fault, Killed
from tests.unit.operator.world.scenarios.branches import at_calls, each

if TYPE_CHECKING:
    from tests.unit.operator.world.faults import Mode

CALLS = ("create", "apply", "delete")


async def flow(fault: Fault, done: list[str]) -> tuple[str, list[str]]:
    """Run the flow. A call that dies is repeated."""
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
def test_a_branch_sees_the_same_as_a_flow_from_its_start(mode: Mode) -> None:
    fault = Fault(mode=mode)
    branched = at_calls(range(1, 4), fault, partial(flow, fault, []))
    from_the_start = [asyncio.run(flow(Fault(at=n, mode=mode), [])) for n in (1, 2, 3)]
    assert branched == from_the_start
    assert len({struck for struck, _ in branched}) == 3


def test_calls_after_the_end_get_no_fault() -> None:
    fault = Fault()
    assert len(at_calls(range(1, 9), fault, partial(flow, fault, []))) == 3


def test_a_flow_that_ends_before_the_first_named_call_gets_a_fault_at_its_first_calls() -> None:
    fault = Fault(mode="die-before")
    found = at_calls(range(6, 9, 2), fault, partial(flow, fault, []))
    assert [struck for struck, _ in found] == ["die-before of call 1: create", "die-before of call 3: delete"]


def test_only_the_named_calls_get_a_fault_each_in_a_separate_process() -> None:
    fault, here = Fault(mode="die-before"), os.getpid()

    async def play() -> tuple[str, int]:
        struck, _ = await flow(fault, [])
        return struck, os.getpid()

    [(struck, process)] = at_calls(range(2, 3), fault, play)
    assert struck == "die-before of call 2: apply"
    assert process != here
    assert (fault.calls, fault.struck) == ([], "")


def test_a_failed_case_is_reported_with_its_call_and_the_number_of_failures() -> None:
    fault = Fault(mode="die-after")

    async def play() -> None:
        struck, _ = await flow(fault, [])
        assert "apply" not in struck, "it repeats the second"

    with pytest.raises(AssertionError, match=r"(?s)1 of 3 cases failed.*call 2: .*it repeats the second"):
        at_calls(range(1, 4), fault, play)


def test_a_flow_that_fails_without_a_fault_is_reported() -> None:
    fault = Fault(mode="die-after")

    async def play() -> None:
        await flow(fault, [])
        assert fault.struck, "nothing has struck"

    with pytest.raises(AssertionError, match=r"(?s)1 of 4 cases failed.*undisturbed: .*nothing has struck"):
        at_calls(range(1, 9), fault, play)


def test_a_lost_process_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="1 of 2 cases failed; the first:\nthe process ended without an answer"):
        each([0, 1], lambda case: os._exit(0) if case else None)
