"""A job that the test steps by hand, with all events that may end it: the rig of `test_event_interleaving`.

One thread does everything. A step is an epoch or one piece of background work, such as a manifest or the copy of a
savepoint. A request or a failure can therefore occur at any step of another one, and occurs there again in the next
run. The rig reads the output of the job back.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from penstock.checkpoint.store.faults import Fault, FaultyStore
from penstock.checkpoint.store.local_store import LocalStore
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.connectors.core.two_phase import TwoPhaseCommitSink, TwoPhaseCommitSinkFunction
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.jobmanager.job import checkpoints
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.testing import CRASH, JobHarness

QUICK = RetryPolicy(retry_for=0.004, pause=0.001, max_pause=0.001)
KEYS = 3
PUSHED_AT_ONCE = 5
MOST_STEPS = 600
END_OF_TIME = 1 << 50

WRITTEN: dict[str, list[tuple[Any, ...]]] = {}
"""Records by transaction: the external system of the sink."""
FLUSHED: set[str] = set()
COMMITTED: dict[str, list[str]] = {}
"""Transactions by ledger, in order."""
ABORTED: set[str] = set()
_NUMBERS = itertools.count()


class CountAndEmitAtEnd(KeyedProcessFunction):
    """A function that emits (key, count) for each record, and once more at the end of time.

    A drain or the end of the input fires that timer.
    """

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: int, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        ctx.timer_service().register_event_time_timer(END_OF_TIME)
        yield value % KEYS, count

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), "end", self.count.value()


class Ledger(TwoPhaseCommitSinkFunction):
    """A ledger with transactions in memory. An invalid call for a transaction raises an error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def begin_transaction(self) -> str:
        transaction = f"{self.name}-{next(_NUMBERS)}"
        WRITTEN[transaction] = []
        return transaction

    def invoke(self, transaction: str, value: Any, context: Any) -> None:
        WRITTEN[transaction].append(tuple(value))

    def pre_commit(self, transaction: str) -> None:
        FLUSHED.add(transaction)

    def commit(self, transaction: str) -> None:
        assert transaction in FLUSHED, "committed before it was flushed"
        assert transaction not in ABORTED, "committed although it was aborted: what it held is lost"
        if transaction not in COMMITTED[self.name]:
            COMMITTED[self.name].append(transaction)

    def abort(self, transaction: str) -> None:
        assert transaction not in COMMITTED[self.name], "aborted although it was committed"
        ABORTED.add(transaction)


class Stepped(Executor):
    """The background work of the JobManager, one piece with each `run_one`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_one(self) -> None:
        if self.waiting:
            future, work = self.waiting.popleft()
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        while self.waiting and not cancel_futures:
            self.run_one()


class Counted(Operation):
    """An operation that counts its answers."""

    answers = 0

    def complete(self, **outcome: Any) -> None:
        self.answers += 1
        super().complete(**outcome)

    def fail(self, failure: str) -> None:
        self.answers += 1
        super().fail(failure)


class EventInterleaving:
    """One job and its successors, as the head of the module describes them.

    Args:
        patch: undone after the test.
    """

    def __init__(self, patch: pytest.MonkeyPatch, **settings: str) -> None:
        patch.setattr(checkpoints, "ThreadPoolExecutor", Stepped)
        patch.setattr(checkpoints, "probe", lambda *_, **__: None)
        self.name = f"ledger-{next(_NUMBERS)}"
        COMMITTED[self.name] = []
        self.faulty = FaultyStore(LocalStore(fsync=False))
        self.operations: list[Counted] = []
        self.pushed: Counter[int] = Counter()
        self.log: list[str] = []
        self.back_in = 0
        self.closed = False
        self.completed_a_drain = False
        self.settings = {
            "execution.checkpointing.interval": "40 ms",
            "execution.checkpointing.timeout": "200 ms",
            "task.cancellation.timeout": "20 ms",
            "task.cancellation.interval": "20 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "0 ms",
            **settings,
        }
        self.harness = JobHarness(parallelism=2, configuration=self.settings)
        self.savepoints = f"{self.harness._folder.url}/savepoints"
        numbers = self.harness.source("numbers")
        counts = numbers.key_by(lambda n: n % KEYS).process(CountAndEmitAtEnd()).uid("count")
        counts.sink_to(TwoPhaseCommitSink(Ledger(self.name))).uid("ledger")
        self._begin("")

    # --- stepping ---------------------------------------------------------------------------------------------

    def _begin(self, location: str, job_id: str = "") -> None:
        """Start the job from scratch, or as the successor that continues with this job id."""
        driver, program, journal = self.harness._driver, self.harness._build(), self.harness._journal
        started = JobMaster.open

        def open_(master: JobMaster) -> None:
            master.checkpoints.storage.stores.use("file", RetryingStore(self.faulty, QUICK, sleep=lambda _: None))
            started(master)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(JobMaster, "open", open_)
            if job_id:
                patch.setattr(JobID, "generate", lambda: JobID(job_id))
            driver.begin(program, journal, location)
        self.until(lambda: self.ended is not None or self.master.history.status is JobStatus.RUNNING, "RUNNING")

    @property
    def master(self) -> JobMaster:
        master = self.harness._driver._master
        assert master is not None
        return master

    @property
    def ended(self) -> JobStatus | None:
        return self.harness._driver.status

    def step(self) -> None:
        """Run an epoch, or check for progress if the job does not read. Then run one piece of background work."""
        driver = self.harness._driver
        if self.ended is not None:
            return
        if self.faulty.is_away:
            self.back_in -= 1
            self.faulty.is_away = self.back_in > 0
        self.harness.clock.set(self.harness.clock.now_ms() + 10)
        self.harness._journal.move_horizon()
        driver._step()
        self.master.checkpoints._pool.run_one()  # type: ignore[attr-defined]

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.push(1)
            self.step()

    def until(self, holds: Callable[[], bool], description: str) -> None:
        for _ in range(MOST_STEPS):
            if holds():
                return
            self.step()
        state = self.master._requests.state
        unanswered = [operation.kind for operation in self.operations if not operation.is_done]
        pytest.fail(
            f"{self.log}: no {description} after {MOST_STEPS} steps; the job is {self.master.history.status.value}, {state}; "
            f"not answered: {unanswered}; events: {[event.text for event in self.master.history.events][-12:]}"
        )

    # --- events that may coincide ----------------------------------------------------------------------------

    def push(self, count: int = PUSHED_AT_ONCE) -> None:
        if not self.closed:
            for _ in range(count):
                number = sum(self.pushed.values())
                self.harness.push("numbers", number)
                self.pushed[number % KEYS] += 1

    def ask(self, kind: str, **arguments: Any) -> None:
        operation = Counted(kind, {"directory": self.savepoints, **arguments})
        self.operations.append(operation)
        self.master.request(operation)

    def happen(self, event: str) -> None:
        """Trigger one of `EVENTS`."""
        self.log.append(event)
        match event:
            case "savepoint" | "stop" | "cancel" | "suspend":
                self.ask(event)
            case "stop --drain":
                self.ask("stop", drain=True)
            case "rescale":
                self.ask("rescale", parallelism=3 if self.ended is None and self.master.parallelism == 2 else 2)
            case "end of input":
                if not self.closed:
                    self.closed = True
                    self.harness.close("numbers")
            case "user failure":
                if not self.closed:
                    self.harness.push("numbers", CRASH)
            case "lost slot":
                self.harness._driver.runner.lost = True
            case "refused manifest":
                self.faulty.inject("put", Fault.DENIED, match="_metadata")
            case "storage away":
                self.faulty.is_away, self.back_in = True, 2
            case "lost answer":
                self.faulty.inject("put", Fault.TIMEOUT_AFTER, match="_metadata", times=20)
            case "timeout":
                self.harness._driver.runner.hung = True
            case other:
                raise ValueError(other)

    # --- the end ----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until every request has exactly one answer and the job has ended or runs."""
        self.until(lambda: all(operation.is_done for operation in self.operations), "answer")
        answers = {operation.kind: operation.answers for operation in self.operations}
        assert all(operation.answers == 1 for operation in self.operations), (self.log, answers)
        if self.ended is None and not self.closed:
            self.until(lambda: self.ended is not None or self.master.history.status is JobStatus.RUNNING, "RUNNING")

    def drained(self) -> bool:
        """Return whether a drain ended the job.

        This includes a stop that failed because the outcome of its manifest was unknown, if the manifest was stored.
        The next attempt then ends the job.
        """
        is_drained = any(operation.arguments.get("drain") for operation in self.operations) and not self._is_stopped()
        is_finished = self.ended is JobStatus.FINISHED and not self.master.history.end_of_input
        return self.completed_a_drain or (is_drained and is_finished)

    def finish(self) -> None:
        """Continue from the current state of the job to the end of the input, and check that no record is lost or repeated."""
        self.faulty._rules.clear()
        self.faulty.is_away = False
        runner = self.harness._driver.runner
        runner.lost = runner.hung = False
        if self.ended is None and not self.closed:
            # All events have occurred. The job takes one more checkpoint before the rest.
            self.push()
        self.check_prefix()
        if self.ended is not None and not (self.closed and self.ended is JobStatus.FINISHED) and not self.drained():
            self._resume()
        if not self.drained():
            if not self.closed:
                self.push()
                self.closed = True
                self.harness.close("numbers")
            self.until(lambda: self.ended is not None, "end of the job")
            if self._is_stopped():
                self._resume()
                self.until(lambda: self.ended is not None, "end of the job")
            assert self.ended is JobStatus.FINISHED, (self.log, self.ended)
        counts = self.check_prefix()
        if not self.drained():
            assert counts == dict(self.pushed), (self.log, counts, self.pushed)
        goodbyes = Counter(record for record in self.committed() if record[1] == "end")
        expected = Counter((key, "end", count) for key, count in counts.items() if count)
        assert goodbyes == expected, (self.log, goodbyes, expected)

    def _is_stopped(self) -> bool:
        return any(op.kind == "stop" and op.failure is None and not op.arguments.get("drain") for op in self.operations)

    def _resume(self) -> None:
        stops = [op.location for op in self.operations if op.kind == "stop" and op.failure is None]
        self.operations.clear()
        if stops:
            self._begin(stops[-1] or "")
        else:
            self._begin("", self.master.job_id)
        self.completed_a_drain = self.ended is JobStatus.FINISHED

    def committed(self) -> list[tuple[Any, ...]]:
        return [record for transaction in COMMITTED[self.name] for record in WRITTEN[transaction]]

    def check_prefix(self) -> dict[int, int]:
        """Check that each key has every count from 1 once, and return the number of counts by key."""
        counts: dict[int, int] = {}
        for key in range(KEYS):
            found = sorted(record[1] for record in self.committed() if record[0] == key and record[1] != "end")
            assert found == list(range(1, len(found) + 1)), (self.log, key, found)
            counts[key] = len(found)
        return counts

    def close(self) -> None:
        self.harness.shutdown()
