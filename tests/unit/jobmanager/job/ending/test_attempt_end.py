"""The state machine that ends attempts, with every reachable state and every event in each state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from penstock.common.job_status import JobStatus
from penstock.jobmanager.job.ending.attempt_end import react
from penstock.jobmanager.job.ending.events import (
    Answer,
    AttemptFailed,
    AttemptStarted,
    BarrierReached,
    CommitsDone,
    Effect,
    EndJob,
    Event,
    FirstEpochRun,
    InputEnded,
    JobOver,
    LastSnapshotSent,
    Requested,
    RequestSnapshot,
    RestartAttempt,
    RetryRequests,
    SavepointDone,
    SnapshotAborted,
    SnapshotComplete,
)
from penstock.jobmanager.job.ending.state import Cause, Ending, Request, Stage, State

KINDS = {
    "savepoint": Request("", "savepoint"),
    "checkpoint": Request("", "checkpoint"),
    "stop": Request("", "stop"),
    "stop --drain": Request("", "stop", drain=True),
    "stop and cancel": Request("", "stop", cancels=True),
    "rescale": Request("", "rescale"),
    "cancel": Request("", "cancel"),
    "suspend": Request("", "suspend"),
}
ANOTHER, LAST = 1, 2
"""Numbers of checkpoints: a periodic one, and the one of the ending."""


@dataclass(frozen=True)
class World:
    """A state with the requests that were made, answered, and passed to the coordinator."""

    state: State
    requested: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()

    def after(self, event: Event) -> tuple[World, tuple[Effect, ...]]:
        state, effects = react(self.state, event)
        requested = (*self.requested, event.request.id) if isinstance(event, Requested) else self.requested
        answered = [effect.id for effect in effects if isinstance(effect, Answer)]
        again = [request for effect in effects if isinstance(effect, RetryRequests) for request in effect.requests]
        world = World(state, requested, (*self.answered, *answered))
        for request in again:
            # A repeated request counts once.
            world, more = world.after(Requested(request))
            world = World(world.state, requested, world.answered)
            effects = (*effects, *more)
        return world, effects


def places(state: State) -> list[str]:
    """Return the places of all requests that are not answered."""
    found = [request.id for request in (*state.open, *state.deferred, *state.cancels)]
    return found + ([state.ending.id] if state.ending is not None and state.ending.request is not None else [])


def events(world: World, most_requests: int) -> Iterator[Event]:
    """Return all events that may occur now, and some that should not occur."""
    state = world.state
    if len(world.requested) < most_requests:
        for kind, request in KINDS.items():
            id = f"{kind} {len(world.requested)}"
            yield Requested(Request(id, request.kind, request.drain, request.cancels))
        yield Requested(Request(f"refused {len(world.requested)}", "rescale"), "too many")
    yield InputEnded()
    yield AttemptStarted()
    yield FirstEpochRun(4)
    yield CommitsDone()
    yield AttemptFailed("a worker was killed")
    for checkpoint in (ANOTHER, LAST):
        requests = tuple(request.id for request in state.open if request.kind == "checkpoint")
        own = (state.ending.id,) if state.ending is not None and state.ending.cause is Cause.RESCALE else ()
        yield LastSnapshotSent(checkpoint)
        yield BarrierReached(checkpoint)
        for served in {requests, requests + (own if checkpoint == LAST else ())}:
            yield SnapshotComplete(checkpoint, served)
            yield SnapshotAborted(checkpoint, "refused", served)
        yield SnapshotAborted(checkpoint, "its number was taken")
    for id in places(state):
        yield SavepointDone(id, location="there")
        yield SavepointDone(id, failure="torn")
    for status in (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED):
        yield JobOver(status)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def worlds(request: pytest.FixtureRequest) -> list[World]:
    """Return all worlds that are reachable with this number of requests, without those that differ only in names."""
    found: dict[object, World] = {}
    todo = [World(State())]
    while todo:
        world = todo.pop()
        key = (world.state, len(world.requested))
        if key in found:
            continue
        found[key] = world
        todo += [world.after(event)[0] for event in events(world, request.param)]
    return list(found.values())


def test_every_request_is_in_one_place_until_its_only_answer(worlds: list[World]) -> None:
    assert len(worlds) > 500
    for world in worlds:
        assert sorted([*places(world.state), *world.answered]) == sorted(world.requested), world


def test_the_end_of_the_job_answers_all_requests(worlds: list[World]) -> None:
    for world in worlds:
        over, _ = world.after(JobOver(JobStatus.FAILED))
        assert sorted(over.answered) == sorted(over.requested), world
        late, _ = over.after(Requested(Request("late", "savepoint")))
        assert "late" in late.answered


@pytest.mark.parametrize(("kind", "status"), [("cancel", JobStatus.CANCELED), ("suspend", JobStatus.SUSPENDED)])
def test_the_job_can_be_left_from_every_state(worlds: list[World], kind: str, status: JobStatus) -> None:
    for world in worlds:
        left, effects = world.after(Requested(Request("leave", kind)))
        if world.state.stage is not Stage.ENDED:
            assert left.state.stage is Stage.ENDED
            assert EndJob(status) in effects
            assert Answer("leave") in left.after(JobOver(status))[1]


def test_an_ending_completes_from_every_state(worlds: list[World]) -> None:
    """Send no more requests and failures. The job then ends, or runs with no work left."""
    for world in worlds:
        state = world.state
        for _ in range(30):
            event = _next(state)
            if event is None:
                break
            state = World(state).after(event)[0].state
        assert state.stage is Stage.ENDED or state.is_idle, (world, state)


def _next(state: State) -> Event | None:
    match state.stage:
        case Stage.DOWN:
            return AttemptStarted()
        case Stage.STARTING:
            return FirstEpochRun(4)
        case Stage.RUNNING | Stage.PLANNED if state.open:
            request = state.open[0]
            if request.kind == "savepoint":
                return SavepointDone(request.id, location="there")
            return SnapshotComplete(ANOTHER, (request.id,))
        case Stage.SNAPSHOT:
            assert state.ending is not None
            return BarrierReached(LAST) if state.ending.checkpoint == LAST else LastSnapshotSent(LAST)
        case Stage.STANDING:
            assert state.ending is not None
            requests = (state.ending.id,) if state.ending.cause is Cause.RESCALE else ()
            return SnapshotComplete(state.ending.checkpoint, requests)
        case Stage.EXPORTING:
            assert state.ending is not None
            return SavepointDone(state.ending.id, location="there")
        case Stage.COMMITTING:
            return CommitsDone()
        case _:
            return None


def test_no_drained_attempt_continues(worlds: list[World]) -> None:
    for world in worlds:
        ending = world.state.ending
        if ending is None or not ending.is_drained:
            continue
        for event in events(world, 2):
            after, effects = world.after(event)
            if after.state.stage in (Stage.RUNNING, Stage.PLANNED):
                pytest.fail(f"{event} lets a drained attempt go on: {world}")
            if after.state.stage in (Stage.DOWN, Stage.STARTING):
                assert isinstance(event, AttemptFailed) or any(isinstance(effect, RestartAttempt) for effect in effects)


class TestTheTable:
    """Rows of the module's table as scenarios."""

    RUNNING = State(Stage.RUNNING)

    def test_a_stop_waits_for_the_savepoint_before_it(self) -> None:
        state, effects = react(self.RUNNING, Requested(Request("s", "savepoint")))
        assert effects == (RequestSnapshot(Request("s", "savepoint")),)
        state, effects = react(state, Requested(Request("stop", "stop")))
        assert (state.stage, effects) == (Stage.PLANNED, ())
        state, effects = react(state, SavepointDone("s", location="there"))
        assert state.stage is Stage.SNAPSHOT
        assert effects == (Answer("s", location="there"), RequestSnapshot(Request("stop", "stop")))

    def test_a_savepoint_after_a_stop_is_taken_if_the_stop_fails(self) -> None:
        stop, savepoint = Request("stop", "stop"), Request("s", "savepoint")
        state = State(Stage.EXPORTING, Ending(Cause.STOP, stop, LAST))
        state, effects = react(state, Requested(savepoint))
        assert effects == ()
        state, effects = react(state, SavepointDone("stop", failure="torn"))
        assert state.stage is Stage.RUNNING
        assert effects[1] == RetryRequests((savepoint,))

    def test_a_checkpoint_number_in_use_is_replaced_by_the_next_one(self) -> None:
        state = State(Stage.STANDING, Ending(Cause.STOP, Request("stop", "stop"), LAST))
        state, effects = react(state, SnapshotAborted(LAST, "its number was taken"))
        assert (state.stage, effects) == (Stage.SNAPSHOT, ())

    def test_a_drain_that_fails_restarts_the_attempt(self) -> None:
        stop = Request("stop", "stop", drain=True)
        state, _ = react(State(Stage.SNAPSHOT, Ending(Cause.STOP, stop)), LastSnapshotSent(LAST))
        assert not state.reads
        state, effects = react(state, SavepointDone("stop", failure="torn"))
        assert state.stage is Stage.DOWN
        assert [type(effect) for effect in effects] == [Answer, RestartAttempt]

    def test_a_drain_that_was_not_sent_is_only_refused(self) -> None:
        state = State(Stage.SNAPSHOT, Ending(Cause.STOP, Request("stop", "stop", drain=True)))
        state, effects = react(state, SavepointDone("stop", failure="timed out"))
        assert state == self.RUNNING
        assert len(effects) == 1

    def test_the_end_of_the_input_waits_for_requests_made_before_its_snapshot(self) -> None:
        state, _ = react(self.RUNNING, InputEnded())
        assert state.ending is not None
        assert state.ending.cause is Cause.INPUT
        state, _ = react(state, Requested(Request("s", "savepoint")))
        assert state.stage is Stage.PLANNED
        state, _ = react(state, Requested(Request("stop", "stop")))
        assert state.ending is not None
        assert state.ending.cause is Cause.STOP

    def test_a_completed_stop_is_answered_with_its_savepoint_when_the_job_has_ended(self) -> None:
        state = State(Stage.COMMITTING, Ending(Cause.STOP, Request("stop", "stop"), LAST, location="there"))
        state, effects = react(state, CommitsDone())
        assert effects == (EndJob(JobStatus.FINISHED),)
        assert react(state, JobOver(JobStatus.FINISHED))[1] == (Answer("stop", location="there"),)

    def test_a_cancelled_stop_names_its_savepoint(self) -> None:
        state = State(Stage.COMMITTING, Ending(Cause.STOP, Request("stop", "stop"), LAST, location="there"))
        _, effects = react(state, Requested(Request("c", "cancel")))
        assert effects[0] == Answer(
            "stop", "the job was cancelled before the operation was complete; its savepoint is complete: there"
        )
