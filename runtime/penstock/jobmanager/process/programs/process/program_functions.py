"""The functions of a program's process that the session calls, for REST requests that concern the program's jobs.

They return the engine's own values (`rest.facts`) and plain values. The session converts them to the shapes of REST. So this process does
not import REST's packages, and a program can use other versions of these packages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.stacks.listener import MAX_BYTES, within
from penstock.common.stacks.sampling import Place, Sample
from penstock.jobmanager.cluster.task_managers import SlotUse
from penstock.jobmanager.process.session.gateway import DispatcherGateway
from penstock.rest import facts


def functions_of(gateway: DispatcherGateway) -> dict[str, Callable[..., Any]]:
    """Return the functions by name, with the types of their arguments."""
    insight = gateway.insight

    def trigger_savepoint(job_id: str, directory: str | None, cancel_job: bool, trigger_id: str | None) -> str:
        return gateway.trigger_savepoint(job_id, directory, cancel_job=cancel_job, trigger_id=trigger_id)

    def trigger_checkpoint(job_id: str, trigger_id: str | None) -> str:
        return gateway.trigger_checkpoint(job_id, trigger_id=trigger_id)

    def stop(job_id: str, directory: str | None, drain: bool, trigger_id: str | None) -> str:
        return gateway.stop(job_id, directory, drain=drain, trigger_id=trigger_id)

    def rescale(job_id: str, parallelism: int, trigger_id: str | None) -> str:
        return gateway.rescale(job_id, parallelism, trigger_id=trigger_id)

    def autoscaler(job_id: str) -> dict[str, Any]:
        return insight.autoscaler(job_id).model_dump(by_alias=True)

    def stacks(seconds: float, hertz: int) -> list[Sample]:
        return within(gateway.stacks(None, seconds, hertz, Place()), MAX_BYTES)

    return {
        function.__name__: function
        for function in (
            *(trigger_savepoint, trigger_checkpoint, stop, rescale),
            *(
                gateway.jobs,
                gateway.job,
                gateway.cancel,
                gateway.configure_autoscaler,
                gateway.operation,
                gateway.operations,
                gateway.slot_uses,
                gateway.readiness,
            ),
            *(gateway.checkpoint_overview, gateway.checkpoint_details, gateway.checkpoint_subtask_details),
            gateway.checkpoint_settings,
            *(insight.past_checkpoints, insight.metric_history, insight.connectors, insight.edges),
            *(autoscaler, insight.autoscaler_recording, stacks),
            *(insight.states, insight.state_entries, insight.live_entries),
        )
    }


RESULTS: dict[str, Any] = {
    "outcome": dict[str, Any],
    "results": dict[str, Any],
    "jobs": list[facts.Job],
    "job": facts.Job,
    "operation": facts.Operation,
    "operations": list[facts.Operation],
    "slot_uses": list[SlotUse],
    "checkpoint_overview": dict[str, Any],
    "checkpoint_details": dict[str, Any],
    "checkpoint_subtask_details": dict[str, Any],
    "checkpoint_settings": facts.CheckpointSettings,
    "past_checkpoints": list[facts.PastCheckpoint],
    "metric_history": facts.MetricHistory,
    "connectors": facts.Connectors,
    "edges": list[facts.Edge],
    "autoscaler": dict[str, Any],
    "autoscaler_recording": list[str],
    "states": list[facts.StateName],
    "state_entries": facts.StateEntries,
    "live_entries": facts.StateEntries,
    "stacks": list[Sample],
    "trigger_savepoint": str,
    "trigger_checkpoint": str,
    "stop": str,
    "rescale": str,
    "cancel": None,
    "configure_autoscaler": None,
}
"""Types of the results of the functions, by name."""
