"""Checkpoint storage that refuses requests or loses answers. The job continues or ends, and reports the reason."""

from __future__ import annotations

import importlib
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.store.faults import Fault, FaultyStore
from penstock.checkpoint.store.local_store import LocalStore
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy
from penstock.common.errors import Fenced, FinalCheckpointRefused, JobSuspended
from penstock.common.job_status import JobStatus
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.ending import job_result
from penstock.jobmanager.job.ending.job_result import read_result, retry_in_background
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.jobmanager.job.job_master import JobMaster

_running: dict[str, Job] = {}
"""The running job. Its functions are pickled, and find it here."""
QUICK = RetryPolicy(retry_for=0.05, pause=0.001, max_pause=0.002)
NUMBERS = 300


class Job:
    """A bounded job that fails once in the middle, with a JobManager whose storage can inject faults.

    Attributes:
        on_failure: called in the failing function, immediately before the failure.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.faulty = FaultyStore(LocalStore(fsync=False))
        self.settings = {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "5",
            "restart-strategy.fixed-delay.delay": "10 ms",
            "execution.checkpointing.interval": "20 ms",
            **settings,
        }
        self.on_failure: Callable[[], object] = lambda: None
        self.session = Session(InProcess(), SubmitOptions())
        self.session.on_line = None
        self.session.on_started = self._use_faulty

    def _use_faulty(self, master: JobMaster) -> None:
        master.checkpoints.storage.stores.use("file", RetryingStore(self.faulty, QUICK, sleep=lambda _: None))

    @property
    def master(self) -> JobMaster:
        return self.session.dispatcher.jobs()[0]

    def run(self, *, fails: bool = True) -> JobMaster:
        """Run the job to its end, and raise the exception of `execute`."""
        with executing_on(self.session):
            self._program(fails=fails).execute("faulted")
        return self.master

    def _program(self, *, fails: bool) -> StreamExecutionEnvironment:
        env = environment(self.folder, **self.settings)
        failed = self.folder / "failed"
        _running["job"] = self

        def touch(value: int) -> int:
            if fails and value == NUMBERS // 2 and not failed.exists():
                failed.touch()
                importlib.import_module(__name__)._running["job"].on_failure()
                raise RuntimeError("once")
            return value

        env.from_source(NumberSequenceSource(1, NUMBERS), None, "numbers").uid("in").map(touch).uid("map").key_by(
            lambda value: value % 7
        ).reduce(lambda a, b: a + b).uid("sum").print().uid("out")
        return env


@pytest.mark.parametrize("fault", [Fault.TIMEOUT_AFTER, Fault.TIMEOUT_BEFORE, Fault.LATE, Fault.DENIED, Fault.EXISTS])
@pytest.mark.parametrize("description", ["leader/1", "leader/2", "leader/1.base", "leader/2.base"])
def test_an_attempt_whose_leadership_claim_has_no_answer_is_followed_by_another(
    tmp_path: Path, description: str, fault: Fault
) -> None:
    job = Job(tmp_path)
    job.faulty.inject("put", fault, match=description)
    job.faulty.inject("put", Fault.TIMEOUT_BEFORE, match=description, times=50)
    assert job.run().history.status is JobStatus.FINISHED
    assert not any(failure.name == "Fenced" for failure in job.master.history.failures)


@pytest.mark.parametrize("skip", range(8))
@pytest.mark.parametrize("operation", ["list", "get"])
def test_an_attempt_whose_listing_fails_is_followed_by_another(tmp_path: Path, operation: str, skip: int) -> None:
    """The second attempt lists before and after its claim, reads manifests and bases, and lists after its base."""
    job = Job(tmp_path)
    job.on_failure = lambda: job.faulty.inject(operation, Fault.DENIED, times=1, skip=skip)
    assert job.run().history.status is JobStatus.FINISHED
    assert not any(failure.name == "Fenced" for failure in job.master.history.failures)


def test_execute_raises_when_another_jobmanager_has_taken_over(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.on_failure = lambda: take_over(job.master.checkpoints.storage, name="another").begin()
    with pytest.raises(Fenced, match=r"another JobManager has taken over \(another/") as raised:
        job.run()
    assert raised.value.remedy
    assert job.master.history.status is JobStatus.SUSPENDED


def test_execute_raises_when_the_job_was_suspended(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.on_failure = lambda: job.master.suspend()
    with pytest.raises(JobSuspended, match="continue the job from its newest checkpoint"):
        job.run()


def test_execute_returns_when_the_job_was_cancelled_on_request(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.on_failure = lambda: job.master.request(Operation("cancel"))
    assert job.run().history.status is JobStatus.CANCELED


@pytest.mark.parametrize("tolerable", [0, 3])
def test_a_bounded_job_whose_last_manifest_is_refused_fails_with_the_stores_own_message(
    tmp_path: Path, tolerable: int
) -> None:
    tolerated = {"execution.checkpointing.tolerable-failed-checkpoints": str(tolerable)}
    quickly = {
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.initial-backoff": "10 ms",
    }
    job = Job(tmp_path, **{"execution.checkpointing.interval": "1 h"}, **tolerated, **quickly)
    job.faulty.inject("put", Fault.DENIED, match="_metadata", times=10**9)
    with pytest.raises(FinalCheckpointRefused, match="403 AccessDenied"):
        job.run(fails=False)
    assert job.master.history.status is JobStatus.FAILED
    tried = [url for operation, url in job.faulty.calls if operation == "put" and url.endswith("_metadata")]
    assert len(tried) == 2 * (tolerable + 1)


def test_a_bounded_job_whose_last_manifest_is_temporarily_refused_ends(tmp_path: Path) -> None:
    job = Job(tmp_path, **{"execution.checkpointing.interval": "1 h"})
    job.faulty.inject("put", Fault.DENIED, match="_metadata")
    assert job.run(fails=False).history.status is JobStatus.FINISHED
    assert job.master.history.restarts == 1


@pytest.mark.parametrize("fault", [Fault.DENIED, Fault.TIMEOUT_AFTER, Fault.TIMEOUT_BEFORE])
def test_the_result_of_a_job_is_recorded_when_storage_is_back(
    tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted master continues from the checkpoints, which remain until the result is recorded. Afterwards it runs nothing."""
    quickly = partial(retry_in_background, first_pause_s=0.2, longest_pause_s=0.2)
    monkeypatch.setattr(job_result, "retry_in_background", quickly)
    job = Job(tmp_path, **{"execution.checkpointing.externalized-checkpoint-retention": "NO_EXTERNALIZED_CHECKPOINTS"})
    job.session.submit_options.keep_result = True
    job.faulty.inject("put", fault, match="/result")
    job.faulty.inject("put", Fault.TIMEOUT_BEFORE, match="/result", times=10**9)
    assert job.run(fails=False).history.status is JobStatus.FINISHED
    storage = job.master.checkpoints.storage
    assert storage.checkpoint_ids(), "what a master that starts again goes on from"
    job.faulty.heal()
    deadline = time.monotonic() + 20
    while (read_result(storage) is None or storage.checkpoint_ids()) and time.monotonic() < deadline:
        time.sleep(0.01)
    result = read_result(storage)
    assert result is not None
    assert (result.status, result.end_of_input) == (JobStatus.FINISHED, True)
    assert not storage.checkpoint_ids()
