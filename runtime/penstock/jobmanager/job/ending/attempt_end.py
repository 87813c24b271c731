"""The end of an attempt as one pure state machine. The JobMaster's thread feeds it events and executes its effects.

Problem. An attempt ends because of a request (stop, rescale, cancel, suspend), because the input ends, or because of a failure. Several of
these may happen at the same barrier, or while an earlier end is in progress. An orderly end takes a *last snapshot* and then waits for its
manifest, for the copy of its savepoint, and for commits. During this time, more requests arrive, storage fails, or slots are lost. Every
request must be answered exactly once, and the job must end or continue.

Solution. At most one orderly end, the *ending*, is in progress. It passes through stages, and only this module changes the stage:

    stage       | running epochs                  | next stage
    ------------|---------------------------------|--------------------------------------------------------------------
    DOWN        | none, no tasks                  | an attempt begins → STARTING
    STARTING    | the first epoch                 | the epoch has run → RUNNING
    RUNNING     | epochs that read                | stop, rescale, end of input → PLANNED
    PLANNED     | epochs that read ¹              | all earlier requests are answered → SNAPSHOT
    SNAPSHOT    | as PLANNED, then the last epoch | the barrier of the last snapshot is reached → STANDING
    STANDING    | none                            | the snapshot is complete → EXPORTING (stop), DOWN (rescale), or
                |                                 | COMMITTING (drain, end of input); the snapshot is aborted → see below
    EXPORTING   | none                            | the savepoint is copied → COMMITTING; the copy fails → RUNNING, or
                |                                 | DOWN after a drain
    COMMITTING  | none ²                          | every commit is complete → ENDED
    ENDED       | none                            | none; `JobOver` answers all remaining requests

    ¹ The epochs do not read at the end of the input, and after the final watermark of a drain.
    ² After the commits, one more epoch notifies the tasks that their snapshot is complete. A cancel during this epoch is
      answered after the epoch.

    event           | DOWN ³          | RUNNING  | PLANNED … COMMITTING
    ----------------|-----------------|----------|-----------------------------------------------------------------
    savepoint,      | refused ⁴       | taken    | deferred until the ending fails. At the end of the input:
    checkpoint      |                 |          | taken, until the last snapshot is triggered
    stop            | refused ⁴       | PLANNED  | refused in a stop. Deferred in a rescale, and in the last
                    |                 |          | snapshot at the end of the input
    rescale         | parallelism set | PLANNED  | refused in a stop or rescale. Deferred in the last snapshot at
                    |                 |          | the end of the input
    cancel, suspend | ENDED           | ENDED    | ENDED; the stop or rescale fails
    end of input    | -               | PLANNED  | noted, in case the ending fails
    snapshot failed | -               | -        | a stop or rescale fails: RUNNING, or DOWN after a drain. At the
                    |                 |          | end of the input: SNAPSHOT, to try again
    number in use   | -               | -        | SNAPSHOT, with the next number. No request fails
    attempt failed  | DOWN            | DOWN     | DOWN; the stop or rescale ⁵ and the savepoints fail

    ³ In STARTING, these requests are deferred until the first epoch has run. Cancel and suspend lead to ENDED immediately.
    ⁴ Deferred after a rescale, and if the next attempt completes a drain.
    ⁵ A drain in COMMITTING does not fail. The next attempt makes the commits, ends the job and answers the stop.

In ENDED, every request waits for the end of the job.

A drain sends the final watermark before its snapshot. Windows have then fired, and all later records would be late. For this reason, the
attempt of a drain never continues. If the stop fails, the job restarts from the last checkpoint. This checkpoint never contains the drained
state. The manifest of a drained checkpoint is stored only after its savepoint is complete, and then the stop cannot fail any more
(docs/checkpoint-protocol.md, 5).

Invariants, tested over all states and events:

- Until its only `Answer`, a request is in exactly one place: `open`, `deferred`, `cancels` or the ending.
- Requests wait for an ordinary epoch (neither the first nor the last) only in the stages RUNNING and PLANNED.
- Cancel and suspend lead to ENDED from every stage.

Prior art: the states of Flink's AdaptiveScheduler (Executing, StopWithSavepoint, Restarting, Canceling).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.common.job_status import JobStatus
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
    SetParallelism,
    SnapshotAborted,
    SnapshotComplete,
)
from penstock.jobmanager.job.ending.state import Cause, Ending, Request, Stage, State

Reaction = tuple[State, tuple[Effect, ...]]
_BEFORE = (Stage.DOWN, Stage.STARTING)
"""Stages in which no epoch has run yet, so nothing needs an orderly end."""


def react(state: State, event: Event) -> Reaction:
    """Return the new state and the effects to execute."""
    after, effects = _REACTIONS[type(event)](state, event)
    return _proceed(after, effects)


def _proceed(state: State, effects: tuple[Effect, ...]) -> Reaction:
    """Continue without another event: handle the end of the input, or trigger the snapshot of a planned ending."""
    if state.stage is Stage.RUNNING and state.input_ended and state.ending is None:
        state = replace(state, stage=Stage.PLANNED, ending=Ending(Cause.INPUT))
    if state.stage is Stage.PLANNED and not state.open and (ending := state.ending) is not None:
        state = replace(state, stage=Stage.SNAPSHOT)
        if ending.request is not None:
            effects = (*effects, RequestSnapshot(ending.request))
    return state, effects


def _on_requested(state: State, event: Requested) -> Reaction:
    request = event.request
    if state.is_over:
        assert state.status is not None
        return state, (Answer(request.id, f"the job ended as {state.status.value}"),)
    if state.stage is Stage.ENDED:
        return replace(state, deferred=(*state.deferred, request)), ()
    if request.kind in ("cancel", "suspend"):
        return _leave(state, request)
    if event.refusal:
        return state, (Answer(request.id, event.refusal),)
    if state.stage is Stage.DOWN:
        return _on_requested_while_down(state, request)
    if state.stage is Stage.STARTING:
        return replace(state, deferred=(*state.deferred, request)), ()
    ending = state.ending
    if ending is not None and ending.cause is Cause.INPUT and not ending.checkpoint:
        # The last snapshot is not yet triggered, so a request takes precedence over the end of the input.
        state, ending = replace(state, stage=Stage.RUNNING, ending=None), None
    if ending is None:
        if request.kind in ("savepoint", "checkpoint"):
            return replace(state, open=(*state.open, request)), (RequestSnapshot(request),)
        return replace(state, stage=Stage.PLANNED, ending=Ending(Cause(request.kind), request)), ()
    is_refused = request.kind in ("stop", "rescale") and (
        ending.cause is Cause.STOP or (ending.cause is Cause.RESCALE and request.kind == "rescale")
    )
    if is_refused:
        return state, (Answer(request.id, f"a {ending.cause.value} is in progress"),)
    return replace(state, deferred=(*state.deferred, request)), ()


def _on_requested_while_down(state: State, request: Request) -> Reaction:
    if request.kind == "rescale":
        return state, (SetParallelism(request.id), Answer(request.id))
    if state.ending is not None:  # a rescale or the commits of a drain, which end soon
        return replace(state, deferred=(*state.deferred, request)), ()
    return state, (Answer(request.id, "the job is not running; try again when it is RUNNING"),)


def _leave(state: State, request: Request) -> Reaction:
    status = JobStatus.CANCELED if request.kind == "cancel" else JobStatus.SUSPENDED
    word = "cancelled" if request.kind == "cancel" else "suspended"
    effects: list[Effect] = []
    if state.ending is not None and state.ending.request is not None:
        effects.append(
            Answer(state.ending.id, f"the job was {word} before the operation was complete{_saved(state.ending)}")
        )
    state = replace(state, stage=Stage.ENDED, ending=None, cancels=(*state.cancels, request), status=status)
    return state, (*effects, EndJob(status))


def _saved(ending: Ending) -> str:
    return f"; its savepoint is complete: {ending.location}" if ending.location else ""


def _on_input_ended(state: State, _: InputEnded) -> Reaction:
    return (state if state.stage in _BEFORE else replace(state, input_ended=True)), ()


def _on_started(state: State, _: AttemptStarted) -> Reaction:
    return (replace(state, stage=Stage.STARTING) if state.stage is Stage.DOWN else state), ()


def _on_first_epoch(state: State, event: FirstEpochRun) -> Reaction:
    if state.stage not in _BEFORE:
        return state, ()
    effects: tuple[Effect, ...] = ()
    if state.ending is not None and state.ending.cause is Cause.STOP:
        effects = (Answer(state.ending.id, f"the job continues from an earlier checkpoint{_saved(state.ending)}"),)
    elif state.ending is not None:
        effects = (Answer(state.ending.id, result=event.result),)
    return _continue(replace(state, stage=Stage.RUNNING), effects)


def _on_last_snapshot_sent(state: State, event: LastSnapshotSent) -> Reaction:
    ending = state.ending
    if state.stage is not Stage.SNAPSHOT or ending is None:
        return state, ()
    drains = ending.request is not None and ending.request.drain
    ending = replace(ending, checkpoint=event.checkpoint, is_drained=ending.is_drained or drains)
    return replace(state, ending=ending), ()


def _on_barrier(state: State, event: BarrierReached) -> Reaction:
    if state.stage is Stage.SNAPSHOT and state.ending is not None and state.ending.checkpoint == event.checkpoint:
        return replace(state, stage=Stage.STANDING), ()
    return state, ()


def _on_complete(state: State, event: SnapshotComplete) -> Reaction:
    effects: tuple[Effect, ...] = tuple(
        Answer(request.id, result=event.checkpoint) for request in state.open if request.id in event.requests
    )
    state = replace(state, open=tuple(request for request in state.open if request.id not in event.requests))
    ending = state.ending
    if ending is None or not ending.checkpoint or ending.checkpoint != event.checkpoint:
        return state, effects
    if ending.cause is Cause.RESCALE:
        down = replace(state, stage=Stage.DOWN, input_ended=False)
        begin = RestartAttempt(
            "the job was rescaled before the operation was complete. Request it again", rescaled=True
        )
        return down, (*effects, SetParallelism(ending.id), begin)
    stage = Stage.EXPORTING if ending.cause is Cause.STOP and not ending.location else Stage.COMMITTING
    return replace(state, stage=stage), effects


def _on_aborted(state: State, event: SnapshotAborted) -> Reaction:
    effects: tuple[Effect, ...] = tuple(
        Answer(request.id, event.reason) for request in state.open if request.id in event.requests
    )
    state = replace(state, open=tuple(request for request in state.open if request.id not in event.requests))
    ending = state.ending
    if ending is None or state.stage in (*_BEFORE, Stage.ENDED):
        return state, effects
    if ending.id and ending.id in event.requests:
        return _ending_failed(state, f"the snapshot failed, and the job continues unchanged: {event.reason}", effects)
    if ending.checkpoint and ending.checkpoint == event.checkpoint:
        # The number of the snapshot was in use, or the snapshot at the end of the input failed. Take the last snapshot again. If the
        # savepoint of a stop failed, the event `SavepointDone` also arrives and answers the stop.
        return replace(state, stage=Stage.SNAPSHOT, ending=replace(ending, checkpoint=0)), effects
    return state, effects


def _on_savepoint_done(state: State, event: SavepointDone) -> Reaction:
    ending = state.ending
    if any(request.id == event.id for request in state.open):
        answer = Answer(event.id, event.failure, event.location)
        return replace(state, open=tuple(request for request in state.open if request.id != event.id)), (answer,)
    if ending is None or ending.id != event.id or state.stage in (*_BEFORE, Stage.ENDED):
        return state, ()
    if event.failure:
        return _ending_failed(state, f"the savepoint failed, and the job continues: {event.failure}", ())
    # In a drain, the savepoint is complete before the checkpoint.
    stage = Stage.COMMITTING if state.stage is Stage.EXPORTING else state.stage
    return replace(state, stage=stage, ending=replace(ending, location=event.location)), ()


def _ending_failed(state: State, reason: str, effects: tuple[Effect, ...]) -> Reaction:
    assert state.ending is not None
    effects = (*effects, Answer(state.ending.id, reason))
    if state.ending.is_drained:
        begin = RestartAttempt("the stop failed, so the job returns to its state before the drain")
        return replace(state, stage=Stage.DOWN, ending=None, input_ended=False), (*effects, begin)
    return _continue(replace(state, stage=Stage.RUNNING), effects)


def _continue(state: State, effects: tuple[Effect, ...]) -> Reaction:
    again = (RetryRequests(state.deferred),) if state.deferred else ()
    return replace(state, ending=None, deferred=()), (*effects, *again)


def _on_commits_done(state: State, _: CommitsDone) -> Reaction:
    if state.stage is not Stage.COMMITTING:
        return state, ()
    assert state.ending is not None
    request = state.ending.request
    status = JobStatus.CANCELED if request is not None and request.cancels else JobStatus.FINISHED
    return replace(state, stage=Stage.ENDED, status=status), (EndJob(status),)


def _is_carried_over(state: State) -> bool:
    """Return whether the ending outlives the attempt. If a drain has a complete snapshot, the next attempt commits and ends the job."""
    ending = state.ending
    if ending is None or ending.cause is not Cause.STOP:
        return False
    return state.stage in _BEFORE or (state.stage is Stage.COMMITTING and ending.is_drained and bool(ending.location))


def _on_attempt_failed(state: State, event: AttemptFailed) -> Reaction:
    if state.stage is Stage.ENDED:
        return state, ()
    reason = f"the job failed before the operation was complete: {event.reason}"
    lost = [Answer(request.id, reason) for request in (*state.open, *state.deferred)]
    if _is_carried_over(state) and state.ending is not None:
        return State(ending=replace(state.ending, is_drained=False, checkpoint=0)), tuple(lost)
    if state.ending is not None and state.ending.request is not None:
        lost.append(Answer(state.ending.id, reason + _saved(state.ending)))
    return State(), tuple(lost)


def _on_over(state: State, event: JobOver) -> Reaction:
    if state.is_over:
        return state, ()
    reason = f"the job ended as {event.status.value}"
    effects: list[Effect] = []
    ending = state.ending
    if ending is not None and ending.request is not None:
        is_done = state.stage is Stage.ENDED and ending.location and event.status is state.status
        is_done = is_done or (_is_carried_over(state) and event.status is JobStatus.FINISHED)
        failure = "" if is_done else reason + _saved(ending)
        effects.append(Answer(ending.id, failure, ending.location if is_done else ""))
    for request in (*state.cancels, *state.deferred):
        is_so = request.kind == "cancel" and event.status is JobStatus.CANCELED
        is_so = is_so or (request.kind == "suspend" and event.status is JobStatus.SUSPENDED)
        effects.append(Answer(request.id, "" if is_so else reason))
    effects += [Answer(request.id, reason) for request in state.open]
    return State(Stage.ENDED, status=event.status, is_over=True), tuple(effects)


_REACTIONS: dict[type[Event], Callable[[State, Any], Reaction]] = {
    Requested: _on_requested,
    InputEnded: _on_input_ended,
    AttemptStarted: _on_started,
    FirstEpochRun: _on_first_epoch,
    LastSnapshotSent: _on_last_snapshot_sent,
    BarrierReached: _on_barrier,
    SnapshotComplete: _on_complete,
    SnapshotAborted: _on_aborted,
    SavepointDone: _on_savepoint_done,
    CommitsDone: _on_commits_done,
    AttemptFailed: _on_attempt_failed,
    JobOver: _on_over,
}
