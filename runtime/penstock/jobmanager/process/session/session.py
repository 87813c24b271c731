"""A JobManager process: a cluster, a Dispatcher, a REST server, and the executor that runs programs on them.

The embedded session of `python job.py` and the master of a deployment differ only in the component that starts the workers.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from penstock.common.completable_future import CompletableFuture
from penstock.common.config import options
from penstock.common.config.option_table import without_effect
from penstock.common.configuration import Configuration, unread_file
from penstock.common.errors import ClusterError, JobSuspended, PenstockError
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.program.bundle import Bundle
from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
from penstock.common.stacks.listener import Question
from penstock.common.stacks.sampling import Place, Sample
from penstock.common.system.open_files import raise_limit
from penstock.functions.operator_context import SystemClock
from penstock.graph.executor import JobResults
from penstock.graph.program import Program
from penstock.jobmanager.cluster.logs.files import ClusterLogs, LogFiles, LogSource
from penstock.jobmanager.cluster.task_managers import SlotUse, Worker
from penstock.jobmanager.failover.failures import JobFailed, failure_of
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.job_parts import JobMasterOptions, ResultSink
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.session.collected import ResultQueue
from penstock.jobmanager.process.session.dispatcher import Dispatcher
from penstock.jobmanager.process.session.program_settings import settings_of
from penstock.jobmanager.process.session.recorded_plans import recorded_plans
from penstock.jobmanager.process.session.request_journal import RequestJournal, continue_requests
from penstock.jobmanager.runners.runner import Runner
from penstock.jobmanager.validation.deployment import check_elected, check_runner
from penstock.jobmanager.validation.sink_settings import check_borders

if TYPE_CHECKING:
    import socket
    import ssl

    from penstock.jobmanager.process.session.gateway import DispatcherGateway
    from penstock.jobmanager.reporting.reporting import Reporting
    from penstock.metrics.store import ScopeReadings
    from penstock.rest import facts
    from penstock.rest.gateway import ClusterGateway, Jars, Programs
    from penstock.rest.server import RestServer


logger = logging.getLogger(__name__)


class ClusterProvider(Protocol):
    """Provider of a session's cluster. The kind of cluster depends on the needs of the first job."""

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, dataframes: bool) -> Runner: ...

    def task_managers(self) -> list[Worker]:
        """Return the registered TaskManagers."""
        ...

    def logs(self, task_manager: str) -> LogSource:
        """Return the log and the standard output that a TaskManager keeps. Any thread may call it."""
        ...

    def stacks(self, task_manager: str, question: Question, of: Place) -> list[Sample]:
        """Sample the threads of a TaskManager's Python workers, and wait for the samples. Any thread may call it."""
        ...

    def records(self, task_manager: str, question: EdgeQuestion) -> list[EdgeRecord]:
        """Wait for records on an edge in a TaskManager's Python workers, and return the last records. Any thread may call it."""
        ...

    def readings(self, task_manager: str | None) -> str:
        """Return the metrics of a TaskManager's JVM. None means the JobManager's JVM. If there is no JVM, return an empty text. Any thread
        may call it.
        """
        ...

    def stop(self) -> None: ...


CANCEL_S = 10.0
"""Time in seconds for a job to end after Ctrl-C."""


@dataclass
class SubmitOptions:
    """Options of the command line for a start."""

    job_id: str = ""
    restore_path: str = ""
    fresh: bool = False
    awaits_release: bool = False
    """See `JobMasterOptions.awaits_release`."""
    allow_non_restored: bool | list[str] = False
    keep_result: bool = False
    """See `JobMasterOptions.keep_result`."""


class Session:
    """Executor that runs programs; see the module docstring. Thread-safe."""

    def __init__(self, cluster: ClusterProvider, submit: SubmitOptions | None = None) -> None:
        raise_limit()
        self.cluster = cluster
        self.dispatcher = Dispatcher()
        self.submit_options = submit or SubmitOptions()
        self.logs = LogFiles()
        """Logs of this process."""
        self._reporting: Reporting | None = None
        self.on_line: Callable[[str], None] | None = _print
        self.bundle: Bundle | None = None
        """Bundle of the program that this process runs. None means that its code is part of this machine."""
        self.job_id_of: Callable[[Program], str] = lambda program: JobID.generate().digits
        """Function that returns the id of a program's job, if `submit_options` has no id."""
        self.parallelism_of: Callable[[str], int | None] = lambda job_id: None
        """Function that returns the parallelism of a job after its last rescale, by job id. None means that of the program."""
        self.on_started: Callable[[JobMaster], None] | None = None
        """Callback before a job's first access to storage."""
        self.on_accepted: Callable[[JobMaster], None] | None = None
        """Callback after a job was accepted."""
        self._given_warnings: set[str] = set()
        self.waits_to_lead: Callable[[float], bool] | None = None  # see `JobMasterOptions.waits_to_lead`
        self.confirms_lead: Callable[[float, float | None], bool] = lambda timeout_s, since_s: True
        """Function that confirms that this process still leads (`Member.confirm`)."""
        self.on_serving: Callable[[], object] = lambda: None
        """Callback when this process leads and knows the requests to the previous leader."""

    def submit(self, program: Program, on_results: Callable[[str, list[bytes]], None] | None = None) -> JobMaster:
        """Check the program, find slots and start the job. Wait until the job is accepted or refused."""
        submit_options = self.submit_options
        self._warn_of_settings(program)
        settings = replace(settings_of(program), bundle=self.bundle)
        job_id = submit_options.job_id or self.job_id_of(program)
        master_options = JobMasterOptions(
            restore_path=submit_options.restore_path or settings.recovery_path,
            fresh=submit_options.fresh,
            awaits_release=submit_options.awaits_release,
            allow_non_restored=submit_options.allow_non_restored
            or settings.ignore_unclaimed
            or settings.allow_dropped
            or False,
            sink=ResultSink(on_results, self.on_line),
            keep_result=submit_options.keep_result,
            parallelism=self.parallelism_of(job_id),
            waits_to_lead=None if self.waits_to_lead is None else lambda seconds: self._waits_to_lead(master, seconds),
        )
        master = JobMaster(program, job_id, settings, SystemClock(), master_options)
        graph = master.graph
        check_runner(graph, settings)
        if self.waits_to_lead is not None:
            check_elected(settings)
        check_borders(graph, settings.checkpoint_interval_ms)
        self.dispatcher.check_free(master.job_id)
        conf = Configuration(settings.configuration)
        self._report(conf)
        master.attach(
            self.cluster.runner_for(graph.slots, graph.levels, settings, dataframes=graph.needs_spark),
            self.dispatcher.metric_store,
        )
        self.dispatcher.max_ended_jobs = conf.get(options.JOBSTORE_CAPACITY)
        self.dispatcher.ended_jobs_ttl_s = conf.get(options.JOBSTORE_EXPIRATION).total_seconds()
        self.dispatcher.add(master)
        if conf.get(options.ARCHIVE_DIRECTORY):
            master.on_ended = self._archive
        if self.on_started is not None:
            self.on_started(master)
        master.start()
        if master.wait_for_acceptance() and self.on_accepted is not None:
            self.on_accepted(master)
        return master

    def _waits_to_lead(self, master: JobMaster, seconds: float) -> bool:
        """Wait for the leadership. Then continue the requests to the previous leader."""
        journal = self.dispatcher.journals.setdefault(master.job_id, RequestJournal(master.checkpoints.storage))
        journal.note_earlier()
        if self.waits_to_lead is None or not self.waits_to_lead(seconds):
            return False
        master.checkpoints.begin_lead(self.confirms_lead)
        continue_requests(journal, master, self.dispatcher.add_operation, master.checkpoints.result())
        self.on_serving()
        return True

    def _warn_of_settings(self, program: Program) -> None:
        """Warn once about each setting that has no effect."""
        folders = [os.getcwd(), *([os.path.dirname(program.user_script)] if program.user_script else [])]
        for text in (*map(without_effect, program.configuration), unread_file(*folders)):
            if text and text not in self._given_warnings:
                self._given_warnings.add(text)
                logger.warning("%s", text)

    def _report(self, conf: Configuration) -> None:
        """Start the reporters of the first job that configures reporters. They report on all jobs."""
        wanted = (options.METRICS_REPORTERS, options.TRACES_REPORTERS, options.LOGS_REPORTERS)
        if self._reporting is not None or not any(map(conf.get, wanted)):
            return
        from penstock.jobmanager.reporting.log_tails import LogTails
        from penstock.jobmanager.reporting.reporting import Reporting
        from penstock.rest.metric_facts import refresh_metrics

        gateway = self.create_gateway(conf)

        def collect() -> list[ScopeReadings]:
            refresh_metrics(gateway)
            return gateway.metrics.collect()

        def tails() -> LogTails:
            return LogTails(
                gateway,
                lambda: [worker.id for worker in self.cluster.task_managers()],
                lambda: {job.program.name: job.job_id for job in self.dispatcher.jobs()},
            )

        self._reporting = Reporting(conf, collect, self.dispatcher.jobs, tails)

    def _archive(self, job: JobMaster) -> None:
        from penstock.jobmanager.history.archiving import archive_job

        archive_job(self.dispatcher, job)

    # --- Executor ---------------------------------------------------------------------------------------------

    def execute(self, program: Program) -> JobExecutionResult:
        master = self.submit(program)
        try:
            master.wait()
        except KeyboardInterrupt:
            is_canceled = master.request(Operation("cancel")).wait(CANCEL_S)
            told = "is canceled" if is_canceled else f"has not ended within {CANCEL_S:.0f} s. Its process ends"
            # A subclass would end the process with code 1, not 130.
            raise KeyboardInterrupt(f"interrupted: job {program.name!r} ({master.job_id}) {told}") from None
        raise_if_failed(master)
        return result_of(master)

    def execute_async(self, program: Program) -> JobClient:
        master = self.submit(program)
        if not master.is_accepted:
            raise_if_failed(master)
        return SessionJobClient(master, self.dispatcher)

    def collect(self, program: Program, limit: int | None) -> Iterator[Any]:
        return JobResults(partial(self._results, program, limit))

    def _results(
        self, program: Program, limit: int | None, submitted: Callable[[Callable[[], object]], None]
    ) -> Generator[Any]:
        results = ResultQueue()
        master = self.submit(program, results.put)
        submitted(lambda: master.request(Operation("cancel")))
        returned = 0
        try:
            for value in results.values(master):
                yield value
                returned += 1
                if limit is not None and returned >= limit:
                    return
            raise_if_failed(master)
        finally:
            if not master.is_done:
                master.request(Operation("cancel"))
                master.wait(30)

    def recorded_plans(self, configuration: Configuration) -> Mapping[str, Any]:
        submit = self.submit_options
        return {} if submit.fresh else recorded_plans(configuration, submit.job_id, submit.restore_path)

    def serve(
        self,
        settings: Configuration,
        *,
        fall_back: bool = False,
        programs: Programs | None = None,
        listener: socket.socket | None = None,
        jars: Jars | None = None,
        leader: Callable[[], str | None] | None = None,
        leader_tls: ssl.SSLContext | bool = True,
    ) -> RestServer | None:
        """Start the REST server according to the configuration. Return None if the configuration disables it.

        Args:
            fall_back: use any free port if the configured port is in use.
            programs: receiver of the programs that clients send.
            listener: socket that already accepts connections.
            jars: programs that clients upload.
            leader, leader_tls: see `RestServer`.

        Raises:
            ClusterError: the address cannot be used.
            CertificateError: `rest.ssl.*` is enabled and names files that cannot be used.
        """
        if settings.get(options.REST_PORT) < 0:
            return None
        # These imports would take a third of the time of a small job without REST.
        from penstock.rest.server import RestServer
        from penstock.rest.transport.tls import tls_files

        gateway = self.create_gateway(settings)
        host, port = settings.get(options.REST_BIND_ADDRESS), settings.get(options.REST_PORT)
        token_file = settings.to_dict().get("security.rest.token-file") or None
        allowed = settings.get(options.REST_ALLOWED_HOSTS)
        reader_file = settings.get(options.REST_READER_TOKEN_FILE) if token_file else None
        tls = tls_files(settings)
        try:
            return RestServer(
                gateway,
                host,
                port,
                token_file,
                allowed,
                reader_file,
                programs,
                tls=tls,
                jars=jars,
                leader=leader,
                leader_tls=leader_tls,
            ).start(listener)
        except ClusterError:
            if not fall_back:
                raise
            return RestServer(gateway, host, 0, token_file, allowed, reader_file, tls=tls).start()

    def stop(self) -> None:
        self.end_jobs()
        self.cluster.stop()

    def end_jobs(self) -> None:
        """Cancel the running jobs, and stop the reporters."""
        for master in self.dispatcher.jobs():
            if not master.is_done:
                master.request(Operation("cancel"))
                master.wait(10)
        reporting, self._reporting = self._reporting, None
        if reporting is not None:
            reporting.close()

    def create_gateway(self, settings: Configuration) -> ClusterGateway:
        """Return the gateway of REST to the jobs."""
        return self.own_gateway(settings)

    def own_gateway(
        self,
        settings: Configuration,
        more_uses: Callable[[], list[SlotUse]] = list,
        more_jobs: Callable[[], Sequence[facts.Job]] = list,
    ) -> DispatcherGateway:
        """Return the gateway to the jobs of this process.

        Args:
            more_uses, more_jobs: see `DispatcherGateway`.
        """
        from penstock.jobmanager.process.session.gateway import DispatcherGateway

        cluster, logs = self.cluster, ClusterLogs(self.logs, self.cluster.logs)
        return DispatcherGateway(
            self.dispatcher,
            settings.to_dict(),
            cluster.task_managers,
            self.stop,
            logs,
            cluster.stacks,
            cluster.records,
            cluster.readings,
            more_uses,
            more_jobs,
        )


class SessionJobClient(JobClient):
    """Client of a job in this process. `execute_async` returns it."""

    def __init__(self, master: JobMaster, dispatcher: Dispatcher) -> None:
        self._master = master
        self._dispatcher = dispatcher

    def get_job_id(self) -> JobID:
        return JobID(self._master.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(self._master.history.status)

    def cancel(self) -> CompletableFuture[None]:
        return self._request(Operation("cancel"), lambda _: None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        arguments = {"drain": advance_to_end_of_event_time, "directory": savepoint_directory or ""}
        return self._request(Operation("stop", arguments), lambda operation: operation.location or "")

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return self._request(
            Operation("savepoint", {"directory": savepoint_directory or ""}), lambda operation: operation.location or ""
        )

    def rescale(self, parallelism: int) -> CompletableFuture[int]:
        """Change the parallelism of the running job. The result is the new parallelism."""
        return self._request(
            Operation("rescale", {"parallelism": parallelism}), lambda operation: int(operation.result)
        )

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        return CompletableFuture.completed(_accumulators_of(self._master))

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        def wait() -> JobExecutionResult:
            self._master.wait()
            raise_if_failed(self._master)
            return result_of(self._master)

        return _in_background(wait)

    def _request(self, operation: Operation, answer: Callable[[Operation], Any]) -> CompletableFuture[Any]:
        self._dispatcher.request(self._master, operation)

        def wait() -> Any:
            operation.wait()
            if operation.failure is not None:
                raise ClusterError(operation.failure)
            return answer(operation)

        return _in_background(wait)


def _in_background(work: Callable[[], Any]) -> CompletableFuture[Any]:
    future: CompletableFuture[Any] = CompletableFuture()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # the caller that requests the result handles the error
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def raise_if_failed(master: JobMaster) -> None:
    """Raise the cause of the job's failure, with the user's frames first. If this process left a running job, raise the reason.

    Raises:
        Fenced: another JobManager has taken over.
        JobSuspended: this process received a stop signal and left the job with its checkpoints.
    """
    if master.history.status is JobStatus.SUSPENDED:
        raise _suspended(master)
    if master.history.status is not JobStatus.FAILED:
        return
    is_explained = isinstance(master.error, JobFailed | PenstockError)
    raise failure_of(master.error) from None if is_explained else master.error


def _suspended(master: JobMaster) -> PenstockError:
    if isinstance(master.error, PenstockError):
        return master.error
    return JobSuspended(
        f"job {master.program.name!r} ({master.job_id}) did not end, but this process received a signal to shut down",
        remedy="start a master with the same job id to continue the job from its newest checkpoint",
    )


def result_of(master: JobMaster) -> JobExecutionResult:
    started = master.history.started_at
    ended = master.history.timestamps.get(master.history.status.value, started)
    return JobExecutionResult(JobID(master.job_id), ended - started, _accumulators_of(master))


def _accumulators_of(master: JobMaster) -> dict[str, Any]:
    return {name: value for name, (_, value) in master.metrics.accumulators().items()}


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
