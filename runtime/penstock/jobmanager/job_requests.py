"""What may interrupt a running job: requests of other threads, carried out between two epochs by the JobMaster's."""

from __future__ import annotations

import logging
import queue
import threading

from penstock.common.errors import PenstockError
from penstock.common.job_status import JobStatus
from penstock.jobmanager.job_history import JobHistory
from penstock.jobmanager.job_parts import JobParts
from penstock.jobmanager.requests import Operation
from penstock.jobmanager.runner import Runner
from penstock.jobmanager.scheduler import JobScheduler

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """Leave the job for good with a status."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status
        super().__init__(status.value)


class JobRequests:
    """The queue of one job's requests, and what each of them does.

    Args:
        done: set when the job has ended.
    """

    runner: Runner

    def __init__(
        self, job_id: str, parts: JobParts, scheduler: JobScheduler, history: JobHistory, done: threading.Event
    ) -> None:
        self._job_id = job_id
        self._parts = parts
        self._scheduler = scheduler
        self._history = history
        self._done = done
        self._queue: queue.SimpleQueue[Operation] = queue.SimpleQueue()
        self._put_off: list[Operation] = []
        """A savepoint that came with a rescale, or a rescale that came with a savepoint: the other one is done first."""
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
        except PenstockError as error:
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
        logger.warning(
            "job %s has not ended, %d ms after it was told to: its tasks are killed%s",
            self._job_id,
            waited_ms,
            committing,
        )

    # --- from the JobMaster's thread --------------------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """The job was asked to end, and will be by force."""
        return self._insisting is not None

    def handle(self) -> None:
        """Carry out what was asked for; between two epochs.

        Raises:
            Stopped: the job is to end.
        """
        self._requeue()
        while not self._queue.empty():
            operation = self._queue.get()
            try:
                self._carry_out(operation)
            except PenstockError as error:
                operation.fail(str(error))

    def _requeue(self) -> None:
        put_off, self._put_off = self._put_off, []
        for operation in put_off:
            self._queue.put(operation)

    @property
    def is_taking_savepoint(self) -> bool:
        """One was asked for and is not complete: the end of the attempt would be its end."""
        return any(operation.kind == "savepoint" for operation in self._parts.waiting.values())

    def _carry_out(self, operation: Operation) -> None:
        parts = self._parts
        coordinator = parts.checkpoints.coordinator
        match operation.kind:
            case "cancel":
                if parts.exclusive is not None:
                    parts.exclusive.fail("the job was cancelled meanwhile")
                parts.exclusive = operation
                self._history.move(JobStatus.CANCELLING, self._now())
                raise Stopped(JobStatus.CANCELED)
            case "suspend":
                raise Stopped(JobStatus.SUSPENDED)
            case "savepoint" if parts.ends_attempt:
                self._put_off.append(operation)
            case "savepoint":
                coordinator.trigger_savepoint(operation.arguments.get("directory") or None, request_id=operation.id)
                parts.waiting[operation.id] = operation
            case "checkpoint":
                coordinator.trigger_checkpoint(operation.id)
                parts.waiting[operation.id] = operation
            case "stop":
                if parts.exclusive is not None:
                    operation.fail(f"a {parts.exclusive.kind} is in progress")
                    return
                coordinator.trigger_savepoint(
                    operation.arguments.get("directory") or None,
                    is_final=True,
                    drain=bool(operation.arguments.get("drain")),
                    request_id=operation.id,
                )
                parts.exclusive = operation
            case "rescale":
                self.begin_rescale(operation)
            case other:
                operation.fail(f"unknown request {other!r}")

    def handle_while_down(self) -> None:
        """Between attempts there are no tasks: cancelling works, a new parallelism is noted, the rest is refused.

        During a rescale that is over in a moment, savepoints and checkpoints wait for the attempt to come.

        Raises:
            Stopped: the job is to end.
        """
        while not self._queue.empty():
            operation = self._queue.get()
            if operation.kind in ("cancel", "suspend"):
                self._carry_out(operation)
            elif operation.kind == "rescale":
                refusal = self._scheduler.refuse(int(operation.arguments["parallelism"]), self.runner)
                if refusal is not None:
                    operation.fail(refusal)
                    continue
                self.set_wanted(operation)
                operation.complete(result=self._scheduler.wanted)
            elif self._parts.exclusive is not None and operation.kind in ("savepoint", "checkpoint"):
                self._put_off.append(operation)
            else:
                operation.fail(f"the job is {self._history.status.value}; try again when it is RUNNING")

    def set_wanted(self, operation: Operation) -> None:
        """A rescale has been asked for by somebody, not by slots that came back."""
        if operation.arguments.get("trigger") != "slots":
            self._scheduler.wanted = int(operation.arguments["parallelism"])

    def begin_rescale(self, operation: Operation) -> None:
        """Trigger the snapshot that the attempt ends with; a savepoint that is being taken comes first."""
        parts, scheduler = self._parts, self._scheduler
        parallelism = int(operation.arguments["parallelism"])
        if parts.exclusive is not None:
            operation.fail(f"a {parts.exclusive.kind} is in progress")
            return
        # With slots that came back, operators that set a parallelism of their own may grow beyond the job's.
        if parallelism == scheduler.parallelism and operation.arguments.get("trigger") != "slots":
            self.set_wanted(operation)
            operation.complete(result=parallelism)
            return
        refusal = scheduler.refuse(parallelism, self.runner)
        if refusal is not None:
            operation.fail(refusal)
            return
        if self.is_taking_savepoint:
            self._put_off.append(operation)
            return
        operation.arguments |= {"old": scheduler.parallelism, "started": self._now()}
        parts.exclusive = operation
        parts.checkpoints.coordinator.trigger_checkpoint(operation.id)

    def fail_all(self, status: JobStatus) -> None:
        """The job has ended: nobody waits in vain."""
        ended = f"the job ended as {status.value}"
        stopping = self._parts.exclusive
        if stopping is not None and not stopping.is_done:
            if stopping.kind in ("cancel", "stop") and status in (JobStatus.FINISHED, JobStatus.CANCELED):
                stopping.complete(location=stopping.location)
            else:
                stopping.fail(ended)
        for operation in self._parts.waiting.values():
            if not operation.is_done:
                operation.fail(ended)
        self._done.set()
        self._requeue()
        while not self._queue.empty():
            self._queue.get().fail(ended)

    def _now(self) -> int:
        return self._parts.clock.now_ms()
