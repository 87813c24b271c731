"""Start the self-verifying job on a cluster, run operations and faults on it, and measure its recovery."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.common.configuration import Configuration
from penstock.common.job_status import JobStatus
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.cluster.local_cluster import LocalCluster
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
from penstock.jobmanager.process.session.session import SubmitOptions
from penstock.jobmanager.runners.spark_runner import SparkRunner
from tests.integration.engine.selfcheck import processes
from tests.integration.engine.selfcheck.job import Plan, build

if TYPE_CHECKING:
    from tools.servers.s3 import S3Server

ROOT = Path(__file__).parents[4]
PATIENCE_S = 240.0


def configuration(runner: str, folder: str, **more: str) -> dict[str, str]:
    """Return settings with two checkpoints per second and all files under `folder` (a URL)."""
    return {
        "penstock.runner": runner,
        "python.files": str(ROOT),
        "rest.port": "-1",
        "taskmanager.numberOfTaskSlots": "2",
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "execution.checkpointing.savepoint-dir": f"{folder}/savepoints",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "200 ms",
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def settings_for(s3: S3Server) -> dict[str, str]:
    """Return the settings with which a job reaches this server, and survives its downtimes."""
    return {
        "s3.endpoint": s3.endpoint_url,
        "s3.access-key": s3.access_key,
        "s3.secret-key": s3.secret_key,
        "s3.endpoint.region": s3.credentials.region,
        "execution.checkpointing.timeout": "3 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    }


def environment(settings: dict[str, str], parallelism: int) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration(settings)).set_parallelism(parallelism)


def start(
    executor: EmbeddedExecutor,
    plan: Plan,
    output: str,
    settings: dict[str, str],
    *,
    parallelism: int = 2,
    submit: SubmitOptions | None = None,
    program: Callable[[StreamExecutionEnvironment, Plan, str], None] = build,
) -> Driver:
    """Start the job. It runs when this returns, or is about to."""
    env = environment(settings, parallelism)
    program(env, plan, output)
    return submitted(executor, env, "self-verifying", submit)


def submitted(
    executor: EmbeddedExecutor, env: StreamExecutionEnvironment, name: str, submit: SubmitOptions | None = None
) -> Driver:
    """Start any job. It runs when this returns, or is about to."""
    executor.session.submit_options = submit or SubmitOptions()
    try:
        with executing_on(executor):
            client = env.execute_async(name)
    finally:
        executor.session.submit_options = SubmitOptions()
    master = executor.session.dispatcher.job(client.get_job_id().digits)
    assert master is not None
    return Driver(executor, master)


class Driver:
    """A running job under the control of a test."""

    def __init__(self, executor: EmbeddedExecutor, master: JobMaster) -> None:
        self.executor = executor
        self.master = master

    # --- queries ----------------------------------------------------------------------------------------------

    @property
    def workers(self) -> list[int]:
        """Process ids of the executors."""
        cluster = self.executor.provider.cluster
        assert cluster is not None
        return list(cluster.workers.values())

    @property
    def completed(self) -> int:
        """Number of checkpoints since the start."""
        return int(self.master.checkpoints.coordinator.history.overview()["counts"]["completed"])

    @property
    def failures(self) -> list[str]:
        return [f"{f.name}: {f.message}" for f in self.master.history.failures]

    def wait_for(self, condition: Callable[[], bool], description: str, patience_s: float = PATIENCE_S) -> float:
        """Wait for a condition, and return the seconds."""
        began = time.monotonic()
        while not condition():
            if self.master.is_done:
                raise AssertionError(
                    f"the job ended as {self.master.history.status.value} before {description}: {self.describe()}"
                )
            if time.monotonic() - began > patience_s:
                raise AssertionError(
                    f"timeout after {patience_s:.0f} s of waiting for: {description}: {self.describe()}"
                )
            time.sleep(0.02)
        return time.monotonic() - began

    def describe(self) -> str:
        """Return the state of the job, and the stack of its thread."""
        history = self.master.history
        text = f"{history.status.value}, {history.restarts} restarts, {self.completed} checkpoints, {self.failures}"
        thread = self.master._thread
        frame = None if thread is None else sys._current_frames().get(thread.ident or 0)
        return text if frame is None else f"{text}\n{''.join(traceback.format_stack(frame)[-6:])}"

    def running(self, checkpoints: int = 2) -> Driver:
        """Wait until the job runs and has completed this many more checkpoints."""
        wanted = self.completed + checkpoints
        self.wait_for(
            lambda: self.master.history.status is JobStatus.RUNNING and self.completed >= wanted, "the job to run"
        )
        return self

    def finished(self, patience_s: float = PATIENCE_S) -> Driver:
        """Wait until the job has finished successfully."""
        self.master.wait(patience_s)
        assert self.master.history.status is JobStatus.FINISHED, self.describe()
        return self

    # --- actions ---------------------------------------------------------------------------------------------

    def ask(self, kind: str, **arguments: Any) -> Operation:
        """Send a request and wait for its result."""
        operation = self.master.request(Operation(kind, arguments))
        assert operation.wait(PATIENCE_S), f"{kind} got no response: {self.describe()}"
        assert operation.failure is None, f"{kind}: {operation.failure}"
        return operation

    def hurt(self, fault: Callable[[], object]) -> float:
        """Do a fault that fails the job. Return the seconds until a checkpoint of the next attempt made output visible."""
        restarts = self.master.history.restarts
        fault()
        began = time.monotonic()
        self.wait_for(lambda: self.master.history.restarts > restarts, "the job to notice the fault")
        completed = self.completed
        self.wait_for(
            lambda: self.master.history.status is JobStatus.RUNNING and self.completed > completed, "the recovery"
        )
        return time.monotonic() - began

    @property
    def executors(self) -> list[str]:
        """Return the id of the executor of every slot."""
        runner = self.master.runner
        assert isinstance(runner, SparkRunner)
        return [slot.executor.id for slot in runner.placement]

    def kill_executor(self) -> None:
        """Kill the JVM of the first slot with SIGKILL."""
        assert processes.kill(self._executor())

    def kill_python_worker(self) -> None:
        """Kill a Python worker that the job has just used, with SIGKILL."""
        used = {pid for _, pid in self.master.metrics.workers}
        alive = used.intersection(processes.python_workers(self.workers))
        assert processes.kill(max(alive))

    def _executor(self) -> int:
        """Return the process id of the executor that has slot 0."""
        runner = self.master.runner
        assert isinstance(runner, SparkRunner)
        return processes.executor(self.workers, runner.placement[0].executor.id)

    def kill_worker(self) -> None:
        """Kill the TaskManager of the first slot with SIGKILL: executor and Python workers together, like a lost machine."""
        cluster = self.executor.provider.cluster
        assert isinstance(cluster, LocalCluster)
        used = self._executor()
        cluster.kill_worker(next(number for number, pid in cluster.workers.items() if pid == used))

    def misplace(self) -> None:
        """Swap two slots without the runner's knowledge, so that their state is in the wrong place."""
        runner = self.master.runner
        assert isinstance(runner, SparkRunner)
        runner._placement[0], runner._placement[1] = runner._placement[1], runner._placement[0]
