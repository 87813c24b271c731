"""The shell around `attempt_end`: it receives requests from other threads, feeds the state machine, and executes its effects."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable

from penstock.checkpoint.events import (
    CheckpointAborted,
    CheckpointCompleted,
    Event,
    JobMustFail,
    SavepointCompleted,
    SavepointFailed,
)
from penstock.common.errors import PenstockError
from penstock.common.job_status import JobStatus
from penstock.jobmanager.job.ending import attempt_end, events
from penstock.jobmanager.job.ending.state import Cause, Request, Stage, State
from penstock.jobmanager.job.job_history import JobHistory
from penstock.jobmanager.job.job_parts import JobParts
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.job.scheduler import JobScheduler
from penstock.jobmanager.runners.runner import Runner

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """Signal that the job must end with a status."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status
        super().__init__(status.value)


class AttemptRestarted(Exception):
    """Signal that the attempt is over, without a failure. Another attempt must start at once from the last checkpoint.

    Args:
        rescaled: whether a rescale is the reason. Otherwise a drain failed.
    """

    def __init__(self, reason: str, *, rescaled: bool) -> None:
        self.reason = reason
        self.rescaled = rescaled
        super().__init__(reason)


class JobRequests:
    """Unanswered requests of one job, and the state machine that handles them.

    Args:
        done: event that is set when the job has ended.
    """

    runner: Runner

    def __init__(
        self, job_id: str, parts: JobParts, scheduler: JobScheduler, history: JobHistory, done: threading.Event
    ) -> None:
        self.state = State()
        self._job_id = job_id
        self._parts = parts
        self._scheduler = scheduler
        self._history = history
        self._done = done
        self._queue: queue.SimpleQueue[Operation] = queue.SimpleQueue()
        self._operations: dict[str, Operation] = {}
        """Requests that the state machine received and has not answered."""
        self._restart_attempt: events.RestartAttempt | None = None
        self._enforcing: threading.Thread | None = None
        self.inherited_cancel: Operation | None = None
        """Request to the previous leader that was not executed."""

    # --- from other threads -----------------------------------------------------------------------------------

    def submit(self, operation: Operation, *, is_inherited: bool = False) -> None:
        """Queue a request. The request fails at once if the job has ended.

        Args:
            is_inherited: whether this is a cancel that the previous leader received, and the first attempt has not started. The job is then
                cancelled when this JobManager has claimed it, without slots and tasks. The claim must come first: it ends the previous
                leader, and only then the checkpoints may be deleted.
        """
        if is_inherited:
            self.inherited_cancel = operation
            self._enforce_end()
        elif self._history.status.is_globally_terminal_state() or self._done.is_set():
            operation.fail(f"job {self._job_id} is {self._history.status.value}")
        elif operation.kind == "rescale" and self.runner.available_slots() < int(operation.arguments["parallelism"]):
            threading.Thread(target=self._submit_with_slots, args=(operation,), daemon=True).start()
        else:
            self._enqueue(operation)

    def suspend(self) -> None:
        """Leave the job with its checkpoints, because another JobManager will continue it."""
        self._queue.put(Operation("suspend"))
        self._parts.wake.set()
        self._enforce_end()

    def execute_inherited_cancel(self) -> None:
        """Cancel the job if the previous leader has left a request for it. Call it between attempts.

        Raises:
            Stopped: the job must end.
        """
        if self.inherited_cancel is not None:
            self._take(self.inherited_cancel)
            self.settle()

    def _submit_with_slots(self, operation: Operation) -> None:
        """Let a local cluster start the workers for a rescale while the job runs. A rescale that is refused starts no workers."""
        parallelism = int(operation.arguments["parallelism"])
        try:
            if self._scheduler.refuse_graph(parallelism) is None:
                self.runner.ensure_slots(parallelism)
        except Exception as error:  # the cluster may have stopped, but the caller must get an answer
            operation.fail(str(error))
            return
        self._enqueue(operation)

    def _enqueue(self, operation: Operation) -> None:
        if not self._done.is_set():
            self._queue.put(operation)
            self._parts.wake.set()
            self.runner.request_barrier()
            if operation.kind == "cancel":
                self._enforce_end()
        if self._done.is_set() and not operation.is_done:  # also if the job ended between the first check and the put
            operation.fail(f"job {self._job_id} is {self._history.status.value}")

    def _enforce_end(self) -> None:
        """End the epoch and its Python workers by force after a timeout, because a user's function may never return."""

        def run() -> None:
            patience_ms = self._parts.settings.cancellation_timeout_ms
            rounds = 0
            while not self._done.wait(patience_ms / 1000):
                rounds += 1
                self._use_force(patience_ms, last_chance=rounds == 1)
                patience_ms = self._parts.settings.cancellation_interval_ms
                try:
                    self.runner.cancel()
                except Exception as error:  # the cluster is shutting down too
                    logger.info("job %s could not be ended by force: %s", self._job_id, error)

        if self._enforcing is None:
            self._enforcing = threading.Thread(target=run, name="penstock-cancel", daemon=True)
            self._enforcing.start()

    def _use_force(self, waited_ms: int, *, last_chance: bool) -> None:
        """Kill the tasks. A commit runs in this process and cannot be killed, so it gets one more interval and is then abandoned."""
        commits = self._parts.commits
        committing = ""
        if commits.committing and last_chance:
            committing = f"; the commit of sink {commits.committing!r} runs in this process and cannot be killed, so the job waits for it"
        elif commits.committing:
            committing = f"; the commit of sink {commits.committing!r} is abandoned"
            commits.give_up()
        for source in list(self._parts.sources.values()):
            source.give_up()
        logger.warning(
            "job %s has not ended %d ms after the request: its tasks are killed%s",
            self._job_id,
            waited_ms,
            committing,
        )

    # --- from the JobMaster's thread: events ------------------------------------------------------------------

    def take(self) -> None:
        """Feed the state machine the requests since the last call. It may be called at any time, even while an epoch runs."""
        while not self._queue.empty():
            self._take(self._queue.get())

    def _take(self, operation: Operation) -> None:
        if operation.is_done:
            return
        request = Request(
            operation.id,
            operation.kind,
            drain=bool(operation.arguments.get("drain")),
            cancels=bool(operation.arguments.get("cancel")),
        )
        self._operations[operation.id] = operation
        try:
            refusal = self._refusal(operation)
        except Exception as error:  # the caller must get an answer
            refusal = str(error)
        if operation.is_done:
            del self._operations[operation.id]
            return
        if request.drain and not refusal and not self._parts.settings.checkpointing:
            self._take(Operation("checkpoint"))  # a checkpoint to restart from if the stop fails
        self.feed(events.Requested(request, refusal))

    def _refusal(self, operation: Operation) -> str:
        """Return the reason to refuse a request, for reasons that the state machine cannot know. Complete a rescale at once if it changes
        nothing.
        """
        match operation.kind:
            case "savepoint" | "stop":
                self._parts.checkpoints.coordinator.check_savepoint_directory(
                    operation.arguments.get("directory") or None
                )
            case "checkpoint" | "cancel" | "suspend":
                pass
            case "rescale":
                return self._refuse_rescale(operation)
            case other:
                return f"unknown request {other!r}"
        return ""

    def _refuse_rescale(self, operation: Operation) -> str:
        parallelism = int(operation.arguments["parallelism"])
        is_running = self.state.stage is Stage.RUNNING and self.state.ending is None
        # If slots came back, operators with their own parallelism may grow beyond the parallelism of the job.
        if is_running and parallelism == self._scheduler.parallelism and operation.arguments.get("trigger") != "slots":
            self._set_wanted_parallelism(operation)
            operation.complete(result=parallelism)
        return self._scheduler.refuse(parallelism, self.runner) or ""

    def handle_coordinator_events(self, coordinator_events: Iterable[Event]) -> None:
        """Handle the coordinator's events of checkpoints and savepoints.

        Raises:
            PenstockError: more checkpoints failed than are tolerated, or another JobManager leads. The error is raised
                after all events are handled.
        """
        failure: PenstockError | None = None
        for event in coordinator_events:
            match event:
                case CheckpointCompleted():
                    self.feed(events.SnapshotComplete(event.checkpoint_id, event.requests))
                case CheckpointAborted():
                    self.feed(events.SnapshotAborted(event.checkpoint_id, event.reason, event.requests))
                case SavepointCompleted():
                    self.feed(events.SavepointDone(event.request_id, event.url))
                case SavepointFailed():
                    self.feed(events.SavepointDone(event.request_id, failure=str(event.error)))
                case JobMustFail():
                    failure = failure or event.error
        if failure is not None:
            raise failure

    def feed(self, event: events.Event) -> None:
        """Feed the state machine an event and execute its effects. An effect that ends the attempt waits for `settle`."""
        before = self.state.describe()
        if isinstance(event, events.AttemptFailed):
            self._restart_attempt = None
        self.state, effects = attempt_end.react(self.state, event)
        now = self.state.describe()
        if now and now != before:
            self._history.event(self._now(), now)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: events.Effect) -> None:
        match effect:
            case events.Answer():
                self._answer(effect)
            case events.RequestSnapshot():
                self._trigger_snapshot(effect.request)
            case events.RetryRequests():
                for request in effect.requests:
                    self._queue.put(self._operations.pop(request.id))
                self._parts.wake.set()
            case events.SetParallelism():
                self._set_wanted_parallelism(self._operations[effect.id])
            case events.RestartAttempt():
                self._restart_attempt = effect
            case events.EndJob():
                if effect.status is JobStatus.CANCELED and not self._history.status.is_terminal_state():
                    self._history.move(JobStatus.CANCELLING, self._now())

    def _answer(self, answer: events.Answer) -> None:
        operation = self._operations.pop(answer.id)
        if answer.failure:
            operation.fail(answer.failure)
        elif operation.kind == "rescale":
            operation.complete(result=self._scheduler.wanted if answer.result is None else answer.result)
        else:
            operation.complete(location=answer.location or None, result=answer.result)

    def _trigger_snapshot(self, request: Request) -> None:
        coordinator, operation = self._parts.checkpoints.coordinator, self._operations[request.id]
        if request.kind in ("savepoint", "stop"):
            coordinator.trigger_savepoint(
                operation.arguments.get("directory") or None,
                is_final=request.kind == "stop",
                drain=request.drain,
                request_id=request.id,
            )
            return
        if request.kind == "rescale":
            operation.arguments |= {"old": self._scheduler.parallelism, "started": self._parts.clock.monotonic_ms()}
        coordinator.trigger_checkpoint(request.id)

    def _set_wanted_parallelism(self, operation: Operation) -> None:
        """Set the wanted parallelism if a user requested the rescale. Slots that came back do not change it."""
        if operation.arguments.get("trigger") != "slots":
            self._scheduler.wanted = int(operation.arguments["parallelism"])
            self._scheduler.on_rescale()

    # --- from the JobMaster's thread: the life of an attempt --------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """Return whether a request to end the job is pending. Such a request is enforced after a timeout."""
        return self._enforcing is not None

    @property
    def is_at_end_of_input(self) -> bool:
        """Return whether the job is ending because its input has ended, and not because of a request."""
        return self.state.ending is None or self.state.ending.cause is Cause.INPUT

    @property
    def is_ended_by_input(self) -> bool:
        """Return whether the job has ended because its input has ended."""
        ending = self.state.ending
        return self.state.stage is Stage.ENDED and ending is not None and ending.cause is Cause.INPUT

    @property
    def savepoint_of_end(self) -> str:
        """Return the savepoint with which the job was stopped, or an empty string."""
        ending = self.state.ending
        return ending.location if ending is not None and self.state.stage is Stage.ENDED else ""

    @property
    def rescale(self) -> Operation | None:
        """Return the rescale that begins the next attempt."""
        ending = self.state.ending
        if self.state.stage in (Stage.DOWN, Stage.STARTING) and ending is not None and ending.cause is Cause.RESCALE:
            return self._operations.get(ending.id)
        return None

    def settle(self) -> None:
        """Check between two epochs, or after a lost epoch, whether the attempt is over.

        Raises:
            Stopped: the job must end.
            AttemptRestarted: another attempt must start at once.
        """
        if self.state.stage is Stage.ENDED and self.state.status is not None:
            raise Stopped(self.state.status)
        restart, self._restart_attempt = self._restart_attempt, None
        if restart is not None:
            raise AttemptRestarted(restart.reason, rescaled=restart.rescaled)

    def settle_lost(self) -> None:
        """Check while the epoch runs whether its result is no longer needed, so that waiting can stop.

        Raises:
            AttemptRestarted: another attempt must start at once.
        """
        if self._restart_attempt is not None and self.state.stage is not Stage.ENDED:
            self.settle()

    def handle_while_down(self) -> None:
        """Handle requests between attempts, when no tasks exist.

        Raises:
            Stopped: the job must end.
        """
        self.take()
        if self.state.stage is Stage.ENDED:
            self.settle()

    def grow(self, parallelism: int) -> None:
        """Rescale to this parallelism, because slots came back."""
        self._take(Operation("rescale", {"parallelism": parallelism, "trigger": "slots"}))

    def fail_all(self, status: JobStatus) -> None:
        """Fail all pending requests, because the job has ended."""
        self._done.set()
        self.take()
        self.feed(events.JobOver(status))
        self.take()  # includes the requests that arrived just now

    def _now(self) -> int:
        return self._parts.clock.now_ms()
