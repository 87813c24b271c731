"""The one seam between REST and the engine. The JobManager implements it; tests use a fake.

All methods may be called from several threads at once and return quickly: the web framework runs them in its thread
pool. What takes long (savepoint, rescale, …) is started, and its request id returned; `operation` tells how it stands.
A caller may choose the id (`trigger_id`, 32 hex digits): asking again with the same id gives that id back and starts
nothing, so that a client that lost the answer can repeat its question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.common.logs.log_file import LogPart
    from penstock.common.stacks.sampling import Place, Sample
    from penstock.metrics.store import MetricStore
    from penstock.rest import facts, models
    from penstock.rest.insight import JobInsight


class Programs(Protocol):
    """Of a session cluster: it runs what it is sent."""

    def submit(self, content: bytes, penstock: str, python: str) -> str:
        """Run a program; waits until it was accepted, and gives the job's id.

        Args:
            content: what `penstock.jobmanager.process.shipping` made of it.
            penstock, python: versions that made it.
        """
        ...

    def outcome(self, job_id: str) -> models.ProgramOutcome: ...

    def results(self, job_id: str, start: int) -> models.ProgramResults:
        """Records of `execute_and_collect` from a number on; waits a second for the first."""
        ...


class ClusterGateway(Protocol):
    """What REST asks of the engine.

    Everywhere: an unknown job id raises `rest.errors.NotFound`; a job that is not in a state for an action raises
    `Conflict`; a JobManager that does not lead raises `Unavailable`. Any other `PenstockError` is shown as it is.
    """

    @property
    def metrics(self) -> MetricStore:
        """Where the engine reports to. Vertex ids in it are those of `facts.Vertex`."""
        ...

    @property
    def insight(self) -> JobInsight:
        """What only the dashboard asks for."""
        ...

    # the cluster

    def readiness(self) -> facts.Readiness: ...

    def cluster(self) -> facts.Cluster: ...

    def configuration(self) -> Mapping[str, str]:
        """The JobManager's configuration, flat. Values of keys that name secrets are hidden by REST."""
        ...

    def logs(self, task_manager: str | None) -> Sequence[facts.LogFile]:
        """What a TaskManager, or with None the JobManager, keeps of its log and of what was printed there.

        Raises:
            NotFound: there is no such TaskManager.
            Unavailable: it does not answer.
        """
        ...

    def read_log(self, task_manager: str | None, name: str, start: int, most: int) -> LogPart:
        """Whole lines from a position on, a negative one from the end; about `most` bytes at most, without secrets.

        Raises:
            NotFound: there is no such TaskManager or log.
            Unavailable: the TaskManager does not answer.
        """
        ...

    def stacks(self, task_manager: str | None, seconds: float, hertz: int, of: Place) -> Sequence[Sample]:
        """What the threads of a TaskManager's Python workers, or with None those of the JobManager's process, do.

        Args:
            seconds: to look for, and until it returns; 0: once.
            of: a job, a vertex of it or a subtask of that; everything by default.

        Raises:
            NotFound: there is no such TaskManager.
            Unavailable: it does not answer.
        """
        ...

    def measurements(self) -> facts.Measurements:
        """What the JVMs say of themselves: asked for now, but not more than once a second."""
        ...

    def shut_down(self) -> None:
        """Begin to end the cluster; returns at once."""
        ...

    # jobs

    def jobs(self) -> Sequence[facts.Job]:
        """All jobs, also ended ones that are still remembered."""
        ...

    def job(self, job_id: str) -> facts.Job: ...

    def checkpoints(self, job_id: str) -> models.CheckpointingStatistics:
        """Counts, summary and history, newest first. `penstock.checkpoint.coordinator.statistics` has them in that shape."""
        ...

    def checkpoint(self, job_id: str, checkpoint_id: int) -> models.CheckpointStatistics:
        """One checkpoint with its `tasks` by vertex; `NotFound` if the history does not hold it (any more)."""
        ...

    def checkpoint_subtasks(self, job_id: str, checkpoint_id: int, vertex_id: str) -> models.TaskCheckpointDetails:
        """One vertex's part in a checkpoint, by the engine's vertex id; `NotFound` if it is not known."""
        ...

    def checkpoint_settings(self, job_id: str) -> facts.CheckpointSettings: ...

    # actions

    def trigger_savepoint(
        self, job_id: str, target_directory: str | None, *, cancel_job: bool, trigger_id: str | None
    ) -> str:
        """Take a savepoint; with `cancel_job` cancel the job when it is complete, and only then.

        Raises:
            InvalidJob: no directory was given and the configuration names none.
        """
        ...

    def trigger_checkpoint(self, job_id: str, *, trigger_id: str | None) -> str:
        """Take a checkpoint now."""
        ...

    def stop(self, job_id: str, target_directory: str | None, *, drain: bool, trigger_id: str | None) -> str:
        """Stop the job with a savepoint; `drain`: fire all windows and timers first. A failure leaves it running."""
        ...

    def cancel(self, job_id: str) -> None:
        """Begin to cancel; does nothing if the job is being cancelled already."""
        ...

    def rescale(self, job_id: str, parallelism: int, *, trigger_id: str | None) -> str:
        """Change the parallelism of the running job. A failure leaves it as it is."""
        ...

    def dispose_savepoint(self, path: str, *, trigger_id: str | None) -> str: ...

    def operation(self, request_id: str) -> facts.Operation:
        """How an action stands; `NotFound` if it was never asked for or too long ago."""
        ...
