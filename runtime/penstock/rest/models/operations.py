"""Requests, long actions and their results."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.rest.models.base import Camel, Dashed, Shape

TRIGGER_ID_PATTERN = "^[0-9a-f]{32}$"


class Failures(Shape):
    """Response of every failed request: the message, then the remedy."""

    errors: list[str]


class SavepointRequest(Dashed):
    """`POST /jobs/:id/savepoints`. Flink's `formatType` is accepted and has no effect, because only one format exists."""

    target_directory: str | None = None
    cancel_job: bool = False
    trigger_id: str | None = Field(
        default=None, validation_alias="triggerId", serialization_alias="triggerId", pattern=TRIGGER_ID_PATTERN
    )


class CheckpointRequest(Camel):
    """`POST /jobs/:id/checkpoints`. `checkpoint_type` has no effect, because the state backend decides which files to upload."""

    checkpoint_type: Literal["CONFIGURED", "FULL", "INCREMENTAL"] = "CONFIGURED"
    trigger_id: str | None = Field(default=None, pattern=TRIGGER_ID_PATTERN)


class StopRequest(Camel):
    """`POST /jobs/:id/stop`"""

    target_directory: str | None = None
    drain: bool = False
    trigger_id: str | None = Field(default=None, pattern=TRIGGER_ID_PATTERN)


class DisposalRequest(Dashed):
    """`POST /savepoint-disposal`"""

    savepoint_path: str = Field(min_length=1)
    trigger_id: str | None = Field(
        default=None, validation_alias="triggerId", serialization_alias="triggerId", pattern=TRIGGER_ID_PATTERN
    )


class TriggerResponse(Dashed):
    """Response with the id for polling the action."""

    request_id: str


class RescaleTriggered(TriggerResponse):
    """`PATCH /jobs/:id/rescaling`. Some clients of Flink read the id as `triggerid`."""

    triggerid: str


class QueueStatus(Shape):
    id: Literal["IN_PROGRESS", "COMPLETED"]


class FailureCause(Dashed):
    """Cause of a failure, with Flink's names: `class`, `stack-trace`. `serialized-throwable` is empty, because no Java object exists."""

    class_: str = Field(validation_alias="class", serialization_alias="class")
    stack_trace: str
    serialized_throwable: str = ""


class OperationOutcome(Dashed):
    """Result of an action. `location`: path of the savepoint. A failed action has only the cause."""

    location: str | None = None
    failure_cause: FailureCause | None = None


class OperationResult(Shape):
    """Status of a long action. A failed action is COMPLETED with a failure cause."""

    status: QueueStatus
    operation: OperationOutcome | None = None


class CheckpointOutcome(Camel):
    checkpoint_id: int | None = None
    failure_cause: FailureCause | None = None


class CheckpointResult(Shape):
    """`GET /jobs/:id/checkpoints/:requestId`"""

    status: QueueStatus
    operation: CheckpointOutcome | None = None


class JobResult(Dashed):
    id: str
    application_status: Literal["SUCCEEDED", "FAILED", "CANCELED", "UNKNOWN"]
    accumulator_results: dict[str, Any] = {}
    net_runtime: int
    failure_cause: FailureCause | None = None


class ExecutionResult(Dashed):
    """`GET /jobs/:id/execution-result`"""

    status: QueueStatus
    job_execution_result: JobResult | None = None
