"""The jobs of one program as a gateway of REST, over the connection to the program's process."""

from __future__ import annotations

from typing import Any

from penstock.jobmanager.cluster.task_managers import SlotUse
from penstock.jobmanager.process.programs.program_functions import RESULTS
from penstock.jobmanager.process.programs.rpc import Connection, Disconnected
from penstock.rest import facts, models
from penstock.rest.errors import Unavailable

ANSWER_S = 10.0
"""Time in seconds for the process of a program to answer. User code that keeps the interpreter busy can delay it."""
LIST_S = 2.0
"""Time in seconds to answer a request that concerns the jobs of all programs."""


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
                f"the process of program {self._program} has not answered for {timeout_s:.0f} s",
                remedy="its log and a thread dump show what it does. Cancel the program if it does not continue",
            ) from None
        except Disconnected:
            raise Unavailable(
                f"the process of program {self._program} has just ended", remedy="repeat the request in a few seconds"
            ) from None

    # --- all jobs ---------------------------------------------------------------------------------------------

    def jobs(self) -> list[facts.Job]:
        found: list[facts.Job] = self._call("jobs", timeout_s=LIST_S)
        return found

    def slot_uses(self) -> list[SlotUse]:
        found: list[SlotUse] = self._call("slot_uses", timeout_s=LIST_S)
        return found

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

    def operation(self, request_id: str) -> facts.Operation:
        found: facts.Operation = self._call("operation", request_id)
        return found

    def operations(self) -> list[facts.Operation]:
        found: list[facts.Operation] = self._call("operations")
        return found
