"""The only interface between REST and the engine. The JobManager implements it, and tests use a fake.

All methods may be called from several threads at once and return quickly, because the web framework runs the methods in
its thread pool. A method for a long action (savepoint, rescale, …) starts the action and returns the request id.
`operation` returns the status of the action. A caller may choose the id (`trigger_id`, 32 hex digits). A second request
with the same id returns that id and starts nothing, so a client that lost the response can repeat its request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.common.logs.log_file import LogPart
    from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
    from penstock.common.stacks.sampling import Place, Sample
    from penstock.metrics.store import MetricStore
    from penstock.rest import facts, models
    from penstock.rest.insight import JobInsight


class Programs(Protocol):
    """Programs that clients send to a session cluster."""

    def submit(self, content: bytes, penstock: str, python: str, *, collects: bool) -> str:
        """Run a program. Wait until the program is accepted, and return the job's id.

        Args:
            content: bytes that `penstock.jobmanager.process.programs.process.shipping` created.
            penstock, python: versions of Penstock and Python that created the bytes.
            collects: whether the client requests the records with `results`.
        """
        ...

    def outcome(self, job_id: str) -> models.ProgramOutcome: ...

    def results(self, job_id: str, start: int) -> models.ProgramResults:
        """Return the records of `execute_and_collect` from the record number `start` on. Wait up to one second for the first record."""
        ...


class Jars(Protocol):
    """Programs that clients upload to a session cluster and start. The name "jar" comes from Flink's paths. A program is Python code."""

    def upload(self, name: str, content: bytes) -> facts.Jar:
        """Store a program.

        Raises:
            InvalidJob: the file is not a program, or the program is too large.
        """
        ...

    def fetch(self, request: facts.FetchRequest) -> facts.Jar:
        """Fetch and store a program.

        Raises:
            InvalidJob: the source does not exist, access is denied, or its content is not that of the request.
            Unavailable: the source does not respond.
        """
        ...

    def jars(self) -> Sequence[facts.Jar]: ...

    def delete(self, jar_id: str) -> None:
        """Delete a program. Programs that were started from it continue."""
        ...

    def run(self, jar_id: str, request: facts.RunRequest) -> facts.Application:
        """Start a program. Wait until its first job is accepted, and return the program with this job."""
        ...

    def applications(self) -> Sequence[facts.Application]:
        """Return the started programs, including ended ones that are still kept."""
        ...

    def application(self, application_id: str) -> facts.Application: ...

    def cancel_application(self, application_id: str) -> None:
        """Start to cancel a program with all its jobs. If it has ended, do nothing."""
        ...

    def plan(self, jar_id: str, request: facts.RunRequest) -> Mapping[str, object]:
        """Return the graph of the program's first job, without running it."""
        ...

    def output(self, job_id: str, start: int, most: int, *, log: bool) -> LogPart:
        """Return a part of a program's output, or of its log, in the same way as `ClusterGateway.read_log`. Raise `NotFound` if the text is
        not kept.
        """
        ...


class ClusterGateway(Protocol):
    """Methods of the engine for REST.

    In all methods, an unknown job id raises `rest.errors.NotFound`. A job whose state does not allow an action raises `Conflict`. A
    JobManager that does not lead raises `Unavailable`. Any other `PenstockError` is shown unchanged.
    """

    @property
    def metrics(self) -> MetricStore:
        """Return the store of the engine's metrics. Its vertex ids are the same as in `facts.Vertex`."""
        ...

    @property
    def insight(self) -> JobInsight:
        """Return the data that only the dashboard needs."""
        ...

    # the cluster

    def readiness(self) -> facts.Readiness: ...

    def cluster(self) -> facts.Cluster: ...

    def configuration(self) -> Mapping[str, str]:
        """Return the JobManager's configuration as a flat mapping. REST hides the values of secret keys."""
        ...

    def logs(self, task_manager: str | None) -> Sequence[facts.LogFile]:
        """Return the logs and the standard output of a TaskManager. None means the JobManager.

        Raises:
            NotFound: the TaskManager does not exist.
            Unavailable: the TaskManager does not respond.
        """
        ...

    def read_log(self, task_manager: str | None, name: str, start: int, most: int) -> LogPart:
        """Return whole lines from a position on, without secrets. A negative position counts from the end. The maximum is about `most`
        bytes.

        Raises:
            NotFound: the TaskManager or the log does not exist.
            Unavailable: the TaskManager does not respond.
        """
        ...

    def stacks(self, task_manager: str | None, seconds: float, hertz: int, of: Place) -> Sequence[Sample]:
        """Sample the threads of a TaskManager's Python workers. None means the JobManager's process. If `of` names a job of a session, this is
        the process of the job's program.

        Args:
            seconds: duration of the sampling and of the call. 0 means one sample.
            of: a job, one of its vertices or a subtask. Default: everything.

        Raises:
            NotFound: the TaskManager does not exist.
            Unavailable: the TaskManager does not respond.
        """
        ...

    def edge_records(self, task_manager: str, question: EdgeQuestion) -> Sequence[EdgeRecord]:
        """Wait for records on an edge of the job graph in the tasks of a TaskManager, and return the last records.

        Raises:
            NotFound: the TaskManager does not exist.
            Unavailable: the TaskManager does not respond.
        """
        ...

    def measurements(self) -> facts.Measurements:
        """Return the current metrics of the JVMs. They are requested at most once per second."""
        ...

    def shut_down(self) -> None:
        """Start the shutdown of the cluster and return at once."""
        ...

    # jobs

    def jobs(self) -> Sequence[facts.Job]:
        """Return all jobs, including ended jobs that are still kept."""
        ...

    def job(self, job_id: str) -> facts.Job: ...

    def checkpoints(self, job_id: str) -> models.CheckpointingStatistics:
        """Return counts, summary and history. The history has the newest checkpoint first. `penstock.checkpoint.coordinator.statistics`
        creates them.
        """
        ...

    def checkpoint(self, job_id: str, checkpoint_id: int) -> models.CheckpointStatistics:
        """Return one checkpoint with its `tasks` by vertex. Raise `NotFound` if the history does not contain it."""
        ...

    def checkpoint_subtasks(self, job_id: str, checkpoint_id: int, vertex_id: str) -> models.TaskCheckpointDetails:
        """Return a vertex's part of a checkpoint, by the engine's vertex id. Raise `NotFound` if the checkpoint or the vertex is unknown."""
        ...

    def checkpoint_settings(self, job_id: str) -> facts.CheckpointSettings: ...

    # actions

    def trigger_savepoint(
        self, job_id: str, target_directory: str | None, *, cancel_job: bool, trigger_id: str | None
    ) -> str:
        """Take a savepoint. If `cancel_job` is set, cancel the job only after the savepoint is complete.

        Raises:
            InvalidJob: no directory was given, and the configuration names no directory.
        """
        ...

    def trigger_checkpoint(self, job_id: str, *, trigger_id: str | None) -> str:
        """Take a checkpoint now."""
        ...

    def stop(self, job_id: str, target_directory: str | None, *, drain: bool, trigger_id: str | None) -> str:
        """Stop the job with a savepoint. `drain`: fire all windows and timers first. If the stop fails, the job keeps running."""
        ...

    def cancel(self, job_id: str) -> None:
        """Start to cancel the job. If the job is already being cancelled, do nothing."""
        ...

    def rescale(self, job_id: str, parallelism: int, *, trigger_id: str | None) -> str:
        """Change the parallelism of the running job. If the rescale fails, the parallelism stays the same."""
        ...

    def configure_autoscaler(self, job_id: str, keys: Mapping[str, Any], configuration_id: str) -> None:
        """Replace the settings of the autoscaler of the running job.

        Raises:
            InvalidJob: a key or value is not valid. The settings then do not change.
        """
        ...

    def dispose_savepoint(self, path: str, *, trigger_id: str | None) -> str: ...

    def operation(self, request_id: str) -> facts.Operation:
        """Return the status of an action. Raise `NotFound` if the action was never requested, or was requested too long ago."""
        ...
