"""A job that is stepped by hand, with everything that may end it, and its output read back: the rig of `test_meeting`.

One thread does everything: an epoch, or one piece of background work (a manifest, a savepoint's copy), is a step. So what is
asked for, or fails, can come at any step of anything else, and comes there again in the next run.
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
from penstock.connectors.two_phase import TwoPhaseCommitSink, TwoPhaseCommitSinkFunction
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
"""Records by transaction; the sink's system."""
FLUSHED: set[str] = set()
COMMITTED: dict[str, list[str]] = {}
"""Transactions by ledger, in order."""
ABORTED: set[str] = set()
_NUMBERS = itertools.count()


class CountAndSayGoodbye(KeyedProcessFunction):
    """(key, how many there have been) for each record, and once more at the end of time: a drain fires it, or the end of input."""

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
    """Transactions in memory; what must not be done to one is an error."""

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
    """Background work of the JobManager, one piece with each `run_one`."""

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
    """How often it was answered."""

    answers = 0

    def complete(self, **outcome: Any) -> None:
        self.answers += 1
        super().complete(**outcome)

    def fail(self, failure: str) -> None:
        self.answers += 1
        super().fail(failure)


class Meeting:
    """One job, and its successors; see the module's head.

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
        counts = numbers.key_by(lambda n: n % KEYS).process(CountAndSayGoodbye()).uid("count")
        counts.sink_to(TwoPhaseCommitSink(Ledger(self.name))).uid("ledger")
        self._begin("")

    # --- stepping ---------------------------------------------------------------------------------------------

    def _begin(self, location: str, job_id: str = "") -> None:
        """Start the job anew, or as the successor that goes on with this job id."""
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
        """An epoch, or a look at what goes on while the job stands still; then a piece of background work."""
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

    def until(self, holds: Callable[[], bool], what: str) -> None:
        for _ in range(MOST_STEPS):
            if holds():
                return
            self.step()
        state = self.master._requests.state
        unanswered = [operation.kind for operation in self.operations if not operation.is_done]
        pytest.fail(
            f"{self.log}: no {what} after {MOST_STEPS} steps; the job is {self.master.history.status.value}, {state}; "
            f"not answered: {unanswered}; events: {[event.text for event in self.master.history.events][-12:]}"
        )

    # --- what may meet ----------------------------------------------------------------------------------------

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

    def happen(self, what: str) -> None:
        """One of `EVENTS`."""
        self.log.append(what)
        match what:
            case "savepoint" | "stop" | "cancel" | "suspend":
                self.ask(what)
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
        """Everybody is answered, once; the job has ended or runs on."""
        self.until(lambda: all(operation.is_done for operation in self.operations), "answer")
        answers = {operation.kind: operation.answers for operation in self.operations}
        assert all(operation.answers == 1 for operation in self.operations), (self.log, answers)
        if self.ended is None and not self.closed:
            self.until(lambda: self.ended is not None or self.master.history.status is JobStatus.RUNNING, "RUNNING")

    def drained(self) -> bool:
        """Also by a stop that failed, because nobody knew whether its manifest was stored, and it was: the next attempt ends the job."""
        is_drained = any(operation.arguments.get("drain") for operation in self.operations) and not self._is_stopped()
        is_finished = self.ended is JobStatus.FINISHED and not self.master.history.end_of_input
        return self.completed_a_drain or (is_drained and is_finished)

    def finish(self) -> None:
        """Go on from where the job was left, to the end of the input; nothing may be lost or repeated."""
        self.faulty._rules.clear()
        self.faulty.is_away = False
        runner = self.harness._driver.runner
        runner.lost = runner.hung = False
        if self.ended is None and not self.closed:
            # Every event has come; the job takes one more checkpoint before the rest.
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
        """Of each key every count is there once, from 1 on; how many there are."""
        counts: dict[int, int] = {}
        for key in range(KEYS):
            found = sorted(record[1] for record in self.committed() if record[0] == key and record[1] != "end")
            assert found == list(range(1, len(found) + 1)), (self.log, key, found)
            counts[key] = len(found)
        return counts

    def close(self) -> None:
        self.harness.shutdown()
