"""The jobs of one program as a gateway of REST, over the connection to the program's process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from penstock.common.stacks.sampling import Sample
from penstock.jobmanager.cluster.task_managers import SlotUse
from penstock.jobmanager.history.archive import JobArchive, archive_of
from penstock.jobmanager.process.programs.process.program_functions import RESULTS
from penstock.jobmanager.process.programs.rpc import Connection, Disconnected
from penstock.metrics.store import MetricStore
from penstock.rest import facts, models
from penstock.rest.errors import Unavailable

ANSWER_S = 10.0
"""Time in seconds for the process of a program to answer. User code that keeps the interpreter busy can delay it."""
LIST_S = 1.0
"""The same time for requests that concern the jobs of all programs, for all of them together."""
LEAST_S = 0.05
"""Minimum time in seconds for one of them."""


class RemoteGateway:
    """Gateway to the jobs of a program. `rest.gateway.ClusterGateway` and `rest.insight.JobInsight` describe the methods.

    Raises:
        Unavailable: the process does not answer, or has just ended.
    """

    def __init__(self, process: Connection, program: str) -> None:
        self._process = process
        self._program = program

    def _call(self, function: str, *arguments: Any, timeout_s: float = ANSWER_S) -> Any:
        try:
            return self._process.call(function, *arguments, result=RESULTS[function], timeout_s=timeout_s)
        except TimeoutError:
            raise Unavailable(
                f"the process of program {self._program} does not answer",
                remedy="its log and a thread dump show what it does. Cancel the job if it does not continue: this kills the process",
            ) from None
        except Disconnected:
            raise Unavailable(
                f"the process of program {self._program} has just ended", remedy="repeat the request in a few seconds"
            ) from None

    # --- all jobs ---------------------------------------------------------------------------------------------

    def jobs(self, deadline: float) -> list[facts.Job]:
        """Return the jobs of the program. `deadline`: time on the monotonic clock for the answer."""
        found: list[facts.Job] = self._call("jobs", timeout_s=_left(deadline))
        return found

    def slot_uses(self, deadline: float) -> list[SlotUse]:
        found: list[SlotUse] = self._call("slot_uses", timeout_s=_left(deadline))
        return found

    def archive(self, job_id: str, metrics: MetricStore) -> JobArchive:
        """Return the REST data of a job. `metrics`: store with the job's metrics."""
        return archive_of(_Archived(self, metrics), job_id)

    # --- one job ----------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> facts.Job:
        found: facts.Job = self._call("job", job_id)
        return found

    def checkpoints(self, job_id: str) -> models.CheckpointingStatistics:
        return models.CheckpointingStatistics.model_validate(self._call("checkpoint_overview", job_id))

    def checkpoint(self, job_id: str, checkpoint_id: int) -> models.CheckpointStatistics:
        return models.CheckpointStatistics.model_validate(self._call("checkpoint_details", job_id, checkpoint_id))

    def checkpoint_subtasks(self, job_id: str, checkpoint_id: int, vertex_id: str) -> models.TaskCheckpointDetails:
        details = self._call("checkpoint_subtask_details", job_id, checkpoint_id, vertex_id)
        return models.TaskCheckpointDetails.model_validate(details)

    def checkpoint_settings(self, job_id: str) -> facts.CheckpointSettings:
        found: facts.CheckpointSettings = self._call("checkpoint_settings", job_id)
        return found

    def past_checkpoints(self, job_id: str) -> list[facts.PastCheckpoint]:
        found: list[facts.PastCheckpoint] = self._call("past_checkpoints", job_id)
        return found

    def metric_history(self, job_id: str, vertex_id: str | None) -> facts.MetricHistory:
        found: facts.MetricHistory = self._call("metric_history", job_id, vertex_id)
        return found

    def connectors(self, job_id: str) -> facts.Connectors:
        found: facts.Connectors = self._call("connectors", job_id)
        return found

    def autoscaler(self, job_id: str) -> models.AutoscalerStatus:
        return models.AutoscalerStatus.model_validate(self._call("autoscaler", job_id))

    def autoscaler_recording(self, job_id: str) -> list[str]:
        return list(self._call("autoscaler_recording", job_id))

    def edges(self, job_id: str) -> list[facts.Edge]:
        found: list[facts.Edge] = self._call("edges", job_id)
        return found

    def states(self, job_id: str) -> list[facts.StateName]:
        found: list[facts.StateName] = self._call("states", job_id)
        return found

    def state_entries(self, job_id: str, name: str, uid: str | None, key: str | None, limit: int) -> facts.StateEntries:
        found: facts.StateEntries = self._call("state_entries", job_id, name, uid, key, limit)
        return found

    def live_entries(self, job_id: str, name: str, uid: str | None, key: str) -> facts.StateEntries:
        found: facts.StateEntries = self._call("live_entries", job_id, name, uid, key)
        return found

    def stacks(self, seconds: float, hertz: int) -> list[Sample]:
        """Sample the threads of the process."""
        found: list[Sample] = self._call("stacks", seconds, hertz, timeout_s=seconds + ANSWER_S)
        return found

    # --- sent graphs ------------------------------------------------------------------------------------------

    def outcome(self, job_id: str) -> dict[str, Any]:
        return dict(self._call("outcome", job_id))

    def results(self, job_id: str, start: int) -> dict[str, Any]:
        return dict(self._call("results", job_id, start))

    # --- actions ----------------------------------------------------------------------------------------------

    def trigger_savepoint(
        self, job_id: str, target_directory: str | None, *, cancel_job: bool, trigger_id: str | None
    ) -> str:
        return str(self._call("trigger_savepoint", job_id, target_directory, cancel_job, trigger_id))

    def trigger_checkpoint(self, job_id: str, *, trigger_id: str | None) -> str:
        return str(self._call("trigger_checkpoint", job_id, trigger_id))

    def stop(self, job_id: str, target_directory: str | None, *, drain: bool, trigger_id: str | None) -> str:
        return str(self._call("stop", job_id, target_directory, drain, trigger_id))

    def cancel(self, job_id: str) -> None:
        self._call("cancel", job_id)

    def rescale(self, job_id: str, parallelism: int, *, trigger_id: str | None) -> str:
        return str(self._call("rescale", job_id, parallelism, trigger_id))

    def configure_autoscaler(self, job_id: str, keys: Mapping[str, Any], configuration_id: str) -> None:
        self._call("configure_autoscaler", job_id, dict(keys), configuration_id)

    def operation(self, request_id: str, deadline: float | None = None) -> facts.Operation:
        timeout_s = ANSWER_S if deadline is None else _left(deadline)
        found: facts.Operation = self._call("operation", request_id, timeout_s=timeout_s)
        return found

    def operations(self) -> list[facts.Operation]:
        found: list[facts.Operation] = self._call("operations")
        return found


class _Archived:
    """Gateway to a program's jobs, with the metrics that the session keeps, for `archive_of`."""

    def __init__(self, gateway: RemoteGateway, metrics: MetricStore) -> None:
        self._gateway = gateway
        self.metrics = metrics

    @property
    def insight(self) -> RemoteGateway:
        return self._gateway

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gateway, name)


def _left(deadline: float) -> float:
    """Return the time in seconds until a deadline."""
    return max(LEAST_S, deadline - time.monotonic())
