"""The shell around `attempt_end`: takes requests from other threads, feeds the machine, carries out what it says."""

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
    """Leave the job for good with a status."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status
        super().__init__(status.value)


class BegunAnew(Exception):
    """The attempt is over; another is to start at once from its last checkpoint. Nothing failed.

    Args:
        rescaled: as was asked for; otherwise the attempt was drained in vain.
    """

    def __init__(self, reason: str, *, rescaled: bool) -> None:
        self.reason = reason
        self.rescaled = rescaled
        super().__init__(reason)


class JobRequests:
    """The requests of one job that are not answered, and the machine that says what becomes of them.

    Args:
        done: set when the job has ended.
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
        """Those that were fed to the machine and are not answered."""
        self._begin_anew: events.BeginAnew | None = None
        self._insisting: threading.Thread | None = None

    # --- from other threads -----------------------------------------------------------------------------------

    def ask(self, operation: Operation) -> None:
        """Refused at once when the job has ended."""
        if self._history.status.is_globally_terminal_state() or self._done.is_set():
            operation.fail(f"job {self._job_id} is {self._history.status.value}")
        elif operation.kind == "rescale" and self.runner.available_slots() < int(operation.arguments["parallelism"]):
            threading.Thread(target=self._ask_with_slots, args=(operation,), daemon=True).start()
        else:
            self._enqueue(operation)

    def suspend(self) -> None:
        """Leave the job as it is, with its checkpoints: another JobManager will go on."""
        self._queue.put(Operation("suspend"))
        self._parts.wake.set()
        self._insist()

    def _ask_with_slots(self, operation: Operation) -> None:
        """A local cluster starts the workers that a rescale needs, while the job runs on; none for what is refused."""
        parallelism = int(operation.arguments["parallelism"])
        try:
            if self._scheduler.refuse_graph(parallelism) is None:
                self.runner.ensure_slots(parallelism)
        except Exception as error:  # the cluster may be gone; whoever asks gets an answer all the same
            operation.fail(str(error))
            return
        self._enqueue(operation)

    def _enqueue(self, operation: Operation) -> None:
        if not self._done.is_set():
            self._queue.put(operation)
            self._parts.wake.set()
            self.runner.request_barrier()
            if operation.kind == "cancel":
                self._insist()
        if self._done.is_set() and not operation.is_done:  # also if it ended between the look and the put
            operation.fail(f"job {self._job_id} is {self._history.status.value}")

    def _insist(self) -> None:
        """A user's function that never returns must not keep its job alive: end the epoch, and its Python workers."""

        def run() -> None:
            patience_ms = self._parts.settings.cancellation_timeout_ms
            rounds = 0
            while not self._done.wait(patience_ms / 1000):
                rounds += 1
                self._use_force(patience_ms, last_chance=rounds == 1)
                patience_ms = self._parts.settings.cancellation_interval_ms
                try:
                    self.runner.cancel()
                except Exception as error:  # the cluster is going down as well
                    logger.info("job %s could not be ended by force: %s", self._job_id, error)

        if self._insisting is None:
            self._insisting = threading.Thread(target=run, name="penstock-cancel", daemon=True)
            self._insisting.start()

    def _use_force(self, waited_ms: int, *, last_chance: bool) -> None:
        """A commit runs in this process, where nothing can be killed: it gets another round, then nobody waits for it."""
        commits = self._parts.commits
        committing = ""
        if commits.committing and last_chance:
            committing = f"; the commit of sink {commits.committing!r} runs in this process and cannot be killed: it is waited for"
        elif commits.committing:
            committing = f"; the commit of sink {commits.committing!r} is given up"
            commits.give_up()
        for source in list(self._parts.sources.values()):
            source.give_up()
        logger.warning(
            "job %s has not ended, %d ms after it was told to: its tasks are killed%s",
            self._job_id,
            waited_ms,
            committing,
        )

    # --- from the JobMaster's thread: events ------------------------------------------------------------------

    def take(self) -> None:
        """Feed the machine what was asked for since the last call; at any time, also while an epoch runs."""
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
        except Exception as error:  # as above
            refusal = str(error)
        if operation.is_done:
            del self._operations[operation.id]
            return
        if request.drain and not refusal and not self._parts.settings.checkpointing:
            self._take(Operation("checkpoint"))  # what to go back to if the stop fails
        self.feed(events.Requested(request, refusal))

    def _refusal(self, operation: Operation) -> str:
        """Why it cannot be, in what the machine does not know of; a rescale that changes nothing is done at once."""
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
        # With slots that came back, operators that set a parallelism of their own may grow beyond the job's.
        if is_running and parallelism == self._scheduler.parallelism and operation.arguments.get("trigger") != "slots":
            self._set_wanted(operation)
            operation.complete(result=parallelism)
        return self._scheduler.refuse(parallelism, self.runner) or ""

    def take_in(self, told: Iterable[Event]) -> None:
        """What the coordinator says of checkpoints and savepoints.

        Raises:
            PenstockError: more checkpoints failed than are tolerated, or somebody else leads. All events were taken in.
        """
        failure: PenstockError | None = None
        for event in told:
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
        """Let the machine react, and carry out what it says; what ends the attempt waits for `settle`."""
        before = self.state.describe()
        if isinstance(event, events.AttemptFailed):
            self._begin_anew = None
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
            case events.Ask():
                self._ask_coordinator(effect.request)
            case events.AskAgain():
                for request in effect.requests:
                    self._queue.put(self._operations.pop(request.id))
                self._parts.wake.set()
            case events.NoteParallelism():
                self._set_wanted(self._operations[effect.id])
            case events.BeginAnew():
                self._begin_anew = effect
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

    def _ask_coordinator(self, request: Request) -> None:
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
            operation.arguments |= {"old": self._scheduler.parallelism, "started": self._now()}
        coordinator.trigger_checkpoint(request.id)

    def _set_wanted(self, operation: Operation) -> None:
        """A rescale has been asked for by somebody, not by slots that came back."""
        if operation.arguments.get("trigger") != "slots":
            self._scheduler.wanted = int(operation.arguments["parallelism"])

    # --- from the JobMaster's thread: the life of an attempt --------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """The job was asked to end, and will be by force."""
        return self._insisting is not None

    @property
    def is_at_end_of_input(self) -> bool:
        """Nobody asked for the end of the job: its input is over."""
        return self.state.ending is None or self.state.ending.cause is Cause.INPUT

    @property
    def has_ended_with_its_input(self) -> bool:
        """The end of its input has ended the job."""
        ending = self.state.ending
        return self.state.stage is Stage.ENDED and ending is not None and ending.cause is Cause.INPUT

    @property
    def rescale(self) -> Operation | None:
        """That the attempt to come was begun for."""
        ending = self.state.ending
        if self.state.stage in (Stage.DOWN, Stage.STARTING) and ending is not None:
            return self._operations.get(ending.id)
        return None

    def settle(self) -> None:
        """Between two epochs, or when one was lost: see whether the attempt is over.

        Raises:
            Stopped: the job is to end.
            BegunAnew: another attempt is to start at once.
        """
        if self.state.stage is Stage.ENDED and self.state.status is not None:
            raise Stopped(self.state.status)
        anew, self._begin_anew = self._begin_anew, None
        if anew is not None:
            raise BegunAnew(anew.reason, rescaled=anew.rescaled)

    def settle_lost(self) -> None:
        """While the epoch runs: it is of no use any more, and need not be waited for.

        Raises:
            BegunAnew: another attempt is to start at once.
        """
        if self._begin_anew is not None and self.state.stage is not Stage.ENDED:
            self.settle()

    def handle_while_down(self) -> None:
        """Between attempts there are no tasks.

        Raises:
            Stopped: the job is to end.
        """
        self.take()
        if self.state.stage is Stage.ENDED:
            self.settle()

    def grow(self, parallelism: int) -> None:
        """Slots have come back: rescale to this parallelism."""
        self._take(Operation("rescale", {"parallelism": parallelism, "trigger": "slots"}))

    def fail_all(self, status: JobStatus) -> None:
        """The job has ended: nobody waits in vain."""
        self._done.set()
        self.take()
        self.feed(events.JobOver(status))
        self.take()  # also who came just now

    def _now(self) -> int:
        return self._parts.clock.now_ms()
